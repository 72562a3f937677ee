# SPDX-License-Identifier: Apache-2.0
# Functions that an instance calls within itself, for they are together with the one that it is (`docs/spec/functions.md`,
# section 9): what the node has said of them, their handlers, and what it is told of their calls. It is run after `lines.py`
# and before `callees.py`, in the same module: names that are not defined here are those of `lines.py` or `template.py`.

import contextvars
import json
import struct
import threading
import time

# What a function is called that names no handler.
WITHIN_HANDLER = "main.handler"
# What the node says of a function: the ask, its number, version, timeout, and the length of its name.
WITHIN_HEAD = struct.Struct("<IIQQH")
# What precedes an ask, on both sides of the head of who asks: its number and the head's length; whether it is for others,
# the line, the function that was called, how long it ran, and the length of its failure.
ASKER, ENDED_HERE = struct.Struct("<IH"), struct.Struct("<BIIII")
WITHIN_RAISED, WITHIN_BAD, WITHIN_LATE = b"\x06", b"\x07", b"\x0e"

# The call that runs here within another one, if one does: threads and tasks have their own.
_running = contextvars.ContextVar("sinew_within", default=None)


class ToldWithin:
    """A function that is called here, as the node says."""

    def __init__(self, payload):
        _, self.number, self.version, self.timeout_ms, length = WITHIN_HEAD.unpack_from(payload)
        at = WITHIN_HEAD.size
        self.name, self.handler = payload[at : at + length].decode(), payload[at + length :].decode() or WITHIN_HANDLER


class Inner:
    """A call that runs within another one, and belongs to the turn of the node's call around both. It is what its handler
    has to do with an answer in pieces, in whatever thread that is sent."""

    __slots__ = ("begun", "context", "heads", "identity", "is_settled", "kept", "kept_bytes", "kept_max", "outer", "parent", "told", "turn", "waited_ns")  # fmt: skip

    def __init__(self, told, turn, outer, parent, identity, heads, kept_max):
        self.told, self.turn, self.outer, self.parent, self.identity, self.heads = told, turn, outer, parent, identity, heads
        self.waited_ns, self.kept, self.kept_bytes, self.kept_max = 0, [], 0, kept_max
        self.is_settled, self.begun = False, time.monotonic_ns()

    def stream(self, piece):
        """There is always room: it is put together here."""
        if self.is_settled:
            raise ConnectionResetError("nobody waits for the answer any more")
        keep(self, piece)  # noqa: F821 - of lines.py
        return True

    def wait_for_room(self, size):
        """There is."""

    async def room_comes(self, size):
        """There is."""

    def when_left(self, then):
        """Who called cannot leave."""


class CallsWithin:
    """The part of what a call has to do with the node while it runs that concerns this.

    Of one turn, calls run here one in the other and never beside each other, for handlers are promised one request at a
    time: what is asked beside that is asked of the node, for another instance.
    """

    def begin_within(self):
        # Finds what calls another handler of the same code, and the context for that; there once the code is loaded.
        self.apply_of, self.context = None, None
        self.withins, self.handlers, self.spans_within = {}, {}, Spans()  # noqa: F821 - of lines.py
        self.reports_within = []
        # The call here that has called no other one here, and the thread of the call that is the node's.
        self.innermost, self.root_thread = None, 0

    def inner(self):
        """The call within the one that runs, in which this is asked."""
        inner = _running.get()
        return inner if inner is not None and inner.turn == self.turn else None

    def told_within(self, payload):
        told = ToldWithin(payload)
        self.withins[told.name] = told
        return told

    def is_innermost(self, inner):
        """Whether nothing runs here beside who calls."""
        return self.innermost is inner and (inner is not None or threading.get_ident() == self.root_thread)

    def may_call_within(self, inner):
        """The same, and its calls may be told of."""
        if not self.is_innermost(inner):
            return False
        identity = inner.identity if inner else self.own_identity()
        return identity is not None and identity.depth < DEPTH_MAX  # noqa: F821 - of lines.py

    def enter_within(self, told, inner, question):
        """A call begins here."""
        identity = inner.identity if inner else self.own_identity()
        deadline = min(identity.deadline_ms, int(time.time() * 1000) + told.timeout_ms)
        own = Identity(  # noqa: F821
            identity.request_id, deadline, identity.depth + 1, identity.seal, identity.trace, self.spans_within.next(),
            identity.flags, told.name,
        )  # fmt: skip
        heads = heads_of(told.name, told.version, identity.function, own, question[2].decode("latin-1"))  # noqa: F821
        running = Inner(told, self.turn, inner, identity.span, own, heads, self.kept_max)
        # It has nothing of what the caller keeps for what follows from it.
        running.context = self.context.copy()
        running.context.run(_running.set, running)
        self.innermost = running
        return running

    def handler_of(self, told):
        handler = self.handlers.get(told.handler)
        if handler is None:
            handler = self.handlers[told.handler] = self.context.copy().run(self.apply_of, told.handler)
        return handler

    def call_within(self, told, inner, question):
        """Calls a function here: status, type and body of the answer."""
        running = self.enter_within(told, inner, question)
        try:
            result = running.context.run(self.handler_of(told), b"", running.heads, question[3])
            answer, failure = self.answer_within(running, result, question)
        except BaseException as error:
            answer, failure = None, (WITHIN_RAISED, *failure_parts(error))  # noqa: F821
        finally:
            self.settled_within(running)
        if failure is None:
            return answer
        # The node tells who called, as of any other call, and writes it down.
        return self.ask_node(question, 0, inner, self.ended_within(running, failure))

    async def call_within_async(self, told, inner, question):
        """The same for coroutines: what is one is awaited on their event loop, and all else keeps that meanwhile."""
        import asyncio

        running = self.enter_within(told, inner, question)
        try:
            handler = self.handler_of(told)
            awaited = getattr(handler, "awaited", None)
            if awaited is None:
                result = running.context.run(handler, b"", running.heads, question[3])
            else:
                call = awaited(b"", running.heads, question[3])
                result = await asyncio.get_running_loop().create_task(call, context=running.context)
            answer, failure = self.answer_within(running, result, question)
        except asyncio.CancelledError:
            # Who called has given it up.
            raise
        except BaseException as error:
            answer, failure = None, (WITHIN_RAISED, *failure_parts(error))  # noqa: F821
        finally:
            self.settled_within(running)
        if failure is None:
            return answer
        return await in_thread(self.ask_node, question, 0, inner, self.ended_within(running, failure))  # noqa: F821 - of callees.py

    def ended_within(self, running, failure):
        return running.told, time.monotonic_ns() - running.begun, b"".join(failure)

    def settled_within(self, running):
        """A call has ended, and that of its caller may have ended before."""
        running.is_settled = True
        if running.turn == self.turn:
            while self.innermost is not None and self.innermost.is_settled:
                self.innermost = self.innermost.outer

    def answer_within(self, running, result, question):
        """Status, type and body of what a call gave; or nothing, and what is told of it."""
        if running.kept_bytes:
            result = b"".join((*running.kept, result))
        length = len(result) if running.kept_bytes <= self.kept_max else running.kept_bytes
        if length > self.kept_max:
            why = f"apply returned {length} bytes, more than the {self.kept_max} that are allowed"
            return None, (WITHIN_BAD, why.encode())
        if time.time() * 1000 >= running.identity.deadline_ms:
            return None, (WITHIN_LATE,)
        read = self.heads.read(result)
        if read is None:
            return None, (WITHIN_BAD, b"apply returned an answer without a head")
        self.took_within(running, len(question[3]), len(result) - read[2], read[0])
        return (read[0], read[1], result[read[2] :]), None

    def own_identity(self):
        """What the call of the node's is known by; its head is read when somebody asks."""
        told = self.request_head
        if told is not None:
            # Threads may do so at the same time, and find the same.
            identity = Identity.told(told)  # noqa: F821
            if self.request_head is told:
                self.identity, self.request_head = identity, None
        return self.identity

    def waited_within(self, inner, took_ns):
        """All that one waits for, who called it waits for too."""
        while inner is not None:
            inner.waited_ns += took_ns
            inner = inner.outer

    def took_within(self, running, received, sent, status):
        """One call more has ended, and the node is told of some at a time."""
        ended, identity = time.monotonic_ns(), running.identity
        spent = (least((ended - running.begun) // 1000), least(running.waited_ns // 1000))  # noqa: F821
        rest = (received, sent, status, running.parent, identity.span, identity.trace, identity.seal, identity.flags)
        self.reports_within.append((running.told.number, ended, spent, rest, identity.request_id))
        if len(self.reports_within) >= REPORTS_MAX or ended - self.reports_within[0][1] >= REPORT_AFTER_NS:  # noqa: F821
            self.report_within()

    def report_within(self):
        """Tells the node of calls that it was not told of: those of a function together."""
        reports, self.reports_within = self.reports_within, []
        now, by_number = time.monotonic_ns(), {}
        for number, *report in reports:
            by_number.setdefault(number, []).append(packed_report(now, *report))  # noqa: F821 - of lines.py
        for number, packed in by_number.items():
            for at in range(0, len(packed), REPORTS_MAX):  # noqa: F821
                head = struct.pack("<I", number)
                self.channel.send(SERVED_WITHIN, OUTSIDE, head, *packed[at : at + REPORTS_MAX])  # noqa: F821

    def before_ask(self, inner, is_for_others, line, ended):
        """What precedes an ask by a function that was called here, of one whose call has ended, or of one that is not to be
        called here."""
        head = inner_head(inner.heads) if inner else b""
        told, ran_ns, failure = ended or (None, 0, b"")
        asker = ASKER.pack(inner.told.number if inner else 0, len(head))
        number = told.number if told else 0
        end = ENDED_HERE.pack(is_for_others, line, number, least(ran_ns // 1000), len(failure))  # noqa: F821
        return asker + head + end + failure


def inner_head(heads):
    """The head of a call as a text."""
    call, http = heads
    return f"{json.dumps(call)}\n{json.dumps(http())}".encode()
