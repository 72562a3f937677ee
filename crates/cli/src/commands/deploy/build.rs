// SPDX-License-Identifier: Apache-2.0
//! The command that makes a function's code, run by the shell.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::exit::{Code, Stop};
use crate::manifest::Build;
use crate::output::Output;
use crate::quantity::human_time;

/// A build that takes longer is ended.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// How often it is looked whether it has ended.
const INTERVAL: Duration = Duration::from_millis(20);
/// What a process that outlives the build may still print.
const AFTERMATH: Duration = Duration::from_secs(1);
/// The last bytes of what it prints are shown if it fails.
const SHOWN_BYTES_MAX: usize = 16 << 10;

/// Ended when nobody waits for it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a program ended, and the last of what it printed, if it did not succeed.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) printed: String,
}

/// Runs a build to its end.
pub(in crate::commands) async fn run(
    name: &str,
    build: &Build,
    folder: &Path,
    output: &Output,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    output.say(&format!("building {name}: {}", build.command));
    let Ended { status, printed } = run_to_end(shell(build, folder), &format!("the build of {name}")).await?;
    if status.success() {
        output.say(&format!("built {name} in {}", human_time(begun.elapsed())));
        return Ok(());
    }
    let message = format!("the build of {name} failed ({status}): {}\n{}", build.command, printed.trim_end());
    let advice = format!("correct it, and try it by hand in {}; nothing was deployed", folder.display());
    Err(Stop::new(Code::Failed, message).suggest(advice).into())
}

/// Runs a program that makes something, without input, for as long as a build may take.
pub(crate) async fn run_to_end(mut command: Command, what: &str) -> anyhow::Result<Ended> {
    let begun = Instant::now();
    let (mut printed, writer) = std::io::pipe().context("a pipe for a program's output")?;
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let child = command.spawn();
    let shown = command.get_program().to_string_lossy().into_owned();
    // Its ends of the pipe are closed with it.
    drop(command);
    let mut running = Running(child.with_context(|| format!("{what}: `{shown}` cannot be started"))?);
    let tail = tokio::task::spawn_blocking(move || tail(&mut printed));
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if begun.elapsed() > TIME_MAX {
            let message = format!("{what} was ended after {}", human_time(TIME_MAX));
            return Err(Stop::new(Code::Deadline, message).suggest("run its command by hand").into());
        }
        tokio::time::sleep(INTERVAL).await;
    };
    if status.success() {
        return Ok(Ended { status, printed: String::new() });
    }
    let printed = tokio::time::timeout(AFTERMATH, tail).await;
    Ok(Ended { status, printed: printed.ok().and_then(Result::ok).unwrap_or_default() })
}

#[expect(clippy::disallowed_methods, reason = "the manifest's own command is what the user asked to be run")]
fn shell(build: &Build, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &build.command]);
    if !folder.as_os_str().is_empty() {
        command.current_dir(folder);
    }
    command
}

/// The end of what comes.
fn tail(reader: &mut impl Read) -> String {
    let mut kept = VecDeque::with_capacity(2 * SHOWN_BYTES_MAX);
    let mut chunk = [0; 4096];
    // An error ends it like an end.
    while let Ok(read @ 1..) = reader.read(&mut chunk) {
        kept.extend(&chunk[..read]);
        let over = kept.len().saturating_sub(SHOWN_BYTES_MAX);
        kept.drain(..over);
    }
    String::from_utf8_lossy(kept.make_contiguous()).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let printed = format!("{}the end", "x".repeat(100_000));
        let tail = super::tail(&mut printed.as_bytes());
        assert_eq!(tail.len(), super::SHOWN_BYTES_MAX);
        assert!(tail.ends_with("the end"));
    }
}
