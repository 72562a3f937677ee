# SPDX-License-Identifier: Apache-2.0
"""Values that are given away are nobody else's, and what their pickles would be.

    owned_test.py LIBRARY [VALUES [SEED]]

LIBRARY is guests/heap, compiled. A value is made from a number. If it may be given away, it has to be what its pickle is, and
none of it may be so while anybody has anything of it that can be changed. The last line is a JSON object that counts.
"""

import array
import collections
import copyreg
import ctypes
import datetime
import enum
import errno
import gc
import hashlib
import io
import json
import os
import pickle
import random
import signal
import socket
import struct
import sys
import threading
import time
import types
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import heap_cases  # noqa: E402
import heap_library_cases as libraries_of_values  # noqa: E402
from heap_cases import Plain, made_from  # noqa: E402
from heap_compare import as_pickled, described, difference  # noqa: E402

for name in ("images.py", "models.py", "heap.py", "owned.py"):
    with open(os.path.join(HERE, name), encoding="utf-8") as source:
        exec(compile(source.read(), name, "exec"))
OFFERED = image_at, image_has, opened_at, opened_has, booster_at, booster_has, tree_at  # noqa: F821
sys.modules["sinew"] = types.SimpleNamespace(**{one.__name__: one for one in OFFERED})

# Of each value, so many of its objects are held by somebody else, one after the other.
HELD_MAX = 12
# What anybody may have.
UNCHANGED = (type(None), bool, int, float, complex, str, bytes, type, types.FunctionType, types.BuiltinFunctionType, range, enum.Enum, type(...), type(NotImplemented))
numpy, pandas, pillow, ensemble = (getattr(libraries_of_values, name) for name in ("numpy", "pandas", "pillow", "ensemble"))


class Owners:
    """Asks whose values are."""

    def __init__(self, library):
        self.heap = heap_of(ctypes.PyDLL(library))  # noqa: F821
        if self.heap is None:
            raise SystemExit(f"{sys.version} is not known to the heap")

    def has_all(self, box):
        # As an instance asks of what was made without arguments.
        asks = types.SimpleNamespace(core=self.heap.core, let_arguments_go=lambda arguments: False)
        return GivesAway.is_nobody_elses(asks, box, None)  # noqa: F821


def changeable(root):
    """All that can be changed in a value, as the collector and arrays tell of it: held by the list that this is."""
    found, seen, pending = [], set(), [root]
    while pending:
        one = pending.pop()
        if isinstance(one, UNCHANGED) or id(one) in seen:
            continue
        seen.add(id(one))
        # Whoever has one of these has nothing of others, and they change nothing: an empty tuple, weak references, elements' types.
        is_array = numpy is not None and isinstance(one, numpy.ndarray)
        if not isinstance(one, (tuple, frozenset, weakref.ref, slice)) and not is_of_library(one):
            found.append(one)
        pending.extend(gc.get_referents(one))
        if is_array:
            pending.append(one.base)
            pending.extend(one.ravel().tolist() if one.dtype == object else ())
    return found


def is_of_library(one):
    return type(one).__module__.partition(".")[0] in ("numpy", "datetime", "decimal", "fractions", "uuid") and not (
        numpy is not None and isinstance(one, numpy.ndarray)
    )


# ------------------------------------------------------------- generated


def looks_at(owners, seed, counts):
    """What is wrong with the value of a number; nothing, mostly."""
    chosen = random.Random(seed)
    box = [made_from(seed)]
    counts["values"] += 1
    if not owners.has_all(box):
        return None
    counts["given"] += 1
    try:
        expected = described(as_pickled(box[0]))
    except RecursionError:
        # What is mapped may be as deep, too.
        return None
    except Exception as error:
        return f"it cannot be pickled: {error!r:.200}"
    if (why := difference(described(box[0]), expected)) is not None:
        return why
    if not owners.has_all(box):
        # An index of times keeps a closure once it was printed.
        counts["touched"] += 1
        return None
    parts = changeable(box[0])
    held = chosen.sample(range(len(parts)), min(HELD_MAX, len(parts)))
    held = [parts[at] for at in held]
    kinds = [type(one) for one in held]
    del parts
    while held:
        kept = held.pop()
        rest, held = held, None
        # The others are held by a list as well: only the first look is at one alone.
        counts["held"] += 1
        if owners.has_all(box):
            return f"it is given away although somebody has a {type(kept)} of it"
        del kept
        held = rest
        del rest
    del held
    return None if owners.has_all(box) else f"it was not given away after nobody had any of {kinds} any more"


def looks_at_many(owners, values, first):
    counts, wrong = collections.Counter(), []
    for seed in range(first, first + values):
        if why := looks_at(owners, seed, counts):
            wrong.append(seed)
            print(f"seed {seed}: {why}", flush=True)
    # A test that never gives anything away, or holds nothing, sees nothing.
    assert values < 100 or (counts["given"] > values // 10 and counts["held"] > values // 4 > counts["touched"] * 4), counts
    return counts, wrong


# ---------------------------------------------------------------- by hand


class Counted:
    """What was said of it when it was judged, and what of that changes later."""


class Slots:
    __slots__ = ("one", "more")


class Point(collections.namedtuple("Point", "x y")):
    pass


Pair = collections.namedtuple("Pair", "left right")
Checked = collections.namedtuple("Checked", "left right")
Checked.__new__ = lambda kind, left, right: tuple.__new__(kind, (left + 1, right))


class Colour(enum.Enum):
    RED = 1


class Letter(str, enum.Enum):
    A = "a"


def made(kind, **parts):
    one = kind()
    for name, part in parts.items():
        setattr(one, name, part)
    return one


def cyclic():
    cycle = []
    cycle.append([cycle])
    return cycle


def of_python():
    """Values that are given away, each with what others may have of it, so that it is not."""
    yield cyclic(), lambda value: value[0]
    yield [1, [2, [3]]], lambda value: value[1][1]
    yield {"a": {"b": [None]}}, lambda value: value["a"]
    yield {"a": {"b": [None]}}, lambda value: value["a"].items()
    yield [[1, 2]], lambda value: iter(value[0])
    yield [bytearray(b"seen")], lambda value: memoryview(value[0])
    yield [array.array("d", [1, 2])], lambda value: value[0]
    yield (1, ("a", [2])), lambda value: value[1]
    yield {(1, (2,)): {3}}, lambda value: value[1, (2,)]
    yield [frozenset([(1,)])], None
    yield collections.deque([[1]]), lambda value: value[0]
    yield collections.OrderedDict(a=[1]), lambda value: value["a"]
    yield collections.defaultdict(list, a=[1]), lambda value: value["a"]
    yield Pair(1, [2]), lambda value: value.right
    yield made(Counted, part=[1], more={}), lambda value: value.part
    yield made(Counted, part=[1]), lambda value: vars(value)
    yield made(Counted, part=[1]), lambda value: weakref.ref(value)
    yield [made(Slots, one=[1])], lambda value: value[0].one
    yield [Colour.RED, Letter.A, len, made, Counted], None
    yield [datetime.datetime(2026, 1, 1), datetime.timedelta(1)], None
    yield [(Colour.RED, (1, (2, [3])))] * 3, lambda value: value[0][1][1][1]
    yield [slice(1, 2), range(4), ..., NotImplemented], None


COMMON = (1, ("a", 2.5), Colour.RED)


class Odd(enum.Enum):
    """What a pickle has of a member is its value."""

    FUNCTION, OBJECT = [lambda: 0], object()


class Nan(enum.Enum):
    NAN = float("nan")


class Zone(datetime.tzinfo):
    """A mutable one, and a time has it in it."""


class Proxy:
    def __getattr__(self, name):
        return getattr(self.part, name)


class Refusing:
    __slots__ = ("one",)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Asked:
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


class Pretending:
    @property
    def __class__(self):
        return dict


def nowhere():
    """Its name is another one's by now, as that of the class."""


class Nowhere:
    pass


nowhere, Nowhere, EARLIER = None, None, (nowhere, Nowhere)


def refused():
    """What is never given away, though nobody else has any of it."""
    yield from (
        [lambda: 0], [threading.Lock()], [x for x in [iter([1])]], [open(os.devnull)], [ValueError(1)], [memoryview(b"seen")],
        [type("Local", (), {})()], [type("Local", (), {})], [Point(1, 2)], [weakref.ref(Counted)], [Plain], [made(heap_cases.Ended)],
        [heap_cases.Reduced([1])], [made(heap_cases.Stateful, kept=[1])], [heap_cases.Words(a=1)], [heap_cases.Registered(1)],
        [sys], [made(Counted, part=weakref.ref(Counted))], [(at for at in range(3))], [types.SimpleNamespace(a=1)], [[1].append],
        [ctypes.c_int(3)], [hashlib.sha256()], [os.scandir(os.curdir)], [collections.Counter("abc")], [Odd.FUNCTION], [Odd.OBJECT],
        [datetime.datetime(2026, 1, 1, tzinfo=Zone())], [Zone()], [made(Proxy, part=[1])], [made(Refusing)], [made(Asked)], [made(Pretending)],
        [tuple.__new__(Checked, (1, 2))], [Nan.NAN],
        [made(Counted, part=made)], [made(Counted, part=EARLIER[1]())], [EARLIER[1]], [EARLIER[0]],
    )  # fmt: skip


def of_libraries():
    if numpy is not None:
        yield [numpy.arange(9.0)], lambda value: value[0][:2]
        yield [numpy.arange(9.0).reshape(3, 3).T], lambda value: value[0].base
        yield [numpy.array([[1], "a"], dtype=object)], lambda value: value[0][0]
        yield {"a": numpy.float64(1), "b": numpy.arange(3).T}, lambda value: memoryview(value["b"])
    if pandas is not None:
        yield pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}), lambda value: value["a"]
        yield used(pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})), lambda value: value.index
        yield pandas.DataFrame({"a": [1, 2]}), lambda value: value[:]
        yield pandas.Series(["x", "y"] * 9).str.upper(), lambda value: value.array
        yield pandas.DataFrame({"a": [1, 2]}), lambda value: value.values
        yield pandas.DataFrame({"a": pandas.Categorical(["x", "y", "x"])}), lambda value: value["a"].array
        yield pandas.DataFrame({"a": pandas.date_range("2026-01-01", periods=3)}), lambda value: value["a"]
        yield pandas.Series([1.5, 2.5], name="c"), lambda value: value.array
        yield pandas.DataFrame({"a": [1, 2, 3]}).groupby("a").sum(), lambda value: value.columns
    if pillow is not None:
        yield pillow.new("RGB", (20, 30), (1, 2, 3)), lambda value: value.im
        yield [pillow.new("L", (5, 5))], lambda value: value[0].info
    if ensemble is not None:
        yield ensemble.RandomForestClassifier(3, n_jobs=1, random_state=1).fit(*libraries_of_values.samples()), lambda value: value.estimators_[1].tree_.value


def used(frame):
    """As it is once it was looked into."""
    frame["a"].sum(), frame.loc[1], frame.iloc[:1], frame.columns.get_loc("b"), frame.query("a > 1"), frame.groupby("b").a.sum()
    return frame


def labelled(one, name, what):
    setattr(one, name, what)
    return one


def read_only(array):
    array.flags.writeable = False
    return array


def refused_of_libraries():
    if numpy is not None:
        yield from (
            [numpy.frombuffer(bytearray(b"seen"), "u1")], [numpy.ma.array([1])], [numpy.matrix([1])], [numpy.void(b"a")],
            [numpy.random.default_rng(1)], [numpy.arange(9)[::2]], [read_only(numpy.arange(9))], [numpy.broadcast_to(numpy.arange(3), (2, 3))],
            [numpy.zeros(3, "i4,f8")], [numpy.rec.array([(1, 2.0)], dtype="i4,f8")[0]], [numpy.dtype("i4,f8")], [numpy.dtype("i4", metadata={"a": [1]})],
            [numpy.zeros(2, numpy.dtype("i4", metadata={"a": len}))], (lambda a: [a, a[:2]])(numpy.arange(9)), [numpy.arange(50_000)[:3]],
            [numpy.zeros(1000, "S1000").view("u1")[:1000]], [numpy.array([lambda: 0])],
        )  # fmt: skip
    if pandas is not None:
        frame = pandas.DataFrame({"a": [1, 2]})
        yield [frame, frame["a"]]
        yield [labelled(pandas.DataFrame({"a": [1, 2]}), "label", 1)]
        yield [pandas.DataFrame({"a": [weakref.ref(Counted)]})]
        yield [pandas.DataFrame({"a": [read_only(numpy.arange(3)), 1]}, dtype=object)]
        frame = pandas.DataFrame({"a": [1]})
        frame.attrs["reference"] = weakref.ref(set())
        yield [frame]
        del frame
        yield [pandas.Timestamp("2026-01-01")]
        if libraries_of_values.arrow is not None:
            yield [libraries_of_values.arrow.chunked_array([["a"], ["b"]])]
            yield [pandas.Series(libraries_of_values.arrow.array([1, 2]), dtype="int64[pyarrow]")]
        yield [pandas._libs.hashtable.Int64HashTable()]
        yield [pandas.DataFrame({"a": [1]}).flags]
        yield [pandas.DateOffset(months=1)]
        yield [pandas.DataFrame(read_only(numpy.zeros((2, 2))), copy=False)]
    if ensemble is not None:
        yield [labelled(ensemble.RandomForestClassifier(), "reference", weakref.ref(Counted))]
    if pillow is not None:
        yield labelled(pillow.new("L", (5, 5)), "label", 1)
        yield pillow.new("P", (5, 5))
        memory = bytearray(20 * 30)
        yield [pillow.frombuffer("L", (20, 30), memory, "raw", "L", 0, 1), memory]
        yield pillow.frombuffer("L", (20, 30), bytes(600), "raw", "L", 0, 1)


def knows_whose_they_are(owners):
    looked_at = 0
    for values in (of_python(), of_libraries()):
        for value, others in values:
            box = [value]
            del value
            if not owners.has_all(box):
                raise AssertionError(f"{box[0]!r:.200} is not given away")
            assert difference(described(box[0]), described(as_pickled(box[0]))) is None, box
            looked_at += 1
            if others is not None:
                has = others(box[0])
                assert not owners.has_all(box), f"{box[0]!r:.200} is given away, and somebody has {has!r:.100}"
                del has
                assert owners.has_all(box), f"{box[0]!r:.200} is not given away any more"
    for values in (refused(), refused_of_libraries()):
        for value in values:
            box = [value]
            del value
            assert not owners.has_all(box), f"{box[0]!r:.200} is given away"
            looked_at += 1
    box = [[COMMON[:1], COMMON[1], COMMON[1], ()]]
    assert owners.has_all(box), "nobody can change it"
    # What is in many places is looked at once.
    names = tuple(map(str, range(50_000)))
    box = [[{"names": names} for _ in range(10_000)]]
    assert owners.has_all(box)
    references = owners.heap.core.heap_references_met()
    nested = tuple(range(200))
    for _ in range(4):
        nested = (nested,) * 200
    box = [nested]
    del nested
    owners.has_all(box)
    references += owners.heap.core.heap_references_met()
    # 50,000 names in one place, and 800 items of five tuples; not 500 million, and 300 billion.
    assert references < 500_000, f"it is looked at as often as it is met: {references:,}"
    box = [[made(Counted, its=Counted, more=collections.defaultdict(list)) for _ in range(10_000)]]
    assert owners.has_all(box), "of one class there is one"
    # Nothing of what is refused is kept.
    local = weakref.WeakSet()
    for _ in range(3):
        kind = type("Local", (), {})
        function = lambda: 0  # noqa: E731
        local.update((kind, function))
        assert not owners.has_all([[kind()]]) and not owners.has_all([[function]])
    del kind, function
    gc.collect()
    assert not local, "what was refused is kept"
    return looked_at


def judges_again(owners):
    """What says of a class how it is pickled may change, and be taken back."""
    box = [made(Counted, part=[1])]
    for name, said in (("__reduce__", lambda self: (Counted, ())), ("__getstate__", lambda self: {}), ("__del__", lambda self: None)):
        assert owners.has_all(box)
        setattr(Counted, name, said)
        assert not owners.has_all(box), name
        delattr(Counted, name)
    assert owners.has_all(box)
    copyreg.pickle(Counted, lambda one: (Counted, ()))
    assert not owners.has_all(box) and not owners.has_all(box)
    del copyreg.dispatch_table[Counted]
    assert owners.has_all(box)
    Counted.__qualname__ = "Moved"
    assert not owners.has_all(box), "no pickle would find it"
    Counted.__qualname__ = "Counted"
    assert owners.has_all(box)


def main(library, values=300, seed=0):
    owners = Owners(library)
    looked_at = knows_whose_they_are(owners)
    judges_again(owners)
    counts, wrong = looks_at_many(owners, int(values), int(seed))
    told = {"python": sys.version.split()[0], "libraries": libraries_of_values.versions(), "by_hand": looked_at, **counts, "wrong": wrong}
    print(json.dumps(told))
    sys.exit(bool(wrong))


main(*sys.argv[1:])
