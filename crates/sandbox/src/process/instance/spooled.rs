// SPDX-License-Identifier: Apache-2.0
//! What is written past the language's own streams: by programs that a function starts, by native code, and
//! by the interpreter itself when it breaks.
//!
//! It comes to no call by itself: it is told as printed by the one that has run for longest when it is found. It
//! is looked for while calls run, where they end, and where the instance does; but not at the end of each of very
//! many that are brief, for that costs a system call.

use std::time::{Duration, Instant};

use linux::Spool;

use super::Instance;
use crate::process::language::Language;

/// How often it is looked for where calls are brief.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After a call that took so long it is looked for whatever was before.
const LONG: Duration = Duration::from_millis(1);

/// Where it is written, and when that was last looked at. Whoever writes more than fits waits for that.
pub(super) struct Spooled {
    spool: Spool,
    looked: Instant,
}

impl Instance {
    /// Before a function is loaded: has its process write there.
    pub(super) fn spools(&mut self) {
        if !Language::INTERPRETED.contains(&self.terms.language) {
            // The adapter of an executable reads it itself.
            return;
        }
        // Without it, what is written there is lost.
        let Ok((spool, writer)) = Spool::create() else { return };
        if self.channel.prints(writer).is_ok() {
            self.spooled = Some(Spooled { spool, looked: Instant::now() });
        }
    }

    /// A call ends: what was written is its own, if it is looked for.
    pub(super) fn take_spooled(&mut self, place: usize, now: Instant) {
        let (Some(spooled), Some(call)) = (&self.spooled, self.under_way.get(place)) else { return };
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(spooled.looked) >= LOOK_EVERY || since(call.came) >= LONG {
            self.take_spooled_now(place, now);
        }
    }

    /// Calls run, maybe for long: what was written so far is the oldest one's. To be done every now and then, for
    /// whoever writes much waits.
    pub(crate) fn look_at_spooled(&mut self, now: Instant) {
        let is_due = |spooled: &Spooled| now.saturating_duration_since(spooled.looked) >= LOOK_EVERY / 2;
        if self.spooled.as_ref().is_some_and(is_due) {
            self.take_spooled_now(0, now);
        }
    }

    /// How long it may be left alone while calls run.
    pub(super) fn looks_within(&self) -> Option<Duration> {
        self.spooled.is_some().then_some(LOOK_EVERY)
    }

    /// Nothing more will be written.
    pub(super) fn take_last_spooled(&mut self) {
        self.take_spooled_now(0, Instant::now());
    }

    /// No call has begun here.
    pub(super) fn take_spooled_of_nobody(&mut self) {
        let most = usize::try_from(self.terms.bounds.log_bytes_max).unwrap_or(usize::MAX);
        if let Some(spooled) = &mut self.spooled
            && let Ok(taken) = spooled.spool.take(most)
        {
            // It is told if there is room for it.
            _ = self.channel.keep_idle_log(true, &taken.bytes);
        }
    }

    fn take_spooled_now(&mut self, place: usize, now: Instant) {
        let (Some(spooled), Some(call)) = (&mut self.spooled, self.under_way.get_mut(place)) else { return };
        spooled.looked = now;
        let most = self.terms.bounds.log_bytes_max;
        let room = usize::try_from(most.saturating_sub(call.log.len() as u64)).unwrap_or(usize::MAX);
        let Ok(taken) = spooled.spool.take(room) else { return };
        call.log.add(true, &taken.bytes, now);
        if taken.left_out > 0 && room > 0 {
            call.log.add(true, format!("\n[output over {most} bytes was dropped]\n").as_bytes(), now);
        }
    }
}
