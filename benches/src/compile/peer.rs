// SPDX-License-Identifier: Apache-2.0
//! `make -j` with a process for each file, which runs the same clang in plain wasmtime, or
//! the clang of the machine.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::FLAGS;
use super::sources::Sources;
use crate::coldstart::installed;

const PACKAGES: [&str; 1] = ["wasmtime==48.0.0"];
const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/wasmtime_run.c");
/// Debian's clang of the version that is a program for WASI here; `cargo xtask bench` installs it.
const NATIVE: &str = "clang-22";

pub(super) struct Peer {
    folder: PathBuf,
    jobs: usize,
}

impl Peer {
    /// The same clang, in wasmtime.
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn wasmtime(sources: &Sources) -> anyhow::Result<Self> {
        let python = installed("bench-wasmtime", &PACKAGES, "import wasmtime")?;
        let told =
            Command::new(&python).args(["-c", "import wasmtime; print(wasmtime.__path__[0])"]).output()?;
        let package = PathBuf::from(String::from_utf8(told.stdout)?.trim());
        let library = package.join(format!("linux-{}/_libwasmtime.so", std::env::consts::ARCH));
        let runner = sources.root.join("wasmtime_run");
        let told = Command::new("cc").args(["-O1", "-o"]).arg(&runner).arg(RUNNER).arg(&library).output();
        let told = told.context("cc cannot be run; apt-get install gcc")?;
        ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let code = sources.root.join("llvm.cwasm");
        if !code.exists() {
            eprintln!("  compiling clang by wasmtime, which takes minutes");
            let partial = code.with_extension("partial");
            let told = Command::new(&runner).arg("--compile").arg(&sources.llvm).arg(&partial).output()?;
            ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            std::fs::rename(&partial, &code)?;
        }
        Self::of(sources, "peer", |flags| {
            format!("{} {} usr=/usr .=/ -- clang {flags} $< -o /$@", runner.display(), code.display())
        })
    }

    /// The machine's own clang, told to make the same objects, and which it is.
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn native(sources: &Sources) -> anyhow::Result<(Self, String)> {
        let told = Command::new(NATIVE).arg("--version").output();
        let told = told.with_context(|| format!("{NATIVE} cannot be run; apt-get install {NATIVE}"))?;
        let version = String::from_utf8_lossy(&told.stdout).lines().next().unwrap_or(NATIVE).to_owned();
        let peer = Self::of(sources, "native", |flags| {
            format!("{NATIVE} --target=wasm32-wasip1 --sysroot=usr {flags} $< -o $@")
        })?;
        Ok((peer, version))
    }

    /// `compile` makes the command of the flags.
    fn of(sources: &Sources, name: &str, compile: impl Fn(&str) -> String) -> anyhow::Result<Self> {
        let folder = sources.copy(name)?;
        std::fs::write(folder.join("Makefile"), makefile(sources, &compile(&FLAGS.join(" "))))?;
        Ok(Self { folder, jobs: linux::available_cpus().map_or(1, |cpus| cpus.len()) })
    }

    /// Seconds that all of it takes.
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn make(&mut self) -> anyhow::Result<f64> {
        _ = std::fs::remove_dir_all(self.folder.join("obj"));
        let begun = Instant::now();
        let mut make = Command::new("make");
        let told = make
            .arg("-s")
            .arg(format!("-j{}", self.jobs))
            .current_dir(&self.folder)
            .env_remove("MAKEFLAGS")
            .output();
        let told = told.context("make cannot be run; apt-get install make")?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(told.status.success(), "make: {}", String::from_utf8_lossy(&told.stderr));
        Ok(seconds)
    }
}

fn makefile(sources: &Sources, compile: &str) -> String {
    let objects = sources.files.iter().map(|file| format!("obj/{}", file.with_extension("o").display()));
    let objects: Vec<String> = objects.collect();
    format!("all: {}\nobj/%.o: %.c\n\t@mkdir -p $(@D)\n\t@{compile}\n", objects.join(" "))
}
