# SPDX-License-Identifier: Apache-2.0
"""What `sinew sdk python` writes: workflows and calls without a node, and beside one where there is `SINEW_NODE`."""

import asyncio
import json
import os
import pathlib
import re
import threading
import time
import unittest
from unittest import mock

import sdk_app as app
import sinew

NODE = os.environ.get("SINEW_NODE")
EVENT = {"trades": 1000, "rules": 12, "value": 21}


class Workflows(unittest.TestCase):
    def test_a_run_gives_what_its_steps_come_to(self):
        self.assertEqual(app.finra(EVENT), {"rules": 12, "bad": 1000})
        told = app.kinds(EVENT)
        self.assertEqual(told["same"], True)
        # Each step has its arguments for itself.
        self.assertEqual(told["changed"], [4, 4])
        self.assertEqual(told["told"], [("sdk_app.fails", 1), ("sdk_app.fails", 2), ("sdk_app.merge", 4)])
        self.assertEqual((told["mapped"], told["isolated"], told["with"]), ([2, 4, 6], 16, 10.5))
        self.assertEqual((told["inside"], told["inner"], told["grown"]), (2, 42, [0, 1, 2, 3]))

    def test_a_coroutine_is_awaited(self):
        self.assertEqual(asyncio.run(app.gathered(EVENT)), [2, [4, 42]])

        async def two():
            return await asyncio.gather(app.gathered(EVENT), app.gathered({"value": 1}))

        self.assertEqual(asyncio.run(two()), [[2, [4, 42]], [2, [4, 2]]])

    def test_a_step_that_fails_is_named_with_its_traceback(self):
        with self.assertRaises(sinew.StepError) as caught:
            app.unseen(EVENT)
        error = caught.exception
        self.assertEqual((error.function, error.step), ("sdk_app.fails", 0))
        self.assertIn("step 0, sdk_app.fails, failed after 3 attempts: ValueError: nobody looks\nTraceback", error.reason)
        self.assertIn("raise ValueError(why)\nValueError: nobody looks", error.reason)
        self.assertNotIn("sinew.py", error.reason)
        self.assertIsInstance(error.__cause__, ValueError)

    def test_who_needs_it_says_so(self):
        with self.assertRaisesRegex(sinew.StepError, "^step 1 needs it: step 0, sdk_app.fails, failed after 3 attempts"):
            app.deep(EVENT)

    def test_a_long_chain_fails_as_one(self):
        @sinew.workflow
        def flow():
            step = app.fails("at the beginning")
            for _ in range(3000):
                step = app.doubled(step)
            return step

        with self.assertRaisesRegex(sinew.StepError, "^step 3000 needs it: step 0, "):
            flow()

    def test_a_failure_fails_the_run_unless_somebody_was_told_of_it(self):
        self.assertEqual(app.seen_below(EVENT), ["seen", 2])
        for name in ("one_of_two", "too_early", "first_failure"):
            with self.subTest(name), self.assertRaises(sinew.StepError):
                getattr(app, name)(EVENT)

    def test_the_first_failure_is_told_at_once(self):
        seen = []

        @sinew.workflow
        def flow():
            begun = time.monotonic()
            try:
                app.two(app.later_fails(2), app.fails("at once")).result()
            except sinew.StepError as error:
                seen.append((time.monotonic() - begun < 1.5, error.reason))
                raise

        with self.assertRaises(sinew.StepError):
            flow()
        self.assertTrue(seen[0][0] and "at once" in seen[0][1], seen)

    def test_an_event_loop_goes_on_while_a_run_ends(self):
        async def beside():
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            @sinew.workflow
            async def flow():
                app.later_fails(0.5)
                raise LookupError("over")

            ticking = asyncio.ensure_future(tick())
            with self.assertRaises(LookupError):
                await flow()
            ticking.cancel()
            return ticks

        self.assertGreater(asyncio.run(beside()), 10)

    def test_steps_are_of_no_workflow_whatever_their_threads_inherit(self):
        import contextvars
        from concurrent.futures import ThreadPoolExecutor

        class Inherits(ThreadPoolExecutor):
            def submit(self, call, *arguments):
                context = contextvars.copy_context()
                return super().submit(context.run, call, *arguments)

        with mock.patch("sinew.ThreadPoolExecutor", Inherits):
            self.assertEqual(app.kinds(EVENT)["inside"], 2)

    def test_versions_of_functions_are_called(self):
        with mock.patch("http.client.HTTPConnection.request", side_effect=OSError("seen")) as request:
            with self.assertRaises(sinew.CallError):
                sinew.call("price:canary")
        self.assertEqual(request.call_args.args[1], "/function/price:canary")

    def test_what_cannot_be_passed_on_is_told(self):
        with self.assertRaisesRegex(sinew.StepError, "what makes_a_lambda returned cannot be passed on"):
            app.unwritten(EVENT)
        with self.assertRaisesRegex(TypeError, "an argument of sdk_app.doubled cannot be passed on"):
            app.unsent(EVENT)

    def test_elsewhere_calls_are_ordinary(self):
        self.assertEqual(app.fetch(2), [0, 1])
        self.assertEqual(app.fetch.map([1, 2]), [[0], [0, 1]])
        with self.assertRaises(ValueError):
            app.fails("as it is")

    def test_a_step_is_no_value_before_it_is_asked_for(self):
        @sinew.workflow
        def flow():
            step = app.fetch(3)
            for wrong in (lambda: bool(step), lambda: step + 1, lambda: step[0], lambda: list(step)):
                with self.assertRaises(TypeError):
                    wrong()
            other = [step]
            return other

        self.assertEqual(flow(), [[0, 1, 2]])

    def test_it_waits_for_no_longer_than_is_said(self):
        may_end = threading.Event()
        app_slow.may_end = may_end

        @sinew.workflow
        def flow():
            step = app_slow()
            with self.assertRaises(TimeoutError):
                step.result(timeout=0.05)
            may_end.set()
            return step

        self.assertEqual(flow(), "late")

    def test_a_workflow_that_fails_begins_no_more(self):
        begun, may_end = [], threading.Event()
        app_counted.begun, app_counted.may_end = begun, may_end

        @sinew.workflow
        def flow():
            for number in range(20):
                app_counted(number)
            threading.Timer(0.1, may_end.set).start()
            raise LookupError("no more of it")

        with self.assertRaises(LookupError):
            flow()
        self.assertEqual(len(begun), 1)

    def test_functions_run_in_as_many_places_as_they_say(self):
        app_alone.here, app_alone.most = 0, 0

        @sinew.workflow
        def flow():
            return app_alone.map(range(12))

        flow()
        self.assertEqual(app_alone.most, 1)

    def test_two_ways_in_one_run_are_refused(self):
        @sinew.workflow
        def flow():
            app.fetch(1)
            return app.fetch.options(retries=1)(1)

        with self.assertRaisesRegex(ValueError, "sdk_app.fetch is run in two ways"):
            flow()
        with self.assertRaisesRegex(ValueError, "no quantity like '512MiB'"):
            sinew.function(memory="lots")


@sinew.function
def app_slow():
    app_slow.may_end.wait(10)
    return "late"


@sinew.function(concurrency=1)
def app_counted(number):
    app_counted.begun.append(number)
    app_counted.may_end.wait(10)


@sinew.function(concurrency=1)
def app_alone(number):
    app_alone.here += 1
    app_alone.most = max(app_alone.most, app_alone.here)
    threading.Event().wait(0.002)
    app_alone.here -= 1
    return number


class Handlers(unittest.TestCase):
    def test_a_context_is_made(self):
        context = sinew.local_context(query="a=1&b=2", headers={"Ce-Specversion": "1.0", "X-Y": "z"}, memory="1GiB", timeout="90s")
        self.assertEqual(app.greet({"name": "Ada"}, context), {"hello": "Ada", "of": "local", "query": {"a": "1", "b": "2"}, "left": True})
        self.assertEqual((context.memory_limit_in_mb, context.http.headers["x-y"]), (1024, "z"))
        self.assertEqual(context.cloud_event, {"specversion": "1.0"})

    def test_calls_can_be_replaced(self):
        with mock.patch("sinew.call", lambda name, payload=None: {"name": name, "got": payload}):
            self.assertEqual(sinew.call("price", 1), {"name": "price", "got": 1})

    def test_where_no_node_is_it_says_what_to_do(self):
        for node in ("http://127.0.0.1:1", "/no/such.sock"):
            with mock.patch.dict(os.environ, {"SINEW_NODE": node}):
                with self.assertRaisesRegex(sinew.CallError, "did not answer.*sinew up") as caught:
                    sinew.call("price")
                self.assertEqual((caught.exception.status, caught.exception.component), (503, "sdk"))
        with mock.patch.dict(os.environ, {"SINEW_NODE": "ftp://there"}), self.assertRaisesRegex(ValueError, "SINEW_NODE is 'ftp://there'"):
            sinew.call("price")
        with self.assertRaisesRegex(TypeError, "the payload.'a'. cannot be written as JSON"):
            sinew.call("price", {"a": object()})


class Types(unittest.TestCase):
    def test_what_is_declared_is_there(self):
        import ast
        import inspect

        declared = ast.parse(pathlib.Path(sinew.__file__).with_suffix(".pyi").read_text())
        seen = 0
        for node in declared.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                seen += 1
                own = getattr(sinew, node.name)
                self.assertEqual(inspect.iscoroutinefunction(own), isinstance(node, ast.AsyncFunctionDef), node.name)
                named = {argument.arg for argument in node.args.kwonlyargs}
                if named and node.name != "function":
                    self.assertEqual(named, set(inspect.signature(own).parameters), node.name)
                elif named:
                    self.assertEqual(named, set(inspect.signature(sinew.options_of).parameters))
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen += 1
                own = getattr(sinew, node.name)
                for member in node.body:
                    if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        self.assertTrue(hasattr(own, member.name), f"{node.name}.{member.name}")
        self.assertGreater(seen, 12)
        declared_of_context = next(node for node in declared.body if getattr(node, "name", "") == "Context")
        for member in declared_of_context.body:
            if isinstance(member, ast.AnnAssign):
                self.assertTrue(hasattr(sinew.local_context(), member.target.id), member.target.id)


@unittest.skipUnless(NODE, "no node")
class BesideANode(unittest.TestCase):
    def plain(self, value):
        """As it comes back from a node."""
        return json.loads(json.dumps(value))

    def test_a_node_says_the_same(self):
        for name in ("finra", "kinds", "inner", "seen_below", "given_a_coroutine"):
            with self.subTest(name):
                self.assertEqual(self.plain(getattr(app, name)(EVENT)), sinew.call(name.replace("_", "-"), EVENT))
        self.assertEqual(asyncio.run(app.gathered(EVENT)), sinew.call("gathered", EVENT))

    def test_a_node_tells_failures_alike(self):
        for name in ("unseen", "deep", "unwritten", "unsent", "one_of_two", "too_early", "first_failure", "in_a_coroutine"):
            with self.subTest(name):
                with self.assertRaises((sinew.StepError, TypeError)) as here:
                    getattr(app, name)(EVENT)
                with self.assertRaises(sinew.CallError) as there:
                    sinew.call(name.replace("_", "-"), EVENT)
                own = re.sub(r'File "[^"]*/', 'File "/app/', str(here.exception))
                # The marks below a line are those of the interpreter.
                own, told = (re.sub(r"\n *[\^~]+", "", text) for text in (own, there.exception.reason))
                self.assertIn(own, told)

    def test_functions_of_the_node_are_called(self):
        answer = sinew.call("greet", {"name": "Ada"})
        self.assertEqual((answer["hello"], answer["of"]), ("Ada", "greet"))
        self.assertEqual(asyncio.run(sinew.call_async("greet", {"name": "Ada"})), answer)
        with self.assertRaises(sinew.CallError) as caught:
            sinew.call("refuse", {})
        self.assertEqual((caught.exception.status, caught.exception.function), (500, "refuse"))
        self.assertIn("no such item", caught.exception.reason)
        self.assertTrue(caught.exception.request_id)
        with self.assertRaises(sinew.CallError) as caught:
            sinew.call("nobody", {})
        self.assertEqual(caught.exception.status, 404)


if __name__ == "__main__":
    unittest.main()
