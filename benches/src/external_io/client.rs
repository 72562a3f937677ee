// SPDX-License-Identifier: Apache-2.0
//! A client that only fetches: all at once, on one thread, and nothing is done with
//! what comes but to compare it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::ensure;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::server;

/// One fetch.
struct Fetch {
    stream: TcpStream,
    number: u64,
    is_asked: bool,
    came: Vec<u8>,
}

/// How long it takes.
pub(super) fn fetch_all(server: SocketAddr, numbers: Range<u64>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut fetches = HashMap::new();
    for number in numbers {
        let mut stream = TcpStream::connect(server)?;
        let token = Token(number as usize);
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        fetches.insert(token, Fetch { stream, number, is_asked: false, came: Vec::new() });
    }
    while !fetches.is_empty() {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Some(fetch) = fetches.get_mut(&event.token()) else { continue };
            if event.is_writable() && !fetch.is_asked {
                let host = format!("host: {server}\r\naccept: */*\r\nconnection: close\r\n\r\n");
                fetch.stream.write_all(format!("GET /{} HTTP/1.1\r\n{host}", fetch.number).as_bytes())?;
                fetch.is_asked = true;
            }
            let mut piece = [0; 2048];
            let is_ended = loop {
                match fetch.stream.read(&mut piece) {
                    Ok(0) => break true,
                    Ok(read) => fetch.came.extend_from_slice(&piece[..read]),
                    Err(_) => break false,
                }
            };
            if is_ended {
                ensure!(fetch.came == server::answer(fetch.number), "input {} is another", fetch.number);
                fetches.remove(&event.token());
            }
        }
    }
    Ok(begun.elapsed())
}
