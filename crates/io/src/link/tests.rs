// SPDX-License-Identifier: Apache-2.0
//! Connections that are kept, from servers on this machine's loopback that do with them as
//! they like.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::allow::AllowList;
use crate::dial::{Answered, Dialer, Patience, Reach, Undialed};
use crate::net::{Answer, Net};

/// Every name leads to one server, and every name has an address of its own.
struct Made(SocketAddr);

impl Net for Made {
    fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::from(([93, 184, 216, 34], port))])
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(self.0))
    }
}

/// What a server does with one request; whether its connection goes on.
type Act = fn(&Seen) -> (String, bool);

/// A request.
struct Seen {
    /// Which one of its connection, from 0 on.
    request: usize,
    path: String,
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    connections: usize,
    /// That the server sees open.
    open: usize,
}

struct Server {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log: Arc<Mutex<Log>> = Arc::default();
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                {
                    let mut log = shared.lock();
                    log.connections += 1;
                    log.open += 1;
                }
                let log = Arc::clone(&shared);
                tokio::spawn(async move {
                    serve(stream, &log, act).await;
                    log.lock().open -= 1;
                });
            }
        });
        Self { address, log, task }
    }

    /// Requests, and connections that they came on.
    fn counts(&self) -> (usize, usize) {
        let log = self.log.lock();
        (log.seen.len(), log.connections)
    }

    fn dialer(&self, options: LinkOptions) -> Dialer {
        let reach = Reach::Named(AllowList::default(), "fetch_private");
        Dialer::new(reach, Made(self.address)).keeping(options)
    }
}

async fn serve(mut stream: TcpStream, log: &Mutex<Log>, act: Act) {
    for request in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let seen = Seen { request, path };
        let (answer, goes_on) = act(&seen);
        log.lock().seen.push(seen);
        if stream.write_all(answer.as_bytes()).await.is_err() || !goes_on {
            return;
        }
    }
}

fn said(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Says what it was asked for.
fn good(seen: &Seen) -> (String, bool) {
    (said(&seen.path), true)
}

const USUAL: LinkOptions = LinkOptions { total_max: 8, per_host_max: 4, idle_max: Duration::from_secs(60) };

fn place(host: &str, path: &str) -> Place {
    Place::read(&format!("http://{host}{path}")).unwrap()
}

async fn asked(dialer: &Dialer, place: &Place) -> Result<Answered, Undialed> {
    let limit = Duration::from_secs(30);
    let request = Request::get(place.path.clone()).header("host", "x").body(Full::default()).unwrap();
    dialer.ask(place, request, Patience { connect: limit, head: limit }).await
}

/// All of an answer, whose connection is given back.
async fn text(dialer: &Dialer, host: &str, path: &str) -> String {
    let mut answered = asked(dialer, &place(host, path)).await.map_err(|why| format!("{why:?}")).unwrap();
    let mut text = Vec::new();
    while let Some(frame) = answered.frame().await {
        text.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    dialer.keep(answered);
    String::from_utf8(text).unwrap()
}

async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn requests_to_one_host_go_on_one_connection() {
    let server = Server::start(good).await;
    let dialer = server.dialer(USUAL);
    for number in 0..20 {
        let path = format!("/{number}");
        assert_eq!(text(&dialer, "a.example", &path).await, path);
    }
    assert_eq!((server.counts(), dialer.kept()), ((20, 1), 1));
    // Another host, port or owner is somebody else.
    text(&dialer, "b.example", "/b").await;
    text(&dialer, "a.example:81", "/c").await;
    assert_eq!((server.counts(), dialer.kept()), ((22, 3), 3));
    // The control: who keeps nothing connects each time.
    let dialer = server.dialer(LinkOptions { total_max: 0, ..USUAL });
    text(&dialer, "a.example", "/").await;
    text(&dialer, "a.example", "/").await;
    assert_eq!((server.counts(), dialer.kept()), ((24, 5), 0));
}

#[tokio::test]
async fn no_more_are_kept_than_may_be() {
    let server = Server::start(good).await;
    let dialer = server.dialer(USUAL);
    for host in ["a.example", "b.example", "c.example"] {
        let mut all = Vec::new();
        for number in 0..6 {
            all.push(asked(&dialer, &place(host, &format!("/{number}"))).await.map_err(|_| ()).unwrap());
        }
        for mut answered in all {
            while answered.frame().await.is_some() {}
            dialer.keep(answered);
        }
    }
    // Four of each host, eight in all.
    assert_eq!((server.counts(), dialer.kept()), ((18, 18), 8));
    soon("the others are closed", || server.log.lock().open == 8).await;
}

#[tokio::test]
async fn what_the_server_has_ended_is_no_failure() {
    // It ends each connection after an answer, and does not say so.
    let server = Server::start(|seen| (said(&seen.path), false)).await;
    let dialer = server.dialer(USUAL);
    for number in 0..10 {
        assert_eq!(text(&dialer, "a.example", &format!("/{number}")).await, format!("/{number}"));
        soon("it is closed there", || server.log.lock().open == 0).await;
    }
    assert_eq!(server.counts(), (10, 10));
    // It takes the second request of each connection, and ends it without an answer.
    let server = Server::start(|seen| match seen.request {
        0 => (said(&seen.path), true),
        _ => (String::new(), false),
    })
    .await;
    let dialer = server.dialer(USUAL);
    for number in 0..10 {
        assert_eq!(text(&dialer, "a.example", &format!("/{number}")).await, format!("/{number}"));
    }
    assert_eq!(server.counts(), (19, 10), "all but the first were sent twice");
    let again = asked(&dialer, &place("a.example", "/")).await.map_err(|_| ()).unwrap();
    assert!(again.was_sent_before, "it may have arrived before");
}

#[tokio::test]
async fn who_does_not_answer_on_a_new_connection_has_not_answered() {
    let server = Server::start(|_| (String::new(), false)).await;
    let dialer = server.dialer(USUAL);
    assert!(asked(&dialer, &place("a.example", "/")).await.is_err());
    assert_eq!(server.counts(), (1, 1), "asked once: it is for others to ask again");
}

#[tokio::test]
async fn what_was_not_asked_for_is_no_answer_to_the_next_request() {
    let server = Server::start(|seen| {
        let more = if seen.path == "/evil" { said("stolen") } else { String::new() };
        (said(&seen.path) + &more, true)
    })
    .await;
    let dialer = server.dialer(USUAL);
    for _ in 0..20 {
        assert_eq!(text(&dialer, "a.example", "/evil").await, "/evil");
        assert_eq!(text(&dialer, "a.example", "/good").await, "/good");
    }
}

#[tokio::test]
async fn a_connection_whose_answer_has_not_come_whole_is_not_kept() {
    let server = Server::start(|seen| match &seen.path[..] {
        "/cut" => ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_owned(), false),
        "/close" => ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx".to_owned(), true),
        "/old" => ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx".to_owned(), true),
        _ => (said(&"long".repeat(100_000)), true),
    })
    .await;
    let dialer = server.dialer(USUAL);
    // Nobody has read it.
    let answered = asked(&dialer, &place("a.example", "/long")).await.map_err(|_| ()).unwrap();
    dialer.keep(answered);
    let mut answered = asked(&dialer, &place("a.example", "/cut")).await.map_err(|_| ()).unwrap();
    while let Some(Ok(_)) = answered.frame().await {}
    dialer.keep(answered);
    assert_eq!(dialer.kept(), 0);
    for path in ["/close", "/old", "/close"] {
        assert_eq!(text(&dialer, "a.example", path).await, "x");
    }
    let connections = server.counts().1;
    assert_eq!(text(&dialer, "a.example", "/long").await.len(), 400_000);
    assert_eq!(server.counts().1, connections + 1, "those that were to be closed were not used again");
    assert_eq!(text(&dialer, "a.example", "/long").await.len(), 400_000);
    assert_eq!(server.counts().1, connections + 1, "the control");
}

#[tokio::test]
async fn what_nobody_uses_is_ended_in_time() {
    let server = Server::start(good).await;
    let dialer = server.dialer(LinkOptions { idle_max: Duration::from_millis(200), ..USUAL });
    text(&dialer, "a.example", "/").await;
    soon("it is ended", || server.log.lock().open == 0 && dialer.kept() == 0).await;
    // And another time.
    text(&dialer, "a.example", "/").await;
    soon("it is ended", || server.log.lock().open == 0 && dialer.kept() == 0).await;
    assert_eq!(server.counts(), (2, 2));
}
