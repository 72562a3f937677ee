# SPDX-License-Identifier: Apache-2.0
"""The template process that Python functions are forked from.

The node starts it with a SEQPACKET socket as standard input. It imports what
it is told, settles its memory, says hello, and then forks an instance per
request; it never runs a function itself. Both wires are described beside
their Rust halves: the control socket in `process/template.rs`, the channel of
an instance in `process/channel.rs`.

Invariants: the template has one thread whenever it forks; nothing that it
does depends on time, on a random number or on an address, so two starts have
the same memory layout; a child confines itself before it reads a byte of the
function.
"""

import array
import ctypes
import gc
import hashlib
import io
import linecache
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import types

VERSION = 1
NO_RANDOM_ADDRESSES = 0x0040000
CLONE_NEWPID = 0x20000000
SYS_CLOSE_RANGE = 436
REQUEST_BYTES_MAX = 128 << 10
FDS_MAX = 32
TEXT_BYTES_MAX = 4096
LOG_PIECE_BYTES = 32 << 10
CHANNEL = 3
OWN_FILE = sys._getframe().f_code.co_filename

HELLO, LOAD, LOADED, CALL, RESULT, RAISED, BAD_RESULT, LOG = range(1, 9)

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
EINVAL = 22

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
libc.syscall.restype = ctypes.c_long


def checked(result, what):
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def prctl(option, a=0, b=0, c=0, d=0):
    return libc.prctl(option, a, b, c, d)


# ---------------------------------------------------------------- template


def main():
    without_random_addresses()
    control = socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    try:
        for name in sys.argv[1:]:
            __import__(name)
    except BaseException as error:
        return control.send(b"!" + f"cannot import {name}: {type(error).__name__}: {error}".encode()[:TEXT_BYTES_MAX])
    settle()
    if threads() != 1:
        return control.send(b"!after the imports there are %d threads, so that forking is not safe" % threads())
    texts = "\0".join((sys.version.split()[0], sys.prefix, sys.base_prefix))
    control.send(struct.pack("<cHI32s", b"H", VERSION, os.getpid(), layout_digest()) + os.fsencode(texts))
    Template(control).serve()


def without_random_addresses():
    """Starts this program again, at addresses that are the same every time."""
    persona = checked(libc.personality(0xFFFFFFFF), "personality")
    if not persona & NO_RANDOM_ADDRESSES:
        checked(libc.personality(persona | NO_RANDOM_ADDRESSES), "personality")
        if not libc.personality(0xFFFFFFFF) & NO_RANDOM_ADDRESSES:
            return
        program = sys.executable or os.readlink("/proc/self/exe")
        os.execv(program, [program, *sys.orig_argv[1:]])


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


def threads():
    return len(os.listdir("/proc/self/task"))


def layout_digest():
    """Where the interpreter's own types and the mapped files lie."""
    digest = hashlib.blake2b(digest_size=32)
    pending, seen = [object], {}
    while pending:
        one = pending.pop()
        for other in type.__subclasses__(one):
            name = f"{other.__module__}.{other.__qualname__}"
            # Types without HEAPTYPE are part of the interpreter or an extension.
            if name not in seen:
                seen[name] = 0 if other.__flags__ & (1 << 9) else id(other)
                pending.append(other)
    for name in sorted(seen):
        digest.update(f"{name} {seen[name]:x}\n".encode())
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            if len(fields) > 5 and fields[5].startswith("/"):
                digest.update(f"{fields[0]} {fields[5]}\n".encode())
    return digest.digest()


class Request:
    """What a fork request says, or ValueError."""

    HEAD = struct.Struct("<cQIIIHHI")

    def __init__(self, message, fds):
        kind, self.id, self.flags, self.uid, self.gid, limits, joins, program = self.HEAD.unpack_from(message)
        at = self.HEAD.size
        self.rlimits = [struct.unpack_from("<Iqq", message, at + 20 * i) for i in range(limits)]
        at += 20 * limits
        self.seccomp = message[at : at + program]
        contained = 1 if self.flags else 0
        if kind != b"F" or len(self.seccomp) != program or len(fds) != 1 + contained + joins:
            raise ValueError("a malformed request")
        self.channel, self.pidfd = fds[0], fds[1] if contained else None
        self.joins = fds[1 + contained :]


class Template:
    def __init__(self, control):
        self.control = control
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.children = {}
        self.wake, woken = socket.socketpair()
        self.wake.setblocking(False)
        woken.setblocking(False)
        self.woken = woken
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)

    def serve(self):
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.wake.fileno() in ready:
                self.wake.recv(4096)
                self.reap()
            if self.control.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(self.control, REQUEST_BYTES_MAX, FDS_MAX)
                if not message:
                    return
                try:
                    self.fork(message, fds)
                finally:
                    for fd in fds:
                        os.close(fd)

    def reap(self):
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.control.send(struct.pack("<cQi", b"X", self.children.pop(pid, 0), status))

    def fork(self, message, fds):
        try:
            request = Request(message, fds)
        except (ValueError, struct.error):
            return
        try:
            if threads() != 1:
                raise OSError(0, f"there are {threads()} threads, so that forking is not safe")
            if request.pidfd is not None:
                checked(libc.setns(request.pidfd, CLONE_NEWPID), "setns of the pid namespace")
            try:
                pid = os.fork()
            finally:
                # In the child this has no meaning, and it is about to confine itself.
                if request.pidfd is not None and (sys.exc_info()[0] or pid):
                    checked(libc.setns(self.own_pids, CLONE_NEWPID), "setns back")
        except OSError as error:
            text = str(error).encode()[:TEXT_BYTES_MAX]
            self.control.send(struct.pack("<cQ", b"E", request.id) + text)
            return
        if pid == 0:
            become_instance(request)
        self.children[pid] = request.id
        self.control.send(struct.pack("<cQI", b"R", request.id, pid))


# ---------------------------------------------------------------- instance


def become_instance(request):
    """Never returns. Whatever goes wrong before the hello ends the process;
    the status says how far it got."""
    status = 97
    try:
        signal.set_wakeup_fd(-1)
        confine(request)
        status = 98
        channel = Channel(socket.socket(fileno=CHANNEL))
        forget_the_template()
        status = 0
        Instance(channel).serve()
    except BaseException:
        pass
    finally:
        os._exit(status)


def confine(request):
    os.setsid()
    for fd in request.joins:
        os.write(fd, b"0")
    if request.pidfd is not None:
        checked(libc.setns(request.pidfd, request.flags), "setns")
    os.chdir("/")
    os.dup2(request.channel, CHANNEL, inheritable=False)
    checked(libc.syscall(SYS_CLOSE_RANGE, CHANNEL + 1, 0xFFFFFFFF, 0), "close_range")
    if request.pidfd is None:
        return unprivileged(request)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    os.setgroups([])
    unprivileged(request)


def unprivileged(request):
    if request.uid:
        # Dropping from the bounding set needs what becoming another user takes away.
        for capability in range(64):
            if prctl(PR_CAPBSET_DROP, capability) and ctypes.get_errno() == EINVAL:
                break
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        os.setresgid(request.gid, request.gid, request.gid)
        os.setresuid(request.uid, request.uid, request.uid)
    for which, soft, hard in request.rlimits:
        # Where the process has less already, it keeps the less.
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))
    checked(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
    checked(prctl(PR_SET_DUMPABLE, 0), "dumpable")
    if request.seccomp:
        program = ctypes.create_string_buffer(request.seccomp, len(request.seccomp))
        # struct sock_fprog: a length in filters of eight bytes, and a pointer.
        filters = struct.pack("@HP", len(request.seccomp) // 8, ctypes.addressof(program))
        holder = ctypes.create_string_buffer(filters, len(filters))
        checked(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(holder)), "seccomp")


def forget_the_template():
    """Signals as in a new process, and randomness of one's own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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


class Channel:
    """Frames: length of the rest as u32, kind as u8, the rest."""

    def __init__(self, stream):
        self.stream = stream
        self.lock = threading.Lock()

    def receive(self, size):
        """Exactly `size` bytes, in one object."""
        data = self.stream.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) == size:
            return data
        pieces = [data]
        while sum(map(len, pieces)) < size:
            pieces.append(self.stream.recv(size - sum(map(len, pieces)), socket.MSG_WAITALL))
            if not pieces[-1]:
                os._exit(0)
        return b"".join(pieces)

    def send(self, kind, *parts):
        head = struct.pack("<IB", sum(map(len, parts)), kind)
        with self.lock:
            if sum(map(len, parts)) <= LOG_PIECE_BYTES:
                return self.stream.sendall(b"".join((head, *parts)))
            self.stream.sendall(head)
            for part in parts:
                self.stream.sendall(part)


class Log(io.RawIOBase):
    """Standard output or error: what is over the budget of a call is dropped."""

    def __init__(self, instance, stream):
        self.instance, self.number = instance, stream

    def writable(self):
        return True

    def write(self, data):
        data = memoryview(data).cast("B")
        for start in range(0, len(data), LOG_PIECE_BYTES):
            if not self.instance.log(self.number, bytes(data[start : start + LOG_PIECE_BYTES])):
                break
        return len(data)


class Instance:
    def __init__(self, channel):
        self.channel = channel
        self.log_left = 0
        self.log_max = 0
        self.apply = None
        self.result_max = 0
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                io.BufferedWriter(Log(self, number), 8192), "utf-8", "backslashreplace", line_buffering=True
            )
            for number in (1, 2)
        )
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        os.register_at_fork(after_in_child=self.left_behind)

    def left_behind(self):
        """A process that the function forks is no instance: it has no channel."""
        self.channel.lock = threading.Lock()
        self.log_left = -1
        try:
            os.close(CHANNEL)
        except OSError:
            pass

    def log(self, number, data):
        if self.log_left <= 0:
            return False
        cut = data[: self.log_left]
        self.log_left -= len(cut)
        self.channel.send(LOG, bytes([number]), cut)
        if self.log_left == 0:
            self.channel.send(LOG, b"\x02", b"\n[output over %d bytes was dropped]\n" % self.log_max)
        return True

    def serve(self):
        self.channel.send(HELLO, struct.pack("<4sHI", b"SNWP", VERSION, os.getpid()))
        while True:
            length, kind = struct.unpack("<IB", self.channel.receive(5))
            if kind == LOAD:
                self.load(self.channel.receive(length))
            elif kind == CALL:
                self.call()
            else:
                return

    def load(self, message):
        self.result_max, self.log_max, name_len = struct.unpack_from("<QQH", message)
        self.log_left = self.log_max
        name = message[18 : 18 + name_len].decode()
        file = f"{name}.py"
        source = message[18 + name_len :]
        try:
            module = types.ModuleType(name)
            module.__file__ = file
            sys.modules[name] = module
            text = source.decode()
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
            self.apply = module.apply
            if not callable(self.apply):
                raise TypeError("apply is not a function")
        except BaseException as error:
            self.flush()
            return self.raised(error)
        self.flush()
        self.channel.send(LOADED)

    def call(self):
        (count,) = struct.unpack("<I", self.channel.receive(4))
        sizes = struct.unpack(f"<{count}I", self.channel.receive(4 * count))
        arguments = [self.channel.receive(size) for size in sizes]
        self.log_left = self.log_max
        try:
            result = self.apply(*arguments)
        except BaseException as error:
            self.flush()
            return self.raised(error)
        self.flush()
        if not isinstance(result, (bytes, bytearray, memoryview)):
            return self.channel.send(BAD_RESULT, f"apply returned {kind_name(type(result))}, not bytes".encode())
        view = memoryview(result)
        if view.nbytes > self.result_max:
            text = f"apply returned {view.nbytes} bytes, more than the {self.result_max} that are allowed"
            return self.channel.send(BAD_RESULT, text.encode())
        self.channel.send(RESULT, result if isinstance(result, bytes) else bytes(view))

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
        self.channel.send(RAISED, *(piece for text in texts for piece in (struct.pack("<I", len(text)), text)))


def kind_name(kind):
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


def is_own(frame):
    return frame.f_code.co_filename == OWN_FILE or "__tracebackhide__" in frame.f_globals


def describe(error):
    """Type, message and traceback, without the frames of this file and of the
    adapter that it loaded (`function.py`)."""
    trace = error.__traceback__
    while trace and is_own(trace.tb_frame):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error.with_traceback(trace), trace, limit=-16)
    text = "".join(lines)
    if len(text) > TEXT_BYTES_MAX:
        text = text[: TEXT_BYTES_MAX // 4] + "\n…\n" + text[-TEXT_BYTES_MAX // 2 :]
    return [kind_name(type(error)), str(error)[:TEXT_BYTES_MAX], text]


main()
