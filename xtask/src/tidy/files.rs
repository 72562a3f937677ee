// SPDX-License-Identifier: Apache-2.0
//! Rules for files as such: licence line, length, what does not belong here.

use super::{File, Finding};

/// Lines of a source, at most.
const LINES_MAX: usize = 800;
/// Bytes of any file, at most.
const BYTES_MAX: usize = 1 << 20;
/// How every source file begins, after what opens a comment.
const SPDX: &str = concat!("SPDX-License", "-Identifier: Apache-2.0");
/// Languages in which we write.
const SOURCES: &[&str] =
    &["rs", "c", "h", "wat", "py", "js", "mjs", "ts", "go", "java", "sh", "proto", "wit"];
/// What editors and merges leave behind.
const STRAY: &[&str] = &["orig", "rej", "bak", "swp", "swo", "tmp", "pyc", "o", "so", "wasm", "log"];
/// Where bytes that are not text are at home.
const BINARY_HOMES: &[&str] = &["seeds", "golden"];
/// Pictures and fonts.
const BINARY: &[&str] = &["png", "ico", "woff2", "jpg"];
/// File names that say nothing of what a thing is in its field.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "manager", "helper", "helpers", "misc"];

/// `is_assembled`: a binary whose source lies beside it.
pub(super) fn check(file: &File, is_assembled: bool, findings: &mut Vec<Finding>) {
    let mut find = |what: String| findings.push(Finding::new(&file.path, 0, what));
    if file.bytes.len() > BYTES_MAX {
        find(format!("{} bytes; at most {BYTES_MAX}", file.bytes.len()));
    }
    let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if STRAY.contains(&file.extension()) && !is_assembled || name.ends_with('~') || name == ".DS_Store" {
        find("a stray file".to_owned());
    }
    let stem = file.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        find(format!("a file called `{stem}`; name what it is"));
    }
    let may_be_binary = is_assembled
        || BINARY.contains(&file.extension())
        || file.path.iter().any(|part| BINARY_HOMES.iter().any(|home| part == *home));
    if !may_be_binary && (file.text().is_none() || file.bytes.contains(&0)) {
        find("not a text".to_owned());
    }
    // Manifests of functions are what users write; theirs say nothing of ours.
    let is_settings = file.extension() == "toml" && name != "sinew.toml";
    let is_source = SOURCES.contains(&file.extension()) || is_settings || name == "Makefile";
    if let Some(text) = file.text().filter(|_| is_source) {
        check_source(file, text, findings);
    }
}

fn check_source(file: &File, text: &str, findings: &mut Vec<Finding>) {
    // A first line may say which program runs the file.
    if !text.lines().take(2).any(|line| line.contains(SPDX)) {
        findings.push(Finding::new(&file.path, 1, format!("does not begin with `{SPDX}`")));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::new(&file.path, 0, format!("{lines} lines; at most {LINES_MAX}")));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::new(&file.path, lines, "does not end with a line feed"));
    }
    for (index, line) in text.lines().enumerate() {
        let mark = ["TO\u{44}O", "FIX\u{4d}E", "XX\u{58}"].into_iter().find(|mark| has_word(line, mark));
        if let Some(mark) = mark.filter(|_| !names_issue(line)) {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("{mark} without the issue's number (#12)"),
            ));
        }
    }
}

/// Whether the word stands alone, not within a longer name.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_part(before) && !is_part(bytes.get(at + word.len()))
    })
}

fn names_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
}
