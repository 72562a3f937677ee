# SPDX-License-Identifier: Apache-2.0
"""Three functions that count words, each of which asks the next one. The first
one measures: what a round takes, less the time that the functions spend on
their own, is what it costs them to reach each other."""

from time import perf_counter_ns as now

import sinew


def handler(event, context):
    if context.function_name == "splitter":
        return [spent(event) for _ in range(event["rounds"])]
    begun = now()
    if context.function_name == "reducer":
        counts = {}
        for word, count in event["pairs"]:
            counts[word] = counts.get(word, 0) + count
        return {"counts": counts, "own_ns": now() - begun}
    pairs = [[word, 1] for word in event["words"].split()]
    asked = now()
    told = sinew.call("reducer", {"pairs": pairs})
    heard = now()
    told["own_ns"] += asked - begun
    told["own_ns"] += now() - heard
    return told


def spent(event):
    begun = now()
    told = sinew.call("mapper", {"words": event["words"]})
    return now() - begun - told["own_ns"]
