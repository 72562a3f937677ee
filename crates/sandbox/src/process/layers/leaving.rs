// SPDX-License-Identifier: Apache-2.0
//! Directories that are removed behind everybody's back, one after the other.
//!
//! One with ten thousand files takes seconds. Nobody's request waits for that, and neither does the node's end:
//! what is left then is removed when the node starts again.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

/// Of so many that wait, whoever adds one more removes one: what is on the disk has a bound.
const WAITING_MAX: usize = 32;

/// What is to be removed, and the thread that does it, which is there for as long as something is.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    shared: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    paths: VecDeque<PathBuf>,
    thread: Option<JoinHandle<()>>,
    is_removing: bool,
    is_over: bool,
}

impl Leaving {
    /// Removes these, files or directories, at some time. Nobody may use them any more, nor make others
    /// of the same names.
    pub(super) fn add(&self, paths: Vec<PathBuf>) {
        let mut waiting = self.shared.lock();
        waiting.paths.extend(paths);
        while waiting.paths.len() > WAITING_MAX
            && let Some(path) = waiting.paths.pop_front()
        {
            drop(waiting);
            remove(&path, &self.shared);
            waiting = self.shared.lock();
        }
        if waiting.is_removing || waiting.is_over || waiting.paths.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let begun = Builder::new().name("layers".to_owned()).spawn(move || {
            while let Some(path) = next(&shared) {
                remove(&path, &shared);
            }
        });
        // Without a thread they wait for the next ones, or for the node's next start.
        waiting.is_removing = begun.is_ok();
        waiting.thread = begun.ok();
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let thread = {
            let mut waiting = self.shared.lock();
            waiting.is_over = true;
            waiting.thread.take()
        };
        _ = thread.map(JoinHandle::join);
    }
}

fn next(shared: &Mutex<Waiting>) -> Option<PathBuf> {
    let mut waiting = shared.lock();
    let path = if waiting.is_over { None } else { waiting.paths.pop_front() };
    waiting.is_removing = path.is_some();
    path
}

/// As far as that works: what stays is removed when the node starts again.
fn remove(path: &Path, shared: &Mutex<Waiting>) {
    // Where it was broken off, since all is over, a directory is not empty: that is no reason to go on.
    if clear(path, shared).is_err() && !shared.lock().is_over {
        // It goes by descriptors, and so removes also what has too long a path.
        _ = fs::remove_dir_all(path);
    }
}

/// Removes a directory with all that is in it, or a file; only some of it when all is over.
fn clear(path: &Path, shared: &Mutex<Waiting>) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if shared.lock().is_over {
            return Ok(());
        }
        clear(&path, shared)?;
    }
    fs::remove_dir(path)
}
