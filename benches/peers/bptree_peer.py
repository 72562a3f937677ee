# SPDX-License-Identifier: Apache-2.0
"""Ray as a peer of `bptree`: looks keys up in a search tree, node by node.

usage: bptree_peer.py LINES ARITY
LINES are sorted: a key, a tab, a value. For each line on stdin, `STYLE INDEX…`, these
keys are looked up one after another; a JSON object tells when they are about to be, and
another one what was found, how long it took, and how much data that was. A node is a list: a reference to its keys, then one to each child. The
keys are two arrays, which Ray hands over without copying. What lies on the paths is
made before the clock starts; other children are references to one object where a node
has more than 4,096, else each to one of its own.

*blocking*: one task looks a key up and waits for each object in turn.
*passing*: each object is an argument of a task of its own.
"""

import json
import os
import sys
import time

import numpy
import ray

OWN_REFERENCES_MAX = 4096


def last_up_to(keys, wanted: bytes) -> int:
    """The last key that is not greater."""
    ends, data = keys
    begin, end = 0, len(ends) - 1
    while begin < end:
        middle = (begin + end) // 2
        if data[ends[middle] : ends[middle + 1]].tobytes() <= wanted:
            begin = middle + 1
        else:
            end = middle
    return begin - 1


@ray.remote
def look_up(boxed: list, levels: int, wanted: bytes) -> str:
    """A whole look-up in one task."""
    reference = boxed[0]
    for _ in range(levels):
        node = ray.get(reference)
        reference = node[1 + last_up_to(ray.get(node[0]), wanted)]
    return ray.get(reference)


@ray.remote
def enter(boxed: list, node: list, levels: int, wanted: bytes):
    """A node is here; its keys are asked for."""
    return choose.remote(boxed, node, node[0], levels, wanted)


@ray.remote
def choose(boxed: list, node: list, keys, levels: int, wanted: bytes):
    """A node and its keys are here; the child is asked for."""
    child = node[1 + last_up_to(keys, wanted)]
    if levels == 1:
        return child
    return enter.remote([child], child, levels - 1, wanted)


class Tree:
    """What lies on the paths to some keys."""

    def __init__(self, path: str, arity: int):
        with open(path, "rb") as file:
            lines = [line.rstrip(b"\n").split(b"\t", 1) for line in file]
        self.keys = [key for key, _ in lines]
        self.values = [value.decode() for _, value in lines]
        self.arity = arity
        self.levels = 1
        while arity**self.levels < len(self.keys):
            self.levels += 1
        self.filler = ray.put("nothing")
        # Of the nodes on the paths, and their keys.
        self.on_paths = []

    def plant(self, level: int, first: int, wanted: list):
        """The node of `level` from entry `first` on, with those of `wanted` below it."""
        width = self.arity**level
        starts = range(first, min(first + width * self.arity, len(self.keys)), width)
        keys = [self.keys[start] for start in starts]
        ends = numpy.zeros(len(keys) + 1, dtype=numpy.int64)
        numpy.cumsum([len(key) for key in keys], out=ends[1:])
        data = numpy.frombuffer(b"".join(keys), dtype=numpy.uint8)
        children = []
        on_path = {start: [index for index in wanted if start <= index < start + width] for start in
                   {first + (index - first) // width * width for index in wanted}}
        for start in starts:
            below = on_path.get(start)
            if below is None:
                own = len(starts) <= OWN_REFERENCES_MAX
                children.append(ray.put(start) if own else self.filler)
            elif level == 0:
                children.append(ray.put(self.values[start]))
            else:
                children.append(self.plant(level - 1, start, below))
        keys = ray.put((ends, data))
        node = ray.put([keys, *children])
        self.on_paths += [keys, node]
        return node


class Workers:
    """How much Ray's worker processes grow."""

    def __init__(self):
        self.resident = {}
        for process in self.processes():
            try:
                # From now on the most that it takes is told anew.
                with open(f"/proc/{process}/clear_refs", "w") as file:
                    file.write("5")
                self.resident[process] = self.kib(process, "VmRSS")
            except OSError:
                continue

    @staticmethod
    def processes() -> list:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if file.read().startswith(b"ray::"):
                        found.append(name)
            except OSError:
                continue
        return found

    @staticmethod
    def kib(process: str, figure: str) -> int:
        with open(f"/proc/{process}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(figure))

    def grew_kib(self) -> int:
        grew = 0
        for process in self.processes():
            try:
                grew += max(0, self.kib(process, "VmHWM") - self.resident.get(process, 0))
            except (OSError, StopIteration):
                continue
        return grew


def read_kib(tree: Tree) -> float:
    """What is on the paths, as Ray keeps it."""
    locations = ray.experimental.get_object_locations(tree.on_paths)
    return sum(location["object_size"] for location in locations.values()) / 1024


def blocking(tree: Tree, root, wanted: bytes) -> str:
    return ray.get(look_up.remote([root], tree.levels, wanted))


def passing(tree: Tree, root, wanted: bytes) -> str:
    found = enter.remote([root], root, tree.levels, wanted)
    while isinstance(found, ray.ObjectRef):
        found = ray.get(found)
    return found


def main() -> None:
    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        tree = Tree(sys.argv[1], int(sys.argv[2]))
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            style, *indices = line.split()
            indices = [int(index) for index in indices]
            tree.on_paths.clear()
            root = tree.plant(tree.levels - 1, 0, indices)
            style = {"blocking": blocking, "passing": passing}[style]
            print(json.dumps({"planted": True}), flush=True)
            workers = Workers()
            begun = time.perf_counter()
            found = [style(tree, root, tree.keys[index]) for index in indices]
            wall = time.perf_counter() - begun
            data = {"read_kib": read_kib(tree), "memory_kib": workers.grew_kib()}
            print(json.dumps({"found": found, "wall_us": wall * 1e6} | data), flush=True)
    finally:
        ray.shutdown()


main()
