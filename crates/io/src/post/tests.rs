// SPDX-License-Identifier: Apache-2.0
//! Requests to servers on this machine's loopback, in a network that is made up.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::dial::URL_BYTES_MAX;
use crate::net::Answer;

/// Every name has these addresses; every connection leads to one server.
struct Made {
    addresses: Vec<IpAddr>,
    server: SocketAddr,
}

impl Net for Made {
    fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(self.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(self.server))
    }
}

/// A server that answers each connection so; what it was sent.
async fn server(answer: &'static str) -> (SocketAddr, JoinSet<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut served = JoinSet::new();
    served.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = String::new();
        while !seen.ends_with("the body") {
            let mut piece = [0; 1024];
            let len = stream.read(&mut piece).await.unwrap();
            if len == 0 {
                break;
            }
            // Who wants a secure connection says what is no text, and gets none.
            let Ok(text) = std::str::from_utf8(&piece[..len]) else { return seen };
            seen.push_str(text);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        // Nobody here ends a connection before its answer is whole.
        if answer.ends_with("not all") {
            std::future::pending::<()>().await;
        }
        seen
    });
    (address, served)
}

fn post(server: SocketAddr, addresses: &[&str], private: &[&str]) -> Post {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Post::with_net(AllowList::of_addresses(private.iter().copied()).unwrap(), Made { addresses, server })
}

async fn sent(post: &Post, url: &str) -> Result<u16, PostError> {
    let mut headers = HeaderMap::new();
    headers.insert("x-mine", HeaderValue::from_static("yes"));
    post.send(url, headers, Bytes::from_static(b"the body")).await
}

#[tokio::test]
async fn a_request_arrives_and_its_status_is_told() {
    let (address, mut served) = server("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok").await;
    let post = post(address, &["93.184.216.34"], &[]);
    assert_eq!(sent(&post, "http://hooks.example:8080/a?b=c").await, Ok(202));
    let seen = served.join_next().await.unwrap().unwrap();
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("x-mine: yes\r\n") && seen.contains("host: hooks.example:8080\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\nthe body"), "{seen}");
}

#[tokio::test]
async fn no_private_address_is_reached_by_whatever_name() {
    // The server would answer, so a refusal is ours.
    for addresses in [&["127.0.0.1"][..], &["10.0.0.5", "169.254.169.254"], &["::1"]] {
        let (address, mut served) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let refused = sent(&post(address, addresses, &[]), "http://hooks.example/").await;
        assert!(matches!(&refused, Err(PostError::Refused(why)) if why.contains("private")), "{refused:?}");
        assert!(served.try_join_next().is_none());
    }
    let (address, _served) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let allowed = post(address, &["10.0.0.5"], &["10.0.0.5:8080"]);
    assert!(matches!(sent(&allowed, "http://hooks.example/").await, Err(PostError::Refused(_))), "the port");
    assert_eq!(sent(&allowed, "http://hooks.example:8080/").await, Ok(200), "the control");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let answer = "HTTP/1.1 307 Temporary\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n";
    let (address, _served) = server(answer).await;
    assert_eq!(sent(&post(address, &["1.1.1.1"], &[]), "http://hooks.example/").await, Ok(307));
}

#[tokio::test]
async fn the_status_decides_whatever_becomes_of_the_body() {
    for (answer, status) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nnot all", 200),
        ("HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nand the end is missing", 503),
    ] {
        let (address, _served) = server(answer).await;
        assert_eq!(sent(&post(address, &["1.1.1.1"], &[]), "http://hooks.example/").await, Ok(status));
    }
}

#[tokio::test]
async fn who_does_not_answer_failed_and_may_another_time() {
    let (address, _served) = server("no HTTP at all").await;
    let post_ = post(address, &["1.1.1.1"], &[]);
    assert!(matches!(sent(&post_, "http://hooks.example/").await, Err(PostError::Failed(_))));
    // The same address now refuses connections.
    drop(_served);
    assert!(matches!(sent(&post_, "http://hooks.example/").await, Err(PostError::Failed(_))));
    let (address, _served) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let secure = sent(&post(address, &["1.1.1.1"], &[]), "https://hooks.example/").await;
    assert!(matches!(secure, Err(PostError::Failed(_))), "{secure:?}");
    assert!(matches!(
        sent(&post(address, &[], &[]), "http://none.example/").await,
        Err(PostError::Failed(_))
    ));
}

#[tokio::test]
async fn what_can_be_named() {
    let (address, _served) = server("").await;
    let post = post(address, &[], &["10.0.0.5:8080"]);
    for url in
        ["https://example.com/a", "http://example.com:8080", "http://1.1.1.1/", "http://10.0.0.5:8080/"]
    {
        assert_eq!(post.check(url), Ok(()), "{url}");
    }
    let long = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX));
    for url in [
        "",
        "/path",
        "example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:secret@example.com/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.5/",
        &long,
    ] {
        assert!(post.check(url).is_err(), "{url}");
    }
    assert!(AllowList::of_addresses(["hooks.lan"]).is_err());
}
