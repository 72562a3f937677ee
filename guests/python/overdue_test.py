# SPDX-License-Identifier: Apache-2.0
"""Tests of calls that have used up their time (`at_once.py`, `output.py`, `failures.py`), before a node of a few lines."""

import json
import os
import re
import select
import signal
import struct
import time
import unittest

from at_once_test import ASK, CALL, FRAME, LEFT, LOG, PIECE, RAISED, RESULT, ROOM, SAID, WHERE_SIGNAL, Case
from function_test import HERE, head_of


class Overdue(Case):
    WAYS = {
        "a coroutine": """
            import asyncio
            went_on = []
            async def handler(event):
                if event == "what":
                    return went_on
                print("begun", end="")
                try:
                    await deep() if event else None
                finally:
                    went_on.append(event)
                return "quick"
            async def deep():
                await asyncio.sleep(60)
            """,
        "a thread": """
            import time
            went_on, is_let_go = [], False
            def handler(event):
                global is_let_go
                if event == "what":
                    is_let_go = True
                    time.sleep(0.1)
                    return went_on
                print("begun", end="")
                if event:
                    deep()
                went_on.append(event)
                return "quick"
            def deep():
                while not is_let_go:
                    time.sleep(0.01)
            """,
    }

    def test_a_call_that_uses_up_its_time_ends_alone(self):
        for way, source in self.WAYS.items():
            with self.subTest(way):
                node = self.node(source)
                late, other = node.call(b"1"), node.call(b"0")
                self.assertEqual(node.result(other), "quick")
                node.send(LEFT, late, b"\x01")
                self.assertIn(b"TimeoutError", node.expect(RAISED, late))
                told = node.logs[late].decode()
                self.assertTrue(told.startswith("begun\nits time was used up here"), told)
                self.assertRegex(told, r'main.py", line \d+, in handler\n(.|\n)*main.py", line \d+, in deep\n')
                for own in ("at_once", "template.py", "function.py", "threading.py", "in run_awaited"):
                    self.assertNotIn(own, told)
                # It is answered once, and others go on.
                self.assertEqual(json.loads(node.result(node.call(b'"what"'))), [0, 1])
                self.assertEqual(node.result(node.call(b"0")), "quick")

    def test_nothing_is_said_of_a_call_after_its_answer(self):
        source = """
            import sinew
            def handler(environ, start_response):
                start_response("200 OK", [])
                while True:
                    yield b"x" * 10
            """
        node = self.node(source)
        for _ in range(60):
            turns = [node.call() for _ in range(4)]
            for turn in turns:
                node.expect_any(PIECE)
            for turn in turns:
                node.send(ROOM, turn, struct.pack("<I", 1 << 20))
            for turn in turns:
                node.send(LEFT, turn, b"\x01")
            over = set()
            while len(over) < len(turns):
                kind, turn, _ = node.frame()
                self.assertNotIn(turn, over, kind)
                if kind == RAISED:
                    over.add(turn)
            node.socket.settimeout(0.01)
            with self.assertRaises(TimeoutError):
                node.frame()
            node.socket.settimeout(20)

    # What runs, how many at once, and what is told of where it is.
    PLACES = {
        "a function": ("def handler(event):\n    deep()\ndef deep():\n    say()\n    time.sleep(9)", 1, r"in deep\n    time.sleep"),
        "a line that was begun": ("def handler(event):\n    say()\n    print('begun', end='')\n    time.sleep(9)", 1, r"begun\nits time was used up here"),
        "an endless loop": ("def handler(event):\n    say()\n    while True:\n        pass", 1, r"in handler\n"),
        "a loop that prints": ("def handler(event):\n    say()\n    while True:\n        print('x' * 4000)", 1, r"in handler\n"),
        "a coroutine": ("async def handler(event):\n    say()\n    await deep()\nasync def deep():\n    await asyncio.sleep(9)", 1, r"in deep\n    await asyncio.sleep"),
        "a coroutine that waits for others": (
            "async def handler(event):\n    say()\n    await asyncio.gather(deep(), deep())\nasync def deep():\n    await asyncio.sleep(9)",
            1, r"Task-\d+:\n.*\n    await asyncio.gather(.|\n)*Task-\d+:\n.*in deep\n    await asyncio.sleep",
        ),
        "a coroutine that keeps all others": ("async def handler(event):\n    say()\n    time.sleep(9)", 10, r"in handler\n    time.sleep"),
        "a thread": ("def handler(event):\n    say()\n    time.sleep(9)", 10, r"in handler\n    time.sleep"),
        "a coroutine beside others": ("async def handler(event):\n    say()\n    await asyncio.sleep(9)", 10, r"in handler\n    await asyncio.sleep"),
        "a call of another function": ("def handler(event):\n    say()\n    sinew.call('other')", 1, r"in handler\n    sinew.call\('other'\)\n\Z"),
        "an application with a lifespan": (
            "async def handler(scope, receive, send):\n    if scope['type'] == 'lifespan':\n        await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
            "        await receive()\n    say()\n    await asyncio.sleep(9)",
            1, r"last\):\n  File .*main.py.*\n    await asyncio.sleep",
        ),
        "what cannot be described": (
            "class Odd:\n    def __getattr__(self, name): raise KeyError(name)\n    def __await__(self): return self\n    def __iter__(self): return self\n"
            "    def __next__(self):\n        say()\n        time.sleep(0.2)\nasync def handler(event):\n    await Odd()",
            10, "",
        ),
    }  # fmt: skip

    OTHERS = "template.py|function.py|selectors|lifespan|base_events"

    def ask_where(self, node):
        node.logs.clear()
        os.kill(node.pid, WHERE_SIGNAL)
        while True:
            if not select.select([node.socket], [], [], 1)[0]:
                # It came just before the interpreter waited for a frame, which is no time to see it.
                os.kill(node.pid, WHERE_SIGNAL)
            elif node.frame()[0] == SAID:
                return

    def test_the_node_may_ask_where_it_is(self):
        for what, (source, at_once, place) in self.PLACES.items():
            with self.subTest(what):
                say = "def say():\n    print('here')\n    os.write(2, b'')"
                node = self.node(f"import asyncio, os, sinew, time\n{say}\n{source}", at_once, log_max=1 << 24)
                turns = [node.call(b"1")]
                self.until_printed(node, turns[0])
                if what.endswith("others") and at_once > 1 and "time" not in place:
                    turns.append(node.call(b"1"))
                    self.until_printed(node, turns[1])
                began = time.monotonic()
                while True:
                    # It may still be where it has printed, or within what it calls to wait.
                    self.ask_where(node)
                    told = [node.logs.get(turn, b"").decode() for turn in turns]
                    is_there = all(re.search(place, one) and not re.search(self.OTHERS, one) for one in told)
                    if is_there or time.monotonic() > began + 5:
                        break
                for one in told:
                    if place:
                        self.assertRegex(one, "its time was used up here" if at_once == 1 else "its instance was ended while it was here")
                        self.assertRegex(one, place)
                    self.assertNotRegex(one, self.OTHERS)
                os.kill(node.pid, signal.SIGKILL)

    def until_printed(self, node, turn):
        while not node.logs.get(turn):
            size, kind, of = FRAME.unpack(node.receive(FRAME.size))
            payload = node.receive(size)
            if kind == LOG:
                node.logs[of] = node.logs.get(of, b"") + payload[1:]

    def test_however_often_sending_is_interrupted_all_is_sent_in_order(self):
        names = {}
        exec(compile((HERE / "channel.py").read_text(), "channel.py", "exec", dont_inherit=True), names)
        sent, most = [], 5000

        class Interrupted:
            def sendall(self, data):
                sent.append(FRAME.unpack(data)[2])
                if len(sent) < most:
                    channel.send(LOG, len(sent) + 1)

        channel = names["Channel"](Interrupted())
        channel.send(LOG, 1)
        self.assertEqual(sent, list(range(1, most + 1)))

    def test_what_interrupts_something_that_is_sent_is_sent_after_it(self):
        source = """
            import signal
            def handler(event):
                told = []
                def late(*_):
                    print("interrupted")
                    told.append(1)
                signal.signal(signal.SIGUSR1, late)
                print("x" * 900_000, end="")
                return len(told)
            """
        for at_once in (1, 10):
            node = self.node(source if at_once == 1 else source.replace("def handler", "async def handler"), at_once, log_max=1 << 24)
            node.send(CALL, 1, struct.pack("<4I", 3, 16, *map(len, (head_of(path="/"), b"1"))), b"i" * 16, head_of(path="/"), b"1")
            # It fills what the socket takes, and waits in the midst of a frame.
            time.sleep(0.3)
            os.kill(node.pid, signal.SIGUSR1)
            time.sleep(0.1)
            self.assertEqual(node.result(1), "1")
            self.assertEqual(node.logs[1].count(b"x") + node.logs[1].count(b"interrupted\n"), 900_001)

    def test_too_many_that_go_on_are_not_ended_alone(self):
        source = """
            import asyncio
            opened = asyncio.Event()
            async def handler(event):
                while event and not opened.is_set():
                    try:
                        await asyncio.shield(opened.wait())
                    except asyncio.CancelledError:
                        pass
                opened.set() if event is None else None
                return "here"
            """
        node = self.node(source, 2)
        for _ in range(2):
            stubborn = node.call(b"1")
            self.assertEqual(node.result(node.call(b"0")), "here")
            node.send(LEFT, stubborn, b"\x01")
            node.expect(RAISED, stubborn)
        third = node.call(b"1")
        node.send(LEFT, third, b"\x01")
        # Nothing is said of it, so that the node ends the instance; here it ends by itself, as do those before.
        opening = node.call(b"null")
        self.assertEqual({node.frame()[:2], node.frame()[:2]}, {(RESULT, third), (RESULT, opening)})
        last = node.call(b"1")
        self.assertEqual(node.result(last), "here")

    def test_what_a_late_call_asks_is_asked_by_nobody(self):
        source = """
            import asyncio, sinew
            async def handler(event):
                if not event:
                    return "quick"
                try:
                    return await sinew.call_async("other")
                except asyncio.CancelledError:
                    try:
                        await sinew.call_async("another")
                    except RuntimeError as error:
                        print(error)
                    raise
            """
        node = self.node(source)
        late = node.call(b"1")
        question = node.expect(ASK, late)
        node.send(LEFT, late, b"\x01")
        node.expect(RAISED, late)
        node.tell(late, question, b"too late")
        self.assertEqual(node.result(node.call(b"0")), "quick")
        self.assertIn(b"while a request is handled", node.logs[0])


if __name__ == "__main__":
    unittest.main()
