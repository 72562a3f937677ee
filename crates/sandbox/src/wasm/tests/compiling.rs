// SPDX-License-Identifier: Apache-2.0
//! Waiting for code without a thread: who is told, what is begun, and that a
//! large module is in nobody's way.
//!
//! A lane is kept busy by a waiter that does not return when it is told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::Fault;
use crate::wasm::{Awaiting, Origin};

/// Tells the test, and then holds the lane until the test lets go.
struct Waiter {
    /// How often it still says that it is wanted.
    wanted: AtomicUsize,
    done: Sender<Result<(), Fault>>,
    held_until: Option<Receiver<()>>,
}

impl Awaiting for Waiter {
    fn is_wanted(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn done(self: Box<Self>, ready: Result<(), &Fault>) {
        let _ = self.done.send(ready.map_err(Fault::clone));
        if let Some(until) = self.held_until {
            let _ = until.recv();
        }
    }
}

impl World {
    /// Waits for `procedure` as long as asked less than `wanted` times.
    fn awaiting(
        &self,
        procedure: Handle,
        wanted: usize,
        held_until: Option<Receiver<()>>,
    ) -> Receiver<Result<(), Fault>> {
        let (done, told) = channel();
        let waiter = Waiter { wanted: AtomicUsize::new(wanted), done, held_until };
        self.codelets.await_ready(procedure, false, Box::new(waiter));
        told
    }

    /// The large lane is busy until the sender is dropped.
    fn hold_large_lane(&self) -> Sender<()> {
        let (release, held_until) = channel();
        let holder = self.awaiting(self.large(0), usize::MAX, Some(held_until));
        assert_eq!(holder.recv().unwrap(), Ok(()));
        release
    }

    /// Small code in a large module.
    fn large(&self, number: u8) -> Handle {
        const PADDING: usize = 1 << 20;
        let mut module = plain(&number_of(number));
        // A custom section: its identifier 0, its length, its name, its bytes.
        let len = PADDING + 1;
        module.push(0);
        module.extend([len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8]);
        module.push(0);
        module.resize(module.len() + PADDING, number);
        self.store.keep_blob(&module)
    }
}

fn number_of(value: u8) -> String {
    number(&format!("(i32.const {value})"))
}

#[test]
fn a_large_module_is_in_no_small_ones_way() {
    let world = World::new();
    let release = world.hold_large_lane();
    let large = world.awaiting(world.large(1), usize::MAX, None);
    for value in 2..20 {
        let small = world.store.keep_blob(&plain(&number_of(value)));
        assert_eq!(world.awaiting(small, usize::MAX, None).recv().unwrap(), Ok(()));
    }
    // One at a time: it has not begun.
    assert!(large.try_recv().is_err());
    assert_eq!(world.codelets.coming(), 1);
    drop(release);
    assert_eq!(large.recv().unwrap(), Ok(()));
    assert_eq!(world.codelets.coming(), 0);
}

#[test]
fn what_nobody_waits_for_is_not_begun() {
    let world = World::new();
    let release = world.hold_large_lane();
    let (left, stays) = (world.large(1), world.large(2));
    // Asked once, when it is handed from one lane to the other.
    let gone = world.awaiting(left, 1, None);
    let told = world.awaiting(stays, usize::MAX, None);
    drop(release);
    assert_eq!(told.recv().unwrap(), Ok(()));
    assert!(gone.recv().is_err(), "nobody told it anything");
    assert!(world.codelets.compilation(left).is_none());
    assert_eq!(world.codelets.coming(), 0);
    // Whoever comes later finds no trace of it.
    assert_eq!(world.codelets.prepare(left, false).unwrap().origin, Origin::Compiled);
}

#[test]
fn what_has_begun_is_kept_though_nobody_waits_any_more() {
    let world = World::new();
    let large = world.large(1);
    let told = world.awaiting(large, 2, None);
    assert_eq!(told.recv().unwrap(), Ok(()));
    assert!(world.codelets.compilation(large).is_some());
}

#[test]
fn a_long_line_is_rid_of_those_that_left() {
    let world = World::new();
    let release = world.hold_large_lane();
    let many: Vec<_> = (0..100).map(|number| world.awaiting(world.large(number), 1, None)).collect();
    let told = world.awaiting(world.large(200), usize::MAX, None);
    // The quick lane hands them over in order, so that this one comes last.
    let small = world.store.keep_blob(&plain(&number_of(1)));
    world.codelets.prepare(small, false).unwrap();
    assert!(world.codelets.coming() < many.len(), "{} are in line", world.codelets.coming());
    drop(release);
    assert_eq!(told.recv().unwrap(), Ok(()));
}

#[test]
fn who_waits_is_told_why_there_is_no_code() {
    let world = World::new();
    let absent = Handle::blob(&[7; 100]);
    let fault = world.awaiting(absent, usize::MAX, None).recv().unwrap().unwrap_err();
    assert_eq!(fault.code, FailureCode::MissingData);
    world.store.keep_blob(&[7; 100]);
    for _ in 0..2 {
        let fault = world.awaiting(absent, usize::MAX, None).recv().unwrap().unwrap_err();
        assert_eq!(fault.code, FailureCode::BadProcedure);
    }
}
