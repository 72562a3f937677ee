// SPDX-License-Identifier: Apache-2.0
//! `/v1/logs`: what is found, where, and what is told of what runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::House;
use super::fake::Fake;
use super::nested::head;
use crate::{Access, ArchiveOptions, Door, Gateway, Options, Piece, Printed, Printing};

fn house(directory: Option<&TempDir>) -> (Gateway, House) {
    let archive = directory
        .map(|directory| ArchiveOptions { directory: directory.path().join("logs"), bytes_max: 1 << 20 });
    let fake = Arc::new(Fake::new());
    let gateway = Gateway::new(fake.clone(), Options { archive, ..Options::default() });
    let house = House { router: gateway.router(Door::Private, Access::Owner), fake };
    house.fake.functions.add("hello", 1, |_| {});
    house.fake.functions.add("other", 1, |_| {});
    house.fake.gives(r#"{"status":200,"headers":[]}"#, b"body");
    (gateway, house)
}

impl House {
    /// A request to a function that prints this.
    async fn asked(&self, function: &str, prints: &str) {
        prints.as_bytes().clone_into(&mut self.fake.functions.log.lock().unwrap());
        self.get(&format!("/function/{function}")).await;
    }

    async fn logs(&self, query: &str) -> Value {
        self.get(&format!("/v1/logs?{query}")).await.json()
    }

    async fn printed(&self, query: &str) -> Vec<String> {
        let logs = self.logs(query).await;
        let log = |record: &Value| record["log"].as_str().unwrap().to_owned();
        logs["records"].as_array().unwrap().iter().map(log).collect()
    }
}

#[tokio::test]
async fn lines_have_times_and_streams_for_whoever_wants_them() {
    let (_gateway, house) = house(None);
    house.asked("hello", "one\ntwo").await;
    let plain = house.logs("").await;
    assert_eq!((&plain["records"][0]["log"], plain["records"][0].get("lines")), (&"one\ntwo".into(), None));
    assert_eq!(plain.get("running"), None);
    let record = house.logs("lines=true").await["records"][0].clone();
    let lines = record["lines"].as_array().unwrap();
    let told: Vec<_> = lines.iter().map(|line| (&line["stream"], &line["text"])).collect();
    assert_eq!(told, [(&json!("err"), &json!("one")), (&json!("err"), &json!("two"))]);
    let (at, begun) = (lines[0]["time_us"].as_u64().unwrap(), record["begun_us"].as_u64().unwrap());
    assert!(at >= begun && at - begun < 60_000_000, "{record}");
}

#[tokio::test]
async fn what_is_looked_for_is_found() {
    let (_gateway, house) = house(None);
    house.asked("hello", "order 17\n").await;
    house.asked("other", "order 18\n").await;
    house.asked("hello", "").await;
    assert_eq!(house.printed("text=order%2017").await, ["order 17\n"]);
    assert_eq!(house.printed("function=hello").await, ["order 17\n", ""]);
    assert_eq!(house.printed("failed=true").await, [""; 0]);
    let last = house.logs("").await["last"].as_u64().unwrap();
    assert_eq!(house.printed(&format!("since_ms={}", last / 1000 - 60_000)).await.len(), 3);
    assert_eq!(house.printed(&format!("since_ms={}", last / 1000 + 60_000)).await.len(), 0);
    house.get("/v1/logs?failed=maybe").await.problem(400);
    house.get("/v1/logs?running=a").await.problem(400);
    house.get("/v1/logs?running=a:b").await.problem(400);
}

#[tokio::test]
async fn what_printed_is_found_by_the_next_node_as_well() {
    let directory = TempDir::new().unwrap();
    let (gateway, before) = house(Some(&directory));
    before.asked("hello", "one\n").await;
    before.asked("hello", "").await;
    before.asked("other", "two\n").await;
    gateway.settled().await;
    let told = before.logs("lines=true").await;
    let last = told["last"].as_u64().unwrap();
    drop((gateway, before));
    let (_gateway, after) = house(Some(&directory));
    assert_eq!(after.printed("").await, ["one\n", "two\n"], "one that printed nothing is not kept");
    after.asked("hello", "three\n").await;
    assert_eq!(after.printed("").await, ["one\n", "two\n", "three\n"]);
    assert_eq!(after.printed("function=hello&limit=2").await, ["one\n", "three\n"]);
    assert_eq!(after.printed("limit=1").await, ["three\n"]);
    assert_eq!(after.printed(&format!("after={last}")).await, ["three\n"], "a follower goes on");
    let again = after.logs("lines=true").await;
    assert_eq!((&again["records"][0], &again["records"][1]), (&told["records"][0], &told["records"][2]));
    let id = again["records"][1]["request_id"].as_str().unwrap();
    assert_eq!(after.printed(&format!("request_id={id}")).await, ["two\n"]);
}

#[tokio::test]
async fn what_runs_tells_the_lines_that_are_not_known() {
    let (_gateway, house) = house(None);
    let at = |ago| Instant::now().checked_sub(Duration::from_millis(ago)).unwrap();
    let piece = |len, ago, is_error| Piece { len, at: at(ago), is_error };
    let printed = Printed {
        bytes: b"one\ntwo\nthr".to_vec(),
        pieces: vec![piece(4, 30, false), piece(4, 20, true), piece(3, 10, false)],
    };
    let printing = |head: String, printed| (head, Printing { since: at(40), printed });
    *house.fake.functions.printing.lock().unwrap() = vec![
        printing(head(1), printed),
        printing("no head".to_owned(), Printed { bytes: b"x\n".to_vec(), pieces: vec![piece(2, 1, false)] }),
    ];
    let running = |query: &'static str| async { house.logs(query).await["running"].clone() };
    let told = running("running=").await;
    let one = &told[0];
    let span = one["span"].as_str().unwrap();
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
    assert_eq!((&one["request_id"], &one["function"]), (&"r-1".into(), &"caller".into()));
    let texts = |told: &Value| {
        let lines = told["lines"].as_array().unwrap().iter();
        lines.map(|line| format!("{} {}", line["stream"], line["text"])).collect::<Vec<_>>()
    };
    assert_eq!(texts(one), ["\"out\" \"one\"", "\"err\" \"two\""], "what has an end");
    let later = house.logs(&format!("running={span}:1")).await;
    assert_eq!(texts(&later["running"][0]), ["\"err\" \"two\""]);
    let all = house.logs(&format!("running=other:7,{span}:2")).await;
    assert_eq!(all["running"], json!([]));
    assert_eq!(running("running=&function=hello").await, json!([]));
    assert_eq!(running("running=&function=caller&request_id=r-1").await.as_array().unwrap().len(), 1);
    assert_eq!(running("running=&failed=true").await, json!([]), "nothing that runs has failed");
}

#[tokio::test]
async fn an_answer_has_a_bound_whatever_was_printed() {
    let (_gateway, house) = house(None);
    // Each is a quarter of a mebibyte of nothing but ends of lines.
    let lines = "\n".repeat(300_000);
    for _ in 0..40 {
        house.asked("hello", &lines).await;
    }
    house.asked("hello", "last\n").await;
    let logs = house.logs("lines=true&limit=1000").await;
    let records = logs["records"].as_array().unwrap();
    assert_eq!(logs["is_cut"], true);
    assert!(records.len() > 3 && records.len() < 41, "{}", records.len());
    assert_eq!(records.last().unwrap()["log"], "last\n", "the newest are told");
    let (told, left_out) = (&records[0]["lines"], records[0]["lines_left_out"].as_u64().unwrap());
    assert_eq!(told.as_array().unwrap().len() as u64 + left_out, 300_000, "and how much is not");
    let whole = house.logs("limit=3").await;
    assert_eq!((whole["records"].as_array().unwrap().len(), whole.get("is_cut")), (3, None));
}
