# SPDX-License-Identifier: Apache-2.0
"""Checks of heap_test.py: what an instance keeps of memory that its calls have freed (arenas.c, blocks.c)."""

import ctypes
import errno
import gc
import resource
import socket
import threading
import time


def keeps(library):
    """Memory of a call's objects is there for those of the next one, up to a bound."""
    core = ctypes.PyDLL(library)
    core.arenas_kept.restype = ctypes.c_size_t

    def call(count):
        """What is kept while there are so many strings of 56 bytes, and after them."""
        made = [str(number) for number in range(1 << 20, (1 << 20) + count)]
        assert made[-1] == str((1 << 20) + count - 1)
        during = core.arenas_kept()
        made.clear()
        gc.collect()
        return during, core.arenas_kept()

    def nests(depth):
        return depth and nests(depth - 1)

    # More than fits into what is free of the arenas that are there.
    few, many = 1 << 18, 1 << 21
    # Where addresses are the limit, the kernel can have none of it back.
    bounds = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, bounds[1]))
    assert core.arenas_keep() == -errno.EPERM
    resource.setrlimit(resource.RLIMIT_DATA, bounds)
    assert call(few) == (0, 0)
    assert core.arenas_keep() == 0 and core.arenas_keep() == -errno.EALREADY
    # Frames have memory from there, too.
    nests(900)
    assert core.arenas_kept() < 1 << 20
    during, after = call(few)
    assert during < 1 << 20 and after > 5 << 20, (during, after)
    during, after = call(few)
    assert during < 2 << 20 and after > 5 << 20, "they are not used again"
    during, after = call(many)
    assert during < 2 << 20 and 24 << 20 < after <= (32 << 20) + (64 << 10), (during, after)


def keeps_blocks(library):
    """Large blocks that a call has freed are there for the next one, the kernel may have them meanwhile, and who rests gives them back."""
    core = ctypes.PyDLL(library)
    core.blocks_keep.argtypes = [ctypes.c_size_t]
    core.blocks_offer.restype = core.blocks_kept.restype = ctypes.c_size_t
    each, count = 8 << 20, 12

    def call():
        """Faults of pages of so many blocks."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        made = [bytearray(each) for _ in range(count)]
        for block in made:
            block[::4096] = b"x" * (each // 4096)
        assert sum(map(len, made)) == each * count
        del made, block
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def lazily():
        with open("/proc/self/smaps_rollup") as told:
            return next(int(line.split()[1]) << 10 for line in told if line.startswith("LazyFree:"))

    def resident():
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * 4096

    bounds = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, bounds[1]))
    assert core.blocks_keep(128 << 20) == -errno.EPERM and core.blocks_offer() == 0
    resource.setrlimit(resource.RLIMIT_DATA, bounds)
    # As much as one block, which is more than is kept of them all.
    assert core.blocks_keep(each) == 0
    call()
    assert call() > count * each // 4096 // 2, "nothing shows whether memory is kept"
    assert core.blocks_keep(128 << 20) == 0 and core.blocks_offer() == 0 and core.blocks_kept() == 0
    call()
    assert call() < 1000, "it is not kept"
    before = lazily()
    assert core.blocks_offer() > count * each // 2 and core.blocks_kept() > count * each * 9 // 10
    assert lazily() - before > count * each * 9 // 10, "the kernel may not have it"
    assert call() < 1000 and lazily() - before < count * each // 2, "it is not used again"
    # Another thread might take what is offered, and write to it before.
    over, full = threading.Event(), resident()
    other = threading.Thread(target=over.wait)
    other.start()
    deadline = time.monotonic() + 10
    while resident() > full - count * each // 2 and time.monotonic() < deadline:
        assert core.blocks_offer() >= 0 and core.blocks_kept() == 0
    assert resident() < full - count * each // 2, "it is neither offered nor given back"
    over.set()
    other.join()
    call()
    mine, others = socket.socketpair()
    others.send(b"x")
    full = resident()
    assert core.blocks_rest(mine.fileno(), 10_000) == 0 and resident() > full - each, "it has something to do"
    assert mine.recv(2) == b"x" and core.blocks_rest(mine.fileno(), 1) == 1
    assert resident() < full - count * each * 9 // 10 and core.blocks_kept() == 0


KEPT_CHECKS = (keeps, keeps_blocks)
