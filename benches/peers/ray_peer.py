# SPDX-License-Identifier: Apache-2.0
"""Ray as a peer: prints one JSON object a line, as `ray.rs` expects.

usage: ray_peer.py invoke|chain
Each job knows two styles, the usual one and the one that suits Ray best. The
first line names them; then, for each line on stdin that is one of them, it is
timed once. The caller takes the faster one. CPU is that of all of Ray's processes.
"""

import json
import os
import sys
import time

import ray

BATCH = 4096
LINKS = 500


def cpu_seconds() -> float:
    """User and system time of this process and of every Ray process."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
            if int(pid) != os.getpid() and b"ray" not in command:
                continue
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rsplit(") ", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
    return total / ticks


def serve(operations: int, styles: dict) -> None:
    """Times a style, which does `operations` operations, as often as it is told."""
    for job in styles.values():
        job()
    print(json.dumps({"styles": list(styles)}), flush=True)
    for line in sys.stdin:
        job = styles[line.strip()]
        cpu, wall = cpu_seconds(), time.perf_counter()
        job()
        wall = time.perf_counter() - wall
        cpu = cpu_seconds() - cpu
        print(json.dumps({"cpu_ns": cpu / operations * 1e9, "wall_ns": wall / operations * 1e9}), flush=True)


@ray.remote
def add(a: int, b: int) -> int:
    """The trivial function."""
    return (a + b) & 255


@ray.remote
def inc(x: int) -> int:
    """One link of the chain."""
    return x + 1


def invoke() -> None:
    """Distinct additions: one by one, and all at once."""

    def one_by_one() -> None:
        for i in range(BATCH):
            assert ray.get(add.remote(i & 255, i >> 8)) == ((i & 255) + (i >> 8)) & 255

    def all_at_once() -> None:
        results = ray.get([add.remote(i & 255, i >> 8) for i in range(BATCH)])
        assert results == [((i & 255) + (i >> 8)) & 255 for i in range(BATCH)]

    serve(BATCH, {"one by one": one_by_one, "all at once": all_at_once})


def chain() -> None:
    """Increments: waiting for each, and by passing references."""

    def blocking() -> None:
        value = 0
        for _ in range(LINKS):
            value = ray.get(inc.remote(value))
        assert value == LINKS

    def by_reference() -> None:
        value = 0
        for _ in range(LINKS):
            value = inc.remote(value)
        assert ray.get(value) == LINKS

    serve(LINKS, {"blocking": blocking, "by reference": by_reference})


def main() -> None:
    """Starts a local Ray on all cores and runs one job."""
    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        {"invoke": invoke, "chain": chain}[sys.argv[1]]()
    finally:
        ray.shutdown()


main()
