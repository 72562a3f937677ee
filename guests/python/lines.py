# SPDX-License-Identifier: Apache-2.0
"""Both ends of lines, by which functions call each other without the node
(`docs/spec/lines.md`).

The node puts this text before that of `template.py`. What is native is in
`guests/template/line.c`, which takes care of an other end that lies.
"""

import ctypes
import errno
import json
import os
import struct
import threading
import time

# Of lines (docs/spec/lines.md): bytes of a message; functions that may wait for one another.
LINE_BYTES_MAX, DEPTH_MAX = (64 << 10) - 4, 16
# Requests of a report, and how long the first of them may wait for others.
REPORTS_MAX, REPORT_AFTER_NS = 32, 5_000_000
# Before the request's id, type and body: number, deadline, depth, seal, trace, span, flags, both lengths.
LINE_REQUEST = struct.Struct("<IQI16s16s8sBBH")
# Before the request's id: times, bytes, status, both spans, trace, seal, flags, length.
REPORT = struct.Struct("<IIIIIH8s8s16s16sBB")
# Of a result's first word: the length of its head.
HEAD_LENGTH = 0x3FFFFFFF


class Line:
    """One end of a line to another instance. Who has the lock uses it."""

    def __init__(self, core, number, name):
        self.core, self.number, self.name = core, number, name
        self.lock = threading.Lock()
        self.data = bytearray(LINE_BYTES_MAX)
        self.buffer = (ctypes.c_char * LINE_BYTES_MAX).from_buffer(self.data)
        self.place = ctypes.addressof(self.buffer)
        self.end, self.last = -1, 0

    def open(self, descriptors):
        """Takes the end that these lead to; whether that went well."""
        own = [descriptors.popleft() for _ in range(3)] if len(descriptors) > 2 else None
        self.end = self.core.line_open(*own) if own else -1
        return self.end >= 0

    def is_closed(self):
        return self.end < 0 or self.core.line_is_closed(self.end) == 1

    def close(self):
        if self.end >= 0:
            self.core.line_close(self.end)
            self.end = -1

    def ask(self, message):
        """The length of the answer, or an error below zero."""
        got = self.core.waiting.line_ask(self.end, message, len(message), self.place, LINE_BYTES_MAX)
        while got in (-errno.EINTR, -errno.ETIMEDOUT):
            got = self.next(-1)
        return got

    def take(self, timeout_us):
        return self.core.waiting.line_take(self.end, self.place, LINE_BYTES_MAX, timeout_us)

    def next(self, timeout_us):
        return self.core.waiting.line_next(self.end, self.place, LINE_BYTES_MAX, timeout_us)

    def message(self, size):
        return bytes(memoryview(self.data)[:size])


class Identity:
    """For what a call runs, as calls on lines hand it down."""

    __slots__ = ("deadline_ms", "depth", "flags", "function", "request_id", "seal", "span", "trace")

    def __init__(self, request_id, deadline_ms, depth, seal, trace, span, flags, function):
        self.function = function
        self.request_id, self.deadline_ms, self.depth = request_id, deadline_ms, depth
        self.seal, self.trace, self.span, self.flags = seal, trace, span, flags

    @staticmethod
    def told(head):
        """What the head of a request says; None: its calls take no lines."""
        call, _, http = head.partition(b"\n")
        call = json.loads(call) if call else {}
        if "seal" not in call:
            return None
        parent = next(value for name, value in json.loads(http)["headers"] if name == "traceparent")
        trace, span, flags = map(bytes.fromhex, parent.split("-")[1:4])
        seal, depth = bytes.fromhex(call["seal"]), call.get("depth", 0)
        function = call.get("function", "")
        return Identity(call["request_id"].encode(), call["deadline_ms"], depth, seal, trace, span, flags[0], function)


class Heads:
    """What was read of the heads of results: most functions have few."""

    def __init__(self):
        self.known = {}

    def read(self, result):
        """Status, type and where the body begins; None if it is no result."""
        if len(result) < 4:
            return None
        begin = 4 + (int.from_bytes(result[:4], "little") & HEAD_LENGTH)
        if begin > len(result):
            return None
        head = result[4:begin]
        known = self.known.get(head)
        if known is None:
            try:
                read = json.loads(head) if head else {}
                status = read.get("status", 200)
                kinds = (value for name, value in read.get("headers", ()) if name.lower() == "content-type")
                known = (status, next(kinds, ""))
            except (ValueError, AttributeError, TypeError):
                return None
            if type(status) is not int or not 200 <= status <= 599 or type(known[1]) is not str:
                return None
            if len(self.known) >= 64:
                self.known.clear()
            self.known[head] = known
        return *known, begin


class Spans:
    """Names for calls, that no other one has."""

    def __init__(self):
        self.drawn = b""

    def next(self):
        drawn = self.drawn or os.urandom(8 * REPORTS_MAX)
        self.drawn = drawn[8:]
        return drawn[:8] if any(drawn[:8]) else b"\1" * 8


class Served:
    """The line that an instance serves, as a call of the node's, and what is to be told of it."""

    def __init__(self, line, turn, timeout_ms, version, function, caller):
        self.line, self.turn, self.timeout_ms = line, turn, timeout_ms
        self.version, self.function, self.caller = version, function, caller
        # Reports without their first field but one: how long ago it was is known when they are sent.
        self.reports, self.spans = [], Spans()

    def took(self, begun_ns, ended_ns, waited_ns, received, sent, status, parent, identity):
        """One request more has had its answer."""
        times = (least((ended_ns - begun_ns) // 1000), least(waited_ns // 1000))
        rest = (received, sent, status, parent, identity.span, identity.trace, identity.seal, identity.flags)
        self.reports.append((ended_ns, times, rest, identity.request_id))

    def is_due(self, now_ns):
        if not self.reports:
            return False
        ended_ns, (running_us, _), _, _ = self.reports[0]
        # What took long is told at once: the next one may too.
        is_late = now_ns - ended_ns >= REPORT_AFTER_NS or running_us * 1000 >= REPORT_AFTER_NS
        return is_late or len(self.reports) >= REPORTS_MAX

    def report(self, channel):
        """Tells the node of those that it was not told of."""
        if self.reports:
            now = time.monotonic_ns()
            parts = [packed_report(now, *report) for report in self.reports]
            self.reports = []
            channel.send(SERVED, self.turn, b"".join(parts))


def packed_report(now_ns, ended_ns, times, rest, request_id):
    return REPORT.pack(*times, least((now_ns - ended_ns) // 1000), *rest, len(request_id)) + request_id


def keep(of, piece):
    """A piece of an answer that is not sent before it is whole; of one that is too long only the bytes are counted."""
    of.kept_bytes += len(piece)
    if of.kept_bytes <= of.kept_max:
        of.kept.append(bytes(piece))
    else:
        of.kept = []


def heads_of(function, version, caller, identity, kind):
    """Both parts of the head of a request, as the node would write them; the second one when it is asked for."""
    call = {
        "request_id": identity.request_id.decode(), "function": function, "version": version,
        "deadline_ms": identity.deadline_ms, "source": "call", "caller": caller, "depth": identity.depth,
        "seal": identity.seal.hex(),
    }  # fmt: skip
    if kind:
        call["content_type"] = kind

    def http():
        parent = f"00-{identity.trace.hex()}-{identity.span.hex()}-{identity.flags:02x}"
        headers = [["content-type", kind]] if kind else []
        return {"method": "POST", "path": "/", "query": "", "headers": [*headers, ["traceparent", parent]]}

    return call, http


def least(number):
    return min(number, 0xFFFFFFFF)


class ServesLines:
    """The part of an instance that has to do with lines. Names that are not defined here are those of `template.py`."""

    def tell_waited(self):
        """The node sees nothing of what is asked on lines."""
        if self.callees.on_lines_ns:
            self.channel.send(WAITED, self.turn, struct.pack("<Q", self.callees.on_lines_ns // 1000))

    def open_line(self, turn, payload):
        timeout_ms, version, length, rest = struct.unpack_from("<QQHH", payload)
        names = payload[20:].decode()
        line = Line(self.core, 0, "")
        if not line.open(self.channel.descriptors):
            return self.channel.send(RESULT, turn)
        self.served = Served(line, turn, timeout_ms, version, names[:length], names[length : length + rest])

    def serve_line(self):
        """Waits for the next request on the line, and serves it."""
        served = self.served
        got = served.line.take(REPORT_AFTER_NS // 1000 if served.reports else -1)
        if got >= LINE_REQUEST.size:
            return self.call_on_line(served, served.line.message(got))
        if got == -errno.ETIMEDOUT:
            return served.report(self.channel)
        if got != -errno.EINTR:
            # It is shut, or who calls broke the rules.
            self.leave_line()
            self.channel.send(RESULT, served.turn)

    def leave_line(self):
        served, self.served = self.served, None
        if served:
            served.report(self.channel)
            served.line.close()

    def call_on_line(self, served, message):
        begun = time.monotonic_ns()
        number, deadline, depth, seal, trace, parent, flags, id_len, kind_len = LINE_REQUEST.unpack_from(message)
        at = LINE_REQUEST.size
        request_id, kind = message[at : at + id_len], message[at + id_len : at + id_len + kind_len].decode("latin-1")
        body = message[at + id_len + kind_len :]
        deadline = min(deadline, int(time.time() * 1000) + served.timeout_ms)
        is_short = kind_len <= ASK_TYPE_MAX and at + id_len + kind_len <= len(message)  # noqa: F821 - of template.py
        if not request_id.isascii() or number == 0 or not is_short:
            self.leave_line()
            return self.channel.send(RESULT, served.turn)
        identity = Identity(request_id, deadline, depth, seal, trace, served.spans.next(), flags, served.function)
        call, http = heads_of(served.function, served.version, served.caller, identity, kind)
        text = lambda: f"{json.dumps(call)}\n{json.dumps(http())}".encode()  # noqa: E731
        head = (call, http) if self.is_adapted else text()
        if served.is_due(begun):
            # The handler may take long.
            served.report(self.channel)
        self.log_left, self.turn = self.log_max, served.turn
        self.callees.begin(served.turn, None, identity, text)
        try:
            result = self.apply(b"" if self.is_adapted else os.urandom(16), head, body)
            if self.callees.kept:
                result = b"".join((*self.callees.kept, result))
        except BaseException as error:
            self.callees.end()
            self.flush()
            self.leave_line()
            self.raised(served.turn, error)
        else:
            waited = self.callees.waited_ns
            self.callees.end()
            self.flush()
            self.answer_on_line(served, result, (begun, waited, len(body), parent, identity))
        self.log_left, self.turn = min(self.log_left, BETWEEN_CALLS_BYTES), OUTSIDE
        self.offer_memory()

    def answer_on_line(self, served, result, facts):
        """Answers there, or by the node what does not fit, which is the end of the line."""
        is_short = isinstance(result, bytes) and len(result) <= LINE_BYTES_MAX and self.callees.lost_bytes() == 0
        read = self.callees.heads.read(result) if is_short else None
        if read is None or self.served is not served:
            self.leave_line()
            return self.answer(served.turn, result, self.callees.lost_bytes())
        begun, waited, received, parent, identity = facts
        ended = time.monotonic_ns()
        if self.core.line_answer(served.line.end, result, len(result)) < 0:
            self.leave_line()
            return self.answer(served.turn, result, self.callees.lost_bytes())
        served.took(begun, ended, waited, received, len(result) - read[2], read[0], parent, identity)
        if served.is_due(ended) or self.log_left < self.log_max:
            served.report(self.channel)
