// SPDX-License-Identifier: Apache-2.0
//! A TCP relay that delays each direction, for clients far away. The machine
//! has no network emulation; this is all of it that the benches need.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOBODY: u8 = 0;
const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// A running relay; its threads end with the connections.
pub(crate) struct Relay {
    address: SocketAddr,
    conversation: Arc<Conversation>,
}

/// Who spoke last, and how often the client began to speak after the server.
#[derive(Default)]
struct Conversation {
    last: AtomicU8,
    turns: AtomicUsize,
}

impl Relay {
    /// Relays connections to `target`; every byte arrives `one_way` later.
    #[expect(clippy::disallowed_methods, reason = "a relay is two threads a connection")]
    pub(crate) fn start(target: SocketAddr, one_way: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let conversation = Arc::new(Conversation::default());
        let seen = Arc::clone(&conversation);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(target) {
                    let _ = connect(client, server, one_way, &seen);
                }
            }
        });
        Ok(Self { address, conversation })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Round trips of the conversation so far.
    pub(crate) fn turns(&self) -> usize {
        self.conversation.turns.load(Ordering::Relaxed)
    }
}

fn connect(
    client: TcpStream,
    server: TcpStream,
    one_way: Duration,
    seen: &Arc<Conversation>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    pump(client.try_clone()?, server.try_clone()?, one_way, CLIENT, Arc::clone(seen));
    pump(server, client, one_way, SERVER, Arc::clone(seen));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "one thread reads and stamps, one writes when it is time")]
fn pump(mut from: TcpStream, mut to: TcpStream, one_way: Duration, who: u8, seen: Arc<Conversation>) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(1024);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let before = seen.last.swap(who, Ordering::Relaxed);
            if who == CLIENT && (before == SERVER || before == NOBODY) {
                seen.turns.fetch_add(1, Ordering::Relaxed);
            }
            if sender.send((Instant::now() + one_way, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, bytes)) = receiver.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
