// SPDX-License-Identifier: Apache-2.0
//! Sizes and times as people write them: `64MiB`, `1.5 s`.

use std::time::Duration;

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// `value` of a binary unit, in bytes; no unit means bytes. `None`: an
/// unknown unit, or over 2^64.
pub(crate) fn bytes(value: u64, unit: &str) -> Option<u64> {
    let wanted = if unit.is_empty() { "B" } else { unit };
    let known = |name: &str| {
        let short = name.trim_end_matches("iB");
        name.eq_ignore_ascii_case(wanted) || (short != name && short.eq_ignore_ascii_case(wanted))
    };
    let (_, shift) = UNITS.into_iter().find(|(name, _)| known(name))?;
    value.checked_mul(1 << shift)
}

/// A size on the command line. Error: what sizes look like.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let value = text[..end].parse().ok();
    let size = value.and_then(|value| bytes(value, text[end..].trim()));
    size.ok_or_else(|| "a size is written 4096, 64KiB, 64MiB or 2GiB".to_owned())
}

/// A time on the command line: `500ms`, `10s`, `5m`, `1h`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let scale = match &text[end..] {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is written 500ms, 10s, 5m or 1h".to_owned()),
    };
    let seconds = text[..end].trim().parse::<f64>().ok().map(|value| value * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "a time is written 500ms, 10s, 5m or 1h".to_owned())
}

/// A size without loss: the largest unit that divides it.
pub(crate) fn exact(bytes: u64) -> String {
    let fits = |shift: u32| bytes != 0 && bytes.is_multiple_of(1 << shift);
    match UNITS.into_iter().find(|&(_, shift)| shift > 0 && fits(shift)) {
        Some((name, shift)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A size for people.
pub(crate) fn human_bytes(bytes: u64) -> String {
    match UNITS.into_iter().find(|&(_, shift)| shift > 0 && bytes >= 1 << shift) {
        Some((name, shift)) => format!("{:.1} {name}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// A time for people, with three digits.
pub(crate) fn human_time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match time.as_nanos() {
        0..1_000 => return format!("{nanos:.0} ns"),
        1_000..1_000_000 => (nanos / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
