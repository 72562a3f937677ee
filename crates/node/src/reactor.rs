// SPDX-License-Identifier: Apache-2.0
//! Channels of instances, watched by the event loops that serve the clients: where it can be,
//! the thread that reads a function's answer is the one that sends it on.

mod vigil;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::Home;
use sandbox::process::{Next, Reactor, Ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::loops::Loops;
pub(crate) use vigil::{Asked, Traffic};
use vigil::{Moment, Vigil};

/// The event loops, as instances need them.
#[derive(Debug)]
pub(crate) struct EventLoops {
    loops: Arc<Loops>,
    watch: Option<Arc<Watch>>,
}

/// Whether the loop looks for events, and what it depends on.
#[derive(Debug)]
struct Watch {
    vigil: Mutex<Vigil>,
    traffic: Arc<Traffic>,
}

impl Watch {
    /// An instance has said something, or was given something to do.
    fn event(self: &Arc<Self>, handle: &Handle) {
        // First, for it costs least: most events are of no chain.
        if !self.traffic.is_one_chain() || !self.vigil.lock().event(Moment::now(), &self.traffic) {
            return;
        }
        let watch = Arc::clone(self);
        handle.spawn(async move {
            watch.vigil.lock().begins(Moment::now());
            // Comes back after the loop has looked for events, without sleeping.
            tokio::task::yield_now().await;
            while watch.vigil.lock().goes_on(Moment::now(), &watch.traffic) {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl EventLoops {
    pub(crate) fn new(loops: Arc<Loops>, traffic: &Arc<Traffic>) -> Self {
        // The instances of a chain are at home in several loops, of which none sees all that
        // happens; of one processor an instance would have to wait for the loop.
        let is_alone = loops.count() == 1 && loops.at(Home::default()).metrics().num_workers() == 1;
        let can_look = is_alone && linux::available_cpus().is_ok_and(|cpus| cpus.len() > 1);
        let watch = || Arc::new(Watch { vigil: Mutex::default(), traffic: Arc::clone(traffic) });
        Self { loops, watch: can_look.then(watch) }
    }

    /// Calls `ready` whenever the descriptor is. The task ends when no more is
    /// wanted, which is by the instance's end at the latest.
    fn attend(&self, home: Home, fd: OwnedFd, interest: Interest, ready: Box<dyn Ready>) {
        let (handle, watch) = (self.loops.at(home).clone(), self.watch.clone());
        self.loops.at(home).spawn(async move {
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
                if let Some(watch) = &watch {
                    watch.event(&handle);
                }
            }
        });
    }
}

impl Reactor for EventLoops {
    fn home(&self) -> Home {
        self.loops.next_home()
    }

    fn here(&self) -> Option<Home> {
        self.loops.here()
    }

    fn watch(&self, home: Home, fd: OwnedFd, ready: Box<dyn Ready>) {
        self.attend(home, fd, Interest::READABLE, ready);
    }

    fn when_writable(&self, home: Home, fd: OwnedFd, ready: Box<dyn Ready>) {
        self.attend(home, fd, Interest::WRITABLE, ready);
    }

    fn after_this_turn(&self, home: Home, ready: Box<dyn Ready>) {
        let handle = self.loops.at(self.loops.here().unwrap_or(home));
        let is_in_order = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        handle.spawn(async move {
            // It comes behind all that is ready already; or at once, where what was woken last goes first,
            // and then again when the loop has nothing else to run.
            if !is_in_order {
                tokio::task::yield_now().await;
            }
            ready.act();
        });
    }

    fn began(&self) {
        // Where lines are open, the chain that begins may have no other event until it ends.
        if let Some(watch) = &self.watch {
            watch.event(self.loops.at(Home::default()));
        }
    }
}
