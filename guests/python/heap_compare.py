# SPDX-License-Identifier: Apache-2.0
"""What a value is, part by part, and what a function may do to it: `heap_test.py` compares and changes values by this."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import gc
import io
import pathlib
import pickle
import sys
import types
import uuid
import weakref

import heap_library_cases as libraries
from heap_cases import Keyed, Other, Plain, Record, Slotted

# ------------------------------------------------------------ what they are

PLAIN = frozenset((int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range, slice, datetime.datetime,
                   datetime.timedelta, datetime.timezone, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePosixPath, type))  # fmt: skip
# Of these, subclasses may have attributes of their own.
ATOMS = (int, float, str, bytes, enum.Enum, type)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def described(value):
    """Everything about a value that can be told, also which parts of it are one."""
    lines, seen, held = [], {}, []
    pending = [value]
    while pending:
        one = pending.pop()
        kind = type(one)
        if kind in PLAIN:
            lines.append((kind.__name__, repr(one)))
            continue
        if id(one) in seen and not (kind is tuple and len(one) == 0):
            lines.append(("again", seen[id(one)]))
            continue
        seen[id(one)] = len(seen)
        held.append(one)
        parts, more = parts_of(one)
        lines.append((kind.__name__, *parts))
        pending.extend(reversed(more))
    return lines


def parts_of(one):
    """What there is to say of an object, and what it refers to."""
    if isinstance(one, (list, tuple, collections.deque)):
        return (len(one), getattr(one, "maxlen", None), *attributes(one)[0]), [*one, *attributes(one)[1]]
    if isinstance(one, dict):
        more = [part for pair in one.items() for part in (plain_key(pair[0]), pair[1])]
        names, values = attributes(one)
        return (len(one), getattr(one, "default_factory", None), names), [*more, *values]
    if (told := libraries.parts_of(one)) is not None:
        return told
    if isinstance(one, ATOMS):
        # Members of enumerations are the process's own.
        names, values = ((), []) if isinstance(one, (enum.Enum, type)) else attributes(one)
        return (repr(one), names), values
    if isinstance(one, (set, frozenset)):
        names, values = attributes(one)
        return (len(one), sorted(map(repr_of_key, one)), names), values
    if isinstance(one, (bytearray, array.array)):
        return (bytes(one),), []
    if isinstance(one, (types.MethodType, *FUNCTIONS)):
        return (one.__qualname__,), [] if isinstance(owner := getattr(one, "__self__", None), types.ModuleType) else [owner]
    if isinstance(one, functools.partial):
        return (len(one.args),), [one.func, *one.args, one.keywords]
    if isinstance(one, BaseException):
        return attributes(one)[0], [*one.args, *attributes(one)[1]]
    return attributes(one)


def attributes(one):
    """Names of what an object has, and the values."""
    slots = [name for kind in reversed(type(one).__mro__) for name in vars(kind).get("__slots__", ())]
    own = getattr(one, "__dict__", {})
    # Of a module or a class, what it has is no part of the value.
    if isinstance(one, (types.ModuleType, type)):
        return (one.__name__,), []
    names = [name for name in slots if name not in ("__dict__", "__weakref__") and hasattr(one, name)]
    return (*names, *own), [*(getattr(one, name) for name in names), *own.values()]


def plain_key(key):
    return repr_of_key(key) if isinstance(key, (frozenset, tuple, Keyed)) else key


def repr_of_key(key):
    if isinstance(key, frozenset):
        return sorted(map(repr_of_key, key)).__repr__()
    if isinstance(key, tuple):
        return "(%s)" % ", ".join(map(repr_of_key, key))
    return "a key" if isinstance(key, Keyed) else repr(key)


def as_pickled(value):
    buffers = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytearray(one.raw()) for one in buffers])


def told(value):
    """What it is once it was sent; if it cannot be, what it is."""
    try:
        return described(as_pickled(value))
    except Exception:
        return described(value)


def difference(found, expected):
    if found == expected:
        return None
    for at, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            return f"at {at}: {one!r:.300} instead of {other!r:.300}"
    return f"{len(found)} parts instead of {len(expected)}"


# --------------------------------------------------------------- mutation


def mutate(value, chosen, kept):
    """What a function might do to what it was given."""
    pending, seen = [value], set()
    while pending and len(seen) < 300:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        try:
            pending += mutated(one, chosen, kept)
        except (ValueError, TypeError, AttributeError, RuntimeError, KeyError, IndexError):
            pass


def mutated(one, chosen, kept):
    more = []
    if isinstance(one, list):
        more = list(one)[:20]
        mutate_list(one, chosen, kept)
    elif isinstance(one, dict):
        more = list(one.values())[:20]
        mutate_dict(one, chosen, kept)
    elif isinstance(one, set):
        one.update(range(chosen.randrange(50)))
        one.pop()
        if chosen.random() < 0.3:
            kept.append(one - {1, 2, 3})
            one.clear()
    elif isinstance(one, collections.deque):
        more = list(one)[:20]
        one.rotate(1)
        one.appendleft(more)
        one.pop()
    elif isinstance(one, bytearray):
        one.extend(b"more" * 50)
        kept.append(memoryview(one))
    elif isinstance(one, Slotted):
        more = [one.x]
        del one.x
        one.x = [one]
    elif type(one).__module__ == Plain.__module__ and hasattr(one, "__dict__") and not isinstance(one, (str, type, enum.Enum)):
        more = list(vars(one).values())
        mutate_instance(one, chosen, kept)
    elif libraries.mutated(one, kept):
        pass
    elif isinstance(one, str) and one.isidentifier():
        setattr(Slot, one[:30], sys.intern(one))
        kept.append(one.encode())
    elif isinstance(one, tuple):
        more = list(one)[:20]
    return more


def mutate_list(one, chosen, kept):
    one.extend([chosen.random(), "new", {"a": one}])
    if chosen.random() < 0.3:
        del one[0]
    if chosen.random() < 0.5:
        changed_in_place(one.pop(chosen.randrange(len(one))), kept)
    if chosen.random() < 0.3:
        one.sort(key=repr_of_key if len(one) > 99 else lambda item: str(type(item)))
    if chosen.random() < 0.1:
        kept.append(one[1:3] * 2)
        one.clear()


def mutate_dict(one, chosen, kept):
    for at in range(chosen.choice([1, 9, 60])):
        one["new%d" % at] = [at]
    for name in list(one)[: chosen.randrange(5)]:
        del one[name]
    if chosen.random() < 0.1:
        kept.append(dict(one))
        one.clear()
        one["again"] = one


def mutate_instance(one, chosen, kept):
    one.added = [1, one]
    kept.append(weakref.ref(one))
    if chosen.random() < 0.3:
        for name in list(vars(one))[: chosen.randrange(4)]:
            delattr(one, name)
    if chosen.random() < 0.3:
        one.__dict__ = {"other": 1}
    if chosen.random() < 0.2 and isinstance(one, (Plain, Record)):
        one.__class__ = Other


def changed_in_place(one, kept):
    """What the interpreter may do to an object to which nobody else refers."""
    if isinstance(one, str):
        kept.append(sys.intern(str(one)) if len(one) < 50 else one)
        one += "!" * 40
    elif isinstance(one, bytes):
        stream = io.BytesIO(one)
        del one
        stream.write(b"changed")


class Slot:
    pass


def inspect(chosen):
    """What a program may do that looks at all of its objects."""
    if chosen.random() < 0.03:
        alive = gc.get_objects()
        sum(gc.is_tracked(one) for one in alive)
        gc.get_referrers(chosen.choice(alive))
