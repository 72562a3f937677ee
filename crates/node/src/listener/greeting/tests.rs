// SPDX-License-Identifier: Apache-2.0
//! Handshakes on real sockets, by clients that end them and by those who do not.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use gateway::Connections;
use hyper_util::service::TowerToHyperService;
use io::tls::{Client, Identity, self_signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use super::super::{Patience, Terms, serve};
use super::*;

const GENEROUS: Duration = Duration::from_secs(20);
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

struct House {
    address: SocketAddr,
    client: Client,
    identity: Arc<Identity>,
    connections: Connections,
    stop: signal::Sender<bool>,
    server: JoinSet<()>,
    home: tempfile::TempDir,
}

impl House {
    async fn new(connections_max: usize, head: Duration) -> Self {
        let home = tempfile::tempdir().unwrap();
        let files = self_signed(home.path(), &["localhost".to_owned()]).unwrap();
        let identity = Arc::new(Identity::read(&files.certificate, &files.key).unwrap());
        let answering = |text: &'static str| Router::new().route("/", get(async move || text));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let greeting = Secured::new(
            Server::new(Arc::clone(&identity), &[b"http/1.1"]).unwrap(),
            TowerToHyperService::new(answering("secured")),
            TowerToHyperService::new(answering("plain")),
            connections_max,
        );
        let connections = Connections::default();
        let patience = Patience { head, idle: 10 * GENEROUS, answer: 10 * GENEROUS };
        let loops = crate::loops::Loops::current().unwrap();
        let terms = Terms { connections_max, patience, connections: connections.clone(), loops };
        let (stop, stopping) = signal::channel(false);
        let mut server = JoinSet::new();
        server.spawn(serve(listener, greeting, terms, stopping));
        let client = Client::trusting(&files.certificate).unwrap();
        Self { address, client, identity, connections, stop, server, home }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn asked(&self) -> String {
        let mut stream = self.client.connect("localhost", self.connect().await).await.unwrap();
        stream.write_all(GET).await.unwrap();
        rest(&mut stream).await
    }
}

/// What arrives until the other end closes.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(GENEROUS, stream.read_to_end(&mut answer)).await;
    // The other end may reset the connection instead of closing it.
    let _ = read.expect("the connection is never closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_client_of_tls_gets_through_and_another_is_told() {
    let house = House::new(9, 10 * GENEROUS).await;
    assert!(house.asked().await.ends_with("secured"));
    let mut plain = house.connect().await;
    plain.write_all(GET).await.unwrap();
    assert!(rest(&mut plain).await.ends_with("plain"));
    // Rubbish after the first byte of a handshake ends the connection.
    let mut rubbish = house.connect().await;
    rubbish.write_all(&[HANDSHAKE_BYTE, 9, 9, 9, 9, 9, 9, 9]).await.unwrap();
    assert!(!rest(&mut rubbish).await.contains("HTTP"));
    assert!(house.asked().await.ends_with("secured"));
}

#[tokio::test]
async fn who_is_slow_to_shake_hands_is_cut_off() {
    let house = House::new(9, Duration::from_millis(200)).await;
    let mut silent = house.connect().await;
    let mut slow = house.connect().await;
    slow.write_all(&[HANDSHAKE_BYTE, 3, 1, 2, 0]).await.unwrap();
    assert_eq!((rest(&mut silent).await, rest(&mut slow).await), (String::new(), String::new()));
}

#[tokio::test]
async fn a_connection_outlives_the_certificate_that_it_began_with() {
    let house = House::new(9, 10 * GENEROUS).await;
    let mut stream = house.client.connect("localhost", house.connect().await).await.unwrap();
    let keeping = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(keeping.as_bytes()).await.unwrap();
    let mut piece = [0; 1024];
    assert_ne!(stream.read(&mut piece).await.unwrap(), 0);
    // Nobody who was here before: he would go on with his old session.
    let client = Client::trusting(house.identity.certificate()).unwrap();
    self_signed(house.home.path(), &["localhost".to_owned(), "other".to_owned()]).unwrap();
    assert!(house.identity.refresh().unwrap());
    let distrusted = client.connect("localhost", house.connect().await).await;
    assert!(distrusted.is_err(), "new connections get the new certificate");
    stream.write_all(GET).await.unwrap();
    assert!(rest(&mut stream).await.ends_with("secured"));
}

/// Four places, two of them for handshakes.
#[tokio::test]
async fn those_who_say_nothing_give_way_to_those_who_do() {
    let mut house = House::new(4, 10 * GENEROUS).await;
    let mut first = house.connect().await;
    let mut second = house.connect().await;
    second.write_all(&[HANDSHAKE_BYTE, 3, 1, 2, 0]).await.unwrap();
    for _ in 0..3 {
        // Whoever comes now takes the place of the oldest who has not got through.
        assert!(tokio::time::timeout(GENEROUS, house.asked()).await.unwrap().ends_with("secured"));
    }
    let third = house.connect().await;
    let _fourth = house.connect().await;
    assert_eq!((rest(&mut first).await, rest(&mut second).await), (String::new(), String::new()));
    // A stop waits for nobody who has not asked for anything.
    house.stop.send(true).unwrap();
    tokio::time::timeout(GENEROUS, house.server.join_next()).await.unwrap();
    assert_eq!(house.connections.open(), 0);
    drop(third);
}
