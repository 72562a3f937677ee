// SPDX-License-Identifier: Apache-2.0
//! What others write into a file in memory, for one who reads it as it comes.
//!
//! Unlike a pipe it keeps nobody waiting who writes, and what was written last is there
//! also when its writer has ended. Its memory is the writers'.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, OFlags};

/// A longer file is begun anew once it was read.
const LEN_MAX: u64 = 1 << 20;

/// The end that reads.
#[derive(Debug)]
pub struct Spool {
    file: File,
    read: u64,
}

/// What was written since.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spooled {
    /// The first of it.
    pub bytes: Vec<u8>,
    /// So many bytes came behind that.
    pub left_out: u64,
}

impl Spool {
    /// An empty one, and the descriptor that others write to: each write is added at the end. Closed on exec,
    /// as is every descriptor that is no copy of it.
    ///
    /// # Errors
    /// What the kernel says: in practice that there are too many open files.
    pub fn create(name: &str) -> io::Result<(Self, OwnedFd)> {
        let writer = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&writer, OFlags::APPEND)?;
        Ok((Self { file: writer.try_clone()?.into(), read: 0 }, writer))
    }

    /// What was written since the last time, `most` bytes of it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&mut self, most: usize) -> io::Result<Spooled> {
        let len = self.file.metadata()?.len();
        // Whoever writes may have cut it off.
        let start = if len < self.read { 0 } else { self.read };
        if len == start {
            self.read = len;
            return Ok(Spooled::default());
        }
        let mut bytes = vec![0; usize::try_from(len - start).unwrap_or(usize::MAX).min(most)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], start + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        let left_out = len - start - filled as u64;
        self.read = len;
        if len > LEN_MAX {
            // What comes in between is lost: nobody can print so much and have all of it kept.
            self.file.set_len(0)?;
            self.read = 0;
        }
        Ok(Spooled { bytes, left_out })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    fn text(spool: &mut Spool) -> String {
        String::from_utf8(spool.take(usize::MAX).unwrap().bytes).unwrap()
    }

    #[test]
    fn what_several_write_is_read_once_and_in_order() {
        let (mut spool, writer) = Spool::create("test").unwrap();
        assert_eq!(spool.take(10).unwrap(), Spooled::default());
        let mut file = File::from(writer);
        file.write_all(b"one ").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf two; printf ' three' >&2"]);
        shell.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
        assert!(shell.status().unwrap().success());
        assert_eq!(text(&mut spool), "one two three");
        assert_eq!(text(&mut spool), "");
        file.write_all(b"four").unwrap();
        assert_eq!(spool.take(1).unwrap(), Spooled { bytes: b"f".to_vec(), left_out: 3 });
        assert_eq!(text(&mut spool), "", "what was left out is gone");
    }

    #[test]
    fn a_long_one_is_begun_anew_and_one_that_was_cut_off_is_read_from_its_beginning() {
        let (mut spool, writer) = Spool::create("test").unwrap();
        let mut file = File::from(writer);
        file.write_all(&vec![b'x'; LEN_MAX as usize + 1]).unwrap();
        assert_eq!(spool.take(3).unwrap(), Spooled { bytes: b"xxx".to_vec(), left_out: LEN_MAX - 2 });
        assert_eq!(file.metadata().unwrap().len(), 0, "nobody's memory");
        file.write_all(b"next").unwrap();
        assert_eq!(text(&mut spool), "next");
        file.set_len(0).unwrap();
        file.write_all(b"cut").unwrap();
        assert_eq!(text(&mut spool), "cut");
        file.set_len(1 << 50).unwrap();
        let huge = spool.take(8).unwrap();
        assert_eq!((huge.bytes.len(), huge.left_out), (8, (1 << 50) - 3 - 8), "of a hole no more is read");
    }
}
