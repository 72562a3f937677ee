# SPDX-License-Identifier: Apache-2.0
# What functions print, on its way to the node. It is run before `template.py`, in the same module: names that are not
# defined here are that one's, or those of `channel.py`.

import faulthandler
import io
import os
import sys
import threading

# Bytes that are held until they are flushed, which text is at the end of a line.
HELD_BYTES_MAX = 8192


class Output(io.BufferedIOBase):
    """Standard output or error as bytes: what is over the budget of a call is dropped, and what one call has begun to print
    is no other one's.

    No `io.BufferedWriter` is in between: where a thread prints while another one forks, the forked process would wait for
    its lock for ever.
    """

    def __init__(self, instance, number):
        self.instance, self.number = instance, number
        # In a process that was forked from the instance, and has no channel.
        self.is_beside = False
        # What is collected, or a signal's handler, may print while it is held.
        self.lock = threading.RLock()

    def writable(self):
        return True

    def write(self, data):
        data = memoryview(data).cast("B")
        if self.is_beside:
            return os.write(self.number, data)
        of = self.instance.printing()
        if of.log_left > 0:
            with self.lock:
                held = of.held[self.number]
                # What could not be told anyway takes no memory.
                held += data[: of.log_left]
                if len(held) > HELD_BYTES_MAX:
                    self.tell(of, held)
        return len(data)

    def flush(self):
        of = self.instance.printing()
        if of.held[self.number]:
            self.flush_of(of)

    def flush_of(self, of):
        if held := of.held[self.number]:
            with self.lock:
                self.tell(of, held)

    def tell(self, of, held):
        told = bytes(held)
        held.clear()
        for start in range(0, len(told), LOG_PIECE_BYTES):  # noqa: F821
            if not self.instance.log(of, self.number, told[start : start + LOG_PIECE_BYTES]):  # noqa: F821
                return


def nothing_held():
    """Of the bytes that somebody has begun to print: those to standard output, and to standard error."""
    return {1: bytearray(), 2: bytearray()}


class Prints:
    """An instance's part in this."""

    outputs, streams = (), ()

    def print_to_the_node(self, by_several=False):
        """Where one call runs at a time, the text itself is held up to the end of a line."""
        self.outputs = [Output(self, number) for number in (1, 2)]
        self.streams = sys.stdout, sys.stderr = tuple(
            io.TextIOWrapper(output, "utf-8", "backslashreplace", line_buffering=True, write_through=by_several)
            for output in self.outputs
        )
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr

    def print_beside_only(self):
        """In a process that was forked, which is no instance: it prints as any other process does. Whoever had these locks is
        not there."""
        self.log_left = -1
        for output in self.outputs:
            output.lock, output.is_beside = threading.RLock(), True

    def print_beside(self):
        """From now on what is written to descriptors 1 and 2, by whoever that is, goes to the node as well, and so does
        where the interpreter is when it breaks."""
        if descriptors := self.channel.descriptors:
            self.core.template_print_to(descriptors.popleft())
            faulthandler.enable(2)

    def log(self, of, number, data):
        """Tells what somebody has printed; whether there may be more of it."""
        if of.log_left <= 0:
            return False
        cut = data[: of.log_left]
        of.log_left -= len(cut)
        # Whether it has begun a line.
        of.is_in_line = not cut.endswith(b"\n")
        self.channel.send(LOG, of.turn, bytes([number]), cut)  # noqa: F821
        if of.log_left == 0:
            self.channel.send(LOG, of.turn, b"\x02", b"\n[output over %d bytes was dropped]\n" % self.log_max)  # noqa: F821
        return True

    def say_where(self, _signal, frame):
        """The node asks, before it ends this process: a call has used up its time."""
        try:
            if self.serves_several:
                self.callees.say_where(frame)
            else:
                self.flush()
                self.tell_place(self, "its time was used up here", told_place(frame))  # noqa: F821
        finally:
            self.channel.send(SAID, OUTSIDE)  # noqa: F821

    def tell_place(self, of, what, place):
        """Writes to somebody's log where that was; beyond what it may print, for it is not what has printed that."""
        for output in self.outputs:
            output.flush_of(of)
        if place:
            told = f"{what} (most recent call last):\n{place}".encode("utf-8", "backslashreplace")
            self.channel.send(LOG, of.turn, b"\x02\n" if of.is_in_line else b"\x02", shortened(told))  # noqa: F821

    def has_own_streams(self):
        """Whether the function has no others in the places of the streams that it was given."""
        own_out, own_error = self.streams
        return sys.stdout is own_out and sys.stderr is own_error

    def flush(self):
        # Who flushes its own, flushes what is under them.
        for stream in self.streams if self.has_own_streams() else (sys.stdout, sys.stderr, *self.outputs):
            try:
                stream.flush()
            except BaseException:
                pass
