// SPDX-License-Identifier: Apache-2.0
//! Parts of Rust's toolchain, of exactly the compiler's release: the library of the guests'
//! target, and the tool that reads what a program has counted.
//!
//! rustup adds them. Where there is no rustup, they come from the archive that
//! rustup takes them from, checked against the published hash, and are unpacked
//! beside the compiler. Debian's packages do not help: they fit Debian's own rustc only,
//! which is too old for us.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use super::{ARCHIVES, WASM_TARGET, packages};
use crate::layout;
use crate::process::{self, command};
use crate::progress::{self, step};

const HOST: &str = "https://static.rust-lang.org/dist";
/// Seconds of a download, at most: one that hangs is better begun again.
const DOWNLOAD_SECONDS: &str = "300";

/// A part of the toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Component {
    /// As archives are named, before release and target.
    name: &'static str,
    /// The target it is for, or of.
    target: String,
    /// What it is called inside of its archive.
    folder: String,
    /// What adds it by rustup.
    rustup: Vec<String>,
}

impl Component {
    /// Rust's library for a target.
    fn library(target: &str) -> Self {
        let rustup = ["target", "add", target].map(str::to_owned).to_vec();
        Self { name: "rust-std", target: target.to_owned(), folder: format!("rust-std-{target}"), rustup }
    }

    /// LLVM's own programs, for machines like this one.
    fn llvm_tools(host: &str) -> Self {
        let rustup = ["component", "add", "llvm-tools"].map(str::to_owned).to_vec();
        Self { name: "llvm-tools", target: host.to_owned(), folder: "llvm-tools-preview".to_owned(), rustup }
    }

    /// Adds it, unless it is there: what of it must exist below the sysroot.
    fn install(&self, needed: &Path) -> anyhow::Result<()> {
        if needed.exists() {
            return Ok(());
        }
        let sysroot = sysroot()?;
        let archive = Archive::of(self, &process::output(command("rustc").arg("-vV"))?)?;
        if process::succeeds(command("rustup").arg("--version")) {
            self.with_rustup().with_context(|| archive.advice(&sysroot))?;
        }
        // A rustup may stand beside a compiler that is not its own.
        if !needed.exists() {
            archive.add(&sysroot)?;
        }
        ensure!(needed.exists(), "{} came without {}", archive.name, needed.display());
        Ok(())
    }

    fn with_rustup(&self) -> anyhow::Result<()> {
        progress::note(format!("adding {} with rustup", self.folder));
        let mut add = command("rustup");
        add.args(&self.rustup).env("RUSTUP_DOWNLOAD_TIMEOUT", "60");
        process::run(&mut add)
    }
}

fn sysroot() -> anyhow::Result<PathBuf> {
    Ok(process::output(command("rustc").args(["--print", "sysroot"]))?.into())
}

/// Adds the guests' target.
pub(super) fn guest_target() -> anyhow::Result<()> {
    let library =
        process::output(command("rustc").args(["--print", "target-libdir", "--target", WASM_TARGET]))?;
    let library = Path::new(&library);
    if library.exists() {
        return Ok(());
    }
    Component::library(WASM_TARGET).install(library)?;
    check()
}

/// The program that puts counts together for the compiler, which must be of its release.
pub(super) fn profile_merger() -> anyhow::Result<PathBuf> {
    let host = process::host()?;
    let merger = sysroot()?.join("lib/rustlib").join(&host).join("bin/llvm-profdata");
    Component::llvm_tools(&host).install(&merger)?;
    Ok(merger)
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

/// The archive with a component for a release of the compiler.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    name: String,
    /// The component's folder in it.
    folder: String,
}

impl Archive {
    /// For the compiler that says this of itself when asked for its version.
    fn of(component: &Component, version: &str) -> anyhow::Result<Self> {
        let release = version.lines().find_map(|line| line.strip_prefix("release: "));
        let release = release.context("`rustc -vV` names no release")?;
        let is_stable =
            release.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        ensure!(
            is_stable,
            "rustc {release} is not a stable release; add {} as you installed it, or install a stable one",
            component.folder
        );
        let name = format!("{}-{release}-{}", component.name, component.target);
        Ok(Self { name, folder: component.folder.clone() })
    }

    fn url(&self) -> String {
        format!("{HOST}/{}.tar.xz", self.name)
    }

    /// Downloads it and unpacks it into the sysroot.
    fn add(&self, sysroot: &Path) -> anyhow::Result<()> {
        let probe = sysroot.join("lib/rustlib").join(&self.name);
        fs::create_dir_all(&probe)
            .with_context(|| format!("{} cannot be written to; {}", probe.display(), self.advice(sysroot)))?;
        // Empty, it would look as if something were there.
        fs::remove_dir(&probe)?;
        packages(ARCHIVES)?;
        step(&format!("adding {} from {}", self.folder, self.url()), || {
            let folder = layout::root().join("target").join(&self.name);
            fs::create_dir_all(&folder)?;
            self.fetch(&folder).with_context(|| self.advice(sysroot))?;
            process::run(self.unpack(sysroot).current_dir(&folder))?;
            Ok(fs::remove_dir_all(&folder)?)
        })
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
        tar.arg(format!("{}/{}/lib", self.name, self.folder));
        tar
    }

    /// The same by hand.
    fn advice(&self, sysroot: &Path) -> String {
        let (name, folder, url) = (&self.name, &self.folder, self.url());
        format!(
            "by hand, as who may write there: curl -fLO {url} && \
             echo \"$(curl -fL {url}.sha256 | cut -c-64)  {name}.tar.xz\" | sha256sum --check && \
             tar -xJf {name}.tar.xz -C {} --strip-components=2 {name}/{folder}/lib",
            sysroot.display()
        )
    }
}

#[cfg(test)]
mod tests;
