// SPDX-License-Identifier: Apache-2.0
//! Images over memory of this process.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::ptr::NonNull;

use super::*;

const PAGE: usize = 4096;

/// Anonymous memory, which is given back at the end.
struct Room(NonNull<u8>, usize);

impl Room {
    fn new(len: usize) -> Self {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, flags, MapFlags::PRIVATE) };
        Self(NonNull::new(start.unwrap().cast()).unwrap(), len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours, and lives as long as this.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.1) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped.
        unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), self.1) }.unwrap();
    }
}

#[test]
fn each_one_who_maps_it_has_a_copy_of_its_own() {
    let writer = MemoryImageWriter::new(3 * PAGE).unwrap();
    writer.write(PAGE, b"shared").unwrap();
    assert!(writer.write(3 * PAGE - 1, b"xx").is_err() && writer.write(usize::MAX, b"x").is_err());
    let image = writer.finish().unwrap();
    assert_eq!((image.len(), image.resident_bytes().unwrap()), (3 * PAGE, PAGE as u64));
    let (mut one, mut two) = (Room::new(4 * PAGE), Room::new(4 * PAGE));
    for room in [&mut one, &mut two] {
        room.bytes().fill(7);
        // SAFETY: the memory is the room's own, and four pages long.
        unsafe { image.map_over(room.0) }.unwrap();
        assert_eq!(&room.bytes()[PAGE..PAGE + 6], b"shared");
        assert!(room.bytes()[..PAGE].iter().all(|byte| *byte == 0), "what is not written is zero");
        assert!(room.bytes()[3 * PAGE..].iter().all(|byte| *byte == 7), "behind it nothing has changed");
    }
    one.bytes()[PAGE] = b'S';
    assert_eq!(
        (&one.bytes()[PAGE..PAGE + 6], &two.bytes()[PAGE..PAGE + 6]),
        (&b"Shared"[..], &b"shared"[..])
    );
    let mut three = Room::new(3 * PAGE);
    // SAFETY: as above, three pages.
    unsafe { image.map_over(three.0) }.unwrap();
    assert_eq!(&three.bytes()[PAGE..PAGE + 6], b"shared", "the image itself is as it was");
}
