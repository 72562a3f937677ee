# SPDX-License-Identifier: Apache-2.0
"""Tests of `asgi.py` and `function.py`, run as the template runs them: their source,
preceded by a line with the settings, as the module `function`."""

import ast
import asyncio
import base64
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import time
import traceback
import types
import unittest

HERE = pathlib.Path(__file__).parent
# What the node puts before the adapter's own text, and that.
PARTS = (
    "asgi.py", "wsgi.py", "reached.py", "json_values.py", "request.py", "calls.py", "steps.py", "workflow.py", "http_event.py", "function.py",
)  # fmt: skip
ADAPTER = "".join((HERE / name).read_text() for name in PARTS)
# What the node puts before the template's own text.
TEMPLATE = (
    "lines.py", "failures.py", "channel.py", "output.py", "within.py", "callees.py", "at_once.py", "shared.py", "turns.py", "rest.py", "images.py", "models.py", "heap.py", "owned.py", "followers.py",
)  # fmt: skip
ID = bytes(range(16))


HTTP = ("method", "path", "query", "headers", "route", "params", "client", "scheme")


def head_of(**head):
    """The two lines of a head."""
    http = {name: head.pop(name) for name in HTTP if name in head}
    kinds = [value for name, value in http.get("headers", ()) if name == "content-type"]
    call = {**head, "content_type": kinds[0]} if kinds else head
    return json.dumps(call).encode() + b"\n" + json.dumps(http).encode()


class Function:
    """A function of some files, in this process."""

    def __init__(self, files, settings, layers):
        self.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(self.folder.name)
        for place, contents in [(root / "app", files), *((root / "layers" / str(at), one) for at, one in enumerate(layers))]:
            place.mkdir(parents=True)
            for name, text in contents.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(textwrap.dedent(text))
        self.settings = {
            "handler": "main.handler", "layers": str(len(layers)), "memory-bytes": str(64 << 20),
            "app-root": str(root / "app"), "layers-root": str(root / "layers"), **settings,
        }  # fmt: skip
        self.before = (os.getcwd(), sys.path[:], dict(os.environ), dict(sys.modules))

    def load(self):
        module = self.module = types.ModuleType("function")
        module.__file__ = "function.py"
        # What the template gives it: pieces of an answer, and how many it takes now.
        self.sent, self.room, self.waits = [], 1 << 30, 0
        module.exchange = lambda: self
        self.told = []
        module.share, module.tell_phases = lambda parts: None, self.told.append
        libraries = types.ModuleType("libraries")
        for name in ("images.py", "models.py"):
            exec((HERE / name).read_text(), libraries.__dict__)
        for name in ("reducing", "image_at", "image_has", "opened_at", "opened_has", "booster_at", "booster_has", "tree_at"):
            setattr(module, name, getattr(libraries, name))
        # And pieces of a body, of which None has to be waited for.
        self.coming, self.body_waits, self.on_left = [], 0, []
        sys.modules["function"] = module
        source = f"SETTINGS = {self.settings!r}\n{ADAPTER}"
        exec(compile(source, "function.py", "exec", dont_inherit=True), module.__dict__)
        self.apply = module.apply
        return self

    def stream(self, piece):
        if len(piece) > self.room:
            return False
        self.room -= len(piece)
        self.sent.append(piece)
        return True

    def take_body(self):
        piece = self.coming.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def wait_for_body(self):
        self.body_waits += 1

    async def body_comes(self):
        self.wait_for_body()

    def wait_for_room(self, size):
        self.waits += 1
        self.room += size

    def when_left(self, then):
        self.on_left.append(then)

    async def room_comes(self, size):
        self.wait_for_room(size)

    def close(self):
        if loop := getattr(self.module._loops, "loop", None):
            for task in asyncio.all_tasks(loop):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)
            loop.close()
        cwd, path, environ, modules = self.before
        os.chdir(cwd)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environ)
        for name in set(sys.modules) - set(modules):
            del sys.modules[name]
        self.folder.cleanup()

    def raw(self, body=b"", /, **head):
        """Status, headers and body of the answer to a request."""
        if isinstance(body, str):
            body = body.encode()
        encoded = head_of(**head) if head else b""
        self.sent = []
        result = self.apply(ID, encoded, body)
        assert isinstance(result, bytes)
        assert not (self.sent and result), "after pieces nothing is left"
        result = b"".join(self.sent) or result
        # The highest bit says that nobody shall remember the answer.
        length = int.from_bytes(result[:4], "little")
        end = 4 + (length & 0x7FFFFFFF)
        head = json.loads(result[4:end])
        assert (length >> 31 == 1) == (head["status"] >= 500), "what a server says of itself passes"
        return head["status"], head["headers"], result[end:]

    def __call__(self, body=b"", /, **head):
        return self.raw(body, **head)[2].decode()


class Case(unittest.TestCase):
    maxDiff = None

    def function(self, source, settings={}, layers=(), **files):
        # One at a time: they share this process's modules.
        self.doCleanups()
        function = Function({"main.py": source, **files}, settings, layers)
        self.addCleanup(function.close)
        loaded = function.load()
        # Of the template: nothing is mapped here.
        function.module.hand_over = lambda box, given=None: None
        return loaded

    def caught(self, kind, pattern, call, *arguments, **more):
        """An exception with its traceback, which `assertRaises` takes away."""
        try:
            call(*arguments, **more)
        except kind as error:
            self.assertRegex(str(error), pattern)
            return error
        self.fail(f"no {kind.__name__} was raised")

    def fails(self, source, pattern, kind=Exception, settings={}, **files):
        return self.caught(kind, pattern, self.function, source, settings, **files)

    def frames(self, error):
        """Names of the functions in a traceback, below this file."""
        entries = traceback.extract_tb(error.__traceback__)
        return [entry.name for entry in entries if entry.filename not in (__file__, "function.py")]


def typed(kind, **more):
    return {"headers": [["content-type", kind]], **more}


class Events(Case):
    def test_what_the_body_becomes(self):
        function = self.function("def handler(event): return repr(event)")
        for body, head, expected in [
            (b"", {}, {}),
            (b'{"a": 1}', {}, {"a": 1}),
            (b'\xef\xbb\xbf{"a": 1}', {}, {"a": 1}),
            (b" [1, 2.5, null]", {}, [1, 2.5, None]),
            (b"7", {}, 7),
            (b'{"a"', {}, '{"a"'),
            ("grüße", {}, "grüße"),
            (b"\xff\x00", {}, b"\xff\x00"),
            (b'{"a": 1}', typed("application/json; charset=utf-8"), {"a": 1}),
            (b'{"a": 1}', typed("application/cloudevents+json"), {"a": 1}),
            (b"{", typed("application/json"), "{"),
            (b'{"a": 1}', typed("text/plain"), '{"a": 1}'),
            (b"gr\xfc\xdfe", typed("text/plain; charset=latin-1"), "grüße"),
            (b"gr\xfc\xdfe", typed("text/plain"), b"gr\xfc\xdfe"),
            (b"x", typed("text/plain; charset=nonsense"), b"x"),
            (b'{"a": 1}', typed("application/octet-stream"), b'{"a": 1}'),
            (b"<a/>", typed("image/svg+xml"), "<a/>"),
            (b"a=1&b=2", typed("application/x-www-form-urlencoded"), "a=1&b=2"),
            (b'{"a": 1}', typed("application/x-www-form-urlencoded"), {"a": 1}),
            (b"[" * 100_000, {}, "[" * 100_000),
        ]:
            with self.subTest(body=body[:30], head=head):
                self.assertEqual(function(body, **head), repr(expected))

    def test_the_event_is_the_request_where_that_is_wanted(self):
        function = self.function("def handler(event): return event", {"event": "http"})
        head = {"source": "http", "method": "PUT", "path": "/a", "query": "b=1&b=2"}
        event = json.loads(function(b"text", **head, headers=[["cookie", "c=1; d"], ["host", "a.b:1"]]))
        told = [event[name] for name in ("version", "rawPath", "queryStringParameters", "cookies")]
        self.assertEqual(told, ["2.0", "/a", {"b": "1,2"}, ["c=1", "d"]])
        self.assertEqual([event["body"], event["isBase64Encoded"]], ["text", False])
        self.assertEqual(event["requestContext"]["domainName"], "a.b")
        event = json.loads(function(b"\xff", **head))
        self.assertEqual([event["body"], event["isBase64Encoded"]], ["/w==", True])
        event = json.loads(function(b"{}", **head, headers=[["content-type", "application/json"]]))
        self.assertEqual([event["body"], event["isBase64Encoded"]], ["{}", False])
        for source in ("call", "lambda", "event"):
            self.assertEqual(json.loads(function(b'{"own": 1}', source=source)), {"own": 1})
        for source in (ASGI, "def handler(environ, start_response): pass"):
            with self.assertRaisesRegex(TypeError, 'remove event = "http"'):
                self.function(source, {"event": "http"})

    def test_a_context_tells_of_the_call(self):
        function = self.function(
            """
            def handler(event, context):
                left = context.get_remaining_time_in_millis()
                http = context.http
                return [context.request_id, context.aws_request_id, context.function_name, context.function_version,
                        context.memory_limit_in_mb, 0 < left <= 5000, http.method, http.path, http.query,
                        http.query_string, http.headers]
            """
        )
        headers = [["a", "1"], ["b", "2"], ["a", "3"], ["cookie", "x=1"], ["cookie", "y=2"]]
        answer = function(
            method="PUT", path="/x", query="q=1&r=%20&q=2", headers=headers, request_id="id", function="hello",
            version=7, deadline_ms=int(time.time() * 1000) + 5000, source="http",
        )  # fmt: skip
        self.assertEqual(
            json.loads(answer),
            ["id", "id", "hello", 7, 64, True, "PUT", "/x", {"q": "2", "r": " "}, "q=1&r=%20&q=2",
             {"a": "1, 3", "b": "2", "cookie": "x=1; y=2"}],
        )  # fmt: skip

    def test_a_context_without_a_head(self):
        source = "def handler(event, context): return [context.request_id, context.get_remaining_time_in_millis()]"
        identity, left = json.loads(self.function(source, {"timeout-ms": "5000"})())
        self.assertEqual(identity, "00010203-0405-0607-0809-0a0b0c0d0e0f")
        self.assertTrue(0 < left <= 5000)

    def test_main_gets_a_dict(self):
        function = self.function("def main(args): return args", {"handler": "main.main"})
        form = typed("application/x-www-form-urlencoded")
        for body, head, expected in [
            (b"", {}, {}),
            (b'{"name": "Ada"}', {}, {"name": "Ada"}),
            (b'{"name": "Ada"}', {"query": "name=Bob&n=1"}, {"name": "Ada", "n": "1"}),
            (b"name=Ada&x=", form, {"name": "Ada", "x": ""}),
            (b"[1]", {}, {"body": [1]}),
        ]:
            with self.subTest(body=body):
                self.assertEqual(json.loads(function(body, **head)), expected)


class Answers(Case):
    def answer(self, expression):
        return self.function(f"def handler(event):\n    return {expression}").raw()

    def test_what_a_handler_returns(self):
        as_json, as_text = [["content-type", "application/json"]], [["content-type", "text/plain; charset=utf-8"]]
        as_bytes = [["content-type", "application/octet-stream"]]
        for expression, expected in [
            ("{'a': [1, None, True, 0.5, 'ü']}", (200, as_json, '{"a":[1,null,true,0.5,"ü"]}'.encode())),
            ("[]", (200, as_json, b"[]")),
            ("(1, 2)", (200, as_json, b"[1,2]")),
            ("{1: 2}", (200, as_json, b'{"1":2}')),
            ("False", (200, as_json, b"false")),
            ("7", (200, as_json, b"7")),
            ("['\\ud800']", (200, as_json, b'["\\ud800"]')),
            ("'grüße'", (200, as_text, "grüße".encode())),
            ("''", (200, as_text, b"")),
            ("b'\\xff'", (200, as_bytes, b"\xff")),
            ("bytearray(b'ab')", (200, as_bytes, b"ab")),
            ("memoryview(b'ab')", (200, as_bytes, b"ab")),
            ("None", (204, [], b"")),
            ("{'statusCode': 404}", (404, [], b"")),
            ("{'statusCode': '201', 'body': 'x'}", (201, as_json, b"x")),
            ("{'statusCode': 200, 'body': {'a': 1}}", (200, as_json, b'{"a":1}')),
            ("{'statusCode': 200, 'body': b'x'}", (200, as_bytes, b"x")),
            ("{'statusCode': 200, 'body': 'x', 'headers': {'Content-Type': 'text/html'}}",
             (200, [["content-type", "text/html"]], b"x")),
            ("{'statusCode': 302, 'headers': {'Location': '/', 'X-N': 1, 'Content-Length': '9'}}",
             (302, [["location", "/"], ["x-n", "1"]], b"")),
            ("{'statusCode': 200, 'multiValueHeaders': {'A': ['1', '2']}, 'cookies': ['c=1', 'd=2']}",
             (200, [["a", "1"], ["a", "2"], ["set-cookie", "c=1"], ["set-cookie", "d=2"]], b"")),
            (f"{{'statusCode': 200, 'isBase64Encoded': True, 'body': {base64.b64encode(b'abc').decode()!r}}}",
             (200, as_bytes, b"abc")),
        ]:  # fmt: skip
            with self.subTest(expression):
                self.assertEqual(self.answer(expression), expected)

    def test_what_cannot_be_an_answer(self):
        for expression, pattern in [
            ("{'a': [1, {'b': {1}}]}", r"the result\['a'\]\[1\]\['b'\] cannot .*: it is a set; return"),
            ("object()", "the result cannot be written as JSON: it is a object"),
            ("{'t': __import__('datetime').date(2020, 1, 1)}", r"\['t'\] .* it is a datetime.date"),
            ("{(1, 2): 3}", "a key of it is a tuple"),
            ("[float('nan')]", r"the result\[0\] .*nan is no finite number"),
            ("(lambda a: a.append(a) or a)([])", r"the result\[0\] .* contains itself"),
            ("(x for x in [])", "it is a generator"),
            ("{'statusCode': 99}", "status is 99"),
            ("{'statusCode': True}", "status is True"),
            ("{'statusCode': 'ok'}", "status is 'ok'"),
            ("{'statusCode': 200, 'body': {'a': {1}}}", r"the result\['body'\]\['a'\] cannot"),
            ("{'statusCode': 200, 'isBase64Encoded': True, 'body': '?'}", "no base64"),
            ("{'statusCode': 200, 'headers': {'a': 'x\\r\\nb: y'}}", "line break"),
            ("{'statusCode': 200, 'headers': {'a b': 'x'}}", "cannot be a header's name"),
            ("{'statusCode': 200, 'headers': {'a': None}}", "header 'a' is a NoneType"),
        ]:
            with self.subTest(expression), self.assertRaisesRegex((TypeError, ValueError), pattern):
                self.answer(expression)


class Kinds(Case):
    def test_ways_to_write_a_handler(self):
        for source in [
            "def handler(event, context): return context.request_id and event",
            "def handler(event, context=None): return context.request_id and event",
            "def handler(event): return event",
            "def handler(*all): return all[1].request_id and all[0]",
            "async def handler(event, context): return event",
            "import asyncio\nasync def handler(event):\n    await asyncio.sleep(0)\n    return event",
            "async def inner(event): return event\ndef handler(event): return inner(event)",
            "handler = lambda event: event",
            "class C:\n    def __call__(self, event, context): return event\nhandler = C()",
            "class C:\n    def m(self, event): return event\nhandler = C().m",
            "import functools\ndef outer(event, more): return event\nhandler = functools.partial(outer, more=1)",
            "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(*a): return f(*a)\n    return g\n"
            "@d\ndef handler(event): return event",
        ]:
            with self.subTest(source):
                function = self.function(source)
                for _ in range(2):
                    self.assertEqual(function(b'{"a":1}'), '{"a":1}')

    def test_what_is_no_handler(self):
        for source, pattern in [
            ("handler = 7", "main.handler is a int, which cannot be called"),
            ("def handler(): pass", r"takes \(\); it must take \(event\)"),
            ("def handler(a, b, c): pass", r"takes \(a, b, c\)"),
            ("class handler: pass", "is a class"),
            ("def other(): pass\ndef third(): pass", "module main has no 'handler'; it defines: other, third"),
        ]:
            with self.subTest(source):
                self.fails(source, pattern)

    def test_where_a_handler_is(self):
        for setting, name in [("pkg.web.run", "pkg/web.py"), ("src/app.run", "src/app.py"), ("function.run", "function.py")]:
            with self.subTest(setting):
                files = {name: "def run(event): return __name__"}
                self.assertEqual(self.function("", {"handler": setting}, **files)(), name[:-3].replace("/", "."))
        self.fails("", "'handler' is not of the form", settings={"handler": "handler"})
        self.fails("", "no module 'app': the code has no app.py; it has: main.py", settings={"handler": "app.handler"})
        self.fails("", "json is a module of Python's own", settings={"handler": "json.dumps"})


ASGI = """
async def handler(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["greeting"] = "hello"
        await send({"type": "lifespan.startup.complete"})
        return await receive()
    body = (await receive())["body"]
    text = repr([scope["method"], scope["path"], scope["raw_path"], scope["query_string"], scope["headers"],
                 scope["state"], body])
    await send({"type": "http.response.start", "status": 201, "headers": [(b"X-A", b"\\xfc"), (b"x-a", b"2")]})
    for piece in text:
        await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
    await send({"type": "http.response.body"})
"""


class Asgi(Case):
    def test_a_request_and_its_answer(self):
        function = self.function(ASGI)
        for _ in range(2):
            answer = function.raw(b"in", method="PUT", path="/a%20b", query="q=1", headers=[["h", "v"]])
            text = repr(["PUT", "/a b", b"/a%20b", b"q=1", [(b"h", b"v")], {"greeting": "hello"}, b"in"])
            self.assertEqual(answer, (201, [["x-a", "ü"], ["x-a", "2"]], text.encode()))

    def test_an_application_is_told_where_it_is_mounted(self):
        source = """
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await send({"type": "http.response.start", "status": 200})
                told = [scope["root_path"], scope["path"], scope["raw_path"].decode()]
                await send({"type": "http.response.body", "body": repr(told).encode()})
            """
        function = self.function(source)
        told = repr(["/function/f", "/function/f/a b", "/function/f/a%20b"])
        self.assertEqual(function(function="f", path="/a%20b"), told)
        self.assertEqual(function(function="f", path="/x/1", route="/x/{n}", params=[]), repr(["", "/x/1", "/x/1"]))

    def test_headers_are_the_bytes_that_came(self):
        source = """
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": dict(scope["headers"])[b"cookie"]})
            """
        self.assertEqual(self.function(source)(headers=[["cookie", "a=é✓"]]), "a=é✓")

    def test_an_application_is_told_who_asks(self):
        source = """
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": repr([scope["client"], scope["scheme"]]).encode()})
            """
        function = self.function(source)
        self.assertEqual(function(path="/", client="2001:db8::7", scheme="https"), "[('2001:db8::7', 0), 'https']")
        self.assertEqual(function(path="/"), "[None, 'http']")
        event = self.function("def handler(event, context): return [context.http.client, context.http.scheme]")
        self.assertEqual(event(path="/", client="192.0.2.7", scheme="https"), '["192.0.2.7","https"]')
        self.assertEqual(event(path="/"), '[null,"http"]')

    def test_objects_and_classes(self):
        send = (
            "        await send({'type': 'http.response.start', 'status': 200})\n"
            "        await send({'type': 'http.response.body', 'body': b'ok'})\n"
        )
        call = "    async def __call__(self, scope, receive, send):\n" + send
        lone = (
            "    def __init__(self, scope, receive, send): self.send = send\n    def __await__(self):\n"
            "        return self.run(self.send).__await__()\n    async def run(self, send):\n" + send
        )
        for source in [f"class App:\n{call}\nhandler = App()", f"class handler:\n{call}", f"class handler:\n{lone}"]:
            with self.subTest(source):
                # Applications that know no lifespan raise or send the wrong messages.
                self.assertEqual(self.function(source)(), "ok")

    def test_listening_for_disconnection_does_not_end_a_stream(self):
        source = """
            import asyncio
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await receive()
                async def stream():
                    await send({"type": "http.response.start", "status": 200})
                    for _ in range(3):
                        await asyncio.sleep(0)
                        await send({"type": "http.response.body", "body": b"x", "more_body": True})
                    await send({"type": "http.response.body"})
                tasks = [asyncio.ensure_future(stream()), asyncio.ensure_future(receive())]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            """
        self.assertEqual(self.function(source)(), "xxx")

    def test_what_comes_after_an_answer_is_not_waited_for(self):
        source = """
            import asyncio
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                size = int(scope["query_string"] or 2)
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": b"x" * size})
                for _ in range(0 if scope["path"] == "/quick" else 100):
                    await asyncio.sleep(0)
                print("went on")
                if scope["path"] == "/fails":
                    raise ValueError("too late")
            """
        function = self.function(source)
        for path in ["/", "/fails", "/quick"]:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                self.assertEqual(function(path=path), "xx")
            self.assertIn("went on", printed.getvalue())
            self.assertEqual("ValueError: too late" in printed.getvalue(), path == "/fails")
            # That it is whole is an empty piece; where nothing goes on it comes at once.
            told = [] if path == "/quick" else [b"xx", b""]
            self.assertEqual([piece[-2:] for piece in function.sent], told)
        # What there is no room for now is sent, whatever ends first.
        function.room = 100 << 10
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(function(path="/", query=str(300 << 10)), "x" * (300 << 10))
        self.assertGreater(function.waits, 0)

    READER = """
        async def handler(scope, receive, send):
            assert scope["type"] == "http"
            heard = []
            while True:
                message = await receive()
                heard.append(message.get("body", message["type"]))
                if not message.get("more_body"):
                    break
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": repr(heard).encode()})
        """

    def test_a_client_that_is_known_to_have_left_is_a_disconnection(self):
        source = """
            import asyncio
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await receive()
                heard = asyncio.ensure_future(receive())
                await asyncio.sleep(0)
                await send({"type": "http.response.start", "status": 200})
                left[0]()
                await send({"type": "http.response.body", "body": (await heard)["type"].encode()})
            """
        function = self.function(source)
        sys.modules["main"].left = function.on_left
        self.assertEqual(function(), "http.disconnect")
        self.assertEqual(len(function.on_left), 1, "who listens again is not told twice")

    def test_what_is_short_by_its_own_word_is_waited_for(self):
        source = """
            import asyncio
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                count = int(scope["query_string"])
                length = [(b"content-length", b"%d" % (1000 * count))] if scope["path"] == "/told" else []
                await send({"type": "http.response.start", "status": 200, "headers": length})
                for _ in range(count):
                    await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
                    for _ in range(100):
                        await asyncio.sleep(0)
                await send({"type": "http.response.body"})
            """
        function = self.function(source)
        for path, count, sent in [("/told", 3, 0), ("/untold", 3, 3), ("/told", 200, 200)]:
            self.assertEqual(function(path=path, query=str(count)), "x" * (1000 * count))
            self.assertEqual(len(function.sent), sent, path)

    def test_a_body_is_received_while_it_comes(self):
        function = self.function(self.READER, {"body": "stream"})
        function.coming = [b"one", None, None, b"two", b""]
        self.assertEqual(function(body="stream"), repr([b"one", b"two", b""]))
        self.assertEqual((function.body_waits, function.coming), (2, []))
        self.assertEqual(function("whole"), repr([b"whole"]), "what is short comes at once")

    def test_a_body_that_breaks_off_is_a_disconnection(self):
        function = self.function(self.READER, {"body": "stream"})
        function.coming = [b"one", ConnectionResetError("left")]
        self.assertEqual(function(body="stream"), repr([b"one", "http.disconnect"]))

    def test_an_event_is_a_whole_body(self):
        with self.assertRaisesRegex(TypeError, "takes an event, which is a whole body"):
            self.function("def handler(event): return 1", {"body": "stream"})

    STREAM = """
        import asyncio

        async def handler(scope, receive, send):
            assert scope["type"] == "http"
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            for piece in PIECES:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            await send({"type": "http.response.body"})
        """

    def streaming(self, pieces, headers=(), turns=20):
        named = f"PIECES, HEADERS, TURNS = {pieces}, {headers!r}, {turns}\n"
        return self.function(named + textwrap.dedent(self.STREAM))

    def test_what_is_there_at_once_is_one_answer(self):
        # As middleware sends it: a task of its own makes the pieces, and a last one is empty.
        for turns in (0, 1, 4):
            function = self.streaming('[b"one", b"two"]', turns=turns)
            self.assertEqual((function(), function.sent), ("onetwo", []), turns)

    def test_what_is_left_of_a_call_is_not_sent_for_the_next_one(self):
        function = self.function("""
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                if scope["path"] == "/fails":
                    await send({"type": "http.response.start", "status": 200})
                    await send({"type": "http.response.body", "body": b"x", "more_body": True})
                    raise RuntimeError("half way")
                import asyncio
                for _ in range(20):
                    await asyncio.sleep(0)
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": b"whole"})
            """)
        with self.assertRaisesRegex(RuntimeError, "half way"):
            function(path="/fails")
        self.assertEqual((function(), function.sent), ("whole", []))

    def test_pieces_are_sent_as_they_come(self):
        function = self.streaming('[b"one", b"", b"two"]')
        self.assertEqual(function(), "onetwo")
        head, *rest = function.sent
        self.assertTrue(head.endswith(b"one"), "the first piece has the head")
        self.assertEqual(rest, [b"two"], "nothing is no piece")

    def test_who_takes_little_is_waited_for(self):
        function = self.streaming('[b"x" * 200_000]')
        function.room = 100_000
        self.assertEqual(len(function()), 200_000)
        self.assertLessEqual(max(map(len, function.sent)), 64 << 10)
        self.assertGreater(function.waits, 1)

    def test_a_head_fits_into_the_first_piece(self):
        function = self.streaming('[b"x"]', [(b"a", b"b" * 70_000)])
        with self.assertRaisesRegex(ValueError, "the headers have"):
            function()
        self.assertEqual(function.sent, [])

    def test_what_goes_wrong(self):
        start = 'assert scope["type"] == "http"; await send({"type": "http.response.start", "status": %s}); '
        body = 'await send({"type": "http.response.body"})'
        for statements, pattern in [
            ("assert scope['type'] == 'http'", "without sending a whole response"),
            (start % 200 + "pass", "without sending a whole response"),
            (body, "before its start"),
            (start % 20 + body, "status is 20"),
            (start % 200 + "raise KeyError('mine')", "mine"),
        ]:
            with self.subTest(statements):
                function = self.function(f"async def handler(scope, receive, send):\n    {statements}")
                with self.assertRaisesRegex(Exception, pattern):
                    function()
        refused = 'await receive(); await send({"type": "lifespan.startup.failed", "message": "no database"})'
        self.fails(f"async def handler(scope, receive, send):\n    {refused}", "refused to start: no database")

    def test_an_error_that_was_answered_is_printed(self):
        function = self.function(
            """
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await send({"type": "http.response.start", "status": 500})
                await send({"type": "http.response.body", "body": b"sorry"})
                raise KeyError("mine")
            """
        )
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            self.assertEqual(function.raw()[::2], (500, b"sorry"))
        self.assertIn("KeyError: 'mine'", printed.getvalue())
        self.assertNotIn("function.py", printed.getvalue())


class Loading(Case):
    def test_what_a_function_finds(self):
        function = self.function(
            """
            import os, shared, own
            AT_LOAD = os.environ["GREETING"]
            def handler(event): return [os.getcwd() == os.path.dirname(__file__), AT_LOAD, shared.WHO, own.WHO]
            """,
            {"env.GREETING": "hello"},
            layers=[{"shared.py": "WHO = 'layer 0'", "own.py": "WHO = 'layer'"}, {"shared.py": "WHO = 'layer 1'"}],
            **{"own.py": "WHO = 'app'"},
        )
        self.assertEqual(json.loads(function()), [True, "hello", "layer 0", "app"])

    def test_globals_stay_between_calls(self):
        function = self.function("n = 0\ndef handler(event):\n    global n\n    n += 1\n    return n")
        self.assertEqual([function(), function()], ["1", "2"])

    def test_a_broken_function_does_not_load(self):
        error = self.fails("def f(): raise KeyError('mine')\nf()", "mine", KeyError)
        self.assertEqual(self.frames(error), ["<module>", "f"])
        self.fails("import nonexistent_module", "No module named 'nonexistent_module'", ModuleNotFoundError)
        error = self.fails("def handler(:", "invalid syntax", SyntaxError)
        self.assertEqual(self.frames(error), [])
        with self.assertRaises(SystemExit):
            self.function("import sys; sys.exit(3)")


class Tracebacks(Case):
    def raised(self, source):
        return self.caught(KeyError, "mine", self.function(source))

    def test_only_the_users_frames_are_left(self):
        for start in ["def", "async def"]:
            source = f"def deep(): raise KeyError('mine')\n{start} handler(event, context): deep()"
            self.assertEqual(self.frames(self.raised(source)), ["handler", "deep"])
        source = f"def deep(): raise KeyError('mine')\nasync def handler(scope, receive, send): deep()"
        self.assertEqual(self.frames(self.raised(source)), ["handler", "deep"])

    def test_the_template_prints_no_frame_of_the_adapter(self):
        template = types.ModuleType("template")
        source = (HERE / "template.py").read_text()
        self.assertTrue(source.endswith("\nmain()\n"))
        code = compile(source.removesuffix("main()\n"), __file__, "exec", dont_inherit=True)
        # The node puts the adapter and lines before it.
        template.ADAPTER = ADAPTER
        for name in TEMPLATE:
            exec(compile((HERE / name).read_text(), __file__, "exec", dont_inherit=True), template.__dict__)
        exec(code, template.__dict__)
        kind, message, text = template.describe(self.raised("def handler(event):\n    raise KeyError('mine')"))
        self.assertEqual((kind, message), ("KeyError", "'mine'"))
        self.assertNotIn("function.py", text)
        self.assertIn("main.py\", line 2, in handler\n    raise KeyError('mine')", text)

    def test_what_the_node_puts_before_the_template_has_names_of_its_own(self):
        of = {}
        for name in (*TEMPLATE, "template.py"):
            for statement in ast.parse((HERE / name).read_text()).body:
                targets = [one for target in getattr(statement, "targets", ()) for one in ast.walk(target) if isinstance(one, ast.Name)]
                for top in [getattr(statement, "name", None), *(one.id for one in targets if isinstance(one.ctx, ast.Store))]:
                    # All are in one module, where the later one would be what the earlier one calls.
                    self.assertEqual(of.setdefault(top, name), name if top else of[top], top)


if __name__ == "__main__":
    unittest.main()
