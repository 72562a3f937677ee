// SPDX-License-Identifier: Apache-2.0
//! Which addresses are whose (paper, section 4.2).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where segments may lie, as in `guests/heap/segment.h`: far from programs, their heaps and
/// libraries.
const BEGIN: u64 = 0x1000_0000_0000;
const END: u64 = 0x4000_0000_0000;
/// What addresses are lent in.
const STEP: u64 = 2 << 20;
/// Segments at a time: each is an open file of the node's, which others need as well.
const LEASES_MAX: usize = 4096;

/// Addresses for segments, and how much memory values may take.
#[derive(Debug, Clone)]
pub struct Plan(Arc<Shared>);

struct Shared {
    /// Bytes of all values that live.
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Begins and ends of what is lent.
    lent: BTreeMap<u64, u64>,
    /// From where the next free addresses are looked for: those that were lent last are
    /// lent again as late as can be, for some process may have mapped what was there.
    next: u64,
    bytes: u64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl Plan {
    /// A plan under which living values have so many bytes at most.
    pub fn new(bytes_max: u64) -> Self {
        let state = State { next: BEGIN, ..State::default() };
        Self(Arc::new(Shared { bytes_max, state: Mutex::new(state) }))
    }

    /// Addresses for a segment of so many bytes at most. `None` if values take all the memory
    /// that they may, or there are no addresses, or 4,096 are lent: what is made is to be sent then.
    pub fn lease(&self, len: u64) -> Option<Lease> {
        let len = len.checked_next_multiple_of(STEP).filter(|len| (1..=(END - BEGIN) / 4).contains(len))?;
        let mut state = self.0.lock();
        if state.bytes >= self.0.bytes_max || state.lent.len() >= LEASES_MAX {
            return None;
        }
        let begin = state.free_from(state.next, END, len).or_else(|| state.free_from(BEGIN, END, len))?;
        state.lent.insert(begin, begin + len);
        state.next = begin + len;
        drop(state);
        Some(Lease { plan: self.0.clone(), begin, len, bytes: 0 })
    }

    /// Whether less than a half of the leases that there may be are lent, so that one may be kept for later.
    pub fn has_plenty(&self) -> bool {
        self.0.lock().lent.len() < LEASES_MAX / 2
    }

    /// Bytes of all values that live.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No step of what is done under it leaves it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Where so many bytes are free, from there on.
    fn free_from(&self, from: u64, end: u64, len: u64) -> Option<u64> {
        let before = self.lent.range(..from).next_back().map_or(from, |(_, &end)| end);
        let mut begin = from.max(before);
        for (&other, &other_end) in self.lent.range(begin..) {
            if begin + len <= other {
                break;
            }
            begin = other_end;
        }
        (begin + len <= end).then_some(begin)
    }
}

/// Addresses that nobody else has until it is dropped.
pub struct Lease {
    plan: Arc<Shared>,
    begin: u64,
    len: u64,
    /// What lies there.
    bytes: u64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:#x}, {} bytes)", self.begin, self.len)
    }
}

impl Lease {
    /// The first of the addresses.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A value of so many bytes lies there, and needs only the first `len` of the addresses.
    pub(crate) fn settle(&mut self, bytes: u64, len: u64) {
        let len = len.next_multiple_of(STEP).clamp(STEP, self.len);
        let mut state = self.plan.lock();
        state.lent.insert(self.begin, self.begin + len);
        state.bytes = state.bytes - self.bytes + bytes;
        (self.bytes, self.len) = (bytes, len);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.plan.lock();
        state.lent.remove(&self.begin);
        state.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_lent_is_lent_once_and_not_again_soon() {
        let plan = Plan::new(u64::MAX);
        let one = plan.lease(1).unwrap();
        assert_eq!((one.begin(), one.len()), (BEGIN, STEP));
        let begin = one.begin();
        drop(one);
        assert_ne!(plan.lease(1).unwrap().begin(), begin);
        for len in [0, END - BEGIN, u64::MAX] {
            assert!(plan.lease(len).is_none());
        }
    }

    #[test]
    fn the_end_is_followed_by_the_beginning() {
        let plan = Plan::new(u64::MAX);
        let quarter = (END - BEGIN) / 4;
        let mut all: Vec<_> = (0..4).map(|_| plan.lease(quarter).unwrap()).collect();
        assert!(plan.lease(1).is_none(), "there are no more");
        all.remove(1);
        assert_eq!(plan.lease(quarter).unwrap().begin(), BEGIN + quarter);
    }

    #[test]
    fn there_are_only_so_many_at_a_time() {
        let plan = Plan::new(u64::MAX);
        let mut all: Vec<Lease> = (0..LEASES_MAX).map(|_| plan.lease(1).unwrap()).collect();
        assert!(plan.lease(1).is_none());
        all.pop();
        assert!(plan.lease(1).is_some());
    }

    #[test]
    fn values_have_a_bound_together() {
        let plan = Plan::new(100);
        let mut lease = plan.lease(10 * STEP).unwrap();
        lease.settle(99, STEP + 1);
        assert_eq!((plan.bytes(), lease.len()), (99, 2 * STEP));
        let mut other = plan.lease(STEP).unwrap();
        other.settle(50, STEP);
        assert!(plan.lease(1).is_none(), "there is more than there may be");
        drop(lease);
        assert_eq!(plan.bytes(), 50);
        assert!(plan.lease(1).is_some());
    }

    proptest! {
        #[test]
        fn leases_never_overlap(steps in proptest::collection::vec((any::<u8>(), 1..1_u64 << 44), 1..200)) {
            let plan = Plan::new(u64::MAX);
            let mut all: Vec<Lease> = Vec::new();
            for (what, len) in steps {
                match what % 3 {
                    0 if !all.is_empty() => drop(all.swap_remove(usize::from(what) % all.len())),
                    1 if !all.is_empty() => {
                        let at = usize::from(what) % all.len();
                        all[at].settle(len, len);
                    }
                    _ => all.extend(plan.lease(len >> (what % 30))),
                }
                let mut places: Vec<(u64, u64)> = all.iter().map(|one| (one.begin(), one.begin() + one.len())).collect();
                places.sort_unstable();
                prop_assert!(places.iter().all(|&(begin, end)| begin >= BEGIN && end <= END && begin < end));
                prop_assert!(places.windows(2).all(|two| two[0].1 <= two[1].0));
            }
        }
    }
}
