# SPDX-License-Identifier: Apache-2.0
# Images of Pillow are handed over as the memory in which their pixels are. As they pickle themselves, all pixels are
# packed into bytes, these are copied, and unpacked again. Where Pillow has them, it says itself: by the capsule with which its
# own libraries share images. What it takes for pixels comes from the segment of the call, and an image is made of pixels that were
# mapped (guests/heap/pixels.c); elsewhere they are copied as they are. It is run before `heap.py`, in the same module.

import copyreg
import ctypes
import pickle
import sys

# The bytes that a pixel of a mode has in memory. Images of other modes pickle themselves.
PIXELS = {
    **dict.fromkeys(("1", "L"), 1), **dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N"), 2),
    **dict.fromkeys(("I", "F", "LA", "La", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"), 4),
}  # fmt: skip
# What is shorter is not worth it.
PIXELS_BYTES_MIN = 4096
# Where Pillow has the size of an image, and the table of its lines: from version 13 on, and before.
LAYOUTS = (16, 48), (20, 56)
# Lines lie one behind the other in pieces of at most so many bytes.
PIECE_BYTES = 16 << 20

capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class PixelPair(ctypes.Structure):
    """Where pixels are, as `struct pixels` of library.h."""

    _fields_ = [("at", ctypes.c_size_t), ("size", ctypes.c_size_t)]


class Pillow:
    """What is known of the Pillow of this process: the layout of its images, once one was looked at, and whether its memory may come
    from segments."""

    core = images = layout = None
    is_adopted = False


def use_pixels_of(core):
    """Has images be made where they can be handed over, and of pixels that were mapped."""
    core.library_of_pixels.argtypes, core.pixels_lend.argtypes = [ctypes.c_char_p], [ctypes.c_void_p, ctypes.c_size_t]
    Pillow.core = core


def adopt_pixels():
    """Pillow may be loaded at any time."""
    library = getattr(sys.modules.get("PIL._imaging"), "__file__", None)
    if Pillow.core and library and not Pillow.is_adopted:
        # It is not tried again if that cannot be.
        Pillow.is_adopted = True
        Pillow.core.library_of_pixels("/".join(["", *library.rsplit("/", 2)[1:]]).encode())


def lines_of(image, layout):
    """The table of an image's lines, as their addresses, and what it lives as long as; None if this is not its layout."""
    capsule = image.im.ptr
    at = in_capsule(capsule, capsule_name(capsule))
    size_at, lines_at = layout
    if tuple((ctypes.c_int * 2).from_address(at + size_at)) != image.size:
        return None, None
    return ctypes.POINTER(ctypes.c_size_t).from_address(at + lines_at), capsule


def pieces_of(image):
    """Where an image's pixels are, each piece an address and a length, and what they live as long as; none if that is not known."""
    bytes_of_pixel, (width, height) = PIXELS.get(image.mode), image.size
    length = width * (bytes_of_pixel or 0)
    if not length or image.palette is not None:
        return [], None
    lines, owner = lines_of(image, Pillow.layout)
    pieces, each = [], max(PIECE_BYTES // length, 1)
    for first in range(0, height, each):
        last = min(first + each, height) - 1
        # It may be upside down, or a part of something else.
        if lines is None or lines[last] != lines[first] + (last - first) * length:
            return [], None
        pieces.append((lines[first], (last - first + 1) * length))
    return pieces, owner


def layout_of(images):
    """Where this Pillow has what is looked at, as one of `LAYOUTS`; None if it is none of them."""
    probe = images.frombytes("L", (3, 2), b"pixels")
    for layout in LAYOUTS:
        lines, owner = lines_of(probe, layout)
        if lines and lines[1] == lines[0] + 3 and ctypes.string_at(lines[0], 6) == b"pixels":
            return layout
        del owner
    return None


def is_known(images):
    """Whether it is known where this Pillow has pixels."""
    if Pillow.images is not images:
        try:
            Pillow.images, Pillow.layout = images, layout_of(images)
        except (AttributeError, ValueError, TypeError):
            # An earlier one has no such capsule.
            Pillow.layout = None
    return Pillow.layout is not None


def image_reduced(image):
    """How an image is pickled: by what `__getstate__` of Pillow has in it, with its memory in the place of bytes."""
    if image.width * image.height < PIXELS_BYTES_MIN:
        return image.__reduce_ex__(5)
    pieces, owner = pieces_of(image)
    if not pieces:
        return image.__reduce_ex__(5)
    return image_at, (image.mode, image.size, *(pickle.PickleBuffer(memory_at(*piece, owner)) for piece in pieces)), image.info, None, None, image_has


def memory_at(at, length, owner=None):
    memory = (ctypes.c_char * length).from_address(at)
    memory.owner = owner
    return memory


def image_at(mode, size, *pieces):
    """An image with these pixels: with these themselves if they were mapped for this process, or a copy."""
    from PIL import Image

    views = [memoryview(piece).cast("B") for piece in pieces]
    length = sum(view.nbytes for view in views)
    if mode not in PIXELS or length != size[0] * size[1] * PIXELS[mode]:
        raise ValueError(f"an image of {size[0]} by {size[1]} pixels ({mode}) has not {length} bytes")
    if not is_known(Image):
        raise RuntimeError(f"an image cannot be made by Pillow {Image.__version__}, of which it is not known where it has pixels")
    return image_of(Image, mode, size, views) or image_like(Image, mode, size, views)


def image_of(images, mode, size, views):
    """The image whose memory these are; None if they are not another process's that are mapped here."""
    adopt_pixels()
    if Pillow.core is None or any(view.readonly for view in views):
        return None
    pieces = [(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes) for view in views]
    if not Pillow.core.pixels_lend((PixelPair * len(pieces))(*pieces), len(pieces)):
        return None
    try:
        image = images.new(mode, size, None)
    finally:
        is_taken = Pillow.core.pixels_lent()
    return image if is_taken and pieces_of(image)[0] == pieces else None


def image_like(images, mode, size, views):
    """An image with a copy of these pixels."""
    image = images.new(mode, size, None)
    pieces, _ = pieces_of(image)
    if [length for _, length in pieces] != [view.nbytes for view in views]:
        views, rest = [], memoryview(b"".join(views))
        for _, length in pieces:
            views.append(rest[:length])
            rest = rest[length:]
    for piece, view in zip(pieces, views, strict=True):
        memoryview(memory_at(*piece)).cast("B")[:] = view
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
