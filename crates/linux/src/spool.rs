// SPDX-License-Identifier: Apache-2.0
//! What others write into a pipe, for one who looks after it now and then.
//!
//! Whoever writes more than fits waits until it was looked after, as with any pipe; what was written
//! last is there also when its writer has ended.

use std::fs::{File, Permissions};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// Bytes that fit, where the kernel gives a pipe so much: to a user who is not root not without end.
const ROOM: usize = 256 << 10;
/// The same of one of which nothing is kept, so that its writer need not wait so often.
const WIDE: usize = 1 << 20;
/// Who may open it by its name in `/proc`: anybody, to write. It is the creator's otherwise, and
/// `/dev/stderr` nobody else's.
const WRITE_ONLY: u32 = 0o222;

/// The end that reads.
#[derive(Debug)]
pub struct Spool(PipeReader);

impl Spool {
    /// An empty one, and the descriptor that others write to. Closed on exec, as is every descriptor that is
    /// no copy of it.
    ///
    /// # Errors
    /// What the kernel says: in practice that there are too many open files.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer): (PipeReader, PipeWriter) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        // Without that less fits, and who prints much waits more often.
        _ = rustix::pipe::fcntl_setpipe_size(&writer, ROOM);
        let file = File::from(OwnedFd::from(writer));
        file.set_permissions(Permissions::from_mode(WRITE_ONLY))?;
        Ok((Self(reader), file.into()))
    }

    /// Has more fit from now on, if the kernel gives so much.
    pub fn widen(&self) {
        _ = rustix::pipe::fcntl_setpipe_size(&self.0, WIDE);
    }

    /// Throws away what was written since the last time, without looking at it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn discard(&mut self) -> io::Result<()> {
        let mut left = usize::try_from(rustix::io::ioctl_fionread(&self.0)?).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(());
        }
        // Kept open it would be a descriptor more for what hardly anybody does.
        let nowhere = File::options().write(true).open("/dev/null")?;
        while left > 0 {
            match rustix::pipe::splice(&self.0, None, &nowhere, None, left, SpliceFlags::NONBLOCK) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(gone) => left -= gone.min(left),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What was written since the last time, as far as it was there when this was begun.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&mut self) -> io::Result<Vec<u8>> {
        // Mostly there is nothing, and that is all that it takes to know.
        let there = rustix::io::ioctl_fionread(&self.0)?;
        let there = usize::try_from(there).unwrap_or(usize::MAX);
        if there == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; there];
        let mut filled = 0;
        while filled < there {
            match self.0.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    fn text(spool: &mut Spool) -> String {
        String::from_utf8(spool.take().unwrap()).unwrap()
    }

    #[test]
    fn what_several_write_is_read_once_and_in_order() {
        let (mut spool, writer) = Spool::create().unwrap();
        assert_eq!(text(&mut spool), "");
        let mut file = File::from(writer);
        file.write_all(b"one ").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf two; printf ' three' >&2; printf ' four' > /dev/stderr"]);
        shell.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
        assert!(shell.status().unwrap().success());
        assert_eq!(text(&mut spool), "one two three four");
        assert_eq!(text(&mut spool), "");
        file.write_all(b"five").unwrap();
        drop(file);
        assert_eq!(text(&mut spool), "five", "also when nobody writes any more");
        assert_eq!(text(&mut spool), "");
    }

    #[test]
    fn much_is_taken_in_parts_and_waits_meanwhile() {
        let (mut spool, writer) = Spool::create().unwrap();
        let whole = 10 * ROOM;
        let writing = std::thread::spawn(move || File::from(writer).write_all(&vec![b'x'; whole]).unwrap());
        let mut bytes = 0;
        while bytes < whole {
            let taken = spool.take().unwrap();
            assert!(taken.len() <= ROOM);
            bytes += taken.len();
        }
        writing.join().unwrap();
        assert_eq!(bytes, whole);
    }

    #[test]
    fn what_is_thrown_away_makes_room() {
        let (mut spool, writer) = Spool::create().unwrap();
        let writing = std::thread::spawn(move || {
            let mut file = File::from(writer);
            file.write_all(&vec![b'x'; 20 * ROOM]).unwrap();
            file
        });
        spool.widen();
        while !writing.is_finished() {
            spool.discard().unwrap();
        }
        let mut file = writing.join().unwrap();
        spool.discard().unwrap();
        spool.discard().unwrap();
        file.write_all(b"kept").unwrap();
        assert_eq!(text(&mut spool), "kept");
    }
}
