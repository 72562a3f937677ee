// SPDX-License-Identifier: Apache-2.0
//! A data server that answers each request after a fixed time, any number at once.

use std::collections::{HashMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(0);
/// Connections that wait to be taken.
const CONNECTING_MAX: i32 = 4096;

/// The input of this number.
pub(super) fn value(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2
}

/// The bytes that are sent for `GET /NUMBER`.
pub(super) fn answer(number: u64) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\netag: \"{number}\"\r\ncontent-length: 8\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), &value(number).to_le_bytes()].concat()
}

/// Serves for as long as the process lives.
#[expect(clippy::disallowed_methods, reason = "the server is a peer, of one thread")]
pub(super) fn start(latency: Duration) -> anyhow::Result<SocketAddr> {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    // All come at once: who finds no place waits for a second before asking again.
    rustix::net::listen(&listener, CONNECTING_MAX)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    std::thread::spawn(move || {
        if let Err(error) = serve(&mut poll, &listener, latency) {
            eprintln!("the data server ended: {error}");
        }
    });
    Ok(address)
}

fn serve(poll: &mut Poll, listener: &TcpListener, latency: Duration) -> std::io::Result<()> {
    let mut events = Events::with_capacity(1024);
    let mut clients: HashMap<Token, (TcpStream, Vec<u8>)> = HashMap::new();
    // All wait equally long: who asked first is answered first.
    let mut due: VecDeque<(Instant, Token, u64)> = VecDeque::new();
    let mut last = 0;
    loop {
        let timeout = due.front().map(|(due, ..)| due.saturating_duration_since(Instant::now()));
        poll.poll(&mut events, timeout)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    last += 1;
                    poll.registry().register(&mut stream, Token(last), Interest::READABLE)?;
                    clients.insert(Token(last), (stream, Vec::new()));
                }
                continue;
            }
            let Some((stream, head)) = clients.get_mut(&event.token()) else { continue };
            let mut piece = [0; 2048];
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                head.extend_from_slice(&piece[..read]);
            }
            if head.ends_with(b"\r\n\r\n") {
                let text = String::from_utf8_lossy(head);
                let number = text.strip_prefix("GET /").and_then(|rest| rest.split(' ').next()?.parse().ok());
                due.push_back((Instant::now() + latency, event.token(), number.unwrap_or_default()));
                head.clear();
            }
        }
        let now = Instant::now();
        while let Some((_, token, number)) = due.pop_front_if(|(due, ..)| *due <= now) {
            if let Some((mut stream, _)) = clients.remove(&token) {
                // It is less than any socket's buffer.
                _ = stream.write_all(&answer(number));
            }
        }
    }
}
