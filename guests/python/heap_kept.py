# SPDX-License-Identifier: Apache-2.0
"""Checks of heap_test.py: what an instance keeps of memory that its calls have freed (arenas.c, blocks.c)."""

import ctypes
import errno
import gc
import os
import resource
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


def is_checked():
    """Whether memory comes from a library that looks for mistakes, and not from the C library."""
    with open("/proc/self/maps") as maps:
        return "libasan" in maps.read()


def keeps_blocks(library):
    """Large blocks that a call has freed are there for the next one, the kernel may have them meanwhile, and they can be given back."""
    if is_checked():
        return
    core = ctypes.PyDLL(library)
    core.blocks_keep.argtypes = [ctypes.c_size_t]
    core.blocks_offer.restype = core.blocks_free.restype = ctypes.c_size_t
    each, count = 8 << 20, 12
    most = each * count

    def call():
        """Faults of pages of so many blocks."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        made = [bytearray(b"x") * each for _ in range(count)]
        del made
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def lazily():
        with open("/proc/self/smaps_rollup") as told:
            return next(int(line.split()[1]) << 10 for line in told if line.startswith("LazyFree:"))

    def resident():
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * 4096

    bounds = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, bounds[1]))
    assert core.blocks_keep(2 * most) == -errno.EPERM and core.blocks_offer(True) == 0
    resource.setrlimit(resource.RLIMIT_DATA, bounds)
    # As much as one block, which is more than is kept of them all.
    assert core.blocks_keep(each) == 0
    call()
    assert call() > most // 4096 // 2, "nothing shows whether memory is kept"
    assert core.blocks_keep(2 * most) == 0 and core.blocks_offer(True) == 0 and core.blocks_free() == 0
    call()
    assert call() < 1000, "it is not kept"
    assert core.blocks_free() > most * 9 // 10
    before = lazily()
    assert core.blocks_offer(True) > most // 2
    assert lazily() - before > most * 9 // 10, "the kernel may not have it"
    call()
    assert lazily() - before < most // 2, "it is not used again"
    # One after the other as well: the next one may need what it may have.
    for _ in range(6):
        call()
        core.blocks_offer(False)
        assert lazily() - before > most - (20 << 20), "a next call would be ended for it"
    # Another thread might take what is offered, and write to it before.
    call()
    full, over = resident(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    core.blocks_offer(False)
    assert resident() < full - most // 2, "it is neither offered nor given back"
    over.set()
    other.join()
    while threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.01)
    core.blocks_offer(True)
    call()
    assert call() < 1000, "it is not kept any more"
    full = resident()
    core.blocks_give_back()
    assert resident() < full - most * 9 // 10
    # Nobody's block is offered.
    held = [bytearray(b"x") * each for _ in range(count)]
    before = lazily()
    core.blocks_offer(True)
    assert lazily() - before < most // 4 and all(block.count(b"x") == each for block in held), "what is in use is offered"


def spares_others(library):
    """What lies behind the heap, or at the end of the data segment, and is not its free end, is nobody's to offer."""
    if is_checked():
        return
    core, libc = ctypes.PyDLL(library), ctypes.CDLL(None)
    core.blocks_keep.argtypes, core.blocks_free.restype = [ctypes.c_size_t], ctypes.c_size_t
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    assert core.blocks_keep(256 << 20) == 0
    size = 40 << 20
    # Somebody else's, who takes it in the same way.
    others = libc.sbrk(size)
    ctypes.memset(others, 0x5A, size)
    kept = [bytearray(1 << 20) for _ in range(64)]
    ctypes.memset(others, 0x5A, size)
    core.blocks_offer(True)
    end = libc.sbrk(0)
    # And a mapping in the way of the heap, which goes on elsewhere.
    assert libc.mmap((end + 4095) & ~4095, 4096, 3, 0x100022, -1, 0) == (end + 4095) & ~4095
    more = [bytearray(b"y") * (1 << 20) for _ in range(64)]
    del kept, more[32:]
    core.blocks_offer(True)
    with open("/proc/self/smaps") as told:
        lazily = sum(int(line.split()[1]) for line in told if line.startswith("LazyFree:"))
    # What is free before the first of them may be the heap's.
    assert core.blocks_free() == 0 and lazily < 1024, lazily
    assert ctypes.string_at(others, size).count(b"Z") == size and all(block.count(b"y") == 1 << 20 for block in more)


KEPT_CHECKS = (keeps, keeps_blocks, spares_others)
