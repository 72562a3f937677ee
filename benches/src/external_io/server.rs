// SPDX-License-Identifier: Apache-2.0
//! A data server that answers each request after a fixed time, any number at once. It ends
//! a connection after its answer, but for inputs that are asked for below `/kept`.

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

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    /// Each serves one request.
    New,
    /// They go on.
    Kept,
}

impl Connections {
    /// Where an input is.
    pub(super) fn path(self, number: u64) -> String {
        match self {
            Self::New => format!("/{number}"),
            Self::Kept => format!("/kept/{number}"),
        }
    }

    fn of(path: &str) -> (Self, u64) {
        let (connections, number) = match path.strip_prefix("/kept/") {
            Some(number) => (Self::Kept, number),
            None => (Self::New, path.trim_start_matches('/')),
        };
        (connections, number.parse().unwrap_or_default())
    }
}

/// The bytes that are sent for an input.
pub(super) fn answer(connections: Connections, number: u64) -> Vec<u8> {
    let word = if connections == Connections::New { "close" } else { "keep-alive" };
    let head =
        format!("HTTP/1.1 200 OK\r\netag: \"{number}\"\r\ncontent-length: 8\r\nconnection: {word}\r\n\r\n");
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
    let mut due: VecDeque<(Instant, Token, Connections, u64)> = VecDeque::new();
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
            let is_over = loop {
                match stream.read(&mut piece) {
                    Ok(0) => break true,
                    Ok(read) => head.extend_from_slice(&piece[..read]),
                    Err(_) => break false,
                }
            };
            if head.ends_with(b"\r\n\r\n") {
                let text = String::from_utf8_lossy(head);
                let (connections, number) = Connections::of(text.split(' ').nth(1).unwrap_or_default());
                due.push_back((Instant::now() + latency, event.token(), connections, number));
                head.clear();
            } else if is_over {
                clients.remove(&event.token());
            }
        }
        let now = Instant::now();
        while let Some((_, token, connections, number)) = due.pop_front_if(|(due, ..)| *due <= now) {
            let Some((stream, _)) = clients.get_mut(&token) else { continue };
            // It is less than any socket's buffer.
            let is_sent = stream.write_all(&answer(connections, number)).is_ok();
            if connections == Connections::New || !is_sent {
                clients.remove(&token);
            }
        }
    }
}
