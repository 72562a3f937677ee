# SPDX-License-Identifier: Apache-2.0
"""The adapter between the node and a user's Python handler.

The node runs this source as the module `function`, after a line `SETTINGS = {...}` (names and values are strings) and after
what stands beside it (`asgi.py`, `wsgi.py`, `reached.py`, `json_values.py`, `request.py`, `calls.py`, `steps.py`, `workflow.py`,
`http_event.py`), and calls `apply`. What a request, a result and a handler look like is said in `docs/spec/functions.md`, sections 5 to 7.

Invariants: all that can be found out before the first call is found out when
the module is loaded, so that a broken function fails to load; an exception
leaves this module with the user's frames only; nothing but the standard
library is imported, and what few handlers need (asyncio) only for those.
"""

import json
import os
import sys
import threading
import time
from binascii import a2b_base64

# Whoever prints a traceback leaves out the frames of this module (template.py).
__tracebackhide__ = True

RESULT_BYTES_MAX = 64 << 20
# Of a response that is sent in pieces, and of one piece; the first has the head.
STREAM_BYTES_MAX = 1 << 30
PIECE_BYTES_MAX = 64 << 10
# What has come of a response is kept for so many turns of the event loop, or until it is longer than this:
# less than may be sent before anybody takes it.
TURNS_AT_ONCE = 16
KEPT_BYTES_MAX = 128 << 10
# A function has 64 processes and threads, its libraries' among them.
THREADS_MAX = 32
NAMES_SHOWN_MAX = 8
STACK_FRAMES_MAX = 16
# The gateway writes these itself.
CONNECTION_HEADERS = frozenset(("connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"))
TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
CO_VARARGS, CO_COROUTINE = 0x04, 0x80

app_root = SETTINGS.get("app-root", "/app")  # noqa: F821
layers_root = SETTINGS.get("layers-root", "/layers")  # noqa: F821
timeout_ms = int(SETTINGS.get("timeout-ms", "60000"))  # noqa: F821
memory_mb = int(SETTINGS.get("memory-bytes", "0")) >> 20  # noqa: F821
calls_at_once = int(SETTINGS.get("requests-per-instance", "1"))  # noqa: F821


# ------------------------------------------------------------------ results

def framed(status, headers):
    """Everything of a result before its body."""
    head = json.dumps({"status": status, "headers": headers}, separators=(",", ":")).encode()
    # What a server says of itself may pass: nobody shall remember it.
    passing = 0x80000000 if status >= 500 else 0
    return (len(head) | passing).to_bytes(4, "little") + head


JSON_FRAME = framed(200, [["content-type", "application/json"]])
TEXT_FRAME = framed(200, [["content-type", "text/plain; charset=utf-8"]])
BYTES_FRAME = framed(200, [["content-type", "application/octet-stream"]])
EVENT_FRAME = framed(200, [["content-type", "application/cloudevents+json"]])
NOTHING = framed(204, [])
# What makes a dict a CloudEvent.
EVENT_ATTRIBUTES = {"specversion", "id", "source", "type"}


def answer(result):
    """The blob that stands for what an event handler returned."""
    if isinstance(result, dict):
        if "statusCode" in result:
            return proxy_answer(result)
        if EVENT_ATTRIBUTES <= result.keys():
            return EVENT_FRAME + json_bytes(result, "the result")
    elif isinstance(result, str):
        return TEXT_FRAME + utf8(result)
    elif result is None:
        return NOTHING
    elif isinstance(result, (bytes, bytearray, memoryview)):
        return BYTES_FRAME + bytes(result)
    return JSON_FRAME + json_bytes(result, "the result")


def value_answer(result):
    """The blob that stands for a returned value itself, as JSON: what Lambda's clients are answered."""
    return JSON_FRAME + json_bytes(result, "the result")


def proxy_answer(result):
    """An answer in the form of Lambda's proxy integration."""
    status = checked_status(result["statusCode"])
    headers = []
    for name, value in {**(result.get("headers") or {}), **(result.get("multiValueHeaders") or {})}.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            add_header(headers, name, one)
    for cookie in result.get("cookies") or []:
        add_header(headers, "set-cookie", cookie)
    body, kind = proxy_body(result)
    if kind and not any(name == "content-type" for name, _ in headers):
        headers.append(["content-type", kind])
    return framed(status, headers) + body


def proxy_body(result):
    """The bytes of a body, and the content type that it has if no header says so."""
    body = result.get("body")
    if body is None:
        return b"", None
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), "application/octet-stream"
    if not isinstance(body, str):
        return json_bytes(body, "the result['body']"), "application/json"
    if not result.get("isBase64Encoded"):
        return utf8(body), "application/json"
    try:
        return a2b_base64(body, strict_mode=True), "application/octet-stream"
    except ValueError as error:
        raise ValueError(f"the result's body is no base64, though isBase64Encoded is set: {error}") from None


def checked_status(status):
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status[:4])
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise ValueError(f"the result's status is {status!r}; it must be a number from 200 to 599")
    return int(status)


def add_header(headers, name, value):
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"the header {name!r} is a {kind_name(type(value))}; it must be a string")
    lower, text = str(name).lower(), str(value).strip(" \t")
    if not lower or not TOKEN.issuperset(lower):
        raise ValueError(f"{name!r} cannot be a header's name")
    if any(mark in text for mark in "\r\n\0"):
        raise ValueError(f"the header {name!r} has a line break or a NUL in its value")
    if lower not in CONNECTION_HEADERS:
        headers.append([lower, text])


def install_sinew():
    """The module `sinew`, for functions to import."""
    module = type(sys)("sinew", "What a function may ask of the node that it runs on.")
    for member in (call, call_async, CallError, Context, Http, function, workflow, Function, Step, StepError, isolated, result_at, sent, image_at, image_has, opened_at, opened_has, booster_at, booster_has,
                   tree_at):  # fmt: skip
        setattr(module, member.__name__, member)
        # As it is known to whoever reads what has it in it.
        member.__module__ = "sinew"
    sys.modules["sinew"] = module


# ----------------------------------------------------------------- handlers


class Parameters:
    """The parameters that a callable takes by position."""

    def __init__(self, names, required, is_endless):
        self.names, self.required = names, required
        self.most = 1 << 16 if is_endless else len(names)

    @property
    def are_asgi(self):
        return self.names[:3] == ["scope", "receive", "send"] and self.required <= 3

    @property
    def are_wsgi(self):
        # By position: some name them otherwise, but all begin so.
        environ, start_response = (*self.names, "", "")[:2]
        return environ.startswith("env") and start_response.startswith("start_resp") and self.required <= 2


def parameters_of(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is not None and not isinstance(function, type):
        # A plain function or a bound method: without `inspect`, which takes long to import.
        bound = 1 if getattr(function, "__self__", None) is not None else 0
        names = list(code.co_varnames[bound : code.co_argcount])
        required = len(names) - len(function.__defaults__ or ())
        return Parameters(names, required, code.co_flags & CO_VARARGS)
    import inspect

    try:
        listed = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Parameters([], 0, True)
    places = [one for one in listed if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = sum(one.default is one.empty for one in places)
    return Parameters([one.name for one in places], required, any(one.kind == one.VAR_POSITIONAL for one in listed))


def adapted(handler, name):
    """A function from request, head and body to a result."""
    if not callable(handler):
        raise TypeError(f"the handler {name} is a {kind_name(type(handler))}, which cannot be called")
    takes = parameters_of(handler)
    if isinstance(handler, type) and not takes.are_asgi:
        if parameters_of(handler.__call__).names[1:4] != ["scope", "receive", "send"]:
            raise TypeError(f"the handler {name} is a class; name a function, or an ASGI or WSGI application")
        handler = handler()
        takes = parameters_of(handler)
    wants_http = SETTINGS.get("event") == "http"  # noqa: F821
    is_application = takes.are_asgi or takes.are_wsgi
    if wants_http and is_application:
        raise TypeError(f"the handler {name} is an application, which is given the request itself; remove event = \"http\"")
    if takes.are_asgi:
        return asgi(handler)
    if calls_at_once > THREADS_MAX and not is_awaited(handler):
        why = f"each of its requests has a thread: at most {THREADS_MAX} of requests-per-instance, or make it a coroutine"
        raise ValueError(f"the handler {name} is no coroutine, so that {why}")
    if takes.are_wsgi:
        return wsgi(handler)
    if SETTINGS.get("body") == "stream":  # noqa: F821
        why = "takes an event, which is a whole body; remove body = \"stream\", or make it an ASGI or WSGI application"
        raise TypeError(f"the handler {name} {why}")
    if takes.most == 0 or takes.required > 2:
        names = ", ".join(takes.names)
        raise TypeError(f"the handler {name} takes ({names}); it must take (event), (event, context), or be ASGI or WSGI")
    is_main = name.rpartition(".")[2] == "main" and takes.required < 2 and not wants_http
    return event_handler(handler, is_main, wants_http, with_context=takes.most > 1 and not is_main)


def event_handler(handler, is_main, wants_http, with_context):
    def begin(request, head, body):
        """What the handler gives, and how it is told."""
        head = Head(head)
        source = head.call.get("source")
        # Whoever calls it in another way says what its event is.
        is_http = wants_http and source == "http"
        event = http_event(head, body) if is_http else event_of(body, head.content_type)  # noqa: F821
        if is_main:
            event = arguments_of(event, head)
        result = handler(event, Context(request, head)) if with_context else handler(event)
        return result, value_answer if source == "lambda" else answer

    async def awaited(request, head, body):
        try:
            result, told = begin(request, head, body)
            if hasattr(result, "__await__"):
                result = await result
        except BaseException as error:
            raise users_part(error)  # noqa: B904
        return told(result)

    def apply(request, head, body):
        try:
            result, told = begin(request, head, body)
            if hasattr(result, "__await__"):
                result = awaited_here(result)
        except BaseException as error:
            raise users_part(error)  # noqa: B904
        return told(result)

    if not is_awaited(handler):
        return apply
    event_loop()
    apply.awaited, apply.event_loop = awaited, event_loop
    return apply


def is_awaited(handler):
    """Whether calling it gives a coroutine, as far as it shows."""
    # What wraps one may wait for it itself, so that it is not looked through.
    code = getattr(getattr(handler, "func", handler), "__code__", None) or getattr(getattr(type(handler), "__call__", None), "__code__", None)
    return code is not None and code.co_flags & CO_COROUTINE != 0


def arguments_of(event, head):
    """What `main(args)` gets: always a dict. The body wins over the path, and that over the query."""
    if isinstance(event, str) and head.content_type.startswith(FORM):
        event = dict(pairs_of(event))
    if not isinstance(event, dict):
        event = {"body": event}
    query, params = head.http.get("query"), head.http.get("params")
    if not (query or params):
        return event
    return {**dict(pairs_of(query or "")), **dict(params or ()), **event}


def users_part(error):
    """The exception without the frames that are not the user's."""
    trace = error.__traceback__
    while trace and is_foreign(trace.tb_frame):
        trace = trace.tb_next
    return error.with_traceback(trace)


def is_foreign(frame):
    if frame.f_globals is globals():
        return True
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("asyncio", "importlib")


# -------------------------------------------------------------------- async

# An event loop is a thread's own.
_loops = threading.local()


def event_loop():
    loop = getattr(_loops, "loop", None)
    if loop is None:
        import asyncio

        loop = _loops.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def awaited_here(awaitable):
    async def wait():
        return await awaitable

    return event_loop().run_until_complete(wait())


def on_loop(awaited):
    """The same as a function that waits, of which callers that have an event loop use the coroutine."""

    def apply(request, head, body):
        try:
            return event_loop().run_until_complete(awaited(request, head, body))
        except BaseException as error:
            raise users_part(error)  # noqa: B904

    apply.awaited, apply.event_loop = awaited, event_loop
    return apply


# ------------------------------------------------------------------ loading


def load(settings):
    """Makes the user's module, and the `apply` that calls its handler."""
    name = settings.get("handler", "main.handler")
    module_name, attribute = parts_of(name)
    for key, value in settings.items():
        if key.startswith("env."):
            os.environ[key[4:]] = value
    layers = [os.path.join(layers_root, str(at)) for at in range(int(settings.get("layers", "0")))]
    # A template that has loaded modules from layers knows these already.
    sys.path[:] = [app_root, *layers, *(place for place in sys.path if place not in layers)]
    os.chdir(app_root)
    not_own.update(sys.modules)
    # A module of the user's may have this one's name.
    if getattr(sys.modules.get(__name__), "SETTINGS", None) is settings:
        del sys.modules[__name__]
    install_sinew()
    part = settings.get("part")
    # Of this module's functions one is a step of every workflow.
    module = sys.modules["sinew"] if (part, name) == ("step", "sinew.sent") else imported(module_name)
    handler = member(module, module_name, attribute)
    if part == "step":
        return step_applied(handler, attribute)
    return adapted(in_run(handler) if part == "workflow" else handler, name)


# Modules that were there before the user's.
not_own = set()


def parts_of(name):
    """Module and name of a handler."""
    module_name, _, attribute = name.replace("/", ".").rpartition(".")
    if not module_name or not attribute:
        raise ValueError(f"the handler {name!r} is not of the form module.name, like main.handler")
    return module_name, attribute


def apply_of(name):
    """The `apply` of another handler of the same code, which is called while this one's runs."""
    module_name, attribute = parts_of(name)
    called = adapted(member(own_module(module_name), module_name, attribute), name)
    return called if getattr(called, "awaited", None) is None else apart(called)


def own_module(name):
    """A module of the user's. Mostly it is there already."""
    own = None if name in not_own else sys.modules.get(name)
    return own or imported(name)


def apart(called):
    """The same for what needs an event loop: in a thread of its own where that of this thread runs."""

    def apply(request, head, body):
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or asyncio._get_running_loop() is None:
            return called(request, head, body)
        import contextvars
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as one:
            return one.submit(contextvars.copy_context().run, called, request, head, body).result()

    apply.awaited = called.awaited
    return apply


def imported(name):
    if name in sys.modules:
        raise ImportError(f"{name} is a module of Python's own; give the function's file another name")
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        there = sorted(entry for entry in os.listdir(app_root) if not entry.startswith((".", "__pycache__")))
        listed = ", ".join(there[:NAMES_SHOWN_MAX]) + (", …" if len(there) > NAMES_SHOWN_MAX else "")
        text = f"no module {name!r}: the code has no {name.replace('.', '/')}.py; it has: {listed or 'nothing'}"
        raise ModuleNotFoundError(text, name=name) from None
    return sys.modules[name]


def member(module, module_name, attribute):
    if hasattr(module, attribute):
        return getattr(module, attribute)
    own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    listed = ", ".join(own[:NAMES_SHOWN_MAX]) or "nothing that can be called"
    raise AttributeError(f"the module {module_name} has no {attribute!r}; it defines: {listed}")


try:
    apply = load(SETTINGS)  # noqa: F821
except BaseException as error:
    raise users_part(error)  # noqa: B904
