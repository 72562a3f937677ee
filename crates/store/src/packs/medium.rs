// SPDX-License-Identifier: Apache-2.0
//! Where packs are: numbered files in a folder, or what a test puts in its place.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use linux::Mapping;

use crate::Object;

/// A folder of packs.
pub(crate) trait Medium: fmt::Debug + Send + Sync {
    /// The numbers of all packs, in any order.
    fn list(&self) -> io::Result<Vec<u32>>;
    /// A new, empty pack whose name is synced.
    fn create(&self, number: u32) -> io::Result<Arc<dyn Pack>>;
    /// A pack that is there.
    fn open(&self, number: u32) -> io::Result<Arc<dyn Pack>>;
    /// Takes a pack away. Who has it open can read it still.
    fn remove(&self, number: u32) -> io::Result<()>;
    /// Nothing in it is written, or waited for.
    fn is_untouched(&self) -> bool {
        false
    }
}

/// The bytes of one pack.
pub(crate) trait Pack: fmt::Debug + Send + Sync {
    fn len(&self) -> io::Result<u64>;
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Reads them if nobody has to wait for the disk. `false`: whoever may wait asks
    /// [`Pack::read_exact_at`].
    fn read_cached(&self, bytes: &mut [u8], offset: u64) -> bool;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    /// When it was last written to.
    fn changed(&self) -> io::Result<SystemTime>;
    /// Its first `len` bytes, to look at all of them.
    fn all(&self, len: u64) -> io::Result<Object>;
}

/// A folder of the file system.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    fn path(&self, number: u32) -> PathBuf {
        self.0.join(format!("{number:010}.pack"))
    }

    fn sync(&self) -> io::Result<()> {
        crate::sync::folder(&self.0)
    }
}

impl Medium for Folder {
    fn list(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let number: Option<u32> = name.to_str().and_then(|name| name.strip_suffix(".pack")?.parse().ok());
            numbers.extend(number);
        }
        Ok(numbers)
    }

    fn create(&self, number: u32) -> io::Result<Arc<dyn Pack>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(self.path(number))?;
        self.sync()?;
        Ok(Arc::new(file))
    }

    fn open(&self, number: u32) -> io::Result<Arc<dyn Pack>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(self.path(number))?))
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        fs::remove_file(self.path(number))
    }
}

/// A folder of the file system in which nothing is changed.
#[derive(Debug)]
pub(crate) struct Untouched(pub(crate) PathBuf);

fn untouched() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it is only looked at")
}

impl Medium for Untouched {
    fn list(&self) -> io::Result<Vec<u32>> {
        Folder(self.0.clone()).list()
    }

    fn create(&self, _number: u32) -> io::Result<Arc<dyn Pack>> {
        Err(untouched())
    }

    fn open(&self, number: u32) -> io::Result<Arc<dyn Pack>> {
        // To open a pipe, which another's folder may have, is to wait for whoever writes to it.
        if !fs::symlink_metadata(Folder(self.0.clone()).path(number))?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("pack {number} is no file")));
        }
        // The kernel refuses to write to what was opened so.
        Ok(Arc::new(File::open(Folder(self.0.clone()).path(number))?))
    }

    fn remove(&self, _number: u32) -> io::Result<()> {
        Err(untouched())
    }

    fn is_untouched(&self) -> bool {
        true
    }
}

impl Pack for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, offset)
    }

    fn read_cached(&self, bytes: &mut [u8], offset: u64) -> bool {
        linux::read_cached(self, bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        crate::sync::bytes(self)
    }

    fn changed(&self) -> io::Result<SystemTime> {
        self.metadata()?.modified()
    }

    fn all(&self, len: u64) -> io::Result<Object> {
        Ok(Object::mapped(Mapping::map(self, 0, len as usize)?))
    }
}
