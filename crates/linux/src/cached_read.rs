// SPDX-License-Identifier: Apache-2.0
//! Reading of a file what the kernel has in its memory, and nothing else: for
//! threads that must not wait for a disk.

use std::fs::File;
use std::io::IoSliceMut;

use rustix::io::ReadWriteFlags;

/// Fills `bytes` from the file's `offset` on, if that takes no waiting. `false`: it would,
/// or the file has no such bytes, or its file system cannot tell; a read that may wait says
/// which. Then `bytes` holds anything.
pub fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> bool {
    let len = bytes.len();
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT);
    read == Ok(len)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    use super::*;

    /// A file of so many sevens, whose name is gone.
    fn sevens(name: &str, len: usize) -> File {
        let path = std::env::temp_dir().join(format!("sinew-cached-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![7; len]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    #[test]
    fn what_was_just_written_is_in_memory_and_what_is_not_there_is_not() {
        let file = sevens("written", 10_000);
        let mut bytes = [0; 3000];
        // Some file systems cannot tell, and then never do.
        if read_cached(&file, &mut bytes, 5000) {
            assert_eq!(bytes, [7; 3000]);
        }
        assert!(!read_cached(&file, &mut bytes, 9000));
        assert!(!read_cached(&file, &mut bytes, 1 << 40));
    }

    #[test]
    fn what_left_memory_is_not_waited_for() {
        let file = sevens("left", 1 << 16);
        let mut bytes = [0; 4096];
        if !read_cached(&file, &mut bytes, 0) {
            return;
        }
        file.sync_all().unwrap();
        // The advice is refused in silence for pages that somebody else holds just then.
        let left = (0..1000).any(|_| {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let left = !read_cached(&file, &mut bytes, 0);
            if !left {
                std::thread::sleep(Duration::from_millis(5));
            }
            left
        });
        assert!(left, "what has left memory is read, and was waited for");
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(read_cached(&file, &mut bytes, 0));
    }
}
