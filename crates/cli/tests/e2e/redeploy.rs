// SPDX-License-Identifier: Apache-2.0
//! A function that is deployed again and again while it is asked: every request has its answer, of one version or
//! the other, and what comes after a deployment has ended is answered by that.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

const CLIENTS: usize = 6;
const VERSIONS: u64 = 8;

/// Whatever happens, clients come to their end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Deploys version after version while clients ask; `source` has a function's source that answers its number.
fn loses_nothing(node: &Node, name: &str, deploy: impl Fn(u64)) {
    deploy(1);
    let (is_over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let (wrong, seen) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let number = |body: &str| body.trim().trim_matches('"').parse::<u64>().ok();
    let ask = || {
        let answer = node.http(&format!("POST /function/{name}"), b"{}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match number(body).filter(|_| head.starts_with("HTTP/1.1 200")) {
            Some(version) => Ok(version),
            None => Err(answer.clone()),
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    asked.fetch_add(1, Ordering::SeqCst);
                    match ask() {
                        Ok(version) => _ = seen.lock().unwrap().insert(version),
                        Err(answer) => wrong.lock().unwrap().push(answer),
                    }
                }
            });
        }
        let served = |version: u64| {
            // So that others are under way.
            let before = asked.load(Ordering::SeqCst);
            while asked.load(Ordering::SeqCst) < before + 2 * CLIENTS as u64 {
                std::thread::yield_now();
            }
            let got = ask();
            if got != Ok(version) {
                wrong.lock().unwrap().push(format!("after version {version} was deployed: {got:?}"));
            }
        };
        for version in 2..=VERSIONS {
            deploy(version);
            served(version);
        }
        node.ok(&["rollback", name, "--to", "1"]);
        served(1);
        node.ok(&["alias", name, "live", "2@50", "3"]);
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{name}: {} of {asked:?}: {:?}", wrong.len(), wrong.first());
    assert_eq!(seen.into_inner().unwrap(), (1..=VERSIONS).collect(), "{name}: all have served somebody");
    // Shared by lot: that one of both has none of 60 happens once in 10^18.
    let shares: BTreeSet<u64> = (0..60).map(|_| ask().unwrap()).collect();
    assert_eq!(shares, [2, 3].into(), "{name}");
}

#[test]
fn functions_that_are_deployed_again_and_again_lose_no_request() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let deployed = |folder: std::path::PathBuf| _ = node.deploy(&folder);
    loses_nothing(&node, "inpython", |version| {
        let source = format!(
            "import time\ndef handler(event, context):\n    time.sleep(0.02)\n    return {version}\n"
        );
        deployed(node.python("inpython", "", &source));
    });
    loses_nothing(&node, "innode", |version| {
        let source = format!(
            "exports.handler = async () => {{\n  await new Promise((after) => setTimeout(after, 20));\n  return {version};\n}};\n"
        );
        deployed(node.nodejs("innode", "requests-per-instance = 4\n", &source));
    });
    loses_nothing(&node, "inshell", |version| {
        deployed(node.script(
            "inshell",
            "mode = \"stdin\"\n",
            &format!("#!/bin/sh\nsleep 0.02\necho {version}\n"),
        ));
    });
    let totals = node.described("inpython");
    assert_eq!(totals["failures"], json!(0), "{totals}");
    assert_eq!(node.terminate(), 0);
}

/// Each of an application's functions says its version: after a deployment that was refused, the old one.
#[test]
fn functions_of_one_manifest_are_deployed_together_or_not_at_all() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("shop");
    std::fs::create_dir_all(&folder).unwrap();
    let names = ["one", "two", "three"];
    let manifest: Vec<String> = names
        .iter()
        .map(|name| format!("[functions.{name}]\nruntime = \"python\"\nhandler = \"{name}.handler\"\n"))
        .collect();
    std::fs::write(folder.join("sinew.toml"), manifest.concat()).unwrap();
    let write = |name: &str, body: &str| {
        std::fs::write(folder.join(format!("{name}.py")), format!("def handler(event):\n    {body}\n"))
            .unwrap();
    };
    let deploy = || node.run(&["deploy", folder.to_str().unwrap()]);
    let serve = || names.map(|name| node.call(name, &json!({})).1);
    names.iter().for_each(|name| write(name, "return 1"));
    assert!(deploy().status.success());
    assert_eq!(serve(), [1, 1, 1]);
    // The last one does not load.
    write("one", "return 2");
    write("two", "return 2");
    write("three", "return (");
    let refused = deploy();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("three was not deployed"), "{told}");
    assert!(told.contains("not deployed either, for all are or none: one, two"), "{told}");
    assert_eq!(serve(), [1, 1, 1]);
    write("three", "return 2");
    assert!(deploy().status.success());
    assert_eq!(serve(), [2, 2, 2]);
    assert_eq!(node.terminate(), 0);
}
