// SPDX-License-Identifier: Apache-2.0
//! Instances without a template: an interpreter that is started in each
//! container, for modules after whose import nothing can be forked.
//!
//! What it takes longer to start is hidden by starting it in advance: such
//! instances wait as [`Blanks`](super::blanks::Blanks). All else is as for a
//! forked one: the channel, the function's rights, and what outlives a call.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linux::Exit;

use super::container::{Process, Program};
use super::language::{Language, Role};
use super::options::Interpreter;
use super::place::Place;
use super::template::{Ended, Unforkable, Watch};

/// How often the thread that waits for an end looks whether there is one; the
/// end itself wakes it.
const HEARTBEAT: Duration = Duration::from_secs(600);

/// How an interpreter is started in a container.
pub(crate) struct Cold {
    language: Language,
    program: Program,
    unforkable: Unforkable,
}

/// Why executables are not forked.
const EXECUTED: &str = "an executable is started, not forked";

impl Cold {
    /// What is started for an executable: no interpreter, but its adapter.
    pub(crate) fn adapter() -> Self {
        let mut program = Program::adapter();
        program.directory = "/".into();
        let unforkable = Unforkable {
            reason: EXECUTED.to_owned(),
            interpreter: PathBuf::new(),
            version: String::new(),
            abi: String::new(),
            prefixes: Vec::new(),
        };
        Self { language: Language::Executable, program, unforkable }
    }

    pub(crate) fn new(
        language: Language,
        unforkable: Unforkable,
        packages: &[PathBuf],
        imports: &[String],
    ) -> Self {
        let mut program = language.contained(Role::Instance, &unforkable.interpreter, packages, imports);
        program.environment.push(("TMPDIR".into(), "/tmp".into()));
        Self { language, program, unforkable }
    }

    /// Why nothing is forked.
    pub(crate) fn reason(&self) -> &str {
        &self.unforkable.reason
    }

    pub(crate) fn interpreter(&self) -> Interpreter {
        let Unforkable { interpreter, prefixes, .. } = &self.unforkable;
        Interpreter { program: interpreter.clone(), prefixes: prefixes.clone() }
    }

    pub(crate) fn prefixes(&self) -> &[PathBuf] {
        &self.unforkable.prefixes
    }

    /// Starts one. Its first word on `channel` says that it has imported all.
    pub(crate) fn start(
        &self,
        place: &dyn Place,
        channel: UnixStream,
        watch: &Arc<Watch>,
    ) -> Result<(), String> {
        let core = linux::memory_file("template", self.language.core());
        let core = core.map_err(|error| format!("no memory for its library: {error}"))?;
        let source = linux::memory_file("source", self.language.source().as_bytes());
        let source = source.map_err(|error| format!("no memory for its source: {error}"))?;
        let process = place.run(&self.program, [OwnedFd::from(channel), core, source])?;
        let watch = watch.clone();
        let waiting = std::thread::Builder::new().name("cold instance".to_owned());
        let waiting = waiting.spawn(move || watch.end(wait(process)));
        // The thread ends with the process, and the process with its container.
        waiting.map(drop).map_err(|error| format!("no thread to wait for it: {error}"))
    }
}

fn wait(mut process: Process) -> Ended {
    loop {
        match process.wait(HEARTBEAT) {
            Ok(None) => {}
            Ok(Some(Exit::Code(code))) => return Ended::Exited(code),
            Ok(Some(Exit::Signal(signal))) => return Ended::Signalled(signal),
            // It could not be executed, or the container is broken; its
            // channel is closed in either case.
            Err(_) => return Ended::Exited(127),
        }
    }
}
