// SPDX-License-Identifier: Apache-2.0
//! Connections to the program's server, of which those that nobody needs are
//! kept for the next request.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, recv, socket_with};

/// A connection is kept for so long without a request. Servers close those that are idle themselves, after two seconds
/// and more, and a request that comes just then is lost: ours are gone before.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A connection to the program that blocks nobody.
pub(crate) struct Connection {
    stream: Stream,
    /// A request was answered on it.
    pub(crate) is_used: bool,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection {
    /// Whether the program has neither closed it nor said anything that nobody has asked for.
    fn is_open(&self) -> bool {
        let peek = recv(self, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peek, Err(Errno::AGAIN))
    }
}

/// Where the program listens, and connections to it that nobody uses.
pub(crate) struct Connections {
    socket: PathBuf,
    port: u16,
    idle: Vec<(Connection, Instant)>,
}

impl Connections {
    pub(crate) fn new(socket: PathBuf, port: u16) -> Self {
        Self { socket, port, idle: Vec::new() }
    }

    /// Where a server may listen instead of on the port.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether anybody listens there. It may wait, as the program's start does.
    pub(crate) fn is_listened_to(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
            || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// One that is idle, or else a new one; none if the program has as many to accept as it wants.
    pub(crate) fn take(&mut self) -> io::Result<Option<Connection>> {
        while let Some((connection, since)) = self.idle.pop() {
            if since.elapsed() < IDLE_MAX && connection.is_open() {
                return Ok(Some(connection));
            }
        }
        let new = |stream| Ok(Some(Connection { stream, is_used: false }));
        match self.connect_to_socket() {
            Ok(stream) => new(Stream::Unix(stream)),
            Err(Errno::AGAIN) => Ok(None),
            Err(_) => new(Stream::Tcp(self.connect_to_port()?)),
        }
    }

    fn connect_to_socket(&self) -> Result<UnixStream, Errno> {
        let address = SocketAddrUnix::new(&self.socket)?;
        let fd = non_blocking(AddressFamily::UNIX)?;
        connect(&fd, &address)?;
        Ok(UnixStream::from(fd))
    }

    fn connect_to_port(&self) -> io::Result<TcpStream> {
        let fd = non_blocking(AddressFamily::INET)?;
        match connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)) {
            // What is written before it is there waits for it.
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Keeps one for the next request.
    pub(crate) fn keep(&mut self, connection: Connection) {
        self.idle.push((Connection { is_used: true, ..connection }, Instant::now()));
    }

    /// Closes all that are idle.
    pub(crate) fn close(&mut self) {
        self.idle.clear();
    }

    /// Closes those that have been idle for long; when the next one will have been.
    pub(crate) fn close_old(&mut self) -> Option<Duration> {
        let now = Instant::now();
        // Those that were used last are taken first, and so stand behind those that are older.
        let old = self.idle.iter().take_while(|(_, since)| now - *since >= IDLE_MAX).count();
        self.idle.drain(..old);
        self.idle.first().map(|(_, since)| IDLE_MAX.saturating_sub(now - *since))
    }
}

fn non_blocking(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}
