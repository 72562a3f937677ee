// SPDX-License-Identifier: Apache-2.0
//! Instances without a function, made in advance.
//!
//! Each is forked and confined in a container of its own and waits for its
//! first and only function: no user code ever ran in it. A thread replaces
//! what was taken.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::instance::Instance;
use crate::Fault;

/// After an instance could not be made, the next attempt waits so long.
const RETRY: Duration = Duration::from_secs(5);

/// What was taken is replaced so much later: whoever took it uses the
/// processor now.
const PAUSE: Duration = Duration::from_millis(15);

/// Makes an instance without a function.
type Make = dyn Fn() -> Result<Instance, Fault> + Send + Sync;

/// Up to a number of instances that wait.
pub(crate) struct Blanks {
    shared: Arc<Shared>,
    filler: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    waiting: Vec<Instance>,
    is_over: bool,
}

impl Blanks {
    /// Begins to make them; without a thread if there are to be none.
    pub(crate) fn new(most: usize, make: Box<Make>) -> Result<Self, String> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), most });
        if most == 0 {
            return Ok(Self { shared, filler: None });
        }
        let filling = shared.clone();
        let filler =
            std::thread::Builder::new().name("instances".to_owned()).spawn(move || filling.fill(&make));
        let filler = filler.map_err(|error| format!("no thread to prepare instances: {error}"))?;
        Ok(Self { shared, filler: Some(filler) })
    }

    /// One that lives, if one waits.
    pub(crate) fn take(&self) -> Option<Instance> {
        let mut state = self.shared.state.lock();
        let taken = loop {
            match state.waiting.pop() {
                Some(instance) if !instance.is_alive() => {}
                other => break other,
            }
        };
        self.shared.changed.notify_all();
        taken
    }

    /// How many wait.
    pub(crate) fn ready(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    /// None is made any more; what is being made may fail.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Blanks {
    fn drop(&mut self) {
        self.stop();
        if let Some(filler) = self.filler.take() {
            // It only ends; what it might have panicked about is told there.
            _ = filler.join();
        }
    }
}

impl Shared {
    fn fill(&self, make: &Make) {
        let mut state = self.state.lock();
        while !state.is_over {
            if state.waiting.len() >= self.most {
                self.changed.wait(&mut state);
                let until = Instant::now() + PAUSE;
                while !state.is_over && !self.changed.wait_until(&mut state, until).timed_out() {}
                continue;
            }
            drop(state);
            let made = make();
            state = self.state.lock();
            match made {
                Ok(instance) => state.waiting.push(instance),
                Err(_) if state.is_over => {}
                // Whoever needs one makes it and hears why it fails.
                Err(_) => _ = self.changed.wait_for(&mut state, RETRY),
            }
        }
    }
}
