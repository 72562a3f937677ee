// SPDX-License-Identifier: Apache-2.0
//! The corpus from a folder of files, and its stamp.

#![allow(clippy::unwrap_used)]

use super::*;

/// A folder that is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sinew-corpus-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("deep")).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        layout::remove(&self.0).unwrap();
    }
}

#[test]
fn texts_are_joined_in_order_and_lines_stay_apart() {
    let folder = Folder::new("join");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.0.join(name), bytes).unwrap();
    write("b", b"no line feed");
    write("a", b"first\n");
    write("deep/c", b"last\n");
    write("picture", b"\x89PNG\0");
    write("index.js", &[b'x'; LINE_BYTES_MAX + 1]);
    let mut gzip = process::command("gzip");
    write("deep/d", b"packed\n");
    process::run(gzip.arg(folder.0.join("deep/d"))).unwrap();
    let target = folder.0.with_extension("txt");
    let bytes = concatenate(&folder.0, &target).unwrap();
    let text = fs::read_to_string(&target).unwrap();
    fs::remove_file(&target).unwrap();
    assert_eq!(text, "first\nno line feed\nlast\npacked\n");
    assert_eq!(bytes, text.len() as u64);
}

#[test]
fn only_a_whole_text_counts_as_made() {
    let folder = Folder::new("stamp");
    let (text, stamp) = (folder.0.join("text"), folder.0.join("stamp"));
    fs::write(&text, "12345").unwrap();
    assert!(!is_made(&text, &stamp));
    fs::write(&stamp, "some.deb: 5 bytes\n").unwrap();
    assert!(is_made(&text, &stamp));
    fs::write(&text, "1234").unwrap();
    assert!(!is_made(&text, &stamp));
}
