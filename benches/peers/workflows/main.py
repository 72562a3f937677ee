# SPDX-License-Identifier: Apache-2.0
"""The workflows of the bench, in the manner of RMMAP, section 5.1. The same file is run by a node
and by its peers, which bring a module `sinew` of their own."""

import collections
import itertools
import hashlib
import random

import lightgbm
import numpy
import pandas
from sinew import function, workflow

SYMBOLS = [f"SYM{number:03}" for number in range(100)]
WORDS, CHAPTER_WORDS = 20_000, 100_000
# Of a digit's image; behind them is which digit it is.
PIXELS = 784
# Training: parts of the images, each with directions of its own, and one in so many images that no tree has seen.
PARTS, HELD_OUT = 2, 10


# ------------------------------------------------------------------- FINRA


@function
def fetch_portfolio(rows):
    """Trades of a portfolio: numbers, and columns of strings that are objects of their own."""
    numbers = numpy.arange(rows)
    return pandas.DataFrame({
        "id": numbers,
        "symbol": numpy.array([SYMBOLS[number % len(SYMBOLS)] for number in range(rows)], dtype=object),
        "price": 100 + (numbers * 7919 % 10_007) / 100,
        "volume": numbers * 31 % 977,
        "account": numpy.array([f"account-{number % 5000:05}" for number in range(rows)], dtype=object),
        "trader": numpy.array([f"trader {number}" for number in range(rows)], dtype=object),
    })  # fmt: skip


@function
def fetch_market(rows):
    """What each symbol was worth."""
    return {symbol: 100 + at % 50 + rows % 3 for at, symbol in enumerate(SYMBOLS)}


@function
def audit(portfolio, market, rule):
    """One rule: trades of a symbol that are off its price, and of too much."""
    symbol = SYMBOLS[rule % len(SYMBOLS)]
    trades = portfolio.iloc[rule % len(SYMBOLS) :: len(SYMBOLS)]
    assert trades["symbol"].iloc[0] == symbol and trades["trader"].iloc[-1].startswith("trader ")
    off = (trades["price"] - market[symbol]).abs() > 40 + rule % 7
    return {"rule": rule, "off": int(off.sum()), "large": int((trades["volume"] > 900).sum())}


@function
def merge_audits(audits):
    return {
        "rules": len(audits),
        "off": sum(audit["off"] for audit in audits),
        "large": sum(audit["large"] for audit in audits),
    }


@workflow
def finra(event):
    portfolio, market = fetch_portfolio(event["size"]), fetch_market(event["size"])
    return merge_audits([audit(portfolio, market, rule) for rule in range(event["width"])])


# --------------------------------------------------------------- WordCount


@function
def book(size):
    """A text of so many bytes, of words that are common as words are. It is one chapter again and again: to have it
    takes as long as to read it from a file, and not as long as to write it."""
    dice = random.Random(7)
    words = [f"{'abcdefghijklmnopqrst'[number % 20]}{number}" for number in range(WORDS)]
    weights = list(itertools.accumulate(1 / (1 + number) for number in range(WORDS)))
    chapter = " ".join(dice.choices(words, cum_weights=weights, k=CHAPTER_WORDS)) + " "
    return (chapter * (size // len(chapter) + 1))[:size]


@function
def count_words(text, part, parts):
    step = len(text) // parts
    begin, end = (text.find(" ", at * step) if 0 < at < parts else len(text) * (at == parts) for at in (part, part + 1))
    return dict(collections.Counter(text[begin:end].split()))


@function
def add_counts(counts):
    total = collections.Counter()
    for count in counts:
        total.update(count)
    return {"words": sum(total.values()), "different": len(total), "most": total.most_common(1)[0][0]}


@workflow
def wordcount(event):
    text = book(event["size"])
    return add_counts([count_words(text, part, event["width"]) for part in range(event["width"])])


# -------------------------------------------------------------- prediction


@function
def images(size):
    return numpy.random.default_rng(3).random((size, 785))


@function
def components(data):
    """The directions in which the data varies most."""
    centred = data - data.mean(axis=0)
    values, vectors = numpy.linalg.eigh(centred.T @ centred)
    return vectors[:, numpy.argsort(values)[::-1][:32]]


@function
def predict(data, directions, part, parts):
    piece = data[part :: parts] @ directions
    return numpy.sign(piece[:, :10]).astype(numpy.int8)


@function
def gather(predictions):
    return {"rows": sum(len(each) for each in predictions), "sum": int(sum(each.astype(int).sum() for each in predictions))}


@workflow
def prediction(event):
    data = images(event["size"])
    directions = components(data)
    return gather([predict(data, directions, part, event["width"]) for part in range(event["width"])])


# ---------------------------------------------------------------- training


@function
def digits(size):
    """Images of ten kinds with noise, and the kind of each."""
    dice = numpy.random.default_rng(5)
    kinds = dice.integers(0, 10, size)
    pixels = dice.random((10, PIXELS), numpy.float32)[kinds] * 0.1 + dice.random((size, PIXELS), numpy.float32)
    return numpy.column_stack([pixels, kinds.astype(numpy.float32)])


@function
def reduce_images(images, part, parts):
    """A part of the images in the 32 directions in which it varies most, and whether each is of an odd digit."""
    own = images[part::parts]
    centred = own[:, :PIXELS] - own[:, :PIXELS].mean(axis=0)
    values, vectors = numpy.linalg.eigh(centred.T @ centred)
    return centred @ vectors[:, numpy.argsort(values)[::-1][:32]], own[:, PIXELS].astype(int) % 2


@function
def train_trees(reduced, number, epochs):
    """Trees of a forest, each of a share of the images and of the directions."""
    features, is_odd = reduced
    seen = numpy.arange(len(features)) % HELD_OUT != 0
    settings = {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.6, "num_leaves": 31,
                "seed": number, "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbose": -1}  # fmt: skip
    return lightgbm.train(settings, lightgbm.Dataset(features[seen], is_odd[seen]), epochs)


@function
def merge_trees(models, parts):
    """The forest's votes on what no tree has seen; the digest tells forests apart."""
    right = rows = 0
    for part, (features, is_odd) in enumerate(parts):
        features, is_odd = features[::HELD_OUT], is_odd[::HELD_OUT]
        votes = numpy.mean([model.predict(features) for model in models[part :: len(parts)]], axis=0)
        right, rows = right + int(((votes > 0.5) == is_odd).sum()), rows + len(is_odd)
    digest = hashlib.blake2b("".join(model.model_to_string() for model in models).encode(), digest_size=8)
    return {"trees": sum(model.num_trees() for model in models), "right": right, "rows": rows, "digest": digest.hexdigest()}


@workflow
def training(event):
    images = digits(event["size"])
    count = min(PARTS, event["width"])
    parts = [reduce_images(images, part, count) for part in range(count)]
    models = [train_trees(parts[number % count], number, event.get("epochs", 8)) for number in range(event["width"])]
    return merge_trees(models, parts)


# ------------------------------------------------------------------- alone


@function
def whole(name, event):
    """All of a workflow in one step: what it calls there, are ordinary calls, and nothing is handed over."""
    return {"finra": finra, "training": training, "prediction": prediction, "wordcount": wordcount}[name](event)


@workflow
def alone(event):
    return whole(event["workflow"], event)
