# SPDX-License-Identifier: Apache-2.0
# What a call has to do with the node while it runs, besides its end. It is run before `template.py`, in the same module:
# names that are not defined here are that one's, or those of `lines.py`.

import collections
import errno
import struct
import threading
import time

# Of calls of other functions: how many may have no answer yet, and bytes of name, type and body.
ASKS_MAX = 64
ASK_NAME_MAX, ASK_TYPE_MAX, ASK_BODY_MAX = 128, 256, 16 << 20
# Of a result that is sent in pieces: bytes before the node asks for more.
STREAM_WINDOW = 256 << 10
# Bytes of the bodies of all of them.
ASKS_BYTES_MAX = 32 << 20


class Callees(CallsWithin):  # noqa: F821 - of within.py
    """What a call has to do with the node while it runs: calls of other functions,
    and its result in pieces. Threads may do so at the same time: one of those that
    wait reads the channel, and hands the others what is theirs."""

    def __init__(self, channel, core):
        self.channel, self.core = channel, core
        self.begin_within()
        # By name, and what the call that runs is known by: its head until that is read.
        self.lines, self.heads = {}, Heads()
        self.request_head, self.identity = None, None
        # Waiting for lines, and for all that was asked.
        self.on_lines_ns, self.waited_ns = 0, 0
        # Of a result that came over a line: its pieces, and their bytes, also of those that are too many.
        self.kept, self.kept_bytes, self.kept_max = None, 0, 0
        # What the node is to be told before anything is asked of it.
        self.untold = None
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.turn = OUTSIDE
        self.last = 0
        # What came of each call that is waited for; None until something did.
        self.answers = {}
        # How many calls are under way, those on lines too, and bytes of their bodies; and how many threads wait for others to read.
        self.under_way, self.bytes, self.waiting = 0, 0, 0
        self.is_reading = False
        # Bytes of a result that may be sent, and whether nobody wants them any more.
        self.room, self.has_left = STREAM_WINDOW, False
        # What has come of the request's body and is not taken, if it comes while the call runs; BODY or
        # BODY_LOST once there will be no more.
        self.body, self.body_end = [], None
        # Frames that are no answers, received by a thread that waits for one: the
        # node sends the next calls before the one that runs has ended.
        self.orders = collections.deque()
        # The head of a frame of which the rest is still to be received.
        self.head = None

    def left_behind(self):
        """What a process has that the function has forked: it serves nobody."""
        return Callees(self.channel, self.core)

    def begin(self, turn, head=None, identity=None, untold=None):
        self.turn, self.room, self.has_left = turn, STREAM_WINDOW, False
        self.body, self.body_end = [], None
        self.request_head, self.identity, self.untold = head, identity, untold
        self.on_lines_ns, self.waited_ns = 0, 0
        self.kept, self.kept_bytes = None if untold is None else [], 0
        self.innermost, self.root_thread = None, threading.get_ident()

    def end(self):
        """The call that runs is over, and with it those that it made."""
        # A condition is Python code, of which as little runs with each call as can be.
        with self.lock:
            turn, untold, self.turn = self.turn, self.untold, OUTSIDE
            self.request_head, self.identity, self.untold = None, None, None
            # Mostly there is nobody.
            if self.answers or self.lines or self.waiting:
                self.end_others(turn, untold)
        if self.reports_within:
            self.report_within()

    def end_others(self, turn, untold):
        """Tells threads that wait, and those whom they wait for."""
        has_left = self.kept is not None and None in self.answers.values()
        for number in self.answers:
            self.answers[number] = ENDED
        self.changed.notify_all()
        for line in list(self.lines.values()):
            if line.lock.locked():
                if untold is not None:
                    self.channel.send(SERVING, turn, untold())
                    untold = None
                self.channel.send(DROPPED, turn, struct.pack("<I", line.number))
        if has_left:
            # The node is to stop it.
            self.channel.send(SERVING, turn)

    def add_line(self, payload):
        """There is a line to a function."""
        (number,) = struct.unpack_from("<I", payload)
        # Who has the lock may close it.
        for other in [line for line in list(self.lines.values()) if line.lock.acquire(False)]:
            if other.is_closed():
                self.forget(other)
            other.lock.release()
        line = Line(self.core, number, payload[4:].decode())
        if not line.open(self.channel.descriptors):
            return self.channel.send(DROPPED, OUTSIDE, struct.pack("<I", number))
        before = self.lines.get(line.name)
        self.lines[line.name] = line
        if before and before.lock.acquire(False):
            before.close()
            before.lock.release()

    def forget(self, line):
        """Whoever has its lock uses it no more."""
        if self.lines.get(line.name) is line:
            self.lines.pop(line.name, None)
        line.close()

    def on_line(self, line, inner, kind, body):
        """The answer of a function that is called over a line: status, type and body; None if nothing was
        begun there, and the line's number if the node knows the end of it."""
        turn, identity = self.turn, inner.identity if inner else self.own_identity()
        if identity is None or identity.depth >= DEPTH_MAX or len(body) + len(kind) > LINE_BYTES_MAX - 512:
            return None
        if not line.lock.acquire(False):
            return None
        begun, got = time.monotonic_ns(), 0
        try:
            if line.end < 0:
                return None
            line.last = line.last % 0xFFFFFFFF + 1
            head = LINE_REQUEST.pack(
                line.last, identity.deadline_ms, identity.depth + 1, identity.seal, identity.trace, identity.span,
                identity.flags, len(identity.request_id), len(kind),
            )  # fmt: skip
            message, got = b"".join((head, identity.request_id, kind, body)), None
            got = line.ask(message)
            if got >= 0:
                result = line.message(got)
                read = self.heads.read(result)
                if read:
                    return read[0], read[1], result[read[2] :]
            is_begun = got != -errno.ESHUTDOWN and (got >= 0 or self.core.line_is_taken(line.end) == 1)
            self.forget(line)
            return (ENDED if self.turn != turn else line.number) if is_begun else None
        finally:
            if got is None:
                # A signal's handler raised: the answer would be taken for the next one's.
                self.forget(line)
                self.channel.send(DROPPED, turn, struct.pack("<I", line.number))
            if self.lines.get(line.name) is not line:
                # Another one has come in its place meanwhile.
                line.close()
            line.lock.release()
            took = time.monotonic_ns() - begun
            self.on_lines_ns += took
            self.waited_ns += took
            self.waited_within(inner, took)

    def ask(self, target, kind, body):
        """Calls the function of a name: status, type and body of the answer."""
        question = (target, *checked_question(target, kind, body), body)
        inner, told = self.inner(), self.withins.get(target)
        if told and self.may_call_within(inner):
            return self.call_within(told, inner, question)
        answer = self.ask_others(question, inner, told is not None and not self.is_innermost(inner))
        if type(answer) is tuple:
            return answer
        if self.may_call_within(inner):
            return self.call_within(answer, inner, question)
        # Something else runs here by now.
        return self.ask_others(question, inner, True)

    def ask_others(self, question, inner, is_for_others):
        """The same of another instance: or what the node says of a function that is to be called here."""
        target, name, kind, body = question
        # Before it is begun anywhere: what was, on a line, is not refused any more.
        self.count(body)
        try:
            line, again = self.lines.get(target), 0
            if line:
                answer = self.on_line(line, inner, kind, body)
                if type(answer) is tuple:
                    return answer
                again = answer or 0
            begun = time.monotonic_ns()
            try:
                return self.ask_node(question, again, inner, None, is_for_others)
            finally:
                took = time.monotonic_ns() - begun
                self.waited_ns += took
                self.waited_within(inner, took)
        finally:
            with self.changed:
                self.under_way -= 1
                self.bytes -= len(body)

    async def ask_async(self, target, kind, body):
        """The same for coroutines; others are asked in a thread of its own."""
        question = (target, *checked_question(target, kind, body), body)
        inner, told = self.inner(), self.withins.get(target)
        if told and self.may_call_within(inner):
            return await self.call_within_async(told, inner, question)
        is_for_others = told is not None and not self.is_innermost(inner)
        answer = await in_thread(self.ask_others, question, inner, is_for_others)
        if type(answer) is tuple:
            return answer
        if self.may_call_within(inner):
            return await self.call_within_async(answer, inner, question)
        return await in_thread(self.ask_others, question, inner, True)

    def count(self, body):
        """One call more is under way, on a line or by the node."""
        with self.changed:
            check_asked(self.under_way, self.bytes, body)
            self.under_way += 1
            self.bytes += len(body)

    def ask_node(self, question, again, inner=None, ended=None, is_for_others=False):
        """The same by the node, which knows how it ended if it was begun on a line, and is told if it was begun here."""
        _, name, kind, body = question
        with self.changed:
            if self.turn == OUTSIDE:
                raise RuntimeError("functions are called while a request is handled, not before or after it")
            self.last = (self.last + 1) & 0xFFFFFFFF
            number, turn = self.last, self.turn
            self.answers[number] = None
            head = question_head(number, name, kind)
            if self.untold is not None:
                self.channel.send(SERVING, turn, self.untold())
                self.untold = None
            if inner or ended or is_for_others:
                # Whoever is told how a call ended needs no more of it.
                rest = b"" if ended else body
                self.channel.send(ASK_WITHIN, turn, self.before_ask(inner, is_for_others, again, ended), head, kind, rest)
            elif again:
                self.channel.send(ASK_AGAIN, turn, struct.pack("<I", again), head, kind, body)
            else:
                self.channel.send(ASK, turn, head, kind, body)
            try:
                return self.wait(lambda: self.answers[number] is not None, lambda: self.answers[number])
            finally:
                self.answers.pop(number, None)

    def stream(self, piece):
        """Sends the next bytes of the result; false if there is no room for them now.
        The first ones have the result's head, whole."""
        if self.kept is not None:
            if self.turn == OUTSIDE:
                raise ConnectionResetError("nobody waits for the answer any more")
            keep(self, piece)
            return True
        with self.changed:
            while not self.is_reading and self.channel.has_more():
                self.read()
            if self.has_left or self.turn == OUTSIDE:
                raise ConnectionResetError("nobody waits for the answer any more")
            if self.room < len(piece):
                return False
            self.room -= len(piece)
            self.channel.send(PIECE, self.turn, piece)
            return True

    def lost_bytes(self):
        """Of pieces that are not kept: they are too long."""
        return 0 if self.kept else self.kept_bytes

    def wait_for_room(self, size):
        """Waits until so many bytes of the result may be sent, or nobody wants them."""
        with self.changed:
            turn = self.turn
            is_over = lambda: self.has_left or self.room >= size or self.turn != turn  # noqa: E731
            self.wait(is_over, lambda: None)

    async def room_comes(self, size):
        await in_thread(self.wait_for_room, size)

    def take_body(self):
        """The next bytes of the request's body; none after the last of them, and None if there are none now."""
        with self.changed:
            while not self.is_reading and self.channel.has_more():
                self.read()
            if self.turn == OUTSIDE:
                raise RuntimeError("a request's body is read while it is handled")
            if not self.body:
                if self.body_end == BODY_LOST:
                    raise ConnectionResetError("the client left before the end of the body")
                return b"" if self.body_end == BODY else None
            piece, self.body = b"".join(self.body), []
            if self.body_end is None:
                self.channel.send(WANTS, self.turn, struct.pack("<I", len(piece)))
            return piece

    def wait_for_body(self):
        """Waits until some of the body has come, or none will."""
        with self.changed:
            turn = self.turn
            self.wait(lambda: self.body or self.body_end or self.turn != turn, lambda: None)

    async def body_comes(self):
        await in_thread(self.wait_for_body)

    def exchange(self):
        """The request that is handled, and its answer."""
        return self.inner() or self

    def when_left(self, then):
        """Nobody reads the channel while the function runs, so that it is not told."""

    def next_order(self):
        """The next frame that is nobody's answer, as `Channel.frame` tells it."""
        # Nobody can begin to wait for an answer now: no call runs.
        if self.nobody_waits():
            return self.channel.frame()
        with self.changed:
            return self.wait(lambda: self.orders, self.orders.popleft)

    def nobody_waits(self):
        """Whether what comes next is an order, and none has been received."""
        return not self.answers and not self.orders and self.head is None and not self.is_reading

    def is_quiet(self):
        """The same, and nothing of it has come as far as this process has looked."""
        return self.nobody_waits() and self.channel.at == len(self.channel.data)

    def wait(self, is_there, take):
        """Waits for what another thread may bring; reads, if none does."""
        while not is_there():
            if not self.is_reading:
                self.read()
                continue
            self.waiting += 1
            try:
                self.changed.wait()
            finally:
                self.waiting -= 1
        return take()

    def read(self):
        """Reads one frame, for whoever waits for it."""
        self.is_reading = True
        self.changed.release()
        try:
            if self.head is None:
                self.head = self.channel.frame()[:3]
            length, kind, turn = self.head
            payload = self.channel.receive(length)
            self.head = None
        finally:
            self.changed.acquire()
            self.is_reading = False
        if kind == TOLD:
            number, status, size = struct.unpack_from("<IHH", payload)
            if number in self.answers and self.answers[number] is None:
                self.answers[number] = (status, payload[8 : 8 + size].decode(), payload[8 + size :])
        elif kind == WITHIN:
            told = self.told_within(payload)
            (number,) = struct.unpack_from("<I", payload)
            if number in self.answers and self.answers[number] is None:
                self.answers[number] = told
        elif kind == LINE and not self.orders:
            # Its descriptors come behind those of what waits.
            self.add_line(payload)
        elif kind in (BODY, BODY_LOST):
            if turn == self.turn:
                self.body += [payload] if payload else []
                self.body_end = None if payload else kind
        elif kind in (ROOM, LEFT):
            # It may be of a call that has ended.
            if turn == self.turn:
                self.has_left |= kind == LEFT
                self.room += struct.unpack("<I", payload)[0] if kind == ROOM else 0
        else:
            self.orders.append((length, kind, turn, Received(payload)))  # noqa: F821 - of turns.py
        self.changed.notify_all()


# The answer to a call whose own call has ended.
ENDED = (503, "text/plain", b"the request that made this call is over")


async def in_thread(wait, *of):
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, wait, *of)


# ---------------------------------------------- calls of other functions

def checked_question(target, kind, body):
    """A function's name and the type of what it is called with, as they are sent."""
    name, kind = target.encode(), kind.encode()
    if len(name) > ASK_NAME_MAX or len(kind) > ASK_TYPE_MAX:
        raise ValueError(f"a function's name has at most {ASK_NAME_MAX} bytes, a content type {ASK_TYPE_MAX}")
    if len(body) > ASK_BODY_MAX:
        raise ValueError(f"the payload has {len(body)} bytes; a call of a function takes {ASK_BODY_MAX}")
    return name, kind


def check_asked(under_way, size, body):
    """Raises if there are too many of them, with so many bytes, for one more."""
    if under_way >= ASKS_MAX:
        raise RuntimeError(f"{ASKS_MAX} calls of other functions are under way; wait for some of them")
    if size + len(body) > ASKS_BYTES_MAX:
        why = f"calls of other functions with {size} bytes are under way, of {ASKS_BYTES_MAX} at most"
        raise RuntimeError(f"{why}; wait for some of them")


def question_head(number, name, kind):
    """What stands before the type and the body."""
    return struct.pack(f"<IH{len(name)}sH", number, len(name), name, len(kind))
