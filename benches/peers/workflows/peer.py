# SPDX-License-Identifier: Apache-2.0
"""Peers of the workflows of a node: prints one JSON object a line.

usage: peer.py redis|ray|local FOLDER
FOLDER has main.py; for redis also redis.sock. After a line that says that it is ready, each line on
stdin is a JSON object {"workflow", "event"}; it is run once, and told: {"wall_ns", "result"}.

redis: worker processes that wait for tasks in a list, results pickled (protocol 5) into Redis, a
coordinator that knows the graph. Values stay with the run, as they do in a node.
ray: each call is a task. local: all in this process, one after the other: nothing is passed on.
"""

import itertools
import json
import os
import pickle
import sys
import threading
import time
import types

WORKERS = 16


class Local:
    """Calls are calls."""

    def call(self, body, arguments):
        return body(*arguments)

    def result(self, value):
        return value

    def end(self):
        pass


class Ray:
    def __init__(self):
        import ray

        self.ray, self.remote = ray, {}
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, configure_logging=False)

    def call(self, body, arguments):
        if body not in self.remote:
            # A list of results is passed as its members: Ray waits for what is at the top only.
            self.remote[body] = self.ray.remote(lambda count, *flat: body(*unflat(count, flat)))
        return self.remote[body].remote(*flat(arguments))

    def result(self, value):
        return self.ray.get(value)

    def end(self):
        pass


def flat(arguments):
    """How many of each argument there are, and all of them; -1 is one that is no list."""
    counts = [len(each) if isinstance(each, list) else -1 for each in arguments]
    return counts, *itertools.chain.from_iterable(each if isinstance(each, list) else [each] for each in arguments)


def unflat(counts, values):
    values = iter(values)
    return [next(values) if count < 0 else list(itertools.islice(values, count)) for count in counts]


class Value:
    """A value in Redis, or on its way there."""

    def __init__(self, key):
        self.key, self.is_there, self.wanted_by = key, False, []


class Redis:
    def __init__(self, folder):
        import redis

        self.path = os.path.join(folder, "redis.sock")
        self.database = redis.Redis(unix_socket_path=self.path)
        self.database.flushall()
        for _ in range(WORKERS):
            if os.fork() == 0:
                self.work()
        self.keys, self.values = itertools.count(), {}
        self.changed = threading.Condition()
        self.listening = redis.Redis(unix_socket_path=self.path)
        threading.Thread(target=self.listen, daemon=True).start()

    def work(self):
        import redis

        import main

        database = redis.Redis(unix_socket_path=self.path)
        while True:
            _, task = database.blpop("tasks")
            key, name, written = pickle.loads(task)
            if name is None:
                os._exit(0)
            result = getattr(main, name)(*read(written, lambda known: pickle.loads(database.get(known))))
            # One round trip for both, as whoever knows Redis does.
            pipe = database.pipeline(transaction=False)
            pipe.set(key, pickle.dumps(result, 5))
            pipe.rpush("done", key)
            pipe.execute()

    def listen(self):
        while True:
            _, key = self.listening.blpop("done")
            with self.changed:
                value = self.values[key.decode()]
                value.is_there = True
                for task in value.wanted_by:
                    task["missing"] -= 1
                    if not task["missing"]:
                        self.database.rpush("tasks", task["text"])
                self.changed.notify_all()

    def call(self, body, arguments):
        value = Value(f"value-{next(self.keys)}")
        needs = []
        written = write(arguments, needs)
        task = {"text": pickle.dumps((value.key, body.__name__, written), 5), "missing": 0}
        with self.changed:
            self.values[value.key] = value
            for need in {need.key: need for need in needs}.values():
                if not need.is_there:
                    need.wanted_by.append(task)
                    task["missing"] += 1
            if not task["missing"]:
                self.database.rpush("tasks", task["text"])
        return value

    def result(self, value):
        with self.changed:
            self.changed.wait_for(lambda: value.is_there)
        return pickle.loads(self.database.get(value.key))

    def end(self):
        if self.values:
            self.database.delete(*self.values)
        self.values = {}

    def close(self):
        for _ in range(WORKERS):
            self.database.rpush("tasks", pickle.dumps((None, None, None)))


def write(arguments, needs):
    import io

    target = io.BytesIO()
    pickler = pickle.Pickler(target, 5)

    def persistent(value):
        if isinstance(value, Value):
            needs.append(value)
            return value.key
        return None

    pickler.persistent_id = persistent
    pickler.dump(arguments)
    return target.getvalue()


def read(written, load):
    import io

    unpickler = pickle.Unpickler(io.BytesIO(written))
    unpickler.persistent_load = load
    return unpickler.load()


def main():
    kind, folder = sys.argv[1:3]
    sys.path.insert(0, folder)
    own = types.ModuleType("sinew")
    own.workflow = lambda body: body
    sys.modules["sinew"] = own
    current = []

    def function(body):
        def call(*arguments):
            return current[0].call(body, arguments) if current else body(*arguments)

        call.__name__ = body.__name__
        return call

    own.function = function
    import main as workflows

    # Workers are forked before there is anybody to call: there, calls are calls.
    current.append({"redis": lambda: Redis(folder), "ray": Ray, "local": Local}[kind]())
    run = current[0]
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        begun = time.perf_counter()
        result = run.result(getattr(workflows, told["workflow"])(told["event"]))
        wall = time.perf_counter() - begun
        run.end()
        print(json.dumps({"wall_ns": wall * 1e9, "result": result}), flush=True)
    if kind == "redis":
        run.close()


main()
