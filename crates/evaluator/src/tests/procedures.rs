// SPDX-License-Identifier: Apache-2.0
//! Procedures written in Rust, named by their blob: what stands before the
//! first line feed. The first five are the built-ins of the specification's
//! test vectors; the others are the paper's examples and troublemakers.
//! `remote` and `early` before a name make the application pending, and its
//! end come after or before the evaluator has set the job aside; `brought` is as
//! `remote`, for what only comes from outside. `compiled`
//! before all of that makes the procedure one whose code has to be made first.

use objects::{ARGUMENTS_START, FailureCode, Handle, PROCEDURE_INDEX, Part, Selection, TreeView};

use super::host::World;

/// What a procedure may do.
pub(super) struct Call<'a> {
    /// Where it stores and reads.
    pub(super) world: &'a World,
    /// All entries of the application.
    pub(super) entries: Vec<Handle>,
}

/// How a procedure can end without a lasting result.
pub(super) enum Fault {
    /// It failed.
    Failure(FailureCode, String),
    /// It has a result that another run need not have.
    Unsteady(Handle),
}

type Ended = Result<Handle, Fault>;

/// The name of a procedure.
pub(super) fn name(world: &World, procedure: Handle) -> String {
    let bytes = world.peek(procedure).expect("the procedure is local");
    let name = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Runs the procedure of entry 1.
pub(super) fn run(call: &mut Call<'_>) -> Ended {
    let name = name(call.world, call.entries[PROCEDURE_INDEX]);
    let name = name.strip_prefix("compiled ").unwrap_or(&name);
    let elsewhere = ["remote ", "early ", "brought "];
    let name = elsewhere.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    match name {
        "return" => call.argument(0),
        "tree" => Ok(call.world.tree(&call.entries[ARGUMENTS_START..])),
        "add" => Ok(Handle::u64(call.number(0)?.wrapping_add(call.number(1)?))),
        "if" => call.choose(),
        "fail" => {
            let detail = call.bytes(0)?;
            Err(Fault::Failure(FailureCode::Guest, String::from_utf8_lossy(&detail).into_owned()))
        }
        "call" => Ok(call.apply(&call.entries[ARGUMENTS_START..])),
        "inc" => Ok(Handle::u64(call.number(0)?.wrapping_add(1))),
        "count-down" => call.count_down(),
        "fib" => call.fib(),
        "get-file" => call.get_file(),
        "map" => call.map(),
        "map-reduce" => call.map_reduce(),
        "step" => {
            Ok(call.world.blob(&call.bytes(0)?.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<_>>()))
        }
        "differs" => Ok(call.world.blob(&[call.world.counts().runs("differs") as u8; 40])),
        "sometimes" if call.world.counts().runs("sometimes") == 1 => Ok(call.world.blob(&[7; 40])),
        "sometimes" => Err(Fault::Failure(FailureCode::Memory, "not now".to_owned())),
        "overflow" => Err(Fault::Failure(FailureCode::Stack, "too deep".to_owned())),
        "unsteady" => Err(Fault::Unsteady(call.argument(0)?)),
        "gate" => {
            call.world.await_waiter();
            call.argument(0)
        }
        "meet" => {
            call.world.await_second("meet");
            call.argument(0)
        }
        _ => Err(Fault::Failure(FailureCode::BadProcedure, String::new())),
    }
}

fn bad_handle() -> Fault {
    Fault::Failure(FailureCode::BadHandle, String::new())
}

impl Call<'_> {
    fn argument(&self, index: usize) -> Ended {
        self.entries.get(ARGUMENTS_START + index).copied().ok_or_else(bad_handle)
    }

    /// The bytes of an argument that is a blob object.
    fn bytes(&self, index: usize) -> Result<std::sync::Arc<[u8]>, Fault> {
        let blob = self.argument(index)?;
        if !blob.is_object() || blob.names_tree() {
            return Err(bad_handle());
        }
        self.world.note_load(blob);
        self.world.peek(blob).ok_or_else(bad_handle)
    }

    fn number(&self, index: usize) -> Result<u64, Fault> {
        let bytes = self.bytes(index)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len()).ok_or_else(bad_handle)?.copy_from_slice(&bytes);
        Ok(u64::from_le_bytes(wide))
    }

    fn list(&self, index: usize) -> Result<Vec<Handle>, Fault> {
        let tree = self.argument(index)?;
        if !tree.is_object() || !tree.names_tree() {
            return Err(bad_handle());
        }
        self.world.note_load(tree.plain_tree());
        let bytes = self.world.peek(tree).ok_or_else(bad_handle)?;
        Ok(TreeView::from_checked(&bytes).iter().collect())
    }

    /// An application of `entries` under this call's own limits.
    fn apply(&self, entries: &[Handle]) -> Handle {
        let limits = self.entries[..PROCEDURE_INDEX].iter();
        let tree: Vec<Handle> = limits.chain(entries).copied().collect();
        self.world.tree(&tree).application().unwrap()
    }

    fn select(&self, target: Handle, index: usize) -> Handle {
        let selection = Selection { target, part: Part::Element(index as u64) };
        self.world.tree(&selection.to_tree().view().iter().collect::<Vec<_>>()).selection().unwrap()
    }

    /// `[limits, if, predicate, a, b]`
    fn choose(&self) -> Ended {
        let is_true = self.bytes(0)?.iter().any(|&byte| byte != 0);
        self.argument(if is_true { 1 } else { 2 })
    }

    /// `[limits, count-down, n]`: a chain of `n` thunks.
    fn count_down(&self) -> Ended {
        match self.number(0)? {
            0 => Ok(Handle::u64(0)),
            n => Ok(self.apply(&[self.entries[PROCEDURE_INDEX], Handle::u64(n - 1)])),
        }
    }

    /// `[limits, fib, add, x]`
    fn fib(&self) -> Ended {
        let x = self.number(1)?;
        if x < 2 {
            return Ok(Handle::u64(x));
        }
        let (fib, add) = (self.entries[PROCEDURE_INDEX], self.argument(0)?);
        let before = |n| self.apply(&[fib, add, Handle::u64(x - n)]).strict().unwrap();
        Ok(self.apply(&[add, before(1), before(2)]))
    }

    /// `[limits, get-file, path, info, directory]`: a directory is a tree
    /// `[info, child…]` and its info the children's names, one a line.
    fn get_file(&self) -> Ended {
        let path = self.bytes(0)?;
        let path = String::from_utf8_lossy(&path).into_owned();
        let (first, rest) = path.split_once('/').unwrap_or((&path, ""));
        let info = self.bytes(1)?;
        let info = String::from_utf8_lossy(&info).into_owned();
        let index = info.lines().position(|name| name == first).ok_or_else(bad_handle)?;
        let child = self.select(self.argument(2)?, index + 1);
        if rest.is_empty() {
            return Ok(child);
        }
        let info = self.select(child, 0).strict().unwrap();
        let path = self.world.blob(rest.as_bytes());
        Ok(self.apply(&[self.entries[PROCEDURE_INDEX], path, info, child.shallow().unwrap()]))
    }

    /// `[limits, map, f, list]`: a tree of deferred calls.
    fn map(&self) -> Ended {
        let f = self.argument(0)?;
        let calls: Vec<Handle> = self.list(1)?.into_iter().map(|item| self.apply(&[f, item])).collect();
        Ok(self.world.tree(&calls))
    }

    /// `[limits, map-reduce, f, g, list]`
    fn map_reduce(&self) -> Ended {
        let (f, g, list) = (self.argument(0)?, self.argument(1)?, self.list(2)?);
        if let [item] = list[..] {
            return Ok(self.apply(&[f, item]));
        }
        let (left, right) = list.split_at(list.len() / 2);
        let half = |items: &[Handle]| {
            let list = self.world.tree(items);
            self.apply(&[self.entries[PROCEDURE_INDEX], f, g, list]).strict().unwrap()
        };
        Ok(self.apply(&[g, half(left), half(right)]))
    }
}
