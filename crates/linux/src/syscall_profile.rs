// SPDX-License-Identifier: Apache-2.0
//! Filters from profiles that somebody else wrote: rules that compare whole
//! arguments, and answers beyond refusing.
//!
//! The first rule that fits decides. Calls of other ABIs than this
//! processor's own are refused whatever the profile says of them: their
//! numbers mean other calls.

use std::io;

use crate::syscall_filter::{AT_ARGUMENTS, Instructions, JUMP_AT_LEAST, JUMP_EQUAL, SyscallFilter};

/// What the kernel does at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileAnswer {
    /// The call is made.
    Allow,
    /// The call is made, and the kernel's log says so.
    Log,
    /// The call is not made, and returns this error number.
    Refuse(u16),
    /// The thread gets SIGSYS.
    Trap,
    /// The thread is ended.
    EndThread,
    /// The process is ended.
    EndProcess,
}

impl ProfileAnswer {
    fn value(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Log => 0x7ffc_0000,
            Self::Refuse(errno) => 0x0005_0000 | u32::from(errno),
            Self::Trap => 0x0003_0000,
            Self::EndThread => 0,
            Self::EndProcess => 0x8000_0000,
        }
    }
}

/// How an argument is compared with a value, as 64 bits without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It is the value.
    Equal,
    /// It is not.
    NotEqual,
    /// It is less.
    Less,
    /// It is not greater.
    LessOrEqual,
    /// It is greater.
    Greater,
    /// It is not less.
    GreaterOrEqual,
    /// Under this mask, it is the value.
    MaskedEqual(u64),
}

/// A condition on one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentTest {
    /// Which, from 0 to 5.
    pub index: u8,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what.
    pub value: u64,
}

/// What to do at one system call if all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRule {
    /// The call's number.
    pub call: u32,
    /// All of these must hold; at most 6.
    pub all_of: Vec<ArgumentTest>,
    /// The answer then.
    pub answer: ProfileAnswer,
}

const AND: u16 = 0x54;
const LOAD: u16 = 0x20;
const JUMP_GREATER: u16 = 0x25;
const TESTS_MAX: usize = 6;

impl SyscallFilter {
    /// The filter of a profile.
    ///
    /// # Errors
    /// `InvalidInput` for a seventh argument or condition, or if it gets
    /// longer than the kernel takes.
    pub fn of_profile(rules: &[ProfileRule], otherwise: ProfileAnswer) -> io::Result<Self> {
        // Whatever the default is, another ABI is no way around the rules.
        let foreign = match otherwise {
            ProfileAnswer::Allow | ProfileAnswer::Log => ProfileAnswer::EndProcess,
            stricter => stricter,
        };
        let mut program = Instructions::begin(foreign.value());
        for rule in rules {
            if rule.all_of.len() > TESTS_MAX || rule.all_of.iter().any(|test| test.index > 5) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a call has six arguments"));
            }
            push_rule(&mut program, rule);
        }
        program.answer(otherwise.value());
        program.finish()
    }
}

fn push_rule(program: &mut Instructions, rule: &ProfileRule) {
    // The tests, the answer, and for a rule with tests the number again.
    let mut body = Vec::new();
    for test in rule.all_of.iter().rev() {
        let mut one = test_instructions(*test, u8::try_from(body.len() + 1).unwrap_or(u8::MAX));
        one.append(&mut body);
        body = one;
    }
    let has_tests = !body.is_empty();
    // Behind a rule that does not fit, the number of the call is loaded again.
    let skipped = body.len() + 1 + usize::from(has_tests);
    program.push(JUMP_EQUAL, 0, u8::try_from(skipped).unwrap_or(u8::MAX), rule.call);
    for (code, if_true, if_false, value) in body {
        program.push(code, if_true, if_false, value);
    }
    program.answer(rule.answer.value());
    if has_tests {
        program.push(LOAD, 0, 0, 0);
    }
}

type Instruction = (u16, u8, u8, u32);

/// Goes on behind itself if the test holds, else over `rest` instructions
/// more: those of the other tests, and the answer.
fn test_instructions(test: ArgumentTest, rest: u8) -> Vec<Instruction> {
    let low_at = AT_ARGUMENTS + 8 * u32::from(test.index);
    let (high, low) = ((test.value >> 32) as u32, test.value as u32);
    let (load_high, load_low) = ((LOAD, 0, 0, low_at + 4), (LOAD, 0, 0, low_at));
    match test.comparison {
        Comparison::Equal => {
            vec![load_high, (JUMP_EQUAL, 0, rest + 2, high), load_low, (JUMP_EQUAL, 0, rest, low)]
        }
        Comparison::NotEqual => {
            vec![load_high, (JUMP_EQUAL, 0, 2, high), load_low, (JUMP_EQUAL, rest, 0, low)]
        }
        Comparison::MaskedEqual(mask) => vec![
            load_high,
            (AND, 0, 0, (mask >> 32) as u32),
            (JUMP_EQUAL, 0, rest + 3, high),
            load_low,
            (AND, 0, 0, mask as u32),
            (JUMP_EQUAL, 0, rest, low),
        ],
        Comparison::Greater => above(JUMP_GREATER, [load_high, load_low], [high, low], rest),
        Comparison::GreaterOrEqual => above(JUMP_AT_LEAST, [load_high, load_low], [high, low], rest),
        Comparison::Less => below(JUMP_AT_LEAST, [load_high, load_low], [high, low], rest),
        Comparison::LessOrEqual => below(JUMP_GREATER, [load_high, load_low], [high, low], rest),
    }
}

fn above(last: u16, load: [Instruction; 2], value: [u32; 2], rest: u8) -> Vec<Instruction> {
    vec![
        load[0],
        (JUMP_GREATER, 3, 0, value[0]),
        (JUMP_EQUAL, 0, rest + 2, value[0]),
        load[1],
        (last, 0, rest, value[1]),
    ]
}

fn below(last: u16, load: [Instruction; 2], value: [u32; 2], rest: u8) -> Vec<Instruction> {
    vec![
        load[0],
        (JUMP_GREATER, rest + 3, 0, value[0]),
        (JUMP_EQUAL, 0, 2, value[0]),
        load[1],
        (last, rest, 0, value[1]),
    ]
}

#[cfg(test)]
mod tests;
