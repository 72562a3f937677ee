// SPDX-License-Identifier: Apache-2.0
//! The command that makes a function's code, run by the shell.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

/// Runs a build to its end.
pub(in crate::commands) async fn run(
    name: &str,
    build: &Build,
    folder: &Path,
    output: &Output,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    output.say(&format!("building {name}: {}", build.command));
    let (mut printed, writer) = std::io::pipe().context("a pipe for the build's output")?;
    let mut running = start(build, folder, writer)?;
    let tail = tokio::task::spawn_blocking(move || tail(&mut printed));
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if begun.elapsed() > TIME_MAX {
            let message = format!("the build of {name} was ended after {}", human_time(TIME_MAX));
            return Err(Stop::new(Code::Deadline, message).suggest("run its command by hand").into());
        }
        tokio::time::sleep(INTERVAL).await;
    };
    if status.success() {
        output.say(&format!("built {name} in {}", human_time(begun.elapsed())));
        return Ok(());
    }
    let printed = tokio::time::timeout(AFTERMATH, tail).await;
    let printed = printed.ok().and_then(Result::ok).unwrap_or_default();
    let message = format!("the build of {name} failed ({status}): {}\n{}", build.command, printed.trim_end());
    let advice = format!("correct it, and try it by hand in {}; nothing was deployed", folder.display());
    Err(Stop::new(Code::Failed, message).suggest(advice).into())
}

#[expect(clippy::disallowed_methods, reason = "the manifest's own command is what the user asked to be run")]
fn start(build: &Build, folder: &Path, writer: std::io::PipeWriter) -> anyhow::Result<Running> {
    let mut command = Command::new("sh");
    command.args(["-c", &build.command]).stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    if !folder.as_os_str().is_empty() {
        command.current_dir(folder);
    }
    command.spawn().map(Running).context("the shell `sh` cannot be started for the build")
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
