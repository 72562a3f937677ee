// SPDX-License-Identifier: Apache-2.0
//! Progress on stderr: redrawn on a terminal, plain lines elsewhere if asked
//! for, otherwise nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;
use crate::quantity;

const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a clock moves.
const TICK: Duration = Duration::from_millis(100);

/// How progress is shown.
enum Screen {
    None,
    Terminal(ProgressBar),
    Lines { next: Instant },
}

/// What a command has done so far.
pub(crate) struct Progress {
    screen: Screen,
    what: String,
    bytes: u64,
    total: Option<u64>,
    begun: Instant,
    pace: Pace,
}

impl Progress {
    /// Bytes on their way, of a total if it is known. Shown on terminals only,
    /// unless `wanted`.
    pub(crate) fn bytes(output: &Output, what: &str, total: Option<u64>, wanted: bool) -> Self {
        const TEMPLATE: &str = "{msg} {bytes}/{total_bytes} {bar:30} {bytes_per_sec}, {eta} left";
        const ENDLESS: &str = "{spinner} {msg} {bytes} {bytes_per_sec}";
        let template = if total.is_some() { TEMPLATE } else { ENDLESS };
        Self::new(output, what, total, wanted, template)
    }

    /// An evaluation, whose end nobody knows.
    pub(crate) fn evaluation(output: &Output, wanted: bool) -> Self {
        Self::new(output, "evaluating", None, wanted, "{spinner} {msg} {elapsed}")
    }

    /// Something of which only the time is known.
    pub(crate) fn time(output: &Output, what: &str) -> Self {
        let progress = Self::new(output, what, None, false, "{spinner} {msg} {elapsed}");
        if let Screen::Terminal(bar) = &progress.screen {
            bar.enable_steady_tick(TICK);
        }
        progress
    }

    /// Things, of which [`Progress::reach`] tells how many there are.
    pub(crate) fn things(output: &Output, what: &str) -> Self {
        const TEMPLATE: &str = "{human_pos} of {human_len} {msg} {bar:30} {per_sec}, {eta} left";
        Self::new(output, what, Some(0), false, TEMPLATE)
    }

    /// Files, of which [`Progress::tally`] tells how many are done.
    pub(crate) fn files(output: &Output, all: u64, wanted: bool) -> Self {
        const TEMPLATE: &str = "{human_pos} of {human_len} files {bar:30} {msg}";
        Self::new(output, "", Some(all), wanted, TEMPLATE)
    }

    /// So many files have ended.
    pub(crate) fn tally(&mut self, tally: Tally, output: &Output) {
        if !self.is_shown() {
            return;
        }
        self.pace.see(tally.done, self.begun.elapsed());
        let text = tally_text(tally, self.pace.per_second());
        match &mut self.screen {
            Screen::None => {}
            Screen::Terminal(bar) => {
                bar.set_position(tally.done);
                bar.set_message(text);
            }
            Screen::Lines { next } => {
                if due(next) {
                    output.say(&format!(
                        "{} of {} files, {text}",
                        quantity::grouped(tally.done),
                        quantity::grouped(tally.all)
                    ));
                }
            }
        }
    }

    /// Steps, of which [`Progress::stage`] tells how many there are, and what runs.
    pub(crate) fn stages(output: &Output, what: &str, wanted: bool) -> Self {
        const TEMPLATE: &str = "{human_pos} of {human_len} steps {bar:30} {elapsed} {wide_msg}";
        Self::new(output, what, Some(0), wanted, TEMPLATE)
    }

    /// So far it is.
    pub(crate) fn stage(&mut self, stage: Stage, output: &Output) {
        let Stage { done, all, text } = stage;
        match &mut self.screen {
            Screen::None => {}
            Screen::Terminal(bar) => {
                bar.set_length(all);
                bar.set_position(done);
                bar.set_message(text);
            }
            Screen::Lines { next } => {
                if due(next) {
                    output.say(&format!(
                        "{} of {} steps, {text}",
                        quantity::grouped(done),
                        quantity::grouped(all)
                    ));
                }
            }
        }
    }

    /// Clears the terminal's line for something that is printed; the next news draw it again.
    pub(crate) fn aside(&self) {
        if let Screen::Terminal(bar) = &self.screen {
            bar.suspend(|| ());
        }
    }

    /// So many of so many things are done.
    pub(crate) fn reach(&self, done: u64, all: u64) {
        if let Screen::Terminal(bar) = &self.screen {
            bar.set_length(all);
            bar.set_position(done);
        }
    }

    fn new(output: &Output, what: &str, total: Option<u64>, wanted: bool, template: &str) -> Self {
        let screen = if output.is_terminal() && !output.is_json() {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            // A constant template; without it the bar has its usual looks.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            Screen::Terminal(bar)
        } else if wanted {
            Screen::Lines { next: Instant::now() + LINE_INTERVAL }
        } else {
            Screen::None
        };
        Self { screen, what: what.to_owned(), bytes: 0, total, begun: Instant::now(), pace: Pace::default() }
    }

    /// Whether anybody looks.
    pub(crate) fn is_shown(&self) -> bool {
        !matches!(self.screen, Screen::None)
    }

    /// Some bytes more.
    pub(crate) fn advance(&mut self, bytes: u64, output: &Output) {
        self.bytes += bytes;
        match &mut self.screen {
            Screen::None => {}
            Screen::Terminal(bar) => bar.set_position(self.bytes),
            Screen::Lines { next } => {
                if due(next) {
                    let total = self.total.map(|total| format!(" of {}", quantity::human_bytes(total)));
                    let done = quantity::human_bytes(self.bytes);
                    output.say(&format!("{}: {done}{}", self.what, total.unwrap_or_default()));
                }
            }
        }
    }

    /// A line from the node about an evaluation.
    pub(crate) fn tell(&mut self, told: Told, output: &Output) {
        let text = evaluation_text(told, self.begun.elapsed());
        match &mut self.screen {
            Screen::None => {}
            Screen::Terminal(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            Screen::Lines { next } => {
                if due(next) {
                    output.say(&format!("{text}, {}", elapsed_text(self.begun.elapsed())));
                }
            }
        }
    }

    /// Clears the terminal's line.
    pub(crate) fn end(&mut self) {
        if let Screen::Terminal(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the node says of an evaluation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// Applications begun.
    pub(crate) applied: u64,
    /// Evaluations of the whole node that wait.
    pub(crate) waiting: u64,
    /// Computations found to be needed so far.
    pub(crate) known: u64,
    /// Those of them that have results.
    pub(crate) done: u64,
    /// Results that were remembered.
    pub(crate) memo_hits: u64,
}

/// How far a run of steps is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) done: u64,
    pub(crate) all: u64,
    /// What runs.
    pub(crate) text: String,
}

/// How many files have ended, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) all: u64,
    pub(crate) done: u64,
    /// Done, and not run, since the result was remembered.
    pub(crate) remembered: u64,
    /// Done, and failed.
    pub(crate) failed: u64,
}

/// How quickly it went lately: what is remembered goes by at once, and says nothing of what is not.
#[derive(Debug, Default)]
struct Pace {
    /// What was done when, the last ones.
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// How far back it looks.
    const WINDOW: Duration = Duration::from_secs(20);

    fn see(&mut self, done: u64, now: Duration) {
        if self.seen.back().is_some_and(|&(last, _)| now.saturating_sub(last) < TICK) {
            return;
        }
        self.seen.push_back((now, done));
        // One that is older stays, so that there is always a time to look at.
        while self.seen.get(1).is_some_and(|&(then, _)| now.saturating_sub(then) > Self::WINDOW) {
            self.seen.pop_front();
        }
    }

    /// `None` as long as nothing can be said.
    fn per_second(&self) -> Option<f64> {
        let (&(from, before), &(to, after)) = (self.seen.front()?, self.seen.back()?);
        let seconds = to.saturating_sub(from).as_secs_f64();
        (seconds >= 1.0 && after > before).then(|| (after - before) as f64 / seconds)
    }
}

fn tally_text(tally: Tally, per_second: Option<f64>) -> String {
    let mut parts = Vec::new();
    if tally.remembered > 0 {
        parts.push(format!("{} remembered", quantity::grouped(tally.remembered)));
    }
    if tally.failed > 0 {
        parts.push(format!("{} failed", quantity::grouped(tally.failed)));
    }
    if let Some(rate) = per_second {
        let digits = usize::from(rate < 10.0);
        parts.push(format!("{rate:.digits$}/s"));
        let left =
            Duration::try_from_secs_f64((tally.all - tally.done) as f64 / rate).unwrap_or(Duration::MAX);
        parts.push(format!("{} left", elapsed_text(left)));
    }
    if parts.is_empty() {
        parts.push("begun".to_owned());
    }
    parts.join(", ")
}

/// The same in words. As long as nothing waits, what was asked for is itself
/// what runs, though no number of the node's counts it.
fn evaluation_text(told: Told, elapsed: Duration) -> String {
    let grouped = quantity::grouped;
    let mut parts = Vec::new();
    if told.known > 0 {
        parts.push(format!("{} of {} done", grouped(told.done), grouped(told.known)));
    }
    if told.applied > 0 {
        // Of the whole time: nothing jumps, and it is what the end depends on.
        let rate = told.applied.checked_div(elapsed.as_secs()).filter(|&rate| rate > 0);
        let rate = rate.map(|rate| format!(" ({}/s)", grouped(rate))).unwrap_or_default();
        parts.push(format!("{} applied{rate}", grouped(told.applied)));
    }
    if told.memo_hits > 0 {
        parts.push(format!("{} remembered", grouped(told.memo_hits)));
    }
    parts.push(match told.waiting {
        0 => "1 running".to_owned(),
        waiting => format!("{} waiting", grouped(waiting)),
    });
    parts.join(", ")
}

/// Whole seconds; minutes too, where there are some.
fn elapsed_text(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

fn due(next: &mut Instant) -> bool {
    let now = Instant::now();
    let due = now >= *next;
    if due {
        *next = now + LINE_INTERVAL;
    }
    due
}

#[cfg(test)]
mod tests;
