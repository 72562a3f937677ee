# SPDX-License-Identifier: Apache-2.0
# What a workflow's code sees of its steps. It is run before `workflow.py`, in the same module: names
# that are not defined here are that one's. It is a part of what `sinew sdk python` writes, which has a
# run of its own in the place of that one's.

import io
import pickle

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
TIMES_MS = {"": 1000, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

# What the node takes, of each.
BOUNDS = {
    "memory_bytes": (1 << 20, 1 << 46), "timeout_ms": (1, 86_400_000), "cpu_percent": (1, 6400),
    "concurrency": (1, 1000), "retries": (0, 100), "retry_delay_ms": (0, 86_400_000), "pure": (0, 1), "isolated": (0, 1),
}  # fmt: skip


class StepError(Exception):
    """A step that has no result: it has failed, or an earlier one that it needs."""

    def __init__(self, function, step, reason):
        super().__init__(reason)
        self.function, self.step, self.reason = function, step, reason

    def __reduce__(self):
        return StepError, (self.function, self.step, self.reason)


class Step:
    """The result of a call, before it is there. Passing it on to other functions does not wait for it."""

    __slots__ = ("__weakref__", "_run", "_result", "function", "number")

    def __init__(self, run, function, number):
        self._run, self.function, self.number = run, function, number

    def result(self, timeout=None):
        """Waits for what the function returned, or raises `StepError`; `TimeoutError` after so many seconds."""
        if not hasattr(self, "_result"):
            self._result = self._run.value(self, timeout)
        return self._result

    def __await__(self):
        if not hasattr(self, "_result"):
            import asyncio

            yield from asyncio.get_running_loop().run_in_executor(None, self.result).__await__()
        return self._result

    def __repr__(self):
        return f"<step {self.number}: {self.function}>"

    def __reduce__(self):
        raise TypeError(f"{self!r} can be passed to a function of the workflow, and be returned; use its result()")

    __hash__ = object.__hash__

    def _is_no_value(self, *_):
        raise TypeError(f"{self!r} is no value yet: result() waits for it, and so does await")

    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __int__ = __float__ = __index__ = _is_no_value
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _is_no_value
    __truediv__ = __rtruediv__ = __call__ = _is_no_value


class Isolated:
    """A step of which another one is sent the result, and maps nothing."""

    __slots__ = ("step",)

    def __init__(self, step):
        self.step = step

    def __reduce__(self):
        raise TypeError(f"isolated({self.step!r}) is for an argument of a function of the workflow")


def isolated(step):
    """The result of a step, for a function that shall have nothing of the memory in which it was made: it is pickled."""
    return Isolated(step) if isinstance(step, Step) else step


class Function:
    """A function whose calls are steps where a workflow makes them."""

    def __init__(self, body, options):
        import functools

        functools.update_wrapper(self, body)
        self._options = options

    def __call__(self, *arguments, **named):
        run = current_run()  # noqa: F821 - of workflow.py
        if run is None:
            return self.__wrapped__(*arguments, **named)
        return run.step(self, arguments, named)

    def map(self, *iterables):
        """A step for each element, or for each that several have at the same place."""
        return [self(*each) for each in zip(*iterables)]

    def options(self, **changes):
        """The same function, run in another way."""
        return Function(self.__wrapped__, {**self._options, **options_of(**changes)})

    def _name(self):
        name = self.__wrapped__.__qualname__
        if not name.isidentifier():
            raise TypeError(f"{name} cannot be a step: its function is defined at the top of its module")
        return f"{self.__wrapped__.__module__}.{name}"


def function(body=None, **options):
    """Makes a function one whose calls are steps: `@function` or `@function(memory="1GiB", retries=2)`."""
    options = options_of(**options)
    if body is None:
        return lambda body: Function(body, options)
    return Function(body, options)


def options_of(
    *, memory=None, timeout=None, cpu=None, concurrency=None, retries=None, retry_delay=None, pure=None, isolated=None
):
    """What the node is told of how a function is run."""
    told = {
        "memory_bytes": None if memory is None else quantity(memory, UNITS, "memory", "512MiB", str.upper),
        "timeout_ms": None if timeout is None else quantity(timeout, TIMES_MS, "timeout", "30s"),
        "cpu_percent": None if cpu is None else round(cpu * 100),
        "concurrency": concurrency,
        "retries": retries,
        "retry_delay_ms": None if retry_delay is None else quantity(retry_delay, TIMES_MS, "retry_delay", "2s"),
        "pure": True if pure == "exact" else pure,
        "isolated": isolated,
    }
    told = {name: value for name, value in told.items() if value is not None}
    for name, value in told.items():
        least, most = BOUNDS[name]
        if not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name} is {value!r}, not a number from {least} to {most}")
    # All of the workflow's files count for it.
    return {**told, "code": None} if pure == "exact" else told


def quantity(value, units, name, example, change=str):
    """A number of something, from `512MiB`, `30s`, or a number of bytes or seconds."""
    text = str(value).strip()
    digits = text.rstrip("".join(set("".join(units).lower() + "".join(units))))
    unit = change(text[len(digits) :].strip())
    try:
        return round(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f"{name} is {value!r}, which is no quantity like {example!r}") from None


def resolved(value):
    """A value without steps."""
    if isinstance(value, Step):
        return value.result()
    kind = type(value)
    if kind is dict:
        return {key: resolved(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(resolved(item) for item in value)
    return value


def written(value, what, table):
    """A value as bytes."""
    target = io.BytesIO()
    pickler = pickle.Pickler(target, 5)
    pickler.dispatch_table = table
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise TypeError(f"{what} cannot be passed on: {error}") from None
    return target.getvalue()


