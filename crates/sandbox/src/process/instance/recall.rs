// SPDX-License-Identifier: Apache-2.0
//! Calls that stand in line in an instance, and are taken back before it comes to them.
//!
//! They lie in its socket or in its memory. Which of them have begun is said in a word that both
//! sides share (`xpu::turns`), so that nobody need ask the instance, which may be busy for long.
//! It is made when a call first stands behind another one.

use std::time::{Duration, Instant};

use xpu::turns::Turns;

use super::{Begun, Broken, CallEnd, Done, Instance, UnderWay};
use crate::Fault;
use objects::FailureCode;

/// Who stands behind a call that takes as long goes elsewhere.
const HELD_UP: Duration = Duration::from_millis(50);

impl UnderWay {
    /// Whether it is seen that the instance has begun it.
    fn shows_that_it_has_begun(&self) -> bool {
        let has_said = self.streamed.is_some() || self.phases.is_some() || !self.pending.is_empty();
        has_said || self.fed.is_some() || self.others.line.is_some()
    }
}

impl Instance {
    /// What is sent now may stand in line. If there is nothing to recall it by, it cannot be recalled.
    pub(super) fn shares_turns(&mut self) {
        if self.is_serial
            && !self.under_way.is_empty()
            && self.turns.is_none()
            && let Ok((turns, word)) = Turns::create(self.last_turn)
            && self.channel.turns(word).is_ok()
        {
            self.turns = Some(turns);
        }
    }

    /// Whether calls stand behind one that takes long.
    pub(crate) fn is_held_up(&self, now: Instant) -> bool {
        // What only follows it is none of those.
        let others_stand = self.under_way.iter().skip(1).any(|call| !call.follows);
        let first = self.under_way.first().filter(|_| others_stand && self.turns.is_some());
        first.and_then(|first| first.came.checked_add(HELD_UP)).is_some_and(|long| long <= now)
    }

    /// Takes back the calls that stand in line here and have not begun; what is to be done with them.
    pub(crate) fn recall(&mut self) -> Result<Vec<(Done, CallEnd)>, Broken> {
        let Some(turns) = self.turns.as_ref().filter(|_| self.under_way.len() > 1) else {
            return Ok(Vec::new());
        };
        let recalled = turns.recall(self.last_turn);
        let is_recalled = |call: &UnderWay| recalled.has(call.turn);
        if self.under_way.iter().any(|call| is_recalled(call) && call.shows_that_it_has_begun()) {
            return Err(Broken::Lie("it says that it has not begun a call of which it has told something"));
        }
        let now = Instant::now();
        let (taken, kept): (Vec<_>, _) =
            std::mem::take(&mut self.under_way).into_iter().partition(is_recalled);
        self.under_way = kept;
        let mut back = Vec::with_capacity(taken.len());
        for call in taken {
            // Its time counts from the end of the one before, although it has not begun.
            drop(self.spent(call.served, now));
            // It was printed between two calls, and comes with the next one; what is too much is lost.
            self.channel.keep_idle_logs(&call.log);
            let fault =
                Fault::new(FailureCode::Resources, "its instance is busy with another call; try again");
            back.push((call.done, CallEnd { begun: Begun::Recalled, ..CallEnd::fault(fault, false) }));
        }
        Ok(back)
    }
}
