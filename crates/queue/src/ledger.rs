// SPDX-License-Identifier: Apache-2.0
//! What the queue knows without the disk: every message but what it says, in
//! its lane and in the order in which it is due. It decides; `embedded.rs`
//! writes down what was decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::database::Loaded;
use crate::message::{LaneStats, State, Stats, Status};
use crate::record::{Entry, Key};
use crate::{Error, Id, Message, Options};

/// One lane's messages.
#[derive(Debug, Default)]
struct Lane {
    /// Those that wait, by when they are due.
    due: BTreeSet<(u64, Id)>,
    running: usize,
    dead: BTreeSet<Id>,
    /// All of these, and those on their way to the disk.
    messages: usize,
    bytes: u64,
    /// When it last had its turn, in turns.
    turn: u64,
}

/// The whole of it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: HashMap<Id, Entry>,
    lanes: BTreeMap<String, Lane>,
    /// On their way to the disk.
    arriving: HashSet<Id>,
    messages: usize,
    bytes: u64,
    /// By the time when they ended.
    outcomes: BTreeSet<(u64, Id)>,
    outcome_bytes: u64,
    buried: BTreeSet<(u64, Id)>,
    keys: HashMap<String, Key>,
    /// By the time until which they count.
    expiring: BTreeSet<(u64, String)>,
    marks: HashMap<String, u64>,
    turns: u64,
    /// Counters, told with the rest.
    pub(crate) counts: Stats,
}

/// A lane and a key of it, as one.
fn key_name(lane: &str, key: &str) -> String {
    format!("{lane}\0{key}")
}

impl Ledger {
    /// What a process before this one left. Attempts that it did not survive
    /// are to be made again at once.
    pub(crate) fn of(loaded: Loaded) -> Self {
        let mut ledger = Self { marks: loaded.marks.into_iter().collect(), ..Self::default() };
        for (id, mut entry) in loaded.entries {
            if entry.state == State::Running {
                entry.state = State::Waiting;
                entry.reason = "the node ended during the attempt".to_owned();
            }
            ledger.reserve(&entry);
            ledger.enter(id, entry);
        }
        for (name, key) in loaded.keys {
            ledger.expiring.insert((key.until_ms, name.clone()));
            ledger.keys.insert(name, key);
        }
        ledger
    }

    pub(crate) fn entry(&self, id: Id) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn is_arriving(&self, id: Id) -> bool {
        self.arriving.contains(&id)
    }

    pub(crate) fn mark(&self, name: &str) -> Option<u64> {
        self.marks.get(name).copied()
    }

    /// The message that has this message's key already.
    pub(crate) fn twin(&self, message: &Message, now_ms: u64) -> Option<Id> {
        let dedup = message.dedup.as_ref()?;
        let key = self.keys.get(&key_name(&message.lane, &dedup.key))?;
        (key.until_ms > now_ms).then_some(key.id)
    }

    /// Whether one more message fits.
    pub(crate) fn check_room(&self, message: &Message, options: &Options) -> Result<(), Error> {
        self.check_room_beside(message, 0, 0, options)
    }

    /// The same, when so many messages of so many bytes leave in the same step.
    pub(crate) fn check_room_beside(
        &self,
        message: &Message,
        leaving: usize,
        leaving_bytes: u64,
        options: &Options,
    ) -> Result<(), Error> {
        let messages = self.messages.saturating_sub(leaving);
        let bytes = self.bytes.saturating_sub(leaving_bytes);
        if messages >= options.messages_max || bytes + message.bytes() > options.bytes_max {
            return Err(Error::Full { messages: self.messages, bytes: self.bytes });
        }
        if let Some(lane) = self.lanes.get(&message.lane)
            && (lane.messages >= options.lane_messages_max()
                || lane.bytes + message.bytes() > options.lane_bytes_max())
        {
            let name = message.lane.clone();
            let (messages, bytes, dead) = (lane.messages, lane.bytes, lane.dead.len());
            return Err(Error::LaneFull { lane: name, messages, bytes, dead });
        }
        if message.dedup.is_some() && self.keys.len() >= options.keys_max {
            return Err(Error::KeysFull { keys: self.keys.len() });
        }
        Ok(())
    }

    /// Takes room and key for a message on its way to the disk.
    pub(crate) fn arrive(&mut self, message: &Message, entry: &Entry, now_ms: u64) -> Option<(String, Key)> {
        self.reserve(entry);
        self.arriving.insert(message.id);
        let dedup = message.dedup.as_ref()?;
        let name = key_name(&message.lane, &dedup.key);
        let key = Key { id: message.id, until_ms: now_ms.saturating_add(dedup.window_ms) };
        if let Some(old) = self.keys.insert(name.clone(), key) {
            self.expiring.remove(&(old.until_ms, name.clone()));
        }
        self.expiring.insert((key.until_ms, name.clone()));
        Some((name, key))
    }

    /// It is on the disk: it waits from now on.
    pub(crate) fn arrived(&mut self, id: Id, entry: Entry, mark: Option<(String, u64)>) {
        self.arriving.remove(&id);
        self.marks.extend(mark);
        self.enter(id, entry);
    }

    /// It is not on the disk, and never was here.
    pub(crate) fn turned_back(&mut self, id: Id, entry: &Entry, key: Option<&(String, Key)>) {
        self.arriving.remove(&id);
        self.release(entry);
        if let Some((name, key)) = key {
            self.keys.remove(name);
            self.expiring.remove(&(key.until_ms, name.clone()));
        }
    }

    /// The message whose turn it is; it runs from now on.
    pub(crate) fn claim(&mut self, now_ms: u64, limit: &dyn Fn(&str) -> usize) -> Option<(Id, Entry)> {
        let ready = self.lanes.iter().filter_map(|(name, lane)| {
            let (due, id) = *lane.due.first()?;
            (due <= now_ms && lane.running < limit(name)).then_some((lane.running, lane.turn, name, id))
        });
        let (.., name, id) = ready.min()?;
        let lane = self.lanes.get_mut(&name.clone())?;
        lane.due.pop_first();
        lane.running += 1;
        self.turns += 1;
        lane.turn = self.turns;
        let entry = self.entries.get_mut(&id)?;
        self.counts.retries += u64::from(entry.attempts > 0);
        entry.state = State::Running;
        entry.attempts = entry.attempts.saturating_add(1);
        Some((id, entry.clone()))
    }

    /// When the first message is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.lanes.values().filter_map(|lane| Some(lane.due.first()?.0)).min()
    }

    /// Puts a message where its new state belongs. `None` forgets it.
    pub(crate) fn change(&mut self, id: Id, entry: Option<Entry>) {
        self.leave(id);
        if let Some(entry) = entry {
            self.counts.died += u64::from(entry.state == State::Dead);
            self.reserve(&entry);
            self.enter(id, entry);
        }
    }

    /// Room for a message that is not succeeded.
    fn reserve(&mut self, entry: &Entry) {
        if entry.state == State::Succeeded {
            return;
        }
        self.messages += 1;
        self.bytes += entry.bytes;
        let lane = self.lanes.entry(entry.lane.clone()).or_default();
        lane.messages += 1;
        lane.bytes += entry.bytes;
    }

    fn release(&mut self, entry: &Entry) {
        if entry.state == State::Succeeded {
            return;
        }
        self.messages -= 1;
        self.bytes -= entry.bytes;
        if let Some(lane) = self.lanes.get_mut(&entry.lane) {
            lane.messages -= 1;
            lane.bytes -= entry.bytes;
            if lane.messages == 0 {
                self.lanes.remove(&entry.lane);
            }
        }
    }

    fn enter(&mut self, id: Id, entry: Entry) {
        let lane = self.lanes.get_mut(&entry.lane);
        match (entry.state, lane) {
            (State::Waiting, Some(lane)) => _ = lane.due.insert((entry.due_ms, id)),
            (State::Running, Some(lane)) => lane.running += 1,
            (State::Dead, Some(lane)) => {
                lane.dead.insert(id);
                self.buried.insert((entry.ended_ms, id));
            }
            (State::Succeeded, _) => {
                self.outcomes.insert((entry.ended_ms, id));
                self.outcome_bytes += entry.bytes;
            }
            // Room was reserved before.
            (_, None) => {}
        }
        self.entries.insert(id, entry);
    }

    fn leave(&mut self, id: Id) {
        let Some(entry) = self.entries.remove(&id) else { return };
        if let Some(lane) = self.lanes.get_mut(&entry.lane) {
            match entry.state {
                State::Waiting => _ = lane.due.remove(&(entry.due_ms, id)),
                State::Running => lane.running -= 1,
                State::Dead => _ = lane.dead.remove(&id),
                State::Succeeded => {}
            }
        }
        self.buried.remove(&(entry.ended_ms, id));
        if self.outcomes.remove(&(entry.ended_ms, id)) {
            self.outcome_bytes -= entry.bytes;
        }
        self.release(&entry);
    }

    /// Outcomes that are too old, or too many, perhaps with one more of so many
    /// bytes.
    pub(crate) fn old_outcomes(&self, options: &Options, now_ms: u64, more: Option<u64>) -> Vec<Id> {
        let mut number = self.outcomes.len() + usize::from(more.is_some());
        let mut bytes = self.outcome_bytes + more.unwrap_or(0);
        let mut old = Vec::new();
        for &(ended_ms, id) in &self.outcomes {
            let is_old = ended_ms.saturating_add(options.outcome_ms) <= now_ms;
            if !is_old && number <= options.outcomes_max && bytes <= options.outcomes_bytes_max {
                break;
            }
            number -= 1;
            bytes -= self.entries.get(&id).map_or(0, |entry| entry.bytes);
            old.push(id);
        }
        old
    }

    /// Dead letters that were kept for long enough.
    pub(crate) fn old_dead(&self, options: &Options, now_ms: u64) -> Vec<Id> {
        let old = self.buried.iter();
        let old = old.take_while(|(ended_ms, _)| ended_ms.saturating_add(options.dead_ms) <= now_ms);
        old.map(|(_, id)| *id).collect()
    }

    /// Forgets keys that count no more; their names.
    pub(crate) fn expire_keys(&mut self, now_ms: u64, most: usize) -> Vec<String> {
        let mut names = Vec::new();
        while names.len() < most
            && self.expiring.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms)
            && let Some((_, name)) = self.expiring.pop_first()
        {
            self.keys.remove(&name);
            names.push(name);
        }
        names
    }

    /// Dead letters in the order of their ids.
    pub(crate) fn dead(&self, lane: Option<&str>, after: Option<Id>, limit: usize) -> Vec<Status> {
        let lanes = self.lanes.iter().filter(|(name, _)| lane.is_none_or(|lane| lane == *name));
        let mut ids: Vec<Id> = lanes.flat_map(|(_, lane)| lane.dead.iter().copied()).collect();
        ids.sort_unstable();
        let ids = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after));
        ids.take(limit).filter_map(|id| self.status(id)).collect()
    }

    /// Messages of a lane, whatever their state, the newest first.
    pub(crate) fn recent(&self, lane: &str, limit: usize) -> Vec<Status> {
        let of_lane = self.entries.iter().filter(|(_, entry)| entry.lane == lane);
        let mut ids: Vec<Id> = of_lane.map(|(id, _)| *id).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.into_iter().take(limit).filter_map(|id| self.status(id)).collect()
    }

    pub(crate) fn status(&self, id: Id) -> Option<Status> {
        let entry = self.entries.get(&id)?;
        Some(Status {
            id,
            lane: entry.lane.clone(),
            state: entry.state,
            created_ms: entry.pushed_ms,
            due_ms: entry.due_ms,
            ended_ms: entry.ended_ms,
            attempts: entry.attempts,
            reason: entry.reason.clone(),
            bytes: entry.bytes,
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let oldest = |lane: &Lane| {
            // Ids grow with time; of many, the first due is near enough.
            let (_, id) = lane.due.first()?;
            self.entries.get(id).map(|entry| entry.pushed_ms)
        };
        let lanes = self.lanes.iter().map(|(name, lane)| LaneStats {
            lane: name.clone(),
            waiting: lane.due.len(),
            running: lane.running,
            dead: lane.dead.len(),
            oldest_ms: oldest(lane),
        });
        Stats {
            lanes: lanes.collect(),
            bytes: self.bytes,
            outcomes: self.outcomes.len(),
            ..self.counts.clone()
        }
    }
}
