# SPDX-License-Identifier: Apache-2.0
# Models of LightGBM are handed over as the memory in which their library has them (guests/heap/library.h), and trees of
# scikit-learn as a copy of theirs. As they pickle themselves, LightGBM makes a text of a model and reads it again, and
# scikit-learn copies each tree twice. LightGBM's memory comes from the segment of the call while it reads a model's text,
# which is the last thing that training does. It is run before `heap.py`, in the same module.

import ctypes
import errno
import sys

# What was looked at: where a model keeps what it has, and what of its library writes to it.
LIGHTGBM_MAJOR, LIGHTGBM_FILE = "4", "/lib_lightgbm.so"
# What makes a model that lasts. What trains one has much memory that does not.
LIGHTGBM_READS = "LGBM_BoosterLoadModelFromString", "LGBM_BoosterCreateFromModelfile"
# A model with two leaves, by which the library makes what it keeps for all others.
LIGHTGBM_SMALLEST = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=0
objective=regression
feature_names=one
feature_infos=[0:1]
tree_sizes=230

Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=0 1
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=2
internal_count=2
is_linear=0
shrinkage=1


end of trees

parameters:
[boosting: gbdt]
[objective: regression]
end of parameters
"""
# Of trees: words behind the head of an object, and at which of them is what.
TREE_WORDS, TREE_CLASSES, TREE_OUTPUTS, TREE_CAPACITY, TREE_NODES, TREE_VALUES, TREE_STRIDE = 11, 2, 3, 7, 8, 9, 10
OBJECT_HEAD, WORD = 16, 8
# What a node has, which is no address, and in how many bytes.
NODE_FIELDS = {"left_child": "<i8", "right_child": "<i8", "feature": "<i8", "threshold": "<f8", "impurity": "<f8",
               "n_node_samples": "<i8", "weighted_n_node_samples": "<f8", "missing_go_to_left": "|u1"}  # fmt: skip
NODE_BYTES = 64

# By name, what this process has of libraries that are adopted.
libraries = {}


class Place(ctypes.Structure):
    """Where a library is, as `struct place` of library.h."""

    _fields_ = [("begin", ctypes.c_size_t), ("end", ctypes.c_size_t), ("digest", ctypes.c_uint64)]


class Boosters:
    """Models of LightGBM, in a process that has its library where all that are forked from one template have it."""

    def __init__(self, core, kind, place):
        self.core, self.kind, self.place = core, kind, place

    def reduced(self, model):
        """How one is pickled into a value that is mapped; None if it cannot be."""
        at = address_of(model)
        # Another thread may be at it, and have its lock, which who is given it would wait for in vain.
        if not at or len(sys._current_frames()) > 1 or not self.core.heap_reach(at):
            return None
        # What a model has learned from stays where it is, as when it is pickled.
        state = {name: value for name, value in vars(model).items() if name not in ("_handle", "train_set", "valid_sets")}
        return booster_at, (self.place, at), state, None, None, booster_has

    def bytes_of(self, model):
        at = address_of(model)
        return self.core.library_reached(at) if at else 0

    def made_at(self, at):
        model = self.kind.__new__(self.kind)
        model._handle = ctypes.c_void_p(at)
        return model


class Trees:
    """Trees of scikit-learn, of which all is plain data but three pointers to such."""

    def __init__(self, core, kind):
        self.core, self.kind, self.place = core, kind, None
        self.words = ctypes.c_uint64 * TREE_WORDS
        # Zeros, and no more: what makes a tree takes memory for it.
        self.new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(("PyType_GenericAlloc", ctypes.pythonapi))

    def words_of(self, tree):
        return self.words.from_address(id(tree) + OBJECT_HEAD)

    def reduced(self, tree):
        words = self.words.from_buffer_copy(self.words_of(tree))
        outputs, capacity, stride = words[TREE_OUTPUTS], words[TREE_CAPACITY], words[TREE_STRIDE]
        lengths = (TREE_CLASSES, outputs * WORD), (TREE_NODES, capacity * NODE_BYTES), (TREE_VALUES, capacity * stride * WORD)
        for which, length in lengths:
            words[which] = self.core.heap_put(words[which], length)
            if not words[which]:
                return None
        return tree_at, (self.place, bytes(words))

    def bytes_of(self, tree):
        return self.words_of(tree)[TREE_CAPACITY] * NODE_BYTES

    def made_of(self, words):
        tree = self.new(self.kind, 0)
        ctypes.memmove(id(tree) + OBJECT_HEAD, words, len(words))
        return tree

    def are_known(self):
        """Whether all is where it is thought to be, and is what it is thought to be."""
        import numpy

        if self.kind.__basicsize__ != OBJECT_HEAD + TREE_WORDS * WORD or self.kind.__weakrefoffset__ or self.kind.__dictoffset__:
            return False
        tree = self.kind(5, numpy.array([3]), 1)
        state = tree.__getstate__()
        node = state["nodes"].dtype
        if node.itemsize != NODE_BYTES or {name: node[name].str for name in node.names} != NODE_FIELDS:
            return False
        tree.__setstate__({**state, "max_depth": 2, "node_count": 4, "nodes": numpy.zeros(7, node), "values": numpy.zeros((7, 1, 3))})
        state, words = tree.__getstate__(), self.words_of(tree)
        expected = {1: 5, 3: 1, 4: 3, 5: 2, 6: 4, 7: 7, 8: state["nodes"].ctypes.data, 9: state["values"].ctypes.data, 10: 3}
        return all(words[at] == word for at, word in expected.items()) and ctypes.c_int64.from_address(words[TREE_CLASSES]).value == 3


def address_of(model):
    """Where LightGBM has a model; None if it has none."""
    return getattr(vars(model).get("_handle"), "value", None)


def ways_to_map(reached):
    """How objects of libraries are pickled into values that are mapped, by their types; those that are not sent are counted."""

    def reducing_by(library):
        def reduced(one):
            way = library.reduced(one)
            if way is None:
                return one.__reduce_ex__(5)
            reached[library.kind] += 1
            return way

        return reduced

    return {library.kind: reducing_by(library) for library in libraries.values()}


def ways_to_tell_long(bytes_min):
    """The same for values that may be small: what is so large that it is better mapped, is not pickled to find that out."""

    def reducing_by(library):
        def reduced(one):
            if library.bytes_of(one) >= bytes_min:
                raise TooLong  # noqa: F821 - of heap.py
            return one.__reduce_ex__(5)

        return reduced

    return {library.kind: reducing_by(library) for library in libraries.values()}


def library_at(name, place):
    """What this process has of a library, which is to be where it was when an object of it was handed over."""
    library = libraries.get(name)
    if library is None or library.place != place:
        raise OSError(errno.ESTALE, f"an object of {name} cannot be used where its library is somewhere else")
    return library


def booster_at(place, at):
    """The model that is mapped there."""
    return library_at("lightgbm", place).made_at(at)


def booster_has(model, state):
    """What Python knows of a model, which may refer to it."""
    vars(model).update(state)


def tree_at(place, words):
    """A tree with the memory that is mapped."""
    return library_at("sklearn", place).made_of(words)


# Found by pickles where every function has them.
booster_at.__module__ = booster_has.__module__ = tree_at.__module__ = "sinew"


def inside(core, function):
    """A function of a library that takes its memory from the segment of the call."""

    def called(*arguments):
        core.library_begin()
        try:
            return function(*arguments)
        finally:
            core.library_end()

    return called


def unless_mapped(core, free):
    """What frees a model, but for those of others: what is mapped there may be another process's value once more."""

    def called(handle):
        at = getattr(handle, "value", handle)
        return 0 if at and core.library_is_mapped(at) else free(handle)

    return called


def adopt_libraries(core):
    """Has objects of the libraries that are loaded made where they can be handed over. For a template, before it forks."""
    core.library_adopt.argtypes = core.library_receive.argtypes = [ctypes.c_char_p]
    core.library_place.argtypes = [ctypes.c_char_p, ctypes.POINTER(Place)]
    core.library_reached.argtypes, core.library_reached.restype = [ctypes.c_size_t], ctypes.c_int64
    core.heap_reach.argtypes = core.library_is_mapped.argtypes = [ctypes.c_size_t]
    core.heap_put.argtypes, core.heap_put.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_size_t
    core.library_begin.restype = core.library_end.restype = None
    adopt_boosters(core)
    adopt_trees(core)


def place_of(core, path_end):
    """Where a library is, and what tells apart where it is so; None if it is not known."""
    place = Place()
    return None if core.library_place(path_end.encode(), place) < 0 else (place.begin, place.end, place.digest)


def adopt_boosters(core):
    lightgbm, basic = sys.modules.get("lightgbm"), sys.modules.get("lightgbm.basic")
    kind, library = getattr(basic, "Booster", None), getattr(basic, "_LIB", None)
    if kind is None or library is None or str(getattr(lightgbm, "__version__", "")).partition(".")[0] != LIGHTGBM_MAJOR:
        return
    if core.library_adopt(LIGHTGBM_FILE.encode()) < 0 or not has_learned(core, kind):
        return
    for name in LIGHTGBM_READS:
        setattr(library, name, inside(core, getattr(library, name)))
    library.LGBM_BoosterFree = unless_mapped(core, library.LGBM_BoosterFree)
    libraries["lightgbm"] = Boosters(core, kind, place_of(core, LIGHTGBM_FILE))


def has_learned(core, kind):
    """Whether LightGBM has made what it keeps."""
    if core.library_learn() < 0:
        return False
    try:
        kind(model_str=LIGHTGBM_SMALLEST).model_to_string()
    except Exception:
        return False
    finally:
        learned = core.library_learned()
    return learned >= 0


def adopt_trees(core):
    trees, tools = sys.modules.get("sklearn.tree._tree"), sys.modules.get("sklearn.tree._utils")
    kind, files = getattr(trees, "Tree", None), [getattr(module, "__file__", None) or "" for module in (trees, tools)]
    if kind is None or not all(files):
        return
    # What frees their memory, and what makes it longer; both by the end of their paths.
    ends = ["/".join(["", *name.rsplit("/", 3)[1:]]) for name in files]
    known = Trees(core, kind)
    try:
        if not known.are_known():
            return
    except Exception:
        # A later version may have other parts.
        return
    if all(core.library_receive(end.encode()) == 0 for end in ends):
        known.place = place_of(core, ends[0])
        libraries["sklearn"] = known
