// SPDX-License-Identifier: Apache-2.0
//! Images over memory of this process.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::*;

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
    let mut writer = MemoryImageWriter::new(3 * PAGE).unwrap();
    writer.write(PAGE, b"shared").unwrap();
    assert!(writer.write(3 * PAGE - 1, b"xx").is_err() && writer.write(usize::MAX, b"x").is_err());
    let image = writer.finish().unwrap();
    assert_eq!((image.len(), image.common_bytes().unwrap()), (3 * PAGE, PAGE as u64));
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
    let mut writer = MemoryImageWriter::new(pages * PAGE).unwrap();
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
        unsafe { kept.put_over(room.0) }.unwrap();
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

/// Mappings of an image in this process that can be written to.
fn mappings(image: &MemoryImage) -> usize {
    use std::os::unix::fs::MetadataExt;
    let number = format!(" {} ", image.common.file.metadata().unwrap().ino());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_one =
        |line: &&str| line.contains("sinew-image") && line.contains(" rw-p ") && line.contains(&number);
    maps.lines().filter(is_one).count()
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

/// Numbers that look random, of xorshift: always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Writes somewhere, mostly little, and sometimes zeros.
    fn scribble(&mut self, bytes: &mut [u8], times: usize) {
        for _ in 0..times {
            let at = self.below(bytes.len());
            let len = if self.below(8) == 0 { 3 * PAGE } else { 1 + self.below(200) };
            let value = [0, 1, self.below(256) as u8][self.below(3)];
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(value);
        }
    }
}

fn image_of(bytes: &[u8]) -> Arc<MemoryImage> {
    let mut writer = MemoryImageWriter::new(bytes.len()).unwrap();
    bytes.chunks(WHOLE).enumerate().for_each(|(at, part)| writer.write(at * WHOLE, part).unwrap());
    Arc::new(writer.finish().unwrap())
}

/// `None` if more pages differ.
fn alike(image: &MemoryImage, bytes: &[u8], changed_pages_max: usize) -> Option<Arc<MemoryImage>> {
    let mut writer = image.alike(bytes.len(), changed_pages_max).unwrap().unwrap();
    let is_alike = bytes.chunks(4 * WHOLE).all(|part| writer.write(part).unwrap());
    is_alike.then(|| Arc::new(writer.finish().unwrap()))
}

#[test]
fn images_that_are_alike_are_each_as_they_were_written() {
    let mut numbers = Numbers(0x5eed);
    let mut first = vec![0; 6 * WHOLE];
    numbers.scribble(&mut first, 300);
    // As long, shorter, longer by less and by more than is written at once.
    let lens = [6, 6, 6, 3, 7, 13];
    let mut contents: Vec<Vec<u8>> = Vec::new();
    let mut images: Vec<Arc<MemoryImage>> = Vec::new();
    for len in lens {
        let mut bytes = first.clone();
        bytes.resize(len * WHOLE, 0);
        numbers.scribble(&mut bytes, 30);
        let of = if contents.is_empty() { image_of(&bytes) } else { alike(&images[0], &bytes, 400).unwrap() };
        assert!(contents.is_empty() || of.own_bytes().unwrap() < of.common_bytes().unwrap());
        contents.push(bytes);
        images.push(of);
    }
    // A copy goes from one to another; whoever had it wrote wherever it could.
    let mut kept: Option<KeptCopy> = None;
    let mut turned = 0;
    for _ in 0..60 {
        let next = numbers.below(images.len());
        let (image, bytes) = (&images[next], &contents[next]);
        let mut room = Room::new(bytes.len() + PAGE);
        room.bytes().fill(0x55);
        let copy = kept.take().and_then(|copy| copy.turned(image));
        turned += usize::from(copy.is_some());
        match copy {
            // SAFETY: the memory is the room's own, and long enough.
            Some(copy) => unsafe { copy.put_over(room.0) }.unwrap(),
            // SAFETY: as above.
            None => unsafe { image.map_over(room.0) }.unwrap(),
        }
        assert!(room.bytes()[..bytes.len()] == bytes[..], "{next}");
        assert!(
            room.bytes()[bytes.len()..].iter().all(|byte| *byte == 0x55),
            "behind it nothing has changed"
        );
        numbers.scribble(&mut room.bytes()[..bytes.len()], 40);
        // SAFETY: `map_over` or `put_over` put the copy there, and nothing refers to it.
        match unsafe { KeptCopy::take(image, room.0, u64::MAX) } {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            copy => kept = Some(copy.unwrap()),
        }
    }
    assert!(turned > 10, "{turned}");
}

#[test]
fn what_is_not_alike_is_told_and_takes_nothing() {
    let mut bytes = vec![7; 2 * WHOLE];
    let image = image_of(&bytes);
    assert_eq!((image.own_bytes().unwrap(), image.common_bytes().unwrap()), (0, 2 * WHOLE as u64));
    for page in 0..5 {
        bytes[page * PAGE + 77] = 8;
    }
    assert!(alike(&image, &bytes, 4).is_none());
    let other = alike(&image, &bytes, 5).unwrap();
    assert!(other.shares_with(&image) && other.own_bytes().unwrap() < 1000, "{:?}", other.own_bytes());
    // Where there are zeros nothing is looked at, which would make pages of them.
    let zeros = vec![0; 4 * WHOLE];
    let image = image_of(&[&bytes[..], &zeros].concat());
    let other = alike(&image, &[&bytes[..], &zeros].concat(), 5).unwrap();
    assert_eq!(image.common_bytes().unwrap(), 2 * WHOLE as u64);
    drop(other);
    let image = image_of(&vec![7; 2 * WHOLE]);
    let other = alike(&image, &bytes, 5).unwrap();
    // One that has none in common with it cannot use its copies.
    let stranger = image_of(&bytes);
    assert!(!stranger.shares_with(&image));
    let room = Room::new(2 * WHOLE);
    // SAFETY: the memory is the room's own, and long enough.
    unsafe { image.map_over(room.0) }.unwrap();
    // SAFETY: `map_over` put the copy there.
    match unsafe { KeptCopy::take(&image, room.0, u64::MAX) } {
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        Ok(copy) => assert!(copy.fits(&other) && copy.turned(&stranger).is_none()),
    }
    // Not whole, not all, too much.
    assert!(image.alike(WHOLE + 1, 9).unwrap().is_none());
    assert!(image.alike(WHOLE, 9).unwrap().unwrap().finish().is_err());
    let mut writer = image.alike(WHOLE, 9).unwrap().unwrap();
    assert!(writer.write(&bytes[..WHOLE + 1]).is_err() && writer.write(&bytes[..1]).unwrap());
    assert!(writer.write(&bytes[..1]).is_err(), "what follows begins in the midst of a page");
}
