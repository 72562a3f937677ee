// SPDX-License-Identifier: Apache-2.0
//! Steps that follow one another in one instance (decision 0108).
//!
//! The gateway says what follows an application before that is asked for. An instance then serves one after the other, while
//! the node still learns how the first has ended, and which application the next one is. When that comes here it is given to
//! no instance: it *claims* what was begun for it, which may have ended by then. What was not begun after all is begun as
//! any other application, and what nobody claims is stopped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::HashMap;
use objects::Handle;
use parking_lot::Mutex;
use sandbox::keep_alive::{self, Fleet, Start, StartKind, Ticket};
use sandbox::{Answered, Callees, FOLLOWERS_MAX, Follower, Followers, NestedCall, Outcome, Within};

use super::nested::{Beginning, Later};
use super::{Application, Processes, fault_of, start_word};

/// In what one ran that has followed another one.
const FOLLOWED: &str = "within";
/// Where the start of the first one is not known, nothing of it is.
const UNKNOWN: Start = Start { kind: StartKind::Warm, queued_ns: 0, start_ns: 0 };

/// What follows applications that have not come yet, and which applications claim what.
#[derive(Default)]
pub(super) struct Followed {
    by_first: Mutex<HashMap<Handle, Arc<Following>>>,
    claims: Mutex<HashMap<Handle, (Arc<Following>, usize)>>,
}

impl Followed {
    /// What follows an application that has come.
    pub(super) fn take(&self, first: Handle) -> Option<Arc<Following>> {
        // Mostly nothing follows anything.
        let mut by_first = self.by_first.lock();
        if by_first.is_empty() { None } else { by_first.remove(&first) }
    }

    /// What an application claims that has come, and the place of that.
    pub(super) fn claimed(&self, application: Handle) -> Option<(Arc<Following>, usize)> {
        let mut claims = self.claims.lock();
        if claims.is_empty() { None } else { claims.remove(&application) }
    }
}

impl Processes {
    /// Has an application be followed by these, once it is asked for.
    pub(crate) fn follow(
        self: &Arc<Self>,
        first: Handle,
        followers: Vec<gateway::Follower>,
    ) -> Arc<dyn gateway::Following> {
        let callees: Vec<_> =
            followers.iter().take(FOLLOWERS_MAX).map(|_| Arc::<Postponed>::default()).collect();
        // Of more than that, the rest is begun as others are.
        let calls = followers.into_iter().zip(&callees).map(|(follower, callees)| {
            let gateway::Follower { handler, head, arguments, is_brief, given_within } = follower;
            let callees = Some(Arc::clone(callees) as _);
            Follower { handler, head, arguments, is_brief, given_within, callees }
        });
        let calls: Vec<_> = calls.collect();
        let followers = calls.iter().map(|_| Place::Open).collect();
        let state = State { start: None, first: None, followers, ticket: None, is_left: false };
        let processes = Arc::downgrade(self);
        let following = Arc::new(Following { processes, calls, callees, state: Mutex::new(state) });
        self.followed.by_first.lock().insert(first, Arc::clone(&following));
        Arc::new(Held { processes: Arc::clone(self), first, following, claims: Mutex::default() })
    }
}

/// The gateway's end: what is not claimed when it is dropped is stopped.
struct Held {
    processes: Arc<Processes>,
    first: Handle,
    following: Arc<Following>,
    claims: Mutex<Vec<Handle>>,
}

impl gateway::Following for Held {
    fn may_have_begun(&self, place: usize) -> bool {
        self.following.may_have_begun(place)
    }

    fn claim(&self, place: usize, application: Handle) {
        self.claims.lock().push(application);
        let claim = (Arc::clone(&self.following), place);
        self.processes.followed.claims.lock().insert(application, claim);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Followed { by_first, claims } = &self.processes.followed;
        by_first.lock().remove(&self.first);
        // Of applications that were never asked for.
        self.claims.lock().iter().for_each(|claim| drop(claims.lock().remove(claim)));
        self.following.left();
    }
}

/// What follows one application.
pub(super) struct Following {
    processes: Weak<Processes>,
    calls: Vec<Follower>,
    /// Who makes the calls of each.
    callees: Vec<Arc<Postponed>>,
    state: Mutex<State>,
}

struct State {
    /// How the first came to run.
    start: Option<Start>,
    /// Until it has ended.
    first: Option<Application>,
    followers: Vec<Place>,
    /// Where all of them run.
    ticket: Option<(Arc<Fleet>, Ticket)>,
    /// Nobody waits for those that are not claimed.
    is_left: bool,
}

/// Where a follower is.
enum Place {
    /// It may be under way.
    Open,
    /// The same, for this application.
    Claimed(Application),
    /// How it ended, for whoever claims it.
    Ended(Outcome),
    NotBegun,
    Over,
}

impl Following {
    /// The first has come.
    pub(super) fn begins(&self, first: Application) {
        self.state.lock().first = Some(first);
    }

    /// The first runs or waits there, and so does what follows.
    pub(super) fn is_at(&self, fleet: &Arc<Fleet>, ticket: Ticket) {
        let (is_left, claimed) = {
            let mut state = self.state.lock();
            state.ticket = Some((Arc::clone(fleet), ticket));
            let claimed = state.followers.iter().filter_map(|place| match place {
                Place::Claimed(application) => Some(application.job),
                _ => None,
            });
            (state.is_left && state.is_open(), claimed.collect::<Vec<_>>())
        };
        if let Some(processes) = self.processes.upgrade() {
            claimed.into_iter().for_each(|job| processes.is_at(job, (Arc::clone(fleet), ticket)));
        }
        if is_left {
            fleet.cancel(ticket);
        }
    }

    /// Whether the one at this place may have begun.
    fn may_have_begun(&self, place: usize) -> bool {
        let state = self.state.lock();
        let found = place.checked_sub(1).and_then(|at| state.followers.get(at));
        found.is_some_and(|place| !matches!(place, Place::NotBegun))
    }

    /// Nothing follows any more, or the first was not begun.
    pub(super) fn over(&self, ended: Result<Start, keep_alive::Error>) {
        let first = self.state.lock().first.take();
        if let (Some(first), Err(error), Some(processes)) = (first, ended, self.processes.upgrade()) {
            processes.leave(&first, Err(fault_of(error)), Duration::ZERO);
        }
        self.not_begun(1);
    }

    /// An application has come that claims one; whether that is elsewhere now. Otherwise it is given back, to be begun.
    pub(super) fn claim(&self, place: usize, application: Application) -> Option<Application> {
        let Some(processes) = self.processes.upgrade() else { return Some(application) };
        let callees = processes.callees_of(&application);
        let mut state = self.state.lock();
        let ticket = state.ticket.clone();
        let Some(found) = state.followers.get_mut(place - 1) else { return Some(application) };
        match std::mem::replace(found, Place::Over) {
            Place::Open => {
                let job = application.job;
                *found = Place::Claimed(application);
                drop(state);
                if let Some(ticket) = ticket {
                    processes.is_at(job, ticket);
                }
                if let Some((postponed, callees)) = self.callees.get(place - 1).zip(callees) {
                    postponed.begin(callees);
                }
                None
            }
            Place::Ended(outcome) => {
                drop(state);
                processes.concluded(&application, (FOLLOWED, UNKNOWN), outcome);
                None
            }
            Place::NotBegun | Place::Claimed(_) | Place::Over => Some(application),
        }
    }

    /// Nobody claims the rest.
    fn left(&self) {
        let (results, ticket) = {
            let mut state = self.state.lock();
            state.is_left = true;
            let ended = state.followers.iter_mut().filter(|place| matches!(place, Place::Ended(_)));
            let results: Vec<_> = ended
                .filter_map(|place| match std::mem::replace(place, Place::Over) {
                    Place::Ended(outcome) => outcome.result.ok(),
                    _ => None,
                })
                .collect();
            let ticket = if state.is_open() { state.ticket.clone() } else { None };
            (results, ticket)
        };
        if let Some(processes) = self.processes.upgrade() {
            results.into_iter().for_each(|result| processes.store.drop_passed(result));
        }
        if let Some((fleet, ticket)) = ticket {
            fleet.cancel(ticket);
        }
    }

    /// From this place on none was begun: those that are claimed are begun as others are.
    fn not_begun(&self, place: usize) {
        let claimed: Vec<Application> = {
            let mut state = self.state.lock();
            let places = state.followers.iter_mut().skip(place - 1);
            let open = places.filter(|place| matches!(place, Place::Open | Place::Claimed(_)));
            open.filter_map(|place| match std::mem::replace(place, Place::NotBegun) {
                Place::Claimed(application) => Some(application),
                _ => None,
            })
            .collect()
        };
        if let Some(processes) = self.processes.upgrade() {
            claimed.into_iter().for_each(|application| processes.begin(application));
        }
    }

    fn first_ended(&self, outcome: Outcome) {
        let (first, start) = {
            let mut state = self.state.lock();
            (state.first.take(), state.start.unwrap_or(UNKNOWN))
        };
        if let (Some(first), Some(processes)) = (first, self.processes.upgrade()) {
            processes.concluded(&first, (start_word(start.kind), start), outcome);
        }
    }

    fn follower_ended(&self, place: usize, outcome: Outcome) {
        let Some(processes) = self.processes.upgrade() else { return };
        let mut state = self.state.lock();
        let is_left = state.is_left;
        let Some(found) = state.followers.get_mut(place - 1) else { return };
        match std::mem::replace(found, Place::Over) {
            Place::Claimed(application) => {
                drop(state);
                processes.concluded(&application, (FOLLOWED, UNKNOWN), outcome);
            }
            Place::Open if !is_left => *found = Place::Ended(outcome),
            _ => {
                drop(state);
                outcome.result.into_iter().for_each(|result| processes.store.drop_passed(result));
            }
        }
    }
}

impl State {
    /// Whether one may be under way that nobody has claimed.
    fn is_open(&self) -> bool {
        self.followers.iter().any(|place| matches!(place, Place::Open))
    }
}

impl Followers for Following {
    fn calls(&self) -> &[Follower] {
        &self.calls
    }

    fn start(&self, start: Start) {
        self.state.lock().start = Some(start);
    }

    fn ended(&self, place: usize, outcome: Outcome, is_followed: bool) {
        if !is_followed {
            // Before anybody knows of this end, and asks for what comes next.
            self.not_begun(place + 1);
        }
        match place {
            0 => self.first_ended(outcome),
            place => self.follower_ended(place, outcome),
        }
    }

    fn not_begun(&self, place: usize) {
        Self::not_begun(self, place);
    }
}

/// Makes the calls of a follower, as soon as it is known which application it is.
#[derive(Default)]
struct Postponed(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    callees: Option<Arc<dyn Callees>>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    nested: NestedCall,
    answered: Answered,
    beginning: Beginning,
}

impl Postponed {
    fn begin(&self, callees: Arc<dyn Callees>) {
        let waiting = {
            let mut calls = self.0.lock();
            calls.callees = Some(Arc::clone(&callees));
            std::mem::take(&mut calls.waiting)
        };
        for Waiting { nested, answered, beginning } in waiting {
            beginning.begin(|| callees.call(nested, answered));
        }
    }
}

impl Callees for Postponed {
    fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send> {
        let mut calls = self.0.lock();
        if let Some(callees) = calls.callees.clone() {
            drop(calls);
            return callees.call(nested, answered);
        }
        let later = Later::default();
        calls.waiting.push(Waiting { nested, answered, beginning: later.beginning() });
        Box::new(later)
    }

    fn within(&self, nested: &NestedCall) -> Option<Within> {
        let callees = self.0.lock().callees.clone();
        callees.and_then(|callees| callees.within(nested))
    }

    fn head(&self) -> Option<Vec<u8>> {
        let callees = self.0.lock().callees.clone();
        callees.and_then(|callees| callees.head())
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{LineAsk, NestedAnswer};

    use super::*;

    /// Notes what it is asked for, and what of that was stopped.
    #[derive(Default)]
    struct Asked(Arc<Mutex<Vec<String>>>);

    struct Stopped(Arc<Mutex<Vec<String>>>, String);

    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.lock().push(format!("{} stopped", self.1));
        }
    }

    impl Callees for Asked {
        fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send> {
            self.0.lock().push(nested.function.clone());
            answered(NestedAnswer { status: 200, content_type: "", body: b"" }, None);
            Box::new(Stopped(Arc::clone(&self.0), nested.function))
        }
    }

    fn call(postponed: &Postponed, function: &str, told: &Arc<Mutex<Vec<String>>>) -> Box<dyn Send> {
        let nested = NestedCall {
            function: function.to_owned(),
            content_type: String::new(),
            body: Vec::new(),
            line: LineAsk::default(),
        };
        let (told, name) = (Arc::clone(told), function.to_owned());
        let answered: Answered = Box::new(move |_, _| told.lock().push(format!("{name} told")));
        postponed.call(nested, answered)
    }

    #[test]
    fn calls_wait_until_it_is_known_whose_they_are() {
        let (postponed, told) = (Postponed::default(), Arc::<Mutex<Vec<String>>>::default());
        let first = call(&postponed, "first", &told);
        drop(call(&postponed, "left", &told));
        assert!(told.lock().is_empty() && postponed.head().is_none());
        postponed.begin(Arc::new(Asked(Arc::clone(&told))));
        assert_eq!(*told.lock(), ["first", "first told"], "what was left is not begun");
        let second = call(&postponed, "second", &told);
        assert_eq!(told.lock()[2..], ["second", "second told"]);
        drop((first, second));
        assert_eq!(told.lock()[4..], ["first stopped", "second stopped"]);
    }

    fn followers(count: usize) -> Following {
        let call = Follower {
            handler: "main.f".to_owned(),
            head: Vec::new(),
            arguments: Vec::new(),
            is_brief: true,
            given_within: None,
            callees: None,
        };
        let followers = (0..count).map(|_| Place::Open).collect();
        let state = State { start: None, first: None, followers, ticket: None, is_left: false };
        Following {
            processes: Weak::new(),
            calls: vec![call; count],
            callees: Vec::new(),
            state: Mutex::new(state),
        }
    }

    #[test]
    fn what_was_not_begun_is_so_from_its_place_on() {
        let following = followers(3);
        assert!(following.state.lock().is_open());
        following.not_begun(2);
        let is_not_begun = |place: &Place| matches!(place, Place::NotBegun);
        let found: Vec<bool> = following.state.lock().followers.iter().map(is_not_begun).collect();
        assert_eq!(found, [false, true, true]);
        assert!(following.may_have_begun(1) && !following.may_have_begun(2));
        assert!(following.state.lock().is_open());
        following.over(Err(keep_alive::Error::Late));
        assert!(!following.state.lock().is_open());
        // There are no such places.
        following.not_begun(9);
        assert!(!following.may_have_begun(1) && !following.may_have_begun(0) && !following.may_have_begun(9));
    }

    #[test]
    fn there_is_nothing_for_most_applications() {
        let followed = Followed::default();
        assert!(followed.take(Handle::u64(1)).is_none() && followed.claimed(Handle::u64(1)).is_none());
        followed.by_first.lock().insert(Handle::u64(1), Arc::new(followers(1)));
        assert!(followed.take(Handle::u64(2)).is_none());
        assert!(followed.take(Handle::u64(1)).is_some() && followed.take(Handle::u64(1)).is_none());
    }
}
