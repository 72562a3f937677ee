# SPDX-License-Identifier: Apache-2.0
# Images of Pillow are handed over as the memory in which their pixels are. As they pickle themselves, all pixels are
# packed into bytes, these are copied, and unpacked again: three ways through the image, where one is enough. Both ends go by
# Arrow's C data interface, with which Pillow shares memory from version 11.3 on. It is run before `heap.py`, in the same
# module.

import copyreg
import ctypes
import functools
import pickle
import sys

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


class Pixels:
    """The memory of an image's pixels, for Pillow to take over."""

    def __init__(self, memory, form, count):
        self.memory, self.form, self.count = memory, form, count

    def __arrow_c_array__(self, requested_schema=None):
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        buffers = (ctypes.c_void_p * 2)(None, at)
        release = ctypes.cast(capsules().release, ctypes.c_void_p)
        schema = ArrowSchema(format=self.form, name=b"", release=release)
        array = ArrowArray(length=self.count, n_buffers=2, buffers=buffers, release=release)
        return capsules().new(schema, SCHEMA, ()), capsules().new(array, ARRAY, (buffers, self.memory))


class Capsules:
    """Makes objects by which libraries hand structures to each other, and keeps what is in them until they end."""

    def __init__(self):
        api, object_type, pointer = ctypes.pythonapi, ctypes.py_object, ctypes.c_void_p
        self.held = {}
        # Called by the interpreter, which holds its lock then.
        self.ended = ctypes.PYFUNCTYPE(None, pointer)(self.end)
        # Whoever takes a structure over calls this when it is done; what is in it lives as long as the capsule.
        self.release = ctypes.CFUNCTYPE(None, pointer)(lambda at: None)
        self.make = ctypes.PYFUNCTYPE(object_type, pointer, ctypes.c_char_p, pointer)(("PyCapsule_New", api))
        self.pointer = ctypes.PYFUNCTYPE(pointer, object_type, ctypes.c_char_p)(("PyCapsule_GetPointer", api))

    def new(self, structure, name, owners):
        capsule = self.make(ctypes.addressof(structure), name, ctypes.cast(self.ended, ctypes.c_void_p))
        self.held[id(capsule)] = structure, owners
        return capsule

    def end(self, at):
        self.held.pop(at, None)


@functools.cache
def capsules():
    return Capsules()


def pixels_of(image):
    """The memory of an image's pixels, which lives as long as what is given here; None if it is in several pieces, or of a
    mode or a version of Pillow of which it cannot be had."""
    known = PIXELS.get(image.mode)
    if known is None or not hasattr(image, "__arrow_c_array__") or image.palette is not None:
        return None
    count = image.width * image.height
    try:
        _, capsule = image.__arrow_c_array__()
        array = ctypes.cast(capsules().pointer(capsule, ARRAY), ctypes.POINTER(ArrowArray)).contents
    except (ValueError, MemoryError, OSError):
        return None
    if array.length != count or array.offset or count * known[1] < PIXELS_BYTES_MIN:
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
    return image_at, (image.mode, image.size, image.info, pickle.PickleBuffer(pixels))


def image_at(mode, size, info, memory):
    """The image whose pixels are in this memory, and stay there; what is changed is the image's own."""
    from PIL import Image

    form, length = PIXELS[mode]
    memory = memoryview(memory)
    if memory.readonly:
        memory = memoryview(bytearray(memory))
    image = Image.fromarrow(Pixels(memory, form, size[0] * size[1]), mode, size)
    image.info = info
    return image


# Found by pickles where every function has it.
image_at.__module__ = "sinew"


def reducing(pickler):
    """A pickler that has objects of libraries which are loaded pickled better than they do it themselves, where nobody has
    registered another way."""
    images = sys.modules.get("PIL.Image")
    kind = getattr(images, "Image", None)
    if kind is not None and kind not in copyreg.dispatch_table:
        pickler.dispatch_table = {**copyreg.dispatch_table, kind: image_reduced}
    return pickler
