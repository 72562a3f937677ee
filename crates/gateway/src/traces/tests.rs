// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use serde_json::Value;
use tokio::sync::Notify;

use super::*;

const SOON: Pace = Pace { delay: Duration::from_millis(1), backoff: Duration::from_millis(1) };
const OPTIONS: TraceOptions = TraceOptions { resource: Vec::new(), ratio: 1.0 };

/// Answers as it was told, and then with 200.
#[derive(Default)]
struct Fake {
    answers: Mutex<VecDeque<Result<u16, Unsent>>>,
    messages: Mutex<Vec<Bytes>>,
    has_come: Notify,
}

impl Fake {
    fn answering(answers: impl IntoIterator<Item = Result<u16, Unsent>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::default() }
    }

    fn messages(&self) -> Vec<Value> {
        self.messages.lock().unwrap().iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    /// The spans of a message.
    fn spans(message: &Value) -> &Vec<Value> {
        message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
    }
}

impl Collector for Fake {
    fn send(&self, body: Bytes) -> Sending<'_> {
        self.messages.lock().unwrap().push(body);
        self.has_come.notify_one();
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(200));
        Box::pin(std::future::ready(answer))
    }
}

fn context(parent: Option<u64>) -> Context {
    Context::new(0xabc, 0x12, parent, parent.is_some())
}

fn record(failure: Option<&str>) -> Record {
    Record {
        request_id: "r1".to_owned(),
        function: "hello".to_owned(),
        version: 3,
        status: if failure.is_some() { 500 } else { 200 },
        start: "forked",
        begun_us: 1_000_000,
        total_us: 900,
        queued_us: 100,
        starting_us: 300,
        usage: Usage { running_us: 450, cpu_us: Some(400), ..Usage::default() },
        failure: failure.map(str::to_owned),
        ..Record::default()
    }
}

async fn told(tracer: &Tracer, collector: &Fake) {
    tracer.send(collector, std::future::ready(())).await;
}

#[tokio::test]
async fn a_request_is_a_span_with_where_its_time_went_below_it() {
    let (tracer, collector) = (Tracer::new(&OPTIONS), Fake::default());
    tracer.ended(context(Some(0x77)), "call", &record(Some("ValueError: no\n  traceback")));
    tracer.ended(context(None), "http", &record(None));
    told(&tracer, &collector).await;
    let messages = collector.messages();
    let spans = Fake::spans(&messages[0]);
    assert_eq!((messages.len(), spans.len()), (1, 8));
    let own = &spans[0];
    assert_eq!(
        (&own["traceId"], &own["spanId"], &own["parentSpanId"]),
        (&"00000000000000000000000000000abc".into(), &"0000000000000012".into(), &"0000000000000077".into(),)
    );
    assert_eq!(
        (&own["startTimeUnixNano"], &own["endTimeUnixNano"]),
        (&"1000000000".into(), &"1000900000".into())
    );
    assert_eq!(own["status"], serde_json::json!({ "code": 2, "message": "ValueError: no" }));
    assert_eq!((&own["kind"], &spans[4]["kind"]), (&1.into(), &2.into()), "a client's is a server's span");
    assert!(spans[4]["parentSpanId"].is_null() && spans[4]["status"].is_null());
    let parts: Vec<(&str, &str)> = spans[1..4]
        .iter()
        .map(|span| (span["name"].as_str().unwrap(), span["endTimeUnixNano"].as_str().unwrap()))
        .collect();
    assert_eq!(parts, [("queue", "1000100000"), ("start", "1000400000"), ("run", "1000850000")]);
    assert!(spans[1..4].iter().all(|span| span["parentSpanId"] == own["spanId"]));
    let attributes = own["attributes"].as_array().unwrap();
    let attribute = |name: &str| &attributes.iter().find(|each| each["key"] == name).unwrap()["value"];
    assert_eq!(attribute("faas.name")["stringValue"], "hello");
    assert_eq!(attribute("faas.coldstart")["boolValue"], true);
    assert_eq!(attribute("sinew.cpu_us")["intValue"], "400", "numbers of 64 bits are texts");
    assert_eq!(tracer.counts.sent.get(), 2);
}

#[tokio::test]
async fn what_has_no_room_is_dropped_and_counted_and_nobody_waits() {
    let (tracer, collector) = (Tracer::new(&OPTIONS), Fake::default());
    for _ in 0..WAITING_MAX + 5 {
        tracer.ended(context(None), "http", &record(None));
    }
    assert_eq!(tracer.counts.dropped.get(), 5);
    told(&tracer, &collector).await;
    // One batch more is sent when the node stops.
    assert_eq!(Fake::spans(&collector.messages()[0]).len(), BATCH_MAX * 4, "a request has four");
    let Counts { sent, dropped, .. } = &tracer.counts;
    assert_eq!(sent.get() + dropped.get(), WAITING_MAX as u64 + 5, "all are accounted for");
}

#[tokio::test]
async fn a_collector_that_is_away_is_asked_again_and_one_that_refuses_is_not() {
    let away = || Err(Unsent::Again("nobody there".to_owned()));
    let collector = Fake::answering([away(), Ok(503), Ok(200), Ok(400)]);
    let tracer = Tracer { pace: SOON, ..Tracer::new(&OPTIONS) };
    let work = async {
        for (count, total) in [(3, 3), (1, 4)] {
            tracer.ended(context(None), "http", &record(None));
            for _ in 0..count {
                collector.has_come.notified().await;
            }
            assert_eq!(collector.messages().len(), total);
        }
    };
    let stop = Notify::new();
    tokio::join!(tracer.send(&collector, stop.notified()), async {
        work.await;
        stop.notify_one();
    });
    let Counts { sent, dropped, failed_attempts } = &tracer.counts;
    assert_eq!((sent.get(), dropped.get(), failed_attempts.get()), (1, 1, 3));
    let messages = collector.messages();
    assert_eq!(messages[0], messages[2], "it is the same message");
}

#[tokio::test]
async fn after_some_attempts_spans_are_lost_and_the_next_are_sent() {
    let away = || Err(Unsent::Again("nobody there".to_owned()));
    let collector = Fake::answering((0..ATTEMPTS_MAX).map(|_| away()));
    let tracer = Tracer { pace: SOON, ..Tracer::new(&OPTIONS) };
    let stop = Notify::new();
    tokio::join!(tracer.send(&collector, stop.notified()), async {
        tracer.ended(context(None), "http", &record(None));
        for _ in 0..ATTEMPTS_MAX {
            collector.has_come.notified().await;
        }
        tracer.ended(context(None), "http", &record(None));
        collector.has_come.notified().await;
        stop.notify_one();
    });
    assert_eq!((tracer.counts.sent.get(), tracer.counts.dropped.get()), (1, 1));
}

#[test]
fn a_part_of_the_traces_is_sampled() {
    let tracer = Tracer::new(&TraceOptions { ratio: 0.25, ..OPTIONS });
    let sampled = (0..4000).filter(|_| tracer.samples(crate::unique::uuid().as_u128())).count();
    assert!((800..1200).contains(&sampled), "{sampled}");
    assert!(!Tracer::new(&TraceOptions { ratio: 0.0, ..OPTIONS }).samples(0));
    assert!(Tracer::new(&OPTIONS).samples(u128::MAX));
}
