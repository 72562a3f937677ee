// SPDX-License-Identifier: Apache-2.0
//! Compiling once: across threads, across restarts, and whatever happens to
//! the files in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use objects::{FailureCode, Handle, Limits};

use super::*;
use crate::wasm::{Class, Origin};
use crate::{Error, Sandbox};

fn cached(dir: &Path) -> World {
    World::with_options(Options { workers: 2, cache_dir: Some(dir.to_owned()), ..Options::default() })
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Runs the codelet in a new world over `dir`; where did the code come from?
fn origin(dir: &Path, codelet: &[u8]) -> Origin {
    let mut world = cached(dir);
    assert_eq!(world.number(codelet, &[]), 5);
    world.codelets.compilation(Handle::blob(codelet)).unwrap().origin
}

fn five() -> Vec<u8> {
    with_memory_and("(global $g (mut i32) (i32.const 5))", &number("(global.get $g)"))
}

#[test]
fn compiled_code_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("made").join("here");
    assert_eq!(origin(dir, &five()), Origin::Compiled);
    assert_eq!(origin(dir, &five()), Origin::Disk);
    assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    let files = files(dir);
    assert_eq!(files.len(), 1);
    assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_record_is_the_same_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = (0..2).map(|_| {
        let world = cached(dir.path());
        let procedure = world.store.keep_blob(&five());
        world.codelets.prepare(procedure, true).unwrap()
    });
    let (compiled, loaded) = (records.next().unwrap(), records.next().unwrap());
    assert_eq!(
        (compiled.class, compiled.counted, compiled.code_bytes),
        (Class::Restored, true, loaded.code_bytes)
    );
    assert_eq!((loaded.class, loaded.counted, loaded.origin), (Class::Restored, true, Origin::Disk));
    assert!(compiled.code_bytes > 0 && compiled.nanos > 0);
}

#[test]
fn damaged_files_are_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    origin(dir, &five());
    let file = files(dir).pop().unwrap();
    let intact = fs::read(&file).unwrap();
    let mut damages: Vec<Vec<u8>> =
        [0, 1, 39, 64, intact.len() / 2, intact.len() - 1].map(|len| intact[..len].to_vec()).into();
    for at in [0, 8, 40, 47, 64, 200, intact.len() - 1] {
        let mut flipped = intact.clone();
        flipped[at] ^= 1;
        damages.push(flipped);
    }
    damages.push([&intact[..], b"more"].concat());
    for damage in damages {
        fs::write(&file, &damage).unwrap();
        assert_eq!(origin(dir, &five()), Origin::Compiled);
        assert_eq!(fs::read(&file).unwrap().len(), intact.len(), "a good file is in its place again");
    }
}

#[test]
fn a_good_file_of_another_module_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    origin(dir.path(), &five());
    let other = plain(&number("(i32.const 5)"));
    assert_eq!(origin(dir.path(), &other), Origin::Compiled);
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn the_directory_is_bounded_and_swept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tmp-1-1"), "left by a crash").unwrap();
    let options =
        Options { cache_dir: Some(dir.path().to_owned()), cache_bytes_max: 100_000, ..Options::default() };
    let mut world = World::with_options(options);
    assert_eq!(files(dir.path()).len(), 0);
    for n in 0..20 {
        world.ok(&plain(&number(&format!("(i32.const {n})"))), &[]);
    }
    let total: u64 = files(dir.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(total > 0 && total <= 100_000, "{total}");
}

#[test]
fn a_directory_that_others_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let options = Options { cache_dir: Some(dir.path().to_owned()), ..Options::default() };
    let error = Codelets::new(options, Arc::new(new_store())).err().unwrap();
    assert!(matches!(error, Error::CacheDir { .. }), "{error}");
}

#[test]
fn threads_that_need_a_module_at_once_compile_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = cached(dir.path());
    let procedure = world.store.keep_blob(&five());
    let records = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| world.codelets.prepare(procedure, false).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    // Had two compiled, their times would differ.
    assert!(records.iter().all(|record| *record == records[0]), "{records:?}");
}

#[test]
fn loaded_modules_and_instances_are_bounded() {
    let options = Options { workers: 1, modules_max: 3, instances_max: 2, ..Options::default() };
    let mut world = World::with_options(options);
    let codelets: Vec<_> = (0..8).map(|n| plain(&number(&format!("(i32.const {n})")))).collect();
    for _ in 0..2 {
        for (n, codelet) in (0..).zip(&codelets) {
            assert_eq!(world.number(codelet, &[]), word(n));
        }
    }
    let loaded =
        codelets.iter().filter(|codelet| world.codelets.compilation(Handle::blob(codelet)).is_some());
    assert_eq!(loaded.count(), 3);
}

#[test]
fn a_refused_module_is_refused_again_without_a_sandbox() {
    let world = World::new();
    let procedure = world.store.keep_blob(&[0; 100]);
    for _ in 0..2 {
        let spec = crate::Spec { procedure, limits: Limits::default() };
        let error = world.codelets.create(&[spec]).pop().unwrap().unwrap_err();
        let Error::Procedure { fault, .. } = error else { panic!("{error}") };
        assert_eq!(fault.code, FailureCode::BadProcedure);
    }
}
