// SPDX-License-Identifier: Apache-2.0
//! Clients that misbehave, on real sockets, with little patience.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// More than the buffers of both ends hold together.
pub(super) const BIG_BYTES: usize = 64 << 20;
pub(super) const GENEROUS: Duration = Duration::from_secs(20);
const GET: &[u8] = b"GET /quick HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Limits that no test reaches: they are longer than any of them waits.
pub(super) fn patient() -> Patience {
    Patience { head: 10 * GENEROUS, idle: 10 * GENEROUS, answer: 10 * GENEROUS }
}

pub(super) struct House {
    pub(super) address: SocketAddr,
    pub(super) connections: Connections,
    pub(super) stop: signal::Sender<bool>,
    pub(super) server: JoinSet<()>,
    /// Requests for `/forever` that were begun, and that have ended.
    pub(super) forever: Arc<[AtomicUsize; 2]>,
    /// Requests for `/unread`, whose bodies nobody reads.
    pub(super) unread: Arc<AtomicUsize>,
}

impl House {
    pub(super) async fn new(connections_max: usize, patience: Patience) -> Self {
        let (stop, stopping) = signal::channel(false);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let forever = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counted = Arc::clone(&forever);
        let unread = Arc::<AtomicUsize>::default();
        let begun = Arc::clone(&unread);
        let router = Router::new()
            .route("/quick", get(async || "quick"))
            .route("/host", get(async |request: axum::extract::Request| host(&request)))
            .route(
                "/forever",
                get(async move || {
                    counted[0].fetch_add(1, Ordering::Relaxed);
                    let _ended = Ended(counted);
                    std::future::pending::<StatusCode>().await
                }),
            )
            .route(
                "/unread",
                post(async move |request: axum::extract::Request| {
                    unread.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                    drop(request);
                }),
            )
            .route("/length", post(async |body: axum::body::Bytes| body.len().to_string()))
            .route("/big", get(async || vec![7_u8; BIG_BYTES]))
            .route("/silent", post(async |body: String| after_a_while(body + " after a silence").await))
            .route("/slow", get(async || after_a_while("slow".to_owned()).await));
        let connections = Connections::default();
        let loops = Loops::current().unwrap();
        let terms = Terms { connections_max, patience, connections: connections.clone(), loops };
        let mut server = JoinSet::new();
        server.spawn(serve(listener, Plain(TowerToHyperService::new(router)), terms, stopping));
        Self { address, connections, stop, server, forever, unread: begun }
    }

    /// Until so many requests for `/forever` were begun (0) or have ended (1).
    pub(super) async fn wait_for_forever(&self, which: usize, number: usize) {
        let begun = Instant::now();
        while self.forever[which].load(Ordering::Relaxed) < number {
            assert!(begun.elapsed() < GENEROUS, "never {number} of {which}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Until the request of this number was begun (`true`), or the connection
    /// has ended.
    pub(super) async fn wait_for_forever_or_end(&self, number: usize) -> bool {
        loop {
            if self.forever[0].load(Ordering::Relaxed) >= number {
                return true;
            }
            if self.connections.open() == 0 {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    pub(super) async fn wait_for(&self, open: i64) {
        let begun = Instant::now();
        while self.connections.open() != open {
            assert!(begun.elapsed() < GENEROUS, "never {open} open connections");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What a request says of its host, and its address.
fn host(request: &axum::extract::Request) -> String {
    let host = request.headers()["host"].to_str().unwrap();
    format!("{host} {} {:?}", request.uri(), request.headers().get("cookie"))
}

/// Counts when it is dropped.
struct Ended(Arc<[AtomicUsize; 2]>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

async fn after_a_while(text: String) -> String {
    tokio::time::sleep(Duration::from_millis(800)).await;
    text
}

/// What arrives until the other end closes; `None` if it never does.
async fn rest(stream: &mut TcpStream) -> Option<String> {
    let mut answer = Vec::new();
    // The other end may reset the connection instead of closing it.
    let _ = tokio::time::timeout(GENEROUS, stream.read_to_end(&mut answer)).await.ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// An answer whose body ends with `end`.
async fn answer(stream: &mut TcpStream, end: &str) -> String {
    let mut answer = String::new();
    while !answer.ends_with(end) {
        let mut piece = [0; 1024];
        let len = tokio::time::timeout(GENEROUS, stream.read(&mut piece)).await.unwrap().unwrap();
        assert_ne!(len, 0, "the connection was closed: {answer}");
        answer.push_str(&String::from_utf8_lossy(&piece[..len]));
    }
    answer
}

#[tokio::test]
async fn accepted_connections_send_at_once() {
    let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    assert!(Listener::accept(&mut listener).await.unwrap().0.nodelay().unwrap());
}

#[tokio::test]
async fn a_head_that_drips_in_is_cut_off() {
    let house = House::new(9, Patience { head: Duration::from_millis(200), ..patient() }).await;
    let mut silent = house.connect().await;
    let mut dripping = house.connect().await;
    let begun = Instant::now();
    let drip = async {
        dripping.write_all(b"GET /quick HTTP/1.1\r\n").await?;
        loop {
            dripping.write_all(b"x: y\r\n").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended: std::io::Result<()> = tokio::time::timeout(GENEROUS, drip).await.unwrap();
    assert!(ended.is_err() && begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(rest(&mut silent).await.unwrap(), "");
    house.wait_for(0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_each_request_renews_it() {
    let patience = Patience { idle: Duration::from_millis(1000), ..patient() };
    let house = House::new(9, patience).await;
    let mut client = house.connect().await;
    let begun = Instant::now();
    for _ in 0..4 {
        client.write_all(GET).await.unwrap();
        answer(&mut client, "quick").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(begun.elapsed() > patience.idle);
    assert_eq!(rest(&mut client).await.unwrap(), "");
}

#[tokio::test]
async fn one_connection_too_many_waits_until_another_ends() {
    let house = House::new(2, patient()).await;
    let first = house.connect().await;
    let second = house.connect().await;
    house.wait_for(2).await;
    let mut third = house.connect().await;
    third.write_all(GET).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), third.read(&mut byte)).await;
    assert!(early.is_err(), "it was served though there was no place");
    assert_eq!((house.connections.open(), house.connections.times_full()), (2, 1));
    drop(first);
    answer(&mut third, "quick").await;
    drop(second);
}

#[tokio::test]
async fn who_does_not_take_an_answer_is_cut_off_and_frees_the_place() {
    let patience = Patience { answer: Duration::from_millis(300), ..patient() };
    let house = House::new(1, patience).await;
    let mut stalled = house.connect().await;
    stalled.write_all(b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    house.wait_for(1).await;
    let mut next = house.connect().await;
    next.write_all(GET).await.unwrap();
    answer(&mut next, "quick").await;
    assert!(rest(&mut stalled).await.unwrap().len() < BIG_BYTES);
}

#[tokio::test]
async fn who_takes_an_answer_slowly_gets_all_of_it() {
    let patience = Patience { answer: Duration::from_millis(1000), ..patient() };
    let house = House::new(1, patience).await;
    let mut client = house.connect().await;
    let begun = Instant::now();
    client.write_all(b"GET /big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut piece = vec![0; 8 << 20];
    let mut taken = 0;
    loop {
        let len = client.read(&mut piece).await.unwrap();
        if len == 0 {
            break;
        }
        if taken / (8 << 20) != (taken + len) / (8 << 20) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        taken += len;
    }
    assert!(taken > BIG_BYTES && begun.elapsed() > patience.answer, "{taken} bytes");
}

#[tokio::test]
async fn who_waits_for_an_answer_is_never_cut_off() {
    let short = Duration::from_millis(60);
    let house = House::new(9, Patience { head: short, idle: short, answer: short }).await;
    let mut client = house.connect().await;
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    answer(&mut client, "slow").await;
    // The body's own pace is the gateway's business.
    let mut client = house.connect().await;
    let head = b"POST /silent HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\na";
    client.write_all(head).await.unwrap();
    tokio::time::sleep(5 * short).await;
    client.write_all(b"b").await.unwrap();
    answer(&mut client, "ab after a silence").await;
}

#[tokio::test]
async fn stopping_answers_what_is_under_way_and_nothing_else() {
    let mut house = House::new(9, patient()).await;
    let mut idle = house.connect().await;
    idle.write_all(GET).await.unwrap();
    answer(&mut idle, "quick").await;
    let mut waiting = house.connect().await;
    waiting.write_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    house.wait_for(2).await;
    // It is accepted; its head will have been read, too.
    tokio::time::sleep(Duration::from_millis(300)).await;
    house.stop.send(true).unwrap();
    assert_eq!(rest(&mut idle).await.unwrap(), "");
    let last = rest(&mut waiting).await.unwrap();
    assert!(last.starts_with("HTTP/1.1 200") && last.ends_with("slow"), "{last}");
    tokio::time::timeout(GENEROUS, house.server.join_next()).await.unwrap();
    assert!(TcpStream::connect(house.address).await.is_err());
}

#[tokio::test]
async fn whoever_leaves_ends_the_request() {
    let house = House::new(1, patient()).await;
    let mut client = house.connect().await;
    client.write_all(b"GET /forever HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    house.wait_for_forever(0, 1).await;
    assert_eq!(house.forever[1].load(Ordering::Relaxed), 0);
    drop(client);
    house.wait_for_forever(1, 1).await;
}

#[test]
fn connections_are_divided_among_loops_and_all_are_answered_before_the_end() {
    let (threads, loops) = crate::loops::Threads::start(3).unwrap();
    let loops_of_terms = Arc::clone(&loops);
    threads.run(async move {
        let where_it_is = async move || format!("{:?} is all", loops.here());
        let router = Router::new()
            .route("/where", get(where_it_is))
            .route("/slow", get(async || after_a_while("slow".to_owned()).await));
        let (stop, stopping) = signal::channel(false);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        let terms = Terms {
            connections_max: 9,
            patience: patient(),
            connections: connections.clone(),
            loops: loops_of_terms,
        };
        let mut server = JoinSet::new();
        server.spawn(serve(listener, Plain(TowerToHyperService::new(router)), terms, stopping));
        let (mut clients, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
        for _ in 0..6 {
            let mut client = TcpStream::connect(address).await.unwrap();
            // Twice, for it stays where it is.
            let mut both = Vec::new();
            for _ in 0..2 {
                client.write_all(b"GET /where HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
                let answer = answer(&mut client, " is all").await;
                both.push(answer.split("\r\n\r\n").last().unwrap().to_owned());
            }
            assert_eq!(both[0], both[1]);
            *seen.entry(both.remove(0)).or_insert(0) += 1;
            clients.push(client);
        }
        assert_eq!(seen.values().collect::<Vec<_>>(), [&2, &2, &2], "{seen:?}");
        for client in &mut clients {
            client.write_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.send(true).unwrap();
        for client in &mut clients {
            let last = rest(client).await.unwrap();
            assert!(last.starts_with("HTTP/1.1 200") && last.ends_with("slow"), "{last}");
        }
        tokio::time::timeout(GENEROUS, server.join_next()).await.unwrap();
        assert_eq!(connections.open(), 0);
    });
    threads.end(GENEROUS);
}
