# SPDX-License-Identifier: Apache-2.0
"""Two workflows of a producer and a consumer: one is given a list of numbers, the other one its length. They import nothing,
so that nothing but the list takes much memory."""

from sinew import function, workflow


@function
def numbers(count):
    return list(range(1_000_000, 1_000_000 + count))


@function
def numbers_kept(count, is_read):
    """The same list, which nobody is given."""
    made = list(range(1_000_000, 1_000_000 + count))
    return sum(made) if is_read else len(made)


@function
def take_numbers(made, is_read):
    return sum(made) if is_read else len(made)


@function
def pass_on(told):
    return told


@workflow
def handed(event):
    return take_numbers(numbers(event["size"]), event["read"])


@workflow
def kept(event):
    return pass_on(numbers_kept(event["size"], event["read"]))
