// SPDX-License-Identifier: Apache-2.0
//! So many at once of each name.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Names that are kept although nobody may hold them any more, before it is looked.
const IDLE_MAX: usize = 64;

/// Places of each name. Names that nobody holds or waits for are forgotten.
pub(crate) struct Turns {
    at_once_max: usize,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    of: HashMap<String, Weak<Semaphore>>,
    /// That were left when it was looked last.
    left: usize,
}

impl Turns {
    pub(crate) fn new(at_once_max: usize) -> Self {
        Self { at_once_max, names: Mutex::default() }
    }

    /// The places of this name.
    pub(crate) fn of(&self, name: &str) -> Arc<Semaphore> {
        let mut names = self.names.lock();
        if let Some(known) = names.of.get(name).and_then(Weak::upgrade) {
            return known;
        }
        // All are looked at only where as many have come since the last time.
        if names.of.len() >= 2 * names.left + IDLE_MAX {
            names.of.retain(|_, places| places.strong_count() > 0);
            names.left = names.of.len();
        }
        let places = Arc::new(Semaphore::new(self.at_once_max));
        names.of.insert(name.to_owned(), Arc::downgrade(&places));
        places
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.names.lock().of.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_name_has_its_places_for_as_long_as_somebody_holds_them() {
        let turns = Turns::new(2);
        let one = turns.of("a");
        let held = Arc::clone(&one).try_acquire_owned().unwrap();
        drop(one);
        assert_eq!(turns.of("a").available_permits(), 1);
        assert_eq!(turns.of("b").available_permits(), 2);
        drop(held);
        assert_eq!(turns.of("a").available_permits(), 2);
    }

    #[test]
    fn names_that_nobody_holds_are_forgotten_and_the_others_are_not() {
        let turns = Turns::new(1);
        let held: Vec<_> = (0..500).map(|number| turns.of(&format!("held {number}"))).collect();
        let taken: Vec<_> = held.iter().map(|places| places.try_acquire().unwrap()).collect();
        for number in 0..10_000 {
            turns.of(&number.to_string());
        }
        assert!(turns.len() <= 2 * held.len() + IDLE_MAX, "{}", turns.len());
        assert!((0..500).all(|number| turns.of(&format!("held {number}")).available_permits() == 0));
        assert_eq!(taken.len(), 500);
    }
}
