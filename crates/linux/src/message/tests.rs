// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs::File;
use std::io::{Read as _, Write as _};

use super::*;

#[test]
fn a_peer_that_does_not_read_is_not_waited_for() {
    let (own, other) = message_pair().unwrap();
    limit_sending(&own, Duration::from_millis(20)).unwrap();
    let refused = (0..100_000).find_map(|_| send_message(&own, &[0; 4096], &[]).err()).unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    end_messages(&own);
    while receive_message(&other).unwrap().is_some() {}
    assert!(send_message(&own, b"x", &[]).is_err());
}

#[test]
fn descriptors_go_with_their_message() {
    let (a, b) = message_pair().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    send_message(&a, b"first", &[writer.as_fd()]).unwrap();
    send_message(&a, b"second", &[]).unwrap();
    drop(writer);
    let (bytes, mut fds) = receive_message(&b).unwrap().unwrap();
    assert_eq!((bytes.as_slice(), fds.len()), (b"first".as_slice(), 1));
    File::from(fds.pop().unwrap()).write_all(b"through").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
    let (bytes, fds) = receive_message(&b).unwrap().unwrap();
    assert_eq!((bytes.as_slice(), fds.len()), (b"second".as_slice(), 0));
    drop(a);
    assert!(receive_message(&b).unwrap().is_none());
    assert!(send_message(&b, b"x", &[]).is_err());
}

#[test]
fn received_descriptors_are_closed_on_exec() {
    let (a, b) = message_pair().unwrap();
    send_message(&a, b"x", &[a.as_fd()]).unwrap();
    let (_, fds) = receive_message(&b).unwrap().unwrap();
    let flags = rustix::io::fcntl_getfd(&fds[0]).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn limits_hold() {
    let (a, b) = message_pair().unwrap();
    let longest = vec![7; MESSAGE_LEN_MAX];
    send_message(&a, &longest, &[]).unwrap();
    assert_eq!(receive_message(&b).unwrap().unwrap().0, longest);
    for wrong in [vec![], vec![0; MESSAGE_LEN_MAX + 1]] {
        assert_eq!(send_message(&a, &wrong, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(send_message(&a, b"x", &[a.as_fd(); MESSAGE_FDS_MAX]).is_ok());
    assert_eq!(receive_message(&b).unwrap().unwrap().1.len(), MESSAGE_FDS_MAX);
    assert!(send_message(&a, b"x", &[a.as_fd(); MESSAGE_FDS_MAX + 1]).is_err());
}
