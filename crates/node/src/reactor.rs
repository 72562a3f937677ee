// SPDX-License-Identifier: Apache-2.0
//! Channels of instances, watched by the event loop that serves the clients:
//! the thread that reads a function's answer is the one that sends it on.

use std::os::fd::OwnedFd;

use sandbox::process::{Next, Reactor, Ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

/// The event loop.
#[derive(Debug)]
pub(crate) struct EventLoop(Handle);

impl EventLoop {
    /// The one that this thread belongs to, if any.
    pub(crate) fn current() -> Option<Self> {
        Handle::try_current().ok().map(Self)
    }

    /// Calls `ready` whenever the descriptor is. The task ends when no more is
    /// wanted, which is by the instance's end at the latest.
    fn attend(&self, fd: OwnedFd, interest: Interest, ready: Box<dyn Ready>) {
        self.0.spawn(async move {
            #[expect(deprecated, reason = "what replaces it is unsafe; it asks for what an `OwnedFd` is")]
            let registered = AsyncFd::with_interest(fd, interest);
            let fd = match registered {
                Ok(fd) => fd,
                Err(error) => return tracing::error!(%error, "the channel of an instance cannot be watched"),
            };
            while let Ok(mut guard) = fd.ready(interest).await {
                // Before it is read: what comes later is noticed again.
                guard.clear_ready();
                loop {
                    match ready.act() {
                        Next::Wait => break,
                        Next::Again => tokio::task::yield_now().await,
                        Next::Over => return,
                    }
                }
            }
        });
    }
}

impl Reactor for EventLoop {
    fn watch(&self, fd: OwnedFd, ready: Box<dyn Ready>) {
        self.attend(fd, Interest::READABLE, ready);
    }

    fn when_writable(&self, fd: OwnedFd, ready: Box<dyn Ready>) {
        self.attend(fd, Interest::WRITABLE, ready);
    }

    fn after_this_turn(&self, ready: Box<dyn Ready>) {
        self.0.spawn(async move {
            // Comes back when the loop has nothing else to run.
            tokio::task::yield_now().await;
            ready.act();
        });
    }
}
