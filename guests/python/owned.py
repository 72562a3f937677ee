# SPDX-License-Identifier: Apache-2.0
# Values that are given away as they are: to the step that follows in the same instance, where nobody else has, or ever asks
# for, any of what they are made of (guests/heap/owned.c, decision 0110). It is run before `template.py`, in the same module:
# names that are not defined here are that one's.
#
# A type may be given away if its pickle would be the same value once more, and all that it refers to is seen.

# As in owned.c.
LEAF, OPAQUE, WALKED, TUPLE, ARRAY, WEAK, REFUSED = range(1, 8)
# What a value is made of is judged once; of a value, so many at most.
JUDGED_MAX = 1000
# How an instance is pickled, made and ended.
TELLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__new__", "__del__")
# What nobody can change, by its name.
LEAVES = frozenset(
    ("datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta", "datetime.timezone", "zoneinfo.ZoneInfo",
     "decimal.Decimal", "fractions.Fraction", "uuid.UUID", "builtins.range",
     "pandas._libs.tslibs.timestamps.Timestamp", "pandas._libs.tslibs.timedeltas.Timedelta", "pandas._libs.tslibs.nattype.NaTType",
     "pandas._libs.missing.NAType", "pandas.core.arrays.string_.StringDtype", "pandas.core.arrays.integer.Int64Dtype",
     "pandas.core.arrays.floating.Float64Dtype", "pandas.core.arrays.boolean.BooleanDtype", "pandas.core.dtypes.dtypes.DatetimeTZDtype")
)  # fmt: skip
# The same of what is there once, and refers to nothing else of the value.
OPAQUES = frozenset(("builtins.object", "array.array", "sklearn.tree._tree.Tree"))
CONTAINERS = frozenset(("collections.deque", "collections.defaultdict", "collections.OrderedDict", "collections.Counter", "builtins.slice"))
# Modules of pandas whose classes are nothing but what the collector sees of them, and tables whose keys it does not see: what is among
# these and can be changed has a reference that is not met.
FRAMES = (
    "pandas.core.frame", "pandas.core.series", "pandas.core.flags", "pandas.core.internals.", "pandas.core.indexes.base",
    "pandas.core.indexes.range", "pandas.core.indexes.datetimes", "pandas.core.indexes.timedeltas", "pandas.core.indexes.category",
    "pandas.core.indexes.multi", "pandas.core.indexes.frozen", "pandas.core.arrays.categorical", "pandas.core.arrays.datetimes",
    "pandas.core.arrays.timedeltas", "pandas.core.arrays.integer", "pandas.core.arrays.floating", "pandas.core.arrays.boolean",
    "pandas.core.dtypes.dtypes", "pandas._libs.internals", "pandas._libs.index",
)  # fmt: skip
TABLES, PERIODS = "pandas._libs.hashtable", "pandas._libs.tslibs.offsets"


class Judgement:
    """What is known of a type: its kind; whether it is a library's, which has weak references to its parts; and an attribute that
    says of an instance whether it has something of others."""

    def __init__(self, kind, is_library=False, is_shared=None):
        self.told = kind, is_library, is_shared


def is_owned(core, box):
    """Whether the only item of a list is made of nothing that anybody else refers to. None: others do, and it is of known types,
    whose end runs no code of the function's."""
    for _ in range(JUDGED_MAX):
        told = core.heap_owned(box)
        if not isinstance(told, tuple):
            return told
        unknown, is_reference = told
        try:
            judgement = Judgement(LEAF if is_named(unknown) else REFUSED) if is_reference else judged(unknown)
        except Exception:
            # What a class says of itself may be anything.
            judgement = Judgement(REFUSED)
        kind, is_library, is_shared = judgement.told
        if kind == ARRAY:
            core.heap_know_arrays(arrays_of(sys.modules["numpy"])[2])  # noqa: F821
        if core.heap_know(unknown, is_reference, kind, is_library, is_shared) < 0:
            return False
    return False


def is_named(one):
    """Whether it is what its module has by its name, so that a pickle says no more of it."""
    found = sys.modules.get(one.__module__)  # noqa: F821
    for part in one.__qualname__.split("."):
        found = vars(found).get(part)
        if found is None:
            return False
    return found is one


def found_in(kind, name):
    """The class that says this of a type, and what it says."""
    for one in kind.__mro__:
        if name in vars(one):
            return one, vars(one)[name]
    return None, None


def judged(kind):
    name = f"{kind.__module__}.{kind.__qualname__}"
    for judge in (judged_array, judged_by_name, judged_enum, judged_of_pandas, judged_of_sklearn, judged_image, judged_tuple, judged_plain):
        judgement = judge(kind, name)
        if judgement is not None:
            return judgement
    return Judgement(REFUSED)


def judged_by_name(kind, name):
    if name == "weakref.ReferenceType":
        return Judgement(WEAK)
    if kind in (type(...), type(NotImplemented)):
        return Judgement(LEAF)
    if name not in LEAVES and name not in OPAQUES and name not in CONTAINERS:
        return None
    # Anybody's class may say that it is one of these.
    if not is_named(kind):
        return Judgement(REFUSED)
    return Judgement(LEAF if name in LEAVES else OPAQUE if name in OPAQUES else WALKED)


def judged_array(kind, name):
    numpy = sys.modules.get("numpy")  # noqa: F821
    if numpy is None:
        return None
    if kind is numpy.ndarray:
        return Judgement(ARRAY if arrays_of(numpy) else REFUSED)  # noqa: F821 - of heap.py
    if issubclass(kind, numpy.dtype):
        return Judgement(LEAF)
    is_scalar = issubclass(kind, numpy.generic) and kind.__module__ == "numpy"
    return Judgement(LEAF) if is_scalar and kind not in (numpy.void, numpy.object_) else None


def judged_enum(kind, name):
    enum = sys.modules.get("enum")  # noqa: F821
    return Judgement(LEAF) if enum and isinstance(kind, enum.EnumMeta) and is_named(kind) and is_pickled_by(kind, "enum", "builtins") else None


def is_pickled_by(kind, *modules):
    """Whether these modules alone say how it is pickled, made and ended."""
    for name in TELLING:
        one, what = found_in(kind, name)
        if one is None:
            continue
        said_in = getattr(what, "__module__", None) or one.__module__
        if one is not object and not any((said_in + ".").startswith(module + ".") for module in modules):
            return False
    return True


def judged_of_pandas(kind, name):
    module = kind.__module__
    if not module.startswith("pandas.") or not is_pickled_by(kind, "pandas"):
        return None
    if module == TABLES:
        return Judgement(OPAQUE)
    if module == PERIODS:
        return Judgement(LEAF)
    is_known = any(module == one or (one.endswith(".") and module.startswith(one)) for one in FRAMES)
    return Judgement(WALKED, True) if is_known else None


def judged_of_sklearn(kind, name):
    base = sys.modules.get("sklearn.base")  # noqa: F821
    if base is None or not kind.__module__.startswith("sklearn.") or not issubclass(kind, base.BaseEstimator):
        return None
    return Judgement(WALKED, True) if is_named(kind) and is_pickled_by(kind, "sklearn.base") else None


def judged_image(kind, name):
    images = sys.modules.get("PIL.Image")  # noqa: F821
    if images is None:
        return None
    if kind is images.Image and is_pickled_by(kind, "PIL.Image"):
        # One that is read only has the memory of what it was made from.
        return Judgement(WALKED, True, "readonly")
    return Judgement(OPAQUE) if kind is type(images.core.new("1", (1, 1))) else None


def judged_tuple(kind, name):
    """A named tuple that is nothing else."""
    is_one = kind.__mro__[1:] == (tuple, object) and type(kind) is type and isinstance(getattr(kind, "_fields", None), tuple)
    if not is_one or "__dict__" in vars(kind) or not is_named(kind):
        return None
    collections = sys.modules["collections"]  # noqa: F821
    told = {name: found_in(kind, name)[1] for name in TELLING}
    usual = {name: vars(object).get(name) for name in TELLING}
    pattern = collections.namedtuple("pattern", kind._fields)
    told.update({name: usual[name] for name in ("__new__", "__getnewargs__")})
    is_usual = vars(kind)["__getnewargs__"].__code__.co_code == pattern.__getnewargs__.__code__.co_code
    return Judgement(WALKED) if is_usual and told == usual else None


def judged_plain(kind, name):
    """A class that says nothing of how its instances are pickled, and whose bases are such."""
    for one in kind.__mro__[:-1]:
        # Py_TPFLAGS_HEAPTYPE: what has something that the collector does not see is written in C.
        if type(one) is not type or not one.__flags__ & 1 << 9:
            return None
    is_told = any(found_in(kind, name)[1] is not vars(object).get(name) for name in TELLING)
    return None if is_told or kind in copyreg.dispatch_table or not is_named(kind) else Judgement(WALKED)


class GivesAway:
    """An instance's part in this."""

    # The step that follows the call that runs, if it may be given the result itself; what it is given; and whether it turned out
    # to be another instance's.
    heir, given, is_recalled_heir = None, None, False
    # Whether the step that follows makes what it hands over where the call that ends has made what is given to it.
    goes_on = False

    def begin_giving(self):
        # By kinds of values: for how many more it is not tried, and for how many it was not the last time.
        self.not_given = {}

    def has_heir(self, follower, base):
        """A call begins that this one follows."""
        may = follower is not None and follower.may_be_given and self.heap is not None and base != 0
        self.heir, self.is_recalled_heir = follower if may else None, False

    def give(self, box, arguments):
        """Gives the only item of a list to the step that follows; whether it could be. What its maker was given ends, if need be."""
        heir, self.heir = self.heir, None
        if heir is None:
            return False
        kind = kind_of(box[0])  # noqa: F821 - of heap.py
        left, paused = self.not_given.get(kind, (0, 0))
        if left > 0:
            self.not_given[kind] = left - 1, paused
            return False
        if not self.has_room(heir.memory_bytes):
            return False
        if not self.is_nobody_elses(box, arguments):
            if len(self.not_given) >= KINDS_MAX:  # noqa: F821 - of heap.py
                self.not_given.clear()
            paused = min(2 * paused + 1, TRIED_AGAIN)  # noqa: F821
            self.not_given[kind] = paused, paused
            return False
        if paused:
            self.not_given.pop(kind)
        # From here on it is not another instance's any more.
        if self.shares_turns and not self.core.turns_begin(heir.turn):
            self.is_recalled_heir = True
            return False
        self.given = [box.pop()]
        # What was made for others to map was made there in vain.
        self.heap.has_result, self.heap.pickled = self.heap.is_open, {}
        return True

    def is_nobody_elses(self, box, arguments):
        # What is returned as it came is seen at once.
        is_argument = arguments and any(one is box[0] for one in (*arguments[0], *arguments[1].values()))
        if not is_argument and is_owned(self.core, box):
            return True
        return self.lets_go(arguments) and is_owned(self.core, box) is True

    def lets_go(self, arguments):
        """Lets go of what a call was given, which may be what it returns; whether that could be done. Where code of the function's would
        run at the end of it, that must not change what was returned."""
        if not arguments or is_owned(self.core, [arguments]) is False:
            return False
        *_, values = arguments
        arguments.clear()
        values.clear()
        return True
