# SPDX-License-Identifier: Apache-2.0
"""Tests of `workflow.py`: a workflow before a node of a few lines, and its steps."""

import json
import pickle
import struct
import threading
import time
import unittest

from function_test import HERE, ID, Case, head_of

FRAME = b"\x02\0\0\0{}"
SOURCE = """
import time
from sinew import StepError, function, isolated, workflow

class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

@function(memory="512MiB", timeout="1.5s", retries=3, retry_delay=0.5, cpu=0.5, concurrency=2, pure=True)
def add(one, other=0):
    return one + other

@function
def point(x):
    return Point(x)

@function
async def later(x):
    return x * 2

@workflow
def handler(event):
    first = add(1, other=2)
    return {"nested": [add(first, first), (point(3).result().x,)], "plain": 7}

@workflow
async def coroutine(event):
    first = add(1)
    return [await first, await first]

def many(event):
    return len([add(number) for number in range(200)])

def apart(event):
    first, second = point(1), point(2)
    add(first, other=[isolated(second), isolated(second), isolated(7)])
    point.options(isolated=True)
    return isolated(first) if event else None

def goes_on(event):
    add(1).result()
    add(2)

def loses(event):
    add(1).result()

def dallies(event):
    add(1)
    time.sleep(0.2)
    return time.monotonic()

def ends_at_once(event):
    add(1)
    raise ValueError("no more of it")

def plain(event):
    return 1

def inline(event):
    return add(add(1)).result()

def in_variable(event):
    first = add(1)
    return add(first).result()

def returned(event):
    first = add(1)
    second = add(first)
    third = add(second)
    return third

def in_list(event):
    made = [add(1), add(2)]
    add(made.pop())
    return add(3).result()
"""


class Node:
    """What a run is told by the node: steps are numbered, and every one of them has the same result."""

    def __init__(self, result=3, problem=None, settles=False):
        # Whether it says with each result that all have ended.
        self.settles = settles
        self.steps, self.functions, self.orders, self.problem = [], {}, [], problem
        self.isolated, self.left = [], []
        self.result, self.lock = result, threading.Lock()
        # When it was told of each step.
        self.told = []

    def ask(self, word, kind, body):
        with self.lock:
            self.orders.append(word)
            if self.problem and word == self.problem[0]:
                told = {"type": f"urn:sinew:problem:{self.problem[1]}", "detail": "because", "suggestion": "do other"}
                return 502, "application/problem+json", json.dumps(told).encode()
            if word == "@steps":
                length = int.from_bytes(body[:4], "little")
                head, at = json.loads(body[4 : 4 + length]), 4 + length
                self.functions.update(head["functions"])
                for step in head["steps"]:
                    self.steps.append((step["function"], step["needs"], body[at : at + step["bytes"]]))
                    self.isolated.append(step.get("isolated", []))
                    self.left.append(step.get("is_left", False))
                    self.told.append(time.monotonic())
                    at += step["bytes"]
                assert at == len(body)
            if word == "@value":
                number = json.loads(body)["step"]
                assert number < len(self.steps), "it is told of a step before it is asked for"
                function = self.steps[number][0]
                settled = f"; settled={len(self.steps)}" if self.settles else ""
                return 200, "application/vnd.sinew.value" + settled, self.value_of(function)
            return 200, "", b""

    def value_of(self, function):
        import main

        return pickle.dumps(main.Point(3) if function == "main.point" else self.result, 5)


class Workflows(Case):
    def workflow(self, name="handler", node=None):
        function = self.function(SOURCE, {"part": "workflow", "handler": f"main.{name}"})
        function.module.ask = (node or Node()).ask
        return function

    def test_calls_are_steps_and_what_they_need_is_told(self):
        node = Node()
        answer = json.loads(self.workflow(node=node)("{}"))
        self.assertEqual(answer, {"nested": [3, [3]], "plain": 7})
        self.assertEqual([(name, needs) for name, needs, _ in node.steps], [("main.add", []), ("main.add", [0]), ("main.point", [])])
        # Of a pure one also what its result can depend on (`reached_test.py`).
        self.assertRegex(node.functions["main.add"].pop("code"), "^[0-9a-f]{64}$")
        self.assertEqual(node.functions["main.add"], {
            "memory_bytes": 512 << 20, "timeout_ms": 1500, "cpu_percent": 50, "concurrency": 2, "retries": 3,
            "retry_delay_ms": 500, "pure": True,
        })  # fmt: skip
        self.assertEqual(node.functions["main.point"], {})
        self.assertEqual(node.orders[-1], "@settle")

    def test_the_node_is_told_which_steps_the_workflow_has_let_go_of(self):
        expected = {"inline": [True, False], "in_variable": [False, False], "returned": [True, True, False], "in_list": [False, True, True, False]}
        for name, left in expected.items():
            node = Node()
            function = self.workflow(name, node)
            # Nobody tells of them before the workflow waits, or ends.
            function.module.BATCH_PAUSE_S = 60
            function("{}")
            self.assertEqual(node.left, left, name)

    def test_nobody_settles_what_has_ended(self):
        node = Node(settles=True)
        self.assertEqual(json.loads(self.workflow(node=node)("{}"))["plain"], 7)
        self.assertNotIn("@settle", node.orders)
        # A step after the last result is one that nobody has said anything of.
        node = Node(settles=True)
        self.workflow("goes_on", node)("{}")
        self.assertEqual(node.orders[-3:], ["@value", "@steps", "@settle"])

    def test_steps_are_told_in_batches_in_their_order(self):
        node = Node()
        self.assertEqual(self.workflow("many", node)("{}"), "200")
        written = [pickle.loads(arguments)[0][0] for _, _, arguments in node.steps]
        self.assertEqual(written, list(range(200)))
        self.assertLess(node.orders.count("@steps"), 100)

    def test_steps_are_told_while_their_workflow_does_something_else(self):
        node = Node()
        workflow = self.workflow("dallies", node)
        tellers = lambda: sum(one.name.endswith("(keep_telling)") for one in threading.enumerate())  # noqa: E731
        before = tellers()
        for run in range(2):
            ended = json.loads(workflow("{}"))
            self.assertEqual(len(node.told), run + 1)
            self.assertLess(node.told[run], ended - 0.1)
        self.assertEqual(tellers(), before + 1, "one for all runs")

    def test_a_run_that_is_over_tells_nothing_in_the_next_one(self):
        node = Node()
        workflow = self.workflow("ends_at_once", node)
        # It has ended long before they would be told of.
        workflow.module.BATCH_PAUSE_S = 0.2
        for _ in range(3):
            with self.assertRaises(ValueError):
                workflow("{}")
        time.sleep(0.3)
        self.assertEqual(node.steps, [])

    def test_what_is_isolated_is_told(self):
        node = Node()
        self.workflow("apart", node)("")
        self.assertEqual(node.steps[2][:2], ("main.add", [0, 1]))
        self.assertEqual(node.isolated, [[], [], [1, 1]])
        with self.assertRaises(TypeError):
            self.workflow("apart", Node())("{\"a\": 1}")

    def test_coroutines_await_steps_and_a_result_is_asked_for_once(self):
        node = Node()
        self.assertEqual(json.loads(self.workflow("coroutine", node)("{}")), [3, 3])
        self.assertEqual(node.orders.count("@value"), 1)

    def test_without_steps_nothing_is_asked(self):
        node = Node()
        self.assertEqual(self.workflow("plain", node)("{}"), "1")
        self.assertEqual(node.orders, [])

    def test_a_step_that_failed_is_an_exception_with_the_reason(self):
        failed = self.workflow("loses", Node(problem=("@value", "step-failed")))
        with self.assertRaisesRegex(Exception, "because; do other") as caught:
            failed("{}")
        self.assertEqual((type(caught.exception).__name__, caught.exception.function), ("StepError", "main.add"))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((again.function, again.step, again.reason), ("main.add", 0, "because; do other"))
        with self.assertRaisesRegex(RuntimeError, "because"):
            self.workflow("plain", Node())("{}")
            self.workflow("loses", Node(problem=("@steps", "bad-steps")))("{}")
        with self.assertRaisesRegex(RuntimeError, "because"):
            self.workflow("many", Node(problem=("@settle", "workflow-diverged")))("{}")

    def step(self, name, arguments, *results, named={}):
        function = self.function(SOURCE, {"part": "step", "handler": f"main.{name}"})
        result = function.apply(ID, head_of(), pickle.dumps((arguments, named), 5), *results)
        self.assertTrue(result.startswith(FRAME))
        return pickle.loads(result[len(FRAME) :])

    def test_a_step_is_the_plain_function_of_values(self):
        self.assertEqual(self.step("add", (1,), named={"other": 5}), 6)
        self.assertEqual(self.step("later", (4,)), 8)
        self.assertEqual(self.step("point", (4,)).x, 4)

    def test_results_of_other_steps_come_in_their_places(self):
        node = Node()
        self.workflow(node=node)("{}")
        arguments = node.steps[1][2]
        function = self.function(SOURCE, {"part": "step", "handler": "main.add"})
        # The same step twice is one value, which is read once.
        result = function.apply(ID, b"", arguments, FRAME + pickle.dumps(20, 5))
        self.assertEqual(pickle.loads(result[len(FRAME) :]), 40)
        self.assertEqual(function.module._results, (), "nothing of a request stays")

    def test_what_is_long_is_shared_and_what_lies_in_buffers_is_not_copied(self):
        source = """
        from sinew import function
        import pickle
        class Array:
            def __init__(self, data):
                self.data = data
            def __reduce_ex__(self, protocol):
                return Array, (pickle.PickleBuffer(self.data),)
        @function
        def twice(array):
            array.data[0] = 9
            return [array, Array(bytearray(b"x" * 300_000)), len(array.data)]
        @function
        def gives(size):
            return Array(bytearray(range(100))) if size < 0 else b"y" * size
        """
        function = self.function(source, {"part": "step", "handler": "main.gives"})
        shared = []
        function.module.share = lambda parts: shared.append(b"".join(parts)) or "shared"
        small = function.apply(ID, b"", pickle.dumps(((-1,), {}), 5))
        self.assertIsInstance(small, bytes)
        self.assertEqual((shared, small[len(FRAME)]), ([], 1))
        self.assertEqual(function.apply(ID, b"", pickle.dumps(((300_000,), {}), 5)), "shared")
        self.assertEqual(pickle.loads(shared[0][len(FRAME) :]), b"y" * 300_000)
        function = self.function(source, {"part": "step", "handler": "main.twice"})
        function.module.share = lambda parts: shared.append(b"".join(parts)) or "shared"
        import main

        arguments = pickle.dumps(((main.Array(bytearray(range(100))),), {}), 5)
        self.assertEqual(function.apply(ID, b"", arguments), "shared")
        value = function.module.read_value(memoryview(bytearray(shared[1]))[len(FRAME) :])
        self.assertEqual((bytes(value[0].data[:3]), value[1].data.nbytes, value[2]), (b"\t\x01\x02", 300_000, 100))
        # However it came: it may be written to.
        for body in (shared[1][len(FRAME) :], small[len(FRAME) :]):
            got = function.module.read_value(body)
            array = got[0] if isinstance(got, list) else got
            array.data[1] = 200
            self.assertEqual(array.data[1], 200)

    def test_a_step_tells_how_long_its_parts_took(self):
        source = """
        from sinew import function
        import time
        @function
        def works(seconds):
            time.sleep(abs(seconds))
            return 1 if seconds > 0 else 1 / 0
        """
        function = self.function(source, {"part": "step", "handler": "main.works"})
        for seconds, parts in [(0.02, 3), (-0.02, 2)]:
            try:
                function.apply(ID, b"", pickle.dumps(((seconds,), {}), 5))
            except ZeroDivisionError:
                pass
            marks = function.told.pop()
            times = [(end - begin) / 1e9 for begin, end in zip(marks, marks[1:])]
            self.assertEqual(len(times), parts)
            self.assertTrue(0.02 <= times[1] < 5 and min(times) >= 0, times)
        self.assertEqual(function.told, [])

    def test_types_that_were_pickled_are_named_as_far_as_there_is_room(self):
        heap = {name: __import__(name) for name in ("ctypes", "hashlib", "struct")}
        for name in ("failures.py", "images.py", "models.py", "heap.py"):
            exec((HERE / name).read_text(), heap)
        kinds = [type(f"Kind{number}", (), {"__module__": "main"}) for number in range(20)]
        kinds[0].__qualname__ = "x" * 300
        kinds[1].__module__ = 5
        told, at, names = heap["told_types"]({kind: 20 - number for number, kind in enumerate(kinds)}), 0, []
        while at < len(told):
            count, length = struct.unpack_from("<IB", told, at)
            names.append((told[at + 5 : at + 5 + length].decode(), count))
            at += 5 + length
        self.assertEqual(names[0], (("main." + "x" * 300)[:128], 20))
        self.assertEqual(names[2:4], [("main.Kind2", 18), ("main.Kind3", 17)])
        self.assertEqual((len(names), names[-1]), (17, ("other", 4 + 3 + 2 + 1)))

    def test_what_is_no_step_does_not_load_as_one(self):
        with self.assertRaisesRegex(TypeError, "plain is a function, and no step: put @function before it"):
            self.function(SOURCE, {"part": "step", "handler": "main.plain"})

    def test_what_cannot_be_passed_on_is_told(self):
        source = """
        from sinew import function
        @function
        def gives(x):
            return lambda: x
        """
        function = self.function(source, {"part": "step", "handler": "main.gives"})
        with self.assertRaisesRegex(TypeError, "what gives returned cannot be passed on"):
            function.apply(ID, b"", pickle.dumps(((1,), {}), 5))

    def test_outside_of_workflows_calls_are_calls(self):
        function = self.function(SOURCE + "\ndef handler(event):\n    return add(2, other=5)\n", {})
        self.assertEqual(function("{}"), "7")

    def test_quantities_are_read(self):
        options = self.function(SOURCE, {"handler": "main.plain"}).module.options_of
        self.assertEqual(options(pure="exact"), {"pure": True, "code": None})
        self.assertEqual(options(memory="1.5 GiB", timeout=2), {"memory_bytes": 3 << 29, "timeout_ms": 2000})
        self.assertEqual(options(memory="10MB", timeout="2 min"), {"memory_bytes": 10_000_000, "timeout_ms": 120_000})
        self.assertEqual(options(memory=1 << 20, timeout="250ms"), {"memory_bytes": 1 << 20, "timeout_ms": 250})
        for wrong in ["", "MiB", "5 apples", "-", "1e400GiB"]:
            with self.assertRaisesRegex(ValueError, "no quantity like '512MiB'"):
                options(memory=wrong)


if __name__ == "__main__":
    unittest.main()
