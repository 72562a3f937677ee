// SPDX-License-Identifier: Apache-2.0
//! Downloads from servers on this machine's loopback that behave badly, in a network
//! that is made up.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use parking_lot::Mutex;

use super::*;
use crate::net::Answer;
use crate::tls;

/// Every name has this address; every connection leads to one server.
struct Made {
    address: IpAddr,
    server: SocketAddr,
}

impl Net for Made {
    fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::new(self.address, port)])
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(self.server))
    }
}

/// What a server does with one request.
enum Act {
    /// Sends this, and ends the connection.
    Send(Vec<u8>),
    /// Sends this, and hears the next request.
    Keep(Vec<u8>),
    /// Sends this when as many have asked as there are to be, and hears the next request.
    Together(Arc<Barrier>, Vec<u8>),
    /// Sends this, and then nothing more.
    Stall(Vec<u8>),
    /// Sends this after a while.
    Late(Duration, Vec<u8>),
    /// Sends this, so many bytes at a time, with pauses in between.
    Drip(Vec<u8>, usize, Duration),
}

/// A server that a test has scripted.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// When they came.
    times: Arc<Mutex<Vec<Instant>>>,
    connections: Arc<AtomicUsize>,
    at_once_max: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// `act` gets the number of the request, from 0 on, and its head in small letters.
    async fn start(act: impl Fn(usize, &str) -> Act + Send + Sync + 'static) -> Self {
        Self::start_with(None, act).await
    }

    /// The same, with TLS.
    async fn start_with(
        tls: Option<tls::Server>,
        act: impl Fn(usize, &str) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (at_once, at_once_max) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let connections = Arc::<AtomicUsize>::default();
        let seen = Seen { requests: Arc::clone(&requests), times: Arc::clone(&times), act: Arc::new(act) };
        let (most, made) = (Arc::clone(&at_once_max), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                made.fetch_add(1, Ordering::SeqCst);
                let (seen, tls) = (seen.clone(), tls.clone());
                let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
                tokio::spawn(async move {
                    most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let mut stream = stream;
                    match tls {
                        None => while serve(&mut stream, &seen).await {},
                        Some(tls) => {
                            if let Ok(mut stream) = tls.accept(stream).await {
                                while serve(&mut stream, &seen).await {}
                            }
                        }
                    }
                    at_once.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, requests, times, connections, at_once_max, task }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

#[derive(Clone)]
struct Seen {
    requests: Arc<Mutex<Vec<String>>>,
    times: Arc<Mutex<Vec<Instant>>>,
    act: Arc<Script>,
}

type Script = dyn Fn(usize, &str) -> Act + Send + Sync;

/// One request of a connection; whether there may be another one.
async fn serve(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), seen: &Seen) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let number = {
        let mut requests = seen.requests.lock();
        requests.push(head.clone());
        seen.times.lock().push(Instant::now());
        requests.len() - 1
    };
    // Who has heard enough does not read on.
    match (seen.act)(number, &head) {
        Act::Send(bytes) => {
            _ = stream.write_all(&bytes).await;
            // What TLS holds is to arrive before the end.
            _ = stream.flush().await;
        }
        Act::Keep(bytes) => return stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok(),
        Act::Together(all, bytes) => {
            all.wait().await;
            return stream.write_all(&bytes).await.is_ok();
        }
        Act::Stall(bytes) => {
            _ = stream.write_all(&bytes).await;
            _ = stream.read_u8().await;
        }
        Act::Late(after, bytes) => {
            sleep(after).await;
            _ = stream.write_all(&bytes).await;
        }
        Act::Drip(bytes, at_once, pause) => {
            for piece in bytes.chunks(at_once) {
                if stream.write_all(piece).await.is_err() {
                    return false;
                }
                sleep(pause).await;
            }
        }
    }
    false
}

fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    [head.as_bytes(), b"\r\n", body].concat()
}

/// All of some data.
fn whole(body: &[u8], etag: &str) -> Vec<u8> {
    answer("200 OK", &[&format!("etag: {etag}"), &format!("content-length: {}", body.len())], body)
}

/// Whatever a request asks for of some data, as a good server would.
fn good(body: &[u8], etag: &str, head: &str) -> Vec<u8> {
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
    let condition = head.lines().find_map(|line| line.strip_prefix("if-range: "));
    match range.and_then(|begin| begin.parse::<usize>().ok()) {
        Some(begin) if condition.is_none_or(|condition| condition == etag) => {
            let rest = &body[begin..];
            let range = format!("content-range: bytes {begin}-{}/{}", body.len() - 1, body.len());
            let length = format!("content-length: {}", rest.len());
            answer("206 Partial Content", &[&format!("etag: {etag}"), &range, &length], rest)
        }
        _ => whole(body, etag),
    }
}

fn patient() -> DownloadOptions {
    DownloadOptions {
        pause: Duration::from_millis(1),
        pause_max: Duration::from_millis(5),
        ..Default::default()
    }
}

fn downloads_with(options: DownloadOptions, server: &Server) -> Downloads {
    let made = Made { address: "93.184.216.34".parse().unwrap(), server: server.address };
    Downloads::with_net(options, AllowList::default(), made)
}

fn downloads(server: &Server) -> Downloads {
    downloads_with(patient(), server)
}

/// Holds what came, and counts beginnings.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    beginnings: usize,
}

impl Sink for Held {
    fn begin(&mut self) {
        self.bytes.clear();
        self.beginnings += 1;
    }

    fn forget(&mut self) {
        self.bytes = Vec::new();
    }

    fn has_room(&mut self, _: u64) -> bool {
        true
    }

    fn room(&mut self, _: u64) -> Taking<'_> {
        Box::pin(async { Ok(()) })
    }

    fn take(&mut self, bytes: Bytes) -> Taking<'_> {
        self.bytes.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }

    fn end(&mut self) -> Taking<'_> {
        Box::pin(async { Ok(()) })
    }
}

fn wanted() -> Download {
    Download { urls: vec!["http://data.example/x".to_owned()], ..Download::default() }
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap()
}

async fn bring(downloads: &Downloads, wanted: &Download) -> Result<(Vec<u8>, usize), String> {
    let mut held = Held::default();
    match downloads.bring(wanted, &mut held).await {
        Ok(Downloaded::Whole { .. }) => Ok((held.bytes, held.beginnings)),
        Ok(Downloaded::Known) => panic!("nothing was known"),
        Err(error) => Err(error.to_string()),
    }
}

/// Why it does not come.
async fn refusal(server: &Server, wanted: &Download) -> String {
    let why = bring(&downloads(server), wanted).await.unwrap_err();
    assert!(why.contains(&wanted.urls[0]), "{why}");
    why
}

mod bounds;
mod kept;
mod secured;

#[tokio::test]
async fn data_comes_with_its_tag_and_is_asked_for_as_it_is() {
    let server = Server::start(|_, _| Act::Send(whole(&body(200_000), "\"a\""))).await;
    let mut held = Held::default();
    let brought = downloads(&server).bring(&wanted(), &mut held).await.unwrap();
    assert_eq!(brought, Downloaded::Whole { etag: Some("\"a\"".to_owned()) });
    assert!(held.bytes == body(200_000) && held.beginnings == 1);
    let head = &server.requests()[0];
    assert!(head.starts_with("get /x http/1.1\r\n") && head.contains("host: data.example\r\n"), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n") && !head.contains("range"), "{head}");
}

#[tokio::test]
async fn what_breaks_off_goes_on_where_it_was() {
    let data = body(100_000);
    let server = Server::start(move |number, head| match number {
        // Cut at two places, then served to the end.
        0 | 1 => {
            let mut bytes = good(&data, "\"a\"", head);
            bytes.truncate(40_000);
            Act::Send(bytes)
        }
        _ => Act::Send(good(&data, "\"a\"", head)),
    })
    .await;
    let (bytes, beginnings) = bring(&downloads(&server), &wanted()).await.unwrap();
    assert!(bytes == body(100_000) && beginnings == 1, "nothing came twice");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests[1].contains("range: bytes=3") && requests[1].contains("if-range: \"a\"\r\n"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn what_has_changed_meanwhile_begins_anew_or_is_refused() {
    let (old, new) = (body(50_000), vec![9; 60_000]);
    let act = move |number, head: &str| match number {
        0 => Act::Send(good(&old, "\"old\"", head)[..30_000].to_vec()),
        _ => Act::Send(good(&new, "\"new\"", head)),
    };
    let server = Server::start(act.clone()).await;
    let (bytes, beginnings) = bring(&downloads(&server), &wanted()).await.unwrap();
    assert!(bytes == vec![9; 60_000] && beginnings == 2, "no mixture");
    // Whoever wants the old one gets neither.
    let server = Server::start(act).await;
    let why = refusal(&server, &Download { etag: Some("\"old\"".to_owned()), ..wanted() }).await;
    assert!(why.contains("changed") && why.contains("\"new\""), "{why}");
    // A server that sends parts of something else all the same.
    let server = Server::start(|number, _| match number {
        0 => Act::Send(whole(&body(1000), "\"old\"")[..500].to_vec()),
        1 => Act::Send(answer(
            "206 P",
            &["etag: \"new\"", "content-range: bytes 450-999/1000", "content-length: 550"],
            &[7; 550],
        )),
        _ => Act::Send(whole(&[7; 1000], "\"new\"")),
    })
    .await;
    let (bytes, _) = bring(&downloads(&server), &wanted()).await.unwrap();
    assert_eq!(bytes, [7; 1000]);
}

#[tokio::test]
async fn the_tag_that_was_named_must_be_there() {
    let server = Server::start(|_, _| Act::Send(whole(b"data", "\"b\""))).await;
    let named = |etag: &str| Download { etag: Some(etag.to_owned()), ..wanted() };
    assert_eq!(bring(&downloads(&server), &named("\"b\"")).await.unwrap().0, b"data");
    assert!(server.requests()[0].contains("if-match: \"b\"\r\n"));
    assert!(refusal(&server, &named("\"a\"")).await.contains("its ETag is \"b\", not \"a\""));
    let weak = Server::start(|_, _| Act::Send(whole(b"data", "W/\"b\""))).await;
    assert!(refusal(&weak, &named("\"b\"")).await.contains("no strong ETag"));
    let strict = Server::start(|_, _| Act::Send(answer("412 No", &["content-length: 0"], b""))).await;
    assert!(refusal(&strict, &named("\"a\"")).await.contains("no longer \"a\""));
    assert_eq!(strict.requests().len(), 1, "it does not help to ask again");
}

#[tokio::test]
async fn lies_about_the_size_are_found() {
    let sized = |size| Download { size: Some(size), ..wanted() };
    let honest = Server::start(|_, _| Act::Send(whole(&body(1000), "\"a\""))).await;
    assert_eq!(bring(&downloads(&honest), &sized(1000)).await.unwrap().0.len(), 1000);
    assert!(refusal(&honest, &sized(999)).await.contains("it has 1000 bytes, not 999"));
    // It promises more than it ever sends.
    let promising =
        Server::start(|_, _| Act::Send(answer("200 OK", &["content-length: 2000"], &body(1000)))).await;
    let why = refusal(&promising, &wanted()).await;
    assert!(why.contains("broke off after 1000 bytes") && why.contains("given up after"), "{why}");
    // It does not say, and sends more, or less.
    let chunked = |body: &[u8]| {
        let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat();
        answer("200 OK", &["transfer-encoding: chunked"], &chunk)
    };
    let silent = Server::start(move |_, _| Act::Send(chunked(&body(1000)))).await;
    assert_eq!(bring(&downloads(&silent), &sized(1000)).await.unwrap().0.len(), 1000);
    assert!(refusal(&silent, &sized(10)).await.contains("more than 10 bytes"));
    assert!(refusal(&silent, &sized(1001)).await.contains("it has 1000 bytes, not 1001"));
    let endless = DownloadOptions { bytes_max: 100, ..patient() };
    assert!(bring(&downloads_with(endless, &silent), &wanted()).await.unwrap_err().contains("more than 100"));
    let why = bring(&downloads_with(endless, &honest), &wanted()).await.unwrap_err();
    assert!(why.contains("at most 100 are fetched"), "{why}");
}

#[tokio::test]
async fn what_hashes_to_something_else_is_refused() {
    let data = body(5000);
    let right = Download { sha256: Some(sha256(&data)), ..wanted() };
    let served = data.clone();
    let server = Server::start(move |_, _| Act::Send(whole(&served, "\"a\""))).await;
    assert_eq!(bring(&downloads(&server), &right).await.unwrap().0, data);
    let why = refusal(&server, &Download { sha256: Some([1; 32]), ..wanted() }).await;
    assert!(why.contains("SHA-256") && why.contains(&"01".repeat(32)), "{why}");
    // Without a tag its hash tells whether the pieces belong together.
    let served = data.clone();
    let pieced = Server::start(move |number, head| match number {
        0 => Act::Send(answer("200 OK", &["content-length: 5000"], &[8; 3000])),
        1 => Act::Send(good(&served, "\"a\"", head)),
        _ => Act::Send(answer("200 OK", &["content-length: 5000"], &served)),
    })
    .await;
    let (bytes, beginnings) = bring(&downloads(&pieced), &right).await.unwrap();
    assert!(bytes == data && beginnings == 2);
    assert!(pieced.requests()[1].contains("range: bytes=3000-"));
}

#[tokio::test]
async fn who_is_busy_is_asked_again_and_who_refuses_is_not() {
    let server = Server::start(|number, _| match number {
        0 => Act::Send(answer("503 Busy", &["content-length: 0"], b"")),
        1 => Act::Send(answer("429 Many", &["retry-after: 1000000", "content-length: 0"], b"")),
        2 => Act::Send(b"no HTTP at all".to_vec()),
        _ => Act::Send(whole(b"data", "\"a\"")),
    })
    .await;
    assert_eq!(bring(&downloads(&server), &wanted()).await.unwrap().0, b"data");
    let absent = Server::start(|_, _| Act::Send(answer("404 Not Found", &["content-length: 0"], b""))).await;
    assert!(refusal(&absent, &wanted()).await.contains("it answers 404 Not Found"));
    assert_eq!(absent.requests().len(), 1);
    let busy = Server::start(|_, _| Act::Send(answer("500 Oh", &["content-length: 0"], b""))).await;
    assert!(refusal(&busy, &wanted()).await.contains("given up after 5 attempts"));
    assert_eq!(busy.requests().len(), 5);
}

#[tokio::test]
async fn mirrors_are_asked_where_one_does_not_give_it() {
    let urls = ["http://a.example/x", "http://b.example/x", "http://c.example/x"];
    let server = Server::start(|_, head| {
        if head.contains("host: a.example") {
            return Act::Send(answer("404 No", &["content-length: 0"], b""));
        }
        if head.contains("host: b.example") {
            return Act::Send(answer("200 OK", &["content-length: 9"], b"half"));
        }
        Act::Send(whole(b"all of it", "\"c\""))
    })
    .await;
    let many = Download { urls: urls.map(str::to_owned).into(), ..wanted() };
    let (bytes, beginnings) = bring(&downloads(&server), &many).await.unwrap();
    assert_eq!((&bytes[..], beginnings), (&b"all of it"[..], 3));
    let none = Server::start(|_, _| Act::Send(answer("404 No", &["content-length: 0"], b""))).await;
    let why = bring(&downloads(&none), &many).await.unwrap_err();
    assert!(why.starts_with("http://c.example/x: "), "{why}");
    assert_eq!(none.requests().len(), 3);
}

#[tokio::test]
async fn redirects_are_followed_but_not_in_circles_nor_to_private_addresses() {
    let to =
        |location: &str| answer("302 Found", &[&format!("location: {location}"), "content-length: 0"], b"");
    let server = Server::start(move |number, _| match number {
        0 => Act::Send(to("/y")),
        1 => Act::Send(to("http://other.example/z?q#f")),
        _ => Act::Send(whole(b"data", "\"a\"")),
    })
    .await;
    assert_eq!(bring(&downloads(&server), &wanted()).await.unwrap().0, b"data");
    let requests = server.requests();
    assert!(requests[1].starts_with("get /y ") && requests[2].starts_with("get /z?q "), "{requests:?}");
    assert!(requests[2].contains("host: other.example\r\n"));
    let circle = Server::start(move |_, _| Act::Send(to("/x"))).await;
    assert!(refusal(&circle, &wanted()).await.contains("more than 5 times"));
    assert_eq!(circle.requests().len(), 6);
    for location in [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "file:///etc/passwd",
    ] {
        let server = Server::start(move |_, _| Act::Send(to(location))).await;
        refusal(&server, &wanted()).await;
        assert_eq!(server.requests().len(), 1, "{location}");
    }
    let nowhere = Server::start(|_, _| Act::Send(answer("302 Found", &["content-length: 0"], b""))).await;
    assert!(refusal(&nowhere, &wanted()).await.contains("to nowhere"));
}

#[tokio::test]
async fn no_private_address_is_asked_by_whatever_name() {
    let server = Server::start(|_, _| Act::Send(whole(b"data", "\"a\""))).await;
    for address in ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:10.0.0.1"] {
        let made = Made { address: address.parse().unwrap(), server: server.address };
        let downloads = Downloads::with_net(patient(), AllowList::default(), made);
        let why = bring(&downloads, &wanted()).await.unwrap_err();
        assert!(why.contains("private") && why.contains("fetch_private"), "{why}");
    }
    assert!(server.requests().is_empty());
    let made = Made { address: "10.0.0.5".parse().unwrap(), server: server.address };
    let allowed = AllowList::of_addresses(["10.0.0.5"]).unwrap();
    let downloads = Downloads::with_net(patient(), allowed, made);
    assert_eq!(bring(&downloads, &wanted()).await.unwrap().0, b"data", "the control");
}

#[tokio::test]
async fn who_stalls_is_left_and_asked_again() {
    let hasty = DownloadOptions {
        stall_timeout: Duration::from_millis(300),
        head_timeout: Duration::from_millis(300),
        ..patient()
    };
    let server = Server::start(|number, head| match number {
        0 => Act::Stall(good(&body(9000), "\"a\"", head)[..4000].to_vec()),
        1 => Act::Stall(Vec::new()),
        _ => Act::Send(good(&body(9000), "\"a\"", head)),
    })
    .await;
    let (bytes, beginnings) = bring(&downloads_with(hasty, &server), &wanted()).await.unwrap();
    assert!(bytes == body(9000) && beginnings == 1);
    let silent = Server::start(|_, _| Act::Stall(Vec::new())).await;
    let why = bring(&downloads_with(hasty, &silent), &wanted()).await.unwrap_err();
    assert!(why.contains("did not answer in 0.3 s"), "{why}");
    let whole = DownloadOptions { whole_timeout: Duration::from_millis(200), ..patient() };
    let why = bring(&downloads_with(whole, &silent), &wanted()).await.unwrap_err();
    assert!(why.contains("it has not come in"), "{why}");
}

#[tokio::test]
async fn what_is_known_is_not_brought_again() {
    let server = Server::start(|_, head| {
        if head.contains("if-none-match: \"a\"\r\n") {
            return Act::Send(answer("304 Not Modified", &["etag: \"a\""], b""));
        }
        Act::Send(whole(b"data", "\"a\""))
    })
    .await;
    let known = |etag: &str| Download { known_etag: Some(etag.to_owned()), ..wanted() };
    let mut held = Held::default();
    assert_eq!(downloads(&server).bring(&known("\"a\""), &mut held).await, Ok(Downloaded::Known));
    assert_eq!(held.beginnings, 0);
    assert_eq!(bring(&downloads(&server), &known("\"old\"")).await.unwrap().0, b"data");
    // Not modified is no answer to who knows nothing.
    let odd = Server::start(|_, _| Act::Send(answer("304 Not Modified", &[], b""))).await;
    assert!(refusal(&odd, &wanted()).await.contains("304"));
}

#[tokio::test]
async fn encoded_data_and_parts_nobody_asked_for_are_refused() {
    let encoded = Server::start(|_, _| {
        Act::Send(answer("200 OK", &["content-encoding: gzip", "content-length: 4"], b"data"))
    })
    .await;
    assert!(refusal(&encoded, &wanted()).await.contains("gzip"));
    let part = Server::start(|_, _| {
        Act::Send(answer("206 P", &["content-range: bytes 0-3/9", "content-length: 4"], b"data"))
    })
    .await;
    assert!(refusal(&part, &wanted()).await.contains("a part"));
}

#[tokio::test]
async fn no_more_transfers_at_once_than_allowed() {
    let server =
        Server::start(|_, _| Act::Late(Duration::from_millis(10), whole(&body(1000), "\"a\""))).await;
    let few = DownloadOptions { total_max: 6, per_host_max: 3, ..patient() };
    let downloads = Arc::new(downloads_with(few, &server));
    let mut all = tokio::task::JoinSet::new();
    for number in 0..60 {
        let downloads = Arc::clone(&downloads);
        all.spawn(async move {
            let host = number % 4;
            let wanted = Download { urls: vec![format!("http://{host}host.example/{number}")], ..wanted() };
            bring(&downloads, &wanted).await.unwrap().0.len()
        });
    }
    assert!(all.join_all().await.into_iter().all(|len| len == 1000));
    let most = server.at_once_max.load(Ordering::SeqCst);
    // A connection may be counted until the server sees its end.
    assert!((2..=12).contains(&most), "{most}");
}

#[tokio::test]
async fn a_sink_that_fails_ends_it() {
    struct Full;
    impl Sink for Full {
        fn begin(&mut self) {}
        fn forget(&mut self) {}
        fn has_room(&mut self, _: u64) -> bool {
            true
        }
        fn room(&mut self, _: u64) -> Taking<'_> {
            Box::pin(async { Ok(()) })
        }
        fn take(&mut self, _: Bytes) -> Taking<'_> {
            Box::pin(async { Err("the disk is full".to_owned()) })
        }
        fn end(&mut self) -> Taking<'_> {
            Box::pin(async { Ok(()) })
        }
    }
    let server = Server::start(|_, _| Act::Send(whole(b"data", "\"a\""))).await;
    let error = downloads(&server).bring(&wanted(), &mut Full).await.unwrap_err();
    assert!(error.to_string().contains("the disk is full") && server.requests().len() == 1);
}

/// Counts how many hold bytes at once.
#[derive(Default)]
struct Holders {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Counted {
    held: Held,
    all: Arc<Holders>,
}

impl Counted {
    fn counted(&mut self, change: impl FnOnce(&mut Held)) {
        let held = !self.held.bytes.is_empty();
        change(&mut self.held);
        match (held, !self.held.bytes.is_empty()) {
            (false, true) => {
                _ = self.all.most.fetch_max(self.all.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst)
            }
            (true, false) => _ = self.all.now.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }
}

impl Sink for Counted {
    fn begin(&mut self) {
        self.counted(Sink::begin);
    }

    fn forget(&mut self) {
        self.counted(Sink::forget);
    }

    fn has_room(&mut self, _: u64) -> bool {
        true
    }

    fn room(&mut self, _: u64) -> Taking<'_> {
        Box::pin(async { Ok(()) })
    }

    fn take(&mut self, bytes: Bytes) -> Taking<'_> {
        self.counted(|held| held.bytes.extend_from_slice(&bytes));
        Box::pin(async { Ok(()) })
    }

    /// Keeping it takes a while.
    fn end(&mut self) -> Taking<'_> {
        Box::pin(async {
            sleep(Duration::from_millis(30)).await;
            assert!(self.held.bytes == body(50_000));
            self.counted(Sink::forget);
            Ok(())
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counted(Sink::forget);
    }
}

#[tokio::test]
async fn who_holds_bytes_has_a_turn_also_between_attempts() {
    for (etag, is_redirected) in [("\"a\"", false), ("W/\"a\"", false), ("\"a\"", true)] {
        // Everybody's first answer is cut off.
        let server = Server::start(move |_, head| {
            let away = "http://other.example/x";
            if is_redirected && head.contains("range: ") && !head.contains("host: other.example") {
                return Act::Send(answer(
                    "302 Found",
                    &[&format!("location: {away}"), "content-length: 0"],
                    b"",
                ));
            }
            let mut bytes = good(&body(50_000), etag, head);
            let is_again = head.contains("range: ") || head.contains("get /again");
            bytes.truncate(if is_again { bytes.len() } else { 20_000 });
            Act::Send(bytes)
        })
        .await;
        let few = DownloadOptions {
            total_max: 3,
            // So that where they are redirected to there are others already.
            per_host_max: if is_redirected { 1 } else { 3 },
            failures_max: 3,
            pause: Duration::from_millis(40),
            pause_max: Duration::from_millis(40),
            ..Default::default()
        };
        let downloads = Arc::new(downloads_with(few, &server));
        let holders = Arc::<Holders>::default();
        let mut all = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (downloads, holders) = (Arc::clone(&downloads), Arc::clone(&holders));
            all.spawn(async move {
                // The mirror has it whole.
                let urls =
                    [format!("http://{}host.example/x", number % 5), "http://m.example/again".to_owned()];
                let mut sink = Counted { held: Held::default(), all: holders };
                downloads.bring(&Download { urls: urls.into(), ..wanted() }, &mut sink).await.unwrap();
                assert_eq!(sink.held.bytes.len(), 0, "it has ended");
            });
        }
        let ended = timeout(Duration::from_secs(60), all.join_all()).await;
        assert_eq!(ended.expect("nobody waits for each other").len(), 20);
        let most = holders.most.load(Ordering::SeqCst);
        assert!((1..=3).contains(&most), "{most} held bytes at once, {etag} {is_redirected}");
        let anew = |head: &String| head.contains("host: other.example") && !head.contains("range: ");
        assert_eq!(server.requests().iter().any(anew), is_redirected, "some had to wait there, with nothing");
    }
}

#[tokio::test]
async fn the_clock_runs_from_the_first_turn_on() {
    let late = Duration::from_millis(400);
    let server = Server::start(move |_, _| Act::Late(late, whole(b"data", "\"a\""))).await;
    let limit = DownloadOptions { total_max: 1, whole_timeout: 2 * late, ..patient() };
    let downloads = Arc::new(downloads_with(limit, &server));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let downloads = Arc::clone(&downloads);
        all.spawn(async move { bring(&downloads, &wanted()).await });
    }
    assert!(all.join_all().await.into_iter().all(|brought| brought.unwrap().0 == b"data"));
    let hasty = DownloadOptions { whole_timeout: late / 2, ..limit };
    let why = bring(&downloads_with(hasty, &server), &wanted()).await.unwrap_err();
    assert!(why.contains("it has not come in"), "{why}");
}

#[tokio::test]
async fn who_sends_too_little_is_given_up_and_who_sends_enough_is_not() {
    let served = || Act::Drip(whole(&body(3000), "\"a\""), 50, Duration::from_millis(10));
    let server = Server::start(move |_, _| served()).await;
    let paced = |rate_min| DownloadOptions { rate_min, rate_window: Duration::from_millis(100), ..patient() };
    let why = bring(&downloads_with(paced(1 << 20), &server), &wanted()).await.unwrap_err();
    assert!(why.contains("too slow") && why.contains("given up after 5 attempts"), "{why}");
    assert_eq!(bring(&downloads_with(paced(10), &server), &wanted()).await.unwrap().0, body(3000));
}
