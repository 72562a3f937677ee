// SPDX-License-Identifier: Apache-2.0
//! When something is due again and again: cron's five fields, in UTC.

use std::fmt;

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

const LEN_MAX: usize = 256;
/// Names for common schedules.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A schedule: minute, hour, day of the month, month, day of the week.
#[derive(Clone)]
pub struct Schedule {
    text: String,
    cron: Cron,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedule").field(&self.text).finish()
    }
}

impl Schedule {
    /// Reads five fields, or a name like `@hourly`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("{text:?} is no schedule: {why}"));
        if text.len() > LEN_MAX {
            return bad("it is too long");
        }
        let named = NICKNAMES.iter().find(|(name, _)| *name == text);
        if text.starts_with('@') && named.is_none() {
            return bad("known are @yearly, @monthly, @weekly, @daily, @hourly");
        }
        let fields = named.map_or(text, |(_, fields)| fields);
        if fields.split_whitespace().count() != 5 {
            return bad("it has five fields: minute, hour, day of the month, month, day of the week");
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = match parser.parse(fields) {
            Ok(cron) => cron,
            Err(error) => return bad(&error.to_string()),
        };
        let schedule = Self { text: text.to_owned(), cron };
        // The 31st of February never comes.
        if schedule.after(0).is_none() {
            return bad("it is never due");
        }
        Ok(schedule)
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// When it is next due after a time, both in milliseconds since 1970.
    pub fn after(&self, time_ms: u64) -> Option<u64> {
        millis(&self.cron.find_next_occurrence(&date(time_ms)?, false).ok()?)
    }

    /// When it was last due, at a time or before it.
    pub fn before(&self, time_ms: u64) -> Option<u64> {
        millis(&self.cron.find_previous_occurrence(&date(time_ms)?, true).ok()?)
    }
}

fn date(time_ms: u64) -> Option<DateTime<Utc>> {
    // Whole seconds: a schedule knows no others.
    DateTime::from_timestamp(i64::try_from(time_ms / 1000).ok()?, 0)
}

fn millis(date: &DateTime<Utc>) -> Option<u64> {
    u64::try_from(date.timestamp_millis()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// 21 November 2026, 12:34:56.789 UTC, a Saturday.
    const NOW: u64 = 1_795_264_496_789;
    const MINUTE: u64 = 60_000;
    const DAY: u64 = 24 * 60 * MINUTE;
    const MIDNIGHT: u64 = NOW / DAY * DAY;

    #[test]
    fn schedules_are_due_when_cron_says() {
        for (text, after, before) in [
            ("* * * * *", NOW / MINUTE * MINUTE + MINUTE, NOW / MINUTE * MINUTE),
            ("*/15 * * * *", MIDNIGHT + 765 * MINUTE, MIDNIGHT + 750 * MINUTE),
            ("@hourly", MIDNIGHT + 13 * 60 * MINUTE, MIDNIGHT + 12 * 60 * MINUTE),
            ("@daily", MIDNIGHT + DAY, MIDNIGHT),
            ("0 3 * * MON", MIDNIGHT + 2 * DAY + 180 * MINUTE, MIDNIGHT - 5 * DAY + 180 * MINUTE),
            ("0 0 21 11 *", MIDNIGHT + 365 * DAY, MIDNIGHT),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            assert_eq!((schedule.after(NOW), schedule.before(NOW)), (Some(after), Some(before)), "{text}");
            assert_eq!((schedule.before(after), schedule.text()), (Some(after), text));
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        let long = "* ".repeat(200);
        for wrong in ["", "* * * *", "* * * * * *", "60 * * * *", "@often", "a b c d e", "0 0 31 2 *", &long]
        {
            assert!(Schedule::parse(wrong).is_err_and(|why| why.contains("no schedule")), "{wrong}");
        }
    }
}
