// SPDX-License-Identifier: Apache-2.0
//! Filters for system calls: built here, checked by the kernel, installed in
//! this process or carried to another one as bytes.
//!
//! Built by hand, because refused calls need answers that differ: programs ask
//! for `clone3` and go on with `clone` if they hear ENOSYS, but give up if they
//! hear EPERM.

#![allow(unsafe_code)]

use std::io;

/// What the kernel does at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is made.
    Allow,
    /// The call is not made, and returns this error number.
    Refuse(u16),
}

impl Verdict {
    fn value(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Refuse(errno) => 0x0005_0000 | u32::from(errno),
        }
    }
}

/// A condition on one argument: its low 32 bits under a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Which, from 0 to 5.
    pub index: u8,
    /// The bits that are looked at.
    pub mask: u32,
    /// What they must be.
    pub value: u32,
}

/// What to do at one system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The call's number.
    pub call: u32,
    /// If this is not empty, the verdict is `then` where one of these holds,
    /// and `otherwise` where none does.
    pub any_of: Vec<Argument>,
    /// Where a condition holds, or there is none.
    pub then: Verdict,
    /// Where no condition holds.
    pub otherwise: Verdict,
}

impl Rule {
    /// The same verdict whatever the arguments.
    pub fn always(call: i64, then: Verdict) -> Self {
        Self { call: number(call), any_of: Vec::new(), then, otherwise: then }
    }

    /// `then` if one of the conditions holds, else `otherwise`.
    pub fn depending(call: i64, any_of: &[Argument], then: Verdict, otherwise: Verdict) -> Self {
        Self { call: number(call), any_of: any_of.to_vec(), then, otherwise }
    }
}

/// The kernel's numbers are small; one that is not fits no call.
fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
pub(crate) const JUMP_EQUAL: u16 = 0x15;
pub(crate) const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Offsets in the kernel's `seccomp_data`.
const AT_CALL: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
pub(crate) const AT_ARGUMENTS: u32 = 16;
/// Numbers from here on are the x32 calls of another ABI.
const OTHER_ABI: u32 = 0x4000_0000;
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// The kernel's own limit.
const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of one instruction.
const INSTRUCTION_LEN: usize = 8;

/// A filter that is being written.
pub(crate) struct Instructions(Vec<u8>);

impl Instructions {
    /// Answers calls of other ABIs with this value, and loads the call's
    /// number.
    pub(crate) fn begin(foreign: u32) -> Self {
        let mut program = Self(Vec::new());
        program.push(LOAD, 0, 0, AT_ARCHITECTURE);
        program.push(JUMP_EQUAL, 1, 0, ARCHITECTURE);
        program.answer(foreign);
        program.push(LOAD, 0, 0, AT_CALL);
        program.push(JUMP_AT_LEAST, 0, 1, OTHER_ABI);
        program.answer(foreign);
        program
    }

    pub(crate) fn push(&mut self, code: u16, if_true: u8, if_false: u8, value: u32) {
        self.0.extend(code.to_ne_bytes());
        self.0.extend([if_true, if_false]);
        self.0.extend(value.to_ne_bytes());
    }

    pub(crate) fn answer(&mut self, value: u32) {
        self.push(RETURN, 0, 0, value);
    }

    pub(crate) fn finish(self) -> io::Result<SyscallFilter> {
        if self.0.len() > INSTRUCTIONS_MAX * INSTRUCTION_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the filter is too long"));
        }
        Ok(SyscallFilter { bytes: self.0 })
    }
}

/// A filter, as the kernel takes it: an array of `sock_filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallFilter {
    bytes: Vec<u8>,
}

impl SyscallFilter {
    /// Rules in the order in which they are tried, the frequent calls first;
    /// calls without a rule, and those of other ABIs, get `otherwise`.
    ///
    /// # Errors
    /// `InvalidInput` if it gets longer than the kernel takes.
    pub fn new(rules: &[Rule], otherwise: Verdict) -> io::Result<Self> {
        let mut program = Instructions::begin(otherwise.value());
        for rule in rules {
            push_rule(&mut program, rule);
        }
        program.answer(otherwise.value());
        program.finish()
    }

    /// A filter that was carried here as bytes.
    ///
    /// # Errors
    /// `InvalidInput` unless it is a whole number of instructions. Whether
    /// they make sense, the kernel checks.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let fits = bytes.len().is_multiple_of(INSTRUCTION_LEN)
            && (1..=INSTRUCTIONS_MAX * INSTRUCTION_LEN).contains(&bytes.len());
        if !fits {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a system call filter"));
        }
        Ok(Self { bytes: bytes.to_vec() })
    }

    /// The instructions, in this machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Installs it in the calling thread, for ever. The thread must have
    /// forbidden new privileges, or have CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// `InvalidInput` if the kernel finds a fault in it.
    pub fn install(&self) -> io::Result<()> {
        let instructions: Vec<libc::sock_filter> = self
            .bytes
            .chunks_exact(INSTRUCTION_LEN)
            .map(|chunk| libc::sock_filter {
                code: u16::from_ne_bytes([chunk[0], chunk[1]]),
                jt: chunk[2],
                jf: chunk[3],
                k: u32::from_ne_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]),
            })
            .collect();
        let program = libc::sock_fprog {
            len: u16::try_from(instructions.len()).unwrap_or(u16::MAX),
            filter: instructions.as_ptr().cast_mut(),
        };
        let set_filter = 1u32;
        // SAFETY: the program and its instructions outlive the call, which
        // copies them; the length is theirs.
        let done = unsafe { libc::syscall(libc::SYS_seccomp, set_filter, 0u32, &raw const program) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn push_rule(program: &mut Instructions, rule: &Rule) {
    // Each condition takes four instructions, and the answers one each.
    let conditions = rule.any_of.iter().take(60);
    let len = u8::try_from(conditions.len() * 4).unwrap_or(u8::MAX);
    program.push(JUMP_EQUAL, 0, len + 1, rule.call);
    for argument in conditions {
        program.push(LOAD, 0, 0, AT_ARGUMENTS + 8 * u32::from(argument.index.min(5)));
        program.push(AND, 0, 0, argument.mask);
        program.push(JUMP_EQUAL, 0, 1, argument.value);
        program.answer(rule.then.value());
    }
    let last = if rule.any_of.is_empty() { rule.then } else { rule.otherwise };
    program.answer(last.value());
}

/// Whether the kernel has filters.
pub fn has_syscall_filters() -> bool {
    let action: u32 = 0x7fff_0000;
    // SAFETY: the call reads one number, which is a local, and changes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, 2u32, 0u32, &raw const action) == 0 }
}

#[cfg(test)]
mod tests;
