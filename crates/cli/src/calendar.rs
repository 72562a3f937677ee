// SPDX-License-Identifier: Apache-2.0
//! Times as people read them, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1970 to the end of the year 9999.
const END_S: u64 = 253_402_300_799;
const DAY_S: u64 = 86_400;
/// From the first of March of the year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

/// Year, month and day, and the seconds of that day.
fn parts(seconds: u64) -> (u64, u64, u64, u64) {
    // Years begin in March, so that the day which some have more is the last.
    let days = seconds / DAY_S + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day, seconds % DAY_S)
}

/// A time for people. One that no clock has told is shown as it is.
pub(crate) fn date(seconds: u64) -> String {
    if seconds > END_S {
        return format!("{seconds} s after 1970");
    }
    let (year, month, day, rest) = parts(seconds);
    format!("{year:04}-{month:02}-{day:02} {} UTC", of_day(rest))
}

/// A time as a name: in order, and a label's.
pub(crate) fn stamp(seconds: u64) -> String {
    let (year, month, day, rest) = parts(seconds);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The time of day, to the millisecond; with the date if it is not today's.
pub(crate) fn clock(us: u64) -> String {
    let (year, month, day, rest) = parts(us / 1_000_000);
    let time = format!("{}.{:03}Z", of_day(rest), us / 1000 % 1000);
    if us / 1_000_000 / DAY_S == now().as_secs() / DAY_S {
        return time;
    }
    format!("{year}-{month:02}-{day:02} {time}")
}

fn of_day(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Since 1970, by the clock of this machine.
#[expect(clippy::disallowed_methods, reason = "people ask by the time of day")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_calendars_do() {
        for (seconds, told) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (58 * DAY_S, "1970-02-28 00:00:00 UTC"),
            (59 * DAY_S, "1970-03-01 00:00:00 UTC"),
            (364 * DAY_S, "1970-12-31 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_442_719, "2026-11-23 14:05:19 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (END_S, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(seconds), told);
        }
        assert_eq!(stamp(1_795_442_719), "20261123T140519Z");
        assert_eq!(date(u64::MAX), format!("{} s after 1970", u64::MAX));
        stamp(u64::MAX);
    }

    #[test]
    fn of_today_the_time_is_enough() {
        let now = u64::try_from(now().as_micros()).unwrap();
        assert_eq!(clock(now).len(), "15:00:00.123Z".len());
        assert_eq!(clock(1_795_442_719_250_000), "2026-11-23 14:05:19.250Z");
        clock(u64::MAX);
    }
}
