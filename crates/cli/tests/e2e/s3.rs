// SPDX-License-Identifier: Apache-2.0
//! Objects of a server of S3, as users name them: of a mock that is quickly there (moto),
//! and of one that people use (versitygw). Both check signatures; between them and the
//! node is a relay that can break off.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;

use super::requirements::python_with_aws;
use super::{Node, home};

const LEN: usize = 3_000_000;
const OBJECT: &str = "s3://data/dir/a-b";

/// Makes of each function, which takes a server, a test for each server that there is.
macro_rules! with_each_server {
    ($($test:ident),* $(,)?) => {
        mod moto {
            $(#[test] fn $test() { $crate::s3::Server::moto().map(super::$test); })*
        }
        mod versitygw {
            $(#[test] fn $test() { $crate::s3::Server::versitygw().map(super::$test); })*
        }
    };
}
pub(super) use with_each_server;

/// The server, a process that ends with this, and with the process of the test.
pub(super) struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    pub(super) address: SocketAddr,
    pub(super) keys: String,
    etag: String,
}

impl Server {
    /// The mock. None, having said so, where it cannot be fetched.
    pub(super) fn moto() -> Option<Self> {
        Self::start(Command::new(python_with_aws()?).args(["-c", include_str!("s3.py"), &LEN.to_string()]))
    }

    /// A server of S3 over a folder. None, having said so, where it cannot be built.
    pub(super) fn versitygw() -> Option<Self> {
        let (python, program) = (python_with_aws()?, versitygw()?);
        Self::start(Command::new(python).args(["-c", include_str!("s3.py"), &LEN.to_string()]).arg(program))
    }

    fn start(command: &mut Command) -> Option<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["error"], Value::Null, "the server does not start");
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        let (address, keys, etag) = (text("address").parse().unwrap(), text("keys"), text("etag"));
        Some(Self { child, output, address, keys, etag })
    }

    fn write_anew(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "written\n");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its input, and ends what it has started.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// The program, built once by Go.
fn versitygw() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PROGRAM.get_or_init(build_versitygw) {
        Ok(program) => Some(program),
        Err(why) => {
            eprintln!("skipped: Go does not build versitygw: {why}");
            None
        }
    }
}

fn build_versitygw() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("versitygw-1.8.0");
    let program = folder.join("versitygw");
    if program.exists() {
        return Ok(program);
    }
    let mut go = Command::new("go");
    go.args(["install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"]);
    let built =
        go.env("GOBIN", &folder).env("CGO_ENABLED", "0").output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&built.stderr);
    built
        .status
        .success()
        .then_some(program)
        .ok_or_else(|| said.lines().last().unwrap_or("it says nothing").to_owned())
}

/// Carries connections to a server, and notes the heads of requests.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// Answers that are still to be cut off after a million bytes.
    cuts: Arc<AtomicUsize>,
    /// Bytes that the server has sent.
    pub(super) sent: Arc<AtomicU64>,
    /// Nothing is carried.
    pub(super) is_broken: Arc<AtomicBool>,
}

impl Relay {
    pub(super) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, cuts) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (sent, is_broken) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (noted, left) = (Arc::clone(&heads), Arc::clone(&cuts));
        let (counted, broken) = (Arc::clone(&sent), Arc::clone(&is_broken));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if broken.load(Ordering::SeqCst) {
                    continue;
                }
                let (noted, left, counted) = (Arc::clone(&noted), Arc::clone(&left), Arc::clone(&counted));
                std::thread::spawn(move || carry(client.unwrap(), to, &noted, &left, &counted));
            }
        });
        Self { address, heads, cuts, sent, is_broken }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn carry(
    mut client: TcpStream,
    to: SocketAddr,
    noted: &Mutex<Vec<String>>,
    left: &AtomicUsize,
    sent: &AtomicU64,
) {
    let mut server = TcpStream::connect(to).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    noted.lock().unwrap().push(String::from_utf8(head.clone()).unwrap().to_ascii_lowercase());
    server.write_all(&head).unwrap();
    let is_cut = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    let mut body = client.try_clone().unwrap();
    let mut up = server.try_clone().unwrap();
    // Whoever writes has a body behind the head.
    std::thread::spawn(move || _ = std::io::copy(&mut body, &mut up));
    // Who has left does not read it.
    let limit = if is_cut { 1_000_000 } else { u64::MAX };
    let carried = std::io::copy(&mut server.take(limit), &mut client);
    sent.fetch_add(carried.unwrap_or_default(), Ordering::SeqCst);
    _ = client.shutdown(std::net::Shutdown::Both);
}

fn node(home: &std::path::Path, endpoint: SocketAddr) -> Node {
    let settings = home.join("settings.toml");
    let bucket = format!("[s3.data]\nendpoint = \"http://{endpoint}\"\nregion = \"eu-north-7\"\n");
    std::fs::write(&settings, bucket).unwrap();
    Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()])
}

/// A node that may write, without a relay in between.
fn writing_node(home: &std::path::Path, endpoint: SocketAddr) -> Node {
    let settings = home.join("settings.toml");
    let bucket =
        |name: &str| format!("[s3.{name}]\nendpoint = \"http://{endpoint}\"\nregion = \"eu-north-7\"\n");
    std::fs::write(&settings, format!("{}write = true\n{}", bucket("data"), bucket("read"))).unwrap();
    Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()])
}

pub(super) fn set_keys(node: &Node, keys: &str) {
    let mut child = node.command(&["secret", "set", "SINEW_S3"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

fn failure(node: &Node, arguments: &[&str]) -> String {
    let lazy = node.ok(&[&["put", "--lazy"], arguments].concat());
    let output = node.run(&["eval", &lazy]);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

with_each_server!(
    objects_of_a_bucket_are_fetched_with_keys_that_only_the_node_knows,
    results_are_written_to_a_bucket_and_not_a_second_time,
);

fn objects_of_a_bucket_are_fetched_with_keys_that_only_the_node_knows(mut server: Server) {
    let relay = Relay::start(server.address);
    let home = home();
    let node = node(home.path(), relay.address);
    let data: Vec<u8> = (0..LEN).map(|at| (at * 31 % 251) as u8).collect();
    let handle = objects::Handle::blob(&data).to_string();
    // Without keys, and with others, the server refuses, and its reason is told.
    let why = failure(&node, &[OBJECT]);
    assert!(why.contains(OBJECT) && why.contains("403 Forbidden"), "{why}");
    let access = server.keys.split(' ').next().unwrap().to_owned();
    set_keys(&node, &format!("{access} wrong"));
    let why = failure(&node, &[OBJECT]);
    assert!(why.contains("SignatureDoesNotMatch"), "{why}");
    let keys = server.keys.clone();
    set_keys(&node, &keys);
    // It breaks off, and goes on where it was.
    let before = relay.heads().len();
    relay.cuts.store(1, Ordering::SeqCst);
    let lazy = node.ok(&["put", "--lazy", OBJECT, "--digest", &handle]);
    let answer: Value = serde_json::from_str(&node.ok(&["eval", &lazy, "-o", "json"])).unwrap();
    assert_eq!(answer["result"].as_str().unwrap(), handle);
    assert_eq!(node.command(&["get", &handle]).output().unwrap().stdout, data);
    let heads = relay.heads().split_off(before);
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(
        heads[0].starts_with("get /data/dir/a-b ") && heads[0].contains("authorization: aws4-hmac-sha256")
    );
    let tag = server.etag.to_ascii_lowercase();
    assert!(
        heads[1].contains("range: bytes=99") && heads[1].contains(&format!("if-match: {tag}")),
        "{heads:?}"
    );
    // By its tag it is known as long as it is the same.
    let (size, etag) = (LEN.to_string(), server.etag.clone());
    let named = [OBJECT, "--etag", &etag, "--size", &size];
    let lazy = node.ok(&[&["put", "--lazy"][..], &named].concat());
    let answer: Value = serde_json::from_str(&node.ok(&["eval", &lazy, "-o", "json"])).unwrap();
    assert_eq!(answer["result"].as_str().unwrap(), handle);
    server.write_anew("something else that is longer than a literal");
    let why = failure(&node, &[OBJECT, "--etag", &etag, "--size", "3000001"]);
    assert!(why.contains("changed"), "{why}");
    let lazy = node.ok(&["put", "--lazy", OBJECT]);
    assert_eq!(node.ok(&["eval", &lazy]).trim(), "something else that is longer than a literal");
    // What is not there, and what is not ours to ask for.
    assert!(failure(&node, &["s3://data/nothing"]).contains("404 Not Found (NoSuchKey)"));
    let before = relay.heads().len();
    assert!(failure(&node, &["s3://other/dir/a"]).contains("[s3.other]"));
    assert_eq!(relay.heads().len(), before);
    // Nobody sees the keys.
    let secret = keys.split(' ').nth(1).unwrap();
    let seen =
        format!("{:?}", (relay.heads(), node.http("GET /v1/secrets", b""), node.ok(&["explain", &lazy])));
    assert!(!seen.contains(secret) && seen.contains("SINEW_S3"));
}

fn results_are_written_to_a_bucket_and_not_a_second_time(server: Server) {
    let home = home();
    let node = writing_node(home.path(), server.address);
    // Long enough for parts, and not all the same.
    let long: Vec<u8> = (0..5_000_000_u64).flat_map(|number| (number * number).to_le_bytes()).collect();
    let file = home.path().join("long");
    std::fs::write(&file, &long).unwrap();
    let long = node.ok(&["put", file.to_str().unwrap()]);
    let refused = |arguments: &[&str]| {
        let output = node.run(&[&["get"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let why = refused(&[&long, "--to", "s3://data/out/long"]);
    assert!(why.contains("no secret SINEW_S3"), "{why}");
    set_keys(&node, &server.keys);
    let export = |arguments: &[&str]| node.json(&[&["get"], arguments].concat()).remove(0);
    for (written, known) in [(1, 0), (0, 1)] {
        let told = export(&[&long, "--to", "s3://data/out/long", "--content-type", "application/x-squares"]);
        assert_eq!(
            (told["written"].as_u64(), told["known"].as_u64()),
            (Some(written), Some(known)),
            "{told}"
        );
    }
    // What was written comes back, as whoever reads it would get it.
    let back = |url: &str| {
        let lazy = node.ok(&["put", "--lazy", url]);
        node.json(&["eval", &lazy]).remove(0)["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(back("s3://data/out/long"), long);
    // A directory, of which one file has changed then.
    let site = home.path().join("site");
    std::fs::create_dir_all(site.join("sub dir")).unwrap();
    for (name, text) in [("a", "short"), ("b?.txt", "longer than what fits into a handle"), ("sub dir/c", "")]
    {
        std::fs::write(site.join(name), text).unwrap();
    }
    let put = || node.ok(&["put", "--tree", site.to_str().unwrap()]);
    let told = export(&[&put(), "--to", "s3://data/site/"]);
    assert_eq!((told["written"].as_u64(), told["written_bytes"].as_u64()), (Some(3), Some(40)), "{told}");
    std::fs::write(site.join("a"), "changed").unwrap();
    let said = node.ok(&["get", &put(), "--to", "s3://data/site"]);
    assert_eq!(said, "written: 1 object, 7 B; there already: 2 objects, 35 B");
    for (url, text) in [("s3://data/site/a", "changed"), ("s3://data/site/sub%20dir/c", "")] {
        assert_eq!(back(url), objects::Handle::blob(text.as_bytes()).to_string(), "{url}");
    }
    assert_eq!(node.ok(&["cat", &back("s3://data/site/b%3f.txt")]), "longer than what fits into a handle");
    // What is not ours to write, and what is no directory.
    for (arguments, why) in [
        ([&*long, "--to", "s3://read/x"], "`write = true` below [s3.read]"),
        ([&*long, "--to", "s3://other/x"], "[s3.other]"),
    ] {
        let said = refused(&arguments);
        assert!(said.contains(why), "{said}");
    }
    let refused_tree = node.json(&["eval", "[1u8, 2u8]"]).remove(0)["result"].as_str().unwrap().to_owned();
    let why = refused(&[&refused_tree, "--to", "s3://data/x"]);
    assert!(why.contains("no directory"), "{why}");
    set_keys(&node, &format!("{} wrong", server.keys.split(' ').next().unwrap()));
    let why = refused(&[&long, "--to", "s3://data/elsewhere"]);
    assert!(why.contains("403"), "{why}");
}
