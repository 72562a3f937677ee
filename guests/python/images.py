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
# Earlier ones pickle themselves.
PILLOW_MIN = 10, 2
# Where Pillow has the size of an image, and the table of its lines: from version 13 on, and before.
LAYOUTS = (16, 48), (20, 56)
# Lines lie one behind the other in pieces of at most so many bytes.
PIECE_BYTES = 16 << 20

capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class PixelPiece(ctypes.Structure):
    """Where pixels are, as `struct pixels` of library.h."""

    _fields_ = [("at", ctypes.c_size_t), ("size", ctypes.c_size_t)]


class Pillow:
    """What is known of the Pillow of this process: the layout of its images, once one was looked at; whether it was tried to have its
    memory come from segments; and by what of its own an image may be made of pixels that were mapped, if it may be."""

    core = images = layout = page = new = None
    is_adopted = False


def use_pixels_of(core):
    """Has images be made where they can be handed over, and of pixels that were mapped. For a process that has mapped its probe."""
    Pillow.page = ctypes.string_at(PROBE_BASE, 4096)  # noqa: F821 - of heap.py
    core.library_of_pixels.argtypes = [ctypes.c_char_p]
    core.pixels_image.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t]
    core.pixels_image.restype = ctypes.py_object
    Pillow.core = core


def adopt_pixels():
    """Pillow may be loaded at any time."""
    imaging = sys.modules.get("PIL._imaging")
    library = getattr(imaging, "__file__", None)
    if Pillow.core and library and not Pillow.is_adopted:
        # It is not tried again if that cannot be.
        Pillow.is_adopted = True
        done = Pillow.core.library_of_pixels("/".join(["", *library.rsplit("/", 2)[1:]]).encode())
        # Code of Python's in its place might take what is lent.
        if done == 0 and type(imaging.new) is type(len) and leaves_alone(imaging.new):
            Pillow.new = imaging.new


def leaves_alone(new):
    """Whether an image that this makes has what was there before: with the first page of what the template has mapped for itself."""
    page = PROBE_BASE, 4096  # noqa: F821 - of heap.py
    return made_of(new, "L", (64, 64), [page]) is not None and ctypes.string_at(*page) == Pillow.page


def made_of(new, mode, size, pieces):
    """Pillow's own part of an image that has these pieces of mapped memory; None if it cannot be."""
    return Pillow.core.pixels_image(new, (mode, size), (PixelPiece * len(pieces))(*pieces), len(pieces))


def lines_of(image, layout):
    """The table of an image's lines, as their addresses, and what it lives as long as; None if this is not its layout."""
    # Not the capsule: before Pillow 11 that kept nothing alive.
    owner = image.im
    capsule = owner.ptr
    at = in_capsule(capsule, capsule_name(capsule))
    size_at, lines_at = layout
    if tuple((ctypes.c_int * 2).from_address(at + size_at)) != image.size:
        return None, None
    return ctypes.POINTER(ctypes.c_size_t).from_address(at + lines_at), owner


def pieces_of(image):
    """Where an image's pixels are, each piece an address and a length, and what they live as long as; none if that is not known."""
    bytes_of_pixel, (width, height) = PIXELS.get(image.mode), image.size
    length = width * (bytes_of_pixel or 0)
    if not length or image.palette is not None:
        return [], None
    lines, owner = lines_of(image, Pillow.layout)
    if lines is None:
        return [], None
    pieces, each = [], max(PIECE_BYTES // length, 1)
    for first in range(0, height, each):
        last = min(first + each, height) - 1
        # It may be upside down, or a part of something else.
        if lines[last] != lines[first] + (last - first) * length:
            return [], None
        pieces.append((lines[first], (last - first + 1) * length))
    return pieces, owner


def layout_of(images):
    """Where this Pillow has what is looked at, as one of `LAYOUTS`; None if it is none of them."""
    if tuple(map(int, images.__version__.split(".")[:2])) < PILLOW_MIN:
        return None
    probe = images.frombytes("L", (3, 2), b"pixels")
    for layout in LAYOUTS:
        lines, _ = lines_of(probe, layout)
        if lines and lines[1] == lines[0] + 3 and ctypes.string_at(lines[0], 6) == b"pixels":
            return layout
    return None


def is_known(images):
    """Whether it is known where this Pillow has pixels."""
    if Pillow.images is not images:
        if not hasattr(images, "frombytes"):
            # It is still being loaded.
            return False
        try:
            Pillow.images, Pillow.layout = images, layout_of(images)
        except (AttributeError, ValueError, TypeError):
            # A later one may be another.
            Pillow.layout = None
    return Pillow.layout is not None


def pixels_of(image):
    """The memory of an image as a pickle has it; nothing if it is better pickled in its own way."""
    pieces, owner = pieces_of(image) if image.width * image.height >= PIXELS_BYTES_MIN else ([], None)
    return [pickle.PickleBuffer(memory_at(*piece, owner)) for piece in pieces]


def image_reduced(image):
    """How an image is pickled: by what `__getstate__` of Pillow has in it, with its memory in the place of bytes."""
    pixels = pixels_of(image)
    return (image_at, (image.mode, image.size, *pixels), image.info, None, None, image_has) if pixels else image.__reduce_ex__(5)


def opened_reduced(image):
    """The same of one that a file was opened for: what its class has in its state besides."""
    image.load()
    pixels, kind = pixels_of(image), type(image)
    if not pixels:
        return image.__reduce_ex__(5)
    like = kind.__new__(kind)
    vars(like).update(vars(image), tobytes=bytes)
    state = like.__getstate__()
    # As Pillow has it, with no palette.
    if type(state) is not list or state[1:5] != [image.mode, image.size, None, b""]:
        return image.__reduce_ex__(5)
    return opened_at, (kind, image.mode, image.size, *pixels), state, None, None, opened_has


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
    if is_caching := Image.core.get_blocks_max() > 0:
        # What it keeps for its next images may be mapped memory that an image had, and so these pixels.
        Image.core.clear_cache()
    image = None if is_caching else image_of(Image, mode, size, views)
    return image_like(Image, mode, size, views) if image is None else image


def image_of(images, mode, size, views):
    """The image whose memory these are; None if they are not another process's that are mapped here."""
    adopt_pixels()
    if Pillow.new is None or any(view.readonly for view in views):
        return None
    pieces = [(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes) for view in views]
    made = made_of(Pillow.new, mode, size, pieces)
    image = None if made is None else images.Image()._new(made)
    return image if image is not None and pieces_of(image)[0] == pieces else None


def image_like(images, mode, size, views):
    """An image with a copy of these pixels."""
    image = images.new(mode, size, None)
    pieces, _ = pieces_of(image)
    if [length for _, length in pieces] != [view.nbytes for view in views]:
        # Its lines lie in other pieces, or each for itself.
        (lines, _), (width, height) = lines_of(image, Pillow.layout), size
        pieces = [(lines[line], width * PIXELS[mode]) for line in range(height)]
        views = lines_in(memoryview(b"".join(views)), height)
    for piece, view in zip(pieces, views, strict=True):
        memoryview(memory_at(*piece)).cast("B")[:] = view
    return image


def lines_in(memory, count):
    length = memory.nbytes // count
    return [memory[line * length : (line + 1) * length] for line in range(count)]


def image_has(image, info):
    """What is known of an image besides its pixels, which may refer to it."""
    image.info = info


def opened_at(kind, mode, size, *pieces):
    """The same of a class of images that files are opened for."""
    image = kind.__new__(kind)
    image.im = image_at(mode, size, *pieces).im
    return image


def opened_has(image, state):
    """What `__setstate__` of its class is given, but for the pixels, which it has."""
    core_image, (info, mode, size, palette, _, *more) = image.im, state
    image.__setstate__([info, mode, (0, 0), palette, b"", *more])
    image.im, image._size = core_image, size


# Found by pickles where every function has them.
for named in (image_at, image_has, opened_at, opened_has):
    named.__module__ = "sinew"


class Ways(dict):
    """How objects are pickled, by their types, with those of images that files are opened for, of which there are many."""

    def __init__(self, ways):
        super().__init__(ways)
        # It is asked again for each object.
        self.others = set()

    def __missing__(self, kind):
        if kind in self.others or not is_opened(kind):
            self.others.add(kind)
            raise KeyError(kind)
        self[kind] = opened_reduced
        return opened_reduced


# What says how an object is pickled.
PICKLED_BY = "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"


def is_opened(kind):
    """Whether these are images that files are opened for, as Pillow makes them: what others have made of these may have more to it."""
    opened = getattr(sys.modules.get("PIL.ImageFile"), "ImageFile", None)
    if opened is None or not issubclass(kind, opened):
        return False
    ways = [getattr(kind, name) for name in PICKLED_BY]
    are_usual = ways[:2] == [object.__reduce__, object.__reduce_ex__]
    return are_usual and all(str(one.__module__).startswith("PIL.") for one in (kind, *ways[2:]))


def reducing(pickler, others=()):
    """A pickler that has objects of libraries which are loaded pickled better than they do it themselves, where nobody has
    registered another way: images, and these others, a function for each type."""
    ways = dict(others)
    images = sys.modules.get("PIL.Image")
    kind = getattr(images, "Image", None)
    if kind is not None and is_known(images):
        ways = Ways(ways)
        ways[kind] = image_reduced
    if ways:
        for registered, way in copyreg.dispatch_table.items():
            ways[registered] = way
        pickler.dispatch_table = ways
    return pickler
