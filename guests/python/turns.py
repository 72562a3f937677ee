# SPDX-License-Identifier: Apache-2.0
# Calls that stand in line: an instance is sent some before it has ended the one that it serves, and the node can recall
# those that have not begun (`guests/template/turns.c`). It is run before `template.py`, in the same module: names that
# are not defined here are that one's.


class Received:
    """The rest of a frame that was received already."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def receive(self, size):
        self.at += size
        return self.data[self.at - size : self.at]


class TakesTurns:
    """An instance's part in this."""

    shares_turns = False

    def share_turns(self):
        """From now on each call is begun in the word that the node shares."""
        descriptors = self.channel.descriptors
        if not descriptors or self.core.turns_open(descriptors.popleft()) < 0:
            # The node takes calls for recalled that would be begun here: this is no place for them.
            self.channel.send(LEAVING, OUTSIDE)  # noqa: F821
            os._exit(0)  # noqa: F821 - of lines.py
        self.shares_turns = True

    def is_recalled(self, turn, length, rest):
        """Whether a call is another instance's by now. Otherwise it has begun."""
        if not self.shares_turns or self.core.turns_begin(turn):
            return False
        payload = rest.receive(length)
        (count,) = struct.unpack_from("<I", payload)  # noqa: F821 - of lines.py
        has_outbox = count & (WITH_OUTBOX | WITH_KEPT) == WITH_OUTBOX  # noqa: F821 - of shared.py
        sizes = struct.unpack_from(f"<{count & COUNT}I", payload, 4)  # noqa: F821
        for _ in range(min(sizes.count(IN_DESCRIPTOR) + has_outbox, len(self.channel.descriptors))):  # noqa: F821
            descriptor = self.channel.descriptors.popleft()
            if descriptor >= 0:
                os.close(descriptor)  # noqa: F821
        return True
