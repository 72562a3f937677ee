// SPDX-License-Identifier: Apache-2.0
//! Java functions, compiled when they are deployed.

use std::process::Command;

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

const MANIFEST: &str = r#"
[functions.shop]
runtime = "java"
handler = "shop.Shop"

[functions.plain]
runtime = "java"
handler = "shop.Plain::sum"

[functions.bytes]
runtime = "java"
handler = "shop.Bytes"

[functions.meets]
runtime = "java"
handler = "shop.Meets::meet"
concurrency = 1
requests-per-instance = 4

[functions.other]
runtime = "python"
handler = "other.handler"
"#;

const SHOP: &str = r#"package shop;

import com.amazonaws.services.lambda.runtime.*;
import java.util.List;

public class Shop implements RequestHandler<Shop.Order, Shop.Bill> {
    public record Item(String name, int count) {}
    public static class Order {
        private List<Item> items;
        public boolean fails;
        public void setItems(List<Item> items) { this.items = items; }
    }
    public static class Bill {
        public final int total;
        public Bill(int total) { this.total = total; }
        public String getText() { return "\u00e9 \"" + total + '"'; }
    }
    private int calls = 0;

    @Override
    public Bill handleRequest(Order order, Context context) {
        context.getLogger().log("call " + ++calls + " of " + context.getFunctionName() + " " + context.getMemoryLimitInMB());
        if (order.fails) throw new IllegalStateException("no shop today");
        return new Bill(order.items.stream().mapToInt(Item::count).sum());
    }
}
"#;

const PLAIN: &str = r#"package shop;

import java.util.Map;

class Plain {
    private final int one = 1;
    Object sum(Map<String, Object> event, com.amazonaws.services.lambda.runtime.Context context) {
        Object doubled = sinew.Sinew.call("other", Map.of("n", event.get("n")));
        return Map.of("statusCode", 201, "headers", Map.of("X-A", "b"), "body", "" + doubled + one);
    }
}
"#;

const MEETS: &str = r#"package shop;

import java.util.Map;
import java.util.concurrent.*;

class Meets {
    private static final CyclicBarrier ALL = new CyclicBarrier(4);
    private static final ExecutorService POOL = Executors.newFixedThreadPool(1);
    static Object meet(Map<String, Object> event) throws Exception {
        if (event.containsKey("alone")) return POOL.submit(() -> sinew.Sinew.call("other", event)).get();
        if (event.containsKey("deep")) return deep(1);
        ALL.await(20, TimeUnit.SECONDS);
        return sinew.Sinew.call("other", event);
    }
    private static int deep(int by) { return by + deep(by); }
}
"#;

const BYTES: &str = r#"package shop;

import com.amazonaws.services.lambda.runtime.*;
import java.io.*;

public class Bytes implements RequestStreamHandler {
    @Override
    public void handleRequest(InputStream in, OutputStream out, Context context) throws IOException {
        in.transferTo(out);
    }
}
"#;

fn what_is_written_for_those_who_begin(
    node: &Node,
    deploy: &dyn Fn(&std::path::Path) -> std::process::Output,
) {
    let folder = node.home.join("begun");
    node.ok(&["new", "hello", "-l", "java", "--to", folder.to_str().unwrap()]);
    assert!(deploy(&folder).status.success());
    assert_eq!(node.call("hello", &json!({"name": "Ada"})), (200, json!({"message": "Hello, Ada!"})));
}

#[test]
fn classes_are_compiled_called_and_told_where_they_fail() {
    let jdk = Command::new("javac").arg("--version").output();
    if !is_root() || !jdk.is_ok_and(|told| told.status.success()) {
        return eprintln!("skipped: needs root, and a JDK (openjdk-17-jdk-headless)");
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source");
    std::fs::create_dir_all(folder.join("shop")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("sinew.toml", MANIFEST);
    for (name, text) in [("Shop", SHOP), ("Plain", PLAIN), ("Bytes", BYTES), ("Meets", MEETS)] {
        write(&format!("shop/{name}.java"), text);
    }
    write("other.py", "def handler(event):\n    return event['n'] * 2\n");
    let deploy_in = |folder: &std::path::Path| {
        let mut command = node.command(&["deploy", folder.to_str().unwrap(), "-o", "json"]);
        command.env("XDG_CACHE_HOME", home.path().join("cache")).output().unwrap()
    };
    what_is_written_for_those_who_begin(&node, &deploy_in);
    let deploy = || deploy_in(&folder);
    let deployed = deploy();
    assert!(deployed.status.success(), "{}", String::from_utf8_lossy(&deployed.stderr));
    let order = json!({"items": [{"name": "a", "count": 2}, {"name": "b", "count": 3}], "more": null});
    for call in [1, 2] {
        assert_eq!(node.call("shop", &order), (200, json!({"total": 5, "text": "\u{e9} \"5\""})));
        let logs = node.ok(&["logs", "shop", "-n", "1"]);
        assert!(logs.contains(&format!("call {call} of shop 256")), "{logs}");
    }
    let (status, problem) = node.call("shop", &json!({"fails": true}));
    let told = problem["detail"].as_str().unwrap();
    assert!(status == 500 && told.contains("java.lang.IllegalStateException: no shop today"), "{told}");
    assert!(told.contains("(Shop.java:23)") && !told.contains("sinew."), "{told}");
    let (status, problem) = node.call("shop", &json!({"items": 1}));
    assert!(status == 500 && problem["detail"].as_str().unwrap().contains("the event has 1"), "{problem}");
    let answer = node.http("POST /function/plain", b"{\"n\": 21}");
    assert!(answer.starts_with("HTTP/1.1 201") && answer.contains("x-a: b"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n421"), "{answer}");
    assert!(node.http("POST /function/bytes", b"as it is").ends_with("\r\n\r\nas it is"));
    // Four that wait for each other in one instance, each of which calls for itself.
    std::thread::scope(|scope| {
        let meets = |n| {
            scope.spawn({
                let node = &node;
                move || node.call("meets", &json!({"n": n}))
            })
        };
        let all: Vec<_> = (0..4).map(|n| (n, meets(n))).collect();
        for (n, met) in all {
            assert_eq!(met.join().unwrap(), (200, json!(2 * n)));
        }
    });
    // A thread that outlives the request that began it calls for the one that runs.
    for n in [5, 6] {
        assert_eq!(node.call("meets", &json!({"n": n, "alone": true})), (200, json!(2 * n)));
    }
    let (status, problem) = node.call("meets", &json!({"deep": true}));
    assert!(status == 500 && problem.to_string().contains("java.lang.StackOverflowError"), "{problem}");
    // The same sources are the same function.
    let again = String::from_utf8(deploy().stdout).unwrap();
    assert_eq!(again.matches("\"changed\":false").count(), 5, "{again}");
    write("shop/Plain.java", &PLAIN.replace("one = 1;", "one = ;"));
    let refused = deploy();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("Plain.java:6: error"), "{told}");
    write("shop/Plain.java", &PLAIN.replace("Object sum(", "Object product("));
    let told = String::from_utf8_lossy(&deploy().stderr).into_owned();
    assert!(told.contains("shop.Plain has no method sum"), "{told}");
    assert_eq!(node.call("shop", &order).0, 200, "what served before still does");
}
