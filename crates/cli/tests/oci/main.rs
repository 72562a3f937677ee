// SPDX-License-Identifier: Apache-2.0
//! The validation programs of opencontainers/runtime-tools, run against
//! `sinew oci`.
//!
//! They are a Go module, pinned in `validation/`; where Go or the module is
//! missing, or the test is not root, it says so and skips. A program prints
//! lines `ok` and `not ok`; some have known faults, which are listed with the
//! reason and fail with other runtimes too.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod walls;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

const MODULE: &str = "github.com/opencontainers/runtime-tools";
const AT_ONCE: usize = 4;

/// Programs all of whose checks hold.
const WHOLE: &[&str] = &[
    "config_updates_without_affect",
    "create",
    "default",
    "delete",
    "delete_only_create_resources",
    "delete_resources",
    "hostname",
    "kill",
    "kill_no_effect",
    "killsig",
    "linux_devices",
    "linux_masked_paths",
    "linux_ns_nopath",
    "linux_ns_path_type",
    "linux_readonly_paths",
    "linux_seccomp",
    "linux_sysctl",
    "linux_uid_mappings",
    "mounts",
    "process",
    "process_oom_score_adj",
    "process_user",
    "root_readonly_true",
    "state",
];

/// The same, where there are control groups of version 1.
const WHOLE_VERSION_1: &[&str] = &[
    "linux_cgroups_cpus",
    "linux_cgroups_devices",
    "linux_cgroups_pids",
    "linux_cgroups_relative_cpus",
    "linux_cgroups_relative_devices",
    "linux_cgroups_relative_pids",
];

/// Programs of which this many checks fail, and why.
const FAULTY: &[(&str, usize, &str)] = &[
    ("linux_ns_path", 1, "a mount namespace that is there already is refused"),
    ("misc_props", 1, "it runs a program that it does not put into its tree"),
    ("process_rlimits", 1, "it reads a limit that the Go program has raised itself"),
    ("start", 1, "it takes the error that it wants for one that it does not want"),
];

/// A program sends its signal before a shell is ready for it; and machines
/// are slow.
const TRIES: usize = 3;

/// The programs, built; or why there are none.
fn build() -> Result<(PathBuf, PathBuf), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci/validation");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oci-validation");
    fs::create_dir_all(&built).unwrap();
    let go = |arguments: &[&str]| -> Result<Output, String> {
        let mut go = Command::new("go");
        let run = go.current_dir(&source).env("CGO_ENABLED", "0").args(arguments).output();
        let output = run.map_err(|error| format!("Go cannot be run: {error}"))?;
        if output.status.success() {
            Ok(output)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    let to = format!("{}/", built.display());
    go(&["build", "-o", &to, "tool"])?;
    let module = go(&["list", "-m", "-f", "{{.Dir}}", MODULE])?;
    Ok((built, PathBuf::from(String::from_utf8_lossy(&module.stdout).trim())))
}

/// A program that is `sinew oci`, in a folder of its own.
fn runtime(folder: &Path) -> PathBuf {
    let script = folder.join("runtime");
    let sinew = env!("CARGO_BIN_EXE_sinew");
    let root = folder.join("containers");
    fs::write(&script, format!("#!/bin/sh\nexec {sinew} oci --root {} \"$@\"\n", root.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// The programs that look at control groups all want the one of the same name.
static GROUPS: Mutex<()> = Mutex::new(());

/// What one program says: checks that hold, checks that do not, and all of it.
fn validate(name: &str, built: &Path, module: &Path) -> (usize, usize, String) {
    let is_of_groups = name.starts_with("linux_cgroups_") || name.starts_with("delete_");
    let _alone = is_of_groups.then(|| GROUPS.lock().unwrap());
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(module).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("rootfs-") {
            fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    fs::copy(built.join("runtimetest"), folder.path().join("runtimetest")).unwrap();
    let mut program = Command::new(built.join(name));
    program.current_dir(folder.path()).env("RUNTIME", runtime(folder.path())).env("TMPDIR", folder.path());
    let output = program.stdin(Stdio::null()).output().unwrap();
    end_what_is_left(&folder.path().join("containers"));
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let count = |word: &str| text.lines().filter(|line| line.trim_start().starts_with(word)).count();
    (count("ok "), count("not ok "), text)
}

/// Some of the programs leave containers that were created and never started.
fn end_what_is_left(root: &Path) {
    for container in fs::read_dir(root).into_iter().flatten().flatten() {
        let mut delete = Command::new(env!("CARGO_BIN_EXE_sinew"));
        delete.args(["oci", "--root"]).arg(root).args(["delete", "--force"]).arg(container.file_name());
        _ = delete.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    end_who_was_told(root);
}

/// One that is half made cannot be deleted by name. If it has processes, they keep the control
/// group that others want; the folder is in their arguments.
fn end_who_was_told(root: &Path) {
    let root = root.to_str().unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&arguments).contains(root) {
            let pid = process.file_name();
            _ = Command::new("kill").arg("-9").arg(pid).stderr(Stdio::null()).status();
        }
    }
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("skipped: takes root");
    }
    is_root
}

#[test]
fn the_validations_of_runtime_tools_hold() {
    if !is_root() {
        return;
    }
    let (built, module) = match build() {
        Ok(built) => built,
        Err(reason) => {
            eprintln!("skipped: {MODULE} cannot be built: {reason}");
            return;
        }
    };
    let has_version_1 = Path::new("/sys/fs/cgroup/pids/tasks").exists();
    let of_version_1 = WHOLE_VERSION_1.iter().filter(|_| has_version_1);
    let whole = WHOLE.iter().chain(of_version_1).map(|name| (*name, 0));
    let queue: Mutex<Vec<(&str, usize)>> =
        Mutex::new(whole.chain(FAULTY.iter().map(|(name, faults, _)| (*name, *faults))).collect());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((name, faults)) = queue.lock().unwrap().pop() else { break };
                    let is_right =
                        |(holds, fails, _): &(usize, usize, String)| *fails == faults && *holds > 0;
                    let mut tries = (0..TRIES).map(|_| validate(name, &built, &module));
                    let mut last = tries.next().unwrap();
                    while !is_right(&last) {
                        match tries.next() {
                            Some(next) => last = next,
                            None => break,
                        }
                    }
                    eprintln!("{name}: {} hold, {} do not", last.0, last.1);
                    if !is_right(&last) {
                        failed.lock().unwrap().push(format!("{name}: {} checks fail\n{}", last.1, last.2));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
