// SPDX-License-Identifier: Apache-2.0
//! What was measured: a line a value and number, and the three figures that are promised of all of them.

use super::Kind;
use super::sides::{ARROW, OURS, PEERS, Times};
use crate::figures::{Report, median};

/// From here on a value is a large one.
const LARGE_BYTES_MIN: u64 = 1 << 20;

/// Ours over each of the others, of one value: medians of ratios of the same round.
struct Compared {
    kind: &'static str,
    is_large: bool,
    rounds: usize,
    handed: Vec<Ratio>,
    read: Vec<Ratio>,
}

#[derive(Clone, Copy)]
struct Ratio {
    side: &'static str,
    ours_over: f64,
}

#[derive(Default)]
pub(super) struct Outcome(Vec<Compared>);

impl Outcome {
    /// The rounds have a time for each side that is named, in that order; ours is the first.
    pub(super) fn add(
        &mut self,
        report: &mut Report,
        kind: &Kind,
        bytes: u64,
        names: Vec<&'static str>,
        rounds: &[Vec<Times>],
    ) {
        assert_eq!(names.first(), Some(&OURS), "ratios are of ours");
        let mut ratios = Vec::new();
        for (number, of) in [("handed", handed as fn(&Times) -> f64), ("read", read)] {
            let column = |side: usize| rounds.iter().map(|round| of(&round[side])).collect::<Vec<_>>();
            let others = (1..names.len()).map(|side| format!("{} {}", names[side], spread(column(side))));
            let others = others.collect::<Vec<_>>().join(", ");
            let meaning = format!("{}, {}: {}; {others}", kind.meaning, size(bytes), spread(column(0)));
            let figure = format!("{}_{number}_ms", kind.name);
            report.add(&figure, median(column(0)) / 1e6, "ms", &meaning, rounds.len());
            ratios.push(
                (1..names.len())
                    .map(|side| {
                        let of_rounds = rounds.iter().map(|round| of(&round[0]) / of(&round[side]));
                        Ratio { side: names[side], ours_over: median(of_rounds.collect()) }
                    })
                    .collect::<Vec<_>>(),
            );
        }
        let read = ratios.pop().unwrap_or_default();
        let handed = ratios.pop().unwrap_or_default();
        let is_large = bytes >= LARGE_BYTES_MIN;
        self.0.push(Compared { kind: kind.name, is_large, rounds: rounds.len(), handed, read });
    }

    /// The promised figures, if all peers were there.
    pub(super) fn summarise(&self, report: &mut Report) {
        let keeps_objects = |ratio: &&Ratio| ratio.side != ARROW;
        let large: Vec<_> = self.0.iter().filter(|value| value.is_large).collect();
        let small: Vec<_> = self.0.iter().filter(|value| !value.is_large).collect();
        let has_all = PEERS
            .iter()
            .all(|peer| self.0.iter().any(|value| value.handed.iter().any(|ratio| ratio.side == *peer)));
        if !has_all {
            return;
        }
        let best = |ratios: &[Ratio]| worst_of(ratios.iter().filter(keeps_objects).copied());
        let handed = large.iter().filter_map(|value| Some((*value, best(&value.handed)?)));
        if let Some((value, ratio)) = handed.max_by(|a, b| a.1.ours_over.total_cmp(&b.1.ours_over)) {
            let meaning = format!("{} beside {}, hand-over", value.kind, ratio.side);
            report.add("worst_saving_ge_1m", 1.0 - ratio.ours_over, "x", &meaning, value.rounds);
        }
        let read = large.iter().filter_map(|value| Some((*value, worst_of(value.read.iter().copied())?)));
        if let Some((value, ratio)) = read.max_by(|a, b| a.1.ours_over.total_cmp(&b.1.ours_over)) {
            let meaning =
                format!("{} beside {}, at least 1 MiB, with the first full read", value.kind, ratio.side);
            report.add("worst_over_peer_with_read", ratio.ours_over, "x", &meaning, value.rounds);
        }
        for (figure, sides) in [
            ("small_over_best", None),
            ("small_over_messages", Some("messages")),
            ("small_over_redis", Some("redis")),
            ("small_over_ray", Some("ray")),
        ] {
            let of_sides = |ratio: &&Ratio| sides.is_none_or(|side| side == ratio.side);
            let both = small.iter().flat_map(|value| {
                [(&value.handed, "hand-over"), (&value.read, "with the first full read")].map(
                    |(ratios, number)| (*value, worst_of(ratios.iter().filter(of_sides).copied()), number),
                )
            });
            let there = both.filter_map(|(value, ratio, number)| Some((value, ratio?, number)));
            if let Some((value, ratio, number)) = there.max_by(|a, b| a.1.ours_over.total_cmp(&b.1.ours_over))
            {
                let meaning = format!("{} beside {}, {number}, worst below 1 MiB", value.kind, ratio.side);
                report.add(figure, ratio.ours_over, "x", &meaning, value.rounds);
            }
        }
    }
}

fn handed(times: &Times) -> f64 {
    times.handed
}

fn read(times: &Times) -> f64 {
    times.read
}

/// That with the highest ratio: whoever is fastest beside us.
fn worst_of(ratios: impl Iterator<Item = Ratio>) -> Option<Ratio> {
    ratios.max_by(|a, b| a.ours_over.total_cmp(&b.ours_over))
}

/// The median and quartiles of nanoseconds, in milliseconds.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 4] / 1e6;
    let digits = if median(values.clone()) < 1e7 { 2 } else { 0 };
    format!("{:.digits$} ({:.digits$}–{:.digits$})", median(values.clone()) / 1e6, at(1), at(3))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes pickled"),
        1_000..1_000_000 => format!("{:.1} KB pickled", bytes as f64 / 1e3),
        _ => format!("{:.1} MB pickled", bytes as f64 / 1e6),
    }
}
