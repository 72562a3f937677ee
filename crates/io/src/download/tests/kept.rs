// SPDX-License-Identifier: Apache-2.0
//! Transfers one after another on connections that are kept, and several at once.

use super::*;

#[tokio::test]
async fn transfers_of_one_host_share_a_connection_whatever_they_end_with() {
    let server = Server::start(|_, head| {
        Act::Keep(match head.split(' ').nth(1).unwrap() {
            "/known" => answer("304 Not Modified", &["etag: \"a\""], b""),
            "/moved" => answer("302 Found", &["location: /x", "content-length: 0"], b""),
            "/gone" => answer("404 Not Found", &["content-length: 0"], b""),
            "/pieces" => answer("200 OK", &["transfer-encoding: chunked"], b"4\r\ndata\r\n0\r\n\r\n"),
            _ => good(&body(100_000), "\"a\"", head),
        })
    })
    .await;
    let downloads = downloads(&server);
    let at = |path: &str| Download { urls: vec![format!("http://data.example{path}")], ..wanted() };
    for _ in 0..3 {
        assert_eq!(bring(&downloads, &at("/x")).await.unwrap().0, body(100_000));
        assert_eq!(bring(&downloads, &at("/moved")).await.unwrap().0, body(100_000));
        assert_eq!(bring(&downloads, &at("/pieces")).await.unwrap().0, b"data");
        let known = Download { known_etag: Some("\"a\"".to_owned()), ..at("/known") };
        assert_eq!(downloads.bring(&known, &mut Held::default()).await, Ok(Downloaded::Known));
        assert!(bring(&downloads, &at("/gone")).await.unwrap_err().contains("404"));
    }
    assert_eq!((server.requests().len(), server.connections()), (18, 1));
}

#[tokio::test]
async fn a_kept_connection_that_ended_is_no_attempt() {
    // Each connection serves one, and takes another request before it ends.
    let server = Server::start(|number, head| match number % 2 {
        0 => Act::Keep(good(&body(1000), "\"a\"", head)),
        _ => Act::Send(Vec::new()),
    })
    .await;
    let once = DownloadOptions { failures_max: 1, attempts_max: 1, ..patient() };
    let downloads = downloads_with(once, &server);
    for _ in 0..5 {
        assert_eq!(bring(&downloads, &wanted()).await.unwrap().0, body(1000));
    }
    assert_eq!((server.requests().len(), server.connections()), (9, 5));
}

#[tokio::test]
async fn as_many_as_may_come_at_once_do() {
    let together = Arc::new(Barrier::new(8));
    let arrived = Arc::clone(&together);
    let server =
        Server::start(move |_, head| Act::Together(Arc::clone(&arrived), good(b"data", "\"a\"", head))).await;
    let downloads = Arc::new(downloads_with(DownloadOptions { per_host_max: 8, ..patient() }, &server));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let downloads = Arc::clone(&downloads);
        all.spawn(async move { bring(&downloads, &wanted()).await.unwrap().0 });
    }
    // Nobody is answered before eight have asked.
    let brought = timeout(Duration::from_secs(60), all.join_all()).await.expect("they come eight at a time");
    assert!(brought.into_iter().all(|bytes| bytes == b"data"));
    assert_eq!(server.connections(), 8, "the next ones go on the same connections");
}

#[tokio::test]
async fn pauses_grow() {
    let server = Server::start(|_, _| Act::Keep(answer("503 Busy", &["content-length: 0"], b""))).await;
    let pause = Duration::from_millis(40);
    let options = DownloadOptions { pause, pause_max: Duration::from_secs(10), ..Default::default() };
    assert!(bring(&downloads_with(options, &server), &wanted()).await.is_err());
    let times = server.times.lock();
    // Between half and one and a half of 40, 80, 160 and 320 ms: that much at least, whoever else is busy.
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    for (pause, least) in pauses.zip([20, 40, 80, 160]) {
        assert!(pause >= Duration::from_millis(least), "{pause:?}");
    }
    assert_eq!(times.len(), 5);
}
