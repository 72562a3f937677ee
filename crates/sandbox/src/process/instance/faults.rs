// SPDX-License-Identifier: Apache-2.0
//! Why an instance gave no answer, in words for people that are the same on every node.

use std::path::Path;
use std::sync::atomic::Ordering;

use objects::FailureCode;

use super::{Broken, END_PATIENCE, Ended, Instance, Raised, UNMAPPABLE};
use crate::Fault;

impl Instance {
    /// Why the process did not get as far as its hello.
    pub(super) fn unconfined(&self, broken: &Broken) -> Fault {
        let fault = self.broken(broken, "the start");
        match self.life.watch.ended() {
            Some(Ended::Exited(status)) if fault.code == FailureCode::Trap => unavailable(
                "the container",
                &format!("the process ended with status {status} before it was an instance"),
            ),
            _ => fault,
        }
    }

    /// The fault of an instance that gave no answer; ends it.
    pub(super) fn broken(&self, broken: &Broken, what: &str) -> Fault {
        let ended = match broken {
            Broken::Closed => self.life.wait_for_end(END_PATIENCE),
            Broken::Late | Broken::Lie(_) | Broken::Unconfined(_) => None,
        };
        let killed = self.life.killed.load(Ordering::Acquire);
        let out_of_memory = self.life.place.oom_kills() > self.oom_kills;
        self.life.kill();
        if killed {
            return Fault::new(FailureCode::Cancelled, "the sandbox was killed");
        }
        if out_of_memory {
            let limit = self.terms.memory_bytes;
            let why = format!("the function and what it started used more than {limit} bytes");
            return Fault::new(FailureCode::Memory, why);
        }
        match (broken, ended) {
            (Broken::Late, _) => late(what),
            (Broken::Unconfined(why), _) => unavailable("the container", why),
            (Broken::Lie(lie), _) => {
                Fault::new(FailureCode::Trap, format!("the instance misused its channel: {lie}"))
            }
            (Broken::Closed, Some(Ended::Exited(status))) => Fault::new(
                FailureCode::Trap,
                format!("the function ended its process with status {status} during {what}"),
            ),
            (Broken::Closed, Some(Ended::Signalled(signal))) => Fault::new(
                FailureCode::Trap,
                format!("the process was ended by signal {signal} ({}) during {what}", signal_name(signal)),
            ),
            (Broken::Closed, None) => {
                Fault::new(FailureCode::Trap, format!("the instance closed its channel during {what}"))
            }
        }
    }

    /// The fault of a call that raised an exception.
    pub(super) fn exception(&self, raised: &Raised) -> Fault {
        let is_memory = self.terms.language.is_out_of_memory(&raised.kind, &raised.message);
        let code = match raised.kind.as_str() {
            // It has nothing to do with the function, and another instance can.
            UNMAPPABLE => FailureCode::Resources,
            _ if is_memory => FailureCode::Memory,
            _ => FailureCode::Trap,
        };
        self.raised(raised, code)
    }

    /// The fault of an exception: what it says, without addresses and the
    /// paths of this node.
    pub(super) fn raised(&self, raised: &Raised, code: FailureCode) -> Fault {
        let first = if raised.message.is_empty() {
            raised.kind.clone()
        } else {
            format!("{}: {}", raised.kind, raised.message)
        };
        let mut text = format!("{first}\n{}", raised.traceback);
        for prefix in self.prefixes.iter().filter(|prefix| prefix.len() > 1) {
            text = text.replace(prefix.as_str(), self.terms.language.placeholder());
        }
        Fault::new(code, without_addresses(&text))
    }
}

pub(super) fn late(what: &str) -> Fault {
    Fault::new(FailureCode::Deadline, format!("{what} took too long and was ended"))
}

pub(super) fn beside_a_late_one() -> Fault {
    let why = "its instance was ended because another request in it took too long; try again";
    Fault::new(FailureCode::Resources, why)
}

pub(super) fn unavailable(what: &str, why: &str) -> Fault {
    Fault::new(FailureCode::Resources, format!("no instance can be made: {what}: {why}"))
}

pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Replaces what interpreters print of addresses, `0x7f…`, by `0x…`.
pub(super) fn without_addresses(text: &str) -> String {
    const DIGITS_MIN: usize = 6;
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let (before, after) = rest.split_at(at + 2);
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        clean.push_str(before);
        clean.push_str(if digits >= DIGITS_MIN { "…" } else { &after[..digits] });
        rest = &after[digits..];
    }
    clean + rest
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "no common one",
    }
}
