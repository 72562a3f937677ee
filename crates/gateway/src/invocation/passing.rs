// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests that are passed on to the function while they come.
//!
//! Nothing is read of the client's connection while the function has no room, so
//! that the slower of the two sets the pace. What goes wrong on the way is the
//! request's answer, unless the function has begun to give one.
//!
//! Who sends on while an answer is there already would not hear it if its
//! connection was closed at once. So for a little while what comes is thrown away.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::body::Arriving;
use crate::functions::Intake;
use crate::problem::Problem;
use crate::router::Shared;

/// For so long, and so many bytes, a body is read that nobody wants any more.
const LINGERING: Duration = Duration::from_secs(5);
const LINGERING_BYTES: usize = 16 << 20;

/// A body on its way. When this is dropped the function hears that no more comes.
pub(super) struct Passing {
    /// Dropped, it tells who reads the body that nobody wants it any more.
    _wanted: oneshot::Sender<Infallible>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    problem: Mutex<Option<Problem>>,
}

impl Passing {
    /// Passes a body on, beside everything else. To be called on the event loop.
    pub(super) fn begin(shared: &Shared, mut arriving: Arriving, intake: Box<dyn Intake>) -> Self {
        let progress = Arc::<Progress>::default();
        let (wanted, unwanted) = oneshot::channel();
        let told = progress.clone();
        let passing = async move {
            let passed = tokio::select! {
                passed = pass(&mut arriving, intake, &told.bytes) => Some(passed),
                _ = unwanted => None,
            };
            match passed {
                Some(Ok(())) => {}
                Some(Err(problem)) => {
                    *told.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                }
                None => _ = tokio::time::timeout(LINGERING, throw_away(arriving)).await,
            }
        };
        let mut departed = shared.departed.lock().unwrap_or_else(PoisonError::into_inner);
        while departed.try_join_next().is_some() {}
        departed.spawn(passing);
        Self { _wanted: wanted, progress }
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

async fn throw_away(mut arriving: Arriving) {
    let mut left = LINGERING_BYTES;
    while let Ok(Some(piece)) = arriving.next().await
        && piece.len() < left
    {
        left -= piece.len();
    }
}

async fn pass(
    arriving: &mut Arriving,
    mut intake: Box<dyn Intake>,
    bytes: &AtomicU64,
) -> Result<(), Problem> {
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
