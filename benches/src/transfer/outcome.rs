// SPDX-License-Identifier: Apache-2.0
//! What was measured: a line a value and number, and the figures that are promised of all of them.

use super::Kind;
use super::sides::{APART, ARROW, MESSAGES, OURS, PEERS, Times};
use crate::figures::{Report, median};

/// From here on a value is a large one.
const LARGE_BYTES_MIN: u64 = 1 << 20;

/// The two numbers of each value.
const NUMBERS: [Number; 2] = [
    Number { name: "handed", meaning: "hand-over", of: |times| times.handed },
    Number { name: "read", meaning: "with the first full read", of: |times| times.read },
];

struct Number {
    name: &'static str,
    meaning: &'static str,
    of: fn(&Times) -> f64,
}

/// Ours over another side, of one value and number: the median of ratios of the same round.
#[derive(Debug, Clone, PartialEq)]
struct Ratio {
    kind: &'static str,
    is_large: bool,
    number: &'static str,
    side: &'static str,
    ours_over: f64,
    rounds: usize,
}

#[derive(Default)]
pub(super) struct Outcome(Vec<Ratio>);

impl Outcome {
    /// The rounds have a time for each side that is named, in that order; ours is the first.
    pub(super) fn add(
        &mut self,
        report: &mut Report,
        kind: &Kind,
        bytes: u64,
        names: &[&'static str],
        rounds: &[Vec<Times>],
    ) {
        assert_eq!(names.first(), Some(&OURS), "ratios are of ours");
        for number in &NUMBERS {
            let column =
                |side: usize| rounds.iter().map(|round| (number.of)(&round[side])).collect::<Vec<_>>();
            let mut told = format!("{}, {}: {}", kind.meaning, pickled(bytes), spread(column(0)));
            for (at, side) in names.iter().enumerate().skip(1) {
                told.push_str(&format!(", {side} {}", spread(column(at))));
                self.0.push(Ratio {
                    kind: kind.name,
                    is_large: bytes >= LARGE_BYTES_MIN,
                    number: number.meaning,
                    side,
                    ours_over: median(
                        column(0).iter().zip(column(at)).map(|(ours, its)| ours / its).collect(),
                    ),
                    rounds: rounds.len(),
                });
            }
            let figure = format!("{}_{}_ms", kind.name, number.name);
            report.add(&figure, median(column(0)) / 1e6, "ms", &told, rounds.len());
        }
    }

    /// The promised figures, if all peers were there.
    pub(super) fn summarise(&self, report: &mut Report) {
        if !PEERS.iter().all(|peer| self.0.iter().any(|ratio| ratio.side == *peer)) {
            return;
        }
        let [handed, read] = NUMBERS.map(|number| number.meaning);
        let is_large_one = |ratio: &Ratio, number: &str| ratio.is_large && ratio.number == number;
        let mut add = |figure: &str, value: fn(f64) -> f64, worst: Option<&Ratio>| {
            let Some(ratio) = worst else { return };
            let meaning = format!("{} beside {}, {}", ratio.kind, ratio.side, ratio.number);
            report.add(figure, value(ratio.ours_over), "x", &meaning, ratio.rounds);
        };
        let objects = self.worst(|ratio| is_large_one(ratio, handed) && ratio.side != ARROW);
        add("worst_saving_ge_1m", |ours_over| 1.0 - ours_over, objects);
        add(
            "worst_over_peer_with_read",
            |ours_over| ours_over,
            self.worst(|ratio| is_large_one(ratio, read)),
        );
        add("small_over_best", |ours_over| ours_over, self.worst(|ratio| !ratio.is_large));
        for side in [MESSAGES, "redis", "ray"] {
            let worst = self.worst(|ratio| !ratio.is_large && ratio.side == side);
            add(&format!("small_over_{side}"), |ours_over| ours_over, worst);
        }
        let mut add = |figure: &str, value: fn(f64) -> f64, worst: Option<(f64, &Ratio)>| {
            let Some((over_best, apart)) = worst else { return };
            let meaning = format!("{}, from one instance to another one, {}", apart.kind, apart.number);
            report.add(figure, value(over_best), "x", &meaning, apart.rounds);
        };
        let is_object = |ratio: &Ratio| is_large_one(ratio, handed) && ratio.side != ARROW;
        add("worst_saving_apart_ge_1m", |over_best| 1.0 - over_best, self.worst_apart(is_object));
        let with_read = self.worst_apart(|ratio| is_large_one(ratio, read));
        add("worst_apart_over_peer_with_read", |over_best| over_best, with_read);
        add("small_apart_over_best", |over_best| over_best, self.worst_apart(|ratio| !ratio.is_large));
    }

    /// Where ours is slowest beside another one: the best peer of the worst value.
    fn worst(&self, is_meant: impl Fn(&Ratio) -> bool) -> Option<&Ratio> {
        let peers = self.0.iter().filter(|ratio| ratio.side != APART && is_meant(ratio));
        peers.max_by(|a, b| a.ours_over.total_cmp(&b.ours_over))
    }

    /// The same of steps that do not follow one another in an instance: how often as long it takes as the best peer.
    fn worst_apart(&self, is_meant: impl Fn(&Ratio) -> bool) -> Option<(f64, &Ratio)> {
        let apart = self.0.iter().filter(|ratio| ratio.side == APART && is_meant(ratio));
        let over_best = apart.filter_map(|apart| {
            let is_beside = |ratio: &Ratio| ratio.kind == apart.kind && ratio.number == apart.number;
            let best = self.worst(|ratio| is_meant(ratio) && is_beside(ratio))?;
            Some((best.ours_over / apart.ours_over, apart))
        });
        over_best.max_by(|(a, _), (b, _)| a.total_cmp(b))
    }
}

/// The median and quartiles of nanoseconds, in milliseconds.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let quartile = |number: usize| values[(values.len() - 1) * number / 4] / 1e6;
    let middle = median(values.clone()) / 1e6;
    let digits = if middle < 10.0 { 2 } else { 0 };
    format!("{middle:.digits$} ({:.digits$}–{:.digits$})", quartile(1), quartile(3))
}

fn pickled(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes pickled"),
        1_000..1_000_000 => format!("{:.1} KB pickled", bytes as f64 / 1e3),
        _ => format!("{:.1} MB pickled", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests;
