// SPDX-License-Identifier: Apache-2.0
//! What requests took of the machine, and their price: true where a function
//! works, waits, has children, or calls others; and told where people look.

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const RATES: &str =
    "[rates]\ncurrency = \"EUR\"\nper_request = 0.001\nper_cpu_second = 1.0\nper_gib_second = 0.5\n";

/// Burns so many milliseconds of the processor itself, in a child, and sleeps.
const WORK_PY: &str = r#"
import os, time, sinew

def burn(ms):
    end = time.process_time() + ms / 1000
    while time.process_time() < end:
        pass

def handler(event, context):
    burn(event.get("burn", 0))
    if event.get("child"):
        pid = os.fork()
        if pid == 0:
            burn(event["child"])
            os._exit(0)
        os.waitpid(pid, 0)
    time.sleep(event.get("sleep", 0) / 1000)
    if event.get("call"):
        return sinew.call("work", event["call"])
    return {"n": 1}
"#;

fn node_with_work(home: &std::path::Path) -> Node {
    let config = home.join("node.toml");
    std::fs::write(&config, RATES).unwrap();
    let node = Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    node.deploy(&node.python("work", "timeout = \"30s\"\nconcurrency = 4\nmemory = \"256MiB\"\n", WORK_PY));
    node
}

/// The records of the newest request, the one that came first before those that it called.
fn newest(node: &Node) -> Vec<Value> {
    let logs = |query: &str| -> Value {
        let answer = node.http(&format!("GET /v1/logs?{query}"), b"");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let id = logs("limit=1")["records"][0]["request_id"].as_str().unwrap().to_owned();
    let mut records = logs(&format!("request_id={id}"))["records"].as_array().unwrap().clone();
    records.sort_by_key(|record| record["begun_us"].as_u64());
    records
}

fn cpu_ms(record: &Value) -> f64 {
    record["usage"]["cpu_us"].as_f64().unwrap_or_else(|| panic!("{record}")) / 1000.0
}

#[test]
fn processor_time_is_that_of_the_call_and_of_what_it_started_and_waiting_is_not_held() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node_with_work(home.path());
    for (event, least_ms, most_ms) in [
        (json!({}), 0.0, 40.0),
        (json!({"burn": 120}), 119.0, 200.0),
        // A control: a sleeper has no processor time, a child's is its parent's.
        (json!({"sleep": 300}), 0.0, 100.0),
        (json!({"child": 150}), 149.0, 250.0),
    ] {
        assert_eq!(node.call("work", &event).0, 200);
        let records = newest(&node);
        let (cpu, usage) = (cpu_ms(&records[0]), &records[0]["usage"]);
        assert!((least_ms..most_ms).contains(&cpu), "{event}: {usage}");
        assert_eq!(usage["cpu_is"], "own", "{event}: {usage}");
        let peak = usage["memory_peak_bytes"].as_u64().unwrap();
        assert!((1 << 20..256 << 20).contains(&peak), "{usage}");
        let (running, held) = (usage["running_us"].as_u64().unwrap(), usage["held_us"].as_u64().unwrap());
        assert_eq!(running, held, "{usage}");
        assert!(usage["received_bytes"] == event.to_string().len() && usage["sent_bytes"].as_u64() > Some(5));
        let gib_seconds = held as f64 / 1e6 * 0.25;
        let price = 0.001 + cpu / 1000.0 + 0.5 * gib_seconds;
        assert!((usage["price"].as_f64().unwrap() - price).abs() < 1e-5, "{price}: {usage}");
    }

    // Who waits for another function holds nothing meanwhile.
    let event = json!({"burn": 30, "call": {"burn": 60, "sleep": 200}});
    assert_eq!(node.call("work", &event).0, 200);
    let records = newest(&node);
    assert_eq!(records.len(), 2, "{records:?}");
    let [caller, callee] = [&records[0]["usage"], &records[1]["usage"]];
    assert!(caller["waiting_us"].as_u64() > Some(250_000) && callee["waiting_us"] == 0, "{caller} {callee}");
    assert!(caller["held_us"].as_u64() < Some(200_000) && callee["held_us"].as_u64() > Some(250_000));
    assert!((29.0..90.0).contains(&cpu_ms(&records[0])) && (59.0..120.0).contains(&cpu_ms(&records[1])));

    // And what is told to people adds up.
    let id = records[0]["request_id"].as_str().unwrap();
    let told = node.ok(&["describe", "--request-id", id]);
    assert!(told.contains("in 2 calls") && told.contains("EUR") && told.contains("  cpu "), "{told}");
    let described = node.ok(&["describe", "work"]);
    for part in ["processor", "memory peak", "bodies", "price", "EUR"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let invoked = node.run(&["invoke", "work", "-v", "-d", &event.to_string()]);
    let told = String::from_utf8_lossy(&invoked.stderr);
    for part in [
        "waited for other functions",
        "processor",
        "memory of the instance",
        "price",
        "with the functions that it called",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn a_codelet_is_metered_by_its_run_and_a_remembered_result_by_its_bytes_only() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node_with_work(home.path());
    let folder = home.path().join("codelet");
    node.ok(&["new", "codelet", "--to", folder.to_str().unwrap(), "--runtime", "wasm"]);
    node.deploy(&folder);
    let deployed: Vec<String> = node.ok(&["list"]).lines().map(str::to_owned).collect();
    assert!(deployed.iter().any(|line| line.starts_with("codelet")), "{deployed:?}");
    let answer = node.http("POST /function/codelet", b"hello");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let first = newest(&node).remove(0);
    assert!(first["usage"]["cpu_us"].is_u64() && first["usage"]["cpu_is"] == "own", "{first}");
    assert_eq!(first["usage"]["received_bytes"], 5, "{first}");
}

/// A name without what the format adds for its kind of sample.
fn family<'a>(name: &'a str, kinds: &std::collections::HashMap<String, String>) -> (&'a str, String) {
    for (suffix, kind) in [
        ("_total", "counter"),
        ("_bucket", "histogram"),
        ("_sum", "histogram"),
        ("_count", "histogram"),
        ("_info", "info"),
    ] {
        if let Some(family) = name.strip_suffix(suffix)
            && kinds.get(family).is_some_and(|known| known == kind)
        {
            return (family, kind.to_owned());
        }
    }
    let kind = kinds.get(name).unwrap_or_else(|| panic!("{name} has no type"));
    assert_eq!(kind, "gauge", "{name}");
    (name, kind.clone())
}

#[test]
fn metrics_are_as_the_format_says_and_tell_what_functions_used() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node_with_work(home.path());
    for _ in 0..3 {
        assert_eq!(node.call("work", &json!({"burn": 20})).0, 200);
    }
    let answer = node.http("GET /metrics", b"");
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n"), "the end says that it is whole");
    let (mut kinds, mut samples) = (std::collections::HashMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap_or_default());
            let rest = words.next().unwrap_or_default();
            match what {
                "TYPE" => assert!(kinds.insert(name.to_owned(), rest.to_owned()).is_none(), "twice: {line}"),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" | "EOF" => {}
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        let (_, kind) = family(name, &kinds);
        assert!(value.is_finite() && (kind == "gauge" || value >= 0.0), "{line}");
        samples.push((series.to_owned(), value));
    }
    let value = |series: &str| {
        let found = samples.iter().find(|(name, _)| name == series);
        found.unwrap_or_else(|| panic!("no {series} in\n{text}")).1
    };
    // Buckets only grow, and the last one has them all.
    for name in ["duration", "queue_duration", "start_duration", "cpu"] {
        let prefix = format!("sinew_function_{name}_seconds_bucket{{");
        let of_it = samples.iter().filter(|(series, _)| series.starts_with(&prefix));
        let (ends, buckets): (Vec<&str>, Vec<f64>) =
            of_it.map(|(series, value)| (series.as_str(), *value)).unzip();
        // A reader that finds no such end refuses all of it.
        assert!(ends.last().unwrap().contains("le=\"+Inf\""), "{ends:?}");
        assert!(buckets.len() == 13 && buckets.is_sorted(), "{name}: {buckets:?}");
        let count = value(&format!("sinew_function_{name}_seconds_count{{function=\"work\"}}"));
        assert_eq!(*buckets.last().unwrap(), count, "{name}");
    }
    let of_work = |name: &str| value(&format!("sinew_function_{name}{{function=\"work\"}}"));
    assert_eq!((of_work("duration_seconds_count"), of_work("cpu_seconds_count")), (3.0, 3.0));
    assert!((0.06..0.5).contains(&of_work("cpu_seconds_sum")), "{text}");
    assert!(of_work("price_total") > 0.06 && of_work("memory_peak_bytes") > 1e6);
    assert!(of_work("memory_byte_seconds_total") > 0.06 * 256.0 * 1024.0 * 1024.0);
    // A client makes no labels.
    node.http("POST /function/nobody-deployed-this", b"");
    let answer = node.http("GET /metrics", b"");
    assert!(!answer.contains("nobody-deployed-this"));
}
