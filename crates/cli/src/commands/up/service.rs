// SPDX-License-Identifier: Apache-2.0
//! What a manager of services is told (`sd_notify(3)`): a datagram to the socket that it names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What names the socket; `@` stands for the zero byte of a name that is in no file system.
const VARIABLE: &str = "NOTIFY_SOCKET";
const PATIENCE: Duration = Duration::from_secs(1);

/// The node answers: what waits for it may begin. Nothing, where nobody wants to know.
pub(super) fn tell_ready() -> io::Result<()> {
    std::env::var_os(VARIABLE).map_or(Ok(()), |place| tell(&place, b"READY=1\n"))
}

fn tell(place: &OsStr, what: &[u8]) -> io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(what, &address).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_socket_is_told_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("sinew-test-{}", std::process::id());
        let abstract_one = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, place) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&abstract_one).unwrap(), format!("@{name}").into()),
        ] {
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            tell(&place, b"READY=1\n").unwrap();
            let mut told = [0; 64];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1\n");
        }
        assert!(tell(OsStr::new("/no/such/socket"), b"x").is_err());
    }
}
