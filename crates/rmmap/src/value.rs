// SPDX-License-Identifier: Apache-2.0
//! A value in a segment that was handed over.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::Lent;

use crate::Lease;

/// Bytes of a value's ticket: more than fit into a handle.
pub const TICKET_BYTES: usize = 40;
/// What a result of a step begins with, and the kind of a value that is mapped, in its first
/// version (`docs/spec/workflows.md`, sections 4 and 6).
const TICKET_HEAD: [u8; 8] = [2, 0, 0, 0, b'{', b'}', 2, 1];

/// Numbers that make tickets different from all that this process has made.
static LAST: AtomicU64 = AtomicU64::new(0);
/// With this nobody can tell one ticket from others: whoever knows a ticket's bytes could ask for its memory.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A segment, and its addresses: they are free again when it is dropped. Who maps it keeps its
/// memory, but not the addresses.
#[derive(Debug)]
pub struct Value {
    memory: Lent,
    lease: Lease,
    number: u64,
}

impl Value {
    /// What was put into a segment at these addresses.
    pub fn new(memory: Lent, mut lease: Lease) -> Self {
        lease.settle(memory.bytes(), memory.len());
        Self { memory, lease, number: LAST.fetch_add(1, Ordering::Relaxed) }
    }

    /// What stands for it where blobs do: who has it has no way to the memory, but whoever has that
    /// can tell from it where it belongs. It is different from all others, and cannot be guessed.
    pub fn ticket(&self) -> [u8; TICKET_BYTES] {
        let mut ticket = [0; TICKET_BYTES];
        let secret = |part: u8| SECRET.hash_one((self.number, part));
        let numbers = [self.lease.begin(), self.memory.bytes(), secret(0), secret(1)];
        let (head, rest) = ticket.split_at_mut(TICKET_HEAD.len());
        head.copy_from_slice(&TICKET_HEAD);
        for (place, number) in rest.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        ticket
    }
}

impl AsFd for Value {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use linux::Outbox;

    use super::*;
    use crate::Plan;

    #[test]
    fn a_ticket_tells_nothing_of_another_one() {
        let plan = Plan::new(1 << 30);
        let tickets = (0..500).map(|_| {
            let memory = Outbox::create(1 << 20).unwrap().lend(4096).unwrap();
            Value::new(memory, plan.lease(1 << 20).unwrap()).ticket()
        });
        let tickets: Vec<_> = tickets.collect();
        let word = |ticket: &[u8; TICKET_BYTES], at: usize| {
            u64::from_le_bytes(ticket[at..at + 8].try_into().unwrap())
        };
        // Behind where it is and how much there is, which can be guessed.
        for at in [24, 32] {
            let secrets: HashSet<u64> = tickets.iter().map(|ticket| word(ticket, at)).collect();
            let steps: HashSet<u64> =
                tickets.windows(2).map(|two| word(&two[0], at).wrapping_sub(word(&two[1], at))).collect();
            assert_eq!((secrets.len(), steps.len()), (500, 499), "at {at}");
        }
        assert!(tickets.iter().all(|ticket| word(ticket, 24) != word(ticket, 32)));
    }
}
