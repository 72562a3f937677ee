// SPDX-License-Identifier: Apache-2.0
//! Images over memory of this process.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

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

/// An image of `PAGES` pages, each of which begins with its number, but for every third, which is zero.
fn numbered(pages: usize) -> Arc<MemoryImage> {
    let writer = MemoryImageWriter::new(pages * PAGE).unwrap();
    for page in (0..pages).filter(|page| page % 3 != 0) {
        writer.write(page * PAGE, &(page as u64).to_le_bytes()).unwrap();
    }
    Arc::new(writer.finish().unwrap())
}

fn is_as_new(bytes: &[u8]) -> bool {
    let expected = |page: usize| if page.is_multiple_of(3) { 0 } else { page as u64 };
    bytes.chunks(PAGE).enumerate().all(|(page, bytes)| {
        bytes[..8] == expected(page).to_le_bytes() && bytes[8..].iter().all(|byte| *byte == 0)
    })
}

#[test]
fn a_copy_that_was_kept_is_as_a_new_one() {
    // More ranges than one look tells, and more than one directory of pages.
    const PAGES: usize = 1500;
    let image = numbered(PAGES);
    let mut room = Room::new((PAGES + 1) * PAGE);
    // SAFETY: the memory is the room's own, and long enough.
    unsafe { image.map_over(room.0) }.unwrap();
    for round in 0..4 {
        assert!(is_as_new(&room.bytes()[..PAGES * PAGE]), "{round}");
        for page in (round..PAGES).step_by(2 + round) {
            room.bytes()[page * PAGE + 100 + round] = 0xaa;
        }
        // SAFETY: `map_over` or `put_over` put the copy there, and nothing refers to it.
        let kept = match unsafe { KeptCopy::take(&image, room.0, u64::MAX) } {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            kept => kept.unwrap(),
        };
        assert!(kept.private_bytes() >= (PAGES / (2 + round) * PAGE) as u64, "{}", kept.private_bytes());
        assert!(is_as_new(&room.bytes()[..PAGES * PAGE]), "what is left there is the image");
        room.bytes()[..PAGES * PAGE].fill(0x55);
        // It goes elsewhere, and to a place that lies otherwise.
        room = Room::new((PAGES + 1) * PAGE);
        // SAFETY: as above.
        unsafe { kept.put_over(room.0) };
    }
    assert!(is_as_new(&room.bytes()[..PAGES * PAGE]));
}

#[test]
fn what_was_not_restored_would_be_seen() {
    let image = numbered(8);
    let mut room = Room::new(8 * PAGE);
    // SAFETY: the memory is the room's own, and long enough.
    unsafe { image.map_over(room.0) }.unwrap();
    room.bytes()[5 * PAGE + 9] = 1;
    assert!(!is_as_new(room.bytes()));
}

/// Mappings of an image in this process.
fn mappings(image: &MemoryImage) -> usize {
    use std::os::unix::fs::MetadataExt;
    let number = format!(" {} ", image.file.metadata().unwrap().ino());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("sinew-image") && line.contains(&number)).count()
}

#[test]
fn copies_that_nobody_takes_are_given_back() {
    let image = numbered(64);
    let mut room = Room::new(64 * PAGE);
    // SAFETY: the memory is the room's own, and long enough.
    unsafe { image.map_over(room.0) }.unwrap();
    room.bytes().fill(1);
    // SAFETY: `map_over` put the copy there.
    let kept = match unsafe { KeptCopy::take(&image, room.0, 64 * PAGE as u64) } {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
        kept => kept.unwrap(),
    };
    assert_eq!((kept.private_bytes(), mappings(&image)), (64 * PAGE as u64, 2));
    drop(kept);
    assert_eq!(mappings(&image), 1);
    room.bytes().fill(2);
    // SAFETY: at the room's place there is the image as if it had been mapped.
    let kept = unsafe { KeptCopy::take(&image, room.0, 63 * PAGE as u64) };
    assert_eq!(kept.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(mappings(&image), 1);
    assert!(is_as_new(room.bytes()));
}
