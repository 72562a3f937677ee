// SPDX-License-Identifier: Apache-2.0
//! Clients of HTTP/2 on real sockets: those that behave by a library, the
//! others by frames of their own.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::tests::{BIG_BYTES, GENEROUS, House, patient};
use super::*;
use crate::config::Patience;

type Client = SendRequest<Empty<Bytes>>;

/// A connection, and what drives it.
async fn client(house: &House) -> (Client, EndOfStreams) {
    let tasks = Streams::default();
    let (sender, connection) = handshake(tasks.clone(), TokioIo::new(house.connect().await)).await.unwrap();
    tasks.execute(async move { drop(connection.await) });
    (sender, tasks.end())
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://node.example:80{path}")).body(Empty::new()).unwrap()
}

async fn text(response: hyper::Result<Response<Incoming>>) -> String {
    let body = timeout(GENEROUS, response.unwrap().into_body().collect()).await.unwrap().unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn answers_overlap_on_one_connection() {
    let house = House::new(1, patient()).await;
    let (mut sender, _driver) = client(&house).await;
    let slow = sender.send_request(get("/slow"));
    let quick = sender.send_request(get("/quick"));
    let mut slow = std::pin::pin!(slow);
    tokio::select! {
        biased;
        _ = &mut slow => panic!("the first answer kept the second waiting"),
        quick = quick => assert_eq!(text(quick).await, "quick"),
    }
    assert_eq!(text(slow.await).await, "slow");
    assert_eq!(house.connections.open(), 1);
}

#[tokio::test]
async fn a_request_looks_as_one_of_the_first_version() {
    let house = House::new(1, patient()).await;
    let (mut sender, _driver) = client(&house).await;
    let mut request = get("/host?a=b");
    for cookie in ["a=1", "b=2"] {
        request.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    let told = text(sender.send_request(request).await).await;
    assert_eq!(told, r#"node.example:80 /host?a=b Some("a=1; b=2")"#);
}

#[tokio::test]
async fn a_big_answer_arrives_whole_and_who_takes_nothing_is_cut_off() {
    let patience = Patience { answer: Duration::from_millis(300), ..patient() };
    let house = House::new(9, patience).await;
    let (mut sender, _driver) = client(&house).await;
    let mut body = sender.send_request(get("/big")).await.unwrap().into_body();
    let mut taken = 0;
    while let Some(frame) = timeout(GENEROUS, body.frame()).await.unwrap() {
        let before = taken;
        taken += frame.unwrap().into_data().unwrap().len();
        if taken >> 23 != before >> 23 {
            // All of it takes longer than an answer may lie untaken.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(taken, BIG_BYTES);
    let mut stalled = sender.send_request(get("/big")).await.unwrap().into_body();
    house.wait_for(0).await;
    let mut taken = 0;
    while let Some(Ok(frame)) = timeout(GENEROUS, stalled.frame()).await.unwrap() {
        taken += frame.into_data().unwrap().len();
    }
    assert!(taken < BIG_BYTES, "{taken}");
}

#[tokio::test]
async fn who_waits_for_an_answer_is_not_cut_off_and_who_asks_for_nothing_is() {
    let patience = Patience {
        idle: Duration::from_millis(200),
        head: Duration::from_millis(200),
        answer: Duration::from_millis(200),
    };
    let house = House::new(1, patience).await;
    let (mut sender, _driver) = client(&house).await;
    assert_eq!(text(sender.send_request(get("/slow")).await).await, "slow");
    house.wait_for(0).await;
}

#[tokio::test]
async fn stopping_answers_what_is_under_way() {
    let mut house = House::new(9, patient()).await;
    let (mut idle, _idle_driver) = client(&house).await;
    assert_eq!(text(idle.send_request(get("/quick")).await).await, "quick");
    let (mut waiting, _driver) = client(&house).await;
    let slow = waiting.send_request(get("/slow"));
    let mut slow = std::pin::pin!(slow);
    let begun = timeout(Duration::from_millis(300), &mut slow).await;
    assert!(begun.is_err(), "it is under way");
    house.stop.send(true).unwrap();
    assert_eq!(text(slow.await).await, "slow");
    timeout(GENEROUS, house.server.join_next()).await.unwrap();
    assert!(idle.send_request(get("/quick")).await.is_err());
}

#[tokio::test]
async fn whoever_leaves_or_takes_a_request_back_ends_it() {
    let house = House::new(1, patient()).await;
    let (mut sender, driver) = client(&house).await;
    let taken_back = sender.send_request(get("/forever"));
    let left = sender.send_request(get("/forever"));
    house.wait_for_forever(0, 2).await;
    drop(taken_back);
    house.wait_for_forever(1, 1).await;
    drop((sender, driver));
    house.wait_for_forever(1, 2).await;
    drop(left);
}

#[tokio::test]
async fn bodies_that_nobody_reads_keep_no_other_one_waiting() {
    const UNREAD: usize = 20;
    let house = House::new(1, patient()).await;
    let tasks = Streams::default();
    let io = TokioIo::new(house.connect().await);
    let (mut sender, connection) = handshake::<_, _, Full<Bytes>>(tasks.clone(), io).await.unwrap();
    tasks.execute(async move { drop(connection.await) });
    let _driver = tasks.end();
    let mut post = |path: &str| {
        let body = Full::new(Bytes::from(vec![7; 1 << 20]));
        let request = Request::post(format!("http://node.example:80{path}")).body(body).unwrap();
        sender.send_request(request)
    };
    // As much as their windows let in was sent of each, for they come before the last one.
    let unread: Vec<_> = (0..UNREAD).map(|_| post("/unread")).collect();
    let begun = std::time::Instant::now();
    while house.unread.load(Ordering::Relaxed) < UNREAD {
        assert!(begun.elapsed() < GENEROUS, "they never begin");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answer = timeout(GENEROUS, post("/length")).await.unwrap();
    assert_eq!(text(answer).await, (1 << 20).to_string());
    drop(unread);
}

/// Each request is begun before it is taken back, so the library has nothing to say.
#[tokio::test]
async fn who_takes_back_all_that_was_begun_is_cut_off() {
    let house = House::new(1, patient()).await;
    let (mut sender, _driver) = client(&house).await;
    house.wait_for(1).await;
    for number in 1..=400 {
        let request = sender.send_request(get("/forever"));
        let begun = timeout(GENEROUS, house.wait_for_forever_or_end(number)).await.unwrap();
        drop(request);
        if !begun {
            assert!(number > 100, "cut off after {number}");
            return;
        }
    }
    panic!("400 requests were begun for nothing");
}

/// The control: whoever has others answered may take back as many.
#[tokio::test]
async fn who_has_requests_answered_may_take_others_back() {
    let house = House::new(1, patient()).await;
    let (mut sender, _driver) = client(&house).await;
    for number in 1..=300 {
        let request = sender.send_request(get("/forever"));
        house.wait_for_forever(0, number).await;
        drop(request);
        for _ in 0..2 {
            assert_eq!(text(sender.send_request(get("/quick")).await).await, "quick");
        }
    }
}

// What libraries do not send.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET /quick` of localhost.
const HEAD: &[u8] = b"\x82\x86\x04\x06/quick\x41\x09localhost";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The kinds of frames that come until the connection ends; `None` if it does not.
async fn kinds(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let _ = timeout(GENEROUS, stream.read_to_end(&mut bytes)).await.ok()?;
    let (mut kinds, mut rest) = (Vec::new(), &bytes[..]);
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        let len = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        rest = rest.get(len..).unwrap_or_default();
    }
    Some(kinds)
}

/// A connection after its beginning, and then what a client sends.
async fn raw(house: &House, frames: &[Vec<u8>]) -> TcpStream {
    let mut stream = house.connect().await;
    let all = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[]), frames.concat()].concat();
    // The other end may close while we still write.
    let _ = stream.write_all(&all).await;
    stream
}

#[tokio::test]
async fn frames_of_our_own_are_understood() {
    let patience = Patience { idle: Duration::from_millis(300), ..patient() };
    let house = House::new(1, patience).await;
    let mut stream = raw(&house, &[frame(HEADERS, END_STREAM | END_HEADERS, 1, HEAD)]).await;
    let kinds = kinds(&mut stream).await.unwrap();
    assert!(kinds.contains(&HEADERS) && !kinds.contains(&GOAWAY), "{kinds:?}");
}

#[tokio::test]
async fn a_rapid_reset_ends_the_connection() {
    let house = House::new(1, patient()).await;
    let both = |number: u32| {
        let stream = 2 * number + 1;
        let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, HEAD);
        [head, frame(RESET, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let frames: Vec<_> = (0..2000).map(both).collect();
    let mut stream = raw(&house, &frames).await;
    assert!(kinds(&mut stream).await.is_some(), "it goes on");
    house.wait_for(0).await;
}

#[tokio::test]
async fn a_head_in_endless_pieces_ends_the_connection() {
    let house = House::new(1, patient()).await;
    let mut frames = vec![frame(HEADERS, END_STREAM, 1, HEAD)];
    // A header that is not indexed, of 100 bytes, again and again.
    let header = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat();
    frames.extend((0..2000).map(|_| frame(CONTINUATION, 0, 1, &header)));
    let mut stream = raw(&house, &frames).await;
    assert!(kinds(&mut stream).await.is_some(), "it goes on");
    house.wait_for(0).await;
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let patience = Patience { idle: Duration::from_millis(200), ..patient() };
    let house = House::new(1, patience).await;
    let mut stream = raw(&house, &[frame(HEADERS, END_STREAM, 1, HEAD)]).await;
    assert!(!kinds(&mut stream).await.unwrap().contains(&HEADERS));
    let mut silent = house.connect().await;
    silent.write_all(&PREFACE[..7]).await.unwrap();
    drop(silent);
    house.wait_for(0).await;
}

#[tokio::test]
async fn there_is_a_limit_of_streams() {
    let house = House::new(1, patient()).await;
    let path = b"\x82\x86\x04\x08/forever\x41\x09localhost";
    let more = STREAMS_MAX + 50;
    let frames: Vec<_> =
        (0..more).map(|number| frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, path)).collect();
    let stream = raw(&house, &frames).await;
    house.wait_for_forever(0, STREAMS_MAX as usize).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(house.forever[0].load(Ordering::Relaxed), STREAMS_MAX as usize);
    drop(stream);
    house.wait_for_forever(1, STREAMS_MAX as usize).await;
}
