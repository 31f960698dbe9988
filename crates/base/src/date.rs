//! Dates of the proleptic Gregorian calendar in UTC, as logs and files write them (RFC 3339), from and to seconds since
//! 1970. UTC is the only time zone, and leap seconds do not exist. The caller reads the clock.

use std::time::Duration;

/// Formats the time since 1970 as `2026-11-22T06:40:00.123Z`. A year beyond 9999 has no such form: the result is then
/// the last millisecond of 9999.
pub fn rfc3339(since: Duration) -> String {
    /// The second 9999-12-31T23:59:59 since 1970.
    const LAST: u64 = 253_402_300_799;
    let (seconds, millis) = match since.as_secs() {
        seconds if seconds > LAST => (LAST, 999),
        seconds => (seconds, since.subsec_millis()),
    };
    let (year, month, day) = civil_from_days(seconds / SECONDS_PER_DAY);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Parses `2026-12-31` (its first moment) or `2026-12-31T12:00:00Z` into the time since 1970; `None` for any other
/// text.
pub fn parse(text: &str) -> Option<Duration> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time.strip_suffix('Z')?)),
        None => (text, None),
    };
    let [year, month, day] = parse_numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = time.map_or(Some([0; 3]), |time| parse_numbers(time, ':', [2, 2, 2]))?;
    if year < 1970 || !(1..=12).contains(&month) || day < 1 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day that the month does not have comes back as another date.
    (civil_from_days(days) == (year, month, day))
        .then(|| Duration::from_secs(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second))
}

const SECONDS_PER_DAY: u64 = 86_400;

/// Days from 1 March of year 0, the start of the algorithm's year, to 1 January 1970.
const DAYS_TO_1970: u64 = 719_468;

/// Days of 400 years, the period of the calendar.
const DAYS_PER_ERA: u64 = 146_097;

fn parse_numbers(text: &str, separator: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part =
            parts.next().filter(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns the days since 1970 of a date (H. Hinnant, chrono-compatible low-level date algorithms, days_from_civil).
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_TO_1970
}

/// Returns the date of a day since 1970 (the same source, civil_from_days).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_formatted_by_rfc_3339() {
        let at = |milliseconds| rfc3339(Duration::from_millis(milliseconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_795_329_723_456), "2026-11-22T06:42:03.456Z");
        assert_eq!(at(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn dates_are_read_back_and_invalid_text_is_rejected() {
        for seconds in [0, 951_782_400, 1_795_329_723, 4_107_542_399] {
            let text = rfc3339(Duration::from_secs(seconds)).replace(".000Z", "Z");
            assert_eq!(parse(&text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("2026-12-31"), parse("2026-12-31T00:00:00Z"));
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-12-31T24:00:00Z",
            "2026-12-31T12:00:00",
            "1969-12-31",
            "+026-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_match_the_calendar() {
        // The output of `date -u -d @N +%FT%TZ`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_795_329_000, "2026-11-22T06:30:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(Duration::from_millis(250)), "1970-01-01T00:00:00.250Z");
        assert_eq!(rfc3339(Duration::MAX), "9999-12-31T23:59:59.999Z");
    }
}
