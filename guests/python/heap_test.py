# SPDX-License-Identifier: Apache-2.0
"""Hands over values of all kinds between processes, and compares them with what was sent.

    heap_test.py LIBRARY [TRANSFERS [SEED]]

LIBRARY is guests/heap, compiled. A value is made from a number by one process, mapped by another one, compared,
mutated, handed on, and mapped again; the numbers of those that differ are printed. Processes serve many
transfers each, so that what one leaves behind would be seen by the next ones. The last line is a JSON object
that counts them; with the number of a seed's batch, and 100 transfers, all that came before it is done again.
"""

import collections
import contextlib
import ctypes
import errno
import faulthandler
import gc
import hashlib
import io
import json
import math
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import heap_library_cases  # noqa: E402
from heap_cases import LATE, made_from  # noqa: E402
from heap_compare import as_pickled, described, difference, inspect, mutate, told  # noqa: E402
from heap_kept import KEPT_CHECKS  # noqa: E402

for name in ("images.py", "models.py", "heap.py", "heap_models.py"):
    with open(os.path.join(HERE, name), encoding="utf-8") as source:
        exec(compile(source.read(), name, "exec"))
# Pickles find it there.
OFFERED = image_at, image_has, opened_at, opened_has, booster_at, booster_has, tree_at  # noqa: F821
sys.modules["sinew"] = types.SimpleNamespace(**{one.__name__: one for one in OFFERED})

SEGMENT_BYTES = 1 << 30
# A batch of transfers has its own processes, and the same addresses as any other.
PLAN, BATCH = 0x200000000000, 100
# As in heap.h.
BRIEF_MAX = 1024
# All is to be mapped here.
MAPPED_BYTES_MIN = 0
WRONG_MAX = 20
TOLD_EACH = 1000

# -------------------------------------------------------------- processes


class Worker:
    """Makes, takes and hands on values, as it is told, for as long as it lives."""

    def __init__(self, library, stream):
        self.heap, self.stream = heap_of(ctypes.PyDLL(library)), stream
        if self.heap is None:
            raise SystemExit(f"{sys.version} is not known to the heap")
        self.heap.core.segment_compare_from(1)
        self.heap.may_have(SEGMENT_BYTES)
        # What is left of earlier values, and dicts of its own, which nothing may change.
        self.kept, self.own = collections.deque(maxlen=400), collections.deque(maxlen=200)
        self.copies = 0

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
                self.heap.end()
            for descriptor in descriptors:
                os.close(descriptor)
            self.stream.sendall((answer or "").encode() + b"\0")

    def makes(self, seed, base, descriptors):
        """An error, `sent` if it is not to be mapped, or nothing."""
        if not self.opens(descriptors[0], base, seed):
            return "the segment cannot be opened"
        chosen = random.Random(seed + 6)
        # What ends before the value is handed over leaves its memory, some of which the value has taken again.
        rubbish = [str(chosen.random()) * chosen.randrange(1, 40) for _ in range(chosen.choice([0, 0, 8000]))]
        box = [made_from(seed)]
        del rubbish
        return self.hands_over(box, seed)

    def opens(self, descriptor, base, seed):
        """What is made may be in the segment or elsewhere, whatever the process has learned."""
        chosen = random.Random(seed + 4)
        for habit in self.heap.habits:
            habit.left = chosen.choice([0, 0, 2])
        return self.heap.open(descriptor, base)

    def hands_over(self, box, seed):
        chosen = random.Random(seed + 1)
        if why := self.is_long(box[0], chosen.choice([100, 1000, 10_000])) or self.is_no_copy(box[0], seed):
            return why
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

    def is_long(self, value, most):
        """Whether a value that is taken for short is not."""
        if self.heap.core.heap_is_plain(value, most):
            length = len(pickle.dumps(value, 5))  # noqa: F821
            return f"a pickle of {length} bytes, that should have {most} at most" if length > most else ""
        return ""

    def is_no_copy(self, value, seed):
        """Whether a copy of what is plain is another value than what pickle makes of it, or has a part of it."""
        copied, brief = self.heap.core.heap_plain_copy(value), self.heap.told_brief(value)
        if brief is not None and (length := len(pickle.dumps(value, 5))) > BRIEF_MAX:  # noqa: F821
            return f"a pickle of {length} bytes is taken for brief"
        if (brief is not None) != bool(self.heap.core.heap_is_plain(value, BRIEF_MAX)):
            return "what is plain and short is not brief, or something else is"
        # Without a pickle None is no copy.
        brief = None if brief == (None, None) else brief
        if brief is None and copied is not None and self.heap.core.heap_is_plain(value, BRIEF_MAX):
            return "what can be copied was not"
        for made in filter(None, (copied, brief)):
            self.copies += 1
            before = described(value)
            if why := difference(described(made[0]), told(value)):
                return f"copied, {why}"
            mutate(made[0], random.Random(seed + 9), collections.deque())
            if described(value) != before:
                return "what was copied has changed with its copy"
        return ""

    def takes(self, seed, base, descriptors):
        chosen = random.Random(seed + 2)
        expected = told(made_from(seed))
        for again in range(2):
            value = self.heap.read(descriptors[0])
            self.churn(chosen)
            if why := difference(described(value), expected):
                return f"{'mapped again, ' * again}{why}"
            if chosen.random() < 0.5:
                self.heap.core.heap_map_end()
                if why := difference(described(value), expected):
                    return f"{'mapped again, ' * again}its pages returned, {why}"
            mutate(value, chosen, self.kept)
            changed = told(value) if chosen.random() < 0.3 else None
            self.churn(chosen)
            self.heap.core.heap_map_end()
            if changed is not None and told(value) != changed:
                return "what was changed is as it was"
            if chosen.random() < 0.2:
                self.kept.append(value)
            del value
            gc.collect(chosen.randrange(3))
            if chosen.random() < 0.6:
                break
        return self.has_own()

    def forwards(self, seed, base, descriptors):
        """Takes a value, and hands it on."""
        if not self.opens(descriptors[1], base, seed):
            return "the segment cannot be opened"
        return self.hands_over([self.heap.read(descriptors[0])], seed)

    def churn(self, chosen):
        """Memory is taken and given back, as by any program."""
        gc.set_threshold(chosen.choice([50, 700]), 5, 5)
        inspect(chosen)
        rubbish = [[at, {at: [at]}, (at,), "%d" % at, at + 0.5, {"a": at}] for at in range(500)]
        rubbish[0].append(rubbish)
        for _ in range(5):
            one = {"k%d" % at: at for at in range(chosen.choice([2, 5, 9]))}
            self.own.append((one, dict(one)))

    def has_own(self):
        return None if all(one == other for one, other in self.own) else "what is this process's own has changed"


def start(library, others):
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        status = 1
        # It ends with whoever started it, and says where it hangs: by no thread, for it is to be alone.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        faulthandler.register(signal.SIGALRM)
        signal.alarm(60)
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


def shares(library):
    """What is reached from what is copied and from what is pickled is one, whichever comes first."""
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN
    one, many = LATE[0](), collections.deque
    one.items = [1]
    for value in [one, many([one])], [many([one]), one], many([one, [one]]), many([[one], one]), {"a": many([{"b": one}]), "c": [one, one]}:
        base += 2 * SEGMENT_BYTES
        descriptor = segment()
        assert heap.open(descriptor, base) and isinstance(heap.write([value]), int) and heap.close(True) == 0
        why = difference(described(heap.read(descriptor)), described(value))
        assert not why, f"{value}: {why}"
        os.close(descriptor)


def ends(library):
    """Numbers of a value that is mapped are never others', and those that were handed over are not kept by who made them."""
    first, count, base, descriptor = 1 << 20, 60_000, PLAN, segment()
    maker = os.fork()
    if maker == 0:
        heap, has = heap_of(ctypes.PyDLL(library)), []
        for _ in range(6):
            assert heap.open(segment() if has else descriptor, base)
            box = [{at: first + at for at in range(count)}]
            assert isinstance(heap.write(box), int) and heap.close(True) == 0
            box.clear()
            heap.core.heap_release()
            gc.collect()
            heap.core.segment_sweep()
            has.append(own_memory_bytes())  # noqa: F821
            base += 2 * SEGMENT_BYTES
        # Each time it would be more than this; that what is wasted is made elsewhere is learned by the third.
        os._exit(has[-1] - has[2] > 32 * count)
    assert os.waitpid(maker, 0)[1] == 0, "who made them keeps them"
    heap = heap_of(ctypes.PyDLL(library))
    for _ in range(3):
        value = heap.read(descriptor)
        assert value == {at: first + at for at in range(count)}, "a number has become another one"
        value.clear()
        numbers = [2 * first + at for at in range(1000)]
        del value, numbers
    os.close(descriptor)


def returns(library):
    """Pages that only were read are given back, and those that were changed are not."""
    heap, descriptor, count = heap_of(ctypes.PyDLL(library)), segment(), 1 << 18
    heap.core.segment_return_pages.restype = ctypes.c_size_t
    if (maker := os.fork()) == 0:
        heap.open(descriptor, PLAN)
        is_made = isinstance(heap.write([[list(range(1 << 20, (1 << 20) + count)), [0] * 8]]), int) and heap.close(True) == 0
        os._exit(not is_made)
    assert os.waitpid(maker, 0)[1] == 0
    are_counted = sys.version_info < (3, 12)
    files = os.listdir("/proc/self/fd")

    def read():
        numbers, others = heap.read(descriptor)
        assert sum(numbers) == sum(range(1 << 20, (1 << 20) + count)) and others == [0] * 8
        return numbers, others

    numbers, others = read()
    others[3] = kept = numbers[7]
    assert not are_counted or own_memory_bytes() > 32 * count  # noqa: F821
    returned = heap.core.segment_return_pages(0)
    assert 28 * count < returned < 36 * count if are_counted else returned < 1 << 20, returned
    assert others == [0, 0, 0, kept, 0, 0, 0, 0] and kept == (1 << 20) + 7 and sum(numbers) == sum(range(1 << 20, (1 << 20) + count))
    # Others of its run may need it again; once they do not, it is done.
    read()
    assert heap.core.segment_return_pages(0) == 0, "what was mapped again is kept"
    assert not are_counted or heap.core.segment_return_pages(0) > 28 * count, "until it is not"
    # Another thread may write to what is compared.
    read()
    heap.core.segment_return_pages(0)
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    assert heap.core.segment_return_pages(0) == 0, "there is another thread"
    is_over.set()
    other.join()
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.001)
    assert not are_counted or heap.core.segment_return_pages(1) > 28 * count, "until it has ended"
    assert os.listdir("/proc/self/fd") == files, "the file is not closed"
    # Calls that are given nothing count as well.
    heap.may_have(2 << 30)
    heap.end()
    read()
    heap.end()
    read()
    heap.end()
    kept = own_memory_bytes()  # noqa: F821
    heap.end()
    assert not are_counted or kept - own_memory_bytes() > 28 * count, "a call that was given nothing"  # noqa: F821
    assert os.listdir("/proc/self/fd") == files and not heap.was_given
    os.close(descriptor)


def watches_few(library):
    """Files are kept open of few values at a time."""
    heap, values = heap_of(ctypes.PyDLL(library)), []
    for number in range(1, 41):
        values.append(segment())
        if (maker := os.fork()) == 0:
            heap.open(values[-1], PLAN + 2 * number * SEGMENT_BYTES)
            is_made = isinstance(heap.write([list(range(1 << 20, (1 << 20) + (1 << 16)))]), int) and heap.close(True) == 0
            os._exit(not is_made)
        assert os.waitpid(maker, 0)[1] == 0
    heap.may_have(2 << 30)
    before = len(os.listdir("/proc/self/fd"))
    all_of_them = [heap.read(descriptor) for descriptor in values]
    assert len(os.listdir("/proc/self/fd")) - before <= 16
    assert {sum(one) for one in all_of_them} == {sum(range(1 << 20, (1 << 20) + (1 << 16)))}
    del all_of_them
    heap.end()
    assert len(os.listdir("/proc/self/fd")) == before
    for descriptor in values:
        os.close(descriptor)


def foresees(library):
    """What calls do not read they are not given ahead, and what they read they are."""
    if sys.version_info >= (3, 12):
        return
    heap, count, values = heap_of(ctypes.PyDLL(library)), 1 << 20, []
    heap.may_have(2 << 30)
    for number in range(1, 7):
        descriptor = segment()
        if (maker := os.fork()) == 0:
            heap.open(descriptor, PLAN + 2 * number * SEGMENT_BYTES)
            is_made = isinstance(heap.write([list(range(1 << 20, (1 << 20) + count))]), int) and heap.close(True) == 0
            os._exit(not is_made)
        assert os.waitpid(maker, 0)[1] == 0
        values.append(descriptor)

    def call(reads, waits=10):
        """What a process has of its own by it, before it has read anything."""
        before, descriptor = own_memory_bytes(), values.pop()  # noqa: F821
        value = heap.read(descriptor)
        deadline = time.monotonic() + waits
        while own_memory_bytes() - before < 20 << 20 and time.monotonic() < deadline:  # noqa: F821
            time.sleep(0.01)
        ahead = own_memory_bytes() - before  # noqa: F821
        assert not reads or sum(value) > 0
        del value
        heap.end()
        os.close(descriptor)
        return ahead

    assert call(False) > 20 << 20, "the first one is not foreseen"
    assert call(False, 0.5) < 4 << 20, "none has read the one before"
    assert call(True, 0.5) < 4 << 20
    assert call(True) > 20 << 20, "the one before was read"
    assert call(False) > 20 << 20
    assert call(False) > 20 << 20, "two were read of three"


def foresees_within_bounds(library):
    """However long a value is, no more of it is given ahead than is allowed."""
    if sys.version_info >= (3, 12):
        return
    heap, descriptor, most = heap_of(ctypes.PyDLL(library)), segment(), 8 << 20
    if (maker := os.fork()) == 0:
        heap.open(descriptor, PLAN + 2 * SEGMENT_BYTES)
        is_made = isinstance(heap.write([list(range(1 << 20, 1 << 21))]), int) and heap.close(True) == 0
        os._exit(not is_made)
    assert os.waitpid(maker, 0)[1] == 0
    heap.core.prefetch_allow(most)
    before = own_memory_bytes()  # noqa: F821
    value = heap.read(descriptor)
    deadline = time.monotonic() + 10
    while own_memory_bytes() - before < most // 2 and time.monotonic() < deadline:  # noqa: F821
        time.sleep(0.01)
    time.sleep(0.3)
    ahead = own_memory_bytes() - before  # noqa: F821
    assert most // 2 < ahead < most + (2 << 20), ahead
    assert sum(value) > 0
    heap.end()
    os.close(descriptor)


def collides(library):
    """Where something else is, a value is not mapped over it, and can be mapped when that is gone."""
    heap, descriptor, base = heap_of(ctypes.PyDLL(library)), segment(), PLAN + 6 * SEGMENT_BYTES
    if (maker := os.fork()) == 0:
        heap.open(descriptor, base)
        is_made = isinstance(heap.write([["some", 1 << 40]]), int) and heap.close(True) == 0
        os._exit(not is_made)
    assert os.waitpid(maker, 0)[1] == 0
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_size_t, [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    assert libc.mmap(base, 4096, 3, 0x22, -1, 0) == base
    ctypes.memset(base, 7, 4096)
    try:
        heap.read(descriptor)
    except Unmappable:  # noqa: F821
        pass
    else:
        raise AssertionError("it was mapped over something else")
    assert ctypes.string_at(base, 4096) == b"\7" * 4096
    assert libc.munmap(base, 4096) == 0 and heap.read(descriptor) == ["some", 1 << 40]
    heap.end()
    os.close(descriptor)


def forks(library):
    """A process that is forked has none of what this one has filled, whether that was handed over, given up or is being filled."""
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN
    for keep in (False, True, None):
        base += 2 * SEGMENT_BYTES
        descriptor = segment()
        assert heap.open(descriptor, base)
        has = [[number] for number in range(1 << 16)]
        if keep is not None:
            assert isinstance(heap.write([has]), int) and heap.close(keep) == 0
        os.close(descriptor)
        if (child := os.fork()) == 0:
            for one in has:
                one.clear()
            gc.collect()
            os._exit(any(has))
        assert os.waitpid(child, 0)[1] == 0, "what is forked has what was filled"
        assert all(one == [number] for number, one in enumerate(has)), f"what is forked has changed it: {keep}"
        gc.collect()
        heap.end()


def learns(library):
    """What calls make for themselves is made elsewhere after a while, and what they hand over in their segments."""
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN

    def call(made):
        """Bytes that it took of both halves."""
        nonlocal base
        base += 2 * SEGMENT_BYTES
        descriptor, box = segment(), []
        assert heap.open(descriptor, base)
        made(box)
        heap.core.segment_use(heap.use)
        taken = heap.use[0], heap.use[2]
        is_written = isinstance(heap.write(box), int)
        assert heap.close(is_written) == 0 or not is_written
        os.close(descriptor)
        del box
        heap.end()
        return taken

    def wastes(box):
        text = "a b " * (1 << 17)
        box.append(sum(len(word) for word in [word * 9 for word in text.split()]))

    def keeps(box):
        box.append([str(number) * 5 for number in range(1 << 18)])

    assert min(call(wastes)) > WASTE_MIN, "what is not known yet is made in the segment"
    assert [call(wastes) for _ in range(PAUSE - 1)] == [(0, 0)] * (PAUSE - 1), "and then elsewhere"
    assert min(call(wastes)) > WASTE_MIN, "until that is tried again"
    assert [call(wastes) for _ in range(2 * PAUSE - 1)] == [(0, 0)] * (2 * PAUSE - 1), "after twice as many calls"
    assert min(call(wastes)) > WASTE_MIN and call(keeps) == (0, 0), "nothing is made there"
    assert call(keeps)[0] > WASTE_MIN and call(keeps)[0] > WASTE_MIN, "until more is handed over than was made in vain"
    # One that is unlike the others changes little, and one that fails nothing.
    assert call(wastes)[0] > WASTE_MIN and call(keeps)[0] > WASTE_MIN, "as those before"
    # What was there before the call is handed over from elsewhere in any case.
    early = []
    keeps(early)

    def keeps_early(box):
        wastes([])
        box.append(early[0])

    assert any(call(wastes) == (0, 0) for _ in range(9))
    tried = [call(one)[0] > 0 for _ in range(PAUSE) for one in (keeps_early, wastes)]
    assert sum(tried) <= 4, "that is no reason to make there what is not handed over, however often"


def empties(library):
    """What calls make in vain beside a value is not handed over with it."""
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN
    for survivors, most in ((200, 4 << 20), (1 << 30, 1 << 30)):
        base += 2 * SEGMENT_BYTES
        descriptor = segment()
        # Whatever it has learned.
        heap.habits[0].left = 0
        assert heap.open(descriptor, base)
        words = [str(number) * 8 for number in range(300_000)]
        heap.core.segment_use(heap.use)
        taken, box = heap.use[0], [words[:survivors]]
        del words
        assert taken > 16 << 20 and isinstance(heap.write(box), int) and heap.close(True) == 0
        bytes_of_file = os.fstat(descriptor).st_blocks * 512
        assert bytes_of_file < most, f"{bytes_of_file} of {taken}"
        # The negative control.
        assert most < 1 << 30 or bytes_of_file > taken // 2
        assert box[0][:200] == [str(number) * 8 for number in range(200)]
        box.clear()
        heap.end()
        os.close(descriptor)


def lends(library):
    """What a call was lent and has not used is the next one's; not what it has used, nor what a process that it forked has."""
    global MAPPED_BYTES_MIN
    MAPPED_BYTES_MIN = 64 << 10
    heap, base = heap_of(ctypes.PyDLL(library)), PLAN

    def is_there(made):
        return PLAN <= id(made[-1]) < PLAN + (1 << 40)

    def make():
        return ["x" * 900 + str(number) for number in range(1000)]

    def begin():
        nonlocal base
        base += 2 * SEGMENT_BYTES
        descriptor = segment()
        heap.begin(descriptor, base)
        assert heap.is_open
        return descriptor

    descriptor = begin()
    assert isinstance(heap.write([7]), bytes) and heap.is_untouched() and heap.is_untouched()
    heap.end()
    assert not is_there(make()), "nothing is made there between two calls"
    # It needs nothing else for it.
    made = heap.open_again() and make()
    assert heap.is_open and is_there(made)
    assert isinstance(heap.write([made]), int) and heap.close(True) == 0
    assert os.pread(descriptor, KIND_AT + 1, 0)[KIND_AT] == KIND_MAPPED, "it is the file that was lent first"
    heap.end()
    os.close(descriptor)
    # What others refer to is there.
    descriptor = begin()
    made = make()
    assert is_there(made) and isinstance(heap.write([7]), bytes)
    assert not is_there(make()), "what is made after the result is not handed over"
    assert not heap.is_untouched()
    heap.end()
    os.close(descriptor)
    # A fork while it is lent, and while it is kept.
    descriptor = begin()
    os.waitpid(os.fork() or os._exit(0), 0)
    assert not heap.is_untouched()
    heap.end()
    os.close(descriptor)
    descriptor = begin()
    assert heap.is_untouched()
    heap.end()
    os.waitpid(os.fork() or os._exit(0), 0)
    assert not heap.open_again()
    heap.begin(descriptor, base)
    assert heap.is_open, "it is opened anew"
    made = make()
    assert is_there(made)
    heap.end()
    os.close(descriptor)
    # Its number is another file's by now.
    descriptor = begin()
    assert heap.is_untouched()
    heap.end()
    known = os.fstat(descriptor)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), known) and number != descriptor:
                os.dup2(other := os.memfd_create("other"), number)
                os.close(other)
    assert not heap.open_again()
    os.close(descriptor)
    # Another one takes its place, and has its addresses.
    first = begin()
    assert heap.is_untouched()
    heap.end()
    second = segment()
    heap.begin(second, base)
    made = make()
    assert is_there(made) and isinstance(heap.write([made]), int) and heap.close(True) == 0
    assert os.fstat(first).st_blocks == 0 < os.fstat(second).st_blocks


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


def briefs():
    """Numbers, texts and bytes at the bounds of how they are pickled."""
    ends = [1 << power for power in range(65)]
    yield from (None, True, False, "", b"", "\0", "é" * 100, "\U0001f600" * 200, "\ud800", "a" * 300)
    yield from (sign * end + near for end in ends for sign in (1, -1) for near in (-1, 0, 1))
    yield from (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324)
    for length in (1, 255, 256, 900, 1000, 1024, 5000):
        yield from ("x" * (length // 4), "é" * (length // 4), bytes(length))


def tells(library):
    """What is no container is pickled as it is by pickle itself; what is too long is left to that."""
    heap, count = heap_of(ctypes.PyDLL(library)), 0
    for value in briefs():
        brief = heap.told_brief(value)
        is_long = value == "\ud800" or type(value) is int and not -(1 << 63) <= value < 1 << 63
        assert is_long or len(pickle.dumps(value, 5)) > 250 or brief is not None, value  # noqa: F821
        if brief is not None and brief[1] is not None:
            assert brief[0] is value and brief[1] == pickle.dumps(value, 5), (value, brief)  # noqa: F821
            count += 1
    assert count > 380, count
    for value in ([1], (), {"a": [None]}, [[1, "é"]] * 2):
        copy, pickled = heap.told_brief(value)
        assert copy == value and pickled is None and (copy is not value or value == ()), value
    # What cannot be copied is pickled as it is.
    shared = [[] for _ in range(70)]
    assert heap.told_brief(list(shared)) == (None, None)
    heap.is_followed = True
    assert pickle.loads(heap.brief(list(shared))) == shared and heap.copied is None  # noqa: F821
    assert pickle.loads(heap.brief(shared[:9])) == shared[:9] and heap.copied[0][0] is not shared[0]  # noqa: F821
    assert heap.brief(None) == pickle.dumps(None, 5) and heap.copied == (None,)  # noqa: F821
    heap.is_followed = False
    assert heap.brief(7) == pickle.dumps(7, 5) and heap.copied is None and heap.small_results == 4  # noqa: F821
    assert heap.brief([0] * 2000) is None and heap.small_results == 4
    for value in (heap, bytearray(b"x"), {1}, 1j, type("Number", (int,), {})(1), [0] * 2000):
        assert heap.told_brief(value) is None, value


class Transfers:
    """Transfers by their numbers, what came of them, and the processes of the batch that is under way."""

    def __init__(self, library, first):
        self.library, self.first = library, first
        self.counts, self.wrong = collections.Counter(), []
        self.workers, self.base, self.failed = [], PLAN, 0

    def begin_batch(self):
        self.failed += sum(stop(worker) != 0 for worker in self.workers)
        self.workers, self.base = start_all(self.library), PLAN

    def end(self):
        self.failed += sum(stop(worker) != 0 for worker in self.workers)
        self.workers = []

    def place(self):
        """Addresses that no value of this batch had."""
        self.base += 2 * SEGMENT_BYTES
        return self.base

    def hand(self, number):
        """One transfer, and how it went."""
        seed = (self.first + number) % (1 << 40)
        chosen = random.Random(seed + 3)
        if number % BATCH == 0:
            self.begin_batch()
        maker, taker, other = chosen.sample(self.workers, 3)
        descriptors = [segment(), segment()]
        why = ask(maker, b"m", seed, self.place(), descriptors[:1])
        if not why:
            why = ask(taker, b"t", seed, 0, descriptors[:1])
            self.counts["mapped"] += 1
            if not why and chosen.random() < 0.3:
                why = ask(other, b"f", seed, self.place(), descriptors)
                if not why:
                    why = ask(taker, b"t", seed, 0, descriptors[1:])
                    self.counts["handed on"] += 1
        for descriptor in descriptors:
            os.close(descriptor)
        self.counts["transfers"] += 1
        self.counts["sent"] += why == "sent"
        if why and why != "sent":
            self.note_wrong(seed, number, why)

    def note_wrong(self, seed, number, why):
        self.wrong.append(seed)
        print(f"seed {seed}, batch {self.first + number - number % BATCH}: {why}", flush=True)
        if why.startswith("ended"):
            for worker in self.workers:
                stop(worker)
            self.workers = start_all(self.library)


def is_well(check, library):
    """In a process of its own: those that are forked have no heap yet."""
    if (child := os.fork()) == 0:
        try:
            check(library)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def main():
    library, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else int.from_bytes(os.urandom(4), "little")
    # As in a template, from which all that map each other's values are forked.
    adopt_libraries(ctypes.PyDLL(library))  # noqa: F821
    print(f"{count} transfers from seed {first}, Python {sys.version.split()[0]}, {heap_library_cases.versions()}", flush=True)
    is_all_well = all([is_well(check, library) for check in (leaves, shares, ends, returns, watches_few, foresees, foresees_within_bounds, collides, forks, learns, empties, lends, tells, *KEPT_CHECKS, *MODEL_CHECKS)])
    # What was imported is the same in all of them, and is not gone through each time that they collect.
    gc.collect()
    gc.freeze()
    transfers = Transfers(library, first)
    for number in range(count):
        transfers.hand(number)
        if (number + 1) % TOLD_EACH == 0:
            print(f"{number + 1} of {count}, {len(transfers.wrong)} wrong", flush=True)
        if len(transfers.wrong) >= WRONG_MAX:
            break
    transfers.end()
    counts, wrong = transfers.counts, len(transfers.wrong)
    print(json.dumps({**counts, "processes that failed": transfers.failed, "wrong": wrong + (not is_all_well)}))
    return not is_all_well or wrong > 0 or transfers.failed > 0 or counts["mapped"] < counts["transfers"] * 0.6


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Libraries have no threads, which no process has that is forked.
        settings = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-X", "faulthandler", *sys.argv], {**os.environ, **settings})
    sys.exit(main())
