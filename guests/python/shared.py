# SPDX-License-Identifier: Apache-2.0
# Values that are handed over in memory that processes share, instead of being sent. It is run before
# `template.py`, in the same module: names that are not defined here are that one's.

import mmap

# In the place of an argument's length, and in the number of arguments; as in `channel.rs`.
IN_DESCRIPTOR, WITH_OUTBOX, WITH_KEPT, WITH_FOLLOWERS, COUNT = 0xFFFFFFFF, 1 << 31, 1 << 30, 1 << 29, (1 << 29) - 1


class Shared:
    """A result that is in the call's outbox."""

    def __init__(self, length):
        self.length = length


def handed_over(arguments, descriptors, heap):
    """Puts what came as descriptors into its places."""
    for place, argument in enumerate(arguments):
        if argument is None:
            descriptor = taken(descriptors)
            is_value = os.pread(descriptor, KIND_AT + 1, 0)[KIND_AT:] == bytes([KIND_MAPPED])  # noqa: F821
            arguments[place] = Mapped(heap, descriptor) if is_value else mapped(descriptor)  # noqa: F821 - of heap.py


def taken(descriptors):
    descriptor = descriptors.popleft()
    if descriptor < 0:
        raise OSError(errno.EMFILE, "no descriptors are left for what the step is given")  # noqa: F821 - of lines.py
    return descriptor


def mapped(descriptor):
    """The bytes behind a descriptor. What is written to them is this process's own."""
    try:
        return memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(descriptor)  # noqa: F821 - of lines.py


def put(outbox, parts):
    """Writes a result into the outbox: by memory, for files have a bound that is none of this."""
    length = sum(memoryview(part).nbytes for part in parts)
    if length > os.fstat(outbox).st_size:  # noqa: F821 - of lines.py
        raise MemoryError(f"the result has {length} bytes, more than the function may have of memory")
    with mmap.mmap(outbox, length) as target:
        for part in parts:
            target.write(part)
    return Shared(length)
