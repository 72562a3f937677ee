// SPDX-License-Identifier: Apache-2.0
//! An application of a program, from a stranger: its words and their values, directories, the
//! description of a snapshot.
//!
//! An input is a list of entries, put together from what applications are made of, so that sense is met by
//! chance. Nothing may panic. What is accepted means the same when it is said again in other
//! words, leaves directories that nobody changed as they were, and has no second way to describe a
//! snapshot; what is refused is refused for one reason, always the same.

use objects::{FailureCode, Handle, Limits, TreeBuilder};
use sandbox::wasm::{Rehearsal, rehearse};
use store::{Options, Store};

/// Words by their number; what comes after them makes a value.
const WORDS: [&[u8]; 11] =
    [b"arg", b"env", b"dir", b"lib", b"stdin", b"seed", b"time", b"entry", b"call", b"from", b"snapshot"];
/// Values by their number, from behind the words on.
const VALUES: u8 = 8;
/// Entries at most, so that no input takes long.
const ENTRIES_MAX: usize = 400;
/// What a program may use: some thousands of files.
const LIMITS: Limits = Limits { memory_bytes: 1 << 20, fuel: 0, output_size_hint: 0, fan_out_hint: 0 };

/// One input.
pub fn run(input: &[u8]) {
    accepts(input);
}

/// Whether it is an application of a program.
pub fn accepts(input: &[u8]) -> bool {
    let options = Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    let store = Store::open(options).expect("a store without a disk opens");
    let module = store.keep_blob(b"a module, of which nothing is read");
    let words = composed(input, module, &store);
    let told = told(&words, module, &store);
    match &told {
        Err(fault) => {
            let codes = [FailureCode::BadThunk, FailureCode::Memory, FailureCode::MissingData];
            assert!(codes.contains(&fault.code), "{fault}");
            assert!(!fault.detail.is_empty());
        }
        Ok(rehearsal) => check(rehearsal, &words, module, &store),
    }
    assert_eq!(self::told(&words, module, &store), told, "the same again is the same");
    told.is_ok()
}

fn told(words: &[Handle], module: Handle, store: &Store) -> Result<Rehearsal, sandbox::Fault> {
    let limits = LIMITS.handle().expect("limits within bounds");
    let tree: TreeBuilder = [limits, module].into_iter().chain(words.iter().copied()).collect();
    rehearse(tree.view(), store, LIMITS)
}

fn check(rehearsal: &Rehearsal, words: &[Handle], module: Handle, store: &Store) {
    assert_eq!(told(&rehearsal.words, module, store).as_ref(), Ok(rehearsal), "other words for the same");
    let said = |word: &[u8]| words.iter().position(|entry| entry.literal_bytes() == Some(word));
    assert!(said(b"dir").is_some() || rehearsal.kept.is_empty());
    assert!(rehearsal.kept.iter().all(|kept| words.contains(kept)), "what nobody changed is what was given");
    if let Some(state) = rehearsal.state {
        let from = rehearsal.words.iter().rposition(|entry| entry.literal_bytes() == Some(b"from"));
        let snapshot = from.and_then(|at| rehearsal.words.get(at + 1)).expect("it goes on from somewhere");
        let snapshot = store.get(*snapshot).expect("there is no disk").expect("it was read");
        assert_eq!(snapshot.as_tree().get(2), Some(state), "one state, one description");
    }
}

/// Bytes that say what entries there are: a word is one of them, a value is two and those in it.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn number(&mut self) -> Option<u8> {
        let (number, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*number)
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = self.number().map_or(0, usize::from).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }
}

fn composed(input: &[u8], module: Handle, store: &Store) -> Vec<Handle> {
    let (mut script, mut entries) = (Script(input), Vec::new());
    while let Some(number) = script.number().filter(|_| entries.len() < ENTRIES_MAX) {
        let number = number % (WORDS.len() as u8 + VALUES);
        let entry = match WORDS.get(usize::from(number)) {
            Some(word) => Some(store.keep_blob(word)),
            None => value(number - WORDS.len() as u8, &mut script, &mut entries, module, store),
        };
        entries.extend(entry);
    }
    entries
}

/// A value, some of which are made of the entries before.
fn value(
    number: u8,
    script: &mut Script<'_>,
    entries: &mut Vec<Handle>,
    module: Handle,
    store: &Store,
) -> Option<Handle> {
    Some(match number {
        0 => store.keep_blob(script.bytes()),
        1 => Handle::blob(&[script.number()?; 40]),
        2 => {
            let len = usize::from(script.number()? % 8).min(entries.len());
            tree(entries.split_off(entries.len() - len), store)
        }
        3 => {
            let list = script.bytes();
            // A directory has as many entries as its list has lines.
            let len = list.split_inclusive(|byte| *byte == b'\n').count().min(entries.len());
            let children = entries.split_off(entries.len() - len);
            tree([store.keep_blob(list)].into_iter().chain(children).collect(), store)
        }
        4 => entries.pop()?.lowered()?,
        5 => {
            let (none, of) = (Handle::blob(&[]), module.lowered()?);
            let (mark, state) = (store.keep_blob(b"sinew:snapshot/1"), store.keep_blob(script.bytes()));
            tree(vec![mark, of, state, tree(Vec::new(), store), none, none], store)
        }
        6 => Handle::u64(u64::from(script.number()?) << 32),
        _ => entries.last()?.identification()?.strict()?,
    })
}

fn tree(entries: Vec<Handle>, store: &Store) -> Handle {
    let tree: TreeBuilder = entries.into_iter().collect();
    store.keep_tree(tree.view())
}
