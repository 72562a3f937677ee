// SPDX-License-Identifier: Apache-2.0
//! Build time is a figure of the project: it is printed by every full test run.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::progress::seconds;
use crate::{layout, process};

/// The file that a one-line change touches: the binary's entry.
const TOUCHED: &str = "crates/cli/src/main.rs";

/// What building costs.
pub(crate) struct BuildTimes {
    /// All crates and tests, if there was nothing before.
    pub(crate) clean: Option<Duration>,
    /// The binary, after one file changed.
    pub(crate) one_line: Duration,
    /// Packages in `Cargo.lock`, ours included.
    pub(crate) packages: usize,
}

/// `cargo xtask build-times`.
pub(crate) fn run() -> anyhow::Result<()> {
    println!("{}", measure()?);
    Ok(())
}

/// Builds everything that the tests need, and then the binary once more.
pub(crate) fn measure() -> anyhow::Result<BuildTimes> {
    // The engine's library is what takes longest; without it, nothing was built.
    let was_clean = !has_built("libwasmtime");
    let begun = Instant::now();
    process::run(process::cargo().args(["test", "--quiet", "--workspace", "--no-run"]))?;
    let clean = was_clean.then(|| begun.elapsed());
    process::run(process::cargo().args(["build", "--quiet", "-p", "cli"]))?;
    let file = fs::File::options().append(true).open(layout::root().join(TOUCHED))?;
    file.set_modified(SystemTime::UNIX_EPOCH + unix_now()?)?;
    let begun = Instant::now();
    process::run(process::cargo().args(["build", "--quiet", "-p", "cli"]))?;
    let one_line = begun.elapsed();
    let lock = fs::read_to_string(layout::root().join("Cargo.lock"))?;
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    Ok(BuildTimes { clean, one_line, packages })
}

#[expect(clippy::disallowed_methods, reason = "a file's age is in wall time")]
fn unix_now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

fn has_built(prefix: &str) -> bool {
    let built = fs::read_dir(layout::target().join("debug/deps")).into_iter().flatten().flatten();
    built.into_iter().any(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(".rlib"))
    })
}

impl std::fmt::Display for BuildTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.clean {
            Some(clean) => write!(f, "clean build {}", seconds(clean))?,
            None => f.write_str("clean build not measured (there was one)")?,
        }
        write!(f, ", one-line rebuild {}, {} packages in Cargo.lock", seconds(self.one_line), self.packages)
    }
}
