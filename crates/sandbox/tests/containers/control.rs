// SPDX-License-Identifier: Apache-2.0
//! Controls: what shows that a case would see its attack succeed. Either the
//! attack does its harm with the wall down, or what looks like it and does none
//! is served. The runners fail an attack that has shown none.

use std::cell::Cell;
use std::fmt::Display;

thread_local! {
    static SHOWN: Cell<usize> = const { Cell::new(0) };
}

/// This holds where nothing stops the attack.
pub(crate) fn control(holds: bool, what: impl Display) {
    assert!(holds, "the control: {what}");
    SHOWN.set(SHOWN.get() + 1);
}

/// The machine has nothing to show it with.
pub(crate) fn no_control(why: &str) {
    eprintln!("no control: {why}");
    SHOWN.set(SHOWN.get() + 1);
}

/// How many were shown since this was last asked.
pub(crate) fn take_shown() -> usize {
    SHOWN.take()
}
