# SPDX-License-Identifier: Apache-2.0
"""What is handed over in the bench, by name: `made_at` makes a value, `taken` reads it and tells of it.

All values are the same each time that they are made, in any process. The producer is told the moment at
which it returns, and the consumer knows that moment too: so nothing but the value goes from one to the
other, and no clock is read in between. A producer that has no value yet at that moment raises `Late`.
"""

import dataclasses
import hashlib
import io
import json
import random
import time

import lightgbm
import numpy
import pandas
import PIL.Image
import PIL.JpegImagePlugin
import sklearn.ensemble

WORDS = 20_000
# Of a list: a pointer, and an int of 28 bytes in its block of 32.
BYTES_OF_AN_INT = 40
# What pandas says that a row of `frame` takes, with its strings.
BYTES_OF_A_ROW = 169
# The producer sleeps until so long before its moment, and watches the clock from then on.
WATCHING_NS = 1_000_000
CHUNK = 1 << 20


class Late(Exception):
    """The value was not made in time."""


@dataclasses.dataclass
class Trade:
    number: int
    price: float
    symbol: str


# ------------------------------------------------------------------ values


def text(size):
    """A passage of words that are common as words are, over and over."""
    words = [f"{'abcdefghijklmnopqrst'[number % 20]}{number}" for number in range(WORDS)]
    picked = random.Random(7).choices(words, [1 / (1 + number) for number in range(WORDS)], k=5 * WORDS)
    passage = " ".join(picked) + " "
    return (passage * (size // len(passage) + 1))[:size]


def ints(count, first=1_000_000):
    return list(range(first, first + count))


def nested(portfolios, trades):
    return {
        f"portfolio-{portfolio}": {
            f"trade-{trade}": {
                "price": 100 + (portfolio * 7919 + trade) % 10_007 / 100,
                "volumes": [portfolio * 1000 + trade, trade * 31 % 977],
                "trader": f"trader {portfolio}.{trade}",
            }
            for trade in range(trades)
        }
        for portfolio in range(portfolios)
    }


def frame(size):
    """Whole numbers, others, and strings that are objects: of a hundred in one column, all different in the other."""
    count = size // BYTES_OF_A_ROW
    numbers = numpy.arange(count)
    symbols = [f"SYM{number:03}" for number in range(100)]
    return pandas.DataFrame({
        "id": numbers,
        "volume": numbers * 31 % 977,
        "price": 100 + (numbers * 7919 % 10_007) / 100,
        "amount": numbers * 0.25,
        "symbol": numpy.array([symbols[number % 100] for number in range(count)], dtype=object),
        "account": numpy.array([f"account-{number:08}" for number in range(count)], dtype=object),
    })  # fmt: skip


def image():
    dice = numpy.random.default_rng(5)
    return PIL.Image.fromarray(dice.integers(0, 256, (1024, 1024, 3), dtype=numpy.uint8))


def photo():
    """As a camera gives it: a large JPEG, of what changes slowly from place to place."""
    dice = numpy.random.default_rng(7).integers(0, 256, (30, 40, 3), dtype=numpy.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(dice).resize((4000, 3000), PIL.Image.Resampling.BILINEAR).save(file, "JPEG")
    opened = PIL.Image.open(io.BytesIO(file.getvalue()))
    opened.load()
    return opened


def samples():
    """Of two classes, in fifty features."""
    data = numpy.random.default_rng(11).random((2000, 50))
    return data, (data[:, :10].sum(axis=1) > 5).astype(int)


def booster():
    data, classes = samples()
    settings = {"objective": "binary", "num_leaves": 63, "num_threads": 1, "seed": 1, "deterministic": True, "verbose": -1}
    return lightgbm.train(settings, lightgbm.Dataset(data, classes), 200)


def forest():
    data, classes = samples()
    return sklearn.ensemble.RandomForestClassifier(100, n_jobs=1, random_state=1).fit(data, classes)


MAKERS = {
    "int": lambda: (1 << 40) + 7,
    "dict_small": lambda: nested(3, 4),
    "str_13mb": lambda: text(13_000_000),
    "list_str": lambda: text(13_000_000).split(),
    "list_int_5m": lambda: ints(5_000_000),
    "dict_nested": lambda: nested(100, 300),
    "dict_str_int": lambda: {f"key-{number}": number * 7 for number in range(100_000)},
    "dataclasses": lambda: [Trade(number, number / 4, f"SYM{number}") for number in range(100_000)],
    "ndarray": lambda: numpy.random.default_rng(3).random((7000, 785)),
    "frame_3mb": lambda: frame(3_500_000),
    "frame_500mb": lambda: frame(500_000_000),
    "image": image,
    "photo": photo,
    "lightgbm": booster,
    "forest": forest,
}


def make(name):
    """The value of this name; `ints_65536` is a list of so many bytes of memory."""
    if name.startswith("ints_"):
        return ints(int(name.removeprefix("ints_")) // BYTES_OF_AN_INT)
    return MAKERS[name]()


# ----------------------------------------------------------------- reading


def walk(value):
    """The sum of all numbers in nested dicts and lists, and of the lengths of all strings."""
    if isinstance(value, dict):
        return sum(len(key) + walk(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(walk, value))
    return len(value) if isinstance(value, str) else value


def read_list(value):
    first = value[0]
    if isinstance(first, str):
        return sum(map(len, value))
    if isinstance(first, Trade):
        return sum(trade.number + trade.price + len(trade.symbol) for trade in value)
    return sum(value)


def read_frame(value):
    return sum(float(sum(map(len, value[name])) if value[name].dtype == object else value[name].sum()) for name in value)


def read_image(value):
    return sum(at * count for at, count in enumerate(value.histogram()))


def read_model(value):
    """A prediction goes through all trees."""
    return float(numpy.sum(value.predict(samples()[0][:200])))


READERS = {
    int: lambda value: value + 1,
    str: lambda value: value.count("e"),
    list: read_list,
    dict: walk,
    numpy.ndarray: lambda value: float(value.sum()),
    pandas.DataFrame: read_frame,
    PIL.Image.Image: read_image,
    PIL.JpegImagePlugin.JpegImageFile: read_image,
    lightgbm.Booster: read_model,
    sklearn.ensemble.RandomForestClassifier: read_model,
}


# --------------------------------------------------------------- comparing


def written(value, target):
    """All that a value is, in bytes that are the same for values that are."""
    kind = type(value)
    target.write(f"{kind.__module__}.{kind.__qualname__};".encode())
    if kind is list:
        first, count = value[0], len(value)
        target.write(f"{count} {type(first).__qualname__};".encode())
        for begin in range(0, count, CHUNK):
            part = value[begin : begin + CHUNK]
            assert {*map(type, part)} == {type(first)}
            target.write(json.dumps([*map(dataclasses.astuple, part)] if kind_is_trade(first) else part).encode())
    elif kind is numpy.ndarray:
        target.write(f"{value.shape} {value.dtype};".encode() + value.tobytes())
    elif kind is pandas.DataFrame:
        target.write(f"{[*zip(value.columns, map(str, value.dtypes))]};".encode())
        for column in (value.index, *(value[name] for name in value)):
            target.write("\0".join(column).encode() if column.dtype == object else column.to_numpy().tobytes())
    elif issubclass(kind, PIL.Image.Image):
        target.write(f"{value.mode} {value.size};".encode() + value.tobytes())
    elif kind is lightgbm.Booster:
        target.write(value.model_to_string().encode())
    elif kind is sklearn.ensemble.RandomForestClassifier:
        target.write(json.dumps(value.get_params()).encode() + value.classes_.tobytes())
        for tree in value.estimators_:
            state = tree.tree_.__getstate__()
            # Field by field: what lies between the fields is nothing that is kept.
            for field in state["nodes"].dtype.names:
                target.write(numpy.ascontiguousarray(state["nodes"][field]).tobytes())
            target.write(state["values"].tobytes())
    else:
        target.write(json.dumps(value).encode())


def kind_is_trade(value):
    return isinstance(value, Trade)


class Digest(io.RawIOBase):
    """A file that is only hashed."""

    def __init__(self):
        self.hash = hashlib.blake2b(digest_size=16)

    def write(self, data):
        self.hash.update(data)


def fingerprint(value):
    """What tells values apart."""
    target = Digest()
    written(value, target)
    return target.hash.hexdigest()


# ------------------------------------------------------------- handing over


def made_at(name, moment_ns):
    """A value, returned at that moment."""
    value = make(name)
    left = moment_ns - time.monotonic_ns()
    if left < 0:
        raise Late(f"by {-left} ns")
    if left > WATCHING_NS:
        time.sleep((left - WATCHING_NS) / 1e9)
    while time.monotonic_ns() < moment_ns:
        pass
    return value


def taken(value, moment_ns, in_hand_ns):
    """Reads a value that was in hand at that time, and tells how long all took since the moment."""
    total = READERS[type(value)](value)
    read_ns = time.monotonic_ns()
    told = {"handed_ns": in_hand_ns - moment_ns, "read_ns": read_ns - moment_ns}
    return {**told, "total": repr(total), "fingerprint": fingerprint(value)}
