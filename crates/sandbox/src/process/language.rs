// SPDX-License-Identifier: Apache-2.0
//! The languages that functions are interpreted in: how an interpreter is
//! started so that it becomes a template, or one instance.
//!
//! All that differs between them on this side of the wires is here. The other
//! side is `guests/<language>/template.*`; what both do in native code is
//! `guests/template`, which they load from a file in memory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::container::Program;
use super::options::FunctionsOptions;
use super::runtime::Runtime;
use super::starter::{Starter, model};
use super::template::{Hello, Layout, Refusal, Template, Unforkable};
use crate::Error;

/// What functions are written in, or that it does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// Python, by CPython 3.11 or later.
    Python,
    /// JavaScript, by Node.js 20 or later.
    Node,
    /// Anything: a program that serves HTTP, or reads its standard input.
    Executable,
}

/// An interpreter, for whoever prepares what it is to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterpreterFacts {
    /// Its file, absolute.
    pub program: PathBuf,
    /// As `3.14.2`.
    pub version: String,
    /// What compiled modules for it have in their names, as `cpython-314-x86_64-linux-gnu`.
    pub abi: String,
    /// Whether values of workflows are mapped by it, and not sent.
    pub maps_values: bool,
}

/// How an interpreter would serve functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// Instances are forked from a template.
    Forked {
        /// The interpreter's, and for Python whether it maps values.
        version: String,
        /// Where everything lies: the same in nodes that have the same interpreter.
        layout: Layout,
        /// Huge pages that the template is in, or what the kernel has against them.
        huge_pages: Result<u32, String>,
    },
    /// Each instance is an interpreter of its own, which takes longer to start.
    Cold {
        /// Why nothing can be forked.
        reason: String,
    },
    /// Not at all.
    No {
        /// What is missing, for people.
        reason: String,
    },
}

/// What an interpreter is started to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The process that instances are forked from.
    Template,
    /// The same, but it only says where it lies, and that it would load.
    Model,
    /// One instance, in its container already.
    Instance,
}

/// An interpreter alone is there in a tenth of a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// As long as a template may take.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// What stands between a template and the handler of a function.
macro_rules! python_adapter {
    () => {
        concat!(
            include_str!("../../../../guests/python/asgi.py"),
            include_str!("../../../../guests/python/wsgi.py"),
            include_str!("../../../../guests/python/reached.py"),
            include_str!("../../../../guests/python/json_values.py"),
            include_str!("../../../../guests/python/request.py"),
            include_str!("../../../../guests/python/calls.py"),
            include_str!("../../../../guests/python/steps.py"),
            include_str!("../../../../guests/python/workflow.py"),
            include_str!("../../../../guests/python/http_event.py"),
            include_str!("../../../../guests/python/function.py")
        )
    };
}
const PYTHON_ADAPTER: &str = python_adapter!();
/// The template holds the adapter compiled, so that no instance has to.
const PYTHON_SOURCE: &str = concat!(
    "ADAPTER = r'''",
    python_adapter!(),
    "'''\n",
    include_str!("../../../../guests/python/lines.py"),
    include_str!("../../../../guests/python/failures.py"),
    include_str!("../../../../guests/python/channel.py"),
    include_str!("../../../../guests/python/output.py"),
    include_str!("../../../../guests/python/within.py"),
    include_str!("../../../../guests/python/callees.py"),
    include_str!("../../../../guests/python/at_once.py"),
    include_str!("../../../../guests/python/shared.py"),
    include_str!("../../../../guests/python/turns.py"),
    include_str!("../../../../guests/python/rest.py"),
    include_str!("../../../../guests/python/images.py"),
    include_str!("../../../../guests/python/models.py"),
    include_str!("../../../../guests/python/heap.py"),
    include_str!("../../../../guests/python/owned.py"),
    include_str!("../../../../guests/python/followers.py"),
    include_str!("../../../../guests/python/template.py")
);
/// In one scope: what a script declares at its top every other one sees. What stands between a
/// template and the handler of a function has another, and what it loads others with, which the
/// template takes from everybody else.
const NODE_SOURCE: &str = concat!(
    "(() => {'use strict';",
    "const ADAPTER = ((require) => {",
    include_str!("../../../../guests/node/loading.js"),
    include_str!("../../../../guests/node/values.js"),
    include_str!("../../../../guests/node/request.js"),
    include_str!("../../../../guests/node/calls.js"),
    include_str!("../../../../guests/node/http_event.js"),
    include_str!("../../../../guests/node/function.js"),
    "return { adapt };})(require);",
    include_str!("../../../../guests/node/lines.js"),
    include_str!("../../../../guests/node/within.js"),
    include_str!("../../../../guests/node/replaced.js"),
    include_str!("../../../../guests/node/failures.js"),
    include_str!("../../../../guests/node/template.js"),
    "})();"
);
const NODE_ADAPTER: &str = "Object.assign(exports, module.adapt(SETTINGS, (url) => import(url)));";
/// What comes before it where a function may reach hosts. Python and most
/// programs look at their environment for that.
const NODE_PROXY: &str = include_str!("../../../../guests/node/proxy.js");
/// What comes before it where a function may be debugged.
const PYTHON_DEBUGGER: &str = include_str!("../../../../guests/python/debugger.py");
const NODE_DEBUGGER: &str = include_str!("../../../../guests/node/debugger.js");
/// The native core, with what Python's values are mapped with.
const PYTHON_CORE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/template-python.so"));
/// The same with what Node needs.
const NODE_CORE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/template-node.so"));

/// The heap of functions: blocks of up to 32 MiB come from it, as far as the
/// C library would go by itself, and up to 16 MiB at its end are kept when
/// they are free. An instance of Python keeps more (`guests/python/rest.py`).
const HEAP: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=16777216";
/// Not -I: it would ignore the fixed hash seed. The environment holds nothing
/// else of Python's, and the template empties it.
const PYTHON_FLAGS: [&str; 7] = ["-s", "-P", "-B", "-X", "frozen_modules=on", "-c", PYTHON_LOADER];
/// What is run is read from a descriptor: arguments are for everybody to see,
/// and twenty thousand bytes of them hide the rest of the list of processes.
const PYTHON_LOADER: &str = "\
import os, sys
fd = int(sys.argv.pop(1))
source = compile(os.pread(fd, 1 << 24, 0), '<template>', 'exec')
if fd > 2: os.close(fd)
exec(source)
";
const NODE_LOADER: &str = "{
  const fs = require('fs'), fd = Number(process.argv.splice(1, 1)[0]);
  const source = fs.readFileSync(`/proc/self/fd/${fd}`, 'utf8');
  if (fd > 2) fs.closeSync(fd);
  require('vm').runInThisContext(source, { filename: '<template>' });
}";
/// Without work for threads of the engine's own (it makes one at least, which
/// the template ends), and with the same seeds at each start. An instance draws
/// its own.
const NODE_TEMPLATE_FLAGS: [&str; 5] = [
    "--single-threaded",
    "--v8-pool-size=1",
    "--random-seed=1",
    "--hash-seed=1",
    // What was compiled for the instances is kept.
    "--no-flush-bytecode",
];
/// Where an interpreter finds its core, and what it runs: always at the same, for what
/// it is told is in its heap before anything else.
const CORE_FD: i32 = 1;
const SOURCE_FD: i32 = 2;
/// Where interpreters that are scripts find programs.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const NODE_FLAGS: [&str; 3] = ["-e", NODE_LOADER, "--"];

impl Language {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Python, Self::Node, Self::Executable];
    /// Those that an interpreter has to be there for.
    pub const INTERPRETED: [Self; 2] = [Self::Python, Self::Node];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Node => "Node",
            Self::Executable => "executable",
        }
    }

    /// Its name in the images of functions.
    pub const fn runtime(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Executable => "executable",
        }
    }

    /// The one of a name in the images of functions.
    pub fn of_runtime(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.runtime() == name)
    }

    /// Further calls that an instance may be sent at most while it serves one: it comes to
    /// them afterwards.
    pub const fn calls_ahead(self) -> u32 {
        match self {
            Self::Python | Self::Node => 8,
            Self::Executable => 0,
        }
    }

    /// The signal on which an instance says where its main thread is, if it can.
    pub(crate) const fn where_signal(self) -> Option<i32> {
        match self {
            // `WHERE_SIGNAL` of `guests/python/failures.py`.
            Self::Python => Some(62),
            Self::Node | Self::Executable => None,
        }
    }

    /// What calls the handler of a function that is an image; the line with
    /// its settings comes before it, behind [`Self::settings_prefix`].
    pub(crate) const fn adapter(self) -> &'static str {
        match self {
            Self::Python => PYTHON_ADAPTER,
            Self::Node => NODE_ADAPTER,
            // It is in the init.
            Self::Executable => "",
        }
    }

    /// What has a function's requests go through the proxy, if it has one.
    pub(crate) const fn proxy(self) -> &'static str {
        match self {
            Self::Node => NODE_PROXY,
            Self::Python | Self::Executable => "",
        }
    }

    /// What lets debuggers in; nothing where there is no such thing.
    pub(crate) const fn debugger(self) -> &'static str {
        match self {
            Self::Python => PYTHON_DEBUGGER,
            Self::Node => NODE_DEBUGGER,
            Self::Executable => "",
        }
    }

    pub(crate) const fn settings_prefix(self) -> &'static str {
        match self {
            Self::Python | Self::Executable => "",
            Self::Node => "const ",
        }
    }

    /// The program that is looked for in `PATH` where no other is configured.
    pub const fn interpreter(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
            Self::Executable => "",
        }
    }

    /// What it must be at least, for people.
    pub(crate) const fn requirement(self) -> &'static str {
        match self {
            Self::Python => "Python 3.11 or later",
            Self::Node => "Node.js 20 or later",
            Self::Executable => "nothing",
        }
    }

    /// What stands in texts for the folders that the interpreter lies in.
    pub(crate) const fn placeholder(self) -> &'static str {
        match self {
            Self::Python => "<python>",
            Self::Node => "<node>",
            Self::Executable => "<executable>",
        }
    }

    /// The exception that means that there is no memory left.
    pub(crate) fn is_out_of_memory(self, kind: &str, message: &str) -> bool {
        match self {
            Self::Python => kind == "MemoryError",
            Self::Node => kind == "RangeError" && message == "Array buffer allocation failed",
            Self::Executable => false,
        }
    }

    /// Starts a template that imports nothing, and ends it: how functions would
    /// be served by this interpreter, in these containers.
    pub fn probe(self, interpreter: &Path, runtime: &Runtime) -> Serving {
        let options = FunctionsOptions {
            interpreter: interpreter.to_owned(),
            start_timeout: PROBE_TIMEOUT,
            ..FunctionsOptions::new(self)
        };
        let made = Starter::new(&options, runtime);
        let told = made.as_ref().map(|(starter, _)| match starter {
            Starter::Template(nursery) => nursery.template().map(|template| serving(&template.hello)),
            Starter::Cold(cold) => Ok(Serving::Cold { reason: cold.reason().to_owned() }),
        });
        match told {
            Ok(Ok(serving)) => serving,
            Ok(Err(reason)) => Serving::No { reason },
            Err(Error::Template { reason, .. }) => Serving::No { reason: reason.clone() },
            Err(error) => Serving::No { reason: error.to_string() },
        }
    }

    /// What an interpreter says of itself: starts one, which ends.
    ///
    /// # Errors
    /// Why it says nothing.
    pub fn facts(self, interpreter: &Path) -> Result<InterpreterFacts, String> {
        let options = FunctionsOptions {
            interpreter: interpreter.to_owned(),
            start_timeout: PROBE_TIMEOUT,
            ..FunctionsOptions::new(self)
        };
        let Unforkable { interpreter: program, version, abi, .. } =
            model(&options, Vec::new()).map_err(Refusal::reason)?;
        let maps_values = version.contains("maps values");
        let version = version.split(',').next().unwrap_or_default().to_owned();
        Ok(InterpreterFacts { program, version, abi, maps_values })
    }

    /// Whether this interpreter can import these modules: starts one that does,
    /// and ends it.
    ///
    /// # Errors
    /// Why not, with the module's name.
    pub fn loads(self, interpreter: &Path, imports: &[String]) -> Result<(), String> {
        let options = FunctionsOptions {
            interpreter: interpreter.to_owned(),
            imports: imports.to_vec(),
            start_timeout: LOAD_TIMEOUT,
            ..FunctionsOptions::new(self)
        };
        match Template::start(&options.template(None)) {
            // That nothing can be forked then is no matter of loading.
            Ok(_) | Err(Refusal::Fork(_)) => Ok(()),
            Err(Refusal::Serve(reason)) => Err(reason),
        }
    }

    pub(crate) const fn core(self) -> &'static [u8] {
        match self {
            Self::Python => PYTHON_CORE,
            Self::Node => NODE_CORE,
            Self::Executable => &[],
        }
    }

    /// What the interpreter runs.
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::Python => PYTHON_SOURCE,
            Self::Node => NODE_SOURCE,
            Self::Executable => "",
        }
    }

    /// The interpreter's arguments.
    fn arguments(self, role: Role, imports: &[String]) -> Vec<OsString> {
        let (first, flags): (&[&str], &[&str]) = match (self, role) {
            (Self::Executable, _) => return Vec::new(),
            (Self::Python, _) => (&[], &PYTHON_FLAGS),
            (Self::Node, Role::Template | Role::Model) => (&NODE_TEMPLATE_FLAGS, &NODE_FLAGS),
            (Self::Node, Role::Instance) => (&[], &NODE_FLAGS),
        };
        let role = match role {
            Role::Template => "template",
            Role::Model => "model",
            Role::Instance => "instance",
        };
        let mut arguments: Vec<OsString> = first.iter().chain(flags).map(OsString::from).collect();
        arguments.extend([SOURCE_FD.to_string().into(), role.into(), CORE_FD.to_string().into()]);
        arguments.extend(imports.iter().map(OsString::from));
        arguments
    }

    /// The interpreter as a program, with [`Self::core`] as standard output and
    /// [`Self::source`] as standard error; both are `/dev/null` afterwards.
    pub(crate) fn contained(
        self,
        role: Role,
        interpreter: &Path,
        packages: &[PathBuf],
        imports: &[String],
    ) -> Program {
        let mut program = Program::new(interpreter);
        program.arguments = self.arguments(role, imports);
        program.environment = self.environment(role, packages);
        program.directory = "/".into();
        program
    }

    /// All of the interpreter's environment. `packages` are the folders to
    /// look for modules in.
    fn environment(self, role: Role, packages: &[PathBuf]) -> Vec<(OsString, OsString)> {
        // Without a home, Python asks the system for the user's, and loads what it takes to.
        // Without a time zone the C library reads that of the host, where it sees it.
        let fixed = [("PATH", SYSTEM_PATH), ("HOME", "/tmp"), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC0")];
        let mut all: Vec<(OsString, OsString)> =
            fixed.map(|(name, value)| (name.into(), value.into())).into();
        let (searched, more) = match self {
            Self::Python => ("PYTHONPATH", vec![("PYTHONHASHSEED", "0".to_owned())]),
            // The library must come before the C library, to keep an advice
            // of the engine's from it.
            Self::Node if role != Role::Instance => {
                ("NODE_PATH", vec![("LD_PRELOAD", format!("/proc/self/fd/{CORE_FD}"))])
            }
            Self::Node => ("NODE_PATH", Vec::new()),
            Self::Executable => ("", Vec::new()),
        };
        all.extend(more.into_iter().map(|(name, value)| (name.into(), value.into())));
        if !packages.is_empty() {
            let folders: Vec<&Path> = packages.iter().map(PathBuf::as_path).collect();
            // A path with a colon in it cannot be said; it is not found then.
            all.push((searched.into(), std::env::join_paths(folders).unwrap_or_default()));
        }
        // Numeric libraries make their threads when they are loaded; with
        // threads nothing may be forked.
        for name in ["MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            all.push((name.into(), "1".into()));
        }
        // Arrow's allocator has a thread that tidies up, from its import on.
        all.push(("JE_ARROW_MALLOC_CONF".into(), "background_thread:false".into()));
        // What a call frees, the next finds in the heap. Otherwise the C library
        // gives large arrays back to the kernel as soon as they are freed, and
        // each 4 KiB of the next ones costs a page fault of 2 µs.
        all.push(("GLIBC_TUNABLES".into(), HEAP.into()));
        all
    }
}

/// What a template says of itself, for people.
fn serving(hello: &Hello) -> Serving {
    let Hello { version, layout, huge_pages, .. } = hello.clone();
    let refused = || std::io::Error::from_raw_os_error(huge_pages.saturating_neg()).to_string();
    let huge_pages = u32::try_from(huge_pages).map_err(|_| refused());
    Serving::Forked { version, layout, huge_pages }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::process::RuntimeOptions;

    #[test]
    fn an_interpreter_that_cannot_fork_would_serve_all_the_same() {
        let folder = std::env::temp_dir().join(format!("sinew-probe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // A thread that is there before anything is imported.
        let thread =
            "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n";
        std::fs::write(folder.join("sitecustomize.py"), thread).unwrap();
        let program = folder.join("python");
        let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", folder.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        let probe = |program: &str| Language::Python.probe(Path::new(program), &runtime);
        let cold = probe(program.to_str().unwrap());
        let (forked, none) = (probe("python3"), probe("/bin/true"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(&cold, Serving::Cold { reason } if reason.contains("thread")), "{cold:?}");
        assert!(
            matches!(&forked, Serving::Forked { version, .. } if version.contains("maps values")),
            "{forked:?}"
        );
        assert!(matches!(&none, Serving::No { reason } if reason.contains("Python 3.11")), "{none:?}");
    }
}
