// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests that are passed on to the function while they come.
//!
//! Nothing is read of the client's connection while the function has no room, so
//! that the slower of the two sets the pace. What goes wrong on the way is the
//! request's answer, unless the function has begun to give one.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use crate::body::Arriving;
use crate::functions::Intake;
use crate::problem::Problem;

/// A body on its way. When this is dropped the function hears that no more comes.
pub(super) struct Passing {
    _task: JoinSet<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    problem: Mutex<Option<Problem>>,
}

impl Passing {
    /// Passes a body on, beside everything else. To be called on the event loop.
    pub(super) fn begin(arriving: Arriving, intake: Box<dyn Intake>) -> Self {
        let (mut task, progress) = (JoinSet::new(), Arc::<Progress>::default());
        let told = progress.clone();
        task.spawn(async move {
            if let Err(problem) = pass(arriving, intake, &told.bytes).await {
                *told.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
            }
        });
        Self { _task: task, progress }
    }

    /// What was passed on so far.
    pub(super) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Why no more comes, if that is the client's doing.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.progress.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

async fn pass(mut arriving: Arriving, mut intake: Box<dyn Intake>, bytes: &AtomicU64) -> Result<(), Problem> {
    loop {
        poll_fn(|context| intake.poll_room(context)).await;
        let Some(mut piece) = arriving.next().await? else {
            intake.end();
            return Ok(());
        };
        while !piece.is_empty() {
            let room = poll_fn(|context| intake.poll_room(context)).await;
            let part = piece.split_to(room.min(piece.len()));
            intake.bring(&part);
            bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        }
    }
}
