# SPDX-License-Identifier: Apache-2.0
"""The workflow of the bench: one step makes a value, and another one is given it."""

import time

import values
from sinew import StepError, function, workflow

MEMORY = "2560MiB"


@function(memory=MEMORY, timeout="300s")
def make(name, moment_ns):
    return values.made_at(name, moment_ns)


@function(memory=MEMORY, timeout="300s")
def take(value, moment_ns):
    return values.taken(value, moment_ns, time.monotonic_ns())


@workflow
def handed(event):
    return handed_to(take, event)


# Run in another way than `make`, it has an instance of its own each time.
take_apart = take.options(timeout="301s")


@workflow
def handed_apart(event):
    return handed_to(take_apart, event)


def handed_to(take, event):
    moment_ns = time.monotonic_ns() + event["allowance_ns"]
    try:
        return take(make(event["name"], moment_ns), moment_ns).result()
    except StepError as error:
        if "Late: by" in error.reason:
            return {"late": error.reason}
        raise
