# SPDX-License-Identifier: Apache-2.0
"""The template process that Python functions are forked from.

The node starts it with a SEQPACKET socket as standard input, at addresses
that are the same every time. It imports what it is told, settles its memory,
says hello, and then forks an instance per order; it never runs a function
itself. Orders and confinement are in native code, `guests/template`, which it
loads from the descriptor that its first argument names; the channel of an
instance is described in `process/channel.rs`. The node puts the text of
`lines.py`, `failures.py`, `channel.py`, `shared.py`, `turns.py` and `heap.py` before this one.

Invariants: the template has one thread whenever it forks; nothing that it
does depends on time, on a random number or on an address, so two starts have
the same memory layout; a child confines itself before it reads a byte of the
function.
"""

import _imp
import collections
import ctypes
import errno
import gc
import hashlib
import io
import json
import linecache
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types

VERSION = 9
TEXT_BYTES_MAX = 4096
BETWEEN_CALLS_BYTES = 32 << 10
CHANNEL = 3
NOT_ASKED = "it was only asked where it lies"
SHARES = "after the imports there is memory that all instances would share, so that forking is not safe"
OWN_FILE = sys._getframe().f_code.co_filename
# The node puts the text of `function.py` before this one: functions that are
# loaded with it find it compiled.
ADAPTER_CODE = compile(ADAPTER, "function.py", "exec", dont_inherit=True)  # noqa: F821

# The turn of what happens outside of calls.
OUTSIDE = 0
HELLO, LOAD, LOADED, CALL, RESULT, RAISED, BAD_RESULT, LOG, UNCONFINED, ASK, TOLD = range(1, 12)
PIECE, ROOM, LEFT, BODY, BODY_LOST, WANTS = range(12, 18)
SERVE, LINE, SERVED, SERVING, WAITED, ASK_AGAIN, DROPPED, OUTBOX, MAPPED, LEAVING, PHASES, TURNS, KEEPS = range(18, 31)
# Of calls of other functions: how many may have no answer yet, and bytes of name, type and body.
ASKS_MAX = 64
ASK_NAME_MAX, ASK_TYPE_MAX, ASK_BODY_MAX = 128, 256, 16 << 20
# Of a result that is sent in pieces: bytes before the node asks for more.
STREAM_WINDOW = 256 << 10
# Bytes of the bodies of all of them.
ASKS_BYTES_MAX = 32 << 20


# ---------------------------------------------------------------- template


def main():
    role, core, imports = sys.argv[1], load_core(sys.argv[2]), sys.argv[3:]
    if role == "instance":
        return start_instance(core, imports)
    if core.template_begin() < 0:
        return
    why = import_all(imports)
    if why:
        return say(core, b"!" + why)
    # Where it would find out that it is not right is here, and not in a function's instance.
    core.heap = heap_of(core)  # noqa: F821
    settle()
    # Where the kernel has none, a fork only takes longer.
    huge_pages = core.template_use_huge_pages()
    threads = core.template_threads()
    values = "maps values" if core.heap else "sends values, since only CPython 3.11 to 3.15 with its lock maps them"
    abi = _imp.extension_suffixes()[0].removeprefix(".").removesuffix(".so")
    texts = "\0".join((sys.executable, f"{sys.version.split()[0]}, {values}", abi, sys.prefix, sys.base_prefix))
    shares = core.template_shares()
    if role == "model" or threads != 1 or shares:
        why = SHARES if shares else f"after the imports there are {threads} threads, so that forking is not safe"
        why = NOT_ASKED if role == "model" else why
        return say(core, os.fsencode("\0".join((f"?{why}", texts))))
    say(core, struct.pack("<cHI32si", b"H", VERSION, os.getpid(), layout_digest(), huge_pages) + os.fsencode(texts))
    serve(core)


def import_all(names):
    """Why a module cannot be imported; nothing if all can."""
    for name in names:
        try:
            __import__(name)
        except BaseException as error:
            return f"cannot import {name}: {type(error).__name__}: {error}".encode()[:TEXT_BYTES_MAX]
    return b""


def load_core(fd):
    """The native core; calls of it keep the interpreter's lock, for the
    template has one thread."""
    # Of one length, whatever the number is: the loader keeps the text in the heap.
    core = ctypes.PyDLL("/proc/self/fd" + str(int(fd)).rjust(11, "/"))
    os.close(int(fd))
    core.template_say.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    core.template_confine.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    core.template_confine.restype = None
    core.template_forked.restype = None
    core.line_close.restype = None
    core.turns_begin.argtypes = [ctypes.c_uint32]
    core.line_answer.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    # Whoever waits leaves the interpreter to others.
    waiting = ctypes.CDLL(None, handle=core._handle)
    place = [ctypes.c_void_p, ctypes.c_size_t]
    for wait in (waiting.line_next, waiting.line_take):
        wait.argtypes, wait.restype = [ctypes.c_int, *place, ctypes.c_int64], ctypes.c_int64
    waiting.line_ask.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, *place]
    waiting.line_ask.restype = ctypes.c_int64
    core.waiting = waiting
    return core


def say(core, message):
    core.template_say(message, len(message))


def settle():
    """Leaves no garbage behind, and keeps the collector off what is shared:
    it writes into every object that it looks at, and so would copy its page."""
    sys.argv = [""]
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"})
    sys.stdin, sys.stdout, sys.stderr = None, None, None
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = None, None, None
    traceback.format_exception(ValueError("warm"))
    gc.collect()
    gc.freeze()


def layout_digest():
    """Where types and the mapped files lie. Those that Python code has made lie
    in the heap, so that the heap has to be the same for the digest to be."""
    digest = hashlib.blake2b(digest_size=32)
    pending, seen = [object], set()
    while pending:
        for other in type.__subclasses__(pending.pop()):
            one = (f"{other.__module__}.{other.__qualname__}", id(other))
            if one not in seen:
                seen.add(one)
                pending.append(other)
    for name, address in sorted(seen):
        digest.update(f"{name} {address:x}\n".encode())
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            if len(fields) > 5 and fields[5].startswith("/"):
                digest.update(f"{fields[0]} {fields[5]}\n".encode())
    return digest.digest()


def serve(core):
    """Forks an instance per order. It is the interpreter that forks, so that
    what modules have to do at a fork is done."""
    while core.template_next():
        try:
            pid = os.fork()
        except OSError as error:
            pid = -error.errno
        if pid == 0:
            become_instance(core)
        core.template_forked(pid)


# ---------------------------------------------------------------- instance


def become_instance(core):
    """Never returns."""
    status = 98
    try:
        # It returns only when all of the confinement holds.
        core.template_confine(None, 0)
        channel = Channel(socket.socket(fileno=CHANNEL))  # noqa: F821 - of channel.py
        forget_the_template()
        status = 0
        Instance(channel, core).serve()
    except BaseException:
        pass
    finally:
        os._exit(status)


def start_instance(core, imports):
    """An instance that was not forked: it is confined already, and its channel
    is its standard input."""
    if core.template_place_channel() < 0:
        return
    channel = Channel(socket.socket(fileno=CHANNEL))  # noqa: F821 - of channel.py
    why = import_all(imports)
    if why:
        return channel.send(UNCONFINED, OUTSIDE, why)
    core.heap = heap_of(core)  # noqa: F821
    settle()
    Instance(channel, core).serve()


def forget_the_template():
    """Randomness of one's own."""
    random.seed(os.urandom(32))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))
    ssl = sys.modules.get("ssl")
    if ssl:
        ssl.RAND_add(os.urandom(32), 0.0)
    tempfile = sys.modules.get("tempfile")
    if tempfile:
        # It tells processes apart by their ids, which are the same in every container.
        tempfile._name_sequence = None


class Callees:
    """What a call has to do with the node while it runs: calls of other functions,
    and its result in pieces. Threads may do so at the same time: one of those that
    wait reads the channel, and hands the others what is theirs."""

    def __init__(self, channel, core):
        self.channel, self.core = channel, core
        # By name, and what the call that runs is known by: its head until that is read.
        self.lines, self.heads = {}, Heads()
        self.request_head, self.identity = None, None
        # Waiting for lines, and for all that was asked.
        self.on_lines_ns, self.waited_ns = 0, 0
        # Of a result that came over a line: its pieces, and their bytes, also of those that are too many.
        self.kept, self.kept_bytes, self.kept_max = None, 0, 0
        # What the node is to be told before anything is asked of it.
        self.untold = None
        self.changed = threading.Condition(threading.Lock())
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

    def begin(self, turn, head=None, identity=None, untold=None):
        self.turn, self.room, self.has_left = turn, STREAM_WINDOW, False
        self.body, self.body_end = [], None
        self.request_head, self.identity, self.untold = head, identity, untold
        self.on_lines_ns, self.waited_ns = 0, 0
        self.kept, self.kept_bytes = None if untold is None else [], 0

    def end(self):
        """The call that runs is over, and with it those that it made."""
        with self.changed:
            turn, untold, self.turn = self.turn, self.untold, OUTSIDE
            self.request_head, self.identity, self.untold = None, None, None
            # Mostly there is nobody.
            if self.answers or self.lines or self.waiting:
                self.end_others(turn, untold)

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

    def on_line(self, line, kind, body):
        """The answer of a function that is called over a line: status, type and body; None if nothing was
        begun there, and the line's number if the node knows the end of it."""
        told, turn = self.request_head, self.turn
        if told is not None:
            # Threads may do so at the same time, and find the same.
            identity = Identity.told(told)
            if self.request_head is told:
                self.identity, self.request_head = identity, None
        identity = self.identity
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

    def ask(self, target, kind, body):
        """Calls the function of a name: status, type and body of the answer."""
        name, kind = target.encode(), kind.encode()
        if len(name) > ASK_NAME_MAX or len(kind) > ASK_TYPE_MAX:
            raise ValueError(f"a function's name has at most {ASK_NAME_MAX} bytes, a content type {ASK_TYPE_MAX}")
        if len(body) > ASK_BODY_MAX:
            raise ValueError(f"the payload has {len(body)} bytes; a call of a function takes {ASK_BODY_MAX}")
        # Before it is begun anywhere: what was, on a line, is not refused any more.
        self.count(body)
        try:
            line, again = self.lines.get(target), b""
            if line:
                told = self.on_line(line, kind, body)
                if type(told) is tuple:
                    return told
                again = b"" if told is None else struct.pack("<I", told)
            begun = time.monotonic_ns()
            try:
                return self.ask_node(name, kind, body, again)
            finally:
                self.waited_ns += time.monotonic_ns() - begun
        finally:
            with self.changed:
                self.under_way -= 1
                self.bytes -= len(body)

    def count(self, body):
        """One call more is under way, on a line or by the node."""
        with self.changed:
            if self.under_way >= ASKS_MAX:
                raise RuntimeError(f"{ASKS_MAX} calls of other functions are under way; wait for some of them")
            if self.bytes + len(body) > ASKS_BYTES_MAX:
                why = f"calls of other functions with {self.bytes} bytes are under way, of {ASKS_BYTES_MAX} at most"
                raise RuntimeError(f"{why}; wait for some of them")
            self.under_way += 1
            self.bytes += len(body)

    def ask_node(self, name, kind, body, again):
        """The same by the node, which knows how it ended if it was begun on a line."""
        with self.changed:
            if self.turn == OUTSIDE:
                raise RuntimeError("functions are called while a request is handled, not before or after it")
            self.last = (self.last + 1) & 0xFFFFFFFF
            number, turn = self.last, self.turn
            self.answers[number] = None
            head = struct.pack(f"<IH{len(name)}sH", number, len(name), name, len(kind))
            if self.untold is not None:
                self.channel.send(SERVING, turn, self.untold())
                self.untold = None
            self.channel.send(ASK_AGAIN if again else ASK, turn, again, head, kind, body)
            try:
                return self.wait(lambda: self.answers[number] is not None, lambda: self.answers[number])
            finally:
                self.answers.pop(number, None)

    def stream(self, piece):
        """Sends the next bytes of the result; false if there is no room for them now.
        The first ones have the result's head, whole."""
        if self.kept is not None:
            # It is not sent before it is whole, and what is too long is only counted.
            if self.turn == OUTSIDE:
                raise ConnectionResetError("nobody waits for the answer any more")
            self.kept_bytes += len(piece)
            if self.kept_bytes <= self.kept_max:
                self.kept.append(bytes(piece))
            else:
                self.kept = []
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

    def next_order(self):
        """The next frame that is nobody's answer, as `Channel.frame` tells it."""
        # Nobody can begin to wait for an answer now: no call runs.
        if not self.answers and not self.orders and self.head is None and not self.is_reading:
            return self.channel.frame()
        with self.changed:
            return self.wait(lambda: self.orders, self.orders.popleft)

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


class Log(io.RawIOBase):
    """Standard output or error: what is over the budget of a call is dropped."""

    def __init__(self, instance, stream):
        self.instance, self.number = instance, stream

    def writable(self):
        return True

    def write(self, data):
        data = memoryview(data).cast("B")
        for start in range(0, len(data), LOG_PIECE_BYTES):  # noqa: F821
            if not self.instance.log(self.number, bytes(data[start : start + LOG_PIECE_BYTES])):  # noqa: F821
                break
        return len(data)


class Instance(ServesLines, TakesTurns, HandsOver):  # noqa: F821 - of lines.py, turns.py and heap.py
    def __init__(self, channel, core):
        self.channel, self.core, self.heap = channel, core, core.heap
        # Not in the template: what is empty there would be for all that are forked.
        if "t" not in getattr(sys, "abiflags", ""):
            core.arenas_keep()
        # The line that is served, and whether it is the usual adapter that serves.
        self.served, self.is_adapted = None, False
        self.log_left = 0
        self.log_max = 0
        self.apply = None
        self.result_max = 0
        # Of the call that runs.
        self.turn = OUTSIDE
        self.callees = Callees(channel, core)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                io.BufferedWriter(Log(self, number), 8192), "utf-8", "backslashreplace", line_buffering=True
            )
            for number in (1, 2)
        )
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        os.register_at_fork(after_in_child=self.left_behind, after_in_parent=self.has_forked)

    def left_behind(self):
        """A process that the function forks is no instance: it has no channel."""
        self.channel.lock = threading.Lock()
        self.callees = Callees(self.channel, self.core)
        self.served = None
        self.log_left = -1
        self.let_go()
        try:
            os.close(CHANNEL)
        except OSError:
            pass

    def log(self, number, data):
        if self.log_left <= 0:
            return False
        cut = data[: self.log_left]
        self.log_left -= len(cut)
        self.channel.send(LOG, self.turn, bytes([number]), cut)
        if self.log_left == 0:
            self.channel.send(LOG, self.turn, b"\x02", b"\n[output over %d bytes was dropped]\n" % self.log_max)
        return True

    def serve(self):
        self.channel.send(HELLO, OUTSIDE, struct.pack("<4sHI", b"SNWP", VERSION, os.getpid()))
        while True:
            if self.served:
                self.serve_line()
                continue
            length, kind, turn, rest = self.callees.next_order()
            if kind == LOAD:
                self.load(rest.receive(length))
            elif kind == CALL:
                if not self.is_recalled(turn, length, rest):
                    self.call(turn, rest)
            elif kind == TURNS:
                self.share_turns()
            elif kind == SERVE:
                self.open_line(turn, rest.receive(length))
            elif kind == LINE:
                self.callees.add_line(rest.receive(length))
            elif kind in (TOLD, ROOM, LEFT, BODY, BODY_LOST):
                # The call that it was for is over.
                rest.receive(length)
            else:
                return

    def load(self, message):
        # Calls come one at a time.
        self.result_max, self.log_max, _, name_len = struct.unpack_from("<QQHH", message)
        self.log_left, self.callees.kept_max = self.log_max, self.result_max
        name = message[20 : 20 + name_len].decode()
        file = f"{name}.py"
        source = message[20 + name_len :]
        try:
            module = types.ModuleType(name)
            module.__file__ = file
            # Not bound to these callees: a process that the function forks gets others.
            module.ask = lambda *question: self.callees.ask(*question)
            module.stream = lambda piece: self.callees.stream(piece)
            self.offer(module)
            module.wait_for_room = lambda size: self.callees.wait_for_room(size)
            module.take_body = lambda: self.callees.take_body()
            module.wait_for_body = lambda: self.callees.wait_for_body()
            sys.modules[name] = module
            text = source.decode()
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            settings, _, adapter = text.partition("\n")
            if adapter == ADAPTER:  # noqa: F821
                self.is_adapted = True
                exec(settings, module.__dict__)
                exec(ADAPTER_CODE, module.__dict__)
            else:
                exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
            self.apply = module.apply
            if not callable(self.apply):
                raise TypeError("apply is not a function")
        except BaseException as error:
            self.flush()
            return self.raised(error)
        self.flush()
        self.channel.send(LOADED, OUTSIDE)

    def call(self, turn, rest):
        (count,) = struct.unpack("<I", rest.receive(4))
        lent, count = count & ~COUNT, count & COUNT  # noqa: F821 - of shared.py
        form, length = (f"<{count}IQ", 4 * count + 8) if lent else (f"<{count}I", 4 * count)
        numbers = struct.unpack(form, rest.receive(length))
        sizes, base = (numbers[:-1], numbers[-1]) if lent else (numbers, 0)
        arguments = [None if size == IN_DESCRIPTOR else rest.receive(size) for size in sizes]  # noqa: F821
        if None in arguments:
            handed_over(arguments, self.channel.descriptors, self.heap)  # noqa: F821
        if lent:
            self.lend(None if lent & WITH_KEPT else taken(self.channel.descriptors), base)  # noqa: F821
        self.log_left, self.turn = self.log_max, turn
        self.callees.begin(turn, arguments[1] if len(arguments) > 1 else None)
        try:
            result = self.apply(*arguments)
        except BaseException as error:
            self.callees.end()
            self.flush()
            self.tell_waited()
            self.keep()
            self.raised(error)
        else:
            self.callees.end()
            self.flush()
            self.tell_waited()
            self.keep()
            self.answer(result)
        if lent:
            # Whoever waits for the answer, and has been woken on this processor, comes before what is only to be tidied up.
            os.sched_yield()
        # What it was given ends with the call, and what it gave.
        result = arguments = None
        if self.outbox is not None:
            self.let_go()
        if self.heap and self.heap.end():
            # Another one is soon there, and is given what came here meanwhile.
            self.channel.send(LEAVING, OUTSIDE)
            os._exit(0)
        # What threads print between two calls is of no call.
        self.log_left, self.turn = min(self.log_left, BETWEEN_CALLS_BYTES), OUTSIDE

    def answer(self, result):
        if type(result) is bytes and len(result) <= self.result_max and not self.callees.kept_bytes:
            return self.channel.send(RESULT, self.turn, result)
        if isinstance(result, Shared):  # noqa: F821
            return self.channel.send(OUTBOX, self.turn, struct.pack("<Q", result.length))
        if isinstance(result, Handed):  # noqa: F821
            return self.channel.send(MAPPED, self.turn, struct.pack("<Q", result.length))
        if not isinstance(result, (bytes, bytearray, memoryview)):
            why = f"apply returned {kind_name(type(result))}, not bytes"
            return self.channel.send(BAD_RESULT, self.turn, why.encode())
        view = memoryview(result)
        length = view.nbytes + self.callees.lost_bytes()
        if length > self.result_max:
            why = f"apply returned {length} bytes, more than the {self.result_max} that are allowed"
            return self.channel.send(BAD_RESULT, self.turn, why.encode())
        self.channel.send(RESULT, self.turn, bytes(view))

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass

    def raised(self, error):
        try:
            parts = describe(error)
        except BaseException:
            parts = ["Exception", "an exception that cannot be described", ""]
        texts = [part.encode("utf-8", "backslashreplace")[:TEXT_BYTES_MAX] for part in parts]
        # What is cut may end inside a character; the other side replaces it.
        self.channel.send(RAISED, self.turn, *(piece for text in texts for piece in (struct.pack("<I", len(text)), text)))


main()
