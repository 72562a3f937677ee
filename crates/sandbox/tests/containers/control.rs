// SPDX-License-Identifier: Apache-2.0
//! Controls: what shows that a case would see its attack succeed.
//!
//! A *control* is the same attack with what stops it switched off, or with its
//! limit raised: it does its harm. Where nothing can be switched off, something
//! that *looks alike* and does no harm is served, which at least shows that the
//! case tells the two apart. Those are:
//!
//! - that a crash is another process's: `ending_itself`; in the node's own it would end the test;
//! - what the node reads of an instance's channel (`lies_on_the_channel`, `closing_the_channel`,
//!   `a_child_holds_the_channel`, `exceptions_that_lie`, `exception_flood`, `lies_about_calls`,
//!   `a_flood_of_calls`, `an_answer_that_comes_after_the_call`): there is one reader, and none of
//!   it can be left out; `process/channel/tests.rs` has it refuse each lie alone;
//! - `descriptors_are_closed`: the native core knows no order to keep them;
//! - `metadata_service` of the containers, where nobody answers (`functions/network.rs` has a
//!   control), and system calls that the kernel was built without.
//!
//! The runners fail an attack that has shown neither, and a whole run with too
//! few controls.

use std::cell::Cell;
use std::fmt::Display;

thread_local! {
    static SHOWN: Cell<Shown> = const { Cell::new(Shown { controls: 0, others: 0 }) };
}

/// What a case has shown.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shown {
    /// Attacks that did their harm where nothing stopped them.
    pub(crate) controls: usize,
    /// What was shown in place of that.
    pub(crate) others: usize,
}

/// The same attack does its harm where what stops it is switched off.
pub(crate) fn control(holds: bool, what: impl Display) {
    assert!(holds, "the control: {what}");
    let shown = SHOWN.get();
    SHOWN.set(Shown { controls: shown.controls + 1, ..shown });
}

/// What looks like the attack, and does no harm, is served.
pub(crate) fn look_alike(holds: bool, what: impl Display) {
    assert!(holds, "what looks alike: {what}");
    let shown = SHOWN.get();
    SHOWN.set(Shown { others: shown.others + 1, ..shown });
}

/// The machine has nothing to show it with.
pub(crate) fn no_control(why: &str) {
    eprintln!("no control: {why}");
    let shown = SHOWN.get();
    SHOWN.set(Shown { others: shown.others + 1, ..shown });
}

/// What was shown since this was last asked.
pub(crate) fn take_shown() -> Shown {
    SHOWN.take()
}
