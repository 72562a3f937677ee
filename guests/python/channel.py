# SPDX-License-Identifier: Apache-2.0
# An instance's end of its channel: frames, and the descriptors that come with them (`process/channel.rs`). It is run
# before `template.py`, in the same module.

import collections
import os
import socket
import struct
import threading

LOG_PIECE_BYTES = 32 << 10
BUFFER_BYTES = 64 << 10
FRAME_HEAD = struct.Struct("<IBI")
# Room for descriptors that come with a frame.
RIGHTS_BYTES = socket.CMSG_SPACE(128 * 4)
# As numbers: what Python's flags do with each other takes longer than to receive something.
CLOEXEC, CUT, ALL_OF_IT, AT_ONCE = map(int, (socket.MSG_CMSG_CLOEXEC, socket.MSG_CTRUNC, socket.MSG_WAITALL, socket.MSG_DONTWAIT))


class Channel:
    """Frames: length of the rest as u32, kind as u8, turn as u32, the rest."""

    def __init__(self, stream):
        self.stream = stream
        self.held = b""
        self.forget_senders()
        # What was received, and how much of it is used.
        self.data, self.at = b"", 0
        # Descriptors that came with it, in the order of their frames.
        self.descriptors = collections.deque()

    def forget_senders(self):
        """Nobody is sending anything, as in a process that was forked."""
        self.lock, self.is_sending, self.later = threading.RLock(), False, collections.deque()

    def receive(self, size):
        """Exactly `size` bytes, in one object."""
        if self.at + size > len(self.data):
            self.fill(size)
        start = self.at
        self.at = start + size
        return self.data[start : self.at]

    def fill(self, size):
        """Receives until there are `size` bytes that are not used."""
        if self.at == len(self.data) and size <= BUFFER_BYTES:
            # Mostly all that was sent is there at once.
            self.data, self.at = self.take(BUFFER_BYTES, 0), 0
            if len(self.data) >= size:
                return
            if not self.data:
                os._exit(0)
        pieces, have = [self.data[self.at :]], len(self.data) - self.at
        try:
            while have < size:
                # Of what is long no more than that, so that it need not be copied.
                most, flags = (BUFFER_BYTES, 0) if size - have < BUFFER_BYTES else (size - have, ALL_OF_IT)
                pieces.append(self.take(most, flags))
                if not pieces[-1]:
                    os._exit(0)
                have += len(pieces[-1])
        finally:
            # A signal's handler may raise: what has come is kept for whoever reads next.
            self.data, self.at = b"".join(filter(None, pieces)), 0

    def take(self, most, flags):
        """What is there, with the descriptors that come with it."""
        before = len(self.descriptors)
        data, rights, told, _ = self.stream.recvmsg(most, RIGHTS_BYTES, flags | CLOEXEC)
        for level, kind, brought in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.descriptors.extend(struct.unpack(f"<{len(brought) // 4}i", brought[: len(brought) // 4 * 4]))
        if told & CUT:
            self.cut(len(self.descriptors) - before)
        return data

    def cut(self, count):
        """There were no descriptors left for all that came with a frame: it has none, and not those of the next one."""
        for _ in range(count):
            os.close(self.descriptors.pop())
        self.descriptors.extend((-1, -1, -1))

    def has_more(self):
        """Whether something has come; without waiting."""
        if self.at < len(self.data):
            return True
        try:
            data = self.take(BUFFER_BYTES, AT_ONCE)
        except BlockingIOError:
            return False
        if not data:
            os._exit(0)
        self.data, self.at = data, 0
        return True

    def frame(self):
        """The next one: length, kind, turn, and from whom to receive the rest."""
        return *FRAME_HEAD.unpack(self.receive(FRAME_HEAD.size)), self

    def hold(self, kind, turn, payload=b""):
        """Has a frame go with the next one."""
        with self.lock:
            self.held += FRAME_HEAD.pack(len(payload), kind, turn) + payload

    def send(self, kind, turn, *parts):
        with self.lock:
            if self.is_sending:
                # By what has interrupted that: a signal's handler, or a finalizer.
                return self.later.append((kind, turn, *parts))
            while True:
                self.is_sending = True
                try:
                    self.write(kind, turn, parts)
                finally:
                    self.is_sending = False
                try:
                    # Whoever interrupts this now sends itself, and all of these.
                    kind, turn, *parts = self.later.popleft()
                except IndexError:
                    return

    def write(self, kind, turn, parts):
        size = sum(map(len, parts))
        head, self.held = self.held + FRAME_HEAD.pack(size, kind, turn), b""
        if size <= LOG_PIECE_BYTES:
            return self.stream.sendall(b"".join((head, *parts)))
        # In one piece, as far as it goes: whoever is woken by the head alone would wait for the rest.
        sent = self.stream.sendmsg((head, *parts))
        for part in (head, *parts):
            if sent < len(part):
                self.stream.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))
