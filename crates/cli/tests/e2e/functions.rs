// SPDX-License-Identifier: Apache-2.0
//! Functions as their users meet them: written, deployed, called, broken,
//! rolled back, on a node that is killed, in containers of their own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Node, home};

/// Containers that functions are forked into take the rights of root.
pub(super) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    let is_root = user.split_whitespace().nth(1) == Some("0");
    if !is_root {
        eprintln!("skipped: functions in containers need root");
    }
    is_root
}

impl Node {
    pub(super) fn deploy(&self, folder: &Path) -> Value {
        let printed = self.ok(&["deploy", folder.to_str().unwrap(), "-o", "json"]);
        serde_json::from_str(printed.lines().next().unwrap()).unwrap()
    }

    /// A Python function of this source in a folder of its own.
    pub(super) fn python(&self, name: &str, settings: &str, source: &str) -> std::path::PathBuf {
        self.source(name, "python", "main.py", settings, source)
    }

    /// The same in JavaScript.
    pub(super) fn nodejs(&self, name: &str, settings: &str, source: &str) -> std::path::PathBuf {
        self.source(name, "node", "main.js", settings, source)
    }

    fn source(
        &self,
        name: &str,
        runtime: &str,
        file: &str,
        settings: &str,
        source: &str,
    ) -> std::path::PathBuf {
        let folder = self.home.join(format!("source-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let manifest =
            format!("[functions.{name}]\nruntime = \"{runtime}\"\nhandler = \"main.handler\"\n{settings}");
        std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
        std::fs::write(folder.join(file), source).unwrap();
        folder
    }

    /// Status and body of a call.
    pub(super) fn call(&self, name: &str, event: &Value) -> (u16, Value) {
        let answer = self.http(&format!("POST /function/{name}"), event.to_string().as_bytes());
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or_else(|_| body.into()))
    }
}

#[test]
fn what_new_writes_is_deployed_and_answers_also_after_a_kill() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    for runtime in ["python", "node", "wasm"] {
        let folder = home.path().join(runtime);
        node.ok(&["new", runtime, "--to", folder.to_str().unwrap(), "--runtime", runtime]);
        let deployed = node.deploy(&folder);
        assert_eq!((&deployed["name"], &deployed["version"]), (&json!(runtime), &json!(1)), "{deployed}");
        let again = node.deploy(&folder);
        assert_eq!((&again["version"], &again["changed"]), (&json!(1), &json!(false)), "{again}");
    }
    let check = |node: &Node| {
        for runtime in ["python", "node"] {
            let (status, body) = node.call(runtime, &json!({"name": "Ada"}));
            assert_eq!((status, &body["message"]), (200, &json!("Hello, Ada!")), "{runtime}");
        }
        assert_eq!(node.ok(&["invoke", "wasm", "-d", "abc"]), "abc");
    };
    check(&node);
    node.kill();
    let node = Node::start(home.path());
    check(&node);
    assert_eq!(node.ok(&["list", "-o", "json"]).lines().count(), 3);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn an_answer_ends_with_a_line_on_a_terminal_and_nowhere_else() {
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("echo");
    node.ok(&["new", "echo", "--to", folder.to_str().unwrap(), "--runtime", "wasm"]);
    node.deploy(&folder);
    let invoke = |body: &str| node.run(&["invoke", "echo", "-d", body]).stdout;
    assert_eq!(invoke("abc"), b"abc");
    let seen = |body: &str| {
        let command = format!("'{}' invoke echo -d '{body}'", env!("CARGO_BIN_EXE_sinew"));
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &command, "/dev/null"]).env("SINEW_HOME", &node.home);
        terminal.env_remove("SINEW_NODE").stdin(Stdio::null());
        let shown = terminal.output().unwrap();
        assert!(shown.status.success(), "{shown:?}");
        String::from_utf8(shown.stdout).unwrap()
    };
    assert_eq!(seen("abc"), "abc\r\n");
    assert_eq!(seen("abc\n"), "abc\r\n");
    assert_eq!(seen(""), "");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn what_fails_in_node_shows_the_functions_own_lines_and_no_others() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let refused = |name: &str, source: &str| {
        let folder = node.nodejs(name, "", source);
        let refused = node.run(&["deploy", folder.to_str().unwrap()]);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let ours = |text: &str| text.contains("function.js") || text.contains("<template>");
    let errors = refused("nothing", "exports.other = 1;\n");
    assert!(errors.contains("exports no 'handler'") && !ours(&errors), "{errors}");
    let errors = refused("thrown", "const one = 1;\nthrow new TypeError('mine');\n");
    assert!(
        errors.contains("TypeError: mine") && errors.contains("main.js:2:7") && !ours(&errors),
        "{errors}"
    );
    let source = "exports.handler = async () => {\n  await null;\n  throw new Error('later');\n};\n";
    node.deploy(&node.nodejs("late", "", source));
    assert_eq!(node.call("late", &json!({})).0, 500);
    let logs = node.ok(&["logs", "late"]);
    assert!(logs.contains("later") && logs.contains("main.js:3:9") && !ours(&logs), "{logs}");
}

#[test]
fn a_bad_version_never_serves_and_a_good_one_can_come_back() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let one = node.python(
        "counter",
        "",
        "print('loading')\ndef handler(event, context):\n    return {'version': 1}\n",
    );
    node.deploy(&one);
    for broken in ["import no_such_module\n", "def handler(:\n", "nothing = 1\n"] {
        let folder = node.python("counter", "", broken);
        let refused = node.run(&["deploy", folder.to_str().unwrap()]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && errors.contains("does not load"), "{errors}");
    }
    let folder = node.python("counter", "", "print('almost')\nraise SystemExit(3)\n");
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("almost"), "{refused:?}");
    assert_eq!(node.call("counter", &json!({})), (200, json!({"version": 1})));
    assert!(node.ok(&["logs", "counter"]).contains("    loading"));
    let two = node.python("counter", "", "def handler(event, context):\n    return {'version': 2}\n");
    assert_eq!(node.deploy(&two)["version"], 2);
    assert_eq!(node.call("counter", &json!({})).1["version"], 2);
    node.ok(&["rollback", "counter"]);
    assert_eq!(node.call("counter", &json!({})).1["version"], 1);
    node.ok(&["rollback", "counter", "--to", "2"]);
    assert_eq!(node.call("counter", &json!({})).1["version"], 2);
    assert_ne!(node.code(&["rollback", "counter", "--to", "9"]), 0);
    node.ok(&["delete", "counter", "--yes"]);
    assert_eq!(node.call("counter", &json!({})).0, 404);
}

#[test]
fn failures_say_where_and_are_found_by_their_request() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "import os, time\n\
        def handler(event, context):\n    print('asked for', event['do'])\n    what = event['do']\n\
        \x20   if what == 'raise': raise ValueError('not today')\n    if what == 'exit': os._exit(3)\n\
        \x20   if what == 'sleep': time.sleep(30)\n    if what == 'eat': return len(bytearray(1 << 30))\n\
        \x20   return 'fine'\n";
    let folder = node.python("moody", "timeout = \"1s\"\nmemory = \"128MiB\"\n", source);
    node.deploy(&folder);
    for (what, status, said) in [
        ("raise", 500, "ValueError: not today"),
        ("exit", 500, "status 3"),
        ("sleep", 504, "took too long"),
        ("eat", 500, "function moody"),
    ] {
        let (found, problem) = node.call("moody", &json!({ "do": what }));
        assert_eq!(found, status, "{what}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{what}: {problem}");
        assert_eq!(problem["component"], "function");
        let id = problem["request_id"].as_str().unwrap();
        let logs = node.http(&format!("GET /v1/logs?request_id={id}"), b"");
        let logs: Value = serde_json::from_str(logs.split_once("\r\n\r\n").unwrap().1).unwrap();
        let record = &logs["records"][0];
        assert_eq!((&record["status"], &record["function"]), (&json!(status), &json!("moody")), "{logs}");
        assert!(record["log"].as_str().unwrap().contains(&format!("asked for {what}")), "{logs}");
        let told = node.ok(&["logs", "moody", "--request-id", id]);
        assert!(told.contains(said) && told.contains(&format!("    asked for {what}")), "{told}");
        // The next request finds the function well, in a new instance if need be.
        assert_eq!(node.call("moody", &json!({"do": "well"})).0, 200, "after {what}");
    }
}

#[test]
fn functions_see_neither_the_node_nor_each_other() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let port = node.address.rsplit(':').next().unwrap().to_owned();
    let source = format!(
        "import os, socket, glob\n\
        def attempt(act):\n    try:\n        return repr(act())\n    except BaseException as error:\n        return type(error).__name__\n\
        def handler(event, context):\n    return {{\n\
        \x20   'home': attempt(lambda: os.listdir({home:?})),\n\
        \x20   'socket': attempt(lambda: socket.socket(socket.AF_UNIX).connect({socket:?})),\n\
        \x20   'api': attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2)),\n\
        \x20   'write': attempt(lambda: open('/app/main.py', 'w')),\n\
        \x20   'left': sorted(glob.glob('/tmp/*')), 'write_tmp': attempt(lambda: open('/tmp/' + event['who'], 'w').close()),\n\
        \x20   'secret': os.environ.get('SECRET'), 'others': [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))],\n\
        \x20   }}\n",
        home = home.path().display().to_string(),
        socket = home.path().join("node.sock").display().to_string(),
    );
    let one = node.python("one", "environment = { SECRET = \"of one\" }\n", &source);
    let two = node.python("two", "", &source);
    node.deploy(&one);
    node.deploy(&two);
    let (status, first) = node.call("one", &json!({"who": "one"}));
    assert_eq!(status, 200, "{first}");
    let (_, second) = node.call("two", &json!({"who": "two"}));
    for seen in [&first, &second] {
        assert_eq!(seen["home"], "FileNotFoundError", "{seen}");
        assert_eq!(seen["socket"], "FileNotFoundError", "{seen}");
        assert!(
            ["OSError", "ConnectionRefusedError", "PermissionError"].iter().any(|name| seen["api"] == *name),
            "{seen}"
        );
        assert!(["OSError", "PermissionError"].iter().any(|name| seen["write"] == *name), "{seen}");
        assert_eq!((&seen["left"], &seen["others"]), (&json!([]), &json!([])), "{seen}");
        // The control: what is allowed works, so that the rest is no accident.
        assert_eq!(seen["write_tmp"], "None", "{seen}");
    }
    assert_eq!((&first["secret"], &second["secret"]), (&json!("of one"), &Value::Null));
}

#[test]
fn many_requests_at_once_share_the_instances_that_are_allowed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "import os, time\nserved = 0\n\
        def handler(event, context):\n    global served\n    served += 1\n    time.sleep(0.05)\n    return {'n': event['n'], 'served': served}\n";
    let folder = node.python("slow", "concurrency = 3\n", source);
    node.deploy(&folder);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..24)
            .map(|n| {
                (
                    n,
                    scope.spawn({
                        let node = &node;
                        move || node.call("slow", &json!({ "n": n }))
                    }),
                )
            })
            .collect();
        for (n, answer) in asked {
            let (status, body) = answer.join().unwrap();
            assert_eq!((status, &body["n"]), (200, &json!(n)), "{body}");
        }
    });
    let described: Value = serde_json::from_str(&node.ok(&["describe", "slow", "-o", "json"])).unwrap();
    let instances =
        described["instances"]["idle"].as_u64().unwrap() + described["instances"]["busy"].as_u64().unwrap();
    assert!((1..=3).contains(&instances), "{described}");
    assert_eq!(described["requests"], 24);
}

#[test]
fn a_node_that_ends_leaves_no_instance_behind() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = node.python("idle", "", "def handler(event, context):\n    return 'here'\n");
    node.deploy(&folder);
    assert_eq!(node.call("idle", &json!({})).0, 200);
    let pid = node.child.id();
    let groups = || {
        let pattern = format!("sinew-{pid}-");
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"];
        let entries = roots.iter().flat_map(|root| std::fs::read_dir(root).into_iter().flatten().flatten());
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&pattern)).count()
    };
    assert!(groups() > 0, "the test can see control groups");
    assert_eq!(node.terminate(), 0);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(groups(), 0);
}

#[test]
fn secrets_reach_functions_and_are_written_nowhere() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let set = |value: &str| {
        let mut command = node.command(&["secret", "set", "DB_URL"]);
        let mut child =
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    let source = "import os\ndef handler(event, context):\n    return {'url': os.environ['DB_URL']}\n";
    let folder = node.python("keeper", "secrets = [\"DB_URL\"]\n", source);
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && errors.contains("sinew secret set DB_URL"), "{errors}");
    set("hunter2-of-the-first\n");
    node.deploy(&folder);
    let url = || node.call("keeper", &json!({})).1["url"].clone();
    assert_eq!(url(), "hunter2-of-the-first");
    set("hunter2-of-the-second");
    assert_eq!(url(), "hunter2-of-the-second", "an instance that knows the old value serves no more");
    assert!(node.ok(&["secret", "list"]).contains("keeper"));
    assert_ne!(node.code(&["secret", "rm", "DB_URL"]), 0, "it is needed");
    let told = [
        node.ok(&["describe", "keeper", "-o", "json"]),
        node.ok(&["logs", "keeper"]),
        node.ok(&["secret", "list", "-o", "json"]),
    ];
    assert!(told.iter().all(|told| !told.contains("hunter2")), "{told:?}");
    assert_eq!(node.terminate(), 0);
    let mut folders = vec![home.path().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if let Ok(bytes) = std::fs::read(entry.path()) {
                seen += 1;
                assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "{}", entry.path().display());
            }
        }
    }
    assert!(seen > 3, "the test can see files");
    let node = Node::start(home.path());
    assert_eq!(node.call("keeper", &json!({})).1["url"], "hunter2-of-the-second", "also after a restart");
}

#[test]
fn a_call_whose_client_left_ends_and_frees_its_place() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source =
        "import time\ndef handler(event, context):\n    time.sleep(event['s'])\n    return 'awake'\n";
    let folder = node.python("sleepy", "concurrency = 1\ntimeout = \"300s\"\n", source);
    node.deploy(&folder);
    let mut stream = std::net::TcpStream::connect(&node.address).unwrap();
    let body = r#"{"s": 250}"#;
    let head = format!(
        "POST /function/sleepy HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let described =
        || serde_json::from_str::<Value>(&node.ok(&["describe", "sleepy", "-o", "json"])).unwrap();
    while described()["instances"]["busy"] != 1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(stream);
    // There is one instance; only its end lets this one in.
    assert_eq!(node.call("sleepy", &json!({"s": 0})), (200, "awake".into()));
}

#[test]
fn a_function_that_names_imports_is_forked_with_them_loaded() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "import sys\nloaded = 'sqlite3' in sys.modules\ndef handler(event):\n    import sqlite3\n    \
                  return {'loaded': loaded, 'one': sqlite3.connect(':memory:').execute('select 1').fetchone()[0]}\n";
    for (name, imports, loaded) in
        [("with", "imports = [\"sqlite3\", \"decimal\"]\ndisk = \"64 MiB\"\n", true), ("without", "", false)]
    {
        node.deploy(&node.python(name, imports, source));
        assert_eq!(node.call(name, &json!({})), (200, json!({"loaded": loaded, "one": 1})), "{name}");
    }
    // One that names what is not there is refused when it is deployed.
    let refusal = |folder: &Path| {
        let refused = node.run(&["deploy", folder.to_str().unwrap()]);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let told = refusal(&node.python("absent", "imports = [\"no_such_module\"]\n", source));
    assert!(told.contains("cannot import no_such_module") && told.contains("`imports`"), "{told}");
    let told = refusal(&node.python("path", "imports = [\"/etc/x\"]\n", source));
    assert!(told.contains("is no name of a module"), "{told}");
    assert_eq!(node.call("with", &json!({})).0, 200);
}

/// Processes of this name. Kernels give names 15 bytes.
fn processes_called(name: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_called = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    pids.filter(is_called).collect()
}

#[test]
fn a_function_is_deployed_although_its_process_is_killed_once_while_it_is_loaded() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    for (function, kills, is_deployed) in [("once", 1, true), ("always", 2, false)] {
        let name = format!("{function}-{}", std::process::id() % 100_000);
        let source = format!(
            "import ctypes, time\nctypes.CDLL(None).prctl(15, b'{name}')\ntime.sleep(1)\n\
             def handler(event):\n    return 'loaded'\n"
        );
        let folder = node.python(function, "", &source);
        let mut deploy =
            node.command(&["deploy", folder.to_str().unwrap()]).stderr(Stdio::piped()).spawn().unwrap();
        let mut killed = Vec::new();
        while killed.len() < kills && deploy.try_wait().unwrap().is_none() {
            for pid in processes_called(&name) {
                if !killed.contains(&pid) {
                    let sent = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
                    assert!(sent.success());
                    killed.push(pid);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let done = deploy.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!((killed.len(), done.status.success()), (kills, is_deployed), "{told}");
        assert!(is_deployed || told.contains("ended by signal 9"), "{told}");
    }
    assert_eq!(node.call("once", &json!({})), (200, json!("loaded")));
}
