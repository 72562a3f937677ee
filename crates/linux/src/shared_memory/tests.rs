// SPDX-License-Identifier: Apache-2.0
//! What is shared, and what is refused.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn two_mappings_are_one_memory() {
    let (one, fd) = SharedMemory::create("test", 8192).unwrap();
    let other = SharedMemory::open(&fd).unwrap();
    one.write(100, b"hello");
    let mut bytes = [0; 5];
    other.read(100, &mut bytes);
    assert_eq!(&bytes, b"hello");
    other.word64(8).store(7, Ordering::Release);
    assert_eq!((one.word64(8).load(Ordering::Acquire), one.word32(8).load(Ordering::Acquire)), (7, 7));
}

#[test]
fn what_could_change_its_length_is_refused() {
    let unsealed = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, 4096).unwrap();
    assert_eq!(SharedMemory::open(&unsealed).unwrap_err().kind(), io::ErrorKind::InvalidData);
    let (_memory, fd) = SharedMemory::create("test", 4096).unwrap();
    assert!(rustix::fs::ftruncate(&fd, 1).is_err(), "the seals hold");
    assert!(SharedMemory::open(std::fs::File::open("/dev/null").unwrap()).is_err());
    assert!(
        SharedMemory::create("test", 0).is_err()
            && SharedMemory::create("test", SHARED_MEMORY_MAX + 1).is_err()
    );
}

#[test]
fn offsets_out_of_bounds_are_our_own_bug() {
    let (memory, _fd) = SharedMemory::create("test", 4096).unwrap();
    let memory = std::panic::AssertUnwindSafe(memory);
    let acts: [fn(&SharedMemory); 3] =
        [|it| it.write(4090, b"1234567"), |it| it.read(usize::MAX, &mut [0]), |it| _ = it.word32(2)];
    for act in acts {
        assert!(std::panic::catch_unwind(|| act(&memory)).is_err());
    }
}

#[test]
fn a_sleeper_is_woken() {
    let (memory, _fd) = SharedMemory::create("test", 4096).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while memory.word32(0).load(Ordering::Acquire) == 0 {
                wait_while(memory.word32(0), 0, Duration::from_secs(10)).unwrap();
            }
        });
        memory.word32(0).store(1, Ordering::Release);
        wake_one(memory.word32(0));
        sleeper.join().unwrap();
    });
}
