// SPDX-License-Identifier: Apache-2.0
//! The servers of the bench: a node with functions, and its peers.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::coldstart::installed;

const READY_WITHIN: Duration = Duration::from_secs(60);
const FASTAPI: [&str; 3] = ["fastapi==0.121.0", "uvicorn==0.38.0", "uvloop==0.22.1"];
const HTTPTOOLS: &str = "httptools==0.7.1";
pub(crate) const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What every handler here answers to `{"name":"Ada"}`.
pub(crate) const EVENT: &str = "{\"name\":\"Ada\"}";
pub(crate) const ANSWER: &str = "{\"message\":\"Hello, Ada\"}";
pub(super) const PYTHON: &str =
    "def handler(event, context):\n    return {\"message\": f\"Hello, {event['name']}\"}\n";
pub(super) const NODE: &str = "exports.handler = async (event) => ({ message: `Hello, ${event.name}` });\n";

/// A server, its whole family of processes, and where it listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(command: &mut Command, address: SocketAddr, log: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        let mut server = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait()?;
            ensure!(ended.is_none(), "a server ended at once; see {}", log.display());
            ensure!(begun.elapsed() < READY_WITHIN, "a server does not listen; see {}", log.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its own process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of the server's own process, in seconds.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        Ok(linux::cpu_ns_of(self.child.id())? as f64 / 1e9)
    }

    /// The same of it and its children. A node's are no servers, and do nothing.
    pub(crate) fn family_cpu_s(&self) -> anyhow::Result<f64> {
        let mut total = self.cpu_s()?;
        let tasks = format!("/proc/{0}/task/{0}/children", self.child.id());
        for child in std::fs::read_to_string(tasks)?.split_whitespace() {
            total += linux::cpu_ns_of(child.parse()?)? as f64 / 1e9;
        }
        Ok(total)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In order, so that its children end too.
        _ = linux::open_process(self.child.id()).and_then(|process| linux::ask_to_end(process.as_fd()));
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(10));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// An address that is free now, and most likely still when a server asks.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The node's own program, built beside this one.
pub(crate) fn sinew() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("sinew");
    ensure!(path.exists(), "{} is missing: run this by `cargo xtask bench`", path.display());
    Ok(path)
}

/// A handler that is a function here, and elsewhere a server of its own.
pub(crate) struct Handler {
    /// Its runtime; the function is called `hello-…`.
    pub(crate) runtime: &'static str,
    /// The folder with its source, which has this file.
    pub(crate) file: &'static str,
    pub(crate) source: Vec<u8>,
    /// Further lines of its manifest.
    pub(crate) settings: String,
}

impl Handler {
    pub(crate) fn python(source: &str, settings: &str) -> Self {
        Self { runtime: "python", file: "main.py", source: source.into(), settings: settings.to_owned() }
    }

    pub(crate) fn node(source: &str, settings: &str) -> Self {
        Self { runtime: "node", file: "index.js", source: source.into(), settings: settings.to_owned() }
    }
}

/// The handlers, and a node that serves them as functions.
pub(crate) struct Functions {
    pub(crate) node: Server,
    folder: tempfile::TempDir,
}

impl Functions {
    #[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
    pub(crate) fn start(handlers: &[Handler]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let mut manifest = String::new();
        for Handler { runtime, file, source, settings } in handlers {
            std::fs::create_dir_all(root.join(runtime))?;
            let path = root.join(runtime).join(file);
            std::fs::write(&path, source)?;
            std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
            manifest += &format!(
                "[functions.hello-{runtime}]\nruntime = \"{runtime}\"\nsource = \"{runtime}\"\n{settings}\n"
            );
        }
        std::fs::write(root.join("sinew.toml"), manifest)?;
        let (home, address) = (root.join("home"), free_address()?);
        let mut up = Command::new(sinew()?);
        up.arg("up").arg("--home").arg(&home).args(["--listen", &address.to_string()]);
        let node = Server::start(&mut up, address, &root.join("node.log"))?;
        let deployed = Command::new(sinew()?).arg("deploy").arg(root).env("SINEW_HOME", &home).output()?;
        let said = String::from_utf8_lossy(&deployed.stderr).into_owned();
        ensure!(deployed.status.success(), "deploy failed: {said}");
        Ok(Self { node, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A server in Go with the same handler, compiled: none if there is no Go here.
#[expect(clippy::disallowed_methods, reason = "a compiler")]
pub(crate) fn go_program() -> anyhow::Result<Option<Vec<u8>>> {
    if Command::new("go").arg("version").output().is_err() {
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    let built = folder.path().join("main");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&built).arg(format!("{PEERS}/hello.go")).env("CGO_ENABLED", "0");
    let done = build.output()?;
    ensure!(done.status.success(), "go build failed: {}", String::from_utf8_lossy(&done.stderr));
    Ok(Some(std::fs::read(built)?))
}

/// The same program without a node.
#[expect(clippy::disallowed_methods, reason = "a peer")]
pub(crate) fn go_http(folder: &Path) -> anyhow::Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(folder.join("executable/main"));
    command.env("PORT", address.port().to_string());
    Server::start(&mut command, address, &folder.join("go_http.log"))
}

/// The handler in plain Node, clustered.
#[expect(clippy::disallowed_methods, reason = "a peer")]
pub(crate) fn node_http(folder: &Path, processors: usize) -> anyhow::Result<Server> {
    let address = free_address()?;
    let mut command = Command::new("node");
    command.arg(format!("{PEERS}/node_http.js")).arg(address.port().to_string());
    command.arg(processors.to_string()).arg(folder.join("node/index.js"));
    Server::start(&mut command, address, &folder.join("node_http.log"))
}

/// An application behind uvicorn, with its fastest loop and parser.
#[expect(clippy::disallowed_methods, reason = "a peer")]
pub(crate) fn uvicorn(application: &str, address: SocketAddr, workers: usize) -> anyhow::Result<Command> {
    let packages = [FASTAPI.as_slice(), &[HTTPTOOLS]].concat();
    let python = installed("bench-fastapi", &packages, "import fastapi, uvicorn, uvloop, httptools")?;
    let mut command = Command::new(python);
    command.args(["-m", "uvicorn", application, "--no-access-log", "--log-level", "warning"]);
    command.args(["--loop", "uvloop", "--http", "httptools", "--host", "127.0.0.1"]);
    command.args(["--port", &address.port().to_string(), "--workers", &workers.to_string()]);
    Ok(command)
}

/// The handler in FastAPI behind uvicorn.
pub(crate) fn fastapi(folder: &Path, processors: usize) -> anyhow::Result<Server> {
    let address = free_address()?;
    let mut command = uvicorn("fastapi_peer:app", address, processors)?;
    command.env("PYTHONPATH", format!("{PEERS}:{}", folder.join("python").display()));
    Server::start(&mut command, address, &folder.join("fastapi.log"))
}

/// Waits until a server answers as it must.
pub(crate) fn await_answer(
    server: &Server,
    check: impl Fn(&Server) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match check(server) {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > READY_WITHIN => {
                return Err(error).with_context(|| format!("{} does not answer", server.address));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
