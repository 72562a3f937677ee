// SPDX-License-Identifier: Apache-2.0
//! A node that only remembers: enough HTTP for the commands about functions,
//! the objects of bundles, and deployments by name. It serves one test and
//! runs no function: `/function/NAME` echoes, by what its path asks for.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use objects::{BundleReader, BundleRecord, Handle, TreeView};
use serde_json::{Value, json};

/// What came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What the node knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) requests: Vec<Request>,
    objects: HashMap<String, Vec<u8>>,
    /// Deployments by name, the newest last, and the place of the one that serves.
    pub(crate) functions: BTreeMap<String, (Vec<String>, usize)>,
}

impl State {
    /// A blob that was put, or a literal.
    pub(crate) fn blob(&self, handle: Handle) -> Vec<u8> {
        match handle.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.objects[&handle.to_string()].clone(),
        }
    }

    pub(crate) fn tree(&self, handle: Handle) -> Vec<Handle> {
        TreeView::from_bytes(&self.objects[&handle.to_string()]).unwrap().iter().collect()
    }

    pub(crate) fn deployment(&self, name: &str) -> Handle {
        let (versions, at) = &self.functions[name];
        versions[*at].parse().unwrap()
    }
}

pub(crate) struct FakeNode {
    address: String,
    state: Arc<Mutex<State>>,
}

impl FakeNode {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/function/{name}", self.address)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command.args(arguments).env("SINEW_NODE", format!("http://{}", self.address)).stdin(Stdio::null());
        command.env_remove("SINEW_OUTPUT").env_remove("GREETING");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The exit code and what goes to stderr.
    pub(crate) fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = read(&mut reader) {
        let (status, headers, body) = state.lock().unwrap().answer(&request);
        let mut head =
            format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nx-request-id: id-7\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        writer.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        writer.write_all(&body).unwrap();
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    }
    while headers.contains_key("transfer-encoding") {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut chunk = vec![0; length + 2];
        reader.read_exact(&mut chunk).ok()?;
        body.extend_from_slice(&chunk[..length]);
        if length == 0 {
            break;
        }
    }
    Some(Request { method, path, headers, body })
}

type Answer = (u16, Vec<(&'static str, &'static str)>, Vec<u8>);

fn whole(status: u16, value: &Value) -> Answer {
    (status, vec![("content-type", "application/json")], value.to_string().into_bytes())
}

fn problem(status: u16, kind: &str, failure: &Value) -> Answer {
    let body = json!({
        "type": format!("urn:sinew:problem:{kind}"), "title": "It went wrong", "status": status, "detail": "so it did",
        "request_id": "id-7", "failure": failure,
    });
    (status, vec![("content-type", "application/problem+json")], body.to_string().into_bytes())
}

impl State {
    fn answer(&mut self, request: &Request) -> Answer {
        self.requests.push(request.clone());
        let path = request.path.split('?').next().unwrap();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "bundles"]) => self.keep(&request.body),
            ("GET", ["v1", "objects", handle]) => {
                let entries = self.tree(handle.parse().unwrap());
                whole(200, &json!({"entries": entries.iter().map(Handle::to_string).collect::<Vec<_>>()}))
            }
            ("GET", ["v1", "functions"]) => {
                let names: Vec<String> = self.functions.keys().cloned().collect();
                let all: Vec<Value> = names.iter().map(|name| self.description(name)).collect();
                whole(200, &json!({"functions": all}))
            }
            ("POST", ["v1", "functions"]) => self.deploy(&request.body),
            (_, ["v1", "functions", name, ..]) if !self.functions.contains_key(*name) => {
                problem(404, "function-not-found", &Value::Null)
            }
            ("GET", ["v1", "functions", name]) => whole(200, &self.description(name)),
            ("DELETE", ["v1", "functions", name]) => {
                self.functions.remove(*name);
                (204, Vec::new(), Vec::new())
            }
            ("POST", ["v1", "functions", name, "rollback"]) => self.roll_back(name, &request.body),
            (_, ["function", name, rest @ ..]) if self.functions.contains_key(*name) => call(request, rest),
            (_, ["function", ..]) => problem(404, "function-not-found", &Value::Null),
            _ => problem(404, "no-such-route", &Value::Null),
        }
    }

    fn keep(&mut self, bundle: &[u8]) -> Answer {
        for record in BundleReader::new(bundle).unwrap() {
            match record.unwrap() {
                BundleRecord::Blob(bytes) => {
                    self.objects.insert(Handle::blob(bytes).to_string(), bytes.to_vec())
                }
                BundleRecord::Tree(tree) => {
                    self.objects.insert(tree.handle().to_string(), tree.as_bytes().to_vec())
                }
                BundleRecord::Goal(_) => panic!("there is nothing to evaluate"),
            };
        }
        whole(201, &json!({"handles": []}))
    }

    /// All of them, or none.
    fn deploy(&mut self, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap();
        let wanted = body["functions"].as_array().unwrap().iter();
        let wanted: Vec<(&str, &str)> =
            wanted.map(|one| (one["name"].as_str().unwrap(), one["deployment"].as_str().unwrap())).collect();
        for (name, deployment) in &wanted {
            assert!(self.objects.contains_key(*deployment), "what is deployed was put before");
            if *name == "broken" {
                let (status, headers, body) = problem(400, "bad-deployment", &Value::Null);
                let mut body: Value = serde_json::from_slice(&body).unwrap();
                body["function"] = "broken".into();
                return (status, headers, body.to_string().into_bytes());
            }
        }
        let deployed: Vec<Value> = wanted
            .into_iter()
            .map(|(name, deployment)| self.deploy_one(name, deployment.to_owned()))
            .collect();
        whole(200, &json!({"functions": deployed}))
    }

    fn deploy_one(&mut self, name: &str, deployment: String) -> Value {
        let (versions, at) = self.functions.entry(name.to_owned()).or_default();
        let changed = versions.get(*at) != Some(&deployment);
        if changed {
            versions.push(deployment);
            *at = versions.len() - 1;
        }
        self.switched(name, changed)
    }

    fn roll_back(&mut self, name: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap();
        let (versions, at) = self.functions.get_mut(name).unwrap();
        let wanted = body["version"].as_u64().map_or(*at, |version| version as usize).wrapping_sub(1);
        if wanted >= versions.len() {
            return problem(404, "version-not-found", &Value::Null);
        }
        *at = wanted;
        whole(200, &self.switched(name, true))
    }

    fn switched(&self, name: &str, changed: bool) -> Value {
        let (versions, at) = &self.functions[name];
        json!({"name": name, "version": at + 1, "deployment": versions[*at], "changed": changed})
    }

    fn description(&self, name: &str) -> Value {
        let (versions, at) = &self.functions[name];
        let numbered = versions.iter().enumerate().rev();
        let all: Vec<Value> =
            numbered.map(|(at, handle)| json!({"version": at + 1, "deployment": handle})).collect();
        json!({
            "name": name, "version": at + 1, "runtime": "python", "deployment": versions[*at], "versions": all,
            "url": format!("http://node/function/{name}"), "settings": {"handler": "main.handler"}, "serving": {},
            "limits": {"memory_bytes": 268_435_456}, "instances": {"idle": 1, "busy": 2}, "requests": 12345, "failures": 3,
            "cold_starts": 4,
        })
    }
}

/// A function that does what its path says.
fn call(request: &Request, rest: &[&str]) -> Answer {
    let failure = |code: &str| json!({"code": code, "detail": "mine", "application": "app-1"});
    match rest {
        ["raises"] => problem(500, "failure-trap", &failure("trap")),
        ["slow"] => problem(504, "failure-deadline", &failure("deadline")),
        ["full"] => problem(503, "busy", &Value::Null),
        ["missing"] => (404, vec![("content-type", "text/plain")], b"not here".to_vec()),
        ["own-problem"] => {
            (400, vec![("content-type", "application/problem+json")], br#"{"type":"about:blank"}"#.to_vec())
        }
        _ => (200, vec![("content-type", "text/plain")], request.body.clone()),
    }
}
