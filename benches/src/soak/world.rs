// SPDX-License-Identifier: Apache-2.0
//! The node, what runs on it, and what is counted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
const MANIFEST: &str = r#"
[functions.py]
runtime = "python"
handler = "main.handler"
idempotent = true
async = { max-attempts = 50, min-backoff = "50ms", max-backoff = "1s" }

[functions.js]
runtime = "node"
handler = "index.handler"
idempotent = true
requests-per-instance = 4

[functions.exe]
runtime = "executable"
handler = "main.sh"
mode = "stdin"
idempotent = true

[functions.codelet]
runtime = "wasm"
source = "echo.wat"

[functions.chain]
runtime = "python"
handler = "chain.handler"
idempotent = true
"#;
const CHAIN: &str = "import sinew\n\ndef handler(event):\n    return sinew.call('js', event)\n";
const ECHO: &str = r#"(module (func (export "apply") (param i32) (result i32) (i32.const 3)))"#;

/// What became of the requests.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) wrong: u64,
    pub(super) lost: u64,
    pub(super) deployed: u64,
    pub(super) killed: u64,
    pub(super) problems: Vec<String>,
}

pub(super) struct World {
    folder: tempfile::TempDir,
    node: Mutex<Option<Child>>,
    pub(super) address: SocketAddr,
    pub(super) callbacks: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    pub(super) is_over: AtomicBool,
    /// Grows when the node is killed, and again when it is back: odd, it is away.
    pub(super) life: AtomicU64,
    /// The newest code that may serve, and the newest that must.
    pub(super) asked: AtomicU64,
    pub(super) serving: AtomicU64,
    counts: Mutex<Counts>,
}

/// An answer's status and body.
pub(super) type Answer = (u16, String);

impl World {
    pub(super) fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Kept over restarts, as a client knows only one.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let callbacks = listener.local_addr()?;
        std::fs::write(folder.path().join("node.toml"), format!("callback_private = [\"{callbacks}\"]\n"))?;
        let world = Self {
            folder,
            node: Mutex::default(),
            address,
            callbacks,
            listener: Mutex::new(Some(listener)),
            is_over: AtomicBool::new(false),
            life: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            serving: AtomicU64::new(0),
            counts: Mutex::default(),
        };
        world.up()?;
        Ok(world)
    }

    pub(super) fn take_listener(&self) -> Option<TcpListener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    #[expect(clippy::disallowed_methods, reason = "a node of its own is what is measured")]
    fn command(&self) -> anyhow::Result<Command> {
        let sinew = std::env::current_exe()?.with_file_name("sinew");
        ensure!(sinew.exists(), "{} is missing; run it by `cargo xtask bench soak`", sinew.display());
        let mut command = Command::new(sinew);
        command.env("SINEW_HOME", self.home()).env_remove("SINEW_NODE").stdin(Stdio::null());
        Ok(command)
    }

    fn home(&self) -> std::path::PathBuf {
        self.folder.path().join("home")
    }

    fn up(&self) -> anyhow::Result<()> {
        let mut command = self.command()?;
        command.args(["up", "-o", "json", "--workers", "2", "--memory", "2GiB"]);
        command
            .args(["--listen", &self.address.to_string(), "--config"])
            .arg(self.folder.path().join("node.toml"));
        let mut node = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut ready = String::new();
        BufReader::new(node.stdout.take().context("no output")?).read_line(&mut ready)?;
        ensure!(ready.contains("address"), "the node does not start: {ready}");
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
        Ok(())
    }

    /// The node's process, while it is up.
    pub(super) fn node_pid(&self) -> Option<u32> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Child::id)
    }

    pub(super) fn kill_and_restart(&self) -> anyhow::Result<()> {
        self.life.fetch_add(1, Ordering::AcqRel);
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut node) = node {
            node.kill()?;
            node.wait()?;
        }
        let begun = Instant::now();
        // What it held is let go of by the kernel in a moment.
        while let Err(error) = self.up() {
            ensure!(begun.elapsed() < PATIENCE, "{error:#}");
        }
        self.life.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Deploys all functions anew; those with code of an age say which.
    pub(super) fn deploy(&self) -> anyhow::Result<()> {
        let life = self.life.load(Ordering::Acquire);
        let age = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let source = self.folder.path().join("source");
        std::fs::create_dir_all(&source)?;
        let write = |file: &str, text: &str| std::fs::write(source.join(file), text);
        write("sinew.toml", MANIFEST)?;
        write("chain.py", CHAIN)?;
        write("echo.wat", ECHO)?;
        write(
            "main.py",
            &format!(
                "def handler(event):\n    return {{'n': event['n'], 'age': {age}, 'pad': event['pad']}}\n"
            ),
        )?;
        write(
            "index.js",
            &format!("exports.handler = async ({{ n, pad }}) => ({{ n, age: {age}, pad }});\n"),
        )?;
        write("main.sh", "#!/bin/sh\nexec cat\n")?;
        executable(&source.join("main.sh"))?;
        let output = self.command()?.arg("deploy").arg(&source).stdout(Stdio::null()).output()?;
        if output.status.success() {
            self.serving.fetch_max(age, Ordering::AcqRel);
            self.count(|counts| counts.deployed += 1);
        } else if !self.was_away(life) {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            self.problem(|counts| &mut counts.lost, format!("a deployment failed: {why}"));
        }
        Ok(())
    }

    /// Whether the node was away at some time since then.
    pub(super) fn was_away(&self, life: u64) -> bool {
        life % 2 == 1 || self.life.load(Ordering::Acquire) != life
    }

    /// Sends a request with a body; `None` if there is no whole answer.
    pub(super) fn ask(&self, request: &str, headers: &str, body: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let is_whole = length.is_none_or(|length| length.parse() == Ok(body.len()));
        is_whole.then_some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn problem(&self, which: fn(&mut Counts) -> &mut u64, why: String) {
        eprintln!("  {why}");
        self.count(|counts| {
            *which(counts) += 1;
            counts.problems.push(why);
        });
    }

    /// A thread that does this again and again until the end.
    pub(super) fn every(
        self: &Arc<Self>,
        pause: Duration,
        act: impl Fn(&Self) -> anyhow::Result<()> + Send + 'static,
    ) -> JoinHandle<()> {
        let world = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "a client is a thread")]
        std::thread::spawn(move || {
            while !world.is_over.load(Ordering::Acquire) {
                if let Err(error) = act(&world) {
                    world.problem(|counts| &mut counts.lost, format!("{error:#}"));
                }
                std::thread::sleep(pause);
            }
        })
    }

    /// Memory and descriptors of the node, when nothing is asked of it.
    pub(super) fn held(&self) -> anyhow::Result<(u64, usize)> {
        let pid = self.node_pid().context("the node is away")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok((kib << 10, std::fs::read_dir(format!("/proc/{pid}/fd"))?.count()))
    }

    /// Ends the node as an operator does; what is left of it.
    #[expect(clippy::disallowed_methods, reason = "it is ended as operators do")]
    pub(super) fn stop(&self) -> anyhow::Result<Vec<String>> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut node = node.context("the node is away")?;
        let before: Vec<u32> = super::mischief::descendants(node.id());
        Command::new("kill").args(["-TERM", &node.id().to_string()]).status()?;
        let status = node.wait()?;
        let mut left = Vec::new();
        if !status.success() {
            left.push(format!("the node ended with {status}"));
        }
        let own = self.folder.path().to_string_lossy().into_owned();
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        left.extend(
            mounts.lines().filter(|line| line.contains(&own)).map(|line| format!("the mount {line}")),
        );
        let begun = Instant::now();
        let mut alive = before;
        while !alive.is_empty() && begun.elapsed() < Duration::from_secs(5) {
            alive.retain(|pid| Path::new(&format!("/proc/{pid}")).exists());
            std::thread::sleep(Duration::from_millis(50));
        }
        left.extend(alive.into_iter().map(|pid| format!("the process {pid}")));
        Ok(left)
    }
}

fn executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
