// SPDX-License-Identifier: Apache-2.0
//! `compile`: a C library of more than 500 files, by a clang that is a program for WASI: `sinew map`
//! on a node of its own, against `make -j` that runs the same clang in plain wasmtime for each file, and
//! against one that runs the machine's own, which is native code.
//!
//! The files are LibTomCrypt's and LibTomMath's. Both ways have their
//! compiled clang before they begin, and the node a new seed in each round, so that nothing is
//! remembered. In the end the objects are linked inside of the node, by that clang's
//! linker, and the program that comes of it hashes, encrypts, signs and verifies there.

mod peer;
mod sources;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::figures::{Report, median};
use peer::Peer;
use sources::Sources;

const ROUNDS: usize = 2;
const AGAIN: usize = 5;
/// What the compiler is told in both ways.
const FLAGS: [&str; 8] = [
    "-c",
    "-O2",
    "-DLTM_DESC",
    "-DUSE_LTM",
    "-DLTC_SOURCE",
    "-D_WASI_EMULATED_SIGNAL",
    "-Iltc/src/headers",
    "-Iltm",
];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let sources = Sources::get()?;
    let mut peer = report.peer("make with wasmtime", || Peer::wasmtime(&sources));
    let mut native = report.spare_peer("make with native clang", || Peer::native(&sources));
    let ours = Ours::start(&sources)?;
    eprintln!("  {} files", sources.files.len());
    let (mut cold, mut made, mut made_native) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mapped = ours.map(&format!("{round}"))?;
        ensure!(mapped.run == sources.files.len() as u64, "{} of the files were run", mapped.run);
        cold.push(mapped.seconds);
        if let Some(peer) = &mut peer {
            made.push(peer.make()?);
        }
        if let Some((native, _)) = &mut native {
            made_native.push(native.make()?);
        }
    }
    let again: Result<Vec<Mapped>, _> = (0..AGAIN).map(|_| ours.map("0")).collect();
    let again = again?;
    ensure!(again.iter().all(|mapped| mapped.run == 0), "what nothing changed in was run again");
    let changed = sources.change(&ours.folder)?;
    let after = ours.map("0")?;
    eprintln!("  {} was changed", changed.display());
    let (cold, again) = (median(cold), median(again.iter().map(|mapped| mapped.seconds).collect()));
    report.add("cold_s", cold, "s", "sinew map, all files", ROUNDS);
    report.add("second_run_s", again, "s", "the same again", AGAIN);
    report.add("second_run_over_cold", again / cold, "x", "", AGAIN);
    report.add("files_recompiled_after_one_change", after.run as f64, "count", "", 1);
    report.add("one_change_s", after.seconds, "s", "the run that compiled it", 1);
    if !made.is_empty() {
        let n = made.len();
        let made = median(made);
        report.add("make_same_clang_s", made, "s", "make -j2, wasmtime", n);
        report.add("over_make_j2_same_clang", cold / made, "x", "make -j2, wasmtime", n);
    }
    if let Some((_, version)) = native {
        let n = made_native.len();
        let made = median(made_native);
        report.add("make_native_clang_s", made, "s", "make -j2, native", n);
        report.add("over_make_j2_native_clang", cold / made, "x", &version, n);
    }
    let (linked, tested) = ours.link()?;
    report.add("link_s", linked, "s", "wasm-ld inside, of the tree of objects", 1);
    report.add("program_s", tested, "s", "the program that was linked: a hash, a cipher and a signature", 1);
    report.note(
        "sinew map is a command beside a node: hashing the sources and writing the objects is in its time",
    );
    Ok(())
}

/// What one `sinew map` took and did.
struct Mapped {
    seconds: f64,
    run: u64,
}

/// A node, and a copy of the sources for it.
struct Ours {
    node: Child,
    sinew: PathBuf,
    /// Where the sources are, and the home.
    folder: PathBuf,
    home: PathBuf,
}

impl Ours {
    #[expect(clippy::disallowed_methods, reason = "the command is what is measured")]
    fn start(sources: &Sources) -> anyhow::Result<Self> {
        let sinew = std::env::current_exe()?.with_file_name("sinew");
        ensure!(sinew.exists(), "{} is missing; run it by `cargo xtask bench compile`", sinew.display());
        let home = sources.root.join("home");
        let folder = sources.copy("ours")?;
        let mut up = Command::new(&sinew);
        up.args(["up", "--listen", "off", "--memory", "8GiB", "--home"]).arg(&home);
        let node = up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let ours = Self { node, sinew, folder, home };
        let begun = Instant::now();
        while ours.sinew(&["list"]).is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(60), "the node is not ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("  compiling clang, which takes minutes where it was not done before");
        let llvm = sources.llvm.display().to_string();
        ours.sinew(&["put", "--label", "llvm", &llvm])?;
        ours.sinew(&["run", "#llvm", "--memory", "1GiB", "--", "clang", "--version"])?;
        Ok(ours)
    }

    #[expect(clippy::disallowed_methods, reason = "the command is what is measured")]
    fn sinew(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.sinew);
        let told =
            command.args(arguments).current_dir(&self.folder).env("SINEW_HOME", &self.home).output()?;
        let said = String::from_utf8_lossy(&told.stderr);
        ensure!(told.status.success(), "sinew {}: {said}", arguments.first().unwrap_or(&""));
        Ok(String::from_utf8(told.stdout)?)
    }

    fn map(&self, seed: &str) -> anyhow::Result<Mapped> {
        // Another run of the bench has other seeds.
        let seed = format!("{} {seed}", std::process::id());
        let mut arguments = vec!["map", "#llvm", "ltc/src/**/*.c", "main/*.c", "ltm/*.c"];
        arguments.extend(["--exclude", "ltc/src/**/*tab.c", "--with", "ltc/src/**/*tab.c"]);
        arguments.extend(["--with", "ltc/src/headers/*.h", "--with", "ltm/*.h", "--dir", "usr=/usr:ro"]);
        arguments.extend([
            "--seed", &seed, "--memory", "1GiB", "--out", "obj", "--label", "obj", "-o", "json", "--",
        ]);
        arguments.push("clang");
        arguments.extend(FLAGS);
        arguments.extend(["{}", "-o", "/out/{.}.o"]);
        let begun = Instant::now();
        let told = self.sinew(&arguments)?;
        let seconds = begun.elapsed().as_secs_f64();
        let last = told.lines().last().context("it told nothing")?;
        let summary: Value = serde_json::from_str(last)?;
        let run = summary["summary"]["run"].as_u64().context("it told no summary")?;
        Ok(Mapped { seconds, run })
    }

    /// Seconds to link all objects, and to run what came of it.
    fn link(&self) -> anyhow::Result<(f64, f64)> {
        let objects = sources::objects(&self.folder.join("obj"))?;
        let objects: Vec<String> = objects.iter().map(|path| format!("/obj/{}", path.display())).collect();
        let mut arguments =
            vec!["run", "#llvm", "--memory", "2GiB", "--dir", "#obj=/obj:ro", "--dir", "usr=/usr:ro"];
        arguments.extend(["--dir", "bin=/bin", "--write-back", "--", "wasm-ld", "-L/usr/lib/wasm32-wasip1"]);
        arguments.push("/usr/lib/wasm32-wasip1/crt1-command.o");
        arguments.extend(objects.iter().map(String::as_str));
        arguments.extend(["-lc", "-lwasi-emulated-signal", "-lwasi-emulated-process-clocks"]);
        arguments.push("/usr/lib/wasm32-unknown-wasip1/libclang_rt.builtins.a");
        arguments.extend(["-o", "/bin/main.wasm"]);
        std::fs::create_dir_all(self.folder.join("bin"))?;
        let begun = Instant::now();
        self.sinew(&arguments)?;
        let linked = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let said = self.sinew(&["run", "bin/main.wasm"])?;
        ensure!(said == sources::SAID, "the program that was linked said {said:?}");
        Ok((linked, begun.elapsed().as_secs_f64()))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        _ = self.node.kill();
        _ = self.node.wait();
    }
}
