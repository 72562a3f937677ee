# SPDX-License-Identifier: Apache-2.0
"""Workflows that a test runs in its own process, and on a node."""

import asyncio

from sinew import Context, StepError, function, isolated, workflow


@function
def fetch(count):
    return list(range(count))


@function(memory="64MiB", concurrency=2)
def audit(trades, rule):
    return {"rule": rule, "bad": sum(1 for trade in trades if trade % 7 == rule)}


@function
def merge(verdicts):
    return {"rules": len(verdicts), "bad": sum(verdict["bad"] for verdict in verdicts)}


@workflow
def finra(event):
    trades = fetch(event["trades"])
    return merge([audit(trades, rule) for rule in range(event["rules"])])


@function
def same(one, other):
    return one is other


@function
def changed(items):
    items.append(1)
    return len(items)


@function
async def doubled(value):
    await asyncio.sleep(0)
    return value * 2


@function
def halved(value):
    return value / 2


@function(retries=2, retry_delay=0.01)
def fails(why):
    raise ValueError(why)


@function
def makes_a_lambda(_):
    return lambda: 1


@function
def calls_another(value):
    # Within a step it is an ordinary call.
    return changed([value])


@workflow
def kinds(event):
    items = fetch(3)
    told = []
    for why in ("first", "second"):
        try:
            fails(why).result()
        except StepError as error:
            told.append((error.function, error.step))
    try:
        merge([fails("third")]).result()
    except StepError as error:
        told.append((error.function, error.step))
    return {
        "same": same(items, items),
        "changed": [changed(items), changed(items)],
        "told": told,
        "mapped": doubled.map([1, 2, 3]),
        "isolated": doubled(isolated(doubled(4))),
        "with": halved.options(timeout="5s")(event["value"]),
        "inside": calls_another(5),
        "inner": inner(event),
        "grown": grown(4),
    }


def grown(most):
    """What it makes depends on what was made."""
    value = fetch(1)
    while len(value.result()) < most:
        value = fetch(len(value.result()) * 2)
    return value


@workflow
def inner(event):
    return doubled(event["value"])


@workflow
async def gathered(event):
    first, second = doubled(1), doubled(2)
    return [await first, await asyncio.gather(second, doubled(event["value"]))]


@workflow
def unseen(event):
    fails("nobody looks")
    return 1


@workflow
def deep(event):
    return merge([fails("deep")])


@workflow
def unwritten(event):
    return makes_a_lambda(1).result()


@workflow
def unsent(event):
    return doubled(lambda: 1)


def greet(event, context: Context):
    return {"hello": event["name"], "of": context.function_name, "query": context.http.query, "left": context.get_remaining_time_in_millis() > 1000}


def refuse(event):
    raise KeyError("no such item")
