# SPDX-License-Identifier: Apache-2.0
# Values that are given away as they are: to the step that follows in the same instance, where nobody else has, or ever asks
# for, any of what they are made of (guests/heap/owned.c, decision 0110). It is run before `template.py`, in the same module:
# names that are not defined here are that one's.
#
# A type may be given away if its pickle would be the same value once more, and all that it refers to is seen.

# As in owned.c: kinds of types; which are a library's that has weak references to its parts, and are found as such parts only; and what is
# asked of each object of a type.
LEAF, OPAQUE, WALKED, ARRAY, WEAK, REFUSED = range(1, 7)
WEAKLY, ONLY_PART = 3, 8
NOTHING, ABSENT, CONSTANT, LOOKED_AT = range(4)
# What is not made of known types, what others refer to as well, and what nobody does.
NOT_KNOWN, SHARED, OWNED = range(3)
# One in the other, as they are met: each time types are met that were not known.
ROUNDS_MAX = 64
# It is not looked at once more if it has more references than this.
COLLECTED_MAX = 100_000
# Py_TPFLAGS_HEAPTYPE.
HEAP_TYPE = 1 << 9
# Of the memory that an instance may have, what is to be left over when a step begins in it of which it is known what it needs.
SPARE_SHARE = 8
# How an instance is pickled, made, ended, and looked at by who pickles it.
TELLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__new__", "__del__",
           "__getattribute__", "__getattr__", "__setattr__", "__class__")  # fmt: skip
# What nobody can change, by its name; of times, those that are of no zone of somebody's.
LEAVES = frozenset(
    ("datetime.date", "datetime.timedelta", "datetime.timezone", "decimal.Decimal", "fractions.Fraction", "uuid.UUID", "builtins.range",
     "pandas._libs.tslibs.nattype.NaTType", "pandas._libs.missing.NAType")
)  # fmt: skip
ZONELESS = frozenset(("datetime.datetime", "datetime.time"))
# What is there once, and refers to nothing else of the value.
OPAQUES = frozenset(("builtins.object", "array.array", "sklearn.tree._tree.Tree"))
CONTAINERS = frozenset(("collections.deque", "collections.defaultdict", "collections.OrderedDict", "builtins.slice"))
# Modules of pandas whose classes are nothing but what the collector sees of them, and tables whose keys it does not see: what is among
# these and can be changed has a reference that is not met.
FRAMES = (
    "pandas.core.frame", "pandas.core.series", "pandas.core.flags", "pandas.core.internals.", "pandas.core.indexes.base",
    "pandas.core.indexes.range", "pandas.core.indexes.datetimes", "pandas.core.indexes.timedeltas", "pandas.core.indexes.category",
    "pandas.core.indexes.multi", "pandas.core.indexes.frozen", "pandas.core.arrays.categorical", "pandas.core.arrays.datetimes",
    "pandas.core.arrays.timedeltas", "pandas.core.dtypes.dtypes", "pandas._libs.internals", "pandas._libs.index",
)  # fmt: skip
TABLES, PERIODS = "pandas._libs.hashtable", "pandas._libs.tslibs.offsets"
PARTS = ("pandas.core.flags", "pandas.core.internals.", "pandas._libs.")
# Frames, whose attributes that pandas does not know are none of their pickles'.
TABULAR = frozenset(("pandas.core.frame.DataFrame", "pandas.core.series.Series", "pandas.DataFrame", "pandas.Series"))
# Those of its classes that say since 3.0 that they are elsewhere.
RENAMED = frozenset(
    ("pandas.Index", "pandas.RangeIndex", "pandas.DatetimeIndex", "pandas.TimedeltaIndex", "pandas.CategoricalIndex", "pandas.MultiIndex",
     "pandas.Categorical", "pandas.CategoricalDtype", "pandas.arrays.DatetimeArray", "pandas.arrays.TimedeltaArray", "pandas.Flags")
)  # fmt: skip
COLUMNS_IN = 64
# Its texts that are Arrow's, which nobody changes; their types, and what has them.
ARROW_TEXTS = frozenset(("pandas.core.arrays.string_arrow.ArrowStringArray", "pandas.arrays.ArrowStringArray"))
ARROW_TYPES = frozenset(("string", "large_string"))
TEXT_DTYPES = frozenset(("pandas.core.arrays.string_.StringDtype", "pandas.StringDtype"))
IMAGE_HAS = frozenset(("im", "_im", "_readonly", "_mode", "_size", "palette", "info", "readonly", "_exif", "_category", "pyaccess"))


class Judgement:
    """What is known of a type."""

    def __init__(self, kind, level=0, asked=NOTHING, name=None):
        self.told = kind, level, asked, name
        self.is_plain = False


def whose(core, box):
    """As `whose_by_types`, whatever classes of the function's raise when they are looked at."""
    try:
        return whose_by_types(core, box)
    except Exception:
        return NOT_KNOWN


def whose_by_types(core, box):
    """OWNED, if the only item of a list is made of nothing that anybody else refers to, and its pickle would be the same once more. SHARED, if
    others do, and the end of none of it runs code of the function's. Else NOT_KNOWN."""
    for _ in range(ROUNDS_MAX):
        told, rest = core.heap_owned(box)
        if told is not None:
            return told if told != NOT_KNOWN and all(map(is_as_known, rest)) else NOT_KNOWN
        for kind in rest:
            try:
                judgement = judged(kind)
                # Types in C may have as little as those of Python code, and end in another way.
                if judgement.is_plain and not all(core.heap_ends_alike(one, Made) for one in kind.__mro__[:-1]):
                    judgement = Judgement(REFUSED)
            except Exception:
                # What a class says of itself may be anything.
                judgement = Judgement(REFUSED)
            # What is nowhere but in the function that made it is not remembered.
            if (judgement.told[0] == REFUSED and not is_named(kind)) or core.heap_know(kind, *judgement.told) < 0:
                return NOT_KNOWN
    return NOT_KNOWN


def is_named(one):
    """Whether it is what its module has by its name, so that a pickle says no more of it."""
    try:
        found = sys.modules[one.__module__]  # noqa: F821
        for part in one.__qualname__.split("."):
            found = vars(found)[part]
        return found is one
    except (AttributeError, KeyError, TypeError):
        return False


def is_as_known(one):
    """Whether a class or function is where it is looked up, and an object has nothing but what is known of its type."""
    kind = type(one)
    if kind in TEXTS:
        return str(one._pa_array.type) in ARROW_TYPES and not vars(one).get("_readonly", False)
    if kind not in TABULARS and kind not in IMAGES:
        return is_named(one) or is_core(one)
    has = vars(one)
    if kind in IMAGES:
        # One that is read only has the memory of what it was made from.
        return IMAGE_HAS.issuperset(has) and not one.readonly and one.palette is None and has.get("_exif") is None
    return all(name in kind._internal_names_set or name in ("_attrs", "_flags") for name in has)


# Types whose objects are looked at.
TABULARS, IMAGES, TEXTS = [], [], []


def is_core(one):
    """Pillow's images have a type in C that is nowhere by its name."""
    images = sys.modules.get("PIL.Image")  # noqa: F821
    return images is not None and isinstance(one, type) and one is type(images.core.new("1", (1, 1)))


def forget_columns(value):
    """Frames remember columns that they were asked for: these are views of what they are made of, and only there to save time. Whether
    there were any."""
    has_forgotten = False
    some = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
    for one, _ in zip(some, range(COLUMNS_IN)):
        if type(one) in TABULARS and vars(one).get("_item_cache"):
            one._item_cache.clear()
            has_forgotten = True
    return has_forgotten


def found_in(kind, name):
    """The class that says this of a type, and what it says."""
    for one in kind.__mro__:
        if name in vars(one):
            return one, vars(one)[name]
    return None, None


def judged(kind):
    name = f"{kind.__module__}.{kind.__qualname__}"
    for judge in (judged_of_numpy, judged_by_name, judged_enum, judged_of_pandas, judged_of_sklearn, judged_image, judged_tuple, judged_plain):
        judgement = judge(kind, name)
        if judgement is not None:
            return judgement
    return Judgement(REFUSED)


def judged_by_name(kind, name):
    if name == "weakref.ReferenceType":
        return Judgement(WEAK)
    if kind in (type(...), type(NotImplemented)):
        return Judgement(LEAF)
    if name not in LEAVES and name not in ZONELESS and name not in OPAQUES and name not in CONTAINERS:
        return None
    # Anybody's class may say that it is one of these.
    if not is_named(kind):
        return Judgement(REFUSED)
    if name in ZONELESS:
        return Judgement(LEAF, 0, ABSENT, "tzinfo")
    return Judgement(LEAF if name in LEAVES else OPAQUE if name in OPAQUES else WALKED)


def judged_of_numpy(kind, name):
    numpy = sys.modules.get("numpy")  # noqa: F821
    if numpy is None:
        return None
    if kind is numpy.ndarray:
        return Judgement(ARRAY if arrays_of(numpy) else REFUSED)  # noqa: F821 - of heap.py
    if issubclass(kind, numpy.dtype):
        # Those of records have names, which may be changed.
        return Judgement(REFUSED) if kind is type(numpy.dtype("V1")) else Judgement(LEAF, 0, ABSENT, "metadata")
    if not issubclass(kind, numpy.generic):
        return None
    is_scalar = kind.__module__ == "numpy" and not issubclass(kind, (numpy.void, numpy.object_))
    return Judgement(LEAF if is_scalar and is_named(kind) else REFUSED)


def judged_enum(kind, name):
    enum = sys.modules.get("enum")  # noqa: F821
    if enum is None or not isinstance(kind, enum.EnumMeta):
        return None
    # A pickle has the value of a member.
    is_found = all(kind(one._value_) is one for one in kind.__members__.values())
    is_usual = is_found and is_named(kind) and is_pickled_by(kind, "enum", "builtins")
    return Judgement(LEAF, 0, CONSTANT, "_value_") if is_usual else Judgement(REFUSED)


def is_pickled_by(kind, *modules):
    """Whether these modules alone say how it is pickled, made and ended."""
    for name in TELLING:
        one, what = found_in(kind, name)
        if one is None or one is object:
            continue
        said_in = getattr(what, "__module__", None) or one.__module__
        if not any((said_in + ".").startswith(module + ".") for module in modules):
            return False
    return True


def judged_of_pandas(kind, name):
    module = kind.__module__
    if name == "pyarrow.lib.ChunkedArray":
        return Judgement(OPAQUE, ONLY_PART)
    if not (module + ".").startswith("pandas.") or not is_pickled_by(kind, "pandas") or not is_named(kind):
        return None
    if module == TABLES:
        return Judgement(OPAQUE, ONLY_PART)
    if module == PERIODS:
        return None if kind.__dictoffset__ else Judgement(LEAF)
    if name in ARROW_TEXTS:
        TEXTS.append(kind)
        return Judgement(WALKED, WEAKLY, LOOKED_AT)
    if name in TEXT_DTYPES:
        return Judgement(WALKED)
    if name in TABULAR:
        TABULARS.append(kind)
        return Judgement(WALKED, WEAKLY, LOOKED_AT)
    is_known = name in RENAMED or any(module == one or (one.endswith(".") and module.startswith(one)) for one in FRAMES)
    return Judgement(WALKED, WEAKLY | (ONLY_PART if module.startswith(PARTS) or name == "pandas.Flags" else 0)) if is_known else None


def judged_of_sklearn(kind, name):
    base = sys.modules.get("sklearn.base")  # noqa: F821
    if base is None or not kind.__module__.startswith("sklearn.") or not issubclass(kind, base.BaseEstimator):
        return None
    return Judgement(WALKED) if is_named(kind) and is_pickled_by(kind, "sklearn.base") else None


def judged_image(kind, name):
    images = sys.modules.get("PIL.Image")  # noqa: F821
    if images is None:
        return None
    if kind is images.Image and is_pickled_by(kind, "PIL.Image"):
        IMAGES.append(kind)
        return Judgement(WALKED, 0, LOOKED_AT)
    return Judgement(OPAQUE) if is_core(kind) else None


def judged_tuple(kind, name):
    """A named tuple that is nothing else."""
    is_one = kind.__mro__[1:] == (tuple, object) and type(kind) is type and isinstance(getattr(kind, "_fields", None), tuple)
    if not is_one or "__dict__" in vars(kind) or not is_named(kind):
        return None
    collections = sys.modules["collections"]  # noqa: F821
    told = {name: found_in(kind, name)[1] for name in TELLING}
    usual = {name: found_in(tuple, name)[1] for name in TELLING}
    pattern = collections.namedtuple("pattern", kind._fields)
    told.update({name: usual[name] for name in ("__new__", "__getnewargs__")})
    is_usual = all(getattr(kind, name).__code__.co_code == getattr(pattern, name).__code__.co_code for name in ("__new__", "__getnewargs__"))
    return Judgement(WALKED) if is_usual and told == usual else None


def judged_plain(kind, name):
    """A class that says nothing of how its instances are pickled, and whose bases are such: nothing of it is written in C."""
    if not all(type(one) is type and is_made_here(one) for one in kind.__mro__[:-1]):
        return None
    is_told = any(found_in(kind, name)[1] is not vars(object).get(name) for name in TELLING)
    if is_told or kind in copyreg.dispatch_table or not is_named(kind):
        return None
    judgement = Judgement(WALKED)
    judgement.is_plain = True
    return judgement


class Made:
    """What is like all that is made by Python code."""


def is_made_here(kind):
    """Whether Python code has made a class: its instances have nothing but a dictionary, a list of weak references, and slots."""
    slots = 0
    for one in kind.__mro__[:-1]:
        names = vars(one).get("__slots__", ())
        slots += sum(name not in ("__dict__", "__weakref__") for name in ([names] if isinstance(names, str) else names))
    size = object.__basicsize__ + 8 * (slots + (kind.__weakrefoffset__ > 0) + (kind.__dictoffset__ > 0))
    return bool(kind.__flags__ & HEAP_TYPE) and kind.__itemsize__ == 0 and kind.__basicsize__ == size


class GivesAway:
    """An instance's part in this."""

    # The step that follows the call that runs, if it may be given the result itself; what it is given; and whether it turned out
    # to be another instance's.
    heir, given, is_recalled_heir = None, None, False
    # Whether the step that follows makes what it hands over where the call that ends has made what is given to it.
    goes_on = False

    def name_heir(self, follower, base):
        """A call begins that this one follows."""
        may = follower is not None and follower.needs_bytes and self.heap is not None and base != 0
        self.heir, self.is_recalled_heir = follower if may else None, False

    def is_told_at_once(self):
        """Whether what is plain and short is copied, and not given away: who follows for that may be anybody."""
        return self.heir is None or self.heir.is_brief

    def give(self, box, arguments):
        """Gives the only item of a list to the step that follows; whether it could be. What its maker was given ends, if need be."""
        heir, self.heir = self.heir, None
        if heir is None:
            return False
        kind = kind_of(box[0])  # noqa: F821 - of heap.py
        # What is nowhere by its name is not to be kept for this.
        kind = kind if all(map(is_named, kind if type(kind) is tuple else (kind,))) else None
        left, paused = self.not_given.get(kind, (0, 0))
        if left > 0:
            self.not_given[kind] = left - 1, paused
            return False
        if not self.has_room_beside(heir):
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
        return True

    def has_room_beside(self, heir):
        """Whether there is memory for the step that follows besides what is taken: it is known what that needed by itself."""
        left = heir.memory_bytes - heir.memory_bytes // SPARE_SHARE - heir.needs_bytes
        # Mostly calls have not taken as much, which is quickly known.
        if self.heap.peak() < left:
            return True
        made = self.heap.bytes_left() if self.heap.is_open else 0
        return self.heap.own_bytes() + made < left

    def is_nobody_elses(self, box, arguments):
        # What is returned as it came is seen at once.
        is_argument = arguments and any(one is box[0] for one in (*arguments[0], *arguments[1].values()))
        owned = SHARED if is_argument else whose(self.core, box)
        if owned == SHARED and self.let_arguments_go(arguments):
            owned = whose(self.core, box)
        if owned == SHARED and forget_columns(box[0]):
            owned = whose(self.core, box)
        # Frames leave garbage that has their parts until it is collected.
        if owned == SHARED and gc.isenabled() and self.core.heap_references_met() < COLLECTED_MAX:  # noqa: F821
            gc.collect()  # noqa: F821
            owned = whose(self.core, box)
        return owned == OWNED

    def let_arguments_go(self, arguments):
        """Lets go of what a call was given, which may be what it returns; whether that could be done. Where code of the function's would
        run at the end of it, that must not change what was returned."""
        if not arguments or whose(self.core, [arguments]) == NOT_KNOWN:
            return False
        *_, values = arguments
        arguments.clear()
        values.clear()
        return True
