// SPDX-License-Identifier: Apache-2.0
//! Each call with arguments that are wrong, and the error number that preview 1 has for it.

use super::*;
use crate::wasm::wasi::errno::Errno;

/// Names in memory, from 100 on: file, directory, link, loop, missing, and paths.
const NAMES: [&str; 12] = ["f", "d", "l", "loop", "none", "f/", "d/x", "../f", "/f", "f/x", "d/.", "a\\00b"];

/// Address and length of a name, as WAT.
fn name(text: &str) -> String {
    let index = NAMES.iter().position(|name| *name == text).unwrap();
    let before: usize = NAMES[..index].iter().map(|name| len(name)).sum();
    format!("(i32.const {}) (i32.const {})", 100 + before, len(text))
}

fn len(name: &str) -> usize {
    if name.contains('\\') { name.len() - 2 } else { name.len() }
}

/// What a call returns, in a directory with a file, a directory, and two links.
fn errno(world: &mut World, before: &str, call: &str) -> u64 {
    let names = format!("(data (i32.const 100) \"{}\")", NAMES.concat());
    let module = program_with(&names, &format!("{before} (call $proc_exit {call})"));
    let inner = world.directory(&[("x", "inner")]);
    let lines = world.blob(b"d d\nf f\nl l\nl loop\n");
    let root = world.tree([lines, inner, world.blob(b"text"), world.blob(b"d/x"), world.blob(b"loop")]);
    world.status(&module, root)
}

/// Opens a path as descriptor 4.
fn open(path: &str, how: i32, rights: u64) -> String {
    format!(
        "(call $path_open (i32.const 3) (i32.const 1) {} (i32.const {how}) (i64.const {rights}) (i64.const {rights})
           (i32.const 0) (i32.const 16))",
        name(path)
    )
}

const ALL: u64 = (1 << 29) - 1;

fn opened(path: &str) -> String {
    format!("(if {} (then unreachable))", open(path, 0, ALL & !(1 << 6)))
}

fn opened_for_writing(path: &str) -> String {
    format!("(if {} (then unreachable))", open(path, 0, ALL))
}

fn check(cases: &[(String, String, Option<Errno>)]) {
    let mut world = World::new();
    for (before, call, expected) in cases {
        let expected = expected.map_or(0, |errno| errno as u64);
        assert_eq!(errno(&mut world, before, call), expected, "{before} {call}");
    }
}

#[test]
fn paths_that_are_wrong_are_told_so() {
    let case = |call: &str, path: &str, errno| {
        (String::new(), format!("(call ${call} (i32.const 3) {})", name(path)), errno)
    };
    let stat = |path: &str, follow: u8, errno| {
        let call = format!(
            "(call $path_filestat_get (i32.const 3) (i32.const {follow}) {} (i32.const 300))",
            name(path)
        );
        (String::new(), call, errno)
    };
    check(&[
        stat("f", 0, None),
        stat("d", 0, None),
        stat("l", 1, None),
        stat("loop", 0, None),
        stat("loop", 1, Some(Errno::Loop)),
        stat("none", 1, Some(Errno::NoEntry)),
        stat("f/", 1, Some(Errno::NotDirectory)),
        stat("f/x", 1, Some(Errno::NotDirectory)),
        stat("../f", 1, Some(Errno::NotPermitted)),
        stat("/f", 1, Some(Errno::NotPermitted)),
        stat("a\\00b", 1, Some(Errno::Invalid)),
        case("path_create_directory", "d", Some(Errno::Exists)),
        case("path_create_directory", "f/x", Some(Errno::NotDirectory)),
        case("path_create_directory", "none", None),
        case("path_remove_directory", "d", Some(Errno::NotEmpty)),
        case("path_remove_directory", "f", Some(Errno::NotDirectory)),
        case("path_remove_directory", "d/.", Some(Errno::Invalid)),
        case("path_unlink_file", "d", Some(Errno::IsDirectory)),
        case("path_unlink_file", "f/", Some(Errno::NotDirectory)),
        case("path_unlink_file", "none", Some(Errno::NoEntry)),
        case("path_unlink_file", "loop", None),
    ]);
}

#[test]
fn two_paths_and_ways_of_opening_that_are_wrong_are_told_so() {
    let opens = |path: &str, how, errno| (String::new(), open(path, how, 2), errno);
    let twice = |call: &str, from: &str, to: &str, errno| {
        let flags = if call == "path_link" { "(i32.const 0)" } else { "" };
        let text = format!("(call ${call} (i32.const 3) {flags} {} (i32.const 3) {})", name(from), name(to));
        (String::new(), text, errno)
    };
    check(&[
        opens("f", 0, None),
        opens("f", 2, Some(Errno::NotDirectory)),
        opens("f", 1 | 4, Some(Errno::Exists)),
        opens("d", 1, Some(Errno::IsDirectory)),
        opens("d", 1 | 2, Some(Errno::Invalid)),
        opens("d", 16, Some(Errno::Invalid)),
        opens("loop", 0, Some(Errno::Loop)),
        opens("none", 0, Some(Errno::NoEntry)),
        (String::new(), open("d", 0, 1 << 6), Some(Errno::IsDirectory)),
        (String::new(), open("d", 2, 1 << 6), Some(Errno::IsDirectory)),
        twice("path_rename", "d", "d/x", Some(Errno::Invalid)),
        twice("path_rename", "f", "d", Some(Errno::IsDirectory)),
        twice("path_rename", "d", "f", Some(Errno::NotDirectory)),
        twice("path_rename", "none", "f", Some(Errno::NoEntry)),
        twice("path_rename", "f", "d/x", None),
        twice("path_link", "d", "none", Some(Errno::NotPermitted)),
        twice("path_link", "f", "d/x", Some(Errno::Exists)),
        twice("path_link", "f", "none", None),
        (
            String::new(),
            format!("(call $path_symlink {} (i32.const 3) {})", name("/f"), name("none")),
            Some(Errno::NotPermitted),
        ),
        (
            String::new(),
            format!(
                "(call $path_readlink (i32.const 3) {} (i32.const 300) (i32.const 9) (i32.const 16))",
                name("f")
            ),
            Some(Errno::Invalid),
        ),
    ]);
}

#[test]
fn descriptors_that_are_wrong_are_told_so() {
    let one = |call: &str, fd: i32, rest: &str, errno| {
        (String::new(), format!("(call ${call} (i32.const {fd}) {rest})"), errno)
    };
    let bad = Some(Errno::BadDescriptor);
    check(&[
        one("fd_close", 3, "", None),
        one("fd_close", 4, "", bad),
        one("fd_close", -1, "", bad),
        one("fd_fdstat_get", 9, "(i32.const 300)", bad),
        one("fd_prestat_get", 3, "(i32.const 300)", None),
        one("fd_prestat_get", 0, "(i32.const 300)", bad),
        one("fd_prestat_get", 4, "(i32.const 300)", bad),
        one("fd_prestat_dir_name", 3, "(i32.const 300) (i32.const 0)", Some(Errno::NameTooLong)),
        one("fd_seek", 1, "(i64.const 0) (i32.const 0) (i32.const 16)", Some(Errno::NoSeek)),
        one("fd_seek", 3, "(i64.const 0) (i32.const 0) (i32.const 16)", bad),
        one("fd_read", 1, "(i32.const 0) (i32.const 0) (i32.const 16)", Some(Errno::NotCapable)),
        one("fd_read", 3, "(i32.const 0) (i32.const 0) (i32.const 16)", bad),
        one("fd_write", 0, "(i32.const 0) (i32.const 0) (i32.const 16)", bad),
        one("fd_renumber", 3, "(i32.const 9)", bad),
        one("fd_renumber", 9, "(i32.const 3)", bad),
        one("fd_renumber", 3, "(i32.const 1)", None),
        one(
            "fd_readdir",
            1,
            "(i32.const 300) (i32.const 9) (i64.const 0) (i32.const 16)",
            Some(Errno::NotDirectory),
        ),
        one("sock_shutdown", 1, "(i32.const 0)", Some(Errno::NotSocket)),
        one("sock_shutdown", 7, "(i32.const 0)", bad),
    ]);
}

#[test]
fn what_files_do_not_take_is_told() {
    let bad = Some(Errno::BadDescriptor);
    let file = |call: &str, errno| (opened("f"), call.to_owned(), errno);
    let directory = |call: &str, errno| (opened("d"), call.to_owned(), errno);
    check(&[
        file(
            "(call $fd_seek (i32.const 4) (i64.const -1) (i32.const 0) (i32.const 16))",
            Some(Errno::Invalid),
        ),
        file("(call $fd_seek (i32.const 4) (i64.const -4) (i32.const 2) (i32.const 16))", None),
        file(
            "(call $fd_seek (i32.const 4) (i64.const 0) (i32.const 3) (i32.const 16))",
            Some(Errno::Invalid),
        ),
        file(
            "(call $fd_advise (i32.const 4) (i64.const 0) (i64.const 0) (i32.const 6))",
            Some(Errno::Invalid),
        ),
        file(
            "(call $fd_write (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 16))",
            Some(Errno::NotCapable),
        ),
        file("(call $fd_fdstat_set_rights (i32.const 4) (i64.const 2) (i64.const 0))", None),
        file(
            "(call $fd_fdstat_set_rights (i32.const 4) (i64.const 64) (i64.const 0))",
            Some(Errno::NotCapable),
        ),
        file("(call $fd_fdstat_set_flags (i32.const 4) (i32.const 2))", Some(Errno::Invalid)),
        file(
            "(call $fd_filestat_set_times (i32.const 4) (i64.const 1) (i64.const 1) (i32.const 3))",
            Some(Errno::Invalid),
        ),
        file(
            "(call $path_create_directory (i32.const 4) (i32.const 100) (i32.const 1))",
            Some(Errno::NotDirectory),
        ),
        file(
            "(call $fd_readdir (i32.const 4) (i32.const 300) (i32.const 9) (i64.const 0) (i32.const 16))",
            Some(Errno::NotDirectory),
        ),
        directory("(call $fd_filestat_set_size (i32.const 4) (i64.const 1))", bad),
        (
            opened_for_writing("f"),
            "(call $fd_allocate (i32.const 4) (i64.const 0) (i64.const 0))".to_owned(),
            Some(Errno::Invalid),
        ),
        (
            opened_for_writing("f"),
            "(call $fd_allocate (i32.const 4) (i64.const 4) (i64.const 96))".to_owned(),
            None,
        ),
        (
            opened_for_writing("f"),
            "(call $fd_filestat_set_size (i32.const 4) (i64.const -1))".to_owned(),
            Some(Errno::FileTooBig),
        ),
        (
            String::new(),
            "(call $clock_time_get (i32.const 4) (i64.const 0) (i32.const 16))".to_owned(),
            Some(Errno::Invalid),
        ),
        (
            String::new(),
            "(call $poll_oneoff (i32.const 0) (i32.const 300) (i32.const 0) (i32.const 16))".to_owned(),
            Some(Errno::Invalid),
        ),
    ]);
}

#[test]
fn what_is_read_only_is_not_changed() {
    let mut world = World::new();
    let directory = world.directory(&[("d/x", "1"), ("f", "2")]);
    let names = format!("(data (i32.const 100) \"{}\")", NAMES.concat());
    let calls = [
        open("f", 0, 1 << 6),
        open("none", 1, 2),
        open("f", 8, 2),
        format!("(call $path_unlink_file (i32.const 3) {})", name("f")),
        format!("(call $path_create_directory (i32.const 3) {})", name("none")),
        format!("(call $path_rename (i32.const 3) {} (i32.const 3) {})", name("f"), name("none")),
        format!("(call $path_link (i32.const 3) (i32.const 0) {} (i32.const 3) {})", name("f"), name("none")),
        format!("(call $path_symlink {} (i32.const 3) {})", name("f"), name("none")),
        format!(
            "(call $path_filestat_set_times (i32.const 3) (i32.const 0) {} (i64.const 0) (i64.const 0) (i32.const 1))",
            name("d/x")
        ),
    ];
    for call in calls {
        let module = program_with(&names, &format!("(call $proc_exit {call})"));
        let words = [world.blob(b"lib"), world.blob(b"/"), directory];
        let ended = world.run(&module, &words).unwrap();
        assert_eq!(ended.status, Errno::ReadOnly as u64, "{call}");
    }
}
