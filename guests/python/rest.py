# SPDX-License-Identifier: Apache-2.0
# What an instance keeps of memory that its calls have freed, and for how long (guests/heap/blocks.c and arenas.c, decision 0111).
# It is run before `template.py`, in the same module: names that are not defined here are that one's.

# One part in so many of what the function may have of memory.
BLOCKS_SHARE = 8
# Who has had nothing to do for so long offers the rest of it to the kernel, and then gives it back.
OFFER_MS, REST_MS = 50, 10_000


class KeepsMemory:
    """An instance's part in this."""

    # Whether it has much that could be given back.
    keeps_much = False

    def keep_memory(self, limit):
        """Its function is loaded, which may have so many bytes of memory."""
        # Between requests that are served at once nothing is offered, so that no more is kept than usual.
        if not self.serves_several:
            self.core.blocks_keep(limit // BLOCKS_SHARE)

    def keep_little(self):
        """As in a process that the function forks, which offers nothing."""
        self.core.blocks_keep(0)

    def offer_memory(self):
        """A call is over: the kernel may have what is free now, whenever it needs it."""
        self.keeps_much = self.core.blocks_offer(False) > 0

    def rest(self):
        """Waits for the next order, but not for ever with memory that others could use."""
        if not self.keeps_much or not self.callees.is_quiet() or self.waits(OFFER_MS):
            return
        self.core.blocks_offer(True)
        if not self.waits(REST_MS):
            self.core.blocks_give_back()
            self.keeps_much = False

    def waits(self, within_ms):
        """Whether something has come."""
        while (come := self.core.waiting.blocks_wait(CHANNEL, within_ms)) < 0:  # noqa: F821 - of template.py
            # Handlers of the signal that was it run here.
            pass
        return come > 0
