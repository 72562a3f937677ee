// SPDX-License-Identifier: Apache-2.0
//! Event loops: threads that serve clients, and share little.
//!
//! Each has its connections, the instances that it hears, and its own timers and tasks; a request stays where its
//! connection is, unless it needs an instance that another loop hears. A pool of threads that take each
//! other's tasks would have every request touch what other processors had last, and wake threads besides.
//!
//! A connection goes to the loop that has the fewest. Instances are given homes in turn, and calls prefer those
//! that are at home where they come from (`sandbox::Home`). Where there are several loops the node's own thread
//! runs one more, without connections: it accepts these, and does what is nobody's request, as calls that are made
//! later; and it hears signals, whatever the others are at.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sandbox::Home;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// After so many tasks of its own a loop takes one that was woken from elsewhere, however many of its own are ready.
const FAR_EVERY: u32 = 7;

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

/// The threads of the loops, and the loop of the node's own thread.
pub(crate) struct Threads {
    own: Runtime,
    /// How many threads there are besides.
    others: usize,
    stop: watch::Sender<Option<Duration>>,
    /// Says so whenever one has ended.
    ended: mpsc::Receiver<()>,
}

impl Threads {
    /// Begins so many loops.
    pub(crate) fn start(count: usize) -> std::io::Result<(Self, Arc<Loops>)> {
        let (stop, stopping) = watch::channel(None);
        let (ending, ended) = mpsc::channel();
        let own = if count > 1 { runtime()? } else { alone()? };
        let mut threads = Self { own, others: 0, stop, ended };
        if count <= 1 {
            let loops = Loops::of([threads.own.handle().clone()]);
            return Ok((threads, Arc::new(loops)));
        }
        let mut handles = Vec::new();
        for number in 0..count {
            let runtime = runtime()?;
            handles.push(runtime.handle().clone());
            let (home, mut stopping, ending) = (Home(number as u16), stopping.clone(), ending.clone());
            let thread = std::thread::Builder::new().name(format!("sinew-http-{number}"));
            thread.spawn(move || {
                HERE.set(Some(home));
                let stop = runtime.block_on(async {
                    // An error means that whoever would stop it is gone.
                    stopping.wait_for(Option::is_some).await.ok().and_then(|stop| *stop)
                });
                runtime.shutdown_timeout(stop.unwrap_or_default());
                // Nobody waits for it any more, maybe.
                _ = ending.send(());
            })?;
            threads.others += 1;
        }
        Ok((threads, Arc::new(Loops::of(handles))))
    }

    /// What is done within is done where tasks are begun.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.own.enter()
    }

    /// Runs a future until it has ended, beside the loops.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.own.block_on(future)
    }

    /// Ends all loops with the tasks that they have left. What blocks has so long to come to an end, and is left
    /// to itself then.
    pub(crate) fn end(self, patience: Duration) {
        // Loops that have ended by themselves are not there to hear it.
        _ = self.stop.send(Some(patience));
        // One whose thread is blocked does not hear it either.
        let latest = Instant::now() + patience * 2;
        let is_heard = |_| self.ended.recv_timeout(latest.saturating_duration_since(Instant::now())).is_ok();
        if !(0..self.others).all(is_heard) {
            tracing::warn!("an event loop did not come to its end, and is left to itself");
        }
        self.own.shutdown_timeout(patience);
    }
}

/// A loop that has a thread of its own, and what was woken last goes first there: for a node that has no other.
fn alone() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("sinew-http").enable_all().build()
}

/// One that runs on the thread that blocks on it.
fn runtime() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.global_queue_interval(FAR_EVERY).thread_name("sinew-blocking").enable_all().build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
    fn each_loop_knows_itself_and_the_nodes_own_thread_is_none() {
        let (threads, loops) = Threads::start(2).unwrap();
        let told = threads.run(async {
            let mut told = Vec::new();
            for home in [Home(0), Home(1)] {
                let there = Arc::clone(&loops);
                told.push(loops.at(home).spawn(async move { there.here() }).await.unwrap());
            }
            (loops.here(), told)
        });
        assert_eq!(told, (None, vec![Some(Home(0)), Some(Home(1))]));
        threads.end(Duration::from_secs(5));
    }

    #[test]
    fn a_loop_that_is_stuck_is_not_waited_for_and_others_are() {
        let (threads, loops) = Threads::start(2).unwrap();
        let (release, stuck) = mpsc::channel::<()>();
        let (begun, is_stuck) = mpsc::channel();
        loops.at(Home(1)).spawn(async move {
            begun.send(()).unwrap();
            _ = stuck.recv();
        });
        is_stuck.recv().unwrap();
        let (told, ended) = mpsc::channel();
        loops.at(Home(0)).spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(100));
            told.send(()).unwrap();
        });
        let begun = Instant::now();
        threads.end(Duration::from_secs(1));
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert!(ended.try_recv().is_ok(), "what blocks has its time");
        drop(release);
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
