# SPDX-License-Identifier: Apache-2.0
"""Idle processes of CPython as a peer, each with modules and data of its own.

usage: idle_python_peer.py forked|alone

The first line of input is {"common": CODE, "own": [CODE, ...]}: a process for each of the latter runs both. If
they are forked, from one that has run the former, with what it has frozen. When all wait, {"pss_bytes": BYTES} is written. Each
further line {"customer": NUMBER, "run": CODE} has one of them run something, and {"printed": TEXT} is the answer.
"""

import contextlib
import gc
import io
import json
import os
import subprocess
import sys


def serve(own: str, namespace: dict, questions, answers) -> None:
    """Runs what one customer has, and then whatever it is asked."""
    exec(own, namespace)
    answers.write("\n")
    answers.flush()
    for line in questions:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(json.loads(line), namespace)
        answers.write(json.dumps(printed.getvalue()) + "\n")
        answers.flush()


def fork(own: str, namespace: dict):
    """A process that shares this one's memory: its id, and how it is asked."""
    asked, ask = os.pipe()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ask)
        os.close(told)
        serve(own, namespace, os.fdopen(asked), os.fdopen(tell, "w"))
        os._exit(0)
    os.close(asked)
    os.close(tell)
    return pid, os.fdopen(ask, "w"), os.fdopen(told)


def start(code: str):
    """A process of its own."""
    command = [sys.executable, __file__, "one"]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    one.stdin.write(json.dumps(code) + "\n")
    one.stdin.flush()
    return one.pid, one.stdin, one.stdout


def pss(pid: int) -> int:
    """Bytes of a process, those that it shares by how many share them."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        line = next(line for line in rollup if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """See the module."""
    if sys.argv[1] == "one":
        serve(json.loads(sys.stdin.readline()), {}, sys.stdin, sys.stdout)
        return
    first = json.loads(sys.stdin.readline())
    counted = []
    if sys.argv[1] == "forked":
        namespace: dict = {}
        exec(first["common"], namespace)
        gc.collect()
        gc.freeze()
        processes = [fork(own, namespace) for own in first["own"]]
        counted.append(os.getpid())
    else:
        processes = [start(first["common"] + own) for own in first["own"]]
    for _, _, told in processes:
        told.readline()
    counted.extend(pid for pid, _, _ in processes)
    print(json.dumps({"pss_bytes": sum(map(pss, counted))}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        _, ask, told = processes[question["customer"]]
        ask.write(json.dumps(question["run"]) + "\n")
        ask.flush()
        print(json.dumps({"printed": json.loads(told.readline())}), flush=True)
    for _, ask, _ in processes:
        ask.close()


main()
