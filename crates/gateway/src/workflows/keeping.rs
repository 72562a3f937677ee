// SPDX-License-Identifier: Apache-2.0
//! What is kept of steps' results: for as long as the run lasts in memory, and on the disk if the run is to go on after
//! an end of the node.
//!
//! What is mapped has addresses, and is of no use to a node that comes later. In a run that lasts longer it is
//! sent as well, one value after the other, while those that need it go on. Such a step has ended, and is *open* until that
//! is on the disk; so is each that was given something of one that is open. Else a run that is begun anew might make another
//! value in the place of one that others know. A workflow itself is told nothing of an open step.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use objects::{BundleRecord, Handle};

use super::graph::Number;
use super::journal::Note;
use super::run::{NO_ROOM_PAUSE, RESULT_HEAD, Run, bad, is_no_room};
use crate::body::blocking;
use crate::functions::Served;
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::functions::no_functions;

/// Results of one run that are held in memory; those beyond are put on the disk.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// What the values begin with that are mapped by those that are given them; the rest is a ticket.
pub(super) const MAPPED_KIND: u8 = 2;
/// Between attempts at keeping something: the first, and twice as long each time, up to this.
const KEEPING_PAUSE: Duration = Duration::from_millis(100);
const KEEPING_PAUSE_MAX: Duration = Duration::from_secs(4);
/// Where a ticket says how many bytes of memory its value takes, from the kind on.
const TICKET_BYTES_AT: usize = 10;
/// All of a ticket.
const TICKET_BYTES: usize = 40;
/// The function of each workflow that returns what it is given.
const SENT: &str = "sinew.sent";

/// What is still to be put on the disk.
#[derive(Default)]
pub(super) struct Keeping {
    /// Of results that are mapped, the bytes of memory that they take.
    mapped: HashMap<Number, u64>,
    /// Whether a step could not be kept, or waits for its turn.
    open: HashMap<Number, bool>,
    /// Steps of a declared workflow that are made again if the node ends: they returned memory, which nobody can send,
    /// or were given some.
    unkept: HashSet<Number>,
    /// In the order in which they have ended, so that each comes after what it needs.
    waiting: VecDeque<(Number, Handle, Note)>,
    is_going_on: bool,
    /// What is mapped, as it is sent.
    sent: HashMap<Handle, Handle>,
}

impl Keeping {
    /// Steps that have ended and are not kept.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Bytes of memory of a result that is mapped.
    pub(super) fn mapped_bytes(&self, number: Number) -> Option<u64> {
        self.mapped.get(&number).copied()
    }

    pub(super) fn is_open(&self, number: Number) -> bool {
        self.open.contains_key(&number)
    }

    /// Whether it could not be kept.
    pub(super) fn is_lost(&self, number: Number) -> bool {
        self.open.get(&number) == Some(&true)
    }

    /// Whether it will be kept, and is not yet.
    pub(super) fn is_awaited(&self, number: Number) -> bool {
        self.open.get(&number) == Some(&false)
    }
}

impl Run {
    /// Keeps the result of a step.
    pub(super) async fn keep(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        number: Number,
        (result, is_remembered, is_pure): (Handle, bool, bool),
    ) -> Result<(Handle, bool), Problem> {
        let mapped_bytes = mapped_bytes(shared, result);
        let (note, is_open) = {
            let mut inner = self.inner();
            match (is_pure, inner.is_stopped) {
                (true, _) => {}
                (false, true) => shared.backend.drop_passed(result),
                (false, false) => inner.passed.push(result),
            }
            if let Some(bytes) = mapped_bytes {
                inner.keeping.mapped.insert(number, bytes);
            }
            let note = inner.ledger.as_ref().and_then(|ledger| ledger.note(number));
            let needs = inner.graph.step(number).map(|step| step.needs.as_slice()).unwrap_or_default();
            let is_open = mapped_bytes.is_some()
                || inner.keeping.unkept.contains(&number)
                || needs.iter().any(|need| inner.keeping.is_open(*need));
            // What it does next is data: the run goes on, and what is made anew may be another one.
            if is_open && self.is_declared() {
                inner.keeping.unkept.insert(number);
            }
            (note, is_open)
        };
        match note {
            Some(_) if is_open && self.is_declared() => self.hold(shared, result).await?,
            Some(note) if is_open => {
                self.hold(shared, result).await?;
                self.keep_later(shared, number, result, note);
            }
            Some(note) => write(shared, result, note).await?,
            None => self.hold(shared, result).await?,
        }
        Ok((result, is_remembered))
    }

    /// Of a declared workflow: whether steps that are about to be made are kept. They are not if one whose result
    /// they are given is not, whether or not they fail with it.
    pub(super) fn unkeep<'a>(&self, mut given: impl Iterator<Item = &'a Number>, made: Range<usize>) {
        let unkept = &mut self.inner().keeping.unkept;
        if given.any(|number| unkept.contains(number)) {
            unkept.extend(made.filter_map(|number| Number::try_from(number).ok()));
        }
    }

    /// Has a result be there until the run is over. What is mapped is nowhere else.
    async fn hold(&self, shared: &Arc<Shared>, result: Handle) -> Result<(), Problem> {
        let Some(object) = shared.backend.local(result) else { return Ok(()) };
        let fits = {
            let mut inner = self.inner();
            let bytes = inner.held_bytes + result.size();
            let fits = bytes <= HELD_BYTES_MAX || ticket_bytes(&object).is_some();
            if fits {
                inner.held.push(object);
                inner.held_bytes = bytes;
            }
            fits
        };
        if !fits {
            let shared = shared.clone();
            blocking(move || put(&shared, result)).await??;
        }
        Ok(())
    }

    /// Has the result of a step that has ended be kept when its turn comes.
    fn keep_later(self: &Arc<Self>, shared: &Arc<Shared>, number: Number, result: Handle, note: Note) {
        let is_first = {
            let mut inner = self.inner();
            if inner.is_stopped {
                return;
            }
            let keeping = &mut inner.keeping;
            keeping.open.insert(number, false);
            keeping.waiting.push_back((number, result, note));
            !std::mem::replace(&mut keeping.is_going_on, true)
        };
        if is_first {
            let (run, shared) = (self.clone(), shared.clone());
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.spawn(async move { run.keep_all(&shared).await });
        }
    }

    /// Keeps what is open, until nothing is.
    async fn keep_all(self: Arc<Self>, shared: &Arc<Shared>) {
        loop {
            let (number, result, note, is_lost) = {
                let mut inner = self.inner();
                let Some((number, result, note)) = inner.keeping.waiting.pop_front() else {
                    inner.keeping.is_going_on = false;
                    return;
                };
                // All that it needs has had its turn: what is open now stays so.
                let needs = inner.graph.step(number).map(|step| step.needs.as_slice()).unwrap_or_default();
                let is_lost = needs.iter().any(|need| inner.keeping.is_open(*need));
                (number, result, note, is_lost)
            };
            let is_kept = !is_lost && self.is_kept(shared, number, result, note).await;
            let open = &mut self.inner().keeping.open;
            match is_kept {
                true => drop(open.remove(&number)),
                false => drop(open.insert(number, true)),
            }
            self.changed.notify_waiters();
        }
    }

    /// Keeps a result, in a few attempts.
    async fn is_kept(&self, shared: &Arc<Shared>, number: Number, result: Handle, note: Note) -> bool {
        let mut pause = KEEPING_PAUSE;
        loop {
            let Err(problem) = self.keep_one(shared, number, result, &note).await else { return true };
            if pause > KEEPING_PAUSE_MAX {
                let reason = problem.failure_detail().unwrap_or(problem.detail());
                let why = "a step's result is not kept: if the node ends, it is made again, and what was made of it";
                tracing::warn!(run = self.id(), step = number, reason, "{why}");
                return false;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn keep_one(
        &self,
        shared: &Arc<Shared>,
        number: Number,
        result: Handle,
        note: &Note,
    ) -> Result<(), Problem> {
        let is_mapped = self.inner().keeping.mapped_bytes(number).is_some();
        let result = if is_mapped { self.sent(shared, number, result).await? } else { result };
        write(shared, result, note.clone()).await
    }

    /// A value that is mapped, as one that is sent: a function of the runtime's own is given it and returns it.
    pub(super) async fn sent(
        &self,
        shared: &Arc<Shared>,
        number: Number,
        result: Handle,
    ) -> Result<Handle, Problem> {
        let known = self.inner().keeping.sent.get(&result).copied();
        if let Some(sent) = known {
            return Ok(sent);
        }
        let served = self.sender(shared, number)?;
        loop {
            let end = self.invoke_alone(shared, &served, vec![result]).await;
            match end.result {
                Ok(sent) => {
                    {
                        let mut inner = self.inner();
                        match inner.is_stopped {
                            true => shared.backend.drop_passed(sent),
                            false => inner.passed.push(sent),
                        }
                    }
                    self.hold(shared, sent).await?;
                    self.inner().keeping.sent.insert(result, sent);
                    return Ok(sent);
                }
                Err(problem) if is_no_room(&problem) => tokio::time::sleep(NO_ROOM_PAUSE).await,
                Err(problem) => return Err(problem),
            }
        }
    }

    /// The function that sends what this step has made, with as much memory as that had.
    fn sender(&self, shared: &Arc<Shared>, number: Number) -> Result<Arc<Served>, Problem> {
        let functions = shared.backend.functions().ok_or_else(no_functions)?;
        let options = self.options(number).1.of_sender();
        let served = functions.step(&self.beginning.workflow, &options.settings(SENT, false));
        served.map_err(|error| bad(&error.to_string()))
    }
}

/// Bytes of memory of what a result is a ticket for; `None` for one that is a value itself.
fn mapped_bytes(shared: &Shared, result: Handle) -> Option<u64> {
    ticket_bytes(&shared.backend.local(result)?)
}

/// Whether a result is a ticket.
pub(crate) fn stands_for_memory(result: &[u8]) -> bool {
    result.len() == TICKET_BYTES && ticket_bytes(result).is_some()
}

fn ticket_bytes(result: &[u8]) -> Option<u64> {
    let told = result.get(RESULT_HEAD.len()..).filter(|told| told.first() == Some(&MAPPED_KIND))?;
    Some(u64::from_le_bytes(*told.get(TICKET_BYTES_AT..)?.first_chunk()?))
}

/// Has a result on the disk, and a note that says whose it is.
async fn write(shared: &Arc<Shared>, result: Handle, note: Note) -> Result<(), Problem> {
    let shared = shared.clone();
    blocking(move || put(&shared, result).and_then(|()| note.write_result(&shared, result))).await?
}

/// Has an object that is in memory on the disk.
fn put(shared: &Shared, handle: Handle) -> Result<(), Problem> {
    if handle.literal_bytes().is_some() {
        return Ok(());
    }
    let object = shared.backend.get(handle).map_err(|error| Problem::store(&error))?;
    let object = object.ok_or_else(|| Problem::object_not_found(handle))?;
    let put = shared.backend.put_many(&[BundleRecord::Blob(object.bytes())]);
    put.map(drop).map_err(|error| Problem::store(&error))
}
