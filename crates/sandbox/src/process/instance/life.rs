// SPDX-License-Identifier: Apache-2.0
//! The life of an instance, apart from what it says: whoever has this can end it, whatever it does.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::process::outbound::Outlet;
use crate::process::place::Place;
use crate::process::template::{Ended, Template, Watch};

/// How long the template may take to reap a process that was killed. Until it
/// has, the container cannot be taken down.
const REAP_PATIENCE: Duration = Duration::from_secs(5);
const REAP_STEP: Duration = Duration::from_millis(50);

/// What others need of an instance to end it.
pub(crate) struct Life {
    pub(super) place: Box<dyn Place>,
    pub(super) watch: Arc<Watch>,
    pub(super) killed: AtomicBool,
    /// The parent of the process, if it is not the container's own.
    pub(super) template: Option<Arc<Template>>,
    /// What carries its connections to the outside, if it may have any.
    pub(super) outlet: Mutex<Option<Box<dyn Outlet>>>,
}

impl Life {
    /// Ends the instance, whatever it does; its call ends as cancelled.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.place.kill();
        self.watch.shut();
        let outlet = self.outlet.lock().take();
        drop(outlet);
    }

    /// What was not reached, and why: lines for its log.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        self.outlet.lock().as_ref().map_or_else(Vec::new, |outlet| outlet.take_notes())
    }

    /// How its process ends, if that comes in time and there is who tells it: a template that
    /// is over does not.
    pub(super) fn wait_for_end(&self, patience: Duration) -> Option<Ended> {
        let Some(template) = &self.template else { return self.watch.wait(patience) };
        let deadline = Instant::now() + patience;
        while template.is_alive() && self.watch.wait(REAP_STEP).is_none() && Instant::now() <= deadline {}
        // What it tells last is there before it is over.
        self.watch.ended()
    }

    /// Whether its process is there, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        self.watch.ended().is_none() && !self.killed.load(Ordering::Acquire)
    }

    /// Connects to what listens on its own loopback.
    pub(crate) fn connect(&self, port: u16) -> Result<TcpStream, String> {
        self.place.connect(port)
    }

    /// Memory that is charged to it now, if that is known.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.place.memory_bytes()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.place.kill();
        self.watch.shut();
        let Some(template) = self.template.as_ref().filter(|_| self.place.pidfd().is_some()) else { return };
        if self.wait_for_end(REAP_PATIENCE).is_none() && template.is_alive() {
            // It is stuck. Without it the kernel's init reaps.
            template.give_up();
        }
    }
}
