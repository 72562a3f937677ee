# SPDX-License-Identifier: Apache-2.0
"""Workflows that a test runs in its own process, and on a node."""

import asyncio
import time

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


@function
def two(first, second):
    return [first, second]


@function
def later_fails(seconds):
    time.sleep(seconds)
    raise LookupError("later")


@function
async def fails_in_a_coroutine(value):
    await asyncio.sleep(0)
    raise KeyError(value)


@workflow
def seen_below(event):
    """Whoever was told of a failure was told of what needs it."""
    first = fails("seen")
    second = doubled(first)
    try:
        first.result()
    except StepError:
        return ["seen", doubled(1).result()]
    return second


@workflow
def one_of_two(event):
    both = two(fails("first of two"), later_fails(3))
    try:
        both.result()
    except StepError as error:
        return error.step


@workflow
def too_early(event):
    step = later_fails(0.3)
    try:
        step.result(timeout=0.01)
    except TimeoutError:
        return "early"


@workflow
def first_failure(event):
    try:
        two(later_fails(3), fails("at once")).result()
    except StepError as error:
        return "at once" in error.reason


@workflow
def in_a_coroutine(event):
    return fails_in_a_coroutine("value").result()


@workflow
def given_a_coroutine(event):
    return gives(event["value"])


async def gives(value):
    return await doubled(value)


def greet(event, context: Context):
    return {"hello": event["name"], "of": context.function_name, "query": context.http.query, "left": context.get_remaining_time_in_millis() > 1000}


def refuse(event):
    raise KeyError("no such item")
