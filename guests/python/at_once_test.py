# SPDX-License-Identifier: Apache-2.0
"""Tests of `at_once.py`: a process is an instance as the template would have it, without its confinement and its
native core, and this one is the node."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import sys
import tempfile
import textwrap
import time
import types
import unittest

from function_test import ADAPTER, HERE, TEMPLATE, head_of

HELLO, LOAD, LOADED, CALL, RESULT, RAISED, BAD_RESULT, LOG, UNCONFINED, ASK, TOLD = range(1, 12)
PIECE, ROOM, LEFT, BODY, BODY_LOST, WANTS = range(12, 18)
SAID = 31
FRAME = struct.Struct("<IBI")
WHERE_SIGNAL = 62
LOG_MAX, RESULT_MAX = 1000, 1 << 20


def be_instance(channel):
    """Never returns."""
    template = types.ModuleType("template")
    template.ADAPTER = ADAPTER
    source = "".join((HERE / name).read_text() for name in (*TEMPLATE, "template.py")).removesuffix("main()\n")
    exec(compile(source, "template.py", "exec", dont_inherit=True), template.__dict__)
    core = types.SimpleNamespace(heap=None, arenas_keep=lambda: None, blocks_keep=lambda limit: 0, blocks_offer=lambda is_idle: 0)
    template.Instance(template.Channel(channel), core).serve()


class Node:
    """An instance's other side."""

    def __init__(self, source, at_once, log_max=LOG_MAX, **settings):
        self.folder = tempfile.TemporaryDirectory()
        (pathlib.Path(self.folder.name) / "main.py").write_text(textwrap.dedent(source))
        self.socket, other = socket.socketpair()
        self.socket.settimeout(20)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                self.socket.close()
                be_instance(other)
            finally:
                os._exit(9)
        other.close()
        self.turn, self.logs = 0, {}
        assert self.frame()[0] == HELLO
        settings = {
            "handler": "main.handler", "layers": "0", "memory-bytes": "1", "app-root": self.folder.name,
            "requests-per-instance": str(at_once), **settings,
        }  # fmt: skip
        text = f"SETTINGS = {settings!r}\n{ADAPTER}".encode()
        self.send(LOAD, 0, struct.pack("<QQHH", RESULT_MAX, log_max, at_once, 8), b"function", text)
        self.loaded = self.frame()

    def close(self):
        """Ends it, and what it has forked: that would hold the test's own output."""
        self.socket.close()
        has_ended = False
        for _ in range(1000):
            has_ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            if has_ended:
                break
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.folder.cleanup()
        assert has_ended or os.waitpid(self.pid, 0) is None, "an instance ends with its channel"

    def send(self, kind, turn, *parts):
        rest = b"".join(parts)
        self.socket.sendall(FRAME.pack(len(rest), kind, turn) + rest)

    def receive(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError("the instance has ended")
            data += more
        return data

    def frame(self):
        """The next one that is no output."""
        while True:
            size, kind, turn = FRAME.unpack(self.receive(FRAME.size))
            payload = self.receive(size)
            if kind != LOG:
                return kind, turn, payload
            self.logs[turn] = self.logs.get(turn, b"") + payload[1:]

    def call(self, body=b"", /, **head):
        """Sends a call; its turn."""
        self.turn += 1
        parts = [b"i" * 16, head_of(request_id=str(self.turn), path="/", **head), body]
        self.send(CALL, self.turn, struct.pack("<4I", 3, *map(len, parts)), *parts)
        return self.turn

    def expect(self, kind, turn):
        told = self.frame()
        assert told[:2] == (kind, turn), f"{told} is not {kind} of {turn}"
        return told[2]

    def expect_any(self, kind):
        told = self.frame()
        assert told[0] == kind, told

    def result(self, turn):
        return body_of(self.expect(RESULT, turn))

    def tell(self, turn, question, body):
        number = question[:4]
        kind = b"text/plain"
        self.send(TOLD, turn, number, struct.pack("<HH", 200, len(kind)), kind, body)


def body_of(result):
    return result[4 + (int.from_bytes(result[:4], "little") & 0x3FFFFFFF) :].decode()


def asked(question):
    """The name, and what it is called with."""
    (length,) = struct.unpack_from("<H", question, 4)
    (kind,) = struct.unpack_from("<H", question, 6 + length)
    return question[6 : 6 + length].decode(), question[8 + length + kind :].decode()


class Case(unittest.TestCase):
    def node(self, source, at_once=10, **settings):
        node = Node(source, at_once, **settings)
        self.addCleanup(node.close)
        self.assertEqual(node.loaded[0], LOADED, node.loaded)
        return node


WAYS = {
    "a coroutine": "async def handler(event, context):\n    return await sinew.call_async('other', event)",
    "a thread": "def handler(event, context):\n    return sinew.call('other', event)",
    "a coroutine of a thread": "def handler(event, context):\n    return sinew.call_async('other', event)",
    "an application": """
async def handler(scope, receive, send):
    assert scope["type"] == "http"
    told = await sinew.call_async("other", (await receive())["body"].decode())
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": told.encode()})""",
    "a WSGI application": """
def handler(environ, start_response):
    told = sinew.call("other", environ["wsgi.input"].read().decode())
    start_response("200 OK", [])
    return [told.encode()]""",
}


class Calls(Case):
    def test_calls_wait_beside_each_other(self):
        for way, source in WAYS.items():
            with self.subTest(way):
                node = self.node(f"import sinew\n{source}")
                turns = [node.call(f"{at}".encode(), headers=[["content-type", "text/plain"]]) for at in range(10)]
                questions = {}
                for _ in turns:
                    kind, turn, question = node.frame()
                    self.assertEqual((kind, asked(question)), (ASK, ("other", str(turn - 1))))
                    questions[turn] = question
                # Answered in another order than they were asked in.
                for turn in reversed(turns):
                    node.tell(turn, questions[turn], f"told {turn}".encode())
                    self.assertEqual(node.result(turn), f"told {turn}")

    def test_nobody_keeps_the_loop_waiting(self):
        node = self.node("import asyncio, sinew\nasync def handler(event):\n    return await asyncio.to_thread(sinew.call, 'o') if event else sinew.call('o')")
        refused, allowed = node.call(b"0"), node.call(b"1")
        self.assertIn(b"await sinew.call_async", node.expect(RAISED, refused))
        node.tell(allowed, node.expect(ASK, allowed), b"told")
        self.assertEqual(node.result(allowed), "told")

    def test_a_signals_handler_may_raise_while_frames_are_read(self):
        source = """
            import asyncio, signal, sinew
            def late(*_):
                raise TimeoutError("mine")
            signal.signal(signal.SIGALRM, late)
            async def handler(event):
                if event:
                    signal.setitimer(signal.ITIMER_REAL, event)
                return await sinew.call_async("other")
            """
        node = self.node(source)
        # In the head of a frame, and after it.
        for cut in (7, 9, 12):
            turn = node.call(b"0.05")
            question = node.expect(ASK, turn)
            told = FRAME.pack(18, TOLD, turn) + question[:4] + struct.pack("<HH", 200, 10) + b"text/plain"
            # A part of the answer is there by then, and is waited for.
            node.socket.sendall(told[:cut])
            time.sleep(0.15)
            node.socket.sendall(told[cut:])
            self.assertEqual(node.result(turn), "")
            turn = node.call(b"0")
            node.tell(turn, node.expect(ASK, turn), b"in time")
            self.assertEqual(node.result(turn), "in time")

    def test_what_comes_together_is_begun_together(self):
        node = self.node("import sinew\nasync def handler(event):\n    return await sinew.call_async('o') if event else 'quick'")
        for _ in range(20):
            first = node.call(b"1")
            question = node.expect(ASK, first)
            sent, node.send = [], lambda kind, turn, *parts: sent.append(FRAME.pack(sum(map(len, parts)), kind, turn) + b"".join(parts))
            node.tell(first, question, b"told")
            second = node.call(b"0")
            del node.send
            node.socket.sendall(b"".join(sent))
            self.assertEqual({turn: body_of(told) for _, turn, told in (node.frame(), node.frame())}, {first: "told", second: "quick"})

    def test_a_task_that_answers_for_others_answers_them(self):
        source = """
            import asyncio
            queue = None
            async def work():
                # The last one first, so that the one whose context this has is there to the end.
                await asyncio.sleep(0.05)
                while True:
                    send, name, done = await queue.get()
                    await send({"type": "http.response.start", "status": 200})
                    for _ in range(2):
                        await send({"type": "http.response.body", "body": name, "more_body": True})
                        for _ in range(20):
                            await asyncio.sleep(0)
                    await send({"type": "http.response.body", "body": b"!"})
                    done.set()
            async def handler(scope, receive, send):
                global queue
                assert scope["type"] == "http"
                if queue is None:
                    # It has the context of the request that begins it.
                    queue = asyncio.LifoQueue()
                    handler.task = asyncio.ensure_future(work())
                done = asyncio.Event()
                await queue.put((send, (await receive())["body"], done))
                await done.wait()
            """
        node = self.node(source)
        turns = {node.call(name): name.decode() for name in (b"one", b"two", b"three")}
        answers = dict.fromkeys(turns, b"")
        over = 0
        while over < len(turns):
            kind, turn, payload = node.frame()
            answers[turn] += payload
            over += kind == RESULT
        self.assertEqual({turn: body_of(answer) for turn, answer in answers.items()}, {turn: 2 * name + "!" for turn, name in turns.items()})

    def test_a_task_that_wants_to_end_the_process_ends_nobody_else(self):
        source = """
            import asyncio, sys
            async def leave():
                sys.exit(3)
            async def handler(event):
                if event:
                    handler.task = asyncio.ensure_future(leave())
                    await asyncio.sleep(0.01)
                return "here"
            """
        node = self.node(source)
        for body in (b"1", b"0"):
            self.assertEqual(node.result(node.call(body)), "here")
        self.assertIn(b"SystemExit: 3", b"".join(node.logs.values()))

    def test_too_many_questions_are_refused(self):
        source = "import asyncio, sinew\nasync def handler(event):\n    return [await one for one in [asyncio.ensure_future(sinew.call_async('o')) for _ in range(65)]]"
        node = self.node(source)
        turn = node.call()
        numbers = {node.expect(ASK, turn)[:4] for _ in range(64)}
        self.assertEqual(len(numbers), 64)
        for number in sorted(numbers):
            node.tell(turn, number, b"x")
        self.assertIn(b"64 calls of other functions are under way", node.expect(RAISED, turn))
        # And nothing of them is left behind.
        turn = node.call()
        self.assertEqual(len({node.expect(ASK, turn)[:4] for _ in range(64)}), 64)

    def test_what_fails_is_its_own_calls(self):
        for start in ("async def", "def"):
            with self.subTest(start):
                node = self.node(f"{start} handler(event):\n    return 1 / event['by']")
                good, bad = node.call(b'{"by": 1}'), node.call(b'{"by": 0}')
                told = {turn: (kind, payload) for kind, turn, payload in (node.frame(), node.frame())}
                self.assertEqual((told[good][0], body_of(told[good][1])), (RESULT, "1.0"))
                self.assertEqual(told[bad][0], RAISED)
                self.assertIn(b"main.py", told[bad][1])
                self.assertNotIn(b"template.py", told[bad][1])
                node.call(b'{"by": 2}')
                self.assertEqual(body_of(node.frame()[2]), "0.5")

    def test_even_what_would_end_the_process_is_its_calls(self):
        for start in ("async def", "def"):
            node = self.node(f"{start} handler(event):\n    raise SystemExit(3)")
            self.assertIn(b"SystemExit", node.expect(RAISED, node.call()))
            self.assertIn(b"SystemExit", node.expect(RAISED, node.call()))

    def test_a_result_that_is_too_long(self):
        node = self.node("async def handler(event):\n    return 'x' * (2 << 20)")
        self.assertIn(b"more than the 1048576", node.expect(BAD_RESULT, node.call()))

    def test_globals_and_the_loop_are_shared(self):
        source = """
            import asyncio
            opened = asyncio.Event()
            async def handler(event):
                if event.get("open"):
                    opened.set()
                await opened.wait()
                return "went on"
            """
        node = self.node(source)
        waiting, opening = node.call(), node.call(b'{"open": 1}')
        self.assertEqual(sorted(node.frame()[:2] for _ in range(2)), [(RESULT, waiting), (RESULT, opening)])

    def test_tasks_of_an_application_go_on_between_calls(self):
        source = """
            import asyncio
            ticks, asked = 0, asyncio.Event()
            async def tick():
                global ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1
            async def handler(scope, receive, send):
                if scope["type"] == "lifespan":
                    handler.task = asyncio.ensure_future(tick())
                    await receive()
                    await send({"type": "lifespan.startup.complete"})
                    return await receive()
                before = ticks
                while ticks < before + 3:
                    await asyncio.sleep(0.001)
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": b"ticked"})
            """
        node = self.node(source)
        self.assertEqual(node.result(node.call()), "ticked")


class Output(Case):
    def test_output_is_the_calls_that_printed_it(self):
        for way, wait in [("async def", "await sinew.call_async('o')"), ("def", "sinew.call('o')")]:
            with self.subTest(way):
                source = f"""
                    import sinew, sys
                    {way} handler(event):
                        print("begin", event, end=" ")
                        {wait}
                        print("end", event)
                        print("error", event, file=sys.stderr, end="")
                    """
                node = self.node(source)
                turns = [node.call(str(at).encode()) for at in range(3)]
                questions = {}
                for _ in turns:
                    _, turn, questions[turn] = node.frame()
                for turn in turns:
                    node.tell(turn, questions[turn], b"")
                    node.expect(RESULT, turn)
                for at, turn in enumerate(turns):
                    self.assertEqual(node.logs[turn].decode(), f"begin {at} end {at}\nerror {at}")

    def test_each_call_has_its_own_bound(self):
        node = self.node("async def handler(event):\n    print('x' * event)")
        for size, end in [(2000, "dropped]\n"), (10, "x\n"), (2000, "dropped]\n")]:
            turn = node.call(str(size).encode())
            node.expect(RESULT, turn)
            self.assertTrue(node.logs[turn].decode().endswith(end), node.logs[turn])

    def test_what_is_printed_after_a_call_is_no_ones(self):
        source = """
            import asyncio
            async def later():
                await asyncio.sleep(0.01)
                print("later")
                done.set()
            done = asyncio.Event()
            async def handler(event):
                if event == 1:
                    handler.task = asyncio.ensure_future(later())
                    return "first"
                await done.wait()
            """
        node = self.node(source)
        first = node.call(b"1")
        self.assertEqual(node.result(first), "first")
        second = node.call(b"2")
        node.expect(RESULT, second)
        self.assertEqual(node.logs, {0: b"later\n"})

    def test_what_is_printed_between_calls_has_its_bound_anew(self):
        source = """
            import threading
            async def handler(event):
                threading.Timer(0.02, print, ("x" * 900,)).start()
            """
        node = self.node(source)
        for _ in range(10):
            node.expect(RESULT, node.call())
            # No call runs by then.
            time.sleep(0.06)
        node.expect(RESULT, node.call())
        # More than one call may print.
        self.assertGreater(len(node.logs[0]), 5 * LOG_MAX)

    def test_what_a_function_forks_prints_to_its_own_streams(self):
        source = """
            import os, sys
            def handler(event):
                print("partial", end="")
                pid = os.fork()
                if pid == 0:
                    taken, stream = os.open("/dev/null", os.O_WRONLY), os.memfd_create("stream")
                    os.dup2(stream, 1)
                    print("child")
                    sys.stdout.flush()
                    if os.pread(stream, 99, 0) != b"child\\n":
                        os._exit(1)
                    os._exit(0)
                return os.waitpid(pid, 0)[1]
            """
        node = self.node(source)
        turns = [node.call(), node.call()]
        self.assertEqual(sorted(node.frame() for _ in turns), [(RESULT, turn, node_frame(b"0")) for turn in turns])
        self.assertEqual(node.logs, dict.fromkeys(turns, b"partial"))


    def test_who_is_forked_while_threads_print_waits_for_none_of_them(self):
        source = """
            import os, sys, threading
            def handler(event):
                is_over = False
                def chat():
                    while not is_over:
                        print("x", end="")
                        sys.stderr.write("y")
                        sys.stdout.flush()
                others = [threading.Thread(target=chat) for _ in range(2)]
                for other in others:
                    other.start()
                ended = []
                for _ in range(30):
                    pid = os.fork()
                    if pid == 0:
                        print("child")
                        sys.stderr.flush()
                        os._exit(0)
                    ended.append(os.waitpid(pid, 0)[1])
                is_over = True
                for other in others:
                    other.join()
                return ended
            """
        for at_once in (1, 10):
            node = self.node(source, at_once)
            self.assertEqual(json.loads(node.result(node.call())), [0] * 30)
            self.assertNotIn(b"child", b"".join(node.logs.values()))

    def test_what_was_begun_is_told_where_the_function_has_taken_the_outputs_places(self):
        source = """
            import io, sys
            async def handler(event):
                print("begun", end=" ")
                sys.stdout.buffer.write(b"in bytes")
                sys.stdout = io.StringIO()
                print("kept")
            """
        node = self.node(source)
        turn = node.call()
        node.expect(RESULT, turn)
        self.assertEqual(node.logs, {turn: b"begun in bytes"})


def node_frame(body):
    head = b'{"status":200,"headers":[["content-type","application/json"]]}'
    return len(head).to_bytes(4, "little") + head + body


STREAMS = {
    "an application": """
        async def handler(scope, receive, send):
            assert scope["type"] == "http"
            await send({"type": "http.response.start", "status": 200})
            try:
                for _ in range(16):
                    await send({"type": "http.response.body", "body": b"x" * (64 << 10), "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except OSError:
                print("left")
                raise
        """,
    "a WSGI application": """
        def handler(environ, start_response):
            start_response("200 OK", [])
            try:
                for _ in range(16):
                    yield b"x" * (64 << 10)
            except GeneratorExit:
                print("left")
                raise
        """,
}


class Pieces(Case):
    def test_a_client_that_takes_nothing_keeps_no_other_one(self):
        for way, source in STREAMS.items():
            with self.subTest(way):
                node = self.node(source)
                slow, quick = node.call(), node.call()
                size = {slow: 0, quick: 0}
                while True:
                    kind, turn, payload = node.frame()
                    if kind == RESULT:
                        break
                    self.assertEqual(kind, PIECE)
                    size[turn] += len(payload)
                    if turn == quick:
                        node.send(ROOM, turn, struct.pack("<I", len(payload)))
                self.assertEqual((turn, payload), (quick, b""))
                # Each piece may be cut in two, since the first one has a head.
                self.assertTrue(1 << 20 <= size[quick] < (1 << 20) + 1000)
                self.assertTrue(128 << 10 < size[slow] <= 256 << 10, size)
                node.send(LEFT, slow)
                self.assertEqual(node.frame()[:2], (RAISED, slow))
                self.assertEqual(node.logs, {slow: b"left\n"})

    def test_who_listens_hears_that_the_client_has_left(self):
        source = """
            async def handler(scope, receive, send):
                assert scope["type"] == "http"
                await receive()
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": (await receive())["type"].encode()})
            """
        node = self.node(source)
        turn = node.call()
        node.send(LEFT, turn)
        self.assertEqual(node.result(turn), "http.disconnect")

    def test_bodies_that_come_while_they_are_read(self):
        ways = {
            "an application": """
                async def handler(scope, receive, send):
                    assert scope["type"] == "http"
                    body = b""
                    while (message := await receive()).get("more_body"):
                        body += message["body"]
                    await send({"type": "http.response.start", "status": 200})
                    await send({"type": "http.response.body", "body": body + message["type"].encode()})
                """,
            "a WSGI application": """
                def handler(environ, start_response):
                    start_response("200 OK", [])
                    try:
                        return [environ["wsgi.input"].read(), b"http.request"]
                    except OSError:
                        return [b"onehttp.disconnect"]
                """,
        }
        for way, source in ways.items():
            with self.subTest(way):
                node = self.node(source, body="stream")
                whole, broken = node.call(body="stream"), node.call(body="stream")
                for turn in (whole, broken):
                    node.send(BODY, turn, b"one")
                    self.assertEqual(node.expect(WANTS, turn), struct.pack("<I", 3))
                node.send(BODY, whole, b"two")
                node.expect(WANTS, whole)
                node.send(BODY_LOST, broken)
                self.assertEqual(node.result(broken), "onehttp.disconnect")
                node.send(BODY, whole)
                self.assertEqual(node.result(whole), "onetwohttp.request")


class Loading(Case):
    def test_what_does_not_load_says_why(self):
        for source, at_once, text in [
            ("def handler(event): pass", 33, b"at most 32 of requests-per-instance"),
            ("1 / 0", 2, b"ZeroDivisionError"),
        ]:
            node = Node(source, at_once)
            self.addCleanup(node.close)
            self.assertEqual(node.loaded[0], RAISED)
            self.assertIn(text, node.loaded[2])

    def test_a_loop_of_the_functions_own_kind(self):
        source = """
            import asyncio
            class Policy(asyncio.DefaultEventLoopPolicy):
                def new_event_loop(self):
                    loop = super().new_event_loop()
                    loop.is_ours = True
                    return loop
            asyncio.set_event_loop_policy(Policy())
            async def handler(event):
                asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
                await asyncio.sleep(0.01)
                return str(getattr(asyncio.get_running_loop(), "is_ours", False))
            """
        if sys.version_info >= (3, 14):
            self.skipTest("policies are going")
        node = self.node(source)
        self.assertEqual(node.result(node.call()), "True")


if __name__ == "__main__":
    unittest.main()
