# SPDX-License-Identifier: Apache-2.0
"""The template process that Python functions are forked from.

The node starts it with a SEQPACKET socket as standard input, at addresses
that are the same every time. It imports what it is told, settles its memory,
says hello, and then forks an instance per order; it never runs a function
itself. Orders and confinement are in native code, `guests/template`, which it
loads from the descriptor that its first argument names; the channel of an
instance is described in `process/channel.rs`. The node puts the text of
`lines.py`, `failures.py`, `channel.py`, `output.py`, `within.py`, `callees.py`, `at_once.py`, `shared.py`, `turns.py`, `rest.py`, `images.py`,
`models.py`, `heap.py`, `owned.py` and `followers.py` before this one.

Invariants: the template has one thread whenever it forks; nothing that it
does depends on time, on a random number or on an address, so two starts have
the same memory layout; a child confines itself before it reads a byte of the
function.
"""

import _imp
import collections
import contextvars
import ctypes
import errno
import gc
import hashlib
import json
import linecache
import os
import random
import signal
import socket
import struct
import sys
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

# What modules are given to do with the node, by the callees of their instance: not bound to these, for a process that the
# function forks gets others.
OFFERED = ("ask", "ask_async", "exchange")
# The turn of what happens outside of calls.
OUTSIDE = 0
HELLO, LOAD, LOADED, CALL, RESULT, RAISED, BAD_RESULT, LOG, UNCONFINED, ASK, TOLD = range(1, 12)
PIECE, ROOM, LEFT, BODY, BODY_LOST, WANTS = range(12, 18)
SERVE, LINE, SERVED, SERVING, WAITED, ASK_AGAIN, DROPPED, OUTBOX, MAPPED, LEAVING, PHASES, TURNS, KEEPS, SAID = range(18, 32)
WITHIN, WITHIN_OVER, ASK_WITHIN, SERVED_WITHIN, ALONE, PRINTS = range(32, 38)


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
    if core.heap:
        adopt_libraries(core)  # noqa: F821 - of models.py
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
    core.blocks_keep.argtypes = [ctypes.c_size_t]
    core.blocks_offer.restype = ctypes.c_size_t
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


class Instance(ServesLines, TakesTurns, ServesSeveral, HandsOver, IsFollowed, GivesAway, KeepsMemory, Prints):  # noqa: F821 - of the files that are named above
    def __init__(self, channel, core):
        self.channel, self.core, self.heap = channel, core, core.heap
        # Not in the template: what is empty there would be for all that are forked.
        if "t" not in getattr(sys, "abiflags", ""):
            core.arenas_keep()
        # The line that is served, and whether it is the usual adapter that serves.
        self.served, self.is_adapted = None, False
        self.log_left, self.log_max, self.held, self.is_in_line = 0, 0, nothing_held(), False  # noqa: F821
        self.apply = None
        self.result_max = 0
        # Of the call that runs.
        self.turn = OUTSIDE
        # By kinds of values: for how many more it is not tried to give them away, and for how many it was not the last time.
        self.not_given = {}
        self.callees = Callees(channel, core)
        self.print_to_the_node()
        os.register_at_fork(after_in_child=self.left_behind, after_in_parent=self.has_forked)

    def left_behind(self):
        """A process that the function forks is no instance: it has no channel."""
        self.channel.forget_senders()
        self.callees = self.callees.left_behind()
        self.served = None
        self.print_beside_only()
        self.let_go()
        self.keep_little()
        try:
            os.close(CHANNEL)
        except OSError:
            pass

    def serve(self):
        self.channel.send(HELLO, OUTSIDE, struct.pack("<4sHI", b"SNWP", VERSION, os.getpid()))
        while True:
            if self.served:
                self.serve_line()
                continue
            self.rest()
            length, kind, turn, rest = self.callees.next_order()
            if kind == LOAD:
                self.load(rest.receive(length))
                if self.apply and self.serves_several:
                    self.callees.serve()
            elif kind == CALL:
                if not self.is_recalled(turn, length, rest):
                    self.call(turn, rest)
            elif kind == TURNS:
                self.share_turns()
            elif kind == PRINTS:
                self.print_beside()
            elif kind == SERVE:
                self.open_line(turn, rest.receive(length))
            elif kind == LINE:
                self.callees.add_line(rest.receive(length))
            elif kind == WITHIN:
                self.callees.told_within(rest.receive(length))
            elif kind == WITHIN_OVER:
                self.callees.withins.clear()
            elif kind in (TOLD, ROOM, LEFT, BODY, BODY_LOST):
                # The call that it was for is over.
                rest.receive(length)
            else:
                return

    def load(self, message):
        self.result_max, self.log_max, at_once, name_len = struct.unpack_from("<QQHH", message)
        self.log_left, self.callees.kept_max = self.log_max, self.result_max
        if at_once > 1:
            self.serve_several(at_once)
        signal.signal(WHERE_SIGNAL, self.say_where)  # noqa: F821
        name = message[20 : 20 + name_len].decode()
        file = f"{name}.py"
        source = message[20 + name_len :]
        try:
            module = types.ModuleType(name)
            module.__file__ = file
            for offered in OFFERED:
                setattr(module, offered, lambda *given, name=offered: getattr(self.callees, name)(*given))
            self.offer(module)
            sys.modules[name] = module
            text = source.decode()
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            settings, _, adapter = text.partition("\n")
            if adapter == ADAPTER:  # noqa: F821
                self.is_adapted = True
                exec(settings, module.__dict__)
                self.keep_memory(int(module.SETTINGS.get("memory-bytes", "0")))
                exec(ADAPTER_CODE, module.__dict__)
            else:
                exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
            self.apply = module.apply
            if not callable(self.apply):
                raise TypeError("apply is not a function")
            # With all that was set while it was loaded.
            self.callees.apply_of, self.callees.context = getattr(module, "apply_of", None), contextvars.copy_context()
            self.step_of = getattr(module, "step_of", None)
        except BaseException as error:
            self.flush()
            return self.raised(OUTSIDE, error)
        self.flush()
        self.channel.send(LOADED, OUTSIDE)

    def arguments(self, rest):
        """What a call is given, what was said of it besides, and at which address it is lent memory."""
        (count,) = struct.unpack("<I", rest.receive(4))
        lent, count = count & ~COUNT, count & COUNT  # noqa: F821 - of shared.py
        has_outbox = lent & WITH_OUTBOX  # noqa: F821
        form, length = (f"<{count}IQ", 4 * count + 8) if has_outbox else (f"<{count}I", 4 * count)
        numbers = struct.unpack(form, rest.receive(length))
        sizes, base = (numbers[:-1], numbers[-1]) if has_outbox else (numbers, 0)
        arguments = [None if size == IN_DESCRIPTOR else rest.receive(size) for size in sizes]  # noqa: F821
        if None in arguments:
            handed_over(arguments, self.channel.descriptors, self.heap)  # noqa: F821
        return arguments, lent, base

    def call(self, turn, rest):
        arguments, lent, base = self.arguments(rest)
        followers = followers_in(arguments.pop()) if lent & WITH_FOLLOWERS else ()  # noqa: F821 - of followers.py
        next_one = followers[0] if followers else None
        self.name_heir(next_one, base)
        if lent & WITH_OUTBOX:  # noqa: F821 - of shared.py
            self.lend(None if lent & WITH_KEPT else taken(self.channel.descriptors), base)  # noqa: F821
        result, is_followed = self.serve_call(turn, self.apply, arguments, next_one)
        for place, follower in enumerate(followers, 1):
            if not is_followed:
                break
            arguments, next_one = None, followers[place] if place < len(followers) else None
            result, is_followed = self.follow(follower, result, base, next_one)
        if lent:
            # Whoever waits for the answer, and has been woken on this processor, comes before what is only to be tidied up.
            os.sched_yield()
            self.leave_as_it_is()
        # What it was given ends with the call, and what it gave.
        arguments = result = None
        self.tidy_up()
        self.offer_memory()

    def serve_call(self, turn, apply, arguments, next_one):
        """Serves a call, and gives its result and whether that which may follow it is begun here."""
        self.log_left, self.turn = self.log_max, turn
        self.may_be_long(next_one)
        self.given = None
        self.callees.begin(turn, arguments[1] if len(arguments) > 1 else None)
        try:
            result = apply(*arguments)
        except BaseException as error:
            # Code of the function's may run after its result was given away: a signal's handler, say.
            self.given = self.heir = None
            self.has_ended()
            self.raised(turn, error)
            return None, False
        self.has_ended()
        is_followed = next_one is not None and self.may_be_followed(result, next_one)
        if next_one is not None and not is_followed:
            self.channel.hold(ALONE, turn)
        self.answer(turn, result)
        return result, is_followed

    def has_ended(self):
        self.callees.end()
        self.flush()
        self.tell_waited()
        self.keep()

    def tidy_up(self, stays=False):
        """A call has been answered. Who stays does not end, whatever it keeps."""
        if self.heap:
            self.heap.copied = None
        if self.outbox is not None:
            self.let_go()
        if self.heap and self.heap.end() and not stays:
            self.leave()
        # What threads print between two calls is of no call.
        self.log_left, self.turn = min(self.log_left, BETWEEN_CALLS_BYTES), OUTSIDE

    def leave(self):
        """Another instance is soon there, and is given what came here meanwhile."""
        self.channel.send(LEAVING, OUTSIDE)
        os._exit(0)

    def answer(self, turn, result, lost=0):
        """Answers a call; so many bytes of its result were lost, for it is too long."""
        if type(result) is bytes and len(result) <= self.result_max and not lost:
            return self.channel.send(RESULT, turn, result)
        if isinstance(result, Shared):  # noqa: F821
            return self.channel.send(OUTBOX, turn, struct.pack("<Q", result.length))
        if isinstance(result, Handed):  # noqa: F821
            return self.channel.send(MAPPED, turn, struct.pack("<Q", result.length))
        if not isinstance(result, (bytes, bytearray, memoryview)):
            why = f"apply returned {kind_name(type(result))}, not bytes"
            return self.channel.send(BAD_RESULT, turn, why.encode())
        view = memoryview(result)
        length = view.nbytes + lost
        if length > self.result_max:
            why = f"apply returned {length} bytes, more than the {self.result_max} that are allowed"
            return self.channel.send(BAD_RESULT, turn, why.encode())
        self.channel.send(RESULT, turn, bytes(view))

    def raised(self, turn, error):
        self.channel.send(RAISED, turn, *failure_parts(error))  # noqa: F821 - of failures.py


main()
