// SPDX-License-Identifier: Apache-2.0
//! `sinew dev` as its users meet it: written, run, edited, broken, mended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use super::functions::is_root;
use super::{http, signal};

/// Enough for a slow machine; nothing is measured.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running `sinew dev`, and what it tells.
pub(super) struct Dev {
    child: Child,
    events: Receiver<Value>,
    folder: PathBuf,
}

impl Dev {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[], None)
    }

    /// With more arguments, and where programs are looked for first.
    pub(super) fn start_with(folder: &Path, more: &[&str], programs: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        if let Some(first) = programs {
            let usual = std::env::var_os("PATH").unwrap_or_default();
            let all = std::iter::once(first.to_owned()).chain(std::env::split_paths(&usual));
            command.env("PATH", std::env::join_paths(all).unwrap());
        }
        command.args(["dev", "-o", "json", "--listen", "127.0.0.1:0"]).args(more).current_dir(folder);
        command.env_remove("SINEW_NODE").env_remove("GREETING").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, events) = channel();
        let printed = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in printed.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, events, folder: folder.to_owned() }
    }

    /// The next event of a kind; those before it are passed over.
    pub(super) fn wait(&self, kind: &str) -> Value {
        let mut passed = Vec::new();
        loop {
            let event = self.events.recv_timeout(PATIENCE);
            let event = event.unwrap_or_else(|_| panic!("no {kind} after {passed:?}"));
            if event["event"] == kind {
                return event;
            }
            passed.push(event);
        }
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).unwrap();
    }

    /// Ends it as Ctrl-C does.
    pub(super) fn interrupt(mut self) -> i32 {
        signal(&self.child, "INT");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Status and body.
pub(super) fn call(url: &str, body: &str) -> (u16, String) {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let answer = http(address, &format!("POST /{path}"), body.as_bytes());
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

pub(super) fn new(language: &str, folder: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    let made =
        command.args(["new", "hello", "-l", language, "--to", folder.to_str().unwrap()]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn edits_are_served_and_bad_ones_told() {
    if !is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for (language, file, edited, broken) in [
        (
            "python",
            "main.py",
            "def handler(e, c):\n    return 'edited'\n",
            "def handler(e, c):\n    return (\n",
        ),
        ("node", "index.mjs", "export const handler = () => 'edited';\n", "export const handler = (;\n"),
    ] {
        let folder = home.path().join(language);
        new(language, &folder);
        let dev = Dev::start(&folder);
        let ready = dev.wait("ready");
        let url = ready["functions"][0]["url"].as_str().unwrap().to_owned();
        assert_eq!(ready["functions"][0]["runtime"], language);
        let (status, body) = call(&url, "{\"name\": \"Ada\"}");
        assert!(status == 200 && body.contains("Hello, Ada!"), "{body}");
        let request = dev.wait("request");
        assert_eq!(
            (&request["request"]["function"], &request["request"]["status"]),
            (&"hello".into(), &200.into())
        );
        dev.write(file, edited);
        let reloaded = dev.wait("reloaded");
        assert_eq!((&reloaded["function"], &reloaded["version"]), (&"hello".into(), &2.into()), "{reloaded}");
        assert_eq!(call(&url, "{}"), (200, "edited".to_owned()));
        dev.write(file, broken);
        let failed = dev.wait("failed");
        let told = failed["error"].as_str().unwrap();
        assert!(told.contains("SyntaxError") && told.contains(file) && !told.contains("/app/"), "{told}");
        assert_eq!(call(&url, "{}"), (200, "edited".to_owned()));
        dev.write(file, &edited.replace("edited", "mended"));
        dev.wait("reloaded");
        assert_eq!(call(&url, "{}"), (200, "mended".to_owned()));
        assert_eq!(dev.interrupt(), 0);
        assert_eq!(std::fs::read_to_string(folder.join(".sinew/.gitignore")).unwrap(), "*\n");
    }
}

#[test]
fn the_manifest_is_watched_too() {
    let home = tempfile::tempdir().unwrap();
    new("wasm", home.path());
    let dev = Dev::start(home.path());
    let url = dev.wait("ready")["functions"][0]["url"].as_str().unwrap().to_owned();
    assert_eq!(call(&url, "abc"), (200, "abc".to_owned()));
    let manifest = std::fs::read_to_string(home.path().join("sinew.toml")).unwrap();
    dev.write("sinew.toml", "[functions.hello]\nruntme = 1\n");
    assert!(dev.wait("failed")["error"].as_str().unwrap().contains("did you mean `runtime`"));
    assert_eq!(call(&url, "abc").0, 200);
    dev.write("sinew.toml", &manifest.replace("functions.hello", "functions.other"));
    assert_eq!(dev.wait("removed")["function"], "hello");
    assert_eq!(dev.wait("reloaded")["function"], "other");
    assert_eq!(call(&url, "abc").0, 404);
    assert_eq!(call(&url.replace("/hello", "/other"), "abc"), (200, "abc".to_owned()));
    // As a supervisor ends it.
    let mut dev = dev;
    signal(&dev.child, "TERM");
    assert!(dev.child.wait().unwrap().success());
}

#[test]
fn a_build_runs_when_what_it_reads_changes() {
    let home = tempfile::tempdir().unwrap();
    new("wasm", home.path());
    std::fs::create_dir(home.path().join("src")).unwrap();
    std::fs::rename(home.path().join("hello.wat"), home.path().join("src/hello.wat")).unwrap();
    let manifest = "[functions.hello]\nruntime = \"wasm\"\nmemory = \"1 MiB\"\n\
        build = { command = \"echo run >> runs.log; cp src/hello.wat out.wat\", output = \"out.wat\", watch = [\"src/**\"] }\n";
    std::fs::write(home.path().join("sinew.toml"), manifest).unwrap();
    std::fs::write(home.path().join(".gitignore"), "*.log\nout.wat\n").unwrap();
    let dev = Dev::start(home.path());
    dev.wait("ready");
    let runs = || std::fs::read_to_string(home.path().join("runs.log")).unwrap().lines().count();
    assert_eq!(runs(), 1);
    let source = std::fs::read_to_string(home.path().join("src/hello.wat")).unwrap();
    dev.write("notes.txt", "no source");
    dev.write("src/hello.wat", "(module");
    assert!(dev.wait("failed")["error"].as_str().unwrap().contains("no WebAssembly text"));
    assert_eq!(runs(), 2);
    // A build that fails deploys nothing, and is run again.
    dev.write("src/hello.wat", &source.replacen("(module", "(module (func (export \"more\"))", 1));
    assert_eq!(dev.wait("reloaded")["version"], 2);
    assert_eq!(runs(), 3);
    assert_eq!(dev.interrupt(), 0);
}

/// A command in a folder, as people give it who have named no node; `home` has no node of theirs.
fn beside(folder: &Path, home: &Path, arguments: &[&str], input: &str) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(arguments).current_dir(folder).env("HOME", home);
    for name in ["SINEW_NODE", "SINEW_HOME", "XDG_DATA_HOME"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn other_commands_in_the_folder_ask_its_node_and_a_secret_that_is_set_is_waited_for() {
    if !is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("project");
    let below = folder.join("lib");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(
        folder.join("sinew.toml"),
        "[functions.hello]\nruntime = \"python\"\nsecrets = [\"WORD\"]\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("main.py"),
        "import os\ndef handler(event, context):\n    return os.environ['WORD'] + event['name']\n",
    )
    .unwrap();
    let refused = beside(&below, home.path(), &["list"], "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no node is running"), "{refused:?}");

    let dev = Dev::start(&folder);
    let failed = dev.wait("failed");
    assert!(failed["error"].as_str().unwrap().contains("sinew secret set WORD"), "{failed}");
    dev.wait("ready");
    let set = beside(&below, home.path(), &["secret", "set", "WORD"], "hello ");
    assert!(set.status.success(), "{set:?}");
    // Nothing was edited.
    dev.wait("reloaded");
    std::fs::write(below.join("event.json"), "{\"name\": \"Ada\"}").unwrap();
    let invoked = beside(&below, home.path(), &["invoke", "hello", "-d", "@event.json"], "");
    assert_eq!(String::from_utf8_lossy(&invoked.stdout), "hello Ada", "{invoked:?}");
    let invoked = beside(&below, home.path(), &["invoke", "hello", "-d", "@-"], "{\"name\": \"Bob\"}");
    assert_eq!(String::from_utf8_lossy(&invoked.stdout), "hello Bob", "{invoked:?}");
    let elsewhere = beside(home.path(), home.path(), &["list"], "");
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("no node is running"), "{elsewhere:?}");
    assert_eq!(dev.interrupt(), 0);
    let over = beside(&folder, home.path(), &["list"], "");
    assert!(String::from_utf8_lossy(&over.stderr).contains("no node is running"), "{over:?}");
}
