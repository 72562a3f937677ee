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

use super::server::{self, Connections};

/// One fetch.
struct Fetch {
    stream: TcpStream,
    number: u64,
    is_asked: bool,
    came: Vec<u8>,
}

/// A client, with connections that the server has not ended.
#[derive(Default)]
pub(super) struct Client {
    kept: Vec<TcpStream>,
}

impl Client {
    /// How long it takes to fetch all at once.
    pub(super) fn fetch_all(
        &mut self,
        server: SocketAddr,
        connections: Connections,
        numbers: Range<u64>,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(1024);
        let mut fetches = HashMap::new();
        for number in numbers {
            let kept = if connections == Connections::Kept { self.kept.pop() } else { None };
            let mut stream = kept.map_or_else(|| TcpStream::connect(server), Ok)?;
            let token = Token(number as usize);
            poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            fetches.insert(token, Fetch { stream, number, is_asked: false, came: Vec::new() });
        }
        while !fetches.is_empty() {
            poll.poll(&mut events, None)?;
            for event in &events {
                let Some(fetch) = fetches.get_mut(&event.token()) else { continue };
                if event.is_writable() && !fetch.is_asked {
                    let path = connections.path(fetch.number);
                    let host = format!("host: {server}\r\naccept: */*\r\n\r\n");
                    fetch.stream.write_all(format!("GET {path} HTTP/1.1\r\n{host}").as_bytes())?;
                    fetch.is_asked = true;
                }
                let is_over = fetch.read();
                let whole = server::answer(connections, fetch.number);
                if is_over || fetch.came.len() >= whole.len() {
                    ensure!(fetch.came == whole, "input {} is another", fetch.number);
                    if let Some(Fetch { mut stream, .. }) = fetches.remove(&event.token())
                        && connections == Connections::Kept
                    {
                        poll.registry().deregister(&mut stream)?;
                        self.kept.push(stream);
                    }
                }
            }
        }
        Ok(begun.elapsed())
    }
}

impl Fetch {
    /// Takes what has come. Whether nothing more will.
    fn read(&mut self) -> bool {
        let mut piece = [0; 2048];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return true,
                Ok(read) => self.came.extend_from_slice(&piece[..read]),
                Err(_) => return false,
            }
        }
    }
}
