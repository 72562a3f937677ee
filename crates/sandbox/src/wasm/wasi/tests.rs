// SPDX-License-Identifier: Apache-2.0
//! Programs and their files: files against those of this system, calls against what
//! preview 1 says, and what hostile programs may try.

// A test's threads end with it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod errors;
mod files;
mod hostile;
mod programs;
mod snapshots;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::{Handle, Limits, TreeBuilder};
use store::Store;

use crate::wasm::{Codelets, Invoker, Options};
use crate::{Call, Fault, Outcome};

/// What a directory has, by path; `None`: a directory.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// All imports of programs, by the names that they have in preview 1.
fn imports() -> String {
    let of = |import: &super::calls::Import| {
        let types =
            |types: &[wasmparser::ValType]| types.iter().map(|ty| format!(" {ty}")).collect::<String>();
        let (params, results) = (types(import.params), types(import.results));
        let results = if results.is_empty() { results } else { format!("(result{results})") };
        format!(
            "(import \"wasi_snapshot_preview1\" \"{0}\" (func ${0} (param{params}) {results}))\n",
            import.name
        )
    };
    super::calls::IMPORTS.iter().map(of).collect()
}

/// A program of these fields, which has one page of memory and whose `_start` is `body`.
fn program_with(fields: &str, body: &str) -> Vec<u8> {
    let text = format!(
        "(module {} (memory (export \"memory\") 1) {fields}
         (func (export \"_start\") (local $i i32) (local $j i32) {body}))",
        imports()
    );
    wat::parse_str(text).unwrap()
}

fn program(body: &str) -> Vec<u8> {
    program_with("", body)
}

/// A node in miniature.
struct World {
    store: Arc<Store>,
    invoker: Invoker,
}

/// What came of a program.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    status: u64,
    stdout: String,
    stderr: String,
    directories: Vec<Handle>,
}

impl World {
    fn new() -> Self {
        let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
        let store = Arc::new(Store::open(options).unwrap());
        let codelets = Codelets::new(Options { workers: 1, ..Options::default() }, store.clone()).unwrap();
        Self { store, invoker: Invoker::new(codelets) }
    }

    fn blob(&self, bytes: &[u8]) -> Handle {
        self.store.keep_blob(bytes)
    }

    /// A directory of files, by path. Its objects are in the store.
    fn directory(&self, files: &[(&str, &str)]) -> Handle {
        let mut names: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for &(path, text) in files {
            let (name, rest) = path.split_once('/').unwrap_or((path, ""));
            names.entry(name).or_default().push((rest, text));
        }
        let mut lines = String::new();
        let mut entries = Vec::new();
        for (name, inner) in names {
            let is_file = inner.len() == 1 && inner[0].0.is_empty() && !name.is_empty();
            lines.push_str(&format!("{} {name}\n", if is_file { 'f' } else { 'd' }));
            entries.push(if is_file { self.blob(inner[0].1.as_bytes()) } else { self.directory(&inner) });
        }
        self.tree([self.blob(lines.as_bytes())].into_iter().chain(entries))
    }

    fn tree(&self, entries: impl IntoIterator<Item = Handle>) -> Handle {
        let tree: TreeBuilder = entries.into_iter().collect();
        self.store.keep_tree(tree.view())
    }

    /// What is in a directory tree.
    fn read(&self, tree: Handle) -> Tree {
        let mut found = Tree::new();
        let mut waiting = vec![(String::new(), tree)];
        while let Some((prefix, tree)) = waiting.pop() {
            let object = self.store.get(tree).unwrap().unwrap();
            let entries: Vec<Handle> = object.as_tree().iter().collect();
            let list = self.store.get(entries[0]).unwrap().unwrap();
            let list = String::from_utf8(list.to_vec()).unwrap();
            assert_eq!(list.lines().count(), entries.len() - 1);
            for (line, entry) in list.lines().zip(&entries[1..]) {
                let (kind, name) = line.split_once(' ').unwrap();
                let path = format!("{prefix}{name}");
                if kind == "d" {
                    found.insert(format!("{path}/"), None);
                    waiting.push((format!("{path}/"), *entry));
                } else {
                    let path = if kind == "f" { path } else { format!("{path} ({kind})") };
                    found.insert(path, Some(self.store.get(*entry).unwrap().unwrap().to_vec()));
                }
            }
        }
        found
    }

    fn apply(&mut self, module: &[u8], words: &[Handle], limits: Limits) -> Outcome {
        let procedure = self.blob(module);
        let entries = [limits.handle().unwrap(), procedure].into_iter().chain(words.iter().copied());
        let handle = self.tree(entries);
        let application = self.store.local(handle).unwrap();
        let call = Call::new(application, handle, limits, procedure);
        self.invoker.invoke(call)
    }

    fn run(&mut self, module: &[u8], words: &[Handle]) -> Result<Ended, Fault> {
        let outcome = self.apply(module, words, Limits::default());
        let result = outcome.result?;
        let object = self.store.get(result).unwrap().unwrap();
        let entries: Vec<Handle> = object.as_tree().iter().collect();
        let text = |handle| String::from_utf8(self.store.get(handle).unwrap().unwrap().to_vec()).unwrap();
        Ok(Ended {
            status: u64::from_le_bytes(entries[0].literal_bytes().unwrap().try_into().unwrap()),
            stdout: text(entries[1]),
            stderr: text(entries[2]),
            directories: entries[3..].to_vec(),
        })
    }

    /// The status that a program ends with, which has one directory at `/`.
    fn status(&mut self, module: &[u8], directory: Handle) -> u64 {
        let words = [self.blob(b"dir"), self.blob(b"/"), directory];
        self.run(module, &words).unwrap().status
    }
}
