// SPDX-License-Identifier: Apache-2.0
//! What the gateway needs of the node behind it.
//!
//! The gateway turns requests into these calls and their answers into status
//! codes; it knows no evaluator, sandbox or disk. The node implements the
//! trait; tests implement it with a few lines.

use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;

use crate::deferred::Callbacks;
use crate::exports::Exporter;
use crate::functions::Functions;
use crate::keys::Keys;
use crate::traces::Collector;
use objects::{BundleRecord, Cost, Failure, Handle, Named, SIGNATURE_LEN, Statement, TreeView};
use queue::Queue;
use store::{BlobWriter, Collected, Object, Remembered};

/// How urgently a request wants cores and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Only what nobody else wants.
    Low,
    /// In order of arrival.
    #[default]
    Normal,
    /// Before everything that is not.
    High,
}

/// A wish to see `goal` evaluated.
#[derive(Debug, Clone)]
pub struct EvaluateRequest {
    /// A thunk (meaning its strict encode), an encode, or a value (returned as it is).
    pub goal: Handle,
    /// Give up after this long; the result is then the failure `deadline`.
    pub deadline: Option<Duration>,
    /// Against other requests.
    pub priority: Priority,
    /// Whether the goal can be asked for again, so that its result is worth
    /// remembering as a whole.
    pub is_repeatable: bool,
    /// Whether the result of a function is wanted before it is whole; see
    /// [`Evaluation::begins`].
    pub streams: bool,
    /// The result is wanted within this time and no sooner: others may go first.
    pub by: Option<Duration>,
    /// What is written down for a receipt; see [`Evaluation::noted`].
    pub recording: Option<Recording>,
    /// Whose request it is, if it came with a key.
    pub tenant: Option<String>,
}

/// How the steps of an evaluation that are written down come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Those that are remembered are taken, with what they cost first.
    Remembering,
    /// Nothing that is remembered is used, and nothing is remembered of them.
    Fresh,
}

/// An application that an evaluation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedStep {
    /// Its thunk.
    pub application: Handle,
    /// What its procedure returned.
    pub result: Handle,
    /// Processor time that it took, where it counts no fuel and ran for this request.
    pub nanos: u64,
    /// Fuel, where it is counted.
    pub fuel: u64,
    /// It ran for this request.
    pub ran_now: bool,
}

/// What was written down of an evaluation that has ended.
#[derive(Debug, Clone)]
pub struct Noted {
    /// The encode, or value, that was evaluated.
    pub goal: Handle,
    /// Its applications, in no order. `None`: there are more than a receipt can have.
    pub steps: Option<Vec<NotedStep>>,
    /// As [`Recording::Fresh`].
    pub is_fresh: bool,
    /// The result is the same another time.
    pub is_lasting: bool,
}

/// Who the node is for those who check its receipts.
pub trait Signing: Send + Sync {
    /// What others know it by, a public key of ed25519.
    fn public_key(&self) -> [u8; 32];
    /// Its signature over a statement's bytes.
    fn sign(&self, statement: &Statement) -> [u8; SIGNATURE_LEN];
}

/// What a collection did, on the disk and in the durable tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedHere {
    /// On the disk.
    pub disk: Collected,
    /// In the tier, or why nothing was done there, for people; `None`: there is none.
    pub tier: Option<Result<store::TierCollected, String>>,
}

/// Collections of a node, whoever began them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collections {
    /// The one that is under way: for how long, and whether the node began it by itself.
    pub under_way: Option<(Duration, bool)>,
    /// The last that has ended since the node started.
    pub last: Option<LastCollection>,
    /// How often the node collects by itself, if it does.
    pub every: Option<Duration>,
}

/// A collection that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCollection {
    /// How long ago.
    pub ago: Duration,
    /// How long it took.
    pub took: Duration,
    /// The node began it by itself.
    pub is_own: bool,
    /// What went, or why nothing did.
    pub end: Result<Collected, String>,
}

/// The end of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluated {
    /// A value; a failure is one too.
    pub result: Handle,
    /// The failure, taken apart, if the result is one.
    pub failure: Option<Failure>,
    /// Applications that the node ran from the request's arrival to its end,
    /// for this request or beside it. 0: a memo hit.
    pub applied: u64,
    /// From arrival to end.
    pub wall: Duration,
    /// Time in which its applications ran, one after the other or at the same time.
    pub ran: Duration,
    /// Fuel that they used, where it is counted.
    pub fuel: u64,
    /// What is paid for of them: of modules' applications that ran for this request, without those that
    /// made something again that the node had dropped. Which of them count fuel is not told here.
    pub cost: Cost,
    /// Processor time of those that count no fuel, in nanoseconds.
    pub uncounted_nanos: u64,
}

/// How far an evaluation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Applications that the node ran since the request arrived.
    pub applied: u64,
    /// Evaluations known to be needed and not finished, in the whole node.
    pub waiting: u64,
    /// Computations that this one was found to need.
    pub known: u64,
    /// Those of them that have their results.
    pub done: u64,
    /// Results that were remembered.
    pub memo_hits: u64,
}

/// A function's result on its way. Dropping it before its end says that nobody
/// waits for it any more.
pub trait Pieces: Send {
    /// The next bytes; the first ones have all of the result's head. `None`: no
    /// more will come, and unless it is whole, how the evaluation ended is told soon.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
    /// After the last of them: whether they are all there are, although the evaluation goes on.
    fn is_whole(&self) -> bool {
        false
    }
}

/// Tells whether a result begins to come before it is whole.
pub type Beginning<'a> = Pin<Box<dyn Future<Output = Option<Box<dyn Pieces>>> + Send + 'a>>;

/// An evaluation under way. Dropping it cancels whatever nobody else waits for.
pub trait Evaluation: Send + 'static {
    /// Waits until the result of a function begins to come before it is whole, if
    /// that is wanted. `None`: it has ended. To be asked once, and then for the end.
    fn begins(&mut self) -> Beginning<'_> {
        Box::pin(std::future::ready(None))
    }
    /// Resolves once, with the end. A future dropped before that loses
    /// nothing: the next one goes on waiting.
    fn finished(&mut self) -> Pin<Box<dyn Future<Output = Evaluated> + Send + '_>>;
    /// How far it is now.
    fn progress(&self) -> Progress;
    /// What was written down of it, after its end; once. `None`: nothing was wanted.
    fn noted(&mut self) -> Option<Noted> {
        None
    }
}

/// An evaluation, or the reason, for people, why the node takes no more requests now.
pub type Begun = Result<Box<dyn Evaluation>, String>;

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the handle itself.
    Literal,
    /// In this node's memory.
    Memory,
    /// On this node's disk.
    Disk,
    /// In the durable tier only: it comes when it is read.
    Tier,
    /// Nowhere on this node, which knows how to make it again.
    Dropped,
    /// Not on this node.
    Absent,
}

/// How an object came about that the node could make again.
#[derive(Debug, Clone, Copy)]
pub struct Derivation {
    /// The application that makes it.
    pub recipe: Handle,
    /// It is not here. Who reads it has it made again, unless it comes from the durable tier sooner.
    pub is_dropped: bool,
    /// What making it takes, or took, in nanoseconds: if it was dropped, with all that has to be made
    /// again before it.
    pub nanos: u64,
    /// So many applications have to run one after the other.
    pub depth: u32,
    /// Why it is not dropped, whatever it takes; `None`: it may be.
    pub stays: Option<&'static str>,
}

/// What bringing an object from the durable tier takes, and whether that is how it comes. Both are
/// estimates, by what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// In nanoseconds.
    pub nanos: u64,
    /// How it comes to who reads it now.
    pub comes_by: ComesBy,
}

/// How an object that the durable tier has comes to who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComesBy {
    /// It is here.
    Nothing,
    /// It is brought.
    Tier,
    /// It is made again, since that takes less.
    Recipe {
        /// Nanoseconds, with those in which what its recipe needs is brought.
        nanos: u64,
    },
}

/// A wish to have taken away what nobody needs. What is not said is as the node was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectRequest {
    /// What nobody names is kept for this time.
    pub kept: Option<Duration>,
    /// Only tells what would go.
    pub is_trial: bool,
    /// Also drops what is needed and can be made again.
    pub drop_derived: Option<bool>,
    /// Smaller objects are not dropped.
    pub drop_bytes_min: Option<u64>,
    /// What takes more nanoseconds for each of its KiB is not dropped.
    pub drop_nanos_per_kib: Option<u64>,
}

/// Everything the node knows about a handle.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// What was asked about.
    pub handle: Handle,
    /// Where its data (or its definition) lies.
    pub place: Place,
    /// The steps that its evaluation took, in order, as far as they are
    /// remembered: each thunk or encode with what became of it. Finding this
    /// out counts as no use of them. At most
    /// [`EXPLAIN_STEPS_MAX`].
    pub steps: Vec<Remembered>,
    /// The computations that gave it as their result.
    pub made_by: Vec<Remembered>,
    /// How an object could be made again, if that is known.
    pub derivation: Option<Derivation>,
    /// What bringing it from the durable tier takes, if it is there.
    pub transfer: Option<Transfer>,
    /// For a procedure: how it was compiled, as `(what, value)` lines.
    pub compilation: Vec<(String, String)>,
}

/// The most steps and the most makers that an [`Explanation`] lists.
pub const EXPLAIN_STEPS_MAX: usize = 1000;

/// A number for `/metrics` and `/v1/status`.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    /// Snake case, with its unit last, without the `sinew_` prefix.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// Only ever grows.
    pub is_counter: bool,
    /// Now.
    pub value: u64,
}

/// The node, as the gateway sees it. Methods that can touch the disk block:
/// the gateway calls them off its event loop.
pub trait Backend: Send + Sync + 'static {
    /// A writer for a blob whose length nobody promised.
    ///
    /// # Errors
    /// If the store cannot make room.
    fn blob_writer(&self) -> Result<BlobWriter, store::Error>;

    /// Stores a tree durably.
    ///
    /// # Errors
    /// If the store cannot write.
    fn put_tree(&self, tree: TreeView<'_>) -> Result<Handle, store::Error>;

    /// Stores the objects of a bundle durably, in one commit. Goals are skipped.
    ///
    /// # Errors
    /// If the store cannot write; then nothing of it is acknowledged.
    fn put_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error>;

    /// Holds the objects of a bundle for an evaluation that follows at once.
    /// They need not survive a crash: the client that waits for the result
    /// has them. Goals are skipped.
    ///
    /// # Errors
    /// If the store cannot write; then nothing of it is acknowledged.
    fn keep_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error> {
        self.put_many(records)
    }

    /// [`Backend::keep_many`] for what is of use once: it need not reach the
    /// disk, and goes with [`Backend::drop_passed`].
    ///
    /// # Errors
    /// As [`Backend::keep_many`].
    fn pass_many(&self, objects: &[Named<'_>]) -> Result<(), store::Error> {
        let records: Vec<BundleRecord<'_>> = objects.iter().map(Named::record).collect();
        self.keep_many(&records).map(drop)
    }

    /// What [`Backend::pass_many`] has held, or an evaluation of what is asked
    /// once has led to, is needed no more; once for each time. Never blocks.
    fn drop_passed(&self, _handle: Handle) {}

    /// An object's bytes if they are in memory. Never blocks.
    fn local(&self, _handle: Handle) -> Option<Object> {
        None
    }

    /// The data of an object or ref. `None`: not here.
    ///
    /// # Errors
    /// If the disk fails or the bytes are not what the handle says.
    fn get(&self, handle: Handle) -> Result<Option<Object>, store::Error>;

    /// Whether [`Backend::get`] would find the object, without reading it.
    ///
    /// # Errors
    /// If the disk fails.
    fn has(&self, handle: Handle) -> Result<bool, store::Error> {
        Ok(self.get(handle)?.is_some())
    }

    /// These bytes of an object or ref, which lie within it, without reading more of a
    /// large one than needed. `None`: not here.
    ///
    /// # Errors
    /// As [`Backend::get`].
    fn get_range(&self, handle: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, store::Error> {
        let object = self.get(handle)?;
        Ok(object.and_then(|object| Some(object.get(range.start as usize..range.end as usize)?.to_vec())))
    }

    /// A page of what is stored; see [`store::Store::inventory`].
    ///
    /// # Errors
    /// If the disk fails.
    fn inventory(&self, sought: &store::Sought) -> Result<store::Inventory, store::Error>;

    /// Whether an object is here, for somebody who will rely on it: it is kept as if
    /// it were put now.
    ///
    /// # Errors
    /// As [`Backend::get`].
    fn renew(&self, handle: Handle) -> Result<bool, store::Error>;

    /// Takes away what nobody needs, or only tells; see [`store::Store::collect`]. Takes as
    /// long as reading all trees.
    ///
    /// # Errors
    /// [`store::Error::Collecting`] if one is under way; if the disk fails.
    fn collect(&self, wish: CollectRequest) -> Result<CollectedHere, store::Error>;

    /// What is known of collections.
    fn collections(&self) -> Collections {
        Collections::default()
    }

    /// Has a collection that is under way end without having taken anything away, if it has not
    /// decided yet what goes. Whether one was under way.
    fn stop_collecting(&self) -> bool {
        false
    }

    /// Begins to make an object again that [`Backend::get`] did not find; when the evaluation
    /// has ended without a failure, it does. `None`: it is not known how. The inner error is the reason,
    /// for people, if the node takes no more requests now.
    ///
    /// # Errors
    /// As [`Backend::get`].
    fn make_again(&self, _handle: Handle) -> Result<Option<Begun>, store::Error> {
        Ok(None)
    }

    /// Checks all that is on the disk; see [`store::Store::check`]. Takes as long as reading it.
    ///
    /// # Errors
    /// As there.
    fn check(
        &self,
        bytes_per_second: Option<u64>,
        watch: &mut store::Watch<'_>,
    ) -> Result<store::Checked, store::Error>;

    /// Writes a point in time into a folder of this machine; see [`store::Store::backup`].
    ///
    /// # Errors
    /// As there.
    fn back_up(
        &self,
        to: &Path,
        point: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<store::Backed, store::Error>;

    /// Puts labels of a point back, the newest unless one is named; its name, and what was done. See
    /// [`store::BackupFolder::restore_labels`].
    ///
    /// # Errors
    /// As there.
    fn restore_labels(
        &self,
        from: &Path,
        point: Option<&str>,
        labels: &[String],
        replaces: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(String, store::Restored), store::Error>;

    /// Begins an evaluation. Never blocks.
    ///
    /// # Errors
    /// The reason, for people, if the node takes no more requests now.
    fn evaluate(&self, request: EvaluateRequest) -> Result<Box<dyn Evaluation>, String>;

    /// The goal of the application that was last said to have the same result as this one, which is only a name, if
    /// that result is known and here.
    fn known_alike(&self, _alike: Handle) -> Option<Handle> {
        None
    }

    /// Says that an application that was evaluated has the result of all that go by this name.
    fn note_alike(&self, _alike: Handle, _application: Handle) {}

    /// What the node knows about a handle.
    ///
    /// # Errors
    /// If the store fails.
    fn explain(&self, handle: Handle) -> Result<Explanation, store::Error>;

    /// Points a label at a handle, durably.
    ///
    /// # Errors
    /// If the name is not allowed or the store cannot write.
    fn set_label(&self, name: &str, handle: Handle) -> Result<(), store::Error>;

    /// The handle under a label.
    ///
    /// # Errors
    /// If the store fails.
    fn label(&self, name: &str) -> Result<Option<Handle>, store::Error>;

    /// Removes a label; whether it was there.
    ///
    /// # Errors
    /// If the store fails.
    fn remove_label(&self, name: &str) -> Result<bool, store::Error>;

    /// All labels, by name.
    ///
    /// # Errors
    /// If the store fails.
    fn labels(&self) -> Result<Vec<(String, Handle)>, store::Error>;

    /// Whether puts and labels wait for the durable tier, unless they say otherwise.
    fn acknowledges_tier(&self) -> bool {
        false
    }

    /// Waits until the durable tier has what is awaited; for so long, or as the node was told.
    ///
    /// # Errors
    /// [`store::Error::NoTier`], [`store::Error::Unsent`].
    fn tier_until(&self, _awaited: store::Awaited, _patience: Option<Duration>) -> Result<(), store::Error> {
        Err(store::Error::NoTier)
    }

    /// How the durable tier fares; `None`: there is none.
    ///
    /// # Errors
    /// If the disk fails.
    fn tier(&self) -> Result<Option<store::TierStatus>, store::Error> {
        Ok(None)
    }

    /// Takes away in the durable tier what nobody needs, or only tells; what was put within `kept`, or as the
    /// node was told, stays. See [`store::Store::collect_tier`].
    ///
    /// # Errors
    /// As there.
    fn collect_tier(
        &self,
        _kept: Option<Duration>,
        _is_trial: bool,
    ) -> Result<store::TierCollected, store::Error> {
        Err(store::Error::NoTier)
    }

    /// Takes the durable tier over, whoever owns it; see [`store::Store::take_tier`].
    ///
    /// # Errors
    /// As there.
    fn take_tier(&self) -> Result<store::Taken, store::Error> {
        Err(store::Error::NoTier)
    }

    /// The functions of the node; `None` if it serves none at all.
    fn functions(&self) -> Option<&dyn Functions> {
        None
    }

    /// Who may use the API; `None` if there are no keys at all.
    fn keys(&self) -> Option<&dyn Keys> {
        None
    }

    /// Who signs receipts; `None` if nobody does.
    fn signing(&self) -> Option<&dyn Signing> {
        None
    }

    /// Where calls wait that are made later; `None` if there is no such place.
    fn queue(&self) -> Option<Arc<dyn Queue>> {
        None
    }

    /// Who sends results to where callers want them; `None` if nobody does.
    fn callbacks(&self) -> Option<&dyn Callbacks> {
        None
    }

    /// Who writes to buckets; `None` if nobody does.
    fn exporter(&self) -> Option<&dyn Exporter> {
        None
    }

    /// Who takes spans; `None` if nobody does.
    fn collector(&self) -> Option<&dyn Collector> {
        None
    }

    /// `Err` with the reason while the node should get no requests.
    ///
    /// # Errors
    /// What the node waits for.
    fn ready(&self) -> Result<(), String>;

    /// Numbers for operators.
    fn gauges(&self) -> Vec<Gauge>;
}
