# SPDX-License-Identifier: Apache-2.0
"""Tests of `wsgi.py`, run as those of `function.py` are; the checker of Python's own library watches both sides."""

import contextlib
import io
import unittest

from function_test import Case

# What the checker asks for besides what is told: it knows no other length of a body.
VALID = """
    from wsgiref.validate import validator
    def app(environ, start_response):
        assert environ["wsgi.input_terminated"]
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        names = ("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "SERVER_NAME", "SERVER_PORT", "HTTP_H", "HTTP_COOKIE")
        told = repr([environ.get(name) for name in names] + [body]).encode()
        start_response("201 Created", [("Content-Type", "text/plain"), ("X-A", "\\u00fc"), ("x-a", "2"), ("Content-Length", str(len(told)))])
        return [told[:3], told[3:]]
    handler = validator(app)
    def handler(environ, start_response, checked=handler):
        return checked(environ, lambda *given: start_response(*given))
    """


class Wsgi(Case):
    def test_a_request_and_its_answer(self):
        function = self.function(VALID)
        headers = [["h", "v"], ["host", "example.com:8080"], ["cookie", "a=1"], ["cookie", "b=2"], ["h", "w"], ["h_", "no"]]
        for _ in range(2):
            answer = function.raw(b"in", method="PUT", path="/a%20%C3%BC", query="q=%20", headers=headers)
            told = repr(["PUT", "", "/a \u00c3\u00bc", "q=%20", "example.com", "8080", "v,w", "a=1; b=2", b"in"])
            self.assertEqual(answer, (201, [["content-type", "text/plain"], ["x-a", "\u00fc"], ["x-a", "2"]], told.encode()))
            self.assertEqual(function.sent, [], "what is all there is sent at once")

    def test_an_application_is_told_where_it_is_mounted(self):
        function = self.function(VALID)
        for head, mounted in [({"function": "f"}, ("/function/f", "/x")), ({"function": "f", "route": "/x", "params": []}, ("", "/x"))]:
            self.assertIn(repr(["GET", *mounted])[1:-1], function(method="GET", path="/x", headers=[["host", "h"]], **head))

    def test_hosts(self):
        source = """
            def handler(environ, start_response):
                start_response("200 OK", [])
                return [f"{environ['SERVER_NAME']} {environ['SERVER_PORT']}".encode()]
            """
        function = self.function(source)
        for host, expected in [("a", "a 80"), ("a:1", "a 1"), ("[::1]:81", "[::1] 81"), ("[::1]", "[::1] 80"), ("a:x", "a:x 80")]:
            self.assertEqual(function(path="/", headers=[["host", host]]), expected)
        self.assertEqual(function(path="/"), "localhost 80")

    def test_who_asks(self):
        source = """
            def handler(environ, start_response):
                start_response("200 OK", [])
                return [repr([environ[name] for name in ("REMOTE_ADDR", "wsgi.url_scheme", "SERVER_PORT")]).encode()]
            """
        function = self.function(source)
        self.assertEqual(function(path="/", client="192.0.2.7", scheme="https", headers=[["host", "a"]]), "['192.0.2.7', 'https', '443']")
        self.assertEqual(function(path="/"), "['', 'http', '80']")

    def test_texts_are_native_strings(self):
        source = """
            def handler(environ, start_response):
                told = [environ[name] for name in ("QUERY_STRING", "HTTP_COOKIE", "PATH_INFO")]
                start_response("200 OK", [])
                return [text.encode("latin-1") for text in told]
            """
        answer = self.function(source).raw(path="/%C3%A9", query="q=✓", headers=[["cookie", "a=é✓"]])
        self.assertEqual(answer[2].decode(), "q=✓a=é✓/é")

    PIECES = """
        def handler(environ, start_response):
            count, size = map(int, environ["QUERY_STRING"].split(","))
            headers = [("Content-Length", str(count * size))] if environ["PATH_INFO"] == "/told" else []
            write = start_response("200 OK", headers)
            if environ["PATH_INFO"] == "/written":
                write(b"w")
            for _ in range(count):
                yield b"x" * size
            yield b""
        """

    def test_what_is_yielded_is_sent_at_once(self):
        function = self.function(self.PIECES)
        self.assertEqual(function(path="/", query="3,2"), "xxxxxx")
        self.assertEqual([piece[-2:] for piece in function.sent], [b"xx"] * 3)
        # Where its length is told, it is sure to come, and is kept as far as there is room for it.
        self.assertEqual((function(path="/told", query="3,2"), function.sent), ("xxxxxx", []))
        self.assertEqual(function(path="/told", query=f"3,{100 << 10}"), "x" * (300 << 10))
        self.assertEqual(len(function.sent[0]), 64 << 10)

    def test_long_answers_go_at_the_clients_pace(self):
        function = self.function(self.PIECES)
        function.room = 100 << 10
        self.assertEqual(function(path="/", query=f"2,{200 << 10}"), "x" * (400 << 10))
        self.assertGreater(function.waits, 0)
        self.assertLessEqual(max(map(len, function.sent)), 64 << 10)

    def test_what_is_written_comes_first(self):
        source = """
            def handler(environ, start_response):
                start_response("200 OK", [])(b"one")
                return [b"two"]
            """
        function = self.function(source)
        self.assertEqual(function(path="/"), "onetwo")
        self.assertEqual([piece[-3:] for piece in function.sent], [b"one", b"two"])

    def test_answers_are_closed_whatever_becomes_of_them(self):
        source = """
            class Closing:
                def __init__(self, pieces): self.pieces = iter(pieces)
                def __iter__(self): return self
                def __next__(self):
                    piece = next(self.pieces)
                    if piece is None:
                        raise KeyError("mine")
                    return piece
                def close(self): print("closed")
            def handler(environ, start_response):
                start_response("200 OK", [])
                return Closing([b"a", None] if environ["PATH_INFO"] == "/fails" else [b"a"])
            """
        function = self.function(source)
        for path, fails in [("/", False), ("/fails", True)]:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.ExitStack() as stack:
                if fails:
                    stack.enter_context(self.assertRaisesRegex(KeyError, "mine"))
                function(path=path)
            self.assertEqual(printed.getvalue(), "closed\n")

    def test_errors_after_the_start(self):
        source = """
            import sys
            def handler(environ, start_response):
                start_response("200 OK", [("x-a", "1")])
                if environ["PATH_INFO"] == "/sent":
                    yield b"one"
                if environ["PATH_INFO"] == "/kept":
                    start_response("200 OK", [("content-length", "6")], (None, None, None))
                    yield b"one"
                try:
                    raise KeyError("mine")
                except KeyError:
                    if environ["PATH_INFO"] == "/twice":
                        start_response("500 Oops", [])
                    start_response("500 Oops", [], sys.exc_info())
                yield b"sorry"
            """
        function = self.function(source)
        for path in ["/", "/kept"]:
            self.assertEqual(function.raw(path=path), (500, [], b"sorry"))
        with self.assertRaisesRegex(KeyError, "mine"):
            function(path="/sent")
        with self.assertRaisesRegex(RuntimeError, "start_response was called twice"):
            function(path="/twice")

    def test_applications_that_break_the_rules(self):
        for source, kind, pattern in [
            ("return []", RuntimeError, "returned without calling start_response"),
            ("return [b'x']", RuntimeError, "before start_response was called"),
            ("start_response('hello', [])\n    return []", ValueError, "status is 'hel'"),
            ("start_response('200 OK', [('a b', 'c')])\n    return []", ValueError, "'a b' cannot be a header's name"),
            ("start_response('200 OK', [('a', 'c\\r\\nd: e')])\n    return []", ValueError, "line break"),
        ]:
            with self.subTest(source):
                function = self.function(f"def handler(environ, start_response):\n    {source}")
                with self.assertRaisesRegex(kind, pattern) as caught:
                    function(path="/")
                self.assertNotIn("wsgi.py", str(caught.exception))

    def test_a_body_is_read_while_it_comes(self):
        source = """
            def handler(environ, start_response):
                assert "CONTENT_LENGTH" not in environ
                start_response("200 OK", [])
                return [repr(list(environ["wsgi.input"])).encode()]
            """
        function = self.function(source, {"body": "stream"})
        function.coming = [b"one\ntw", None, None, b"o", b""]
        self.assertEqual(function(body="stream", path="/"), repr([b"one\n", b"two"]))
        self.assertEqual((function.body_waits, function.coming), (2, []))
        function.coming = [b"one", ConnectionResetError("left")]
        with self.assertRaisesRegex(ConnectionResetError, "left"):
            function(body="stream", path="/")

    def test_kinds_of_applications(self):
        method = "    def __call__(self, env, start_response):\n        start_response('200 OK', [])\n        return [b'ok']\n"
        for source in [f"class App:\n{method}\nhandler = App()", "def handler(env, start_resp):\n    start_resp('200 OK', [])\n    return [b'ok']"]:
            self.assertEqual(self.function(source)(path="/"), "ok")

    def test_how_many_at_once(self):
        source = "def handler(environ, start_response):\n    start_response('200 OK', [])\n    return [repr(environ['wsgi.multithread']).encode()]"
        self.assertEqual(self.function(source)(path="/"), "False")
        self.assertEqual(self.function(source, {"requests-per-instance": "32"})(path="/"), "True")
        self.fails(source, "at most 32 of requests-per-instance", settings={"requests-per-instance": "33"})
        self.fails("def handler(event): pass", "is no coroutine", settings={"requests-per-instance": "33"})
        self.assertEqual(self.function("async def handler(event): return 'ok'", {"requests-per-instance": "33"})(), "ok")


if __name__ == "__main__":
    unittest.main()
