# SPDX-License-Identifier: Apache-2.0
# What an instance keeps of memory that its calls have freed, and for how long (guests/heap/blocks.c and arenas.c, decision 0111).
# It is run before `template.py`, in the same module: names that are not defined here are that one's.

# Of what the function may have of memory, how much of its large blocks; and at least so much.
BLOCKS_SHARE, BLOCKS_MIN = 8, 16 << 20
# Who has had nothing to do for so long gives it back.
REST_MS = 10_000


class KeepsMemory:
    """An instance's part in this."""

    # Whether it has much that could be given back.
    keeps_much = False

    def keep_memory(self, limit):
        """Its function is loaded, which may have so many bytes of memory."""
        self.core.blocks_keep(max(BLOCKS_MIN, limit // BLOCKS_SHARE))

    def offer_memory(self):
        """A call is over: the kernel may have what is free now, whenever it needs it."""
        self.keeps_much = self.core.blocks_offer() > 0

    def rest(self):
        """Waits for the next order, but not for ever with memory that others could use."""
        if self.keeps_much and self.callees.is_quiet():
            self.keeps_much = not self.core.waiting.blocks_rest(CHANNEL, REST_MS)  # noqa: F821 - of template.py
