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

    def __init__(self, turn, is_brief, needs_bytes, memory_bytes, handler, head, arguments):
        self.turn, self.handler, self.head, self.arguments = turn, handler, head, arguments
        # Whether it follows what is copied for it; what it needs of memory if it may be given the result itself, else 0; and what the
        # instance may have.
        self.is_brief, self.needs_bytes, self.memory_bytes = is_brief != 0, needs_bytes, memory_bytes


def followers_in(message):
    """What follows a call."""
    (memory_bytes,), at, followers = struct.unpack_from("<Q", message), 8, []  # noqa: F821
    while at < len(message):
        (turn, is_brief, needs_bytes), parts, at = struct.unpack_from("<IBQ", message, at), [], at + 13  # noqa: F821
        for _ in range(3):
            (length,) = struct.unpack_from("<I", message, at)  # noqa: F821
            parts.append(message[at + 4 : at + 4 + length])
            at += 4 + length
        handler, head, arguments = parts
        followers.append(Follower(turn, is_brief, needs_bytes, memory_bytes, handler.decode(), head, arguments))
    return followers


class Given:
    """The result of the step before, as a value of one's own: the only item of a list, for whoever asks first."""

    def __init__(self, box):
        self.box = box

    def value(self):
        return self.box.pop()


class IsFollowed:
    """An instance's part in this."""

    def may_be_followed(self, result, follower):
        """Whether a step with this result is followed by the next one here. Of what is handed over in another way that one
        is better given in an instance of its own, and so it is where much memory is taken."""
        if self.given is not None:
            return True
        if not follower.is_brief or self.is_recalled_heir:
            return False
        if type(result) is not bytes or len(result) > min(FOLLOWED_BYTES_MAX, self.result_max):
            return False
        return self.has_room(follower.memory_bytes)

    def has_room(self, memory_bytes):
        """Whether less is taken of what the instance may have than that another step may begin."""
        most = memory_bytes // TAKEN_SHARE
        # Mostly it never had as much, which is quickly known.
        return (self.heap and self.heap.peak() < most) or own_memory_bytes() < most  # noqa: F821 - of heap.py

    def may_be_long(self, follower):
        """Whether the result of the call that begins is for a step here: then it is copied, and may be longer before it is mapped."""
        is_followed = follower is not None and follower.is_brief
        if self.heap:
            self.heap.is_followed, self.heap.copied = is_followed, None
            self.heap.sent_max = FOLLOWED_BYTES_MAX if is_followed else MAPPED_BYTES_MIN  # noqa: F821 - of heap.py

    def follow(self, follower, result, base, next_one):
        """Serves a step that follows another one with this result; gives what `serve_call` does."""
        given, self.given = self.given, None
        copied = self.heap and self.heap.copied
        goes_on, self.goes_on = self.goes_on, False
        if goes_on:
            self.heap.go_on()
        elif self.kept is None or (self.heap and self.heap.was_given):
            # What was given away is nowhere else.
            self.tidy_up(stays=given is not None)
        if self.shares_turns and given is None and not self.core.turns_begin(follower.turn):
            # It is another one's by now, and so is all behind it.
            return None, False
        self.name_heir(next_one, base)
        if self.kept is not None:
            self.lend(None, base)
        if given is not None or copied:
            result, copied = Given(list(copied) if given is None else given), None
            if self.heap:
                self.heap.copied = None
        arguments = [b"", follower.head, follower.arguments, result]
        # The list of arguments alone has it.
        given = result = None
        return self.serve_call(follower.turn, self.step(follower.handler), arguments, next_one)

    def step(self, handler):
        """The function of this name, which is loaded where it is called: what comes of that is told of its step."""
        return lambda *arguments: self.step_of(handler)(*arguments)
