// SPDX-License-Identifier: Apache-2.0
//! Names that nobody else gives: UUIDs of version 7, and random bytes.
//!
//! Several are made for each request. The kernel is asked for random numbers
//! once for many of them: a system call each would take longer than the rest.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

/// Random bytes of a UUID besides its time.
const RANDOM_LEN: usize = 10;
/// Bytes that a thread asks for at once.
const POOL_LEN: usize = 100 * RANDOM_LEN;

/// Random bytes of one thread, each used once.
struct Pool {
    bytes: [u8; POOL_LEN],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_LEN], used: POOL_LEN }) };
}

impl Pool {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.used + N > POOL_LEN {
            getrandom::fill(&mut self.bytes).ok()?;
            self.used = 0;
        }
        let taken = self.bytes[self.used..].first_chunk().copied()?;
        self.used += N;
        Some(taken)
    }
}

/// Random bytes, [`POOL_LEN`] at most. Where the kernel gives none the generator of UUIDs is asked, which ends
/// the request that needs them.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    const { assert!(N <= POOL_LEN) };
    POOL.with_borrow_mut(Pool::take).unwrap_or_else(|| {
        let mut bytes = [0; N];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&Uuid::now_v7().as_bytes()[8..][..part.len()]);
        }
        bytes
    })
}

/// A new UUID of version 7.
#[expect(clippy::disallowed_methods, reason = "its time is the time of day")]
pub(crate) fn uuid() -> Uuid {
    let random = random::<RANDOM_LEN>();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_are_the_same_and_all_are_of_version_7() {
        let many = || (0..1000).map(|_| uuid()).collect::<Vec<_>>();
        let other = std::thread::Builder::new().spawn(many).unwrap().join().unwrap();
        let all: HashSet<Uuid> = many().into_iter().chain(other).collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|uuid| uuid.get_version_num() == 7));
        let bytes: HashSet<[u8; 8]> = (0..1000).map(|_| random()).collect();
        assert_eq!(bytes.len(), 1000);
        let end = |uuid: &Uuid| uuid.as_bytes()[8..].to_vec();
        assert_eq!(all.iter().map(end).collect::<HashSet<_>>().len(), 2000);
    }
}
