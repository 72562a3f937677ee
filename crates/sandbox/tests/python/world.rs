// SPDX-License-Identifier: Apache-2.0
//! A node in miniature that runs Python functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{Handle, Limits, TreeBuilder};
use sandbox::process::{Python, PythonOptions, Runtime, RuntimeOptions, Weakness};
use sandbox::{Call, Fault, Invoked, Sandbox as _, SandboxId, Spec};
use store::Store;

pub(crate) const CGROUP_NAME: &str = "sinew-python";
const NEIGHBOUR: &str = "def apply(x):\n    return x[::-1]\n";

pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) python: Python,
}

pub(crate) fn options() -> PythonOptions {
    PythonOptions { call_timeout: Duration::from_secs(3), ready: 0, ..PythonOptions::default() }
}

fn runtime(weakness: Weakness) -> Result<Arc<Runtime>, String> {
    let options =
        RuntimeOptions { cgroup_name: CGROUP_NAME.to_owned(), weakness, ..RuntimeOptions::default() };
    Runtime::new(options).map_err(|error| error.to_string())
}

/// Why there can be no such world on this machine.
pub(crate) fn missing() -> Option<String> {
    match runtime(Weakness::NONE) {
        Ok(runtime) if !runtime.abilities().is_root => Some("needs root".to_owned()),
        Ok(runtime) if !runtime.abilities().limits_memory => Some("needs control groups".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(options(), Weakness::NONE)
    }

    pub(crate) fn with(options: PythonOptions, weakness: Weakness) -> Self {
        let memory = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
        let store = Arc::new(Store::open(memory).unwrap());
        let python = Python::new(options, runtime(weakness).unwrap(), store.clone()).unwrap();
        Self { store, python }
    }

    pub(crate) fn spec(&self, source: &str) -> Spec {
        Spec { procedure: self.store.keep_blob(source.as_bytes()), limits: Limits::default() }
    }

    pub(crate) fn call(&self, source: &str, arguments: &[Handle]) -> Call {
        let Spec { procedure, limits } = self.spec(source);
        let mut entries = vec![limits.handle().unwrap(), procedure];
        entries.extend(arguments);
        let tree: TreeBuilder = entries.into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        Call { application: self.store.local(handle).unwrap(), handle, limits, procedure }
    }

    pub(crate) fn created(&self, source: &str) -> SandboxId {
        let id = self.python.create(&[self.spec(source)]).pop().unwrap().unwrap();
        self.python.start(&[id]).pop().unwrap().unwrap();
        id
    }

    pub(crate) fn invoke(&self, id: SandboxId, source: &str, argument: &[u8]) -> Result<Vec<u8>, Fault> {
        let argument = self.store.keep_blob(argument);
        let Invoked::Done(outcome) = self.python.invoke(id, self.call(source, &[argument])).unwrap();
        outcome.result.map(|handle| match handle.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.local(handle).unwrap().bytes().to_vec(),
        })
    }

    pub(crate) fn end(&self, id: SandboxId) {
        self.python.kill(&[id]).pop().unwrap().unwrap();
        self.python.delete(&[id]).pop().unwrap().unwrap();
    }

    /// Creates, calls once, deletes.
    pub(crate) fn run(&self, source: &str) -> Result<Vec<u8>, Fault> {
        let id = self.created(source);
        let result = self.invoke(id, source, b"");
        self.end(id);
        result
    }

    /// The text that `apply` returns whose body these lines are.
    pub(crate) fn says(&self, lines: &str) -> String {
        match self.run(&apply(lines)) {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(fault) => format!("fault {fault}"),
        }
    }

    /// A neighbour is served at this moment.
    pub(crate) fn assert_others_are_served(&self) {
        let began = Instant::now();
        let id = self.created(NEIGHBOUR);
        assert_eq!(self.invoke(id, NEIGHBOUR, b"abc").unwrap(), b"cba");
        assert!(began.elapsed() < Duration::from_secs(5), "a neighbour waited {:?}", began.elapsed());
        self.end(id);
    }
}

/// A function with these lines as its body.
pub(crate) fn apply(lines: &str) -> String {
    let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("import os, sys, time, ctypes, signal\ndef apply(x):\n{body}")
}

/// A function that tries something and says whether it was refused.
pub(crate) fn attempt(lines: &str) -> String {
    let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "libc = ctypes.CDLL(None, use_errno=True)\n\
         def check(result):\n    if result == -1: raise OSError(ctypes.get_errno(), 'refused')\n    return result\n\
         try:\n{body}    return b'done'\nexcept OSError as error:\n    return b'refused %d' % error.errno"
    )
}
