// SPDX-License-Identifier: Apache-2.0
//! Messages with borders between two processes, with file descriptors in them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair, sockopt,
};

/// The most file descriptors of one message.
pub const PACKET_FDS_MAX: usize = 32;

/// One end of a pair of sockets that carry messages, each whole or not at all.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    /// Two ends: one to be kept, and one to be given to another process. Both
    /// are closed on exec; `std::process::Command` passes the other on.
    ///
    /// # Errors
    /// What the kernel says: in practice that there are too many open files.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(own), other))
    }

    /// How long [`send`](Self::send) may wait for a peer that reads nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Send, Some(timeout))?)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// What the kernel says: that the peer is gone, or the timeout passed.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many file descriptors"));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
        debug_assert_eq!(sent, message.len(), "a message goes whole");
        Ok(())
    }

    /// Waits for a message and gives its length; what does not fit is lost,
    /// file descriptors in it are closed. 0 when the peer is gone.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, message: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut none = RecvAncillaryBuffer::default();
            let received =
                recvmsg(&self.0, &mut [IoSliceMut::new(message)], &mut none, RecvFlags::CMSG_CLOEXEC);
            match received {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?.bytes),
            }
        }
    }

    /// Ends it for both sides; whoever waits in it returns.
    pub fn shutdown(&self) {
        // It fails only when the peer is gone already.
        _ = shutdown(&self.0, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
