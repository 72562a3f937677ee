// SPDX-License-Identifier: Apache-2.0
//! What an application says to its program: words and their values, in any order.
//!
//! ```text
//!  [limits, module, "arg", "ls", "arg", "-l", "env", "TZ=UTC", "dir", "/data", tree, …]
//! ```
//!
//! Words stand beside their values among the entries, so that a curried procedure can
//! bring some of them, and a value that is an encode is evaluated before the program runs.

use objects::{Handle, Limits, TreeView};
use store::Store;

use super::clock;
use super::errno::Result;
use super::files::{is_blob, is_tree};
use super::means::{Means, malformed};
use crate::Fault;
use crate::wasm::table::Budget;

/// Entries before the first word: limits and procedure.
const BEFORE: usize = 2;
/// Directories at most, each of which has a descriptor.
const DIRECTORIES_MAX: usize = 64;
/// Functions that are called, at most.
const ENTRIES_MAX: usize = 16;
/// Variables at most: each one is compared with all before it.
const VARIABLES_MAX: usize = 4096;
/// Bytes of one argument, one variable, or the path of one directory.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a seed.
const SEED_BYTES_MAX: u64 = 4096;
/// What a text costs beside its bytes.
const TEXT_COST: u64 = 64;

/// A directory that a program finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where the program finds it.
    pub(crate) path: Box<[u8]>,
    pub(crate) tree: Handle,
    /// It is not changed, and not part of the result.
    pub(crate) is_read_only: bool,
}

/// A function of a program that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) given: Option<Given>,
}

/// Bytes that a function is given the place and length of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// The function that makes room for them.
    pub(crate) allocate: Box<[u8]>,
    pub(crate) bytes: Handle,
}

/// All that an application says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) arguments: Vec<Box<[u8]>>,
    /// `NAME=VALUE`.
    pub(crate) environment: Vec<Box<[u8]>>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) stdin: Handle,
    pub(crate) seed: Box<[u8]>,
    /// In nanoseconds since 1970.
    pub(crate) time: u64,
    /// Functions that are called, in this order; none: the module's own.
    pub(crate) entries: Vec<Entry>,
    /// The snapshot that it goes on from.
    pub(crate) from: Option<Handle>,
    /// What is asked for is a snapshot.
    pub(crate) is_captured: bool,
}

/// Finds out whether an application says to a program what one can be told; nothing is run, and files are not
/// looked at.
///
/// # Errors
/// As the application would fail.
pub fn check_words(
    application: TreeView<'_>,
    store: &Store,
    limits: Limits,
) -> std::result::Result<(), Fault> {
    let mut budget = Budget::new(limits.memory_bytes, 0);
    let mut means = Means { store, budget: &mut budget, now: 0 };
    let options = Options::read(application, &mut means)?;
    if options.is_captured {
        return Err(malformed("a snapshot is no answer").into());
    }
    Ok(())
}

impl Options {
    /// Reads the words of an application.
    ///
    /// # Errors
    /// `bad-thunk` for what means nothing.
    pub(crate) fn read(application: TreeView<'_>, means: &mut Means<'_>) -> Result<Self> {
        let stdin = Handle::low_bytes(0, 0).ok_or_else(|| malformed("an empty blob is a literal"))?;
        let mut options = Self {
            arguments: Vec::new(),
            environment: Vec::new(),
            mounts: Vec::new(),
            stdin,
            seed: Box::default(),
            time: clock::BEGIN,
            entries: Vec::new(),
            from: None,
            is_captured: false,
        };
        let mut entries = application.iter().skip(BEFORE);
        while let Some(word) = entries.next() {
            let word = word.literal_bytes().filter(|_| is_blob(word)).unwrap_or_default();
            let named = String::from_utf8_lossy(word).into_owned();
            let mut next =
                || entries.next().ok_or_else(|| malformed(format_args!("{named:?} is the last entry")));
            match word {
                b"arg" => options.arguments.push(text("an argument", next()?, means)?),
                b"env" => options.set(text("a variable", next()?, means)?)?,
                b"dir" | b"lib" => {
                    let (path, tree) = (text("a path", next()?, means)?, next()?);
                    options.mount(Mount { path, tree, is_read_only: word == b"lib" })?;
                }
                b"stdin" => options.stdin = blob("stdin", next()?)?,
                b"seed" => options.seed = bytes("seed", next()?, SEED_BYTES_MAX, means)?,
                b"time" => options.time = number(next()?)?,
                b"entry" => {
                    let name = text("an entry", next()?, means)?;
                    options.enter(Entry { name, given: None })?;
                }
                b"call" => {
                    let name = text("an entry", next()?, means)?;
                    let allocate = text("an allocator", next()?, means)?;
                    let given = Given { allocate, bytes: blob("what an entry is given", next()?)? };
                    options.enter(Entry { name, given: Some(given) })?;
                }
                b"from" => options.from = Some(tree("a snapshot", next()?)?),
                b"snapshot" => options.is_captured = true,
                _ => {
                    let why = "where a word was expected, there is none of arg, env, dir, lib, stdin, seed, \
                               time, entry, call, from, snapshot";
                    return Err(malformed(why));
                }
            }
        }
        Ok(options)
    }

    /// A variable; a later one of the same name takes its place.
    fn set(&mut self, variable: Box<[u8]>) -> Result<()> {
        let end = variable.iter().position(|byte| *byte == b'=').filter(|end| *end > 0);
        let name = &variable[..end.ok_or_else(|| malformed("a variable is not like NAME=VALUE"))?];
        let is_same = |other: &[u8]| other.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="));
        let is_full = self.environment.len() == VARIABLES_MAX;
        match self.environment.iter_mut().find(|other| is_same(other)) {
            Some(other) => *other = variable,
            None if is_full => {
                return Err(malformed(format_args!("it has more than {VARIABLES_MAX} variables")));
            }
            None => self.environment.push(variable),
        }
        Ok(())
    }

    fn enter(&mut self, entry: Entry) -> Result<()> {
        if self.entries.len() == ENTRIES_MAX {
            return Err(malformed(format_args!("it has more than {ENTRIES_MAX} entries")));
        }
        self.entries.push(entry);
        Ok(())
    }

    fn mount(&mut self, mount: Mount) -> Result<()> {
        tree("a directory", mount.tree)?;
        if mount.path.is_empty() || self.mounts.iter().any(|other| other.path == mount.path) {
            return Err(malformed("two directories have the same path, or one has none"));
        }
        if self.mounts.len() == DIRECTORIES_MAX {
            return Err(malformed(format_args!("it has more than {DIRECTORIES_MAX} directories")));
        }
        self.mounts.push(mount);
        Ok(())
    }
}

fn tree(what: &str, handle: Handle) -> Result<Handle> {
    match is_tree(handle) {
        true => Ok(handle),
        false => Err(malformed(format_args!("{what} is no tree"))),
    }
}

fn blob(what: &str, handle: Handle) -> Result<Handle> {
    match is_blob(handle) {
        true => Ok(handle),
        false => Err(malformed(format_args!("{what} is no blob"))),
    }
}

fn bytes(what: &str, handle: Handle, len_max: u64, means: &mut Means<'_>) -> Result<Box<[u8]>> {
    let handle = blob(what, handle)?;
    if handle.size() > len_max {
        return Err(malformed(format_args!("{what} has more than {len_max} bytes")));
    }
    means.charge("what it is told", handle.size() + TEXT_COST)?;
    Ok(means.object(handle)?.bytes().into())
}

/// Bytes that end with a zero where the program gets them.
fn text(what: &str, handle: Handle, means: &mut Means<'_>) -> Result<Box<[u8]>> {
    let bytes = bytes(what, handle, TEXT_BYTES_MAX, means)?;
    match bytes.contains(&0) {
        false => Ok(bytes),
        true => Err(malformed(format_args!("{what} has a zero byte"))),
    }
}

fn number(handle: Handle) -> Result<u64> {
    let bytes = handle.literal_bytes().filter(|bytes| bytes.len() <= 8 && is_blob(handle));
    let bytes = bytes.ok_or_else(|| malformed("time is no number of up to eight bytes"))?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Ok(u64::from_le_bytes(word))
}
