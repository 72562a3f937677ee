// SPDX-License-Identifier: Apache-2.0
//! How a call of a program ends if it does not succeed.

use crate::Fault;

/// The error numbers of preview 1 that programs get here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errno {
    /// No such descriptor, or one of another kind.
    BadDescriptor = 8,
    /// The directory is the root of a preopened one.
    Busy = 10,
    /// There is such a file already.
    Exists = 20,
    /// An address that is not in the program's memory.
    Fault = 21,
    /// A file longer than any may be.
    FileTooBig = 22,
    /// An argument that means nothing.
    Invalid = 28,
    /// It is a directory.
    IsDirectory = 31,
    /// Too many links on the way, or one where none is followed.
    Loop = 32,
    /// The most descriptors are open.
    TooManyOpen = 33,
    /// A path or a name is too long.
    NameTooLong = 37,
    /// There is no such file.
    NoEntry = 44,
    /// It is no directory.
    NotDirectory = 54,
    /// The directory is not empty.
    NotEmpty = 55,
    /// It is no socket.
    NotSocket = 57,
    /// The path leads out of the directory, or the operation is for other kinds of files.
    NotPermitted = 63,
    /// The directory is read-only.
    ReadOnly = 69,
    /// It has no position.
    NoSeek = 70,
    /// The descriptor has not the right.
    NotCapable = 76,
}

/// Why a call does not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The program is told, and goes on.
    Refused(Errno),
    /// The program ends, with this failure.
    Ended(Fault),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// What a call of a program gives.
pub(crate) type Result<T> = std::result::Result<T, Stop>;
