// SPDX-License-Identifier: Apache-2.0
//! What servers, and many who want something at once, can have a node hold and do.

use std::collections::BTreeMap;

use super::*;
use crate::s3::BucketOptions;

/// Takes what there is room for in all.
struct Roomy {
    held: Held,
    room: Arc<Semaphore>,
    has: Option<OwnedSemaphorePermit>,
    waits: Arc<AtomicUsize>,
}

impl Roomy {
    fn new(room: &Arc<Semaphore>, waits: &Arc<AtomicUsize>) -> Self {
        Self { held: Held::default(), room: Arc::clone(room), has: None, waits: Arc::clone(waits) }
    }
}

impl Sink for Roomy {
    fn begin(&mut self) {
        self.held.begin();
    }

    fn forget(&mut self) {
        self.held.forget();
        self.has = None;
    }

    fn has_room(&mut self, bytes: u64) -> bool {
        let has = self.has.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        if has >= bytes {
            return true;
        }
        match Arc::clone(&self.room).try_acquire_many_owned((bytes - has) as u32) {
            Ok(more) => match &mut self.has {
                Some(has) => has.merge(more),
                None => self.has = Some(more),
            },
            Err(_) => return false,
        }
        true
    }

    fn room(&mut self, bytes: u64) -> Taking<'_> {
        assert!(self.has.is_none() && self.held.bytes.is_empty(), "who waits holds nothing");
        self.waits.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.has = Arc::clone(&self.room).acquire_many_owned(bytes as u32).await.ok();
            Ok(())
        })
    }

    fn take(&mut self, bytes: Bytes) -> Taking<'_> {
        self.held.take(bytes)
    }

    fn end(&mut self) -> Taking<'_> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn who_needs_room_waits_for_it_and_keeps_nobody_else_from_a_turn() {
    // The length is said by who asks, by the server, or by nobody.
    for (size, is_told) in [(Some(1000), true), (None, true), (None, false)] {
        let server = Server::start(move |_, head| {
            let len = if head.starts_with("get /small") { 10 } else { 1000 };
            match is_told {
                true => Act::Send(whole(&body(len), "\"a\"")),
                false => Act::Send(answer("200 OK", &["connection: close"], &body(len))),
            }
        })
        .await;
        let few = DownloadOptions { total_max: 1, ..patient() };
        let downloads = Arc::new(downloads_with(few, &server));
        let (room, waits) = (Arc::new(Semaphore::new(2100)), Arc::<AtomicUsize>::default());
        let taken = Arc::clone(&room).acquire_many_owned(2000).await.unwrap();
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (downloads, mut sink) = (Arc::clone(&downloads), Roomy::new(&room, &waits));
            all.spawn(async move {
                downloads.bring(&Download { size, ..wanted() }, &mut sink).await.unwrap();
                sink.held.bytes == body(1000)
            });
        }
        while waits.load(Ordering::SeqCst) < 20 {
            sleep(Duration::from_millis(1)).await;
        }
        let small = Download { urls: vec!["http://data.example/small".to_owned()], ..Download::default() };
        let mut sink = Roomy::new(&room, &waits);
        // Whoever wants what there is no room for is in no queue before it.
        sink.has = Some(taken);
        let brought = timeout(Duration::from_secs(30), downloads.bring(&small, &mut sink)).await;
        assert!(brought.unwrap().is_ok() && sink.held.bytes == body(10));
        drop(sink);
        let ended = timeout(Duration::from_secs(30), all.join_all()).await.unwrap();
        assert_eq!(ended, [true; 20], "{size:?} {is_told}");
        assert_eq!(room.available_permits(), 2100);
    }
}

#[tokio::test]
async fn more_than_is_ever_fetched_is_not_begun() {
    let server = Server::start(|_, _| Act::Send(whole(&body(1000), "\"a\""))).await;
    let few = DownloadOptions { bytes_max: 999, ..patient() };
    let why = bring(&downloads_with(few, &server), &Download { size: Some(1000), ..wanted() }).await;
    assert!(why.unwrap_err().contains("it has 1000 bytes, and at most 999 are fetched"));
    assert!(server.requests().is_empty());
    bring(&downloads_with(few, &server), &wanted()).await.unwrap_err();
    assert_eq!(server.requests().len(), 1, "it does not help to ask again");
}

#[tokio::test]
async fn what_servers_say_at_length_is_not_kept() {
    let long = "a".repeat(20_000);
    let tag = format!("\"{long}\"");
    let server = Server::start(move |_, _| Act::Send(whole(b"data", &tag))).await;
    let mut held = Held::default();
    let brought = downloads(&server).bring(&wanted(), &mut held).await;
    assert_eq!(brought, Ok(Downloaded::Whole { etag: None }));
    for header in [format!("location: http://{long}/"), format!("location: x:{long}")] {
        let server =
            Server::start(move |_, _| Act::Send(answer("302 Found", &[&header, "content-length: 0"], b"")));
        let why = refusal(&server.await, &wanted()).await;
        assert!(why.contains("it redirects to") && why.len() < 500, "{}", why.len());
    }
    let encoding = format!("content-encoding: {long}");
    let server = Server::start(move |_, _| Act::Send(answer("200 OK", &[&encoding], b""))).await;
    let why = refusal(&server, &wanted()).await;
    assert!(why.contains("encoded as") && why.len() < 500, "{}", why.len());
    let flood = format!("flood: {}", "a".repeat(300_000));
    let server = Server::start(move |_, _| Act::Send(answer("200 OK", &[&flood], b""))).await;
    refusal(&server, &wanted()).await;
}

#[tokio::test]
async fn a_slow_minute_loses_nothing_and_leads_to_no_mirror() {
    let server = Server::start(|number, head| match number {
        0 => Act::Drip(good(&body(9000), "\"a\"", head), 50, Duration::from_millis(10)),
        _ => Act::Send(good(&body(9000), "\"a\"", head)),
    })
    .await;
    let urls = ["http://a.example/x", "http://b.example/x"].map(str::to_owned).into();
    let paced = DownloadOptions { rate_min: 1 << 20, rate_window: Duration::from_millis(100), ..patient() };
    let (bytes, beginnings) =
        bring(&downloads_with(paced, &server), &Download { urls, ..wanted() }).await.unwrap();
    assert!(bytes == body(9000) && beginnings == 1, "it went on");
    let requests = server.requests();
    assert!(requests.len() == 2 && requests[1].contains("host: a.example"), "{requests:?}");
}

#[tokio::test]
async fn who_breaks_off_before_it_is_looked_is_slow_all_the_same() {
    // The head at once, and then a few bytes at a time.
    let drips = |head: &str| {
        let mut bytes = good(&body(100_000), "\"a\"", head);
        let begin = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        bytes.truncate(begin + 40);
        Act::Drip(bytes, begin, Duration::from_millis(50))
    };
    let server = Server::start(move |_, head| drips(head)).await;
    let paced = DownloadOptions { rate_min: 100_000, rate_window: Duration::from_secs(60), ..patient() };
    let why = bring(&downloads_with(paced, &server), &wanted()).await.unwrap_err();
    assert!(why.contains("given up after 5 attempts"), "{why}");
    // A mirror is asked then.
    let server = Server::start(move |_, head| match head.contains("host: b.example") {
        true => Act::Send(good(&body(100_000), "\"a\"", head)),
        false => drips(head),
    })
    .await;
    let urls = ["http://a.example/x", "http://b.example/x"].map(str::to_owned).into();
    let (bytes, _) = bring(&downloads_with(paced, &server), &Download { urls, ..wanted() }).await.unwrap();
    assert!(bytes == body(100_000));
    assert_eq!(server.requests().len(), 6);
}

/// Names below `slow.example` are not found for a while, but one.
struct Slow(Made);

impl Net for Slow {
    fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if !name.starts_with("quick") {
            std::thread::sleep(Duration::from_millis(700));
        }
        self.0.resolve(name, port)
    }

    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        self.0.connect(address)
    }
}

#[tokio::test]
async fn to_wait_for_a_look_up_is_not_to_wait_for_a_server() {
    let server = Server::start(|_, _| Act::Send(whole(b"data", "\"a\""))).await;
    let made = Made { address: "93.184.216.34".parse().unwrap(), server: server.address };
    let once = DownloadOptions {
        connect_timeout: Duration::from_millis(200),
        failures_max: 1,
        ..DownloadOptions::default()
    };
    let downloads = Arc::new(Downloads::with_net(once, AllowList::default(), Slow(made)));
    let of = |host: &str| Download { urls: vec![format!("http://{host}.slow.example/")], ..wanted() };
    let mut slow = tokio::task::JoinSet::new();
    for number in 0..4 {
        let (downloads, wanted) = (Arc::clone(&downloads), of(&number.to_string()));
        slow.spawn(async move { bring(&downloads, &wanted).await });
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(bring(&downloads, &of("quick")).await.unwrap().0, b"data", "with the one attempt it has");
    let slow = slow.join_all().await;
    assert!(slow.iter().all(|why| why.as_ref().unwrap_err().contains("cannot be reached in 0.2 s")));
}

#[tokio::test]
async fn what_a_bucket_says_is_told_as_far_as_it_is_short_and_who_has_no_keys_hears_so() {
    let server = Server::start(|_, _| {
        let body = format!("<Error><Code>AccessDenied</Code>{}</Error>", "x".repeat(100_000));
        Act::Send(answer("403 Forbidden", &[&format!("content-length: {}", body.len())], body.as_bytes()))
    })
    .await;
    let options = BucketOptions {
        endpoint: Some("http://s3.example".to_owned()),
        secret: "SINEW_S3".to_owned(),
        ..BucketOptions::default()
    };
    let options = BTreeMap::from([("data".to_owned(), options)]);
    for keys in [None, Some("AKEY shhh".to_owned())] {
        let is_anonymous = keys.is_none();
        let buckets =
            Buckets::new(&options, &(Arc::new(move |_: &str| keys.clone()) as crate::Keys)).unwrap();
        let object = Download { urls: vec!["s3://data/a".to_owned()], ..wanted() };
        let why = bring(&downloads(&server).with_buckets(buckets), &object).await.unwrap_err();
        assert!(why.contains("403 Forbidden (AccessDenied)"), "{why}");
        let hint = "it was asked without keys: there is no secret SINEW_S3";
        assert_eq!(why.contains(hint), is_anonymous, "{why}");
    }
}
