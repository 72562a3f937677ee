// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;
use crate::address::Address;

#[test]
fn the_nodes_times_are_read() {
    let read = Timing::read("total;dur=1.808, queue;dur=0.052, start;desc=warm;dur=0.000").unwrap();
    assert_eq!(read, Timing { total: Duration::from_micros(1808), start: "warm".to_owned() });
    for wrong in
        ["", "total", "total;dur=x, start;desc=warm", "start;desc=warm", "total;dur=-1, start;desc=warm"]
    {
        assert_eq!(Timing::read(wrong), None, "{wrong}");
    }
}

#[test]
fn failures_are_told_in_a_line() {
    let status = StatusCode::BAD_GATEWAY;
    assert_eq!(told(status, br#"{"title": "No", "detail": "why\n  not"}"#), "502 Bad Gateway: No: why not");
    assert_eq!(told(status, b"plain\ntext"), "502 Bad Gateway: plain text");
    assert!(told(status, "é".repeat(9999).as_bytes()).chars().count() < TOLD_CHARS + 20);
}

/// A server that takes so long for an answer; every third one is a failure.
async fn served(time: Duration) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let count = Arc::new(AtomicU64::new(0));
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let answer = service_fn(move |_| {
                let number = count.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(time).await;
                    let status = if number % 3 == 2 { 500 } else { 200 };
                    let answer = Response::builder().status(status);
                    let answer = answer.header(SERVER_TIMING, "total;dur=2.5, start;desc=warm;dur=0");
                    answer.body(Full::new(Bytes::from_static(b"four")))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Address::Tcp { is_tls: false, host: "127.0.0.1".to_owned(), port: address.port() }
}

async fn seen(address: &Address, pace: Pace) -> Seen {
    let clients = (0..pace.connections).map(|_| Client::new(address.clone())).collect();
    let (head, ()) =
        Request::builder().method(Method::POST).uri("/function/x").body(()).unwrap().into_parts();
    run(clients, (head, Bytes::from_static(b"{}")), pace, |_, _| ()).await.unwrap()
}

#[tokio::test]
async fn each_answer_is_counted() {
    let address = served(Duration::from_millis(1)).await;
    let pace = Pace { connections: 3, rate: None, duration: Duration::from_millis(300) };
    let seen = seen(&address, pace).await;
    assert!(seen.sent >= 9 && seen.answers() == seen.sent && seen.unanswered() == 0 && seen.broken == 0);
    assert_eq!(seen.statuses[&500], seen.sent / 3);
    assert_eq!(seen.bytes, 4 * seen.sent);
    assert_eq!(seen.starts["warm"], seen.sent);
    assert_eq!((seen.latencies.len(), seen.in_node.len()), (seen.sent, seen.sent));
    assert!(seen.latencies.min() >= 1000 && (2498..=2502).contains(&seen.in_node.max()));
    assert_eq!(seen.failure.as_deref(), Some("500 Internal Server Error: four"));
    assert!(!seen.is_clean());
}

#[tokio::test]
async fn latencies_count_from_the_plan() {
    // Two at a time, 50 ms each, where 100 a second are planned: most come late.
    let address = served(Duration::from_millis(50)).await;
    let pace = Pace { connections: 2, rate: Some(100.0), duration: Duration::from_millis(500) };
    let seen = seen(&address, pace).await;
    assert_eq!(seen.sent, 50, "all that were planned");
    assert!(seen.latencies.max() >= 500_000, "{} µs", seen.latencies.max());
}

#[tokio::test]
async fn where_nobody_listens_all_are_broken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address = Address::Tcp { is_tls: false, host: "127.0.0.1".to_owned(), port };
    let seen =
        seen(&address, Pace { connections: 2, rate: None, duration: Duration::from_millis(100) }).await;
    assert!(seen.sent >= 2 && seen.broken == seen.sent && !seen.is_clean());
    assert!(seen.failure.unwrap().contains("no node"));
}
