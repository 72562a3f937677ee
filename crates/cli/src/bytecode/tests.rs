// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use super::*;
use crate::directory::plan;

/// A source with these files, older than any compiled one.
fn source(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(std::process::id()));
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    root
}

/// The plan of a source with what is compiled of it, and where that lies.
fn compiled(root: &Path) -> (Plan, tempfile::TempDir) {
    let plan = plan(root, None).unwrap();
    let modules = modules(&plan);
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("made");
    let python = Python::of(None).unwrap();
    let compiling = compile(&python, &modules, "/layers/0", &folder);
    tokio::runtime::Runtime::new().unwrap().block_on(compiling).unwrap();
    (extended(plan, &modules, &folder, python.cache_tag().unwrap()), cache)
}

fn bytes(plan: &Plan) -> Vec<(OsString, Vec<u8>)> {
    let files = plan.folders.iter().flat_map(|folder| &folder.children);
    let files = files.filter_map(|(name, child)| match child {
        Child::File { path, .. } => Some((name.clone(), fs::read(path).unwrap())),
        Child::Folder(_) | Child::Link(_) => None,
    });
    files.collect()
}

#[test]
fn two_builds_have_the_same_bytes_wherever_they_are_made() {
    let names: Vec<String> = (0..40).map(|n| format!("name_{n}")).collect();
    let many =
        format!("KNOWN = {{{}}}\ndef f(x): return x in {{'a', 'b', 'c'}}\n", names.join(": 1, ") + ": 1")
            .replace("name_", "'name_")
            .replace(": 1", "': 1");
    let files = [("a.py", many.as_str()), ("b/c.py", "def g():\n    return __file__\n"), ("b/text", "x")];
    let (one, other) = (source(&files), source(&files));
    let ((one, _kept), (other, _kept_too)) = (compiled(one.path()), compiled(other.path()));
    assert_eq!(one.folders.len(), 4);
    assert_eq!(bytes(&one), bytes(&other));
    let python = Python::of(None).unwrap();
    let tag = python.cache_tag().unwrap();
    let listed: Vec<Vec<u8>> = one.folders.iter().map(Folder::names).collect();
    assert_eq!(listed[0], b"d __pycache__\nf a.py\nd b\n");
    assert!(listed.contains(&format!("f c.{tag}.pyc\n").into_bytes()), "{listed:?}");
    assert_eq!((one.entries, one.levels), (4 + 4, 3));
    // Not held against its source: bit 0 says by hash, bit 1 that it is compared.
    let all = bytes(&one);
    let (_, module) = all.iter().find(|(name, _)| name == format!("c.{tag}.pyc").as_str()).unwrap();
    assert_eq!(module[4..8], [1, 0, 0, 0]);
    assert!(module.windows(15).any(|part| part == b"/layers/0/b/c.p"), "the place that tracebacks tell");
}

#[test]
fn what_does_not_compile_is_left_as_it_is() {
    let root = source(&[("bad.py", "def f(:\n"), ("good.py", "x = 1\n")]);
    let (plan, _kept) = compiled(root.path());
    let python = Python::of(None).unwrap();
    let tag = python.cache_tag().unwrap();
    assert_eq!(plan.folders[0].names(), b"d __pycache__\nf bad.py\nf good.py\n");
    assert_eq!(plan.folders[1].names(), format!("f good.{tag}.pyc\n").into_bytes());
}

#[test]
fn what_is_compiled_already_stays_as_it_came() {
    let root = source(&[("a.py", "x = 1\n"), ("__pycache__/a.cpython-311.pyc", "kept"), ("b/c.py", "")]);
    let plan = plan(root.path(), None).unwrap();
    let found: Vec<PathBuf> = modules(&plan).into_iter().map(|module| module.relative).collect();
    assert_eq!(found, [Path::new("b/c.py")]);
}
