// SPDX-License-Identifier: Apache-2.0
//! Things in the file tree that are no files: named pipes and devices.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// What sort of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// Read and written byte by byte.
    Character,
    /// A disk.
    Block,
    /// A named pipe, which has no numbers.
    Pipe,
}

/// Makes a named pipe that only its owner may use.
///
/// # Errors
/// `AlreadyExists`, and what the kernel says.
pub fn make_named_pipe(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Opens a named pipe at both ends: neither side is ever at its end while
/// this is open. Closed on exec.
///
/// # Errors
/// `NotFound`.
pub fn hold_named_pipe(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Opens one end of a named pipe without waiting for the other.
///
/// # Errors
/// For writing, ENXIO if nobody reads.
pub fn open_named_pipe(path: &Path, to_write: bool) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    File::options().read(!to_write).write(to_write).custom_flags(flags).open(path)
}

/// Makes a device, or a named pipe, with all rights that `mode` names.
///
/// # Errors
/// `PermissionDenied` without the capability, `AlreadyExists`.
pub fn make_device(path: &Path, kind: DeviceKind, numbers: (u32, u32), mode: u32) -> io::Result<()> {
    let kind = match kind {
        DeviceKind::Character => FileType::CharacterDevice,
        DeviceKind::Block => FileType::BlockDevice,
        DeviceKind::Pipe => FileType::Fifo,
    };
    let device = rustix::fs::makedev(numbers.0, numbers.1);
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)?;
    Ok(rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?)
}

/// Which rights files are made without from now on.
pub fn set_file_mask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask & 0o777));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_held_pipe_ends_when_it_is_let_go() {
        let path = std::env::temp_dir().join(format!("sinew-pipe-{}", std::process::id()));
        make_named_pipe(&path).unwrap();
        assert!(make_named_pipe(&path).is_err());
        assert!(open_named_pipe(&path, true).is_err(), "nobody reads yet");
        let mut held = hold_named_pipe(&path).unwrap();
        let mut reader = open_named_pipe(&path, false).unwrap();
        open_named_pipe(&path, true).unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        held.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        assert!(reader.read(&mut byte).is_err(), "nothing is there, and it is not the end");
        drop(held);
        assert_eq!(reader.read(&mut byte).unwrap(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
