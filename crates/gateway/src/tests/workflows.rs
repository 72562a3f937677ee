// SPDX-License-Identifier: Apache-2.0
//! Runs of workflows: what their instances order, what is refused, and what an
//! end of the run ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::objects::{FailureCode, Handle};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fake::{Fake, Script};
use super::nested::{PARENT, head, request};
use super::{Answer, Arc, House, Options};
use crate::{Access, Door, Gateway, NestedEnd, NestedRequest};

/// What a step's result is: the head that says nothing, and a value.
const RESULT: &[u8] = b"\x02\0\0\0{}a value, whatever the runtime wrote";

const RESULT_HEAD: &[u8] = b"\x02\0\0\0{}";

/// A workflow whose instance never answers by itself, and the orders that it could give.
struct Flow {
    house: Arc<House>,
    gateway: Gateway,
    head: Vec<u8>,
    client: JoinHandle<Answer>,
}

async fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn order(function: &str, options: &Value, steps: &[(&[u32], &[u8])]) -> Vec<u8> {
    let told = steps
        .iter()
        .map(|(needs, arguments)| json!({"function": function, "needs": needs, "bytes": arguments.len()}));
    let head = json!({"functions": {function: options}, "steps": told.collect::<Vec<_>>()}).to_string();
    let arguments: Vec<u8> = steps.iter().flat_map(|(_, arguments)| arguments.to_vec()).collect();
    [&(head.len() as u32).to_le_bytes()[..], head.as_bytes(), &arguments].concat()
}

impl Flow {
    async fn begin() -> Self {
        let fake = Arc::new(Fake::new());
        fake.functions.add("flow", 1, |served| served.is_workflow = true);
        fake.functions.add("flow.main.step", 1, |served| served.name = "flow.step".to_owned());
        let gateway = Gateway::new(fake.clone(), Options::default());
        let router = gateway.router(Door::Private, Access::Owner);
        let house = Arc::new(House { fake, router });
        *house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
        let client = {
            let house = house.clone();
            tokio::spawn(async move { house.post_json("/function/flow", "{}").await })
        };
        until(|| house.fake.requests.lock().unwrap().len() == 1).await;
        let (told, _) = house.fake.last_call();
        let [call, http] = [&told, &json!({"headers": told["headers"]})].map(Value::to_string);
        house.fake.gives("{}", &RESULT[6..]);
        Self { house, gateway, head: format!("{call}\n{http}").into_bytes(), client }
    }

    async fn order(&self, word: &str, body: Vec<u8>) -> NestedEnd {
        let (sender, receiver) = oneshot::channel();
        let caller_head = self.head.clone();
        let request = NestedRequest { body, caller_head, ..request(word, "") };
        let _call = self.gateway.nested_calls().begin(request, |end| drop(sender.send(end)));
        receiver.await.unwrap()
    }

    async fn steps(&self, options: Value, steps: &[(&[u32], &[u8])]) {
        let end = self.order("@steps", order("main.step", &options, steps)).await;
        assert_eq!((end.status, &*end.body), (200, &b""[..]), "{}", String::from_utf8_lossy(&end.body));
    }

    async fn value(&self, number: u32) -> NestedEnd {
        self.order("@value", json!({"step": number}).to_string().into_bytes()).await
    }

    /// The kind of a problem, and what it says.
    async fn refused(&self, word: &str, body: impl Into<Vec<u8>>, status: u16) -> (String, String) {
        let end = self.order(word, body.into()).await;
        let problem: Value = serde_json::from_slice(&end.body).unwrap();
        assert_eq!(end.status, status, "{problem}");
        let kind = problem["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        (kind, problem["detail"].as_str().unwrap().to_owned())
    }

    async fn run(&self) -> Value {
        let listed = self.house.get("/v1/runs").await.json();
        let id = listed["runs"][0]["id"].as_str().unwrap().to_owned();
        self.house.get(&format!("/v1/runs/{id}")).await.json()
    }

    /// The entries of the application of the last step that ran.
    fn last_application(&self) -> Vec<Handle> {
        let requests = self.house.fake.requests.lock().unwrap();
        let tree = self.house.fake.store.get(requests.last().unwrap().goal.thunk().unwrap().definition());
        tree.unwrap().unwrap().as_tree().iter().collect()
    }
}

#[tokio::test]
async fn steps_are_applied_to_their_arguments_and_the_results_of_others() {
    let flow = Flow::begin().await;
    flow.steps(json!({}), &[(&[], b"first"), (&[0, 0], b"second")]).await;
    let end = flow.value(1).await;
    assert_eq!((end.status, &*end.body), (200, &RESULT[6..]));
    assert_eq!(end.content_type, "application/vnd.sinew.value; settled=2");
    let application = flow.last_application();
    let result = Handle::blob(RESULT);
    assert_eq!(application[application.len() - 3..], [Handle::blob(b"second"), result, result]);
    let settled = flow.order("@settle", Vec::new()).await;
    assert_eq!(settled.status, 200);
    let run = flow.run().await;
    assert_eq!(
        (&run["workflow"], &run["state"], &run["durable"]),
        (&json!("flow"), &json!("running"), &json!(false))
    );
    assert_eq!((&run["steps"]["done"], &run["graph"][1]["needs"]), (&json!(2), &json!([0, 0])));
    // They are in the journal, as called by the workflow.
    let records = flow.house.get("/v1/logs").await.json();
    let names: Vec<&Value> =
        records["records"].as_array().unwrap().iter().map(|each| &each["function"]).collect();
    assert_eq!(names, ["flow.step", "flow.step"]);
    assert!(records["records"][0]["parent"].is_string());
}

#[tokio::test]
async fn who_asks_for_a_result_hears_whether_all_have_ended_well() {
    const VALUE: &str = "application/vnd.sinew.value";
    let flow = Flow::begin().await;
    flow.steps(json!({}), &[(&[], b"first")]).await;
    assert_eq!(flow.value(0).await.content_type, format!("{VALUE}; settled=1"));
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    flow.steps(json!({}), &[(&[0], b"second")]).await;
    assert_eq!(flow.value(0).await.content_type, VALUE, "one is under way");
    let flow = Flow::begin().await;
    flow.steps(json!({}), &[(&[], b"first")]).await;
    assert_eq!(flow.value(0).await.status, 200);
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Fails(FailureCode::Trap));
    flow.steps(json!({}), &[(&[], b"second")]).await;
    flow.refused("@settle", "", 502).await;
    assert_eq!(flow.value(0).await.content_type, VALUE, "one has failed, and whoever settles is told which");
}

#[tokio::test]
async fn a_step_tells_where_its_time_went_and_what_it_pickled() {
    let flow = Flow::begin().await;
    let us = Duration::from_micros;
    let pickled = vec![("datetime.date".to_owned(), 3), ("decimal.Decimal".to_owned(), 5)];
    let phases = crate::Phases { taking: us(20), running: us(300), giving: us(4000), pickled };
    let spent = crate::Spent { running: us(1000), ..crate::Spent::default() };
    *flow.house.fake.functions.phases.lock().unwrap() = Some(Box::new(phases));
    *flow.house.fake.functions.spent.lock().unwrap() = Some(spent);
    flow.steps(json!({}), &[(&[], b"first"), (&[0], b"second")]).await;
    flow.order("@settle", Vec::new()).await;
    let run = flow.run().await;
    let (step, function) = (&run["graph"][1], &run["functions"][0]);
    let times = ["transfer_in_us", "ran_us", "transfer_out_us"];
    // No longer than the instance had it.
    assert_eq!(times.map(|name| &step[name]), [20, 300, 1000], "{step}");
    assert_eq!(times.map(|name| &function[name]), [40, 600, 2000], "{function}");
    let [made, ready, begun] = ["made_us", "ready_us", "begun_us"].map(|name| step[name].as_u64().unwrap());
    let is_about = |name: &str, us: u64| step[name].as_u64().unwrap().abs_diff(us) <= 1;
    assert!(is_about("waited_us", ready - made) && is_about("queued_us", begun - ready + 7), "{step}");
    let told = |counts: [u64; 2]| json!([{"type": "decimal.Decimal", "count": counts[0]}, {"type": "datetime.date", "count": counts[1]}]);
    assert_eq!((&step["pickled"], &function["pickled"]), (&told([5, 3]), &told([10, 6])));
    // It is the workflow's, which has a name of its own.
    let metrics = flow.house.get("/metrics").await.body;
    let metrics = String::from_utf8_lossy(&metrics);
    let counted = r#"sinew_function_pickled_objects_total{function="flow",type="datetime.date"} 6"#;
    assert!(metrics.contains(counted), "{metrics}");
}

/// What stands for a value of a mebibyte that is mapped.
fn ticket() -> Vec<u8> {
    [&[2, 1][..], &(1_u64 << 44).to_le_bytes(), &(1_u64 << 20).to_le_bytes(), &[7; 16]].concat()
}

#[tokio::test]
async fn what_is_mapped_is_sent_to_those_that_are_isolated_or_pure() {
    let isolated = |options: Value| {
        let head = json!({
            "functions": {"main.step": options},
            "steps": [{"function": "main.step", "needs": [0], "isolated": [0], "bytes": 0}],
        });
        let head = head.to_string();
        [&(head.len() as u32).to_le_bytes()[..], head.as_bytes()].concat()
    };
    let plain = |options: Value| order("main.step", &options, &[(&[0], b"")]);
    let cases = [
        (plain(json!({})), false, false),
        (isolated(json!({})), true, false),
        (plain(json!({"isolated": true})), true, false),
        (plain(json!({"pure": true})), true, true),
    ];
    for (order, is_sent, is_pure) in cases {
        let flow = Flow::begin().await;
        flow.house.fake.functions.add("flow.sinew.sent", 1, |served| served.name = "flow.sent".to_owned());
        flow.house.fake.gives("{}", &ticket());
        flow.steps(json!({}), &[(&[], b"made")]).await;
        until(|| flow.house.fake.requests.lock().unwrap().len() == 2).await;
        flow.order("@settle", Vec::new()).await;
        let run = flow.run().await;
        assert_eq!(
            (&run["graph"][0]["is_mapped"], &run["graph"][0]["result_bytes"]),
            (&json!(true), &json!(1 << 20))
        );
        flow.house.fake.gives("{}", &RESULT[6..]);
        flow.house.fake.functions.add("flow.main.step", 1, |served| served.is_pure = is_pure);
        assert_eq!(flow.order("@steps", order).await.status, 200);
        assert_eq!(flow.order("@settle", Vec::new()).await.status, 200);
        let given = *flow.last_application().last().unwrap();
        let ticket = Handle::blob(&[RESULT_HEAD, &ticket()].concat());
        assert_eq!(given, if is_sent { Handle::blob(RESULT) } else { ticket }, "{is_sent}");
        // The one that sends it, and the step.
        let requests = flow.house.fake.requests.lock().unwrap().len();
        assert_eq!(requests, if is_sent { 4 } else { 3 });
    }
}

#[tokio::test]
async fn orders_are_refused_to_who_is_no_run_and_if_they_are_none() {
    let flow = Flow::begin().await;
    let problem = |end: NestedEnd| String::from_utf8_lossy(&end.body).into_owned();
    // Whoever is no run, or knows another's id but not its span.
    let other = Flow { head: head(0).into_bytes(), ..Flow::begin().await };
    assert!(PARENT.len() > 50 && problem(other.value(0).await).contains("no-workflow"));
    assert_eq!(flow.refused("@value", r#"{"step": 0}"#, 400).await.0, "bad-order");
    assert_eq!(flow.refused("@steps", "nonsense", 400).await.0, "bad-order");
    assert_eq!(flow.refused("@other", "", 400).await.0, "bad-order");
    let later = order("main.step", &json!({}), &[(&[1], b""), (&[], b"")]);
    assert_eq!(flow.refused("@steps", later, 422).await.0, "bad-steps");
    assert_eq!(flow.run().await["steps"]["all"], json!(0));
    // Whoever serves a line says itself for whom it does: nobody's word is taken for a run.
    let (sender, receiver) = oneshot::channel();
    let on_line = NestedRequest {
        on_line: Some("flow".to_owned()),
        caller_head: flow.head.clone(),
        body: br#"{"step": 0}"#.to_vec(),
        ..request("@value", "")
    };
    let _call = flow.gateway.nested_calls().begin(on_line, |end| drop(sender.send(end)));
    assert!(problem(receiver.await.unwrap()).contains("bad-caller"));
    // A pure function has no head, and orders nothing.
    let pure = Flow { head: Vec::new(), ..Flow::begin().await };
    assert_eq!(pure.refused("@steps", "", 403).await.0, "pure-call");
    // What would follow has other numbers than its runtime thinks.
    let again = order("main.step", &json!({}), &[(&[], b"")]);
    assert_eq!(flow.refused("@steps", again, 422).await.0, "bad-steps");
    let flow = Flow::begin().await;
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    flow.steps(json!({}), &[(&[], b"")]).await;
    let late = flow.refused("@value", r#"{"step": 0, "wait_ms": 5}"#, 408).await;
    assert_eq!(late.0, "step-under-way");
}

#[tokio::test]
async fn a_step_that_fails_is_tried_again_and_then_named() {
    let flow = Flow::begin().await;
    let result = flow.house.fake.store.put_blob(RESULT).unwrap();
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Recovers(FailureCode::Trap, result));
    flow.steps(json!({"retries": 1, "retry_delay_ms": 1}), &[(&[], b"a")]).await;
    assert_eq!(flow.value(0).await.status, 200);
    assert_eq!(flow.run().await["graph"][0]["attempts"], json!(2));
    // What found no room was no attempt.
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Recovers(FailureCode::Resources, result));
    flow.steps(json!({}), &[(&[], b"b")]).await;
    assert_eq!(flow.value(1).await.status, 200);
    assert_eq!(flow.run().await["graph"][1]["attempts"], json!(1));
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Fails(FailureCode::Trap));
    flow.steps(json!({}), &[(&[], b"c"), (&[2], b"d")]).await;
    let (kind, why) = flow.refused("@settle", "", 502).await;
    assert_eq!((kind.as_str(), why.as_str()), ("step-failed", "step 2, main.step, failed: why"));
    let (_, why) = flow.refused("@value", r#"{"step": 3}"#, 502).await;
    assert_eq!(why, "step 3 needs it: step 2, main.step, failed: why");
    assert_eq!(flow.order("@settle", Vec::new()).await.status, 200, "it was told");
}

#[tokio::test]
async fn the_end_of_a_run_ends_its_steps_and_lets_go_of_what_it_held() {
    for is_cancelled in [false, true] {
        let flow = Flow::begin().await;
        flow.steps(json!({}), &[(&[], b"done")]).await;
        assert_eq!(flow.value(0).await.status, 200);
        *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
        flow.steps(json!({}), &[(&[], b"hangs"), (&[0], b"too")]).await;
        let fake = flow.house.fake.clone();
        until(|| fake.requests.lock().unwrap().len() == 4).await;
        let id = flow.run().await["id"].as_str().unwrap().to_owned();
        if is_cancelled {
            let cancel = Request::delete(format!("/v1/runs/{id}")).body(Body::empty()).unwrap();
            assert_eq!(flow.house.send(cancel).await.status, 202);
            assert_eq!(flow.client.await.unwrap().problem(409), "run-cancelled");
        } else {
            flow.client.abort();
        }
        // The two steps, and the workflow itself.
        until(|| fake.cancelled.load(Ordering::SeqCst) == 3).await;
        until(|| fake.dropped.lock().unwrap().contains(&Handle::blob(RESULT))).await;
        let run = flow.house.get(&format!("/v1/runs/{id}")).await.json();
        assert_eq!((&run["state"], &run["steps"]["done"]), (&json!("cancelled"), &json!(1)));
        let again = Request::delete(format!("/v1/runs/{id}")).body(Body::empty()).unwrap();
        assert_eq!(flow.house.send(again).await.problem(409), "run-ended");
    }
    let house = House::new();
    assert_eq!(house.get("/v1/runs/nothing").await.problem(404), "run-not-found");
    assert_eq!(house.get("/v1/runs?limit=x").await.problem(400), "bad-query");
    assert_eq!(house.get("/v1/runs").await.json(), json!({"workflows": [], "runs": []}));
}

#[tokio::test]
async fn so_many_steps_of_a_function_run_at_a_time_and_others_wait() {
    let flow = Flow::begin().await;
    *flow.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    let steps: Vec<(&[u32], &[u8])> = (0..20).map(|_| (&[][..], &b"x"[..])).collect();
    flow.steps(json!({}), &steps).await;
    // Its places are four; the first request is the workflow's.
    let fake = flow.house.fake.clone();
    until(|| fake.requests.lock().unwrap().len() == 5).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fake.requests.lock().unwrap().len(), 5);
}

/// A node that serves one declared workflow, `flow`, and the functions `list`, `resize` and `join`.
fn declared(declaration: &Value) -> Arc<House> {
    let declaration = crate::Declaration::read(declaration.to_string().as_bytes()).unwrap();
    let declaration = Arc::new(declaration);
    let house = Arc::new(House::new());
    house.fake.functions.add("flow", 1, |served| {
        served.is_workflow = true;
        served.declaration = Some(declaration.clone());
    });
    for name in ["list", "resize", "join"] {
        house.fake.functions.add(name, 1, |_| {});
    }
    house
}

/// The bodies that functions were given, in the order in which they began.
fn bodies(house: &House) -> Vec<Vec<u8>> {
    let goals: Vec<Handle> = house.fake.requests.lock().unwrap().iter().map(|request| request.goal).collect();
    let bytes = |handle: Handle| match handle.literal_bytes() {
        Some(bytes) => bytes.to_vec(),
        None => house.fake.store.get(handle).unwrap().unwrap().bytes().to_vec(),
    };
    let body = |goal: &Handle| {
        let tree = house.fake.store.get(goal.thunk().unwrap().definition()).unwrap().unwrap();
        bytes(tree.as_tree().iter().last().unwrap())
    };
    goals.iter().map(body).collect()
}

async fn last_run(house: &House) -> Value {
    let listed = house.get("/v1/runs").await.json();
    house.get(&format!("/v1/runs/{}", listed["runs"][0]["id"].as_str().unwrap())).await.json()
}

#[tokio::test]
async fn a_declared_workflow_goes_from_step_to_step() {
    let house = declared(&json!({
        "steps": {
            "list": {},
            "resize": {"each": "{{ list.images }}", "with": {"image": "{{ item }}", "at": "{{ index }}"}},
            "again": {"call": "resize", "each": "{{ resize }}"},
            "never": {"call": "list", "when": "{{ list.none }}"},
            "nor": {"call": "list", "when": "{{ event.nothing }}"},
            "join": {"with": {"all": "{{ again }}", "title": "of {{ event.title }}", "never": "{{ never }}"}},
        },
        "result": {"joined": "{{ join.images[1] }}"},
    }));
    let answer = br#"{"images": ["a", "b"], "none": false}"#;
    house.fake.gives(r#"{"headers": [["content-type", "application/json"]]}"#, answer);
    let answered = house.post_json("/function/flow", r#"{"title": "cats"}"#).await;
    assert_eq!((answered.status, answered.json()), (StatusCode::OK, json!({"joined": "b"})));
    let bodies = bodies(&house);
    let read = |at: usize| serde_json::from_slice::<Value>(&bodies[at]).unwrap();
    assert_eq!(bodies.len(), 6, "`never` and `nor` were skipped");
    assert_eq!(bodies[0], br#"{"title": "cats"}"#, "the request is handed on as it came");
    assert_eq!((read(1), read(2)), (json!({"image": "a", "at": 0}), json!({"image": "b", "at": 1})));
    assert_eq!(bodies[3], answer, "an answer is handed on as it came");
    let one: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(read(5), json!({"all": [one, one], "title": "of cats", "never": null}));
    let run = last_run(&house).await;
    let needs: Vec<&Value> = run["graph"].as_array().unwrap().iter().map(|step| &step["needs"]).collect();
    assert_eq!(needs, [&json!([]), &json!([0]), &json!([0]), &json!([1]), &json!([2]), &json!([3, 4])]);
    assert_eq!((&run["state"], &run["steps"]["done"]), (&json!("succeeded"), &json!(6)));
    // All that was held is let go.
    let frame = [&b"\x02\0\0\0{}\x03\x10\0application/json"[..], answer].concat();
    assert!(house.fake.dropped.lock().unwrap().contains(&Handle::blob(&frame)));
}

#[tokio::test]
async fn a_declared_step_that_fails_is_named_and_others_go_on() {
    let steps = json!({
        "list": {"with": 1}, "join": {"with": "{{ list.missing }}"}, "resize": {"after": ["join"]},
        "other": {"call": "resize", "with": "{{ list }}"},
    });
    let house = declared(&json!({"steps": steps}));
    house.fake.gives("", b"{}");
    let answered = house.post_json("/function/flow", "{}").await;
    let told = answered.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answered.problem(502), "step-not-given");
    assert!(told.contains("step join: with: `list.missing`"), "{told}");
    assert_eq!(bodies(&house), [&b"1"[..], b"{}"], "the list, and the other one that is given it");
    // What a function says no to is a failure, with what it said; so is a function that is none.
    let house = declared(&json!({"steps": {"list": {"retries": 1, "retry_delay_ms": 1}}}));
    house.fake.gives(r#"{"status": 500}"#, b"no such list");
    let answered = house.post_json("/function/flow", "{}").await;
    let told = answered.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answered.problem(502), "step-failed");
    assert!(
        told.contains("list, failed after 2 attempts")
            && told.contains("500 Internal Server Error: no such list"),
        "{told}"
    );
    assert_eq!(house.fake.requests.lock().unwrap().len(), 2);
    let house = declared(&json!({"steps": {"list": {"call": "lists"}}}));
    let answered = house.post_json("/function/flow", "{}").await;
    let told = answered.json()["detail"].as_str().unwrap().to_owned();
    assert!(answered.status == StatusCode::BAD_GATEWAY && told.contains("lists"), "{told}");
}

#[tokio::test]
async fn a_declared_workflow_that_calls_itself_has_an_end() {
    let house = declared(&json!({"steps": {"flow": {}}}));
    let answered = house.post_json("/function/flow", "{}").await;
    let told = answered.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answered.status, StatusCode::BAD_GATEWAY);
    assert!(told.contains("wait for each other already"), "{told}");
}

#[tokio::test]
async fn what_another_attempt_would_not_mend_is_tried_once() {
    let heads = [
        r#"{"status": 404}"#,
        r#"{"status": 302}"#,
        r#"{"headers": [["content-encoding", "gzip"]], "status": 404}"#,
    ];
    for head in heads {
        let house = declared(&json!({"steps": {"list": {"retries": 3, "retry_delay_ms": 1}}}));
        house.fake.gives(head, b"text");
        assert_eq!(house.post_json("/function/flow", "{}").await.problem(502), "step-failed");
        assert_eq!(house.fake.requests.lock().unwrap().len(), 1, "{head}");
    }
    let house = declared(
        &json!({"steps": {"list": {"may_fail": true}, "join": {"with": {"list": "{{ list }}"}, "may_fail": true}}}),
    );
    house.fake.gives(r#"{"status": 404}"#, b"text");
    let answered = house.post_json("/function/flow", "{}").await;
    assert_eq!((answered.status, answered.json()), (StatusCode::OK, Value::Null));
    assert_eq!(bodies(&house)[1], br#"{"list":null}"#);
}

#[tokio::test]
async fn a_declared_workflow_has_bounds() {
    // More steps than there may be, of which none is made.
    let house = declared(&json!({"steps": {"list": {}, "resize": {"each": "{{ list }}"}}}));
    house.fake.gives("", format!("[{}0]", "0,".repeat(100_000)).as_bytes());
    let answered = house.post_json("/function/flow", "{}").await;
    let told = answered.json()["detail"].as_str().unwrap().to_owned();
    assert!(told.contains("it has 100001 items"), "{told}");
    assert_eq!(house.fake.requests.lock().unwrap().len(), 1);
    // Its time is over, though a step's is not.
    let house = declared(&json!({"steps": {"list": {}}}));
    house.fake.functions.add("flow", 1, |served| {
        served.is_workflow = true;
        let text = br#"{"steps": {"list": {"retries": 9, "retry_delay_ms": 80000}}}"#;
        served.declaration = Some(Arc::new(crate::Declaration::read(text).unwrap()));
        served.timeout = Duration::from_millis(10);
    });
    *house.fake.otherwise.lock().unwrap() = Some(Script::Fails(FailureCode::Trap));
    let begun = Instant::now();
    let answered = house.post_json("/function/flow", "{}").await;
    assert_eq!(answered.problem(504), "deadline");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(last_run(&house).await["state"], json!("failed"));
}
