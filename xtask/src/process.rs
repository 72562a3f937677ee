// SPDX-License-Identifier: Apache-2.0
//! Running other programs; the one place in the project's own tools that does.
//!
//! A program that fails is an error that names the whole command line.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::layout;
use crate::progress::seconds;

/// A command in the repository's root.
#[expect(clippy::disallowed_methods, reason = "starting compilers and package managers is what xtask is for")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(layout::root());
    command
}

/// The cargo that runs this, without what it told this process about itself.
pub(crate) fn cargo() -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_own =
            name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR");
        if is_own {
            command.env_remove(name);
        }
    }
    command
}

/// What the compiler calls this machine.
pub(crate) fn host() -> anyhow::Result<String> {
    let told = output(command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV tells no host")?.to_owned())
}

/// Runs it with this process's output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| describe(command))?;
    if !status.success() {
        bail!("{} ended with {status}", describe(command));
    }
    Ok(())
}

/// Runs it and returns what it printed on stdout, without the last line's end.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    Ok(String::from_utf8(output_bytes(command)?)?.trim_end().to_owned())
}

/// Runs it and returns what it wrote to stdout.
pub(crate) fn output_bytes(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| describe(command))?;
    if !output.status.success() {
        bail!("{} ended with {}", describe(command), output.status);
    }
    Ok(output.stdout)
}

/// Whether it can be started and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Runs it, shows its stdout line by line, and gives each line to `look` as well. What prints nothing for as long as
/// `silence` hangs, which is an error: it is ended with what it has started, but for what a parent that has ended has left.
pub(crate) fn watch(
    command: &mut Command,
    silence: Duration,
    mut look: impl FnMut(&str),
) -> anyhow::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| describe(command))?;
    let lines = lines_of(child.stdout.take().context("its output is not piped")?)?;
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                println!("{line}");
                look(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?.success()),
            Err(RecvTimeoutError::Timeout) => {
                end_with_descendants(&mut child)?;
                bail!("{} printed nothing for {}, and was ended", describe(command), seconds(silence));
            }
        }
    }
}

/// The lines of what a program prints, as they come.
fn lines_of(stdout: ChildStdout) -> anyhow::Result<Receiver<String>> {
    let (sender, lines) = mpsc::sync_channel(1024);
    let thread = std::thread::Builder::new().name("lines".to_owned());
    // Read by a thread, since a pipe can be waited for only without an end.
    thread.spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                // Whoever holds the pipe may do so longer than anybody listens.
                return;
            }
        }
    })?;
    Ok(lines)
}

/// Those that it has started have to be found before it has ended: they are somebody else's then.
fn end_with_descendants(child: &mut Child) -> anyhow::Result<()> {
    let mut found = vec![child.id()];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        at += 1;
        let tasks = format!("/proc/{parent}/task");
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    succeeds(command("kill").arg("-KILL").args(found.iter().map(u32::to_string)));
    child.wait()?;
    Ok(())
}

/// A program that runs beside this one and is ended with it, whatever happens.
pub(crate) struct Background(Child);

impl Background {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).spawn().with_context(|| describe(command))?))
    }

    /// Asks it to end, and waits: it must end well, and by itself.
    pub(crate) fn end(mut self, patience: Duration) -> anyhow::Result<()> {
        run(command("kill").arg(self.0.id().to_string()))?;
        let begun = std::time::Instant::now();
        loop {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("what ran in the background ended with {status}"),
                None if begun.elapsed() > patience => {
                    bail!("what ran in the background did not end within {} s", patience.as_secs());
                }
                None => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            // Its id may be another one's by now.
            return;
        }
        // By its own id: asked first, then made to end.
        let asked = succeeds(command("kill").arg(self.0.id().to_string()));
        for _ in 0..50 {
            if !asked || !matches!(self.0.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("`{}`", line.join(" "))
}
