// SPDX-License-Identifier: Apache-2.0
//! Which functions have called which.
//!
//! Calls that wait for places can wait for each other for ever only if what
//! they call forms a cycle. The call that closes it is the last one of them to
//! be made, and finds the whole cycle here. If calls along cycles never wait,
//! there is no such deadlock.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// Pairs that are remembered. Others count as parts of a cycle.
const PAIRS_MAX: usize = 2_000;

/// The calls between functions since the node started.
#[derive(Debug, Default)]
pub(crate) struct CallGraph(Mutex<Pairs>);

#[derive(Debug, Default)]
struct Pairs {
    /// By caller and callee: whether it lies on a cycle.
    known: HashMap<String, HashMap<String, bool>>,
    count: usize,
}

impl CallGraph {
    /// Notes a call. Whether the function that is called has ever, by whatever
    /// way, called the caller, or is the caller.
    pub(crate) fn could_wait_for_itself(&self, caller: &str, callee: &str) -> bool {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pairs.known.get(caller).and_then(|callees| callees.get(callee)) {
            return *known;
        }
        if pairs.count >= PAIRS_MAX {
            return true;
        }
        pairs.count += 1;
        pairs.add(caller, callee)
    }
}

impl Pairs {
    /// Adds a pair; whether it closes a cycle.
    fn add(&mut self, caller: &str, callee: &str) -> bool {
        self.known.entry(caller.to_owned()).or_default().insert(callee.to_owned(), false);
        let after: HashMap<&str, Vec<&str>> = self.pairs().fold(HashMap::new(), |mut after, (from, to)| {
            after.entry(from).or_default().push(to);
            after
        });
        let reached = reached(&after, callee);
        if !reached.contains(caller) {
            return false;
        }
        let before: HashMap<&str, Vec<&str>> = self.pairs().fold(HashMap::new(), |mut before, (from, to)| {
            before.entry(to).or_default().push(from);
            before
        });
        let leading = self::reached(&before, caller);
        // Whatever lies between the two is on a cycle with them.
        let between: HashSet<String> =
            reached.intersection(&leading).map(|name| (*name).to_owned()).collect();
        for (from, callees) in self.known.iter_mut().filter(|(from, _)| between.contains(*from)) {
            for (_, is_on_cycle) in callees.iter_mut().filter(|(to, _)| between.contains(*to) || *to == from)
            {
                *is_on_cycle = true;
            }
        }
        true
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.iter().flat_map(|(from, callees)| callees.keys().map(|to| (from.as_str(), to.as_str())))
    }
}

/// A name, and all that steps lead to from it.
fn reached<'a>(steps: &HashMap<&'a str, Vec<&'a str>>, from: &'a str) -> HashSet<&'a str> {
    let mut reached = HashSet::from([from]);
    let mut pending = vec![from];
    while let Some(one) = pending.pop() {
        for next in steps.get(one).into_iter().flatten() {
            if reached.insert(next) {
                pending.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_closes_a_cycle_is_known_and_so_are_all_of_it_then() {
        let calls = CallGraph::default();
        let cyclic = |from, to| calls.could_wait_for_itself(from, to);
        assert!(!cyclic("a", "b") && !cyclic("b", "c") && !cyclic("a", "c") && !cyclic("x", "a"));
        assert!(cyclic("c", "a"), "it closes the cycle");
        assert!(cyclic("a", "b") && cyclic("b", "c") && cyclic("a", "c"));
        assert!(!cyclic("x", "a"), "it leads into the cycle, and nothing leads back");
        assert!(cyclic("y", "y"), "itself");
    }

    #[test]
    fn what_is_not_remembered_counts_as_a_cycle() {
        let calls = CallGraph::default();
        {
            let mut pairs = calls.0.lock().unwrap();
            pairs.count = PAIRS_MAX - 1;
        }
        assert!(!calls.could_wait_for_itself("a", "b"));
        assert!(calls.could_wait_for_itself("c", "d"));
        assert!(!calls.could_wait_for_itself("a", "b"));
    }
}
