// SPDX-License-Identifier: Apache-2.0
//! Values of a manifest as numbers, sizes, times and texts. What is wrong is
//! noted, and the reading goes on, so that one run tells all faults.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Fault;
use super::variables;
use crate::expression::closest;
use crate::quantity::{parse_bytes, parse_duration};

type Value<'a> = Spanned<DeValue<'a>>;

/// Items of a list, at most.
const ITEMS_MAX: usize = 1000;

/// The faults so far, and what `${NAME}` stands for.
pub(super) struct Reader<'v> {
    pub(super) faults: Vec<Fault>,
    variable: &'v dyn Fn(&str) -> Option<String>,
}

impl<'v> Reader<'v> {
    pub(super) fn new(variable: &'v dyn Fn(&str) -> Option<String>) -> Self {
        Self { faults: Vec::new(), variable }
    }

    /// Notes a fault. `None`, for a reader's last line.
    pub(super) fn fault<T>(&mut self, place: Range<usize>, message: impl Into<String>) -> Option<T> {
        self.faults.push(Fault::new(place, message));
        None
    }

    /// Notes a name that nobody knows, and the one that may have been meant.
    pub(super) fn unknown(&mut self, name: &str, place: Range<usize>, what: &str, known: &[&str]) {
        let fault = Fault::new(place, format!("unknown {what} `{}`", name.escape_debug()));
        self.faults.push(match closest(name, known.iter().copied()) {
            Some(near) => fault.hint(format!("did you mean `{near}`?")),
            None => fault.hint(format!("known are: {}", known.join(", "))),
        });
    }

    fn wrong<T>(&mut self, value: &Value<'_>, wanted: &str) -> Option<T> {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(value.span(), format!("this is {found}; expected is {wanted}"))
    }

    pub(super) fn table<'t, 'a>(&mut self, value: &'t Value<'a>) -> Option<&'t DeTable<'a>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => self.wrong(value, "a table"),
        }
    }

    /// A string, with its variables replaced.
    pub(super) fn text(&mut self, value: &Value<'_>) -> Option<String> {
        let DeValue::String(text) = value.get_ref() else { return self.wrong(value, "a string in quotes") };
        match variables::replace(text, self.variable) {
            Ok(text) => Some(text),
            Err(message) => {
                let hint = "set it, or give a default: ${NAME:-default}";
                self.faults.push(Fault::new(value.span(), message).hint(hint));
                None
            }
        }
    }

    pub(super) fn texts(&mut self, value: &Value<'_>) -> Option<Vec<(String, Range<usize>)>> {
        let DeValue::Array(items) = value.get_ref() else { return self.wrong(value, "a list of strings") };
        if items.len() > ITEMS_MAX {
            return self.fault(value.span(), format!("a list has at most {ITEMS_MAX} items"));
        }
        // Every item is looked at, though one of them may be wrong.
        let texts: Vec<_> =
            items.iter().map(|item| self.text(item).map(|text| (text, item.span()))).collect();
        texts.into_iter().collect()
    }

    pub(super) fn switch(&mut self, value: &Value<'_>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong(value, "true or false, without quotes"),
        }
    }

    /// A whole number within bounds.
    pub(super) fn count(&mut self, value: &Value<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(digits) = value.get_ref() else { return self.wrong(value, "a whole number") };
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        match number.filter(|number| bounds.contains(number)) {
            Some(number) => Some(number),
            None => {
                let message = format!("expected is a number from {} to {}", bounds.start(), bounds.end());
                self.fault(value.span(), message)
            }
        }
    }

    /// Bytes: `"512 MiB"`, or a number of them.
    pub(super) fn size(&mut self, value: &Value<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        if matches!(value.get_ref(), DeValue::Integer(_)) {
            return self.count(value, bounds);
        }
        let DeValue::String(_) = value.get_ref() else {
            return self.wrong(value, "a size, like \"512 MiB\"");
        };
        match parse_bytes(self.text(value)?.trim()) {
            Ok(bytes) if bounds.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let [least, most] =
                    [bounds.start(), bounds.end()].map(|&bytes| crate::quantity::exact(bytes));
                self.fault(value.span(), format!("expected is a size from {least} to {most}"))
            }
            Err(message) => self.fault(value.span(), message),
        }
    }

    /// Milliseconds of a time: `"60s"`, or a number of seconds.
    pub(super) fn time_ms(&mut self, value: &Value<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        let time = match value.get_ref() {
            DeValue::String(_) => parse_duration(self.text(value)?.trim()),
            DeValue::Integer(_) => Ok(Duration::from_secs(self.count(value, 0..=bounds.end() / 1000)?)),
            DeValue::Float(seconds) => parse_duration(seconds.as_str()),
            _ => return self.wrong(value, "a time, like \"60s\""),
        };
        match time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)) {
            Ok(ms) if bounds.contains(&ms) => Some(ms),
            Ok(_) => {
                let message =
                    format!("expected is a time from {} ms to {} s", bounds.start(), bounds.end() / 1000);
                self.fault(value.span(), message)
            }
            Err(message) => self.fault(value.span(), message),
        }
    }

    /// A number of processors, as a percentage of one.
    pub(super) fn processors_percent(&mut self, value: &Value<'_>, most: u64) -> Option<u64> {
        let text = match value.get_ref() {
            DeValue::Integer(digits) => digits.to_string(),
            DeValue::Float(digits) => digits.as_str().to_owned(),
            _ => return self.wrong(value, "a number of processors, like 0.5 or 2"),
        };
        let percent = text.parse::<f64>().ok().map(|processors| (processors * 100.0).round());
        // In these bounds the number is whole and fits.
        match percent.filter(|percent| (1.0..=most as f64).contains(percent)) {
            Some(percent) => Some(percent as u64),
            None => {
                let message = format!("expected is a number of processors from 0.01 to {}", most / 100);
                self.fault(value.span(), message)
            }
        }
    }
}
