# SPDX-License-Identifier: Apache-2.0
# Functions that an instance calls within itself, for they are together with the one that it is (`docs/spec/functions.md`,
# section 9): what the node has said of them, their handlers, and what it is told of their calls. It is run after `lines.py`
# and before `callees.py`, in the same module: names that are not defined here are those of `lines.py` or `template.py`.

import contextvars
import json
import os
import struct
import time

# What a function is called that names no handler.
WITHIN_HANDLER = "main.handler"
# What the node says of a function: the ask, its number, version, timeout, and the length of its name.
WITHIN_HEAD = struct.Struct("<IIQQH")
# What precedes an ask, on both sides of the head of who asks: its number and the head's length; the line, the function
# that was called, how long it ran, and the length of its failure.
ASKER, ENDED_HERE = struct.Struct("<IH"), struct.Struct("<IIII")
WITHIN_RAISED, WITHIN_BAD = b"\x06", b"\x07"

# The call that runs here within another one, if one does: threads and tasks have their own.
_running = contextvars.ContextVar("sinew_within", default=None)


class ToldWithin:
    """A function that is called here, as the node says."""

    def __init__(self, payload):
        _, self.number, self.version, self.timeout_ms, length = WITHIN_HEAD.unpack_from(payload)
        at = WITHIN_HEAD.size
        self.name, self.handler = payload[at : at + length].decode(), payload[at + length :].decode() or WITHIN_HANDLER


class Inner:
    """A call that runs within another one, and belongs to the turn of the node's call around both."""

    __slots__ = ("heads", "identity", "kept", "kept_bytes", "outer", "told", "turn", "waited_ns")

    def __init__(self, told, turn, outer, identity, heads):
        self.told, self.turn, self.outer, self.identity, self.heads = told, turn, outer, identity, heads
        self.waited_ns, self.kept, self.kept_bytes = 0, [], 0


class CallsWithin:
    """The part of what a call has to do with the node while it runs that concerns this."""

    def begin_within(self):
        # Finds another handler of the same code; there once that is loaded.
        self.other = None
        self.withins, self.handlers, self.spans_within = {}, {}, b""
        self.reports_within = []

    def inner(self):
        """The call within the one that runs, in which this is asked."""
        inner = _running.get()
        return inner if inner is not None and inner.turn == self.turn else None

    def told_within(self, payload):
        told = ToldWithin(payload)
        self.withins[told.name] = told
        return told

    def call_within(self, told, inner, name, kind, body):
        """Calls a function here: status, type and body of the answer; None if that cannot be."""
        identity = inner.identity if inner else self.own_identity()
        if identity is None or identity.depth >= DEPTH_MAX:  # noqa: F821 - of lines.py
            return None
        begun = time.monotonic_ns()
        deadline = min(identity.deadline_ms, int(time.time() * 1000) + told.timeout_ms)
        own = Identity(  # noqa: F821
            identity.request_id, deadline, identity.depth + 1, identity.seal, identity.trace, self.span_within(),
            identity.flags, told.name,
        )  # fmt: skip
        heads = heads_of(told.name, told.version, identity.function, own, kind.decode("latin-1"))  # noqa: F821
        running = Inner(told, self.turn, inner, own, heads)
        token = _running.set(running)
        try:
            handler = self.handlers.get(told.handler)
            if handler is None:
                handler = self.handlers[told.handler] = self.other(told.handler)
            result = handler(b"", heads, body)
            if running.kept_bytes:
                result = b"".join((*running.kept, result))
            read, why = self.read_within(running, result)
            failure = None if read else (WITHIN_BAD, why.encode())
        except BaseException as error:
            failure = (WITHIN_RAISED, *failure_parts(error))  # noqa: F821
        finally:
            _running.reset(token)
        ended = time.monotonic_ns()
        if failure:
            # The node tells who called, as of any other call, and writes it down.
            return self.ask_node(name, kind, body, 0, inner, (told, ended - begun, b"".join(failure)))
        self.took_within(running, (begun, ended), len(body), len(result) - read[2], read[0], identity.span)
        return read[0], read[1], result[read[2] :]

    def read_within(self, running, result):
        """Status, type and where the body begins of what a call gave; or nothing, and why."""
        length = len(result) if running.kept_bytes <= self.kept_max else running.kept_bytes
        if length > self.kept_max:
            return None, f"apply returned {length} bytes, more than the {self.kept_max} that are allowed"
        return self.heads.read(result), "apply returned an answer without a head"

    def own_identity(self):
        """What the call of the node's is known by; its head is read when somebody asks."""
        told = self.request_head
        if told is not None:
            # Threads may do so at the same time, and find the same.
            identity = Identity.told(told)  # noqa: F821
            if self.request_head is told:
                self.identity, self.request_head = identity, None
        return self.identity

    def span_within(self):
        """A name for a call, that no other one has."""
        spans = self.spans_within or os.urandom(8 * REPORTS_MAX)  # noqa: F821
        self.spans_within = spans[8:]
        return spans[:8] if any(spans[:8]) else b"\1" * 8

    def waited_within(self, inner, took_ns):
        """All that one waits for, who called it waits for too."""
        while inner is not None:
            inner.waited_ns += took_ns
            inner = inner.outer

    def took_within(self, running, times, received, sent, status, parent):
        """One call more has ended, and the node is told of some at a time."""
        (begun, ended), identity = times, running.identity
        spent = (least((ended - begun) // 1000), least(running.waited_ns // 1000))  # noqa: F821
        rest = (received, sent, status, parent, identity.span, identity.trace, identity.seal, identity.flags)
        self.reports_within.append((running.told.number, ended, spent, rest, identity.request_id))
        oldest = self.reports_within[0][1]
        if len(self.reports_within) >= REPORTS_MAX or ended - oldest >= REPORT_AFTER_NS:  # noqa: F821
            self.report_within()

    def report_within(self):
        """Tells the node of calls that it was not told of: those of a function together."""
        # Threads may do so at the same time.
        reports, self.reports_within = self.reports_within, []
        now, by_number = time.monotonic_ns(), {}
        for number, ended, spent, rest, request_id in reports:
            packed = REPORT.pack(*spent, least((now - ended) // 1000), *rest, len(request_id))  # noqa: F821
            by_number.setdefault(number, []).append(packed + request_id)
        for number, packed in by_number.items():
            for at in range(0, len(packed), REPORTS_MAX):  # noqa: F821
                head = struct.pack("<I", number)
                self.channel.send(SERVED_WITHIN, OUTSIDE, head, *packed[at : at + REPORTS_MAX])  # noqa: F821

    def before_ask(self, inner, line, ended):
        """What precedes an ask by a function that was called here, or of one whose call has ended."""
        head = inner_head(inner.heads) if inner else b""
        told, ran_ns, failure = ended or (None, 0, b"")
        asker = ASKER.pack(inner.told.number if inner else 0, len(head))
        number = told.number if told else 0
        return asker + head + ENDED_HERE.pack(line, number, least(ran_ns // 1000), len(failure)) + failure  # noqa: F821


def inner_head(heads):
    """The head of a call as a text."""
    call, http = heads
    return f"{json.dumps(call)}\n{json.dumps(http())}".encode()
