# SPDX-License-Identifier: Apache-2.0
"""The values that `heap_test.py` hands over: `made_from` makes one of a number, the same one in each process.

What belongs to libraries is made by `heap_library_cases.py`, if they can be imported.
"""

import array
import collections
import copyreg
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import os
import pathlib
import random
import sys
import types
import uuid
import weakref

# ----------------------------------------------------------------- classes


class Plain:
    def __init__(self, random, depth):
        names = ["one", "two", "three", "four"]
        random.shuffle(names)
        for name in names[: random.randrange(1, 5)]:
            setattr(self, name, make(random, depth - 1))

    def method(self):
        return self


class Other(Plain):
    kind = "other"


class Bare:
    """What is set first, and in which order, differs from process to process."""


# Each process begins with another one of them, so that the keys that its instances share come in another order.
LATE = [type(f"Late{number}", (Bare,), {"__module__": __name__}) for number in range(40)]
globals().update({one.__name__: one for one in LATE})


class Slotted:
    __slots__ = ("x", "y")


class SlottedMore(Slotted):
    __slots__ = ("z", "__dict__", "__weakref__")


class Reduced:
    def __init__(self, items):
        self.items = tuple(items)

    def __reduce__(self):
        return Reduced, (list(self.items),)


class Stateful:
    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.kept = state["kept"]


class Ended:
    def __del__(self):
        pass


class Keyed:
    """Its hash is its address: in another process another one."""


class Registered:
    """Somebody has said how it is pickled."""

    def __init__(self, number):
        self.number, self.made = number, "by hand"


def registered(number):
    made = Registered(number)
    made.made = "from a pickle"
    return made


copyreg.pickle(Registered, lambda one: (registered, (one.number,)))


class Dropping:
    """Pickling it drops what the value has; or a process is forked by it."""

    def __init__(self, items, forks):
        self.items, self.forks = items, forks

    def __reduce__(self):
        if self.forks and (pid := os.fork()):
            os.waitpid(pid, 0)
        elif self.forks:
            [[number] for number in range(5_000)]
            os._exit(0)
        kept = list(self.items)
        self.items.clear()
        gc.collect()
        [[number, str(number)] for number in range(5_000)]
        self.items.extend(kept)
        return list, (kept,)


class Words(dict):
    pass


class Items(list):
    pass


class Number(int):
    pass


class Measure(float):
    pass


class Name(str):
    pass


class Raw(bytes):
    pass


class Point(tuple):
    pass


class Group(set):
    pass


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


class Computed:
    """Its attributes are not what is in its dictionary."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return name

    @property
    def shown(self):
        return "shown"


@dataclasses.dataclass
class Record:
    number: int
    name: str
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Tight:
    number: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    number: int
    items: tuple


Pair = collections.namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 300


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


# ------------------------------------------------------------------- atoms


def text(random):
    letters = random.choice(["abcXYZ 09", "h\xe9llo", "\u0416\u4e16", "\U0001f600a", "\udc80x"])
    made = "".join(random.choices(letters, k=random.choice([0, 1, 2, 7, 40, 300])))
    if random.random() < 0.1:
        # What a string keeps beside itself: its hash, and its bytes in UTF-8.
        hash(made)
        if not letters.startswith("\udc80"):
            ctypes.pythonapi.PyUnicode_AsUTF8(ctypes.py_object(made))
    return sys.intern(made) if random.random() < 0.2 else made


def atom(random):
    kind = random.randrange(15)
    if kind < 4:
        return random.choice([0, 1, -1, 255, 257, -6, 1 << 29, 1 << 30, -(1 << 60), 1 << 200, random.randrange(1 << 40)])
    if kind < 7:
        return text(random)
    return [
        lambda: random.choice([0.0, -0.0, float("inf"), float("nan"), random.random()]),
        lambda: complex(random.random(), 2),
        lambda: random.randbytes(random.choice([0, 1, 33, 1000])),
        lambda: bytearray(random.randbytes(random.choice([0, 5, 700]))),
        lambda: random.choice([None, True, False, Ellipsis, NotImplemented, int, len, Plain, KeyError, text, Colour, OfMeta]),
        lambda: random.choice([Colour.RED, Colour.BLUE, Level.HIGH, Rights.READ | Rights.WRITE]),
        lambda: random.choice([datetime.datetime(2024, 2, 29, 1, 2), decimal.Decimal("1.50"), fractions.Fraction(1, 3), uuid.UUID(int=5), range(3, 9),
                               datetime.timedelta(1, 2), datetime.timezone.utc, pathlib.PurePosixPath("a/b"), slice(1, None, 2)]),
        lambda: random.choice([Number(7), Number(1 << 70), Measure(0.5), Name("a name"), Name("\u0416"), Raw(b"raw")]),
    ][kind - 7]()  # fmt: skip


def key(random, depth=2):
    kind = random.randrange(10)
    if kind < 4:
        return text(random)
    if kind == 7 and depth:
        return tuple(key(random, depth - 1) for _ in range(random.randrange(3)))
    if kind == 8 and depth:
        return frozenset(key(random, depth - 1) for _ in range(random.randrange(12)))
    return [random.randrange(1000), 0.5, random.randbytes(4), None, Colour.RED, Level.LOW][kind - 4]


# -------------------------------------------------------------- containers


def table(random, depth, kind=dict):
    made = kind()
    strings = random.random() < 0.6
    for _ in range(random.choice([0, 1, 4, 6, 20, 90])):
        made[text(random) if strings else key(random)] = make(random, depth - 1)
    for one in list(made)[: random.randrange(4)]:
        del made[one]
    if random.random() < 0.1:
        made.clear()
    return made


def items(random, depth):
    return [make(random, depth - 1) for _ in range(random.choice([0, 1, 3, 8]))]


def cyclic(random, depth):
    made = items(random, depth)
    made.append({"back": made, "tuple": (made,)})
    made.append(made)
    return made


def shared(random, depth):
    one = make(random, depth - 1)
    return [one, one, {"again": one}, (one,)]


def lined(random, depth):
    return collections.deque(items(random, depth), random.choice([None, 4]))


def ordered(random, depth):
    made = table(random, depth, collections.OrderedDict)
    if made:
        made.move_to_end(next(iter(made)))
    return made


def defaulted(random, depth):
    return collections.defaultdict(list, table(random, depth))


def chained(random, depth):
    return collections.ChainMap(table(random, depth), table(random, depth - 1))


def subclassed(random, depth):
    """Instances of subclasses of what is built in; some with attributes of their own."""
    made = random.choice([lambda: Point(items(random, depth)), lambda: Group(key(random) for _ in range(random.randrange(9))),
                          lambda: Items(items(random, depth)), lambda: table(random, depth, Words), lambda: Name(text(random)),
                          lambda: Number(random.randrange(1 << 70))])()  # fmt: skip
    if random.random() < 0.5:
        made.note = make(random, depth - 1)
    return made


def resized(random, depth):
    """Sets and dicts that have been larger, or were filled, emptied and filled again."""
    made = random.choice([set, dict.fromkeys])(range(random.choice([5, 40, 3000])))
    for one in list(made)[: random.randrange(len(made) + 1)]:
        made.pop(one) if isinstance(made, dict) else made.discard(one)
    for at in range(random.randrange(6)):
        made.update({f"again {at}": at} if isinstance(made, dict) else {f"again {at}"})
    return made


def nested(random, depth):
    """Deeper than whoever goes down by calls of its own gets; pickle does not get to the last one."""
    made = []
    for at in range(random.choice([50, 300, 20_000])):
        made = {"down": made} if at % 3 == 2 else [made] if at % 3 else (made, at)
    return made


# ----------------------------------------------------------------- objects


def slotted(random, depth):
    made = random.choice([Slotted, SlottedMore])()
    made.x = make(random, depth - 1)
    if isinstance(made, SlottedMore):
        made.z, made.further = make(random, depth - 1), made
    return made


def stateful(random, depth):
    made = Stateful()
    made.kept, made.lost = make(random, depth - 1), 5
    return made


def late(random, depth):
    """A class whose first instance comes when it does, in each process another one; more attributes than are shared, some deleted."""
    made = random.choice(LATE)()
    names = [f"attribute{at}" for at in range(random.choice([1, 5, 29, 45]))]
    random.shuffle(names)
    for at, name in enumerate(names):
        setattr(made, name, make(random, depth - 1) if at < 3 else at)
    for name in random.sample(names, random.randrange(len(names))) if random.random() < 0.4 else ():
        delattr(made, name)
    if random.random() < 0.3:
        made.__dict__["not an identifier"] = made
    if random.random() < 0.1:
        made.__dict__[5] = "five"
    return made


def tangled(random, depth):
    """What cannot be copied refers to what can, and back."""
    inner = items(random, depth)
    return [inner, Reduced([inner, 1]), {"a": inner}, stateful(random, depth)]


def keyed(random, depth):
    one = Keyed()
    return {one: 1, "self": one, 5: {one}}


def dropping(random, depth):
    items = ["%d dropped" % number for number in range(random.choice([3, 3, 3, 30_000]))]
    return [items, Dropping(list(items), random.random() < 0.3)]


def borg(random, depth):
    one, other = Plain(random, 1), Plain(random, 1)
    other.__dict__ = one.__dict__
    return [one, other]


def typed(random, depth):
    return [Plain, Plain(random, depth), [Record, Record(1, "x")]]


# Of objects in values: they live as long as those, and are no part of them.
WATCHERS = collections.deque(maxlen=200)


def watched(random, depth):
    """Somebody has weak references to parts of it."""
    made = [Plain(random, depth), {1, 2, 3}, Record(1, "watched"), frozenset("ab")]
    WATCHERS.extend(map(weakref.ref, made))
    WATCHERS.append(weakref.finalize(made[0], int))
    WATCHERS[-1].atexit = False
    return made


def methods(random, depth):
    one = Plain(random, depth)
    return [one, one.method, functools.partial(text, one), "of a string".upper, [1].append]


def odd(random, depth):
    made = random.choice([OfMeta, Computed])()
    made.some = make(random, depth - 1)
    return [made, ValueError("x", made), Frozen(1, (made,)), types.SimpleNamespace(made=made)]


# ------------------------------------------------------------- long values


def long(random, depth):
    scale = random.choice([500, 5_000, 5_000, 150_000])
    kind = random.randrange(8)
    if kind == 0:
        return list(range(random.randrange(2 * scale)))
    if kind == 1:
        return ["w%d" % at for at in range(random.randrange(scale))]
    if kind == 2:
        return random.choice(["long ", "l\xe4nger", "\u4e16\u754c", "\U0001f600"]) * random.randrange(4 * scale)
    if kind == 3:
        return {"k%d" % at: [at] for at in range(random.randrange(scale // 5))}
    if kind == 4:
        return [Record(at, "n%d" % at, [at]) for at in range(random.randrange(scale // 10))]
    if kind == 5:
        return list(range(random.randrange(scale))), {"names": ["w%d" % at for at in range(random.randrange(scale))]}
    if kind == 6:
        return [sys.intern("interned%d" % at) for at in range(random.randrange(scale // 5))], random.randbytes(random.randrange(8 * scale))
    mixed = [at * 0.5 if at % 2 else (at, "p%d" % at, None) for at in range(random.randrange(scale // 2))]
    return mixed, mixed[: scale // 9], {at: at + 1 for at in range(random.randrange(scale // 5))}


def unpicklable(random, depth):
    """What nobody can hand over, so that nobody may touch what is beside it."""

    def closure():
        return random, depth

    def running():
        yield closure
        yield depth

    begun = running()
    next(begun)
    return random.choice([closure, begun, lambda: depth, (at for at in range(9)), memoryview(b"seen"), {"a": 1}.keys(), weakref.ref(Plain),
                          iter({1: 2}.items()), sys, sys._getframe(), types.MappingProxyType({"a": 1}), open(os.devnull), object().__init__])  # fmt: skip


BRANCHES = [items, items, table, table, cyclic, shared, slotted, stateful, lined, ordered, defaulted, tangled, keyed, typed, borg,
            Plain, Plain, Other, late, late, subclassed, resized, watched, methods, odd, chained,
            lambda r, d: tuple(items(r, d)), lambda r, d: {key(r) for _ in range(r.choice([0, 3, 9, 200]))},
            lambda r, d: Reduced(items(r, d)), lambda r, d: Record(r.randrange(9), text(r), items(r, d)), lambda r, d: Tight(3),
            lambda r, d: Pair(make(r, d - 1), 2), lambda r, d: Items(items(r, d)), lambda r, d: table(r, d, Words),
            lambda r, d: Registered(5), lambda r, d: Ended(), lambda r, d: array.array("d", [1.5, 2]), lambda r, d: ValueError("x", make(r, d - 1)),
            lambda r, d: collections.Counter("abca"), lambda r, d: frozenset(range(r.randrange(40)))]  # fmt: skip
# By themselves, or beside one other value: they take long.
LONG = [long, long, long, dropping]


def make(random, depth):
    if depth <= 0 or random.random() < 0.35:
        return atom(random)
    return random.choice(BRANCHES)(random, depth)


def made_from(seed):
    chosen = random.Random(seed)
    how = chosen.random()
    if how < 0.01:
        return nested(chosen, 1)
    if how < 0.09:
        return chosen.choice(LONG)(chosen, 1)
    if how < 0.12:
        return [make(chosen, 4), chosen.choice(LONG)(chosen, 1)]
    if how < 0.14:
        return [make(chosen, 4), {"none": unpicklable(chosen, 2)}]
    return make(chosen, 5)
