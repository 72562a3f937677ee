# SPDX-License-Identifier: Apache-2.0
# Steps that follow one another in one instance: each is given what the one before has returned
# (`process/instance/followers.rs`, decision 0108). It is run before `template.py`, in the same module: names that are not
# defined here are that one's.

# A result that is longer as a pickle is better mapped, also by the step that follows.
FOLLOWED_BYTES_MAX = 256 << 10
# Of the memory that the instance may have, the share that it may have taken before another step begins in it.
TAKEN_SHARE = 2


class Follower:
    """A step that follows another one."""

    def __init__(self, turn, handler, head, arguments):
        self.turn, self.handler, self.head, self.arguments = turn, handler, head, arguments


def followers_in(message):
    """What follows a call, and the bytes of memory that the instance may have."""
    (memory_bytes,), at, followers = struct.unpack_from("<Q", message), 8, []  # noqa: F821
    while at < len(message):
        (turn,), parts, at = struct.unpack_from("<I", message, at), [], at + 4  # noqa: F821
        for _ in range(3):
            (length,) = struct.unpack_from("<I", message, at)  # noqa: F821
            parts.append(message[at + 4 : at + 4 + length])
            at += 4 + length
        handler, head, arguments = parts
        followers.append(Follower(turn, handler.decode(), head, arguments))
    return followers, memory_bytes


class Copied:
    """The result of the step before, as a value of one's own."""

    def __init__(self, copy):
        self.copy = copy

    def value(self):
        return self.copy


class IsFollowed:
    """An instance's part in this."""

    def may_be_followed(self, result, memory_bytes):
        """Whether a step with this result is followed by the next one here. Of what is handed over in another way that one
        is better given in an instance of its own, and so it is where much memory is taken."""
        if type(result) is not bytes or len(result) > min(FOLLOWED_BYTES_MAX, self.result_max):
            return False
        most = memory_bytes // TAKEN_SHARE
        # Mostly it never had as much, which is quickly known.
        return 0 <= self.core.template_memory_peak() < most >> 10 or own_memory_bytes() < most  # noqa: F821 - of heap.py

    def may_be_long(self, is_followed):
        """Whether the result of the call that begins is for a step here: then it is copied, and may be longer before it is mapped."""
        if self.heap:
            self.heap.is_followed, self.heap.copied = is_followed, None
            self.heap.sent_max = FOLLOWED_BYTES_MAX if is_followed else MAPPED_BYTES_MIN  # noqa: F821 - of heap.py

    def follow(self, follower, result, base, memory_bytes):
        """Serves a step that follows another one with this result; gives what `serve_call` does."""
        copied = self.heap and self.heap.copied
        if self.kept is None or (self.heap and self.heap.was_given):
            self.tidy_up()
        if self.shares_turns and not self.core.turns_begin(follower.turn):
            # It is another one's by now, and so is all behind it.
            return None, False
        if self.kept is not None:
            self.lend(None, base)
        if copied:
            result, self.heap.copied = Copied(*copied), None
        arguments = [b"", follower.head, follower.arguments, result]
        return self.serve_call(follower.turn, self.step(follower.handler), arguments, memory_bytes)

    def step(self, handler):
        """The function of this name, which is loaded where it is called: what comes of that is told of its step."""
        return lambda *arguments: self.step_of(handler)(*arguments)
