// SPDX-License-Identifier: Apache-2.0
//! A job: the stack of goals that one walk is in the middle of.
//!
//! A frame is one goal. It waits for at most one child, the frame above it,
//! whose result it gets by index. Stacks live in the heap, so depth is bounded
//! by memory, and a job can be set aside at any point between two steps.

use std::sync::Arc;

use objects::{Handle, Kind, TreeBuilder, TreeView};

use crate::again::{Dropped, Remake, Unmade};
use crate::inputs::Held;
use crate::request::{Notes, Request};
use crate::scheduler::Event;
use crate::walk::{WalkBytes, WalkPool};

/// Names a job that waits for events. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// The deepest stack of one job, in frames of about 120 bytes.
pub const FRAMES_MAX: usize = 16 << 20;

/// Frames that a stack grows by first.
const FRAMES_FIRST: usize = 15;

/// A walk towards one goal. `D` is the host's [`crate::Host::Data`].
#[derive(Debug)]
pub struct Job<D> {
    pub(crate) id: JobId,
    pub(crate) request: Arc<Request>,
    /// A root's result ends its request; a spark's is only remembered.
    pub(crate) is_root: bool,
    pub(crate) frames: Vec<Frame>,
    /// Frames below this index have nothing left to offer to idle workers.
    pub(crate) offered: usize,
    /// What came, where it matters.
    pub(crate) event: Option<Event>,
    /// What it waited for and has to make again.
    pub(crate) dropped: Vec<Dropped>,
    /// Frames that make something again, from the bottom.
    pub(crate) remakes: Vec<Remake>,
    /// What it could not make again, and asks for in another way from then on.
    pub(crate) unmade: Vec<Unmade>,
    /// Bytes reserved beyond the worker's allowance for the next application.
    pub(crate) reserved_bytes: u64,
    /// Inputs of the next application, while the job waits or until it ends.
    pub(crate) held: Option<Box<Held<D>>>,
    /// Bytes of inputs that the scheduler counts for this job.
    pub(crate) room_bytes: u64,
    /// What the request has not been told of.
    pub(crate) notes: Notes,
    /// What frames and partial trees take.
    pub(crate) walk: WalkBytes,
}

/// Noted things after which a job tells its request, whose counts are shared.
const NOTES_MAX: u32 = 64;

impl<D> Job<D> {
    pub(crate) fn new(id: JobId, request: Arc<Request>, goal: Handle, is_root: bool) -> Self {
        let frames = vec![Frame::new(as_goal(goal))];
        Self {
            id,
            request,
            is_root,
            frames,
            offered: 0,
            event: None,
            dropped: Vec::new(),
            remakes: Vec::new(),
            unmade: Vec::new(),
            reserved_bytes: 0,
            held: None,
            room_bytes: 0,
            notes: Notes::default(),
            walk: WalkBytes::default(),
        }
    }

    /// Begins anew, keeping the allocation.
    pub(crate) fn restart(&mut self, id: JobId, request: &Arc<Request>, goal: Handle) {
        self.id = id;
        if !Arc::ptr_eq(&self.request, request) {
            self.request = Arc::clone(request);
        }
        self.is_root = true;
        self.frames.clear();
        self.frames.push(Frame::new(as_goal(goal)));
        self.offered = 0;
        self.event = None;
        self.dropped.clear();
        self.remakes.clear();
        self.unmade.clear();
        self.reserved_bytes = 0;
        self.held = None;
        self.room_bytes = 0;
    }

    /// Makes room for one more frame. `false`: the bound is reached.
    #[inline]
    #[must_use]
    pub(crate) fn grow(&mut self, pool: &WalkPool) -> bool {
        self.frames.len() < self.frames.capacity() || self.grow_frames(pool)
    }

    /// Doubles the stack, after asking: while it is copied, both are there.
    #[cold]
    fn grow_frames(&mut self, pool: &WalkPool) -> bool {
        let more = self.frames.capacity().max(FRAMES_FIRST);
        let is_granted = self.walk.grow((more * size_of::<Frame>()) as u64, pool);
        if is_granted {
            self.frames.reserve_exact(more);
        }
        is_granted
    }

    /// Frees the stack's frames and gives back what was counted for them.
    pub(crate) fn end_walk(&mut self, pool: &WalkPool) {
        self.frames.clear();
        self.walk.end((self.frames.capacity() * size_of::<Frame>()) as u64, pool);
    }

    /// The request on whose behalf the job runs.
    pub fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Tells the request, if there is much to tell.
    #[inline]
    pub(crate) fn report_many(&mut self) {
        if self.notes.applied + self.notes.settled >= NOTES_MAX {
            self.report();
        }
    }

    /// Tells the request what became of it here.
    #[inline]
    pub(crate) fn report(&mut self) {
        // Nothing is paid for that was not applied.
        let Notes { applied, found, settled, remembered, nanos, fuel, charge: _ } = self.notes;
        if nanos | fuel != 0 || applied | found | settled | remembered != 0 {
            self.request.add(std::mem::take(&mut self.notes));
        }
    }

    /// Whether an application that the job claimed runs elsewhere.
    pub(crate) fn holds_claim(&self) -> bool {
        self.frames.last().is_some_and(|frame| matches!(frame.state, State::Applying))
    }

    /// The top frame has this failure instead of a value.
    pub(crate) fn fail(&mut self, failure: Handle) {
        if let Some(frame) = self.frames.last_mut() {
            frame.at = failure;
            self.walk.shrink(frame.state.bytes());
            frame.state = State::Forcing;
        }
    }

    /// Where the walk stands: what a failure of the whole request names.
    pub(crate) fn position(&self) -> Handle {
        let thunk = |frame: &Frame| frame.at.thunk().or_else(|| frame.goal.thunk());
        self.frames.last().and_then(thunk).unwrap_or(self.request.goal())
    }
}

/// What is evaluated when a request names something that is no encode: a thunk
/// and a value are wanted completely. Frames rely on it: the result of a goal
/// is remembered under the goal, and a thunk's own key is for its next step.
#[inline]
fn as_goal(handle: Handle) -> Handle {
    let thunk = handle.identification().unwrap_or(handle);
    thunk.strict().unwrap_or(thunk)
}

/// One goal of a job.
#[derive(Debug)]
pub(crate) struct Frame {
    /// An encode; a failure as the root's goal is its own result.
    pub(crate) goal: Handle,
    /// How far the goal's thunk has been followed: a thunk, an encode or a value.
    pub(crate) at: Handle,
    /// Steps taken from the goal's own thunk to `at`, as far as they count:
    /// 0, 1 or more.
    pub(crate) steps: u8,
    /// The evaluated target of the selection `at`.
    pub(crate) selected: Option<Handle>,
    /// The goal's result came from the relations.
    pub(crate) is_recorded: bool,
    /// Every step so far, those of the goals below included, must end the
    /// same way again.
    pub(crate) is_lasting: bool,
    pub(crate) state: State,
}

/// What a frame is doing.
#[derive(Debug)]
pub(crate) enum State {
    /// Following thunks, step by step.
    Forcing,
    /// Replacing the encodes of the application `at`.
    Resolving(Box<Partial>),
    /// Waiting for the target of the selection `at`.
    Selecting,
    /// Waiting for an encode that a procedure returned.
    Forwarding,
    /// Evaluating the entries of the tree `at`.
    Deepening(Box<Partial>),
    /// The application `at` is claimed and runs elsewhere.
    Applying,
}

impl State {
    /// What the state takes beside its frame.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Resolving(partial) | Self::Deepening(partial) => Partial::bytes_of(partial.tree.len()),
            Self::Forcing | Self::Selecting | Self::Forwarding | Self::Applying => 0,
        }
    }
}

/// Whether an entry, or the goal that it became, is told of as found and
/// settled: what is computed, not data that is walked through.
#[inline]
pub(crate) fn is_counted(handle: Handle) -> bool {
    handle.thunk().is_some_and(|thunk| thunk.kind() != Kind::Identification)
}

/// A tree whose entries are replaced one by one.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) tree: TreeBuilder,
    /// The entry that the frame works on; those before it are done.
    pub(crate) index: usize,
    /// Entries from here on were offered as sparks.
    pub(crate) offered_from: usize,
    /// An entry was replaced by another handle.
    pub(crate) is_changed: bool,
}

impl Frame {
    pub(crate) fn new(goal: Handle) -> Self {
        let at = goal.thunk().unwrap_or(goal);
        let state = State::Forcing;
        Self { goal, at, steps: 0, selected: None, is_recorded: false, is_lasting: true, state }
    }

    /// One whose goal is neither looked up nor remembered as a whole: its steps are what is wanted.
    pub(crate) fn again(goal: Handle) -> Self {
        Self { steps: 1, is_recorded: true, ..Self::new(goal) }
    }
}

impl Partial {
    /// Notes what is found in the tree.
    pub(crate) fn new(tree: TreeView<'_>, notes: &mut Notes) -> Box<Self> {
        let found = tree.iter().filter(|&entry| is_counted(entry)).count();
        notes.found = notes.found.saturating_add(u32::try_from(found).unwrap_or(u32::MAX));
        Box::new(Self { tree: tree.into(), index: 0, offered_from: tree.len(), is_changed: false })
    }

    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Handle> {
        self.tree.view().get(index)
    }

    /// What a tree of so many entries takes.
    #[inline]
    pub(crate) fn bytes_of(entries: usize) -> u64 {
        (size_of::<Self>() + entries * size_of::<Handle>()) as u64
    }

    /// The entry at the index has this value.
    #[inline]
    pub(crate) fn replace(&mut self, value: Handle) {
        if self.entry(self.index) != Some(value) {
            self.is_changed = true;
            self.tree.set(self.index, value);
        }
        self.index += 1;
    }
}
