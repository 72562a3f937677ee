// SPDX-License-Identifier: Apache-2.0
//! Labels in the tier: all of one moment, written when everything that they name is there.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use objects::Handle;

use super::far::{Far, Halt};
use super::form::{LABELS, Names, PACK_BYTES, PACK_OBJECTS, RECIPES_MAX, labels_name, labels_number};
use super::sending::{send_large, send_pack};
use crate::disk::Disk;
use crate::files::is_large;
use crate::index::{Batch, Tiered};
use crate::visited::Visited;
use crate::{Error, Object};

/// What the newest labels in the tier hash to, and their number.
pub(super) const PUBLISHED: &str = "labels";

/// Writes the labels, if others than those of last time are there.
pub(super) fn publish(disk: &Disk, far: &Far) -> Result<(), Halt> {
    let Some(wanted) = far.labels_wanted() else { return Ok(()) };
    far.let_alone();
    // What it has found to be there does not go meanwhile.
    let _still = far.publishing.read();
    let labels = disk.index().labels()?;
    if labels.is_empty() && disk.index().tier_note(PUBLISHED)?.is_none() {
        // It has never had any: whose tier it is need not be asked.
        far.published(wanted);
        return Ok(());
    }
    let mut walk = Walk::new(disk, far, || true)?;
    for (_, handle) in &labels {
        walk.walk(*handle)?;
    }
    walk.finish()?;
    let Walk { mut recipes, gaps, .. } = walk;
    if gaps > 0 && far.labels_wanted() != Some(wanted) {
        // A label that was taken away meanwhile may be what named them: once more, with those of now.
        return Ok(());
    }
    let gaps = gaps + recipes.len().saturating_sub(RECIPES_MAX) as u64;
    recipes.truncate(RECIPES_MAX);
    let names = Names { labels, recipes };
    let bytes = names.to_bytes();
    let hash = blake3::hash(&bytes);
    let published = disk.index().tier_note(PUBLISHED)?.unwrap_or_default();
    if published.get(8..) != Some(hash.as_bytes()) {
        // Whoever has taken the tier meanwhile has other labels.
        far.progress.lock().owned = None;
        super::owning::ensure(disk, far)?;
        let number = next_number(far, published.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))?;
        // First here: if this ends now, what was written under this number is not taken for what it was before.
        note(disk, number.to_le_bytes().to_vec())?;
        far.depot.put(&labels_name(number), &Object::from_vec(bytes))?;
        // Whoever has taken it meanwhile writes newer ones.
        far.progress.lock().owned = None;
        super::owning::ensure(disk, far)?;
        note(disk, [&number.to_le_bytes()[..], hash.as_bytes()].concat())?;
        forget_older(far, number);
    }
    super::owning::ensure(disk, far)?;
    far.counts.gaps.store(gaps, std::sync::atomic::Ordering::Relaxed);
    far.published(wanted);
    Ok(())
}

/// What is known of the newest labels there.
pub(super) fn note(disk: &Disk, note: Vec<u8>) -> Result<(), Error> {
    let tier_notes = vec![(PUBLISHED, note)];
    disk.committer().commit(Batch { tier_notes, ..Batch::default() }).map(drop)
}

/// A number that nobody has used: what was written under one and not heard of stays what it is, for the number is
/// noted here before. Where there are greater ones, this home has forgotten what it wrote, and those are what counts.
fn next_number(far: &Far, known: u64) -> Result<u64, Halt> {
    let names = far.depot.list(LABELS, &labels_name(known))?;
    if names.iter().filter_map(|name| labels_number(name)).any(|number| number > known) {
        return Err(Halt::Refused(
            "its labels are newer than those that this home knows to have written: its disk was set back to an older state, or a copy of it writes there; `sinew tier --take` goes on with them here"
                .to_owned(),
        ));
    }
    let full =
        || Halt::Refused("its labels have the last number that there is: take another prefix".to_owned());
    known.checked_add(1).ok_or_else(full)
}

/// What goes wrong leaves some that nobody reads.
fn forget_older(far: &Far, number: u64) {
    let Ok(names) = far.depot.list(LABELS, "") else { return };
    // The one before stays: somebody may be reading it.
    for name in names {
        if labels_number(&name).is_some_and(|older| older + 1 < number) && far.depot.remove(&name).is_err() {
            return;
        }
    }
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    next: usize,
    is_whole: bool,
    /// It has a row already.
    is_there: bool,
}

/// Sends what labels name and the tier has not; what is named before what names it.
pub(super) struct Walk<'a> {
    disk: &'a Disk,
    far: &'a Far,
    visited: Visited,
    /// Trees of which something is nowhere.
    torn: HashSet<Handle>,
    /// What was found damaged before it began.
    doubts: u64,
    unsent: Vec<(Handle, Object)>,
    unsent_bytes: usize,
    /// Trees whose rows are to say that all they name is there.
    whole: Vec<Handle>,
    recipes: Vec<(Handle, crate::Recipe)>,
    /// Objects that are nowhere.
    gaps: u64,
    /// Whether somebody still waits for it.
    is_awaited: Box<dyn Fn() -> bool + 'a>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        disk: &'a Disk,
        far: &'a Far,
        is_awaited: impl Fn() -> bool + 'a,
    ) -> Result<Self, Error> {
        let doubts = far.settle_doubts(disk)?;
        Ok(Self {
            disk,
            far,
            visited: Visited::default(),
            torn: HashSet::new(),
            doubts,
            unsent: Vec::new(),
            unsent_bytes: 0,
            whole: Vec::new(),
            recipes: Vec::new(),
            gaps: 0,
            is_awaited: Box::new(is_awaited),
        })
    }

    pub(super) fn walk(&mut self, root: Handle) -> Result<(), Halt> {
        // Trees nest as deep as users like.
        let mut stack: Vec<Frame> = Vec::new();
        self.enter(root, &mut stack)?;
        while let Some(frame) = stack.last_mut() {
            if let Some(entry) = frame.tree.as_tree().get(frame.next) {
                frame.next += 1;
                self.enter(entry, &mut stack)?;
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            let is_sent = frame.is_there || self.collect(frame.key, frame.tree)?;
            if frame.is_whole && is_sent {
                self.whole.push(frame.key);
            } else {
                self.tear(frame.key, &mut stack);
            }
        }
        Ok(())
    }

    /// Sends one, unless it is there, and nothing that it names.
    pub(super) fn send(&mut self, key: Handle) -> Result<(), Halt> {
        self.goes_on()?;
        let is_sent = if is_large(key) {
            self.send_large(key)?
        } else if self.disk.tiered(key)?.is_some_and(|row| !row.is_damaged) {
            true
        } else {
            let object = match self.disk.read(key) {
                Err(Error::Corrupt { .. }) => None,
                read => read?,
            };
            object.map_or(Ok(false), |object| self.collect(key, object))?
        };
        self.gaps += u64::from(!is_sent);
        Ok(())
    }

    /// Whether it is there now. One that is there for long stays there from now on as if it was sent now, and
    /// one that is damaged there is sent again.
    fn send_large(&mut self, key: Handle) -> Result<bool, Halt> {
        send_large(self.disk, self.far, key)?;
        Ok(self.disk.tiered(key)?.is_some_and(|row| !row.is_damaged))
    }

    /// Fails where it is of no use to go on.
    fn goes_on(&self) -> Result<(), Halt> {
        if self.far.progress.lock().is_closing {
            return Err(Halt::Later("the node stops".to_owned()));
        }
        if !(self.is_awaited)() {
            return Err(Halt::Later("nobody waits for it any more".to_owned()));
        }
        Ok(())
    }

    /// Objects of what was walked that are not here.
    pub(super) fn lacks(&self) -> u64 {
        self.gaps + self.recipes.len() as u64
    }

    fn tear(&mut self, key: Handle, stack: &mut [Frame]) {
        self.torn.insert(key);
        if let Some(above) = stack.last_mut() {
            above.is_whole = false;
        }
    }

    fn enter(&mut self, handle: Handle, stack: &mut Vec<Frame>) -> Result<(), Halt> {
        let mut next = Some(handle);
        // What a recipe needs may have been dropped too, and so on.
        while let Some(handle) = next.take().filter(|handle| handle.literal_bytes().is_none()) {
            next = self.enter_one(handle, stack)?;
        }
        Ok(())
    }

    /// What is to be entered in its place: what makes an object that is nowhere.
    fn enter_one(&mut self, handle: Handle, stack: &mut Vec<Frame>) -> Result<Option<Handle>, Halt> {
        let key = handle.plain_tree();
        let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
        if !self.visited.is_new(key, spot) {
            if self.torn.contains(&key) {
                self.tear(key, stack);
            }
            return Ok(None);
        }
        self.goes_on()?;
        let row = self.disk.tiered(key)?.filter(|row| !row.is_damaged);
        let is_stale = is_large(key) && row.as_ref().is_some_and(Tiered::is_stale);
        if !is_stale && row.is_some_and(|row| row.is_whole || !key.names_tree()) {
            return Ok(None);
        }
        if is_large(key) && !key.names_tree() && self.send_large(key)? {
            return Ok(None);
        }
        let read = match self.disk.read(key) {
            Err(Error::Corrupt { .. }) => None,
            read => read?,
        };
        // A tree that is in the tier only, and of which it is not known that all it names is.
        let object = match read {
            None if row.is_some() => self.disk.look_far(key)?,
            read => read,
        };
        let Some(object) = object else {
            if let Some(recipe) = self.disk.index().recipe(key)? {
                self.recipes.push((key, recipe));
                // Each time labels are written they are to say this: here the walk must not stop.
                self.tear(key, stack);
                return Ok(Some(recipe.application));
            }
            self.lack(key, stack);
            return Ok(None);
        };
        if key.names_tree() {
            let is_there = row.is_some();
            stack.push(Frame { key, tree: object, next: 0, is_whole: true, is_there });
            return Ok(None);
        }
        if !self.collect(key, object)? {
            self.lack(key, stack);
        }
        Ok(None)
    }

    fn lack(&mut self, key: Handle, stack: &mut [Frame]) {
        self.gaps += 1;
        self.tear(key, stack);
    }

    /// False: it went or was found damaged just now.
    fn collect(&mut self, key: Handle, object: Object) -> Result<bool, Halt> {
        if is_large(key) {
            return self.send_large(key);
        }
        self.unsent_bytes += object.len();
        self.unsent.push((key, object));
        if self.unsent_bytes >= PACK_BYTES || self.unsent.len() >= PACK_OBJECTS {
            self.flush()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), Halt> {
        // Who sends the packs may have sent some of them meanwhile.
        let keys: Vec<Handle> = self.unsent.iter().map(|(key, _)| *key).collect();
        let rows = self.disk.all_tiered(&keys)?;
        let unsent = std::mem::take(&mut self.unsent).into_iter().zip(rows);
        let is_missing = |(_, row): &((Handle, Object), Option<Tiered>)| row.is_none_or(|row| row.is_damaged);
        let unsent: Vec<_> = unsent.filter(is_missing).map(|(object, _)| object).collect();
        self.unsent_bytes = 0;
        if unsent.is_empty() {
            return Ok(());
        }
        super::owning::ensure(self.disk, self.far)?;
        send_pack(self.disk, self.far, &unsent, None)
    }

    /// Sends what is left, and notes which trees are there with all that they name.
    pub(super) fn finish(&mut self) -> Result<(), Halt> {
        self.flush()?;
        // Where something was found damaged meanwhile, it may be of these.
        let is_whole = || self.far.doubts.load(Ordering::Acquire) == self.doubts;
        let whole = |_, row: Option<Tiered>| row.map(|row| Tiered { is_whole: is_whole(), ..row });
        Ok(self.far.change_rows(self.disk, &self.whole, Batch::default(), whole)?)
    }
}
