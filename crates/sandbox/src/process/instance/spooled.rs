// SPDX-License-Identifier: Apache-2.0
//! What is written past the language's own streams: by programs that a function starts, by native code, and
//! by the interpreter itself when it breaks.
//!
//! It comes to no call by itself. Where calls run one after the other it is looked for when one ends, and is its;
//! where several run it is told with one that ends a little later, or runs. It is looked for while calls run as well,
//! for whoever prints much waits, and where the instance ends.

use std::time::{Duration, Instant};

use linux::Spool;

use super::Instance;
use crate::process::channel::Turn;
use crate::process::language::Language;

/// How often it is looked for while calls run, and at the ends of calls where several do.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What the last words may have beyond what a call may print.
const LAST_WORDS: usize = 16 << 10;

/// Where it is written, and when that was last looked at. Whoever writes more than fits waits for that.
pub(super) struct Spooled {
    spool: Spool,
    looked: Instant,
    /// The call of which something was thrown away, and that says so.
    cut: Option<Turn>,
}

impl Spooled {
    pub(super) fn spool(&mut self) -> &mut Spool {
        &mut self.spool
    }
}

impl Instance {
    /// Before a function is loaded: has its process write there.
    pub(super) fn spools(&mut self) {
        if !Language::INTERPRETED.contains(&self.terms.language) {
            // The adapter of an executable reads it itself.
            return;
        }
        match Spool::create() {
            Ok((spool, writer)) => {
                if self.channel.prints(writer).is_ok() {
                    self.spooled = Some(Spooled { spool, looked: Instant::now(), cut: None });
                }
            }
            Err(error) => {
                let note = format!("[what programs and libraries print here is lost: no pipe: {error}]\n");
                _ = self.channel.keep_idle_log(true, note.as_bytes());
            }
        }
    }

    /// A call ends: what was written is its own, if it is looked for.
    pub(super) fn take_spooled(&mut self, place: usize, now: Instant) {
        let Some(spooled) = &self.spooled else { return };
        if self.is_serial || now.saturating_duration_since(spooled.looked) >= LOOK_EVERY {
            self.take_spooled_now(place, now, 0);
        }
    }

    /// Calls run, maybe for long: what was written so far is the oldest one's. To be done every now and then.
    pub(crate) fn look_at_spooled(&mut self, now: Instant) {
        let is_due = |spooled: &Spooled| now.saturating_duration_since(spooled.looked) >= LOOK_EVERY / 2;
        if self.spooled.as_ref().is_some_and(is_due) {
            self.take_spooled_now(0, now, 0);
        }
    }

    /// How long it may be left alone while calls run.
    pub(super) fn looks_within(&self) -> Option<Duration> {
        self.spooled.is_some().then_some(LOOK_EVERY)
    }

    /// Nothing more will be written. What says why has room, also where too much was printed before.
    pub(super) fn take_last_spooled(&mut self) {
        self.take_spooled_now(0, Instant::now(), LAST_WORDS);
    }

    fn take_spooled_now(&mut self, place: usize, now: Instant, more: usize) {
        let (Some(spooled), Some(call)) = (&mut self.spooled, self.under_way.get_mut(place)) else { return };
        spooled.looked = now;
        if spooled.cut == Some(call.turn) && more == 0 {
            // It may print no more: nobody need read it. If that fails, its writer waits.
            _ = spooled.spool.discard();
            return;
        }
        let most = self.terms.bounds.log_bytes_max;
        let room = usize::try_from(most.saturating_sub(call.log.len() as u64)).unwrap_or(usize::MAX);
        let Ok(taken) = spooled.spool.take() else { return };
        let (begin, rest) = taken.split_at(room.min(taken.len()));
        call.log.add(true, begin, now);
        if !rest.is_empty() && spooled.cut != Some(call.turn) {
            spooled.cut = Some(call.turn);
            spooled.spool.widen();
            call.log.add(true, format!("\n[output over {most} bytes was dropped]\n").as_bytes(), now);
        }
        // Of what breaks, the last is what says why.
        call.log.add(true, &rest[rest.len().saturating_sub(more)..], now);
    }
}
