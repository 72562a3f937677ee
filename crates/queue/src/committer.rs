// SPDX-License-Identifier: Apache-2.0
//! Group commit: a thread that writes the batches of all who wait right now in
//! one transaction, in the order in which they came, so that they share its sync.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::Error;
use crate::database::{Batch, Database};

/// Batches that wait for the thread; more wait to get into the queue.
const QUEUE_MAX: usize = 256;
/// A commit takes no further batch beyond this.
const COMMIT_BYTES_MAX: usize = 32 << 20;

struct Request {
    batch: Batch,
    reply: Option<SyncSender<Result<(), Error>>>,
}

/// A batch on its way to the disk.
#[must_use]
pub(crate) struct Pending(Receiver<Result<(), Error>>);

impl Pending {
    /// Returns when it is synced, or cannot be.
    pub(crate) fn wait(self) -> Result<(), Error> {
        self.0.recv().map_err(|_| Error::Closed)?
    }
}

/// The running thread; ends, after what is queued, when this is dropped.
pub(crate) struct Committer {
    /// `None` only while dropping.
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(crate) fn start(database: Arc<Database>) -> Result<Self, Error> {
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let path = database.path().to_owned();
        let thread = thread::Builder::new().name("queue-commit".to_owned());
        let thread = thread.spawn(move || run(&database, &queue));
        let thread = thread.map_err(|source| Error::Io { path, source })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Has a batch written.
    pub(crate) fn begin(&self, batch: Batch) -> Result<Pending, Error> {
        let (reply, answer) = sync_channel(1);
        self.send(Request { batch, reply: Some(reply) })?;
        Ok(Pending(answer))
    }

    /// Has a batch written that nobody waits for, and that may be lost.
    pub(crate) fn note(&self, batch: Batch) -> Result<(), Error> {
        self.send(Request { batch, reply: None })
    }

    fn send(&self, request: Request) -> Result<(), Error> {
        self.requests.as_ref().ok_or(Error::Closed)?.send(request).map_err(|_| Error::Closed)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // The database catches its panics; there is nothing to hand on.
            let _ = thread.join();
        }
    }
}

fn run(database: &Database, queue: &Receiver<Request>) {
    while let Ok(first) = queue.recv() {
        let mut bytes = first.batch.bytes();
        let mut group = vec![first];
        while group.len() < QUEUE_MAX && bytes < COMMIT_BYTES_MAX {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.batch.bytes();
            group.push(next);
        }
        let batches: Vec<&Batch> = group.iter().map(|request| &request.batch).collect();
        let outcome = database.commit(&batches);
        if let Err(error) = &outcome {
            tracing::error!(%error, "the queue could not be written");
        }
        for reply in group.iter().filter_map(|request| request.reply.as_ref()) {
            let answer = outcome.as_ref().map_err(Error::duplicate).copied();
            // A caller that is gone needs no answer.
            let _ = reply.send(answer);
        }
    }
}
