// SPDX-License-Identifier: Apache-2.0
//! Calls that follow one another in an instance (decision 0108). They stand in line from the beginning, and are sent with the
//! call that they follow, in one argument more:
//!
//! ```text
//! bytes u64 of memory that the instance may have; then of each follower: turn u32; u8, 1 if it may begin
//! after a result that is copied for it; bytes u64 that it needs of memory if it may be given the result itself (decision 0110), else
//! 0; and length u32 and bytes of its handler, of what it is told of its request, and of its arguments
//! ```
//!
//! The argument that is missing is the result of the one before, as that was answered. After an answer that is no result,
//! after a result that is not in the answer itself, and where the instance says so, none of the rest is begun.

use std::num::NonZeroU64;
use std::time::Instant;

use super::{Answer, Argument, Broken, Done, Instance, Others, Target, Turn, UnderWay};
use crate::Follower;
use crate::printed::Printed;

/// A call that is to follow another one, and what is done with its end. That is not told where another one before it has not
/// been followed.
pub(crate) struct Following {
    pub(crate) call: Follower,
    pub(crate) done: Done,
}

impl Instance {
    /// Queues a call, with what follows it.
    pub(super) fn call(
        &mut self,
        turn: Turn,
        arguments: &[Argument<'_>],
        target: Option<&Target>,
        following: &[Following],
    ) -> Result<(), Broken> {
        // Where calls are served beside each other, none follows another.
        if following.is_empty() || !self.is_serial {
            return self.channel.call(turn, arguments, target, false);
        }
        let told = told(turn, self.terms.memory_bytes, following.iter().map(|one| &one.call));
        let mut arguments = arguments.to_vec();
        arguments.push(Argument { bytes: &told, descriptor: None });
        self.channel.call(turn, &arguments, target, true)
    }

    /// The call that was sent last is followed by these.
    pub(super) fn is_followed_by(&mut self, following: Vec<Following>, now: Instant) {
        if !self.is_serial {
            return;
        }
        for Following { call, done } in following {
            let others = Others { callees: call.callees, ..Others::default() };
            // How long it may take counts from when its turn comes.
            let times = (now, now + self.terms.call_timeout);
            let turn = self.next_turn();
            let call = UnderWay::new(turn, times, Printed::default(), others, done);
            self.under_way.push(UnderWay { follows: true, ..call });
        }
    }

    /// What follows a call of this turn is not begun.
    pub(super) fn alone(&mut self, turn: Turn) -> Result<(), Broken> {
        let call = self.under_way.first_mut().filter(|call| call.turn == turn);
        call.ok_or(Broken::Lie("what follows no call"))?.is_alone = true;
        Ok(())
    }

    /// Whether the instance goes on with what followed the call that was answered, and stood at this place. Otherwise nobody
    /// waits for it here any more.
    pub(super) fn goes_on_with(&mut self, place: usize, call: &mut UnderWay, answer: &Answer) -> bool {
        let behind = self.under_way.iter().skip(place).take_while(|next| next.follows).count();
        if behind == 0 {
            return false;
        }
        if call.is_alone || !matches!(answer, Answer::Result(_)) {
            self.under_way.drain(place..place + behind);
            return false;
        }
        let next = &mut self.under_way[place];
        if call.keeps_target {
            // It has it, and goes on with it.
            next.target = call.target.take().map(|target| Target { is_kept: true, ..target });
            next.others.target = call.others.target.clone();
        }
        true
    }
}

/// What an instance is told of what follows a call of this turn.
fn told<'a>(turn: Turn, memory_bytes: u64, following: impl Iterator<Item = &'a Follower>) -> Vec<u8> {
    let mut told = memory_bytes.to_le_bytes().to_vec();
    let mut turn = turn;
    for Follower { handler, head, arguments, is_brief, given_within, .. } in following {
        turn = turn.checked_add(1).unwrap_or(super::OUTSIDE + 1);
        told.extend(turn.to_le_bytes());
        told.push(u8::from(*is_brief));
        told.extend(given_within.map_or(0, NonZeroU64::get).to_le_bytes());
        for part in [handler.as_bytes(), head, arguments] {
            told.extend((part.len() as u32).to_le_bytes());
            told.extend(part);
        }
    }
    told
}
