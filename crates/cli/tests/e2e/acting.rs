// SPDX-License-Identifier: Apache-2.0
//! What people do from the dashboard, by mouse and keys in a real browser: call a function, let
//! versions serve, end a run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::dashboard::{BROWSER, has_browser};
use super::functions::is_root;
use super::{Node, home};

/// A browser with one page.
struct Browser {
    child: Child,
    answers: BufReader<ChildStdout>,
    _files: tempfile::TempDir,
}

impl Browser {
    fn start() -> Self {
        let files = home();
        let script = files.path().join("browser.mjs");
        std::fs::write(&script, include_str!("browser.mjs")).unwrap();
        let profile = files.path().join("profile");
        let mut child = Command::new("node")
            .args([script.as_os_str(), BROWSER.as_ref(), profile.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers, _files: files }
    }

    /// Does a step of `browser.mjs`, and gives what it comes to.
    fn does(&mut self, step: &Value) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{step}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["failed"], Value::Null, "{step}");
        answer["ok"].take()
    }

    fn open(&mut self, node: &Node, hash: &str) {
        self.does(&json!({"open": format!("http://{}/dashboard/{hash}", node.address)}));
        self.until("document.querySelector('#page h1') !== null");
    }

    fn click(&mut self, selector: &str) {
        self.does(&json!({ "click": selector }));
    }

    fn until(&mut self, script: &str) {
        self.does(&json!({ "until": script }));
    }

    /// Until this is read somewhere on the page.
    fn reads(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    fn run(&mut self, script: &str) -> Value {
        self.does(&json!({ "run": script }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its browser when it has nothing more to read.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn described(node: &Node, name: &str) -> Value {
    serde_json::from_str(&node.ok(&["describe", name, "-o", "json"])).unwrap()
}

#[test]
fn people_call_functions_and_let_versions_serve() {
    if !is_root() || !has_browser() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "def handler(event, context):\n    if event == {'fail': True}:\n        raise ValueError('<b>no</b>')\n    \
                  return {'version': VERSION, 'got': event}\n";
    let folder = node.python("greeter", "", &source.replace("VERSION", "1"));
    node.deploy(&folder);
    std::fs::write(folder.join("main.py"), source.replace("VERSION", "2")).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap(), "-m", "in <b>euros</b>"]);

    let mut browser = Browser::start();
    browser.open(&node, "#/functions/greeter");
    a_function_is_called(&mut browser);
    versions_are_let_serve(&mut browser, &node);
    what_goes_wrong_stays_told(&mut browser);
    a_run_is_ended(&mut browser, &node);
    an_answer_is_read_while_it_comes(&mut browser, &node);
}

fn a_function_is_called(browser: &mut Browser) {
    let calls = |browser: &mut Browser, text: &str| {
        browser.does(&json!({"type": ["textarea", text]}));
        browser.click("form.call button");
    };
    calls(browser, r#"{"a": [1, 2]}"#);
    browser
        .until(r#"document.querySelector("pre.answer")?.textContent === '{"version":2,"got":{"a":[1,2]}}'"#);
    browser.reads("200 in ");
    // What is no JSON is a text.
    calls(browser, "two words");
    browser
        .until(r#"document.querySelector("pre.answer")?.textContent === '{"version":2,"got":"two words"}'"#);
    calls(browser, r#"{"fail": true}"#);
    browser.reads("500 in ");
    // It is text, whatever it says; and its request is a click away.
    browser.reads("ValueError: <b>no</b>");
    assert_eq!(browser.run("document.querySelector('#page b')"), Value::Null);
    // Other fields have the focus, the page is asked for again, and what was typed stays.
    browser.click("h1");
    browser.run("new Promise((resolve) => setTimeout(resolve, 2500))");
    assert_eq!(browser.run("document.querySelector('textarea').value"), r#"{"fail": true}"#);
    browser.click("section a");
    browser.reads("waited for its turn");
    browser.run("history.back()");
}

fn versions_are_let_serve(browser: &mut Browser, node: &Node) {
    browser.reads("in <b>euros</b>");
    let versions = described(node, "greeter")["versions"].clone();
    assert_eq!(versions[0]["note"], "in <b>euros</b>");
    assert!(
        versions[1]["deployed_ms"].as_u64() <= versions[0]["deployed_ms"].as_u64()
            && versions[1]["note"].is_null()
    );
    let all = "button[aria-label=\"Version 1 gets all requests\"]";
    browser.click(all);
    // It asks, and what nobody confirms in some seconds has not happened.
    browser.reads("all requests, now?");
    browser.until("!document.body.innerText.includes('all requests, now?')");
    assert_eq!(described(node, "greeter")["version"], 2);
    // A double click confirms nothing.
    let twice = format!(
        "document.querySelector('{all}').dispatchEvent(new MouseEvent('click', {{ bubbles: true, detail: 2 }}))"
    );
    browser.click(all);
    browser.run(&twice);
    browser.reads("all requests, now?");
    browser.click(all);
    browser.until("document.querySelector('h1').innerText.includes('version 1')");
    assert_eq!(described(node, "greeter")["version"], 1);
    let some = "button[aria-label=\"Version 2 gets a tenth of the requests\"]";
    browser.click(some);
    browser.click(some);
    browser.reads("90 %");
    let live = &described(node, "greeter")["aliases"]["live"];
    assert_eq!(*live, json!([{"version": 2, "percent": 10}, {"version": 1, "percent": 90}]));
}

fn what_goes_wrong_stays_told(browser: &mut Browser) {
    browser.run(
        "{ const own = fetch; window.fetch = (url, options) => options?.method === 'PUT' ? \
         Promise.resolve(new Response('{\"detail\": \"no <i>room</i>\"}', { status: 503 })) : own(url, options); }",
    );
    let all = "button[aria-label=\"Version 2 gets all requests\"]";
    browser.click(all);
    browser.click(all);
    browser
        .until("document.querySelector('#said').innerText === 'Version 2 gets all requests: no <i>room</i>'");
    browser.run("new Promise((resolve) => setTimeout(resolve, 1500))");
    browser.click("#said");
    browser.until("document.querySelector('#said').hidden");
}

fn a_run_is_ended(browser: &mut Browser, node: &Node) {
    let source = "import time\nfrom sinew import function, workflow\n\n@function\ndef waits(seconds):\n    time.sleep(seconds)\n\n\
                  @workflow\ndef handler(event):\n    return waits(600)\n";
    node.deploy(&node.python("slow", "workflow = true\n", source));
    node.http("POST /async-function/slow", b"{}");
    let last = || {
        let listed = node.ok(&["workflow", "list", "slow", "-n", "1", "-o", "json"]);
        serde_json::from_str::<Value>(listed.lines().next().unwrap_or("null")).unwrap()
    };
    super::draining::wait_for("it runs", || last()["steps"]["running"] == 1);
    let id = last()["id"].as_str().unwrap().to_owned();
    browser.open(node, &format!("#/runs/{id}"));
    let cancel = format!("button[aria-label=\"Cancel {id}\"]");
    browser.click(&cancel);
    browser.reads("end it now?");
    browser.click(&cancel);
    super::draining::wait_for("it ends", || last()["state"] == "cancelled");
    browser.reads("cancelled");
}

fn an_answer_is_read_while_it_comes(browser: &mut Browser, node: &Node) {
    let source = "import asyncio\n\nasync def handler(scope, receive, send):\n    \
                  await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                  await send({'type': 'http.response.body', 'body': b'a first piece', 'more_body': True})\n    \
                  await asyncio.sleep(600)\n";
    node.deploy(&node.python("drips", "", source));
    browser.open(node, "#/functions/drips");
    browser.click("form.call button");
    browser.reads("a first piece");
    browser.click("button[aria-label=\"Leave drips\"]");
    browser.reads("You have left it.");
    let busy = || described(node, "drips")["instances"]["busy"].as_u64();
    super::draining::wait_for("the node has left it, too", || busy() == Some(0));
}
