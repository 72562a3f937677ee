# SPDX-License-Identifier: Apache-2.0
# What `sinew` is where no node runs what imports it: the last part of what `sinew sdk python` writes,
# behind `json_values.py`, `request.py`, `calls.py` and `steps.py`, in one module.

import collections
import contextlib
import contextvars
import copyreg
import http.client
import inspect
import os
import socket
import ssl
import threading
import traceback
import urllib.parse
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout

NODE = "http://127.0.0.1:8080"
# As long as a function may take at most.
CALL_TIMEOUT_S = 24 * 3600
# Of one run at the same time, in a thread each.
STEPS_AT_ONCE = 16
# Steps of a function that run at a time, if it says nothing.
CONCURRENCY = 16
# What a context says if nothing else is said.
memory_mb, timeout_ms = 256, 60_000


# -------------------------------------------------------------------- calls


def ask(name, kind, body):
    """Calls the function of a name of a node: status, type and body of the answer."""
    node = os.environ.get("SINEW_NODE") or NODE
    headers = {"content-type": kind} if kind else {}
    if key := os.environ.get("SINEW_KEY", "").strip():
        headers["authorization"] = f"Bearer {key}"
    connection = connection_to(node)
    try:
        # In one piece: whoever refuses it answers, and closes, before there is more.
        pieces, send = [], connection.send
        connection.send = pieces.append
        connection.request("POST", "/function/" + urllib.parse.quote(name, safe=":"), body, headers)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(b"".join(pieces))
        answer = connection.getresponse()
        return answer.status, answer.headers.get("content-type", ""), answer.read()
    except (OSError, http.client.HTTPException) as error:
        reason = f"the node at {node} did not answer: {error or kind_name(type(error))}"
        suggestion = "start one with `sinew up` or `sinew dev`, say in SINEW_NODE where it is, or give `sinew.call` another function in this test"
        problem = {"component": "sdk", "detail": reason, "suggestion": suggestion}
        return 503, "application/problem+json", json.dumps(problem).encode()
    finally:
        connection.close()


async def ask_async(name, kind, body):
    import asyncio

    return await asyncio.to_thread(ask, name, kind, body)


def connection_to(node):
    """A connection to what `SINEW_NODE` names: a URL, or the path of a node's socket."""
    if "://" not in node:
        return SocketConnection(node)
    url = urllib.parse.urlsplit(node)
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or url.query:
        raise ValueError(f"SINEW_NODE is {node!r}: it is a URL like {NODE}, or the path of a node's socket")
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port, timeout=CALL_TIMEOUT_S)
    trusted = ssl.create_default_context(cafile=os.environ.get("SINEW_CA"))
    return http.client.HTTPSConnection(url.hostname, url.port, timeout=CALL_TIMEOUT_S, context=trusted)


class SocketConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=CALL_TIMEOUT_S)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


# ---------------------------------------------------------------- workflows

# The run that this code is of. A thread that a workflow starts itself is of none, unless it is given the context.
_current = contextvars.ContextVar("sinew_run", default=None)
# In the thread of a step: the results that it was given.
_here = threading.local()


def current_run():
    return _current.get()


class Made:
    """What a run has of a step."""

    def __init__(self, function, needs, written):
        self.function, self.needs, self.written = function, needs, written
        # How many steps it still waits for, its result as it is passed on, and whether somebody was told that it has failed.
        self.open, self.future, self.is_seen = len(needs), Future(), False


class Places:
    """How many steps of a function may begin, and those that wait for that."""

    def __init__(self, free):
        self.free, self.waiting = free, collections.deque()


class Run:
    """A workflow that runs here, and the steps that it has made."""

    def __init__(self):
        self.steps, self.ways, self.places = [], {}, {}
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(STEPS_AT_ONCE, "sinew-step")
        self.is_over = False

    def step(self, function, arguments, named):
        name, needs = function._name(), []
        told = written((arguments, named), f"an argument of {name}", self.table(needs))
        with self.lock:
            if self.is_over:
                raise RuntimeError("this run is over")
            if self.ways.setdefault(name, function._options) != function._options:
                raise ValueError(f"{name} is run in two ways by one workflow; give the other one a name of its own")
            self.places.setdefault(name, Places(function._options.get("concurrency", CONCURRENCY)))
            number, made = len(self.steps), Made(function, needs, told)
            self.steps.append(made)
        if not needs:
            self.begin(number)
        for need in needs:
            self.steps[need].future.add_done_callback(lambda _, need=need: self.is_there(number, need))
        return Step(self, name, number)

    def table(self, needs):
        """How a step is written down among another one's arguments."""

        def place_of(step):
            if step._run is not self:
                raise TypeError(f"{step!r} is of an earlier run")
            if step.number not in needs:
                needs.append(step.number)
            return result_at, (step.number,)

        return {**copyreg.dispatch_table, Step: place_of, Isolated: lambda isolated: place_of(isolated.step)}

    def is_there(self, number, need):
        """One of the steps that it needs has ended: with the last of them it begins, and with the first that fails it has failed."""
        made = self.steps[number]
        failure = self.steps[need].future.exception()
        with self.lock:
            if self.is_over or made.open == 0:
                return
            made.open = 0 if failure else made.open - 1
            if failure:
                # Not at once: those that need this one in turn would be told deeper and deeper down the stack.
                self.pool.submit(made.future.set_exception, failure)
                return
            is_ready = made.open == 0
        if is_ready:
            self.begin(number)

    def begin(self, number):
        """Begins a step whose needs are there, when its function has a place for it."""
        places = self.places[self.steps[number].function._name()]
        with self.lock:
            if self.is_over:
                return
            if places.free == 0:
                places.waiting.append(number)
                return
            places.free -= 1
            self.pool.submit(self.run, number)

    def run(self, number):
        """Runs a step, and has the next one of its function take its place."""
        made = self.steps[number]
        outcome = self.outcome(number)
        places = self.places[made.function._name()]
        with self.lock:
            if places.waiting and not self.is_over:
                self.pool.submit(self.run, places.waiting.popleft())
            else:
                places.free += 1
        # It may have been given up meanwhile.
        with contextlib.suppress(InvalidStateError):
            if isinstance(outcome, StepError):
                made.future.set_exception(outcome)
            else:
                made.future.set_result(outcome)

    def outcome(self, number):
        """What becomes of a step: its result as it is passed on, or how it has failed."""
        made = self.steps[number]
        name, attempts = made.function._name(), 1 + made.function._options.get("retries", 0)
        for attempt in range(1, attempts + 1):
            try:
                return self.attempted(made, name)
            except BaseException as error:
                failure = error
            if self.is_over:
                break
        times = f" after {attempt} attempts" if attempt > 1 else ""
        told = StepError(name, number, f"step {number}, {name}, failed{times}: {traceback_of(failure)}")
        told.__cause__ = failure
        return told

    def attempted(self, made, name):
        # Threads may begin with the context of who has begun them.
        _current.set(None)
        _here.results = {need: self.steps[need].future.result() for need in made.needs}
        try:
            arguments, named = pickle.loads(made.written)
            result = made.function.__wrapped__(*arguments, **named)
            if hasattr(result, "__await__"):
                result = awaited(result)
            return written(result, f"what {name.rpartition('.')[2]} returned", copyreg.dispatch_table)
        finally:
            del _here.results

    def value(self, step, timeout):
        future = self.steps[step.number].future
        try:
            return pickle.loads(future.result(timeout))
        except FutureTimeout:
            if future.done():
                raise
            raise TimeoutError(f"{step!r} has no result after {timeout} s") from None
        except StepError as failure:
            raise self.told(failure, step.number) from failure.__cause__

    def told(self, failure, number):
        """A failure as whoever asks for a step hears of it: it may be that of one that the step needs."""
        self.steps[number].is_seen = self.steps[failure.step].is_seen = True
        of = "" if failure.step == number else f"step {number} needs it: "
        return StepError(self.steps[number].function._name(), number, of + failure.reason)

    def finish(self, result):
        """The workflow's result, with steps' results in their places, when all steps have ended."""
        result = resolved(result)
        # Also those that a thread of the workflow's makes meanwhile.
        for made in self.steps:
            wait([made.future])
        for number, made in enumerate(self.steps):
            failure = made.future.exception()
            if failure and failure.step == number and not made.is_seen:
                raise failure
        return result

    def close(self, waits=True):
        """Of what it has made, no more is begun; what runs is waited for, unless somebody wants to leave."""
        with self.lock:
            self.is_over = True
        self.pool.shutdown(wait=waits, cancel_futures=True)
        for number, made in enumerate(self.steps):
            with contextlib.suppress(InvalidStateError):
                made.future.set_exception(StepError(made.function._name(), number, "this run is over"))


def traceback_of(error):
    """As a node tells it: without the frames of this file, and those of an event loop that runs what is a step's."""
    trace = error.__traceback__
    while trace and is_foreign(trace.tb_frame):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error.with_traceback(trace), trace, limit=-16)
    told = f"{kind_name(type(error))}: {error}" if str(error) else kind_name(type(error))
    return f"{told}\n{''.join(lines).rstrip()}" if trace else told


def is_foreign(frame):
    return frame.f_globals is globals() or frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio"


def awaited(awaitable):
    import asyncio

    async def wait():
        return await awaitable

    return asyncio.run(wait())


def result_at(number):
    """In a step: the result of another one that is among its arguments; the same object wherever it is one of them."""
    value = _here.results[number]
    if isinstance(value, bytes):
        value = _here.results[number] = Read(pickle.loads(value))
    return value.value


class Read:
    """A result that a step has read."""

    def __init__(self, value):
        self.value = value


def workflow(body):
    """A function that runs here with its calls of functions as steps, and gives its result as a node does."""
    import functools

    @functools.wraps(body)
    def run(*arguments, **named):
        if is_within():
            return body(*arguments, **named)
        one, waits = Run(), True
        token = _current.set(one)
        try:
            result = body(*arguments, **named)
            if hasattr(result, "__await__") and not isinstance(result, Step):
                result = awaited(result)
            return one.finish(result)
        except KeyboardInterrupt:
            waits = False
            raise
        finally:
            _current.reset(token)
            one.close(waits)

    @functools.wraps(body)
    async def run_async(*arguments, **named):
        import asyncio

        if is_within():
            return await body(*arguments, **named)
        one, waits = Run(), True
        token = _current.set(one)
        try:
            result = await body(*arguments, **named)
            return await asyncio.to_thread(one.finish, result)
        except (KeyboardInterrupt, asyncio.CancelledError):
            waits = False
            raise
        finally:
            _current.reset(token)
            # Others of this event loop go on while steps end.
            await asyncio.to_thread(one.close) if waits else one.close(False)

    chosen = run_async if inspect.iscoroutinefunction(body) else run
    chosen.__sinew_workflow__ = True
    return chosen


def is_within():
    """In another workflow, or a step, a call of a workflow is an ordinary one."""
    return current_run() is not None or hasattr(_here, "results")


# ----------------------------------------------------------------- contexts


def local_context(
    *, request_id="00000000-0000-7000-8000-000000000000", function_name="local", function_version=1, timeout="60s",
    memory="256MiB", method="POST", path="/", query="", headers=None, route=None, params=None, scheme="http", client=None,
):  # fmt: skip
    """What a handler is given as its context, for a test. `headers` is a dict or pairs, of a CloudEvent with `ce-specversion`."""
    pairs = headers.items() if hasattr(headers, "items") else headers or ()
    sent = {"method": method, "path": path, "query": query, "headers": [(name.lower(), value) for name, value in pairs]}
    sent |= {"route": route, "params": dict(params or {}), "scheme": scheme, "client": client}
    deadline_ms = time.time() * 1000 + quantity(timeout, TIMES_MS, "timeout", "30s")
    call = {"request_id": request_id, "function": function_name, "version": function_version, "deadline_ms": deadline_ms}
    context = Context(b"", Head((call, sent)))
    context.memory_limit_in_mb = quantity(memory, UNITS, "memory", "512MiB", str.upper) >> 20
    return context
