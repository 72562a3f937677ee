// SPDX-License-Identifier: Apache-2.0
//! A node that is not root: functions run in user namespaces, with fewer
//! limits, and it says which.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Node;
use super::requirements::run_what_brings;

/// A user that no account has.
const USER: u32 = 64_242;
/// Where interpreters are that everybody may run.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";

/// A folder that the user can reach and owns, with the program in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        // Containers have a /tmp of their own.
        let folder = PathBuf::from(format!("/var/tmp/sinew-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("home")).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_sinew"), folder.join("sinew")).unwrap();
        std::os::unix::fs::chown(folder.join("home"), Some(USER), Some(USER)).unwrap();
        Self(folder)
    }

    /// The program, as that user.
    fn sinew(&self) -> Command {
        let mut command = Command::new(self.0.join("sinew"));
        command.uid(USER).gid(USER).env("PATH", SYSTEM).current_dir("/");
        command
    }

    fn node(&self) -> (Node, Value) {
        let home = self.0.join("home");
        let mut up = self.sinew();
        up.args(["up", "-o", "json", "--workers", "2", "--memory", "1GiB", "--listen", "127.0.0.1:0"]);
        let mut child =
            up.arg("--home").arg(&home).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["address"].as_str().unwrap().trim_start_matches("http://").to_owned();
        (Node { child, address, home }, ready)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why there can be no such node here.
fn missing() -> Option<&'static str> {
    let own = std::fs::metadata("/proc/self").unwrap();
    let is_on = |file: &str| std::fs::read_to_string(file).map_or(true, |text| text.trim() != "0");
    let has_python = Path::new("/usr/bin/python3").exists() && Path::new("/usr/bin/node").exists();
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return Some("becoming another user takes root");
    }
    if !is_on("/proc/sys/user/max_user_namespaces") || !is_on("/proc/sys/kernel/unprivileged_userns_clone") {
        return Some("user namespaces are off");
    }
    (!has_python).then_some("there is no interpreter for all users")
}

/// What code sees, tries and is refused.
const PROBE: &str = r#"
import os, socket, sys, time

def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return f"refused {error.errno}"
    except MemoryError:
        return "no memory"

def forks():
    count = 0
    try:
        while count < 500:
            if os.fork() == 0:
                time.sleep(100)
            count += 1
    except OSError:
        pass
    return count

def handler(event):
    if event["do"] == "look":
        return {
            "root": sorted(os.listdir("/")),
            "layers": [name for name in os.listdir("/layers") if os.listdir(f"/layers/{name}")],
            "pids": len([name for name in os.listdir("/proc") if name.isdigit()]),
            "user": os.getuid(),
            "capabilities": [line for line in open("/proc/self/status") if line.startswith("Cap")],
            "code": sorted(os.listdir("/app")),
            "shelf": os.listdir("/shelf"),
        }
    if event["do"] == "attack":
        return {
            "code": attempt(lambda: open("/app/main.py", "a")),
            "mode": attempt(lambda: os.chmod("/app/main.py", 0o777)),
            "host": attempt(lambda: open("/etc/passwd")),
            "init": attempt(lambda: open("/proc/1/environ")),
            "root": attempt(lambda: os.setuid(0)),
            "namespace": attempt(lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else os.chroot("/tmp")),
            "network": attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2)),
            "memory": attempt(lambda: bytearray(1 << 30)),
            "forks": forks(),
        }
    if event["do"] == "spin":
        while True: pass
    return {"ok": True}
"#;

#[test]
fn functions_run_without_root_and_the_limits_that_are_missing_are_told() {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return;
    }
    let place = Place::new("unprivileged");
    let (node, ready) = place.node();
    // Whether there are control groups for everybody is the machine's matter.
    let told = ready["missing"].as_array().unwrap();
    let doctor = place.sinew().args(["doctor", "--home"]).arg(&node.home).output().unwrap();
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("not root: containers get user namespaces"), "{doctor}");
    for name in told {
        let line = doctor.lines().find(|line| line.contains(name.as_str().unwrap())).unwrap();
        assert!(line.contains("missing: "), "{line}");
    }
    assert!(doctor.contains("a template started") && !doctor.contains("one by one"), "{doctor}");

    let probe = node.python("probe", "memory = \"128MiB\"\ntimeout = \"2s\"\n", PROBE);
    node.deploy(&probe);
    let (status, seen) = node.call("probe", &json!({"do": "look"}));
    assert_eq!(status, 200, "{seen}");
    let root = ["app", "bin", "dev", "layers", "lib", "node_modules", "proc", "shelf", "tmp", "usr"];
    for name in seen["root"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let is_the_hosts = ["lib64", "sbin", "etc"].contains(&name);
        assert!(root.contains(&name) || is_the_hosts, "{name} is seen");
    }
    assert_eq!((&seen["layers"], &seen["code"]), (&json!([]), &json!(["__pycache__", "main.py"])), "{seen}");
    assert_eq!(seen["shelf"], json!([]), "other functions' files are seen");
    assert!(seen["pids"].as_u64().unwrap() <= 2 && seen["user"] != 0, "{seen}");
    for set in seen["capabilities"].as_array().unwrap() {
        assert!(set.as_str().unwrap().trim_end().ends_with("0000000000000000"), "{seen}");
    }
    let (status, tried) = node.call("probe", &json!({"do": "attack"}));
    assert_eq!(status, 200, "{tried}");
    for what in ["code", "mode", "host", "init", "root", "namespace", "network"] {
        assert!(tried[what].as_str().unwrap().starts_with("refused"), "{what}: {tried}");
    }
    assert_eq!(tried["memory"], "no memory", "{tried}");
    assert!(tried["forks"].as_u64().unwrap() < 64, "{tried}");
    // Late is late, and the next one is served, by another instance.
    assert_eq!(node.call("probe", &json!({"do": "spin"})).0, 504);
    assert_eq!(node.call("probe", &json!({"do": "nothing"})), (200, json!({"ok": true})));

    let script = "#!/bin/sh\nread name\necho \"hello $name, $(ls / | tr '\\n' ' ')\"\n";
    let folder = node.script("shell", "mode = \"stdin\"\n", script);
    node.deploy(&folder);
    let answer = node.ok(&["invoke", "shell", "-d", "Ada"]);
    assert!(answer.contains("hello Ada"), "{answer}");

    let folder = node.home.join("hello");
    node.ok(&["new", "hello", "--to", folder.to_str().unwrap(), "--runtime", "node"]);
    node.deploy(&folder);
    assert_eq!(node.call("hello", &json!({"name": "Ada"})).1["message"], "Hello, Ada!");
    assert_eq!(node.terminate(), 0);
}

/// Where nobody counts memory, what it makes is sent.
#[test]
fn a_workflow_that_imports_what_it_brings_runs_without_root() {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return;
    }
    let place = Place::new("brings");
    let (node, _) = place.node();
    run_what_brings(&node, &node.home.join("brings"));
    assert_eq!(node.terminate(), 0);
}

/// What `doctor` calls the layout of a language's templates.
fn layout_of(mut sinew: Command, language: &str) -> String {
    let told = String::from_utf8(sinew.args(["doctor", "-o", "json"]).output().unwrap().stdout).unwrap();
    let checks = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let check = checks.into_iter().find(|check| check["name"] == language).expect("it is told");
    let detail = check["detail"].as_str().unwrap();
    let after = detail.split_once("layout ").unwrap_or_else(|| panic!("no layout: {detail}")).1;
    after.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Nothing of a node's home, environment or user is in its templates' memory.
#[test]
fn two_nodes_of_different_users_have_templates_of_one_layout() {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return;
    }
    let place = Place::new("layout");
    let venv = place.0.join("venv");
    let mut made = Command::new("/usr/bin/python3");
    let made = made.args(["-m", "venv", "--without-pip"]).arg(&venv).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no environment of Python can be made");
        return;
    }
    let mut path = format!("{}:{SYSTEM}", venv.join("bin").display());
    let mut theirs = place.sinew();
    theirs.env("PATH", &path).env("HOME", place.0.join("home")).env("SINEW_HOME", place.0.join("home"));
    path.push_str(":/opt/a/folder/that/makes/the/environment/longer");
    let own = |name: &str| {
        let mut own = Command::new(env!("CARGO_BIN_EXE_sinew"));
        own.env("PATH", &path).env("SINEW_HOME", place.0.join("another-home")).env(name, "x".repeat(5000));
        own
    };
    let layout = layout_of(own("FIRST"), "python");
    assert_eq!(layout.len(), 16, "{layout}");
    assert_eq!(layout, layout_of(own("SECOND"), "python"));
    assert_eq!(layout, layout_of(theirs, "python"));
    let mut theirs = place.sinew();
    theirs.env("SINEW_HOME", place.0.join("home"));
    assert_eq!(layout_of(own("FIRST"), "node.js"), layout_of(theirs, "node.js"));
    // The control: another interpreter has another one.
    let mut other = own("FIRST");
    other.env("PATH", SYSTEM);
    assert_ne!(layout, layout_of(other, "python"));
}
