# SPDX-License-Identifier: Apache-2.0
"""Hands over values of all kinds between processes, and compares them with what was sent.

    heap_test.py LIBRARY [TRANSFERS [SEED]]

LIBRARY is guests/heap, compiled. A value is made from a number by one process, mapped by another one, compared,
mutated, handed on, and mapped again; the numbers of those that differ are printed. Processes serve many
transfers each, so that what one leaves behind would be seen by the next ones.
"""

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import errno
import faulthandler
import fractions
import gc
import hashlib
import io
import os
import random
import signal
import socket
import struct
import sys
import time
import traceback
import uuid
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "heap.py"), encoding="utf-8") as source:
    exec(compile(source.read(), "heap.py", "exec"))
try:
    import numpy
    import pandas
except ImportError:
    numpy = pandas = None

SEGMENT_BYTES = 1 << 30
PLAN = 0x200000000000
# All is to be mapped here.
MAPPED_BYTES_MIN = -1

# ------------------------------------------------------------------ values


class Plain:
    def __init__(self, random, depth):
        names = ["one", "two", "three", "four"]
        random.shuffle(names)
        for name in names[: random.randrange(1, 5)]:
            setattr(self, name, make(random, depth - 1))


class Other(Plain):
    kind = "other"


class Slotted:
    __slots__ = ("x", "y")


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


class Words(dict):
    pass


class Items(list):
    pass


@dataclasses.dataclass
class Record:
    number: int
    name: str
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Tight:
    number: int


Pair = collections.namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


def text(random):
    letters = random.choice(["abcXYZ 09", "h\xe9llo", "\u0416\u4e16", "\U0001f600a", "\udc80x"])
    made = "".join(random.choices(letters, k=random.choice([0, 1, 2, 7, 40, 300])))
    return sys.intern(made) if random.random() < 0.2 else made


def atom(random):
    kind = random.randrange(14)
    if kind < 4:
        return random.choice([0, 1, -1, 255, 257, -6, 1 << 29, 1 << 30, -(1 << 60), 1 << 200, random.randrange(1 << 40)])
    if kind < 7:
        return text(random)
    return [
        lambda: random.choice([0.0, -0.0, float("inf"), float("nan"), random.random()]),
        lambda: complex(random.random(), 2),
        lambda: random.randbytes(random.choice([0, 1, 33, 1000])),
        lambda: bytearray(random.randbytes(random.choice([0, 5, 700]))),
        lambda: random.choice([None, True, False, Ellipsis, NotImplemented, int, len, Plain, KeyError]),
        lambda: random.choice([Colour.RED, Colour.BLUE]),
        lambda: random.choice([datetime.datetime(2024, 2, 29, 1, 2), decimal.Decimal("1.50"), fractions.Fraction(1, 3), uuid.UUID(int=5), range(3, 9)]),
    ][kind - 7]()  # fmt: skip


def key(random, depth=2):
    kind = random.randrange(9)
    if kind < 4:
        return text(random)
    if kind == 7 and depth:
        return tuple(key(random, depth - 1) for _ in range(random.randrange(3)))
    if kind == 8 and depth:
        return frozenset(key(random, depth - 1) for _ in range(random.randrange(12)))
    return [random.randrange(1000), 0.5, random.randbytes(4), None, Colour.RED][kind - 4]


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


def slotted(random, depth):
    made = Slotted()
    made.x = make(random, depth - 1)
    return made


def stateful(random, depth):
    made = Stateful()
    made.kept, made.lost = make(random, depth - 1), 5
    return made


def lined(random, depth):
    made = collections.deque(items(random, depth), random.choice([None, 4]))
    return made


def ordered(random, depth):
    made = table(random, depth, collections.OrderedDict)
    if made:
        made.move_to_end(next(iter(made)))
    return made


def defaulted(random, depth):
    return collections.defaultdict(list, table(random, depth))


def tangled(random, depth):
    """What cannot be copied refers to what can, and back."""
    inner = items(random, depth)
    return [inner, Reduced([inner, 1]), {"a": inner}, stateful(random, depth)]


def keyed(random, depth):
    one = Keyed()
    return {one: 1, "self": one, 5: {one}}


def overlapping(random, depth):
    """Arrays that share memory, and such as lie in what another object has."""
    one = numpy.arange(random.choice([10, 50_000]))
    return [one, one[: len(one) // 2], one[1:], numpy.frombuffer(bytearray(random.randbytes(64)), "u1")]


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


def dropping(random, depth):
    items = ["%d dropped" % number for number in range(random.choice([3, 30_000]))]
    return [items, Dropping(list(items), random.random() < 0.3)]


def borg(random, depth):
    one, other = Plain(random, 1), Plain(random, 1)
    other.__dict__ = one.__dict__
    return [one, other]


def typed(random, depth):
    return [Plain, Plain(random, depth), [Record, Record(1, "x")]]


def long(random, depth):
    kind = random.randrange(6)
    if kind == 5:
        return list(range(random.randrange(200_000))), {"names": ["w%d" % at for at in range(random.randrange(150_000))]}
    if kind == 0:
        return list(range(random.randrange(300_000)))
    if kind == 1:
        return ["w%d" % at for at in range(random.randrange(150_000))]
    if kind == 2:
        return "long " * random.randrange(400_000)
    if kind == 3:
        return {"k%d" % at: [at] for at in range(random.randrange(20_000))}
    return [Record(at, "n%d" % at, [at]) for at in range(random.randrange(5_000))]


def element_type(random):
    return random.choice("?bhilqBHILQefdgFDG") if random.random() < 0.7 else random.choice(["S5", "U3", "M8[ns]", "m8[s]", ">i4", "i4,f8"])


def numeric(random, depth):
    shape = random.choice([(), (0,), (1,), (7,), (3, 4), (2, 0, 3), (1, 1, 5), (40_000,)])
    made = numpy.zeros(shape, element_type(random))
    raw = made.reshape(-1).view("u1") if made.size and made.flags.c_contiguous else None
    if raw is not None and made.dtype.char not in "gGeSUfdFD?":
        raw[:] = numpy.frombuffer(random.randbytes(raw.size), "u1")
    how = random.randrange(7)
    if how == 1 and made.ndim > 1:
        return made.T
    if how == 2 and made.ndim:
        return made[::2]
    if how == 3:
        made.flags.writeable = False
    if how == 4:
        return numpy.asfortranarray(made)
    if how == 5:
        return made.astype("f4").sum() if made.dtype.char in "bhil" else made
    return made


def objects(random, depth):
    made = numpy.empty(random.choice([0, 1, 5, 3000]), object)
    for at in range(0, len(made), random.choice([1, 2])):
        made[at] = make(random, min(depth - 1, 1)) if at < 10 else "s%d" % at
    return made.reshape(-1, 1) if len(made) and random.random() < 0.2 else made


def frame(random, depth):
    rows = random.choice([0, 1, 50, 5000])
    made = pandas.DataFrame({"i": numpy.arange(rows), "f": numpy.arange(rows) * 0.5, "s": [text(random) for _ in range(rows)]})
    how = random.randrange(6)
    if how == 1:
        made["c"] = pandas.Categorical(["x", "y"] * (rows // 2) + ["x"] * (rows % 2))
    if how == 2:
        made["t"] = pandas.date_range("2020", periods=rows, freq="min")
        made = made.set_index("t")
    if how == 3:
        made["n"] = pandas.array([None] * rows, "Int64")
        made["w"] = pandas.array(["a"] * rows, "string")
    if how == 4:
        made = made[made.i % 2 == 0].reset_index(drop=True)
    if how == 5:
        return made.i
    return made


BRANCHES = [items, items, table, table, cyclic, shared, slotted, stateful, lined, ordered, defaulted, tangled, keyed, typed, borg, dropping,
            Plain, Plain, Other, lambda r, d: tuple(items(r, d)), lambda r, d: {key(r) for _ in range(r.choice([0, 3, 9, 200]))},
            lambda r, d: Reduced(items(r, d)), lambda r, d: Record(r.randrange(9), text(r), items(r, d)), lambda r, d: Tight(3),
            lambda r, d: Pair(make(r, d - 1), 2), lambda r, d: Items(items(r, d)), lambda r, d: table(r, d, Words),
            lambda r, d: Registered(5), lambda r, d: Ended(), lambda r, d: array.array("d", [1.5, 2]), lambda r, d: ValueError("x", make(r, d - 1)),
            lambda r, d: collections.Counter("abca"), lambda r, d: frozenset(range(r.randrange(40)))]  # fmt: skip
if numpy:
    BRANCHES += [overlapping, numeric, numeric, numeric, objects, objects, frame, frame]


def make(random, depth):
    if depth <= 0 or random.random() < 0.35:
        return atom(random)
    return random.choice(BRANCHES)(random, depth)


def made_from(seed):
    chosen = random.Random(seed)
    return long(chosen, 1) if chosen.random() < 0.08 else make(chosen, 5)


# ------------------------------------------------------------ what they are

ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range, datetime.datetime,
         decimal.Decimal, fractions.Fraction, uuid.UUID, enum.Enum, type, type(len))  # fmt: skip


def described(value):
    """Everything about a value that can be told, also which parts of it are one."""
    lines, seen, held = [], {}, []
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, ATOMS):
            lines.append((type(one).__name__, repr(one)))
            continue
        if id(one) in seen and not (type(one) is tuple and len(one) == 0):
            lines.append(("again", seen[id(one)]))
            continue
        seen[id(one)] = len(seen)
        held.append(one)
        parts, more = parts_of(one)
        lines.append((type(one).__name__, *parts))
        pending.extend(reversed(more))
    return lines


def parts_of(one):
    """What there is to say of an object, and what it refers to."""
    if numpy and isinstance(one, numpy.ndarray):
        if one.dtype.hasobject:
            return (one.dtype.str, one.shape, one.flags.c_contiguous), list(one.reshape(-1))
        return (one.dtype.str, one.shape, one.tobytes()), []
    if numpy and isinstance(one, (pandas.DataFrame, pandas.Series)):
        return (str(getattr(one, "dtypes", "")), one.shape, repr(one.index), repr_of_frame(one)), []
    if isinstance(one, (set, frozenset)):
        return (len(one), sorted(map(repr_of_key, one))), []
    if isinstance(one, dict):
        more = [part for pair in one.items() for part in (plain_key(pair[0]), pair[1])]
        return (len(one), getattr(one, "default_factory", None), repr(getattr(one, "__dict__", None))), more
    if isinstance(one, (list, tuple, collections.deque)):
        return (len(one), getattr(one, "maxlen", None)), list(one)
    if isinstance(one, (bytearray, array.array)):
        return (bytes(one),), []
    if isinstance(one, BaseException):
        return (), list(one.args)
    names = [*getattr(one, "__slots__", ()), *getattr(one, "__dict__", ())]
    return tuple(names), [getattr(one, name, None) for name in names]


def repr_of_frame(one):
    columns = [one] if isinstance(one, pandas.Series) else [one[name] for name in one]
    return [(column.name, list(map(repr, column))) for column in columns]


def plain_key(key):
    return repr_of_key(key) if isinstance(key, (frozenset, tuple, Keyed)) else key


def repr_of_key(key):
    if isinstance(key, frozenset):
        return sorted(map(repr_of_key, key)).__repr__()
    if isinstance(key, tuple):
        return "(%s)" % ", ".join(map(repr_of_key, key))
    return "a key" if isinstance(key, Keyed) else repr(key)


# --------------------------------------------------------------- mutation


def mutate(value, chosen, kept):
    """What a function might do to what it was given."""
    pending, seen = [value], set()
    while pending and len(seen) < 300:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        try:
            pending += mutated(one, chosen, kept)
        except (ValueError, TypeError, AttributeError, RuntimeError, KeyError):
            pass


def mutated(one, chosen, kept):
    more = []
    if isinstance(one, list):
        more = list(one)[:20]
        one.extend([chosen.random(), "new", {"a": one}])
        if chosen.random() < 0.3:
            del one[0]
        if chosen.random() < 0.5:
            changed_in_place(one.pop(chosen.randrange(len(one))), kept)
        if chosen.random() < 0.3:
            one.sort(key=repr_of_key if len(one) > 99 else lambda item: str(type(item)))
        if chosen.random() < 0.1:
            one.clear()
    elif isinstance(one, dict):
        more = list(one.values())[:20]
        for at in range(chosen.choice([1, 9, 60])):
            one["new%d" % at] = [at]
        for name in list(one)[: chosen.randrange(5)]:
            del one[name]
    elif isinstance(one, set):
        one.update(range(chosen.randrange(50)))
        one.pop()
    elif isinstance(one, bytearray):
        one.extend(b"more" * 50)
        kept.append(memoryview(one))
    elif isinstance(one, (Plain, Record)):
        more = list(vars(one).values())
        one.added = [1, one]
        kept.append(weakref.ref(one))
        if chosen.random() < 0.3:
            one.__dict__ = {"other": 1}
        if chosen.random() < 0.2:
            one.__class__ = Other
    elif numpy and isinstance(one, numpy.ndarray):
        one[...] = one[::-1].copy() if one.ndim else one
        one.shape = (-1, 1)
        kept.append(one.T + one.T if one.dtype.char in "bhil" else one.T)
    elif numpy and isinstance(one, pandas.DataFrame):
        one["new"] = 1
        kept.append(one.sort_values(list(one.columns[:1])))
    elif isinstance(one, str) and one.isidentifier():
        setattr(Slot, one[:30], sys.intern(one))
        kept.append(one.encode())
    elif isinstance(one, tuple):
        more = list(one)
    return more


def changed_in_place(one, kept):
    """What the interpreter may do to an object to which nobody else refers."""
    if isinstance(one, str):
        kept.append(sys.intern(one) if len(one) < 50 else one)
        one += "!" * 40
    elif isinstance(one, bytes):
        stream = io.BytesIO(one)
        del one
        stream.write(b"changed")


class Slot:
    pass


# -------------------------------------------------------------- processes


class Worker:
    """Makes, takes and hands on values, as it is told, for as long as it lives."""

    def __init__(self, library, stream):
        self.heap, self.stream = heap_of(ctypes.PyDLL(library)), stream
        if self.heap is None:
            raise SystemExit(f"{sys.version} is not known to the heap")
        # What is left of earlier values, and dicts of its own, which nothing may change.
        self.kept, self.own = collections.deque(maxlen=400), collections.deque(maxlen=200)

    def serve(self):
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.stream, 100, 2)
            if not message:
                return
            order, seed, base = struct.unpack("<cQQ", message)
            try:
                answer = {b"m": self.makes, b"t": self.takes, b"f": self.forwards}[order](seed, base, descriptors)
            except BaseException:
                answer = traceback.format_exc()[-1500:]
            for descriptor in descriptors:
                os.close(descriptor)
            self.stream.sendall((answer or "").encode() + b"\0")

    def makes(self, seed, base, descriptors):
        """An error, `sent` if it is not to be mapped, or nothing."""
        if not self.heap.open(descriptors[0], base):
            return "the segment cannot be opened"
        return self.hands_over([made_from(seed)], seed)

    def hands_over(self, box, seed):
        chosen = random.Random(seed + 1)
        # What nobody else has, is treated in another way.
        value = box[0] if chosen.random() < 0.5 else None
        length = self.heap.write(box)
        is_written = isinstance(length, int)
        if self.heap.close(is_written) < 0 or not is_written:
            return "sent" if told(box[0]) == told(made_from(seed)) else "what was not handed over has changed"
        if value is None:
            box.clear()
            self.heap.core.heap_release()
            return self.has_own()
        # What the maker does afterwards, nobody sees.
        mutate(value, chosen, self.kept)
        if chosen.random() < 0.1:
            self.kept.append(value)
        del value
        gc.collect(chosen.randrange(3))
        if chosen.random() < 0.5:
            self.heap.core.segment_sweep()

    def takes(self, seed, base, descriptors):
        chosen = random.Random(seed + 2)
        expected = described(as_pickled(made_from(seed)))
        for again in range(2):
            value = self.heap.read(descriptors[0])
            self.churn(chosen)
            if why := difference(described(value), expected):
                return f"{'mapped again, ' * again}{why}"
            mutate(value, chosen, self.kept)
            self.churn(chosen)
            if chosen.random() < 0.2:
                self.kept.append(value)
            del value
            gc.collect(chosen.randrange(3))
            if chosen.random() < 0.6:
                break
        return self.has_own()

    def forwards(self, seed, base, descriptors):
        """Takes a value, and hands it on."""
        if not self.heap.open(descriptors[1], base):
            return "the segment cannot be opened"
        return self.hands_over([self.heap.read(descriptors[0])], seed)

    def churn(self, chosen):
        """Memory is taken and given back, as by any program."""
        gc.set_threshold(chosen.choice([50, 700]), 5, 5)
        rubbish = [[at, {at: [at]}, (at,), "%d" % at, at + 0.5, {"a": at}] for at in range(500)]
        rubbish[0].append(rubbish)
        for _ in range(5):
            one = {"k%d" % at: at for at in range(chosen.choice([2, 5, 9]))}
            self.own.append((one, dict(one)))

    def has_own(self):
        return None if all(one == other for one, other in self.own) else "what is this process's own has changed"


def as_pickled(value):
    buffers = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytearray(one.raw()) for one in buffers])


def told(value):
    """What it is once it was sent; nothing if it cannot be."""
    try:
        return described(as_pickled(value))
    except Exception:
        return None


def difference(found, expected):
    if found == expected:
        return None
    for at, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            return f"at {at}: {one!r:.300} instead of {other!r:.300}"
    return f"{len(found)} parts instead of {len(expected)}"


def start(library, others):
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        status = 1
        # It ends with whoever started it, and says where it hangs.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        faulthandler.dump_traceback_later(60)
        try:
            for _, stream in others:
                stream.close()
            ours.close()
            Worker(library, theirs).serve()
            status = 0
        except SystemExit as error:
            print(error, file=sys.stderr)
        finally:
            os._exit(status)
    theirs.close()
    ours.settimeout(100)
    return pid, ours


def ask(worker, order, seed, base, descriptors):
    """What it answers; `ended` if it is no more."""
    socket.send_fds(worker[1], [struct.pack("<cQQ", order, seed, base)], descriptors)
    answer = b""
    while not answer.endswith(b"\0"):
        try:
            piece = worker[1].recv(4096)
        except ConnectionError:
            piece = b""
        except TimeoutError:
            os.kill(worker[0], signal.SIGKILL)
            return "ended: it took too long"
        if not piece:
            return "ended: the process is no more"
        answer += piece
    return answer[:-1].decode()


def leaves(library):
    """What nobody else has is left where it is, and there again if it was not handed over; all else is as it was."""
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN
    first, end = 1000, 200_000
    sums = sum(range(first, end)), "".join(map(str, range(first, end)))
    for shown, is_kept, is_left in [(False, True, True), (False, False, False), (True, True, False)]:
        base += 2 * SEGMENT_BYTES
        descriptor = segment()
        assert heap.open(descriptor, base)
        numbers = list(range(first, end))
        box = [({"numbers": numbers}, list(map(str, numbers)))]
        numbers = numbers if shown else None
        assert isinstance(heap.write(box), int) and heap.close(is_kept) == 0
        found = box[0]
        is_same = (sum(found[0]["numbers"]), "".join(found[1])) == sums
        assert is_same != is_left or (shown and sum(numbers) == sums[0]), (shown, is_kept)
        assert found[1] == [] or not is_left
        del found, box, numbers
        heap.core.heap_release()
        # What was not left may be kept by its strings.
        assert heap.core.segment_sweep() == 0 or not is_left
        os.close(descriptor)


def start_all(library):
    workers = []
    for _ in range(3):
        workers.append(start(library, workers))
    return workers


def stop(worker):
    worker[1].close()
    return os.waitpid(worker[0], 0)[1]


def segment():
    descriptor = os.memfd_create("value", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, SEGMENT_BYTES)
    return descriptor


def main():
    library, transfers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else int.from_bytes(os.urandom(4), "little")
    print(f"{transfers} transfers from seed {first}, Python {sys.version.split()[0]}, numpy {numpy and numpy.__version__}", flush=True)
    # In a process of its own: those that are forked have no heap yet.
    if (child := os.fork()) == 0:
        try:
            leaves(library)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    left_well = os.waitpid(child, 0)[1] == 0
    workers, counts, wrong = [], collections.Counter(), []
    base = PLAN
    for number in range(transfers):
        seed = (first + number) % (1 << 40)
        chosen = random.Random(seed + 3)
        if number % 100 == 0:
            counts["processes that failed"] += sum(stop(worker) != 0 for worker in workers)
            workers = start_all(library)
        maker, taker, other = chosen.sample(workers, 3)
        base += 2 * SEGMENT_BYTES
        descriptors = [segment(), segment()]
        why = ask(maker, b"m", seed, base, descriptors[:1])
        if not why:
            why = ask(taker, b"t", seed, 0, descriptors[:1])
            counts["mapped"] += 1
            if not why and chosen.random() < 0.3:
                base += 2 * SEGMENT_BYTES
                why = ask(other, b"f", seed, base, descriptors)
                if not why:
                    why = ask(taker, b"t", seed, 0, descriptors[1:])
                    counts["handed on"] += 1
        if why and why != "sent":
            wrong.append(seed)
            print(f"seed {seed}: {why}", flush=True)
            if why.startswith("ended"):
                for worker in workers:
                    stop(worker)
                workers = start_all(library)
        counts["sent"] += why == "sent"
        for descriptor in descriptors:
            os.close(descriptor)
        if len(wrong) >= 20:
            break
    counts["processes that failed"] += sum(stop(worker) != 0 for worker in workers)
    print(f"{dict(counts)}, {len(wrong)} wrong")
    return not left_well or bool(wrong) or counts["processes that failed"] > 0 or counts["mapped"] < transfers * 0.6


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-X", "faulthandler", *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
