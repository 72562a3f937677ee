// SPDX-License-Identifier: Apache-2.0
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn messages_keep_their_borders() {
    let (own, other) = Packets::pair().unwrap();
    let other = Packets(other);
    own.send(b"one", &[]).unwrap();
    own.send(b"two more", &[]).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(other.receive(&mut buffer).unwrap(), 3);
    assert_eq!(other.receive(&mut buffer[..5]).unwrap(), 5, "cut to what fits");
    own.shutdown();
    assert_eq!(other.receive(&mut buffer).unwrap(), 0);
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let (own, other) = Packets::pair().unwrap();
    let other = Packets(other);
    let (mut here, there) = UnixStream::pair().unwrap();
    own.send(b"x", &[there.as_fd()]).unwrap();
    drop(there);
    here.write_all(b"still open while under way").unwrap();
    assert_eq!(other.receive(&mut [0; 4]).unwrap(), 1);
    here.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(matches!(here.read(&mut [0; 4]), Ok(0) | Err(_)));
    let too_many = [other.0.as_fd(); PACKET_FDS_MAX + 64];
    assert!(own.send(b"x", &too_many).is_err());
}

#[test]
fn a_peer_that_does_not_read_is_not_waited_for() {
    let (own, _other) = Packets::pair().unwrap();
    own.set_send_timeout(Duration::from_millis(20)).unwrap();
    let sent = (0..100_000).find_map(|_| own.send(&[0; 4096], &[]).err()).unwrap();
    assert_eq!(sent.kind(), io::ErrorKind::WouldBlock);
}
