// SPDX-License-Identifier: Apache-2.0
//! What a bundle's container cannot do, or cannot have done to the host.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::is_root;

/// A bundle with the host's programs, and the runtime for it.
struct World {
    folder: tempfile::TempDir,
    config: Value,
}

impl World {
    fn new(script: &str) -> Self {
        // Not in /tmp, for that the tree has an own one.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        let bind = |path: &&str| json!({"destination": path, "source": path, "options": ["rbind", "rro"]});
        let programs = ["/usr", "/bin", "/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists());
        let mut mounts: Vec<Value> = programs.map(|path| bind(&path)).collect();
        mounts
            .push(json!({"destination": "/proc", "type": "proc", "options": ["nosuid", "noexec", "nodev"]}));
        let kinds = ["mount", "pid", "network", "ipc", "uts"].map(|kind| json!({"type": kind}));
        let config = json!({
            "ociVersion": "1.0.2",
            "root": {"path": "tree"},
            "mounts": mounts,
            "process": {
                "args": ["/bin/sh", "-c", script],
                "env": ["PATH=/usr/bin:/bin"],
                "cwd": "/",
                "user": {"uid": 1000, "gid": 1000},
                "noNewPrivileges": true,
            },
            "linux": {"namespaces": kinds},
        });
        Self { folder, config }
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn operate(&self, operation: &[&str], stdout: Stdio) -> Result<(), String> {
        let mut runtime = Command::new(env!("CARGO_BIN_EXE_sinew"));
        runtime.args(["oci", "--root"]).arg(self.folder.path().join("containers")).args(operation);
        // Whatever the caller has open must not come to the program.
        let run = runtime.stdin(Stdio::null()).stdout(stdout).stderr(File::create(self.errors()).unwrap());
        if run.status().unwrap().success() { Ok(()) } else { Err(fs::read_to_string(self.errors()).unwrap()) }
    }

    fn errors(&self) -> PathBuf {
        self.folder.path().join("stderr")
    }

    fn create(&self) -> Result<(), String> {
        fs::write(self.folder.path().join("config.json"), self.config.to_string()).unwrap();
        let output = File::create(self.folder.path().join("stdout")).unwrap();
        let bundle = self.folder.path().display().to_string();
        self.operate(&["create", "--bundle", &bundle, &self.name()], output.into())
    }

    /// The container's name, and by that its control group's, which the whole machine has.
    fn name(&self) -> String {
        let folder = self.folder.path().file_name().unwrap();
        folder.to_string_lossy().replace('.', "c")
    }

    /// What the program prints, once it has ended.
    fn run(&self) -> String {
        self.create().unwrap();
        self.operate(&["start", &self.name()], Stdio::null()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.operate(&["delete", &self.name()], Stdio::null()).is_err() {
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::read_to_string(self.folder.path().join("stdout")).unwrap()
    }

    fn end(&self) {
        self.operate(&["delete", "--force", &self.name()], Stdio::null()).unwrap();
    }
}

#[test]
fn a_program_has_what_it_was_given_and_no_more() {
    if !is_root() {
        return;
    }
    let world =
        World::new("id -u; ls /proc/self/fd | wc -l; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status");
    let said: Vec<String> = world.run().split_whitespace().map(str::to_owned).collect();
    // Three streams, and the folder that `ls` reads.
    let expected =
        ["1000", "4", "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000", "NoNewPrivs:", "1"];
    assert_eq!(said, expected);
    assert!(
        fs::read_dir(world.folder.path().join("containers")).unwrap().next().is_none(),
        "nothing is left"
    );
}

#[test]
fn links_in_a_tree_lead_nowhere_else() {
    if !is_root() {
        return;
    }
    let mut world = World::new("true");
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    // The tree's own links point to the host, absolutely and by going up.
    symlink(outside.path(), world.tree().join("absolute")).unwrap();
    let up = Path::new("../../../../../../../..").join(outside.path().strip_prefix("/").unwrap());
    symlink(up, world.tree().join("upward")).unwrap();
    symlink(outside.path(), world.tree().join("dev")).unwrap();
    // The tree has places of the same names, to which they lead instead.
    let inside = world.tree().join(outside.path().strip_prefix("/").unwrap());
    fs::create_dir_all(&inside).unwrap();
    let mounts = world.config["mounts"].as_array_mut().unwrap();
    for place in ["/absolute/in", "/upward/by/steps", "../../../climbing"] {
        mounts.push(json!({"destination": place, "type": "tmpfs", "options": ["size=64k"]}));
    }
    world.create().unwrap();
    let found: Vec<_> = fs::read_dir(outside.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(found.is_empty(), "the host has {found:?}");
    assert!(inside.join("in").is_dir() && inside.join("by/steps").is_dir() && inside.join("null").exists());
    assert!(world.tree().join("climbing").is_dir());
    world.end();
}

#[test]
fn what_fails_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let mut world = World::new("true");
    world.config["process"]["args"] = json!(["/no/such/program"]);
    world.create().unwrap();
    let told = world.operate(&["start", &world.name()], Stdio::null()).unwrap_err();
    assert!(told.contains("/no/such/program: No such file"), "{told}");
    assert!(world.operate(&["start", &world.name()], Stdio::null()).is_err(), "it is not created any more");
    world.end();
    world.config["mounts"] = json!([{"destination": "/x", "type": "no-such-file-system"}]);
    let told = world.create().unwrap_err();
    assert!(told.contains("cannot mount /x"), "{told}");
    let told = world.operate(&["state", &world.name()], Stdio::null()).unwrap_err();
    assert!(told.contains(&format!("no container `{}`", world.name())), "{told}");
    world.config["mounts"] = json!([]);
    world.config["hooks"] = json!({"createRuntime": [{"path": "/bin/true"}]});
    assert!(world.create().unwrap_err().contains("hooks cannot be honoured"));
}
