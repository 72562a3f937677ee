// SPDX-License-Identifier: Apache-2.0
//! Messages between processes, with descriptors.

#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

/// The most bytes of one message.
pub const MESSAGE_LEN_MAX: usize = 128 << 10;
/// The most descriptors that go with one message.
pub const MESSAGE_FDS_MAX: usize = 128;

/// Two ends of a connection that keeps messages apart; closed on exec.
///
/// # Errors
/// `Other` when there are no descriptors left.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message, with copies of these descriptors.
///
/// # Errors
/// `InvalidInput` over the limits, `BrokenPipe` if the other end is closed.
pub fn send_message(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.is_empty() || bytes.len() > MESSAGE_LEN_MAX || fds.len() > MESSAGE_FDS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is empty or too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG.into());
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends as many of these bytes as the other end of a stream has room for, with
/// copies of the descriptors at the first of them.
///
/// # Errors
/// `WouldBlock` if there is no room now, `BrokenPipe` if the other end is closed.
pub fn send_part(stream: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(&stream, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Wakes whoever waits for something to come out of the other end. Nothing is sent where
/// it is full, for it wakes then anyway, or closed; nothing waits, whoever shares this end.
pub fn ring(socket: impl AsFd) {
    _ = rustix::net::send(socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// How long [`send_message`] may wait on this socket for a peer that reads
/// nothing; it fails with `WouldBlock` then.
///
/// # Errors
/// What the kernel says.
pub fn limit_sending(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, Some(timeout))?)
}

/// Has nobody send descriptors to this end: to close one can take as long as
/// whoever sent it likes.
///
/// # Errors
/// `Unsupported` or another one on kernels before 6.16, which cannot refuse them.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    const PASS_RIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    // SAFETY: the call reads one integer, which lives longer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const no).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends the connection for both sides; whoever waits in it returns.
pub fn end_messages(socket: impl AsFd) {
    // It fails only when the peer is gone already.
    _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Takes one message and its descriptors, which are closed on exec; `None` if
/// the other end is closed.
///
/// # Errors
/// `InvalidData` for a message over the limits.
pub fn receive_message(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_LEN_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            // The other end was closed with something unread.
            Err(Errno::CONNRESET) => return Ok(None),
            Ok(received) => break received,
            Err(error) => return Err(error.into()),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            fds.extend(some);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message was cut off"));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, fds)))
}

#[cfg(test)]
mod tests;
