// SPDX-License-Identifier: Apache-2.0
//! Event loops: threads that serve clients, and share little.
//!
//! Each has its connections, the instances that it hears, and its own timers and tasks; nothing goes from one
//! to another unless a request needs an instance that another one hears. A pool of threads that take each
//! other's tasks would have every request touch what other processors had last, and wake threads besides.
//!
//! A connection goes to the loop that has the fewest. Instances are given homes in turn, and calls prefer those
//! that are at home where they come from (`sandbox::Home`). The first of several loops is that of the thread which
//! runs the node; it accepts connections too, and does what is nobody's request.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use sandbox::Home;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

thread_local! {
    /// The loop that this thread runs.
    static HERE: Cell<Option<Home>> = const { Cell::new(None) };
}

/// The event loops of a node; one at least.
#[derive(Debug)]
pub(crate) struct Loops {
    all: Box<[Loop]>,
    /// Homes given so far.
    homes: AtomicUsize,
}

#[derive(Debug)]
struct Loop {
    handle: Handle,
    connections: AtomicUsize,
}

/// A connection's place in the loop that serves it.
#[derive(Debug)]
pub(crate) struct Lane {
    loops: Arc<Loops>,
    number: usize,
}

impl Loops {
    /// The one that this thread belongs to, if any.
    pub(crate) fn current() -> Option<Arc<Self>> {
        Handle::try_current().ok().map(|handle| Arc::new(Self::of([handle])))
    }

    fn of(handles: impl IntoIterator<Item = Handle>) -> Self {
        let all = handles.into_iter().map(|handle| Loop { handle, connections: AtomicUsize::new(0) });
        Self { all: all.collect(), homes: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The loop that this thread runs; none, if it runs none, or there is only one.
    pub(crate) fn here(&self) -> Option<Home> {
        if self.count() > 1 { HERE.get() } else { None }
    }

    /// The loop that is to hear one more instance.
    pub(crate) fn next_home(&self) -> Home {
        Home((self.homes.fetch_add(1, Ordering::Relaxed) % self.count()) as u16)
    }

    /// What runs tasks of a loop.
    pub(crate) fn at(&self, home: Home) -> &Handle {
        // Whoever names a loop was given its name here.
        &self.all[usize::from(home.0) % self.count()].handle
    }

    /// A place for a connection, where there are the fewest; none where there is only one loop.
    pub(crate) fn lane(self: &Arc<Self>) -> Option<Lane> {
        if self.count() == 1 {
            return None;
        }
        let load = |number: &usize| self.all[*number].connections.load(Ordering::Relaxed);
        let number = (0..self.count()).min_by_key(load)?;
        self.all[number].connections.fetch_add(1, Ordering::Relaxed);
        Some(Lane { loops: Arc::clone(self), number })
    }
}

impl Lane {
    /// What runs tasks of its loop.
    pub(crate) fn handle(&self) -> &Handle {
        &self.loops.all[self.number].handle
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.loops.all[self.number].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The loops' threads, but for the one that runs the node.
pub(crate) struct Threads {
    first: Runtime,
    others: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Threads {
    /// Begins so many loops; the first one of several is for this thread to run.
    pub(crate) fn start(count: usize) -> std::io::Result<(Self, Arc<Loops>)> {
        let (stop, stopping) = watch::channel(false);
        let first = if count > 1 { runtime()? } else { alone()? };
        let mut threads = Self { first, others: Vec::new(), stop };
        let mut handles = vec![threads.first.handle().clone()];
        for number in 1..count.max(1) {
            let runtime = runtime()?;
            handles.push(runtime.handle().clone());
            let (home, mut stopping) = (Home(number as u16), stopping.clone());
            let thread = std::thread::Builder::new().name(format!("sinew-http-{number}"));
            threads.others.push(thread.spawn(move || {
                HERE.set(Some(home));
                // An error means that whoever would stop it is gone.
                _ = runtime.block_on(stopping.wait_for(|stop| *stop));
                runtime.shutdown_background();
            })?);
        }
        Ok((threads, Arc::new(Loops::of(handles))))
    }

    /// What is done within is done where the first loop's tasks are begun.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.first.enter()
    }

    /// Runs the first loop until the future has ended, on this thread if there are several.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let before = HERE.replace(Some(Home::default()));
        let output = self.first.block_on(future);
        HERE.set(before);
        output
    }

    /// Ends all loops, with the tasks that they have left.
    pub(crate) fn end(self, patience: std::time::Duration) {
        // Loops that have ended by themselves are not there to hear it.
        _ = self.stop.send(true);
        for thread in self.others {
            // It only ends; what it might have panicked about is told there.
            _ = thread.join();
        }
        self.first.shutdown_timeout(patience);
    }
}

/// A loop that has a thread of its own, and what was woken last goes first there: for a node that has no other.
fn alone() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("sinew-http").enable_all().build()
}

/// One that runs on the thread that blocks on it.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().thread_name("sinew-blocking").enable_all().build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_go_where_there_are_the_fewest_and_homes_in_turn() {
        let (threads, loops) = Threads::start(3).unwrap();
        let first: Vec<Lane> = (0..3).map(|_| loops.lane().unwrap()).collect();
        let mut numbers: Vec<usize> = first.iter().map(|lane| lane.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        let left = first.into_iter().find(|lane| lane.number == 1);
        drop(left);
        assert_eq!(loops.lane().unwrap().number, 0, "all others are gone");
        let homes: Vec<u16> = (0..4).map(|_| loops.next_home().0).collect();
        assert_eq!(homes, [0, 1, 2, 0]);
        threads.end(Duration::from_secs(5));
    }

    #[test]
    fn each_loop_knows_itself() {
        let (threads, loops) = Threads::start(2).unwrap();
        assert_eq!(loops.here(), None, "this thread runs none yet");
        let told = threads.run(async {
            let elsewhere = {
                let loops = Arc::clone(&loops);
                loops.clone().at(Home(1)).spawn(async move { loops.here() }).await.unwrap()
            };
            (loops.here(), elsewhere)
        });
        assert_eq!(told, (Some(Home(0)), Some(Home(1))));
        assert_eq!(loops.here(), None);
        threads.end(Duration::from_secs(5));
    }

    #[test]
    fn a_single_loop_is_all_there_is() {
        let (threads, loops) = Threads::start(1).unwrap();
        threads.run(async {
            assert!(loops.here().is_none() && loops.lane().is_none());
        });
        threads.end(Duration::from_secs(5));
    }
}
