// SPDX-License-Identifier: Apache-2.0
//! What a mapping shows, and what it refuses.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use super::Mapping;

fn file_of(name: &str, bytes: &[u8]) -> (PathBuf, File) {
    let path = std::env::temp_dir().join(format!("linux-mapping-{}-{name}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    (path, file)
}

#[test]
fn shows_the_range_also_after_the_name_and_descriptor_are_gone() {
    let bytes: Vec<u8> = (0..80_000u32).map(|i| (i % 251) as u8).collect();
    let (path, file) = file_of("range", &bytes);
    for (offset, len) in
        [(0, 80_000), (1, 79_999), (4096, 10), (5000, 15_000), (70_000, 9), (65_536, 100), (80_000, 0)]
    {
        let mapping = Mapping::map(&file, offset, len).unwrap();
        assert_eq!(&*mapping, &bytes[offset as usize..][..len], "{offset} {len}");
    }
    let mapping = Mapping::map(&file, 0, 80_000).unwrap();
    drop(file);
    fs::remove_file(path).unwrap();
    let from_thread = std::thread::spawn(move || mapping.to_vec()).join().unwrap();
    assert_eq!(from_thread, bytes);
}

#[test]
fn refuses_what_the_file_does_not_have() {
    let (path, file) = file_of("short", &[7; 100]);
    for (offset, len) in [(0, 101), (100, 1), (u64::MAX, 1), (1, usize::MAX)] {
        let error = Mapping::map(&file, offset, len).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput), "{error}");
    }
    fs::remove_file(path).unwrap();
}
