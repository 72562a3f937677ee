// SPDX-License-Identifier: Apache-2.0
//! What functions get: how they are set up, and what one instance may use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use objects::Handle;
use rmmap::Plan;

use super::debugger::Debuggers;
use super::language::Language;
use super::layers::Layers;
use super::outbound::Outbound;
use super::reactor::Reactor;
use super::realm::Realm;
use super::secrets::SecretSource;
use super::template::TemplateOptions;
use crate::Error;

/// What functions of one language get on this node.
#[derive(Debug, Clone)]
pub struct FunctionsOptions {
    /// What they are written in.
    pub language: Language,
    /// The interpreter; that of a virtual environment of Python has its
    /// packages. A name without a slash is looked for in `PATH`.
    pub interpreter: PathBuf,
    /// More folders to look for modules in, as `PYTHONPATH` or `NODE_PATH`
    /// name them. Functions can read them.
    pub packages: Vec<PathBuf>,
    /// Modules that the template imports, so that functions find them loaded.
    pub imports: Vec<String>,
    /// Packages that functions bring, among which the modules that are imported
    /// are looked for first. They are trusted with nothing but these functions.
    pub brought: Option<Brought>,
    /// Refuses to serve where what is imported keeps the template from forking,
    /// instead of starting an interpreter for each instance.
    pub must_fork: bool,
    /// Within which the template must have imported them.
    pub start_timeout: Duration,
    /// Sandboxes that may exist at once.
    pub sandboxes_max: usize,
    /// Instances that are made at once by one `create`.
    pub starts_at_once: usize,
    /// From the fork to the loaded function.
    pub load_timeout: Duration,
    /// Within which a call must have its result.
    pub call_timeout: Duration,
    /// Calls that may wait for one instance.
    pub waiting_max: u64,
    /// Bytes of a result; below 2^32.
    pub result_bytes_max: u64,
    /// Bytes that a call may print; what is over is dropped.
    pub log_bytes_max: u64,
    /// Processes and threads of one instance.
    pub processes: u32,
    /// Share of one processor, in percent.
    pub cpu_percent: u32,
    /// Files that a process may have open.
    pub files: u64,
    /// Bytes of `/tmp`; they count as memory as well.
    pub tmp_bytes: u64,
    /// Where the files of functions that are images are written out; without
    /// it there can be none.
    pub layers: Option<Arc<Layers>>,
    /// Who knows the secrets that functions name; without it there are none.
    pub secrets: Option<Arc<dyn SecretSource>>,
    /// Who carries connections to the hosts that functions may reach; without
    /// it they reach none.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// Where values of workflows may be mapped; without it they are sent.
    pub values: Option<Plan>,
    /// Who leads debuggers to instances; without it none can be debugged.
    pub debuggers: Option<Arc<dyn Debuggers>>,
    /// The memory limit of functions for which containers and instances are
    /// kept ready.
    pub usual_memory_bytes: u64,
    /// Containers that are kept prepared, for functions with the usual memory
    /// limit.
    pub ready: usize,
    /// Instances without a function that are kept forked, for such functions:
    /// faster still, for some 3 MiB of memory each.
    pub blanks: usize,
    /// Watches the channels of instances, so that calls can be begun without a
    /// thread that waits for each; without it every call waits in a thread.
    pub reactor: Option<Arc<dyn Reactor>>,
}

impl FunctionsOptions {
    /// What is usual for a language.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            interpreter: PathBuf::from(language.interpreter()),
            packages: Vec::new(),
            imports: Vec::new(),
            brought: None,
            must_fork: false,
            start_timeout: Duration::from_secs(60),
            sandboxes_max: 1024,
            starts_at_once: 4,
            load_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(300),
            waiting_max: 64,
            result_bytes_max: 64 << 20,
            log_bytes_max: 1 << 20,
            processes: 64,
            cpu_percent: 100,
            files: 256,
            tmp_bytes: 16 << 20,
            layers: None,
            secrets: None,
            outbound: None,
            values: None,
            debuggers: None,
            usual_memory_bytes: objects::MEMORY_DEFAULT_BYTES,
            ready: 4,
            blanks: match language {
                Language::Python | Language::Executable => 0,
                // A fork of Node takes most of the time of a start.
                Language::Node => 2,
            },
            reactor: None,
        }
    }

    /// A template that imports what is to be imported.
    pub(crate) fn template(&self, realm: Option<Arc<Realm>>) -> TemplateOptions {
        TemplateOptions {
            language: self.language,
            interpreter: self.interpreter.clone(),
            packages: self.packages.clone(),
            imports: self.imports.clone(),
            start_timeout: self.start_timeout,
            is_to_fork: true,
            realm,
        }
    }

    pub(crate) fn cannot_serve(&self, reason: String) -> Error {
        Error::Template { language: self.language.name(), interpreter: self.interpreter.clone(), reason }
    }

    pub(crate) fn room(&self, memory_bytes: u64) -> Room {
        let Self { processes, cpu_percent, files, tmp_bytes, .. } = *self;
        Room { memory_bytes, processes, cpu_percent, files, tmp_bytes, disk_bytes_per_s: None }
    }
}

/// Packages that functions bring, and what runs them.
#[derive(Debug, Clone)]
pub struct Brought {
    /// Directory trees, as in the image of each of these functions.
    pub layers: Vec<Handle>,
    /// The interpreter, as the node's own template knows it.
    pub interpreter: Interpreter,
    /// Memory that the template may have.
    pub memory_bytes: u64,
    /// Memory that it and all its instances may have together.
    pub all_bytes: u64,
    /// What the node may store of all that instances make.
    pub stored_bytes: u64,
}

/// Where an interpreter is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Its file, absolute.
    pub program: PathBuf,
    /// The directories that it and its libraries lie in.
    pub prefixes: Vec<PathBuf>,
}

/// What one instance gets of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) cpu_percent: u32,
    pub(crate) files: u64,
    pub(crate) tmp_bytes: u64,
    pub(crate) disk_bytes_per_s: Option<u64>,
}
