// SPDX-License-Identifier: Apache-2.0
//! `make test-unified`: do containers hold on a kernel that has control groups of
//! version 2 alone?
//!
//! Where those of version 1 are mounted, as on many build machines, version 2 has
//! no controllers left, so that a kernel of its own has to run: Debian's, in an
//! emulated machine without a network, whose files are the suites of sandboxes,
//! the interpreters and what these load. Its first process runs the
//! suites and switches the machine off; what they print comes over its serial line.

mod image;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::progress::{note, step};
use crate::{install, layout, process};

/// Debian's kernel for virtual machines: the package that names the current one.
const KERNEL: &str = "linux-image-cloud-amd64";
/// What the machine is given. An emulator keeps only what is touched.
const MEMORY: &str = "6G";
/// Seconds that all may take: emulated processors are ten times slower.
const SECONDS_MAX: &str = "1800";
/// What the first process says when every suite has passed.
const PASSED: &str = "machine: all suites passed";
/// The suites that are run in it.
const SUITES: [&str; 2] = ["containers", "functions"];

/// Builds the machine and runs it, showing what it says.
pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "the machine that is emulated has an x86-64 processor");
    install::emulator()?;
    let folder = layout::target().join("machine");
    std::fs::create_dir_all(&folder)?;
    let kernel = kernel(&folder)?;
    let suites = step("building the suites", built_suites)?;
    let files = step("packing what the machine has", || image::pack(&folder, &suites))?;
    let disk = image::disk(&folder)?;
    step("an emulated machine with control groups of version 2", || {
        let (mut has_passed, mut is_off) = (false, false);
        let mut emulator = emulator(&kernel, &files, &disk);
        // However long it is silent: `timeout` ends it.
        let has_ended = process::watch(&mut emulator, Duration::MAX, |line| {
            has_passed |= line.trim_end() == PASSED;
            is_off |= line.contains("reboot: Power down");
        })?;
        ensure!(has_ended, "the emulator failed, or all took longer than {SECONDS_MAX} s");
        match (has_passed, is_off) {
            (true, _) => Ok(()),
            (false, true) => bail!("a suite failed in the machine: see above"),
            (false, false) => bail!("the machine stopped before its suites had ended: see above"),
        }
    })
}

/// The kernel's file, fetched once for each version that Debian has.
fn kernel(folder: &Path) -> anyhow::Result<PathBuf> {
    let told = process::output(process::command("apt-cache").args(["depends", KERNEL]))?;
    let named = |line: &str| Some(line.trim().strip_prefix("Depends: ")?.to_owned());
    let package = told.lines().find_map(named).with_context(|| format!("{KERNEL} names no kernel"))?;
    let version = package.strip_prefix("linux-image-").unwrap_or(&package);
    let file = folder.join(&package).join("boot").join(format!("vmlinuz-{version}"));
    if !file.exists() {
        step(&format!("fetching {package} from Debian"), || {
            process::run(
                process::command("apt-get").args(["download", "-qq", &package]).current_dir(folder),
            )?;
            let is_it = |name: &str| name.starts_with(&format!("{package}_"));
            let names = std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
            let found = names.filter_map(|name| name.into_string().ok()).find(|name| is_it(name));
            let archive = folder.join(found.context("apt-get has left no package")?);
            process::run(process::command("dpkg-deb").arg("-x").args([&archive, &folder.join(&package)]))?;
            Ok(std::fs::remove_file(archive)?)
        })?;
    }
    note(file.display());
    Ok(file)
}

/// The programs of the suites, with the features that all tests are built with.
fn built_suites() -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--quiet", "--message-format=json"]);
    cargo.args(SUITES.iter().flat_map(|suite| ["--test", suite]));
    let said = process::output(&mut cargo)?;
    let program = |suite: &'static str| {
        let named = format!("\"kind\":[\"test\"],\"crate_types\":[\"bin\"],\"name\":\"{suite}\"");
        let line = said.lines().find(|line| line.contains(&named) && line.contains("crates/sandbox"));
        let path = line.and_then(|line| line.split("\"executable\":\"").nth(1)?.split('"').next());
        Ok((suite, PathBuf::from(path.with_context(|| format!("cargo built no suite {suite}"))?)))
    };
    SUITES.into_iter().map(program).collect()
}

fn emulator(kernel: &Path, files: &Path, disk: &Path) -> std::process::Command {
    let mut emulator = process::command("timeout");
    emulator.args(["--kill-after=10", SECONDS_MAX, "qemu-system-x86_64", "-machine", "q35", "-cpu", "max"]);
    emulator.args(["-smp", "2", "-m", MEMORY, "-nodefaults", "-no-user-config", "-display", "none"]);
    emulator.args(["-serial", "stdio", "-no-reboot", "-nic", "none", "-kernel"]).arg(kernel);
    emulator.arg("-initrd").arg(files);
    let drive = format!("file={},if=none,id=disk,format=raw,cache=unsafe", disk.display());
    emulator.args(["-drive", &drive, "-device", "nvme,drive=disk,serial=sinew"]);
    // A machine without control groups of version 1: none is left for it to mount.
    emulator.args(["-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all lsm=landlock,yama"]);
    emulator.stdin(std::process::Stdio::null());
    emulator
}
