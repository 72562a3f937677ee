# SPDX-License-Identifier: Apache-2.0
# Checks of `heap_test.py` of what libraries have made (`models.py`). It is run in that one's module, before its own text: names that
# are not defined here are that one's.

import gc
import math
import os
import pickle
import tempfile


def transferred(heap, base, make, uses, changes=None, takes_large=False):
    """What a value of another process is like there: `uses(value, *told)` says so, where `make` gives the value and what is told of
    it. It is mapped and used by a process that was there before, once its maker has changed it."""
    descriptor, (told, tells) = segment(), os.pipe()  # noqa: F821
    if (taker := os.fork()) == 0:
        os.close(tells)
        with open(told, "rb") as stream:
            told = pickle.loads(stream.read())
        kept = []
        for _ in range(3):
            kept.append(heap.read(descriptor))
            uses(kept[-1], *told)
        os._exit(0)
    os.close(told)
    # Whatever it has learned of other things.
    heap.habits[1].left = 0 if takes_large else 9
    assert heap.open(descriptor, base)
    value, *told = make()
    box = [value]
    del value
    assert isinstance(heap.write(box), int) and heap.close(True) == 0
    reached = dict(heap.reached)
    if changes:
        changes(box[0])
    with open(tells, "wb") as stream:
        stream.write(pickle.dumps((*told, reached)))
    assert os.waitpid(taker, 0)[1] == 0
    box.clear()
    gc.collect()
    heap.end()
    assert heap.core.segment_sweep() == 0, "what has ended is kept"
    os.close(descriptor)
    return reached


# The allocator of the address checks has taken the place of all others: no library makes its models in a segment.
is_checked = "libasan" in os.environ.get("LD_PRELOAD", "")


def hands_over_models(library):
    """Models of LightGBM are where the library has made them, and those that cannot be are pickled; none is freed that is another one's."""
    lightgbm = heap_library_cases.lightgbm  # noqa: F821
    if lightgbm is None or is_checked:
        return
    assert "lightgbm" in libraries, "the library has not been adopted"  # noqa: F821
    heap, base, data = heap_of(ctypes.PyDLL(library)), PLAN, heap_library_cases.samples()  # noqa: F821
    settings = {"objective": "binary", "num_leaves": 9, "num_threads": 1, "min_data_in_leaf": 2, "verbose": -1}

    def trained(**more):
        return lightgbm.train(settings, lightgbm.Dataset(*data, free_raw_data=False), 40, **more)

    def is_mapped(make, changes=None):
        nonlocal base
        base += 2 * SEGMENT_BYTES  # noqa: F821

        def made():
            model = make()
            return {"one": model, "more": [1] * 9, "again": model}, model.model_to_string(), model.predict(data[0])

        reached = transferred(heap, base, made, uses, changes)
        assert (lightgbm.Booster in heap.pickled) == (not reached)
        return reached == {lightgbm.Booster: 1}

    def uses(value, text, expected, reached):
        model = value["one"]
        assert model is value["again"] and model.model_to_string() == text and (model.predict(data[0]) == expected).all()
        assert (PLAN <= model._handle.value < PLAN + (1 << 40)) == bool(reached)  # noqa: F821
        # What it makes of it is its own, and what was there before is freed by nobody.
        other = lightgbm.train(settings, lightgbm.Dataset(*data), 3, init_model=model)
        assert other.num_trees() == model.num_trees() + 3
        model.shuffle_models()
        model.set_leaf_output(0, 0, 1e9)
        model.predict(data[0], pred_contrib=True)
        assert abs(model.predict(data[0]) - expected).max() > 0.1
        assert model.refit(*data).num_trees() == model.num_trees()
        pickle.loads(pickle.dumps(model)).predict(data[0])
        model.model_from_string(text)
        assert (model.predict(data[0]) == expected).all()
        value["other"] = other

    early = trained()
    assert is_mapped(trained)
    assert is_mapped(trained, lambda value: value["one"].set_leaf_output(0, 0, 7.0).model_from_string(early.model_to_string()))
    assert is_mapped(lambda: lightgbm.Booster(model_str=early.model_to_string()))
    with tempfile.TemporaryDirectory() as folder:
        early.save_model(f"{folder}/model.txt")
        assert is_mapped(lambda: lightgbm.Booster(model_file=f"{folder}/model.txt"))
    assert is_mapped(lambda: pickle.loads(pickle.dumps(early)))
    # With as many nodes as half a word has bytes, of all kinds.
    settings["num_leaves"] = 5
    assert is_mapped(trained)
    data[0][::3, :2] = math.nan
    assert is_mapped(trained)
    # Made before, or with what a library keeps while it trains or explains.
    assert not is_mapped(lambda: early)
    assert not is_mapped(lambda: trained(keep_training_booster=True))

    def explained():
        model = trained()
        model.predict(data[0], pred_contrib=True)
        return model

    assert not is_mapped(explained)
    # Where the library is somewhere else, an address says nothing.
    adopted = libraries["lightgbm"]  # noqa: F821
    place = adopted.place
    adopted.place = (place[0], place[1], place[2] ^ 1)
    try:
        booster_at(place, PLAN)  # noqa: F821
    except OSError as error:
        assert error.errno == errno.ESTALE  # noqa: F821
    else:
        raise AssertionError("a model of another library is used")
    adopted.place = place


def hands_over_trees(library):
    """Trees of scikit-learn have the memory in which they have grown."""
    ensemble = heap_library_cases.ensemble  # noqa: F821
    if ensemble is None:
        return
    assert "sklearn" in libraries, "the library has not been adopted"  # noqa: F821
    heap, data, kind = heap_of(ctypes.PyDLL(library)), heap_library_cases.samples(), libraries["sklearn"].kind  # noqa: F821

    def grown():
        return ensemble.RandomForestClassifier(30, random_state=3, n_jobs=1).fit(*data)

    def told_of(forest):
        return forest, forest.predict_proba(data[0]), [state_of(one.tree_) for one in forest.estimators_]

    def state_of(tree):
        state = tree.__getstate__()
        return [*(state["nodes"][name].tobytes() for name in state["nodes"].dtype.names), state["values"].tobytes(), tree.capacity, tree.n_classes]

    def uses(forest, expected, states, reached):
        trees = [one.tree_ for one in forest.estimators_]
        assert str(list(map(state_of, trees))) == str(states) and (forest.predict_proba(data[0]) == expected).all()
        assert all((PLAN <= tree.value.ctypes.data < PLAN + (1 << 40)) == bool(reached) for tree in trees)  # noqa: F821
        again = pickle.loads(pickle.dumps(forest))
        # What it changes is its own, and it frees nothing of what was mapped.
        trees[0].value[:] = trees[0].value[:, :, ::-1].copy()
        assert (forest.predict_proba(data[0]) != expected).any()
        forest.estimators_.clear()
        del trees
        gc.collect()
        assert (again.predict_proba(data[0]) == expected).all()

    early, base = grown(), PLAN + 2 * SEGMENT_BYTES  # noqa: F821
    assert transferred(heap, base, lambda: told_of(grown()), uses) == {kind: 30}
    assert transferred(heap, base + 2 * SEGMENT_BYTES, lambda: told_of(early), uses) == {kind: 30}  # noqa: F821

    def boosted():
        model = ensemble.GradientBoostingRegressor(n_estimators=5, random_state=1).fit(*data)
        return model, model.predict(data[0])

    def says(model, expected, reached):
        assert (model.predict(data[0]) == expected).all()

    assert transferred(heap, base + 4 * SEGMENT_BYTES, boosted, says) == {kind: 5}  # noqa: F821

    def seen():
        forest = grown()
        return (forest, forest.estimators_[0].tree_.value), forest.predict_proba(data[0])

    def are_apart(value, expected, reached):
        value[1][:] = 7
        assert (value[0].predict_proba(data[0]) == expected).all(), "what was a view of a tree is none once it is handed over"

    assert transferred(heap, base + 6 * SEGMENT_BYTES, seen, are_apart) == {kind: 30}  # noqa: F821
    # Other parts of the library take and free memory by the same means.
    from scipy.sparse import csr_matrix
    from sklearn.manifold import TSNE

    descriptor = segment()  # noqa: F821
    assert heap.open(descriptor, base + 8 * SEGMENT_BYTES)  # noqa: F821
    ensemble.GradientBoostingRegressor(n_estimators=5).fit(*data).predict(csr_matrix(data[0]))
    TSNE(perplexity=5, max_iter=250).fit_transform(data[0])
    early.predict(csr_matrix(data[0]))
    heap.close(False)
    heap.end()
    os.close(descriptor)


FORMS = ["JPEG", "PNG", "BMP", "TIFF", "PPM"]


def hands_over_images(library):
    """Images have the memory in which they were made, also where that is in several pieces; who is given one may do with it
    what it does with its own."""
    images, numpy = heap_library_cases.pillow, heap_library_cases.numpy  # noqa: F821
    if images is None:
        return
    assert is_known(images), f"it is not known where Pillow {images.__version__} has pixels"  # noqa: F821
    heap, base, dice = heap_of(ctypes.PyDLL(library)), PLAN, numpy.random.default_rng(2)  # noqa: F821

    def are_in_segment(pieces):
        return bool(pieces) and all(base <= at < base + SEGMENT_BYTES for at, _ in pieces)  # noqa: F821

    def hand(make, stays=True, otherwise=None):
        """Hands one over; whoever is given it does `otherwise` after the first time, and then cannot have the pixels as they are."""
        nonlocal base
        base += 2 * SEGMENT_BYTES  # noqa: F821

        def made():
            image = make()
            image.load()
            image.info["of"] = [image.info, 7]
            pieces, _ = pieces_of(image)  # noqa: F821
            assert stays == are_in_segment(pieces), "pixels are made where they can be handed over"
            told = type(image), image.mode, image.tobytes(), vars(pickle.loads(pickle.dumps(image))).keys()
            return [image, image], [*told[:-1], sorted(told[-1])], pieces if stays else None

        def goes_on(value):
            value[0].paste(value[0].rotate(180))
            del value[1]

        def used(*arguments):
            uses(*arguments, is_copy=uses.are_otherwise)
            if otherwise:
                uses.are_otherwise = True
                otherwise()
            # Its memory may be kept from now on.
            arguments[0].clear()

        transferred(heap, base, made, used, goes_on, takes_large=True)

    def uses(value, told, places, reached, is_copy):
        image, pieces, expected = value[0], pieces_of(value[0])[0], told[2]  # noqa: F821
        assert image is value[1] and image.info["of"] == [image.info, 7] and not image.readonly
        assert [type(image), image.mode, image.tobytes(), sorted(vars(image))] == told
        assert are_in_segment(pieces) == (not is_copy) and (is_copy or places in (None, pieces)), "pixels are used where they were mapped"
        # It is changed in all ways, handed on, copied and ended.
        image.load()[0, 0] = image.getpixel((1, 1))
        image.putpixel((1, 0), image.getpixel((1, 1)))
        image.paste(image.crop((0, 0, 2, 2)), (0, 2))
        assert pickle.loads(pickle.dumps(image)).tobytes() == image.tobytes() != expected
        assert image.copy().tobytes() == image.tobytes() and (is_copy or not are_in_segment(pieces_of(image.copy())[0]))  # noqa: F821
        value[1:] = []

    uses.are_otherwise = False

    def colours(width, height):
        return images.fromarray(dice.integers(0, 256, (height, width, 3), dtype=numpy.uint8))

    def opened(form):
        file = io.BytesIO()  # noqa: F821
        colours(300, 200).save(file, form)
        return images.open(io.BytesIO(file.getvalue()))  # noqa: F821

    early = colours(300, 400)
    # What Pillow keeps of what it was asked for, is not to be in a segment.
    early.convert("L").convert("I;16").tobytes()
    early.copy().paste(early.rotate(180))
    assert [opened(form).load() and form for form in FORMS] == FORMS
    hand(lambda: colours(300, 400))
    # One line of it is as long as the table of its lines; and three pieces.
    hand(lambda: colours(2, 9000))
    hand(lambda: colours(4000, 2500))
    for mode in ("L", "I;16", "F", "CMYK", "LA"):
        hand(lambda mode=mode: colours(400, 300).convert("L").convert(mode))
    hand(lambda: colours(200, 200).resize((500, 500)).rotate(90, expand=True))
    for form in FORMS:
        hand(lambda form=form: opened(form))
    # Made before, or too small to be made there: copied, and used where the copy was mapped.
    hand(lambda: early, stays=False)
    hand(lambda: colours(100, 100), stays=False)
    # Of what is another one's, and upside down, of which nothing is known.
    pixels = dice.integers(0, 256, 300 * 400 * 4, dtype=numpy.uint8).tobytes()
    hand(lambda: images.frombuffer("RGBA", (300, 400), pixels, "raw", "RGBA", 0, 1).copy())
    upside_down = images.frombuffer("RGBA", (300, 400), pixels, "raw", "RGBA", 0, -1)
    assert pieces_of(upside_down)[0] == [] and pickle.loads(pickled([upside_down])).tobytes() == upside_down.tobytes()  # noqa: F821
    # Where Pillow is told to have its memory otherwise, or keeps that for its next images, an image is a copy.
    core = images.core
    for set_otherwise in (lambda: core.set_block_size(1 << 16), lambda: core.set_alignment(64), lambda: core.set_blocks_max(9)):
        hand(lambda: colours(300, 400), otherwise=set_otherwise)
        hand(lambda: images.frombuffer("RGBA", (300, 400), pixels, "raw", "RGBA", 0, 1), stays=False, otherwise=set_otherwise)
    # What a pickle that is sent has of an image lives as long as that, also if nobody else has the image.
    made, target, buffers = [], io.BytesIO(), []  # noqa: F821

    class Late:
        def __reduce__(self):
            made.append(colours(300, 400))
            return tuple, ([made[0]],)

    reducing(pickle.Pickler(target, 5, buffer_callback=buffers.append)).dump(Late())  # noqa: F821
    expected, views = made.pop().tobytes(), [buffer.raw() for buffer in buffers]
    del buffers
    others = [colours(300, 400) for _ in range(9)]
    assert pickle.loads(target.getvalue(), buffers=views)[0].tobytes() == expected and len(others) == 9
    # So it is if it was sent, as earlier versions did; and if Pillow asks for other pieces than it was lent, or there are none.
    assert image_at("RGBA", (300, 400), pickle.PickleBuffer(pixels)).tobytes() == pixels  # noqa: F821
    assert image_at("RGBA", (300, 400), pixels[:4000], pixels[4000:]).tobytes() == pixels  # noqa: F821
    assert made_of(core.new, "L", (64, 64), [(PROBE_BASE, 4096)]) is not None  # noqa: F821
    for mode, size, pieces in (("L", (64, 65), [(PROBE_BASE, 4096)]), ("L", (64, 64), [(PROBE_BASE, 4095)]), ("L", (64, 64), [(PROBE_BASE, 4096)] * 2),  # noqa: F821
                               ("L", (64, 64), [(base, 4096)]), ("L", (64, 64), [(PROBE_BASE - 4096, 4096)])):  # fmt: skip # noqa: F821
        assert made_of(core.new, mode, size, pieces) is None, (mode, size, pieces)  # noqa: F821
    assert not any(PROBE_BASE <= at < PROBE_BASE + PROBE_BYTES for at, _ in pieces_of(images.new("L", (64, 64)))[0]), "lent for one image only"  # noqa: F821


def does_without(library):
    """Where values cannot be mapped, images are copied, and nothing is looked at that is not there."""
    images = heap_library_cases.pillow  # noqa: F821
    if images is None:
        return
    globals()["is_right"] = lambda heap: False
    assert heap_of(ctypes.PyDLL(library)) is None  # noqa: F821
    image, target = images.linear_gradient("L"), io.BytesIO()  # noqa: F821
    reducing(pickle.Pickler(target, 5)).dump(image)  # noqa: F821
    assert target.getvalue().find(b"image_at") > 0 and pickle.loads(target.getvalue()).tobytes() == image.tobytes()


def looks_at_words(library):
    """A word that is the address of anything but what is handed over, or never changes, is a reason not to."""
    lightgbm = heap_library_cases.lightgbm  # noqa: F821
    if lightgbm is None or is_checked:
        return
    heap, core, libc, private = heap_of(ctypes.PyDLL(library)), libraries["lightgbm"].core, ctypes.CDLL(None), 0x22  # noqa: F821
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_size_t, [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]  # noqa: F821
    # Below the plan, as an allocator may have it; in the plan, where nobody has filled a segment; behind it.
    low, middle = 0x4F3915F0000, 0x3FFFFFFF0000
    assert libc.mmap(low, 4096, 3, private, -1, 0) == low and libc.mmap(middle, 4096, 3, private, -1, 0) == middle
    own = ctypes.create_string_buffer(64)  # noqa: F821
    code = ctypes.cast(lightgbm.basic._LIB.LGBM_BoosterGetNumClasses, ctypes.c_void_p).value  # noqa: F821
    descriptor = segment()  # noqa: F821
    assert heap.open(descriptor, PLAN)  # noqa: F821
    model = lightgbm.Booster(model_str=LIGHTGBM_SMALLEST)  # noqa: F821
    array = heap_library_cases.numpy.zeros(1 << 20)  # noqa: F821
    at = model._handle.value
    slots = [slot for slot in range(at, at + 64, 8) if ctypes.c_uint64.from_address(slot).value == 0]  # noqa: F821
    slot = ctypes.c_uint64.from_address(slots[-1])  # noqa: F821
    whole = core.library_reached(at)
    assert whole > 1000 and 0 <= array.ctypes.data - PLAN < SEGMENT_BYTES, (whole, hex(array.ctypes.data))  # noqa: F821
    for word in low, low + 4095, middle, ctypes.addressof(own), id(heap), array.ctypes.data, PLAN, PLAN + SEGMENT_BYTES - 8:  # noqa: F821
        slot.value = word
        assert core.library_reached(at) == -errno.EXDEV, hex(word)  # noqa: F821
    for word in low - 1, low + 4096, middle - 1, middle + 4096, 7, 1 << 63, (5000 << 32) + 77, code, at, at + 8:
        slot.value = word
        assert core.library_reached(at) == whole, hex(word)
    # The program's code and constants are where they are in all processes; its data are not, nor its heap. Where it lies low, four
    # bytes may lead there, and whatever the C library has given is divisible by sixteen.
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_size_t, [ctypes.c_long]
    heap_end, program = libc.sbrk(0), os.path.realpath("/proc/self/exe")  # noqa: F821
    with open("/proc/self/maps") as maps:
        parts = [line.split(maxsplit=5)[:2] for line in maps if line.rstrip().endswith(program)]
    # Before its code the loader has what a linker leaves there.
    while parts[0][1] != "r-xp":
        del parts[0]
    code, constants, *_, data = [int(part.split("-")[0], 16) for part, _ in parts]
    for word in code + 64, constants + 64:
        slot.value = word
        assert core.library_reached(at) == whole, hex(word)
    for begin in data + 64, heap_end - 4096:
        for word in range(begin, begin + 33):
            slot.value = word
            is_number = heap_end < PLAN and word % 16  # noqa: F821
            assert core.library_reached(at) == (whole if is_number else -errno.EXDEV), hex(word)  # noqa: F821
    slot.value = 0
    del model
    heap.close(False)
    heap.end()
    os.close(descriptor)


def minds_threads(library):
    """What another thread may be at is pickled, which waits for it."""
    lightgbm = heap_library_cases.lightgbm  # noqa: F821
    if lightgbm is None:
        return
    heap, data, is_over = heap_of(ctypes.PyDLL(library)), heap_library_cases.samples(), threading.Event()  # noqa: F821
    other = threading.Thread(target=is_over.wait)  # noqa: F821

    def made():
        model = lightgbm.train({"objective": "binary", "num_threads": 1, "verbose": -1}, lightgbm.Dataset(*data), 5)
        other.start()
        return model, model.predict(data[0])

    def says(model, expected, reached):
        assert not reached and (model.predict(data[0]) == expected).all()
        model.set_leaf_output(0, 0, 2.0)

    transferred(heap, PLAN, made, says, lambda model: (is_over.set(), other.join()))  # noqa: F821


MODEL_CHECKS = hands_over_images, does_without, hands_over_models, hands_over_trees, looks_at_words, minds_threads
