// SPDX-License-Identifier: Apache-2.0
//! The worker threads: each owns an evaluator and an executor.

use std::sync::Arc;
use std::thread::JoinHandle;

use evaluator::Progress;

use crate::executor::Executor;
use crate::requests::Requests;
use crate::{Evaluator, Scheduler};

/// Stack of a worker: guests run on it, programs with up to 8 MiB.
const STACK_BYTES: usize = 10 << 20;

/// The only place where this crate starts threads.
///
/// # Errors
/// If the system has no thread left.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body)
}

/// Runs jobs until the scheduler is closed. After the first one it touches so many
/// bytes of its heap: a node that evaluates nothing needs no memory for it.
pub(crate) fn work(
    scheduler: &Arc<Scheduler>,
    executor: &mut Executor,
    requests: &Requests,
    warm_bytes: usize,
) {
    // A worker that died of a bug would leave claims that nobody ends; a
    // process that died is started again and has lost nothing acknowledged.
    let _guard = AbortOnPanic;
    // The first reading takes a millisecond: none of an application's.
    linux::Ticks::now();
    let mut evaluator = Evaluator::new(Arc::clone(scheduler));
    let mut is_warm = false;
    while let Some(job) = evaluator.wait_for_job() {
        let request = Arc::clone(job.request());
        executor.begin(&request);
        match evaluator.run(executor, job) {
            Progress::Finished(result) => requests.finish(&request, result),
            Progress::Spent | Progress::SetAside => {}
        }
        executor.end();
        if !is_warm {
            linux::warm_heap(warm_bytes);
            is_warm = true;
        }
    }
}

/// Ends the process if the thread panics: whoever waits for it would wait for
/// ever.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a worker panicked; this is a bug in sinew, please report it");
            std::process::abort();
        }
    }
}
