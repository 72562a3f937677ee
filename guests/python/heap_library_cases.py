# SPDX-License-Identifier: Apache-2.0
"""Values of NumPy, pandas, pyarrow, Pillow, LightGBM and scikit-learn, as far as these can be imported, for `heap_cases.py`.

`SINEW_HEAP_TEST_LIBRARIES=numpy,pandas` has it import no others.
"""

import functools
import importlib
import os
import pickle
import sys

from heap_cases import BRANCHES, LONG, make, text

# A model's trees need no threads, and nobody forks well who has some.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
WANTED = os.environ.get("SINEW_HEAP_TEST_LIBRARIES", "numpy,pandas,pyarrow,PIL.Image,lightgbm,sklearn.ensemble").split(",")
# What each is of no use without.
NEEDED = {"pandas": "numpy", "PIL.Image": "numpy", "lightgbm": "numpy", "sklearn.ensemble": "numpy"}


def imported(name):
    try:
        return importlib.import_module(name) if name in WANTED else None
    except ImportError:
        return None


numpy = imported("numpy")
found = {name: imported(name) if numpy or NEEDED.get(name) is None else None for name in ("pandas", "pyarrow", "PIL.Image", "lightgbm", "sklearn.ensemble")}
pandas, arrow, pillow, lightgbm, ensemble = found.values()


def versions():
    names = ("numpy", "pandas", "pyarrow", "PIL", "lightgbm", "sklearn")
    return ", ".join(f"{name} {sys.modules[name].__version__}" for name in names if name in sys.modules) or "no libraries"


# ------------------------------------------------------------------ arrays


def element_type(random):
    return random.choice("?bhilqBHILQefdgFDG") if random.random() < 0.7 else random.choice(["S5", "U3", "M8[ns]", "m8[s]", ">i4", "i4,f8"])


def numeric(random, depth):
    shape = random.choice([(), (0,), (1,), (7,), (3, 4), (2, 0, 3), (1, 1, 5), (40_000,)])
    made = numpy.zeros(shape, element_type(random))
    raw = made.reshape(-1).view("u1") if made.size and made.flags.c_contiguous else None
    if raw is not None and made.dtype.char not in "gGeSUfdFD?":
        raw[:] = numpy.frombuffer(random.randbytes(raw.size), "u1")
    how = random.randrange(8)
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
    if how == 6 and made.ndim:
        return [made[::-1], numpy.broadcast_to(made[:1], (3, *made[:1].shape)), made.view(numpy.recarray) if made.dtype.names else made[1:]]
    return made


def objects(random, depth):
    made = numpy.empty(random.choice([0, 1, 5, 5, 2000]), object)
    for at in range(0, len(made), random.choice([1, 2])):
        made[at] = make(random, min(depth - 1, 1)) if at < 10 else "s%d" % at
    if len(made) == 5 and random.random() < 0.3:
        made[0] = made
    if len(made) and random.random() < 0.2:
        # Two arrays with the same items, of each of which there is one reference.
        return random.choice([made.reshape(-1, 1), [made, made[1:]], [made[:2], made], [made[::2], made[:1]]])
    return made


def overlapping(random, depth):
    """Arrays that share memory, and such as lie in what another object has."""
    one = numpy.arange(random.choice([10, 10, 50_000]))
    return [one, one[: len(one) // 2], one[1:], numpy.frombuffer(bytearray(random.randbytes(64)), "u1")]


def scalars(random, depth):
    return [numpy.float64(0.5), numpy.int32(7), numpy.datetime64("2024-02-29"), numpy.str_("one"), numpy.dtype("i4,f8"), numpy.bool_(True),
            numpy.ma.masked_array([1, 2, 3], [0, 1, 0]), numpy.random.default_rng(random.randrange(99)).random(3)]  # fmt: skip


# ------------------------------------------------------------------ frames


def column_text(random):
    """From pandas 3 on a column of strings is Arrow's, and these are Unicode."""
    made = text(random)
    return made if int(pandas.__version__.partition(".")[0]) < 3 else made.encode("utf-8", "replace").decode()


def frame(random, depth):
    rows = random.choice([0, 1, 50, 50, 1000])
    made = pandas.DataFrame({"i": numpy.arange(rows), "f": numpy.arange(rows) * 0.5, "s": [column_text(random) for _ in range(rows)]})
    how = random.randrange(9)
    if how == 1:
        made["c"] = pandas.Categorical(["x", "y"] * (rows // 2) + ["x"] * (rows % 2))
    if how == 2:
        made["t"] = pandas.date_range("2020", periods=rows, freq="min", tz=random.choice([None, "UTC"]))
        made = made.set_index("t")
    if how == 3:
        made["n"] = pandas.array([None] * rows, "Int64")
        made["w"] = pandas.array(["a"] * rows, "string")
    if how == 4:
        made = made[made.i % 2 == 0].reset_index(drop=True)
    if how == 5:
        return made.i
    if how == 6 and rows:
        made = made.assign(k=["k%d" % (at % 9) for at in range(rows)]).set_index(["i", "k"])
    if how == 7:
        made["o"] = [[at, {"at": at}] if at < 20 else None for at in range(rows)]
        made.attrs["note"] = ["kept"]
    if how == 8 and arrow:
        made["a"] = pandas.array([at if at % 3 else None for at in range(rows)], "int64[pyarrow]")
        made["p"] = pandas.array(["p%d" % at for at in range(rows)], "string[pyarrow]")
        made["k"] = made["p"].astype("category")
    return [made, made[["f"]], made.iloc[: rows // 2]] if how == 0 and random.random() < 0.3 else made


def of_arrow(random, depth):
    rows = random.choice([0, 3, 3, 2000])
    strings = arrow.array(["s%d" % (at % 50) if at % 7 else None for at in range(rows)], arrow.string())
    numbers = arrow.array(range(rows), arrow.int64())
    nested = arrow.array([[at, at + 1] for at in range(rows)], arrow.list_(arrow.int32()))
    whole = arrow.table({"n": numbers, "s": strings, "l": nested, "d": strings.dictionary_encode()})
    return random.choice([whole, whole.slice(rows // 3), arrow.chunked_array([numbers, numbers[1:]]), strings[rows // 2 :], [numbers, numbers, whole],
                          whole.to_batches()[:1], whole.schema, {"column": nested}])  # fmt: skip


def image(random, depth):
    mode = random.choice(["L", "RGB", "RGBA", "P", "1", "F", "I"])
    made = pillow.new(mode, random.choice([(1, 1), (17, 5), (300, 200)]), 1)
    if mode in ("L", "RGB"):
        made.frombytes(random.randbytes(len(made.tobytes())))
        made.info["note"] = text(random)
    return [made, made] if random.random() < 0.2 else made


# ------------------------------------------------------------------ models


@functools.cache
def samples():
    data = numpy.random.default_rng(11).random((80, 6))
    return data, (data[:, :3].sum(axis=1) > 1.5).astype(int)


def booster(random, depth):
    """A model of many kinds, and what may have been done to it before it is handed over."""
    data, classes = samples()
    settings = {"num_leaves": random.choice([2, 4, 30]), "num_threads": 1, "seed": random.randrange(9), "deterministic": True, "verbose": -1,
                "min_data_in_leaf": 5, "objective": random.choice(["binary", "regression", "quantile", "multiclass", "lambdarank"])}  # fmt: skip
    settings["boosting"] = random.choice(["gbdt", "gbdt", "dart", "rf"]) if settings["objective"] != "lambdarank" else "gbdt"
    settings |= {"rf": {"bagging_freq": 1, "bagging_fraction": 0.6}}.get(settings["boosting"], {})
    settings |= {"multiclass": {"num_class": 3}}.get(settings["objective"], {})
    if settings["boosting"] == "gbdt" and settings["objective"] == "regression" and random.random() < 0.5:
        settings["linear_tree"] = True
    names = [f"a_feature_with_a_long_name_{at}" if random.random() < 0.5 else f"f{at}" for at in range(data.shape[1])]
    codes = numpy.round(data * [4, 9, 1, 1, 1, 1]) if random.random() < 0.3 else data
    learned = lightgbm.Dataset(codes, classes, feature_name=names, categorical_feature=[0, 1] if codes is not data else [], free_raw_data=False,
                               group=[40, 40] if settings["objective"] == "lambdarank" else None)  # fmt: skip
    made = lightgbm.train(settings, learned, random.choice([1, 6]), keep_training_booster=random.random() < 0.1)
    done = random.random()
    if done < 0.2:
        made.predict(data)
    elif done < 0.3:
        made.predict(data, pred_contrib=not settings.get("linear_tree"))
    elif done < 0.4:
        made.shuffle_models()
    elif done < 0.5 and not settings.get("linear_tree"):
        made = made.refit(codes, classes) if settings["objective"] != "lambdarank" else made
    elif done < 0.6:
        made.set_leaf_output(0, 0, 3.5)
    return {"model": made, "samples": samples()[0][:3].copy()}


def forest(random, depth):
    kind = random.choice([ensemble.RandomForestClassifier, ensemble.GradientBoostingClassifier, ensemble.ExtraTreesRegressor])
    return [kind(n_estimators=random.choice([1, 6]), max_depth=3, random_state=random.randrange(9)).fit(*samples()), text(random)]


if numpy:
    BRANCHES += [overlapping, numeric, numeric, numeric, objects, objects, scalars]
if pandas:
    BRANCHES += [frame, frame]
# Seldom, for they take long to be made or compared.
LONG += [kind for kind, library in ((of_arrow, arrow), (image, pillow), (booster, lightgbm), (forest, ensemble), (frame, pandas)) if library]

# --------------------------------------------------------------- comparing


def parts_of(one):
    """What there is to say of an object of a library, and what it refers to; None if it is of none."""
    library = type(one).__module__.partition(".")[0]
    telling = TELLING.get(library)
    return telling(one) if telling else None


def of_numpy(one):
    if isinstance(one, numpy.ma.MaskedArray):
        return (one.dtype.str, repr(one)), []
    if not isinstance(one, numpy.ndarray):
        return (repr(one),), []
    if one.dtype.hasobject:
        return (one.dtype.str, one.shape, one.flags.c_contiguous), list(one.reshape(-1))
    return (one.dtype.str, one.shape, one.tobytes()), []


def of_pandas(one):
    if not isinstance(one, (pandas.DataFrame, pandas.Series)):
        return (repr(one),), []
    columns = [one] if isinstance(one, pandas.Series) else [one[name] for name in one]
    return (str(getattr(one, "dtypes", "")), one.shape, repr(one.index), [(column.name, list(map(repr, column))) for column in columns]), [one.attrs]


def of_pyarrow(one):
    if isinstance(one, arrow.Schema):
        return (str(one),), []
    one.validate(full=True)
    return (str(getattr(one, "schema", getattr(one, "type", ""))), len(one), one.to_pylist()), []


def of_pillow(one):
    return (one.mode, one.size, one.tobytes(), one.info), []


def of_lightgbm(one):
    return (one.model_to_string(), one.predict(samples()[0][:5]).tobytes()), []


def of_sklearn(one):
    return (repr(one), one.predict(samples()[0]).tobytes(), len(one.estimators_)), []


TELLING = {"numpy": of_numpy, "pandas": of_pandas, "pyarrow": of_pyarrow, "PIL": of_pillow, "lightgbm": of_lightgbm, "sklearn": of_sklearn}

# ---------------------------------------------------------------- mutation


def mutated(one, kept):
    """Changes an object of a library; whether it is one."""
    if numpy and isinstance(one, numpy.ndarray):
        one[...] = one[::-1].copy() if one.ndim else one
        one.shape = (-1, 1)
        kept.append(one.T + one.T if one.dtype.char in "bhil" else one.T)
    elif pandas and isinstance(one, pandas.DataFrame):
        one["new"] = 1
        one.iloc[:1, :1] = one.iloc[-1:, :1].to_numpy()
        kept.append(one.sort_values(list(one.columns[:1])))
        del one["new"]
    elif pillow and isinstance(one, pillow.Image):
        kept.append(one.rotate(90))
        one.putpixel((0, 0), 0)
    elif ensemble and hasattr(one, "estimators_"):
        one.estimators_ = one.estimators_[:1]
    elif lightgbm and isinstance(one, lightgbm.Booster):
        one.set_leaf_output(0, 0, 9.5)
        one.shuffle_models()
        kept.append(pickle.loads(pickle.dumps(one)))
        if len(kept) % 2:
            one.model_from_string(kept[-1].model_to_string())
    else:
        return False
    return True
