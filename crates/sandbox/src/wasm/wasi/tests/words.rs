// SPDX-License-Identifier: Apache-2.0
//! What applications say to programs.

use objects::FailureCode;
use proptest::prelude::*;

use super::*;
use crate::wasm::table::Budget;
use crate::wasm::wasi::clock;
use crate::wasm::wasi::errno::Stop;
use crate::wasm::wasi::means::Means;
use crate::wasm::wasi::options::{Entry, Given, Mount, Options as Words};

fn read(world: &World, words: &[Handle], limit: u64) -> Result<Words, Fault> {
    let mut budget = Budget::new(limit, 0);
    let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
    let tree: TreeBuilder = [Handle::u64(0); 2].into_iter().chain(words.iter().copied()).collect();
    Words::read(tree.view(), &mut means).map_err(|stop| match stop {
        Stop::Ended(fault) => fault,
        Stop::Refused(errno) => panic!("{errno:?}"),
    })
}

#[test]
fn words_are_read_with_their_values() {
    let world = World::new();
    let tree = world.directory(&[("a", "1")]);
    let long = world.blob(&[b'x'; 100]);
    let mut words = Vec::new();
    for (word, value) in [
        ("arg", long),
        ("env", world.blob(b"A=1")),
        ("env", world.blob(b"AB=2")),
        ("env", world.blob(b"A=3")),
    ] {
        words.extend([world.blob(word.as_bytes()), value]);
    }
    words.extend([world.blob(b"dir"), world.blob(b"/x"), tree]);
    words.extend([world.blob(b"lib"), world.blob(b"/y"), tree.lowered().unwrap()]);
    words.extend([
        world.blob(b"stdin"),
        long,
        world.blob(b"time"),
        Handle::u64(7),
        world.blob(b"seed"),
        world.blob(b"s"),
    ]);
    let run = world.blob(b"run");
    words.extend([world.blob(b"entry"), run, world.blob(b"snapshot")]);
    words.extend([world.blob(b"call"), run, world.blob(b"make"), long]);
    words.extend([world.blob(b"from"), tree]);
    let read = read(&world, &words, 1 << 20).unwrap();
    let expected = Words {
        arguments: vec![[b'x'; 100].into()],
        // The later value, in the place of the former.
        environment: vec![b"A=3"[..].into(), b"AB=2"[..].into()],
        mounts: vec![
            Mount { path: b"/x"[..].into(), tree, is_read_only: false },
            Mount { path: b"/y"[..].into(), tree: tree.lowered().unwrap(), is_read_only: true },
        ],
        stdin: long,
        seed: b"s"[..].into(),
        time: 7,
        entries: vec![
            Entry { name: b"run"[..].into(), given: None },
            Entry {
                name: b"run"[..].into(),
                given: Some(Given { allocate: b"make"[..].into(), bytes: long }),
            },
        ],
        from: Some(tree),
        is_captured: true,
    };
    assert_eq!(read, expected);
    let nothing = super::words::read(&world, &[], 0).unwrap();
    assert_eq!((nothing.time, nothing.stdin.size()), (clock::BEGIN, 0));
}

#[test]
fn what_means_nothing_is_a_failure_with_a_reason() {
    let world = World::new();
    let word = |text: &str| world.blob(text.as_bytes());
    let tree = world.directory(&[]);
    let cases: [(&[Handle], &str); 17] = [
        (&[word("argument"), word("x")], "there is none of arg"),
        (&[tree], "there is none of arg"),
        (&[word("arg")], "\"arg\" is the last entry"),
        (&[word("arg"), tree], "an argument is no blob"),
        (&[word("arg"), word("a\0b")], "zero byte"),
        (&[word("env"), word("A")], "not like NAME=VALUE"),
        (&[word("env"), word("=A")], "not like NAME=VALUE"),
        (&[word("dir"), word("/")], "\"dir\" is the last entry"),
        (&[word("dir"), word("/"), word("x")], "a directory is no tree"),
        (&[word("dir"), word(""), tree], "the same path, or one has none"),
        (&[word("dir"), word("/"), tree, word("lib"), word("/"), tree], "the same path"),
        (&[word("time"), word("more than eight")], "time is no number"),
        (&[word("from"), word("x")], "a snapshot is no tree"),
        (&[word("entry"), tree], "an entry is no blob"),
        (&[word("call"), word("f"), word("g")], "\"call\" is the last entry"),
        (&[word("call"), word("f"), word("g"), tree], "what an entry is given is no blob"),
        (&[word("stdin"), tree.application().unwrap()], "stdin is no blob"),
    ];
    for (words, text) in cases {
        let fault = read(&world, words, 1 << 20).unwrap_err();
        assert_eq!(fault.code, FailureCode::BadThunk, "{fault}");
        assert!(fault.detail.contains(text), "{text:?} is not in {fault}");
    }
    let many: Vec<Handle> = (0..4097).flat_map(|n| [word("env"), word(&format!("V{n}="))]).collect();
    assert!(read(&world, &many, 1 << 20).unwrap_err().detail.contains("more than 4096 variables"));
    assert_eq!(read(&world, &many[2..], 1 << 20).unwrap().environment.len(), 4096);
    let many: Vec<Handle> = (0..17).flat_map(|_| [word("entry"), word("run")]).collect();
    assert!(read(&world, &many, 1 << 20).unwrap_err().detail.contains("more than 16 entries"));
    let fault = read(&world, &[word("arg"), world.blob(&[b'x'; 2000])], 1000).unwrap_err();
    assert_eq!(fault.code, FailureCode::Memory, "{fault}");
    let absent = Handle::blob(&[9; 99]);
    assert_eq!(read(&world, &[word("arg"), absent], 1000).unwrap_err().code, FailureCode::MissingData);
}

proptest! {
    #[test]
    fn no_words_do_harm(entries in prop::collection::vec((0..13usize, prop::collection::vec(any::<u8>(), 0..40)), 0..12)) {
        let world = World::new();
        let known = ["arg", "env", "dir", "lib", "stdin", "seed", "time", "entry", "from", "snapshot", "call"];
        let handles: Vec<Handle> = entries
            .iter()
            .map(|(which, bytes)| match known.get(*which) {
                Some(word) => world.blob(word.as_bytes()),
                None if *which == 11 => world.tree([world.blob(bytes)]),
                None => world.blob(bytes),
            })
            .collect();
        _ = read(&world, &handles, 4096);
    }

    /// Trees that are no directories end the program that looks into them, and do nothing else.
    #[test]
    fn no_directory_does_harm(list in "([fxdlq] ?[ab./]{0,2}\n?){0,4}", kinds in prop::collection::vec(0..4u8, 0..5)) {
        let world = World::new();
        let entries = kinds.iter().map(|kind| match kind {
            0 => world.blob(b"text"),
            1 => world.directory(&[]),
            2 => world.directory(&[]).application().unwrap(),
            _ => world.blob(b""),
        });
        let tree = world.tree([world.blob(list.as_bytes())].into_iter().chain(entries));
        let mut budget = Budget::new(1 << 20, 0);
        let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
        let mut files = crate::wasm::wasi::files::Files::default();
        let root = files.root(tree, false, &mut means).unwrap();
        match files.list(root, &mut means) {
            Ok(lines) => prop_assert_eq!(lines.len(), kinds.len()),
            Err(Stop::Ended(fault)) => prop_assert_eq!(fault.code, FailureCode::BadThunk),
            Err(Stop::Refused(errno)) => prop_assert!(false, "{errno:?}"),
        }
        prop_assert_eq!(files.seal(root, &mut means), tree);
    }
}
