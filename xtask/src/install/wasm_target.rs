// SPDX-License-Identifier: Apache-2.0
//! The guests' target: Rust's library for wasm32, of exactly the compiler's release.
//!
//! rustup adds it. Where there is no rustup, it comes from the archive that
//! rustup takes it from, checked against the published hash, and is unpacked
//! beside the compiler. Debian's package `libstd-rust-dev-wasm32` does not
//! help: it fits Debian's own rustc only, which is too old for us.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::{ARCHIVES, WASM_TARGET, packages};
use crate::layout;
use crate::process::{self, command};
use crate::progress::{self, step};

const HOST: &str = "https://static.rust-lang.org/dist";
/// Seconds of a download, at most: one that hangs is better begun again.
const DOWNLOAD_SECONDS: &str = "300";

/// Adds the target, unless it is there.
pub(super) fn install() -> anyhow::Result<()> {
    let library =
        process::output(command("rustc").args(["--print", "target-libdir", "--target", WASM_TARGET]))?;
    let is_there = || Path::new(&library).exists();
    if is_there() {
        return Ok(());
    }
    let archive = Archive::of(&process::output(command("rustc").arg("-vV"))?)?;
    if process::succeeds(command("rustup").arg("--version")) {
        with_rustup().with_context(|| archive.advice(Path::new("$(rustc --print sysroot)")))?;
    }
    // A rustup may stand beside a compiler that is not its own.
    if !is_there() {
        from_archive(&archive)?;
    }
    check()
}

fn with_rustup() -> anyhow::Result<()> {
    progress::note(format!("adding {WASM_TARGET} with rustup"));
    let mut add = command("rustup");
    add.args(["target", "add", WASM_TARGET]);
    add.env("RUSTUP_DOWNLOAD_TIMEOUT", "60");
    process::run(&mut add)
}

fn from_archive(archive: &Archive) -> anyhow::Result<()> {
    let sysroot = process::output(command("rustc").args(["--print", "sysroot"]))?;
    let sysroot = Path::new(&sysroot);
    let target = sysroot.join("lib/rustlib").join(WASM_TARGET);
    fs::create_dir_all(&target)
        .with_context(|| format!("{} cannot be written to; {}", target.display(), archive.advice(sysroot)))?;
    // Empty, it would look as if the library were there.
    fs::remove_dir(&target)?;
    packages(ARCHIVES)?;
    step(&format!("adding {WASM_TARGET} from {}", archive.url()), || {
        let folder = layout::root().join("target/rust-std");
        fs::create_dir_all(&folder)?;
        archive.fetch(&folder).with_context(|| archive.advice(sysroot))?;
        process::run(archive.unpack(sysroot).current_dir(&folder))?;
        Ok(fs::remove_dir_all(&folder)?)
    })
}

/// A compiler that somebody else built may refuse the library of Rust's own.
fn check() -> anyhow::Result<()> {
    let source = layout::root().join("target/wasm-target-check.rs");
    fs::create_dir_all(layout::root().join("target"))?;
    fs::write(&source, "#![no_std]\n")?;
    let mut compile = command("rustc");
    compile.args(["--target", WASM_TARGET, "--crate-type", "rlib", "--emit", "metadata", "-o"]);
    compile.arg(source.with_extension("rmeta")).arg(&source);
    process::run(&mut compile).with_context(|| {
        format!("this rustc cannot use Rust's own library for {WASM_TARGET}; install Rust with rustup (https://rustup.rs)")
    })
}

/// The archive with the library for a release of the compiler.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    name: String,
}

impl Archive {
    /// For the compiler that says this of itself when asked for its version.
    fn of(version: &str) -> anyhow::Result<Self> {
        let release = version.lines().find_map(|line| line.strip_prefix("release: "));
        let release = release.context("`rustc -vV` names no release")?;
        let is_stable =
            release.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        ensure!(
            is_stable,
            "rustc {release} is not a stable release; add {WASM_TARGET} as you installed it, or install a stable one"
        );
        Ok(Self { name: format!("rust-std-{release}-{WASM_TARGET}") })
    }

    fn url(&self) -> String {
        format!("{HOST}/{}.tar.xz", self.name)
    }

    /// Downloads it into a folder, with its published hash, and compares.
    fn fetch(&self, folder: &Path) -> anyhow::Result<()> {
        for url in [self.url(), format!("{}.sha256", self.url())] {
            let mut curl = command("curl");
            curl.current_dir(folder).args(["-sSfLO", "--retry", "2", "--max-time", DOWNLOAD_SECONDS, &url]);
            process::run(&mut curl)?;
        }
        self.verify(folder)
    }

    /// The published file begins with the hash; a name may follow it.
    fn verify(&self, folder: &Path) -> anyhow::Result<()> {
        let file = format!("{}.tar.xz", self.name);
        let published = fs::read_to_string(folder.join(format!("{file}.sha256")))?;
        let found = process::output(command("sha256sum").current_dir(folder).arg(&file))?;
        let first = |text: &str| text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        if first(&found).len() != 64 || first(&found) != first(&published) {
            bail!("{} does not have the hash that is published beside it", self.url());
        }
        Ok(())
    }

    /// What puts the library, and nothing else, into the sysroot.
    fn unpack(&self, sysroot: &Path) -> std::process::Command {
        let mut tar = command("tar");
        tar.arg("-xJf").arg(format!("{}.tar.xz", self.name)).arg("-C").arg(sysroot);
        tar.args(["--strip-components=2", "--no-same-owner"]);
        tar.arg(format!("{}/rust-std-{WASM_TARGET}/lib", self.name));
        tar
    }

    /// The same by hand.
    fn advice(&self, sysroot: &Path) -> String {
        let (name, url) = (&self.name, self.url());
        format!(
            "by hand, as who may write there: curl -fLO {url} && \
             echo \"$(curl -fL {url}.sha256 | cut -c-64)  {name}.tar.xz\" | sha256sum --check && \
             tar -xJf {name}.tar.xz -C {} --strip-components=2 {name}/rust-std-{WASM_TARGET}/lib",
            sysroot.display()
        )
    }
}

#[cfg(test)]
mod tests;
