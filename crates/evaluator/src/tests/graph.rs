// SPDX-License-Identifier: Apache-2.0
//! Bytes, from a fuzzer or at random, as a small graph of objects and a goal.
//!
//! Every byte string is some graph, and the same one in every world. Built-in
//! procedures only rearrange what they are given, so every evaluation ends.

use objects::{FailureCode, Handle, Limits};

use super::host::{Distance, World};
use super::machine::{ALLOWANCE_BYTES, POOL_BYTES};

/// Most steps of building, to keep the graphs small.
const STEPS_MAX: usize = 48;

const PROCEDURES: [&str; 24] = [
    "return",
    "return",
    "return",
    "tree",
    "tree",
    "tree",
    "tree",
    "call",
    "call",
    "add",
    "add",
    "if",
    "if",
    "inc",
    "fail",
    "overflow",
    "remote add",
    "remote return",
    "early return",
    "remote tree",
    "add\n                                        ",
    "tree\n                                        ",
    "call\n                                        ",
    "return\n                                        ",
];

struct Builder<'a> {
    world: &'a World,
    bytes: std::slice::Iter<'a, u8>,
    made: Vec<Handle>,
    /// Objects at a distance are away; otherwise they are local.
    is_scattered: bool,
}

/// Builds the graph that `bytes` describe and returns the goal. With
/// `is_scattered`, some objects have to be fetched first; some are nowhere in
/// either case.
pub(super) fn build(world: &World, bytes: &[u8], is_scattered: bool) -> Handle {
    let made = vec![Handle::u64(1), Handle::blob(b"x"), world.blob(&[7; 40]), world.tree(&[])];
    let mut builder = Builder { world, bytes: bytes.iter(), made, is_scattered };
    let style = builder.byte();
    for _ in 0..STEPS_MAX {
        let Some(operation) = builder.bytes.next() else {
            break;
        };
        let made = builder.make(*operation);
        builder.made.push(made);
    }
    builder.goal(style)
}

impl Builder<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    /// Something made before, more likely something new, so that the goal
    /// reaches much of what was made.
    fn pick(&mut self) -> Handle {
        let byte = usize::from(self.byte());
        let back = (byte * byte * self.made.len()) >> 16;
        self.made[self.made.len() - 1 - back]
    }

    fn picks(&mut self) -> Vec<Handle> {
        let count = self.byte() % 5;
        (0..count).map(|_| self.pick()).collect()
    }

    /// Something made before that is a value.
    fn value(&mut self) -> Handle {
        let handle = self.pick();
        if handle.is_value() { handle } else { handle.definition() }
    }

    fn make(&mut self, operation: u8) -> Handle {
        match operation % 64 {
            0..=5 => Handle::u64(u64::from(self.byte() % 4)),
            6..=8 => {
                let byte = self.byte();
                self.world.blob(&vec![byte; usize::from(byte % 64)])
            }
            9..=16 => {
                let entries = self.picks();
                self.world.tree(&entries)
            }
            17..=19 => self.value().lowered().unwrap(),
            20..=22 => {
                let value = self.value();
                value.identification().unwrap_or(value)
            }
            23..=39 => self.application(),
            40..=46 => {
                let (target, index) = (self.pick(), u64::from(self.byte() % 4));
                self.world.selection(target, index)
            }
            47 | 48 => {
                let (target, begin, end) = (self.pick(), self.byte() % 3, self.byte() % 6);
                self.world.range(target, u64::from(begin), u64::from(end))
            }
            49..=54 => {
                let handle = self.pick();
                handle.strict().unwrap_or(handle)
            }
            55..=59 => {
                let handle = self.pick();
                handle.shallow().unwrap_or(handle)
            }
            60 => {
                let value = self.value();
                let is_selection = self.byte().is_multiple_of(2);
                let thunk = if is_selection { value.selection() } else { value.application() };
                thunk.unwrap_or(value)
            }
            61 | 62 => self.distant(),
            _ => {
                let handle = self.pick();
                self.world.failure(FailureCode::Guest, handle, "made by hand")
            }
        }
    }

    fn application(&mut self) -> Handle {
        let limits = match self.byte() {
            0..=3 => Handle::blob(&[self.byte(); 3]),
            4..=40 => {
                let memory_bytes = ALLOWANCE_BYTES + u64::from(self.byte()) * (POOL_BYTES / 255);
                Limits { memory_bytes, ..Limits::default() }.handle().unwrap()
            }
            41..=44 => self.pick(),
            _ => Handle::blob(b""),
        };
        let procedure = match self.byte() {
            0..=7 => self.pick(),
            8..=47 => {
                // A curried procedure.
                let mut entries = vec![self.procedure()];
                entries.extend(self.picks());
                self.world.tree(&entries)
            }
            _ => self.procedure(),
        };
        let mut entries = vec![limits, procedure];
        for _ in 0..self.byte() % 4 {
            let number = self.byte();
            entries.push(if number < 64 { Handle::u64(u64::from(number % 4)) } else { self.pick() });
        }
        entries.push(self.pick());
        self.world.tree(&entries).application().unwrap()
    }

    fn procedure(&mut self) -> Handle {
        let index = usize::from(self.byte()) % PROCEDURES.len();
        self.world.blob(PROCEDURES[index].as_bytes())
    }

    /// An object that no procedure could make, near, far or nowhere.
    fn distant(&mut self) -> Handle {
        let mut salt = [b'#'; 50];
        salt[0] = self.made.len() as u8;
        let kind = self.byte();
        let object = if kind.is_multiple_of(2) {
            self.world.blob(&salt)
        } else {
            let mut entries = self.picks();
            entries.push(Handle::blob(&salt[..30]));
            self.world.tree(&entries)
        };
        match kind / 2 % 4 {
            0 => self.world.lose(object),
            1 if self.is_scattered => self.world.send_away(object, Distance::Near),
            _ if self.is_scattered => self.world.send_away(object, Distance::Far),
            _ => {}
        }
        object
    }

    /// The last thing made, or all of the last ones.
    fn goal(&self, style: u8) -> Handle {
        let last = match style / 2 % 4 {
            0 => self.made.last().copied().unwrap_or(Handle::u64(0)),
            count => {
                let begin = self.made.len().saturating_sub(usize::from(count) * 2);
                self.world.tree(&self.made[begin..])
            }
        };
        let thunk = last.identification().unwrap_or(last);
        let is_strict = style.is_multiple_of(2) || !(style / 2).is_multiple_of(4);
        let goal = if is_strict { thunk.strict() } else { thunk.shallow() };
        goal.unwrap_or(last)
    }
}
