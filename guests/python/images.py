# SPDX-License-Identifier: Apache-2.0
# Images of Pillow are handed over as the memory in which their pixels are. As they pickle themselves, all pixels are
# packed into bytes, these are copied, and unpacked again; here they are copied as they are. Both ends go by Arrow's C data
# interface, with which Pillow shares memory from version 13 on: earlier ones give wrong addresses for images of which the
# memory is not their own. It is run before `heap.py`, in the same module.

import copyreg
import ctypes
import pickle
import sys

PILLOW_MIN = 13
# How Arrow calls a pixel of a mode, and the bytes that it has in memory. Images of other modes pickle themselves.
PIXELS = {
    "L": (b"C", 1), "I": (b"i", 4), "F": (b"f", 4),
    **dict.fromkeys(("RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"), (b"I", 4)),
}  # fmt: skip
# What is shorter is not worth it.
PIXELS_BYTES_MIN = 4096
SCHEMA, ARRAY = b"arrow_schema", b"arrow_array"


class ArrowSchema(ctypes.Structure):
    """A type of elements, as Arrow's C data interface has it."""

    _fields_ = [
        ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64), ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p), ("private_data", ctypes.c_void_p),
    ]  # fmt: skip


class ArrowArray(ctypes.Structure):
    """Elements in memory, as Arrow's C data interface has them."""


ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.c_void_p), ("release", ctypes.c_void_p), ("private_data", ctypes.c_void_p),
]  # fmt: skip

# By capsules libraries hand structures to each other. Those that are made here own nothing.
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class Pixels:
    """The memory of an image's pixels, for Pillow to read for as long as this lives."""

    def __init__(self, memory, form, count):
        self.first = ctypes.c_char.from_buffer(memory)
        self.buffers = (ctypes.c_void_p * 2)(None, ctypes.addressof(self.first))
        self.schema = ArrowSchema(format=form, name=b"")
        self.array = ArrowArray(length=count, n_buffers=2, buffers=self.buffers)

    def __arrow_c_array__(self, requested_schema=None):
        return (
            new_capsule(ctypes.addressof(self.schema), SCHEMA, None),
            new_capsule(ctypes.addressof(self.array), ARRAY, None),
        )


def pixels_of(image):
    """The memory of an image's pixels, which lives as long as what is given here; None if it is in several pieces, or of a
    mode of which it cannot be had."""
    known = PIXELS.get(image.mode)
    count = image.width * image.height
    if known is None or image.palette is not None or count * known[1] < PIXELS_BYTES_MIN:
        return None
    try:
        _, capsule = image.__arrow_c_array__()
    except (ValueError, MemoryError, OSError):
        return None
    array = ctypes.cast(in_capsule(capsule, ARRAY), ctypes.POINTER(ArrowArray)).contents
    if array.length != count or array.offset:
        return None
    at = (array.children[0].contents if array.n_children else array).buffers[1]
    memory = (ctypes.c_char * (count * known[1])).from_address(at)
    memory.owner = capsule
    return memory


def image_reduced(image):
    """How an image is pickled: by what `__getstate__` of Pillow has in it, with its memory in the place of bytes."""
    pixels = pixels_of(image)
    if pixels is None:
        return image.__reduce_ex__(5)
    made = image.mode, image.size, pickle.PickleBuffer(pixels)
    return image_at, made, image.info, None, None, image_has


def image_at(mode, size, memory):
    """An image with a copy of these pixels: one that only borrows them cannot be written to in all ways."""
    from PIL import Image

    (form, length), count = PIXELS[mode], size[0] * size[1]
    memory = memoryview(memory)
    if memory.nbytes != count * length:
        raise ValueError(f"an image of {size[0]} by {size[1]} pixels ({mode}) has {count * length} bytes, not {memory.nbytes}")
    if memory.readonly:
        memory = memoryview(bytearray(memory))
    pixels = Pixels(memory, form, count)
    borrowed = Image.fromarrow(pixels, mode, size)
    image = borrowed.copy()
    # Before what it borrows.
    del borrowed
    return image


def image_has(image, info):
    """What is known of an image besides its pixels, which may refer to it."""
    image.info = info


# Found by pickles where every function has them.
image_at.__module__ = image_has.__module__ = "sinew"


def reducing(pickler, others=()):
    """A pickler that has objects of libraries which are loaded pickled better than they do it themselves, where nobody has
    registered another way: images, and these others, a function for each type."""
    ways = dict(others)
    images = sys.modules.get("PIL.Image")
    kind = getattr(images, "Image", None)
    if kind is not None and is_known(images):
        ways[kind] = image_reduced
    if ways:
        pickler.dispatch_table = {**ways, **copyreg.dispatch_table}
    return pickler


def is_known(images):
    """Whether this Pillow shares memory rightly."""
    version = str(getattr(images, "__version__", "")).partition(".")[0]
    return version.isdecimal() and int(version) >= PILLOW_MIN
