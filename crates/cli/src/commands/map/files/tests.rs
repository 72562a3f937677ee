// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn expand(patterns: &[OsString]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Files::default();
    files.expand(patterns)?;
    Ok(files.into_list())
}

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.c", "b.h", "x/c.c", "x/y/d.c", "x/y/z/e.c", ".git/f.c", "x/.hidden.c", "x/[1].c", "u/g.c"]
    {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    symlink("../x", folder.path().join("u/link")).unwrap();
    symlink("../a.c", folder.path().join("u/alias.c")).unwrap();
    symlink("nowhere", folder.path().join("u/broken.c")).unwrap();
    folder
}

/// What patterns mean below a folder, as paths relative to it.
fn found(folder: &Path, patterns: &[&str]) -> Vec<String> {
    let patterns: Vec<OsString> = patterns.iter().map(|pattern| folder.join(pattern).into()).collect();
    let files = expand(&patterns).unwrap();
    files.iter().map(|file| file.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn patterns_are_those_of_shells() {
    let folder = tree();
    let folder = &folder.path().canonicalize().unwrap();
    let all = ["a.c", "u/alias.c", "u/g.c", "x/[1].c", "x/c.c", "x/y/d.c", "x/y/z/e.c"];
    for (pattern, expected) in [
        ("*.c", &["a.c"][..]),
        ("?.[a-d]", &["a.c"]),
        ("**/*.c", &all),
        ("**/**/*.c", &all),
        ("x/**", &["x/[1].c", "x/c.c", "x/y/d.c", "x/y/z/e.c"]),
        ("x/**/e.c", &["x/y/z/e.c"]),
        ("x/*/d.c", &["x/y/d.c"]),
        ("**/z/*", &["x/y/z/e.c"]),
        ("x/.*.c", &["x/.hidden.c"]),
        (".git/*", &[".git/f.c"]),
        ("u/*/c.c", &["u/link/c.c"]),
        ("x/[1].c", &["x/[1].c"]),
        ("./x/../a.c", &["a.c"]),
    ] {
        assert_eq!(found(folder, &[pattern]), expected, "{pattern}");
    }
    // Each once, and in the order in which they were named.
    assert_eq!(found(folder, &["x/c.c", "*.h", "x/*.c"]), ["x/c.c", "b.h", "x/[1].c"]);
}

#[test]
fn what_is_no_file_is_told() {
    let folder = tree();
    let code = |pattern: &str| {
        let error = expand(&[folder.path().join(pattern).into()]).unwrap_err();
        error.downcast_ref::<Stop>().unwrap().code
    };
    for nothing in ["*.rs", "none/*.c", "none.c", "x/*/*/*/*.c", "u/broken.c"] {
        assert_eq!(code(nothing), Code::NotFound, "{nothing}");
    }
    for wrong in ["x", "**/../a.c"] {
        assert_eq!(code(wrong), Code::Usage, "{wrong}");
    }
    fs::write(folder.path().join("two\nlines"), "").unwrap();
    assert_eq!(code("two*"), Code::Failed);
}

#[test]
fn lists_have_a_path_in_each_line() {
    let folder = tree();
    let folder = &folder.path().canonicalize().unwrap();
    let mut files = Files::default();
    files.expand(&[folder.join("*.c").into()]).unwrap();
    let line = |name: &str| format!("{}\n", folder.join(name).display());
    let list = [line("x/./[1].c"), line("a.c"), "\n".to_owned(), line("b.h")].concat();
    files.listed(list.trim_end().as_bytes()).unwrap();
    let expected = ["a.c", "x/[1].c", "b.h"].map(|name| folder.join(name));
    assert_eq!(files.into_list(), expected);
    for (wrong, code) in [("*.c", Code::NotFound), ("x", Code::Usage)] {
        let error = Files::default().listed(line(wrong).as_bytes()).unwrap_err();
        assert_eq!(error.downcast_ref::<Stop>().unwrap().code, code);
    }
}

#[test]
fn what_is_excluded_is_not_meant() {
    let folder = tree();
    let folder = &folder.path().canonicalize().unwrap();
    let pattern = |text: &str| OsString::from(folder.join(text));
    let mut files = Files::default();
    files.expand(&[pattern("**/*.c")]).unwrap();
    files.exclude(&[pattern("x/**/[de].c"), pattern("./a.c"), pattern("none/*"), pattern("none.c")]).unwrap();
    let expected = ["u/alias.c", "u/g.c", "x/[1].c", "x/c.c"].map(|name| folder.join(name));
    assert_eq!(files.into_list(), expected);
}

#[test]
fn names_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let name = OsString::from_vec(b"caf\xe9 1.txt".to_vec());
    fs::write(folder.path().join(&name), "").unwrap();
    for pattern in [&b"caf? *.txt"[..], b"caf\xe9 1.txt", b"*"] {
        let pattern = folder.path().join(OsStr::from_bytes(pattern));
        assert_eq!(expand(&[pattern.into()]).unwrap(), [folder.path().join(&name)]);
    }
}

#[test]
fn paths_say_nothing_twice_and_lead_nowhere_above() {
    let path = |text: &str| normal(Path::new(text)).unwrap();
    assert_eq!(path("./a//b/./c/../d.c"), Path::new("a/b/d.c"));
    assert_eq!(path("/x/../../y"), Path::new("/y"));
    let above = std::env::current_dir().unwrap().parent().unwrap().join("x/y.c");
    assert_eq!(path("../x/y.c"), above);
    assert_eq!(path("a/../../x/y.c"), above);
}

/// Whether names match parts, by trying everything.
fn matches(parts: &[Part], names: &[&str]) -> bool {
    match (parts, names) {
        ([], names) => names.is_empty(),
        ([Part::Any, rest @ ..], []) => matches(rest, names),
        ([Part::Any, rest @ ..], [_, others @ ..]) => matches(rest, names) || matches(parts, others),
        ([part, rest @ ..], [name, others @ ..]) => part.matches(OsStr::new(name)) && matches(rest, others),
        (_, []) => false,
    }
}

proptest! {
    /// Step by step the same is found as by trying everything.
    #[test]
    fn steps_find_what_trying_finds(
        parts in prop::collection::vec(prop::sample::select(vec!["**", "*", "a", "a*", "?b"]), 1..6),
        names in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "aab"]), 0..6),
    ) {
        let parts: Vec<Part> = parts.iter().map(|part| Part::new(part.as_bytes())).collect();
        let mut at = vec![false; parts.len() + 1];
        at[0] = true;
        at = closed(&parts, at);
        for name in &names {
            at = step(&parts, &at, OsStr::new(name));
        }
        prop_assert_eq!(at[parts.len()], matches(&parts, &names));
    }
}
