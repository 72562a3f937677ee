# SPDX-License-Identifier: Apache-2.0
"""Tests of `within.py`: functions that an instance calls within itself, with the test as the node (`at_once_test.py`)."""

import json
import struct
import unittest

from at_once_test import ASK, Case, body_of

TOLD, LOG = 11, 8
WITHIN, WITHIN_OVER, ASK_WITHIN, SERVED_WITHIN = range(32, 36)
REPORT = struct.Struct("<IIIIIH8s8s16s16sBB")
TRACE, SPAN, SEAL = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "5e" * 16
SOURCE = """
import sinew

def handler(event, context):
    event["seen"].append(f"{context.function_name} {context.request_id}")
    names = event.get("then", [])
    if not names:
        return event["seen"]
    return sinew.call(names[0], {**event, "then": names[1:]})

def fails(event):
    print("before it fails")
    raise ValueError("no such thing")

def no_json(event):
    return {1, 2}

def caught(event, context):
    try:
        return sinew.call(event["name"])
    except sinew.CallError as error:
        return f"{error.status} {error.reason}"

async def awaited(event, context):
    return await sinew.call_async("inner", {"seen": ["awaited"]})

async def inner(event, context):
    import asyncio
    await asyncio.sleep(0)
    return [*event["seen"], context.function_name]

async def blocking(event, context):
    return sinew.call("inner", {"seen": ["blocking"]})

async def pages(scope, receive, send):
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/html")]})
    for piece in (b"a", b"b" * 300_000, b"c"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})

def length(event):
    return len(sinew.call("pages"))

async def many(event, context):
    import asyncio
    elsewhere = []
    async def one():
        told = await sinew.call_async("waits")
        elsewhere.append(told)
        return told
    global is_enough
    is_enough = lambda: len(elsewhere) == 2
    return await asyncio.gather(one(), one(), one())

async def waits(event):
    # For as long as the others have no answer.
    import asyncio
    while not is_enough():
        await asyncio.sleep(0.001)
    return ["here"]

def pool(event, context):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda at: sinew.call("second", {"seen": [at]}), "ab"))

async def threaded(scope, receive, send):
    import asyncio, threading
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    def work():
        for message in (
            {"type": "http.response.start", "status": 200},
            {"type": "http.response.body", "body": b"x" * 200_000, "more_body": True},
            {"type": "http.response.body", "body": b"y"},
        ):
            asyncio.run_coroutine_threadsafe(send(message), loop).result()
        loop.call_soon_threadsafe(ended.set)
    threading.Thread(target=work).start()
    await ended.wait()

def contexts(event, context):
    import decimal
    if event.get("inner"):
        decimal.getcontext().prec = 3
        return None
    decimal.getcontext().prec = 7
    sinew.call("contexts", {"inner": True})
    return decimal.getcontext().prec

def slow(event, context):
    import time
    time.sleep(0.05)
    return "too late"

def mutates(event, context):
    if "given" in event:
        event["given"].append("changed")
        return event["given"]
    given = ["as it was"]
    told = sinew.call("mutates", {"given": given})
    told.append("mine")
    return [given, told]
"""


def head(**more):
    traceparent = f"00-{TRACE}-{SPAN}-01"
    return {"function": "first", "deadline_ms": 4102444800000, "seal": SEAL, "headers": [["traceparent", traceparent]], **more}


class Within(Case):
    def begin(self, handler="handler"):
        # Two, for the request's id and such come by `head_of`.
        return self.node(SOURCE, 1, handler=f"main.{handler}")

    def asked(self, node, turn, kind=ASK):
        """What is asked of the node: the whole of it, the id, and the name."""
        question = node.expect(kind, turn)
        at = 0
        if kind == ASK_WITHIN:
            (length,) = struct.unpack_from("<H", question, 4)
            (failure,) = struct.unpack_from("<I", question, 6 + length + 13)
            at = 6 + length + 17 + failure
        number, size = struct.unpack_from("<IH", question, at)
        return question, number, question[at + 6 : at + 6 + size].decode()

    def allow(self, node, turn, number, name, handler, version=3, told=7, timeout_ms=60_000):
        name = name.encode()
        node.send(WITHIN, turn, struct.pack("<IIQQH", number, told, version, timeout_ms, len(name)), name, handler.encode())

    def reports(self, node):
        kind, _, payload = node.frame()
        self.assertEqual(kind, SERVED_WITHIN)
        number, at, found = *struct.unpack_from("<I", payload), 4, []
        while at < len(payload):
            fields = REPORT.unpack_from(payload, at)
            at += REPORT.size + fields[-1]
            found.append(fields)
        return number, found

    def test_a_function_is_called_here_once_the_node_has_said_so_and_told_afterwards(self):
        node = self.begin()
        body = json.dumps({"seen": [], "then": ["second", "second"]}).encode()
        turn = node.call(body, content_type="application/json", **head())
        _, number, name = self.asked(node, turn)
        self.assertEqual(name, "second")
        self.allow(node, turn, number, "second", "main.handler")
        number, reports = self.reports(node)
        self.assertEqual((number, len(reports)), (7, 2))
        # The inner one of both has ended first, and was called by the other one.
        inner, outer = reports
        self.assertEqual((outer[6].hex(), inner[6]), (SPAN, outer[7]))
        self.assertEqual({(one[5], one[8].hex(), one[9].hex(), one[10]) for one in reports}, {(200, TRACE, SEAL, 1)})
        self.assertGreaterEqual(outer[0], inner[0])
        self.assertEqual(json.loads(node.result(turn)), ["first 1", "second 1", "second 1"])
        # Nothing is asked any more,
        turn = node.call(body, content_type="application/json", **head())
        self.assertEqual(len(self.reports(node)[1]), 2)
        self.assertEqual(json.loads(node.result(turn)), ["first 2", "second 2", "second 2"])
        # until something else may serve.
        node.send(WITHIN_OVER, 0)
        turn = node.call(body, content_type="application/json", **head())
        question, _, name = self.asked(node, turn)
        self.assertEqual(name, "second")
        node.tell(turn, question, b"by the node")
        self.assertEqual(node.result(turn), "by the node")

    def test_what_a_function_asks_that_was_called_here_says_who_asks(self):
        node = self.begin()
        turn = node.call(json.dumps({"seen": [], "then": ["second", "third"]}).encode(), **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "second", "main.handler")
        question, number, name = self.asked(node, turn, ASK_WITHIN)
        asker, length = struct.unpack_from("<IH", question)
        told, _ = question[6 : 6 + length].split(b"\n")
        told = json.loads(told)
        self.assertEqual((asker, name, told["function"], told["caller"]), (7, "third", "second", "first"))
        self.assertEqual((told["depth"], told["seal"], told["version"]), (1, SEAL, 3))
        node.tell(turn, struct.pack("<I", number), b"third")
        _, ((running, waiting, *_),) = self.reports(node)
        self.assertLessEqual(waiting, running)
        self.assertEqual(node.result(turn), "third")

    def test_calls_end_where_they_are_too_deep_and_requests_without_a_seal_are_called_by_the_node(self):
        node = self.begin()
        names = ["second"] * 20
        turn = node.call(json.dumps({"seen": [], "then": names}).encode(), **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "second", "main.handler")
        question, number, _ = self.asked(node, turn, ASK_WITHIN)
        (length,) = struct.unpack_from("<H", question, 4)
        self.assertEqual(json.loads(question[6 : 6 + length].split(b"\n")[0])["depth"], 16)
        node.send(TOLD, turn, struct.pack("<IHH", number, 508, 0), b"too deep")
        kind, _, told = node.frame()
        while kind != 6:
            # Each of them has failed by the one below.
            self.assertIn(kind, (ASK_WITHIN, SERVED_WITHIN))
            if kind == ASK_WITHIN:
                (length,) = struct.unpack_from("<H", told, 4)
                (failure,) = struct.unpack_from("<I", told, 19 + length)
                node.send(TOLD, turn, told[23 + length + failure :][:4], struct.pack("<HH", 500, 0), b"it failed")
            kind, _, told = node.frame()
        self.assertIn(b"it failed", told)
        turn = node.call(json.dumps({"seen": [], "then": ["second"]}).encode())
        question, _, _ = self.asked(node, turn)
        node.tell(turn, question, b"asked")
        self.assertEqual(node.result(turn), "asked")

    def test_what_fails_here_is_told_to_the_node_which_tells_the_caller(self):
        for name, handler, expected in (
            ("fails", "main.fails", b"ValueError"), ("no-json", "main.no_json", b"JSON"), ("absent", "main.absent", b"absent"),
            ("nowhere", "nowhere.handler", b"no module"), ("os", "os.listdir", b"module of Python's own"),
        ):  # fmt: skip
            with self.subTest(name):
                node = self.begin("caught")
                turn = node.call(json.dumps({"name": name}).encode(), **head())
                _, number, _ = self.asked(node, turn)
                self.allow(node, turn, number, name, handler)
                question, number, asked = self.asked(node, turn, ASK_WITHIN)
                asker, length = struct.unpack_from("<IH", question)
                mark, line, told, _, size = struct.unpack_from("<B4I", question, 6 + length)
                failure = question[23 + length : 23 + length + size]
                self.assertEqual((asker, mark, line, told, asked, failure[0]), (0, 0, 0, 7, name, 6), failure)
                self.assertIn(expected, failure)
                self.assertNotIn(b"within.py", failure)
                problem = json.dumps({"detail": "it is broken"}).encode()
                node.send(TOLD, turn, struct.pack("<IHH", number, 500, 24), b"application/problem+json", problem)
                self.assertEqual(node.result(turn), "500 it is broken")

    def test_coroutines_are_called_by_coroutines_and_by_what_blocks_their_event_loop(self):
        for handler in ("awaited", "blocking"):
            with self.subTest(handler):
                node = self.begin(handler)
                for _ in range(2):
                    turn = node.call(b"", **head())
                    if node.turn == 1:
                        _, number, _ = self.asked(node, turn)
                        self.allow(node, turn, number, "inner", "main.inner")
                    self.assertEqual(len(self.reports(node)[1]), 1)
                    self.assertEqual(json.loads(node.result(turn)), [handler, "inner"])

    def test_what_is_asked_beside_a_call_here_is_for_others(self):
        for handler, name, inner in (("many", "waits", "main.waits"), ("pool", "second", "main.handler")):
            with self.subTest(handler):
                node = self.begin(handler)
                turn = node.call(b"", **head())
                asked, kinds = 0, []
                while True:
                    kind, _, told = node.frame()
                    kinds.append(kind)
                    if kind == ASK:
                        # Each time, also where something runs here by then.
                        self.allow(node, turn, struct.unpack_from("<I", told)[0], name, inner)
                    elif kind == ASK_WITHIN:
                        number, size, mark = struct.unpack_from("<IHB", told)
                        self.assertEqual((number, size, mark), (0, 0, 1))
                        asked += 1
                        node.send(TOLD, turn, told[23:27], struct.pack("<HH", 200, 16), b"application/json", b'["elsewhere"]')
                    elif kind != SERVED_WITHIN:
                        break
                told = body_of(told)
                self.assertEqual(asked, 2, kinds)
                self.assertEqual(told.count("elsewhere"), 2, told)

    def test_pieces_that_another_thread_sends_are_the_callees(self):
        node = self.begin("length")
        turn = node.call(b"", **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "pages", "main.threaded")
        self.reports(node)
        self.assertEqual(node.result(turn), "200001")

    def test_what_is_called_has_no_part_in_the_callers_context(self):
        node = self.begin("contexts")
        turn = node.call(b"", **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "contexts", "main.contexts")
        self.reports(node)
        self.assertEqual(node.result(turn), "7")

    def test_what_ends_after_its_time_is_late(self):
        node = self.begin("caught")
        turn = node.call(json.dumps({"name": "slow"}).encode(), **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "slow", "main.slow", timeout_ms=10)
        question, number, _ = self.asked(node, turn, ASK_WITHIN)
        (_, told, _, size), failure = struct.unpack_from("<4I", question, 7), question[23:]
        self.assertEqual((told, size, failure[0]), (7, 1, 14))
        node.send(TOLD, turn, struct.pack("<IHH", number, 504, 0), b"late")
        self.assertTrue(node.result(turn).startswith("504 "))

    def test_an_answer_in_pieces_is_put_together(self):
        node = self.begin("length")
        turn = node.call(b"", **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "pages", "main.pages")
        _, ((*_, status, _, _, _, _, _, _),) = self.reports(node)
        self.assertEqual((status, node.result(turn)), (201, "300002"))

    def test_neither_sees_what_the_other_one_changes(self):
        node = self.begin("mutates")
        turn = node.call(b"", **head())
        _, number, _ = self.asked(node, turn)
        self.allow(node, turn, number, "mutates", "main.mutates")
        self.reports(node)
        told = json.loads(node.result(turn))
        self.assertEqual(told, [["as it was"], ["as it was", "changed", "mine"]])


if __name__ == "__main__":
    unittest.main()
