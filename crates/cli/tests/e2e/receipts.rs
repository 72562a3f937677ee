// SPDX-License-Identifier: Apache-2.0
//! Receipts: given, checked without a node, audited by this one and another, and not
//! believed once anything of them was changed. Requests that can wait.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Node, home};

const RATES: &str = "[rates]\ncurrency = \"EUR\"\nper_request = 0.001\nper_gfuel = 5.0\nper_gib_reserved = 0.5\n\
    patient_discount = 0.5\npatient_s = 60\n";

/// Three applications, two of which are arguments of the third, and count fuel.
fn expression(add: &str) -> String {
    format!(
        "let add = {add}; {{mem: 1MiB, fuel: 10000}} add(!{{mem: 2MiB, fuel: 10000}} add(1u8, 2u8), !{{mem: 2MiB}} add(3u8, 4u8))"
    )
}

fn node_with_rates(home: &Path) -> Node {
    let config = home.join("node.toml");
    std::fs::write(&config, RATES).unwrap();
    Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()])
}

/// The receipt of an expression, in a file of the node's home.
fn receipt(node: &Node, expression: &str, name: &str, more: &[&str]) -> PathBuf {
    let path = node.home.join(name);
    node.ok(&[&["eval", expression, "--as", "u64", "--receipt", path.to_str().unwrap()], more].concat());
    path
}

fn told(node: &Node, command: &str, path: &Path) -> Value {
    let output = node.run(&[command, path.to_str().unwrap(), "-o", "json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_receipt_says_what_was_computed_by_whom_and_at_what_cost() {
    let home = home();
    let node = node_with_rates(home.path());
    let add = node.codelet("add.wasm", super::ADD);
    let first = receipt(&node, &expression(&add), "first", &[]);
    let said = told(&node, "verify", &first);
    assert_eq!((&said["applications"], &said["ran"]), (&3.into(), &3.into()), "{said}");
    assert_eq!(said["cost"]["reserved_bytes"], 5 << 20, "{said}");
    assert_eq!(said["cost"]["uncounted"], 1, "{said}");
    assert!(said["cost"]["fuel"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(said["cost"], said["cost_now"]);
    let module = std::fs::metadata(node.home.join("add.wasm")).unwrap().len();
    assert_eq!(said["cost"]["inputs_bytes"], 3 * module, "its other inputs are literals: {said}");
    // What is remembered is told with its first cost, and paid as a request.
    let second = receipt(&node, &expression(&add), "second", &[]);
    let again = told(&node, "verify", &second);
    assert_eq!((&again["applications"], &again["ran"]), (&3.into(), &0.into()), "{again}");
    assert_eq!((&again["cost"], &again["goal"]), (&said["cost"], &said["goal"]));
    assert_eq!(again["price"], 0.001, "{again}");
    assert!(said["price"].as_f64().unwrap() > 0.003, "{said}");
    // Half of the discount for half of the time.
    let patient = receipt(&node, &expression(&add).replace("1u8", "9u8"), "patient", &["--by", "30s"]);
    let patient = told(&node, "verify", &patient);
    assert_eq!((&patient["by_ms"], &patient["price_factor"]), (&30_000.into(), &0.75.into()), "{patient}");
    // The key is the node's, and stays.
    let key = node.ok(&["identity"]);
    assert_eq!(said["node"], key.as_str());
    assert_eq!(node.code(&["verify", first.to_str().unwrap(), "--key", &key]), 0);
    let other = format!("ed25519:{}", "ab".repeat(32));
    assert_eq!(node.code(&["verify", first.to_str().unwrap(), "--key", &other]), 1);
    assert_eq!(node.code(&["verify", node.home.join("none").to_str().unwrap()]), 4);
    assert_eq!(node.terminate(), 0);
    let node = Node::start(home.path());
    assert_eq!(node.ok(&["identity"]), key);
    // Without the goal's steps in memory, what was forgotten runs again: nothing is missing.
    let third = told(&node, "verify", &receipt(&node, &expression(&add), "third", &[]));
    assert_eq!((&third["cost"], &third["applications"]), (&said["cost"], &3.into()), "{third}");
    assert_eq!(third["price"], Value::Null, "this node has no rates");
}

#[test]
fn without_a_receipt_an_evaluation_costs_the_same_and_its_tenant_has_it_on_its_account() {
    let home = home();
    let node = node_with_rates(home.path());
    let add = node.codelet("add.wasm", super::ADD);
    // All three count fuel, and no two of these share an application.
    let with_fuel = |one: &str, other: &str| {
        let counted = expression(&add).replace("!{mem: 2MiB} add", "!{mem: 2MiB, fuel: 9000} add");
        counted.replace("1u8", one).replace("4u8", other)
    };
    let said = told(&node, "verify", &receipt(&node, &with_fuel("1u8", "4u8"), "receipt", &[]));
    // Another computation of the same cost, which nobody remembers.
    let plain: Value =
        serde_json::from_str(&node.ok(&["eval", &with_fuel("2u8", "6u8"), "-o", "json"])).unwrap();
    for name in ["inputs_bytes", "reserved_bytes", "fuel"] {
        assert_eq!(plain["cost"][name], said["cost"][name], "{name}: {plain} {said}");
    }
    assert_eq!((&plain["price"], &plain["currency"]), (&said["price"], &"EUR".into()), "{plain} {said}");
    assert_eq!(plain["cost"]["cpu_us"], 0.0, "all of it counts fuel: {plain}");
    let verbose = node.run(&["eval", &with_fuel("2u8", "6u8"), "-v"]);
    let verbose = String::from_utf8_lossy(&verbose.stderr).into_owned();
    assert!(
        verbose.contains("0 B of inputs, 0 B reserved, 0 fuel, price 0.001000 EUR"),
        "remembered: {verbose}"
    );
    // What counts no fuel has processor time.
    let uncounted = node.ok(&["eval", &expression(&add).replace("1u8", "5u8"), "-o", "json"]);
    let uncounted: Value = serde_json::from_str(&uncounted).unwrap();
    assert!(uncounted["cost"]["cpu_us"].as_f64().unwrap() > 0.0, "{uncounted}");
    // A tenant's evaluations are summed up, and nobody else's.
    let key = node.ok(&["key", "create", "--scope", "deploy", "--tenant", "payer"]);
    let goal = node.ok(&["eval", &with_fuel("2u8", "6u8"), "-o", "json"]);
    let goal: Value = serde_json::from_str(&goal).unwrap();
    let body = format!("{{\"handle\": {}}}", goal["result"]);
    let headers = format!("X-Api-Key: {key}\r\nContent-Type: application/json\r\n");
    let answer = super::http_with(&node.address, "POST /v1/evaluate", &headers, body.as_bytes());
    assert!(answer.contains("\"price\":0.001"), "{answer}");
    let keys = node.ok(&["key", "list", "-o", "json"]);
    let payer = keys.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let payer = payer.into_iter().find(|key| key["tenant"] == "payer").unwrap();
    let evaluations = &payer["in_use"]["evaluations"];
    assert_eq!((&evaluations["ended"], &evaluations["price"]), (&1.into(), &0.001.into()), "{payer}");
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_tenant_evaluation_price_total{tenant=\"payer\"} 0.001"), "{metrics}");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn an_audit_runs_all_of_it_again_and_another_node_can() {
    let home = home();
    let node = node_with_rates(home.path());
    let add = node.codelet("add.wasm", super::ADD);
    let file = receipt(&node, &expression(&add), "receipt", &[]);
    let before = applications(&node);
    let audit = told(&node, "audit", &file);
    assert_eq!((&audit["agrees"], &audit["applications"]), (&true.into(), &3.into()), "{audit}");
    assert_eq!(applications(&node), before + 3, "nothing was taken from what is remembered");
    assert_eq!(audit["signed_by"], audit["run_by"]);
    let elsewhere = super::home();
    let other = Node::start(elsewhere.path());
    let refused = other.run(&["audit", file.to_str().unwrap()]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("cannot be run on this node"), "{why}");
    other.ok(&["eval", &expression(&add)]);
    let audit = told(&other, "audit", &file);
    assert_eq!(audit["agrees"], true, "{audit}");
    assert_ne!(audit["signed_by"], audit["run_by"]);
    // A failure that comes again has a receipt too.
    let trap = node.codelet("trap.wasm", super::TRAP);
    let file = node.home.join("trap");
    assert_eq!(node.code(&["eval", &format!("{trap}()"), "--receipt", file.to_str().unwrap()]), 3);
    assert_eq!(told(&node, "audit", &file)["agrees"], true);
    // One that does not has none, and the failure is told.
    let looping = node.codelet("loop.wasm", super::LOOP);
    let none = node.home.join("none");
    let loops = ["eval", &format!("{looping}()"), "--deadline", "200ms", "--receipt", none.to_str().unwrap()];
    assert_eq!((node.code(&loops), none.exists()), (5, false));
}

fn applications(node: &Node) -> u64 {
    let metrics = node.http("GET /metrics", b"");
    let line = metrics.lines().find(|line| line.starts_with("sinew_applications_total ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A receipt is worth nothing once a byte of it is another, whichever it is.
#[test]
fn no_byte_of_a_receipt_can_be_changed() {
    let home = home();
    let node = Node::start(home.path());
    let add = node.codelet("add.wasm", super::ADD);
    let whole = std::fs::read(receipt(&node, &expression(&add), "receipt", &[])).unwrap();
    assert_eq!(whole.len(), 288 + 64 + 3 * 96);
    let believed =
        |bytes: &[u8]| objects::Receipt::from_bytes(bytes).is_ok_and(|receipt| node::is_signed(&receipt));
    assert!(believed(&whole));
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            assert!(!believed(&changed), "bit {bit} of byte {at}");
        }
    }
    for len in 0..whole.len() {
        assert!(!believed(&whole[..len]), "the first {len} bytes");
    }
    // What another key has signed names that key: nobody signs in the name of another.
    let elsewhere = super::home();
    let other = Node::start(elsewhere.path());
    let theirs = std::fs::read(receipt(&other, &expression(&add), "receipt", &[])).unwrap();
    let mixed = [&whole[..288], &theirs[288..]].concat();
    assert!(believed(&theirs) && !believed(&mixed));
    let path = node.home.join("mixed");
    std::fs::write(&path, mixed).unwrap();
    let refused = node.run(&["verify", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("do not believe it"));
}

/// Both workers are busy; when they are free, the half of the time in which it waits for
/// others is over, and it is before those that came later.
#[test]
fn who_can_wait_lets_others_go_first_and_is_not_forgotten() {
    let home = home();
    let node = Node::start(home.path());
    let add = node.codelet("add.wasm", super::ADD);
    node.ok(&["eval", &format!("{add}(1u8, 1u8)")]);
    // With nobody else there, nothing is waited for.
    let begun = Instant::now();
    node.ok(&["eval", &format!("{add}(1u8, 2u8)"), "--by", "1h"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let looping = node.codelet("loop.wasm", super::LOOP);
    let busy = |item: u64, deadline: &str| {
        let expression = format!("{looping}({item}u8)");
        let mut command = node.command(&["eval", &expression, "--deadline", deadline]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Both workers until 3 s, and both from then on by who comes after the one that can wait.
    let mut crowd = vec![busy(1, "3s"), busy(2, "3s")];
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let expression = format!("{add}(1u8, 3u8)");
    let mut waits = node.command(&["eval", &expression, "--by", "2s"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    crowd.extend([busy(3, "8s"), busy(4, "8s")]);
    assert!(waits.wait().unwrap().success());
    let took = begun.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&took), "{took:?}");
    for mut child in crowd {
        child.wait().unwrap();
    }
    let refused = node.run(&["eval", &format!("{add}(1u8, 4u8)"), "--by", "2s", "--deadline", "1s"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("given up before"), "{refused:?}");
}
