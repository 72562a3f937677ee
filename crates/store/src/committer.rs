// SPDX-License-Identifier: Apache-2.0
//! Group commit: a thread that writes the batches of all who wait right now in
//! one transaction, so that they share its syncs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::Error;
use crate::index::{Batch, Committed, Index};

/// Callers that wait for the thread; more wait to get into the queue.
const QUEUE_MAX: usize = 256;
/// A commit takes no further batch beyond this.
const COMMIT_BYTES_MAX: usize = 16 << 20;

struct Request {
    batch: Batch,
    reply: SyncSender<Result<Committed, Error>>,
}

/// The running thread; ends, after what is queued, when this is dropped.
pub(crate) struct Committer {
    /// `None` only while dropping.
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(crate) fn start(index: Arc<Index>) -> Result<Self, Error> {
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let path = index.path().to_owned();
        let thread = thread::Builder::new().name("store-commit".to_owned());
        let thread = thread.spawn(move || run(&index, &queue)).map_err(|source| Error::io(path, source))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Writes a batch; it is synced when this returns.
    pub(crate) fn commit(&self, batch: Batch) -> Result<Committed, Error> {
        let (reply, answer) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or(Error::Closed)?;
        requests.send(Request { batch, reply }).map_err(|_| Error::Closed)?;
        answer.recv().map_err(|_| Error::Closed)?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics; there is nothing to hand on.
            let _ = thread.join();
        }
    }
}

fn run(index: &Index, queue: &Receiver<Request>) {
    while let Ok(first) = queue.recv() {
        let mut bytes = first.batch.bytes();
        let mut group = vec![first];
        while group.len() < QUEUE_MAX && bytes < COMMIT_BYTES_MAX {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.batch.bytes();
            group.push(next);
        }
        let batches: Vec<&Batch> = group.iter().map(|request| &request.batch).collect();
        let outcome = index.commit(&batches);
        for (position, request) in group.iter().enumerate() {
            let answer = match &outcome {
                Ok(committed) => committed.get(position).copied().ok_or(Error::Closed),
                Err(error) => Err(error.duplicate()),
            };
            // A caller that is gone needs no answer.
            let _ = request.reply.send(answer);
        }
    }
}
