// SPDX-License-Identifier: Apache-2.0
//! `loop`: how long a developer waits. From a file that is written to a
//! request that the new code answers; and from `sinew new` to the first
//! answer. Both with `sinew dev` as people run it, for Python and Node; the
//! slower one counts. Peers: `uvicorn --reload` and `node --watch`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::coldstart::installed;
use crate::figures::{Report, median};

const NEW_RUNS: usize = 5;
const EDITS: usize = 15;
/// Between an answer and the next edit, as nobody types faster.
const PAUSE: Duration = Duration::from_millis(300);
/// How often it is asked whether the new code serves.
const STEP: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let (mut edits, mut firsts) = (Vec::new(), Vec::new());
    for language in ["python", "node"] {
        let mut first = Vec::new();
        for _ in 1..NEW_RUNS {
            first.push(Dev::start(language)?.first_s);
        }
        let mut dev = Dev::start(language)?;
        first.push(dev.first_s);
        let edited = dev.edits()?;
        let served = median(edited.served);
        report.add(&format!("edit_to_served_{language}_ms"), served, "ms", "", EDITS);
        for (part, values) in [("reload", edited.reload), ("upload", edited.upload), ("load", edited.switch)]
        {
            report.add(&format!("{part}_{language}_ms"), median(values), "ms", "part of it", EDITS);
        }
        let first = median(first);
        report.add(&format!("new_to_first_200_{language}_s"), first, "s", "", NEW_RUNS);
        edits.push(served);
        firsts.push(first);
    }
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    report.add("edit_to_served_ms", worst(&edits), "ms", "the slower language", EDITS);
    report.add("new_to_first_200_s", worst(&firsts), "s", "the slower language", NEW_RUNS);
    for (name, peer) in [("uvicorn --reload", uvicorn as fn() -> _), ("node --watch", node_watch)] {
        if let Some(values) = report.peer(name, || peer()?.edits()) {
            let figure = format!("edit_to_served_{}_ms", name.split(' ').next().unwrap_or(name));
            report.add(&figure, median(values), "ms", name, EDITS);
        }
    }
    report.note("edit_to_served: asked every 2 ms from the write on; the new code's answer ends it");
    Ok(())
}

/// What one language took, in milliseconds.
struct Edited {
    served: Vec<f64>,
    reload: Vec<f64>,
    upload: Vec<f64>,
    switch: Vec<f64>,
}

/// A running `sinew dev`.
struct Dev {
    child: Child,
    events: BufReader<ChildStdout>,
    source: PathBuf,
    address: String,
    text: fn(usize) -> String,
    edit: usize,
    first_s: f64,
    _folder: tempfile::TempDir,
}

impl Dev {
    #[expect(clippy::disallowed_methods, reason = "the commands are what is measured")]
    fn start(language: &'static str) -> anyhow::Result<Self> {
        let sinew = std::env::current_exe()?.with_file_name("sinew");
        ensure!(sinew.exists(), "{} is missing; run it by `cargo xtask bench loop`", sinew.display());
        let folder = tempfile::tempdir()?;
        let own = folder.path().join("hello");
        let begun = Instant::now();
        let made = Command::new(&sinew).args(["new", "hello", "-l", language, "--to"]).arg(&own).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = Command::new(&sinew);
        command.args(["dev", "-o", "json", "--listen", "127.0.0.1:0"]).current_dir(&own);
        command.env_remove("SINEW_NODE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let events = BufReader::new(child.stdout.take().context("no output")?);
        let (file, text): (&str, fn(usize) -> String) = match language {
            "python" => {
                ("main.py", |edit| format!("def handler(event, context):\n    return 'edit {edit}.'\n"))
            }
            _ => ("index.mjs", |edit| format!("export const handler = () => 'edit {edit}.';\n")),
        };
        let source = own.join(file);
        let mut dev = Self {
            child,
            events,
            source,
            address: String::new(),
            text,
            edit: 0,
            first_s: 0.0,
            _folder: folder,
        };
        let ready = dev.event("ready")?;
        let url = ready["functions"][0]["url"].as_str().context("nothing serves")?;
        dev.address = url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        let answer = ask(&dev.address, "/function/hello")?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        dev.first_s = begun.elapsed().as_secs_f64();
        Ok(dev)
    }

    fn event(&mut self, kind: &str) -> anyhow::Result<Value> {
        loop {
            let mut line = String::new();
            ensure!(self.events.read_line(&mut line)? > 0, "sinew dev has ended");
            let event: Value = serde_json::from_str(&line)?;
            ensure!(event["event"] != "failed", "{event}");
            if event["event"] == kind {
                return Ok(event);
            }
        }
    }

    fn edits(&mut self) -> anyhow::Result<Edited> {
        let mut edited =
            Edited { served: Vec::new(), reload: Vec::new(), upload: Vec::new(), switch: Vec::new() };
        for _ in 0..EDITS {
            std::thread::sleep(PAUSE);
            self.edit += 1;
            edited.served.push(edit(
                &self.source,
                &(self.text)(self.edit),
                self.edit,
                &self.address,
                "/function/hello",
            )?);
            let event = self.event("reloaded")?;
            let number = |name: &str| event[name].as_f64().context("no number");
            edited.reload.push(number("ms")?);
            edited.upload.push(number("upload_ms")?);
            edited.switch.push(number("switch_ms")?);
        }
        Ok(edited)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Writes a file, and asks until the answer is that of this edit; milliseconds.
fn edit(file: &Path, text: &str, number: usize, address: &str, path: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    std::fs::write(file, text)?;
    let wanted = format!("edit {number}.");
    loop {
        // A peer that restarts refuses connections meanwhile.
        if ask(address, path).is_ok_and(|answer| answer.contains(&wanted)) {
            return Ok(begun.elapsed().as_secs_f64() * 1e3);
        }
        ensure!(begun.elapsed() < PATIENCE, "the edit is not served");
        std::thread::sleep(STEP);
    }
}

fn ask(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A server that watches its own file.
struct Peer {
    child: Child,
    source: PathBuf,
    address: String,
    text: Box<dyn Fn(usize) -> String>,
    _folder: tempfile::TempDir,
}

impl Peer {
    fn edits(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut served = Vec::new();
        // The first is the one that it begins with.
        for number in 0..=EDITS {
            std::thread::sleep(PAUSE);
            let took = edit(&self.source, &(self.text)(number), number, &self.address, "/")?;
            if number > 0 {
                served.push(took);
            }
        }
        Ok(served)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both watch from a parent of the server: the group goes.
        let group = format!("-{}", self.child.id());
        #[expect(clippy::disallowed_methods, reason = "the peer and its child are ended")]
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        _ = self.child.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start(
    mut command: Command,
    file: &str,
    text: Box<dyn Fn(usize) -> String>,
    port: u16,
) -> anyhow::Result<Peer> {
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::tempdir()?;
    let source = folder.path().join(file);
    std::fs::write(&source, text(0))?;
    command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command.spawn()?;
    Ok(Peer { child, source, address: format!("127.0.0.1:{port}"), text, _folder: folder })
}

#[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
fn node_watch() -> anyhow::Result<Peer> {
    let port = free_port()?;
    let mut command = Command::new("node");
    command.args(["--watch", "index.mjs"]);
    let text = move |edit| {
        format!(
            "import {{ createServer }} from 'node:http';\n\
             createServer((_, answer) => answer.end('edit {edit}.')).listen({port}, '127.0.0.1');\n"
        )
    };
    start(command, "index.mjs", Box::new(text), port)
}

#[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
fn uvicorn() -> anyhow::Result<Peer> {
    let port = free_port()?;
    let python =
        installed("bench-uvicorn", &["uvicorn==0.38.0", "watchfiles==1.1.1"], "import uvicorn, watchfiles")?;
    let mut command = Command::new(python);
    command.args([
        "-m",
        "uvicorn",
        "main:app",
        "--reload",
        "--log-level",
        "critical",
        "--port",
        &port.to_string(),
    ]);
    let text = |edit| {
        format!(
            "async def app(scope, receive, send):\n    if scope['type'] != 'http': return\n    \
             await send({{'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', b'{}')]}})\n    \
             await send({{'type': 'http.response.body', 'body': b'edit {edit}.'}})\n",
            format!("edit {edit}.").len()
        )
    };
    start(command, "main.py", Box::new(text), port)
}
