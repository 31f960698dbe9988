//! Moments of the calendar as RFC 3339 writes them.

use std::time::Duration;

/// A time since 1970 in UTC, to the millisecond: `2026-11-22T06:30:00.250Z`. Years beyond 9999 have no such form and
/// come out as the last millisecond that has.
pub fn rfc3339(since_1970: Duration) -> String {
    /// 9999-12-31T23:59:59.
    const LAST: u64 = 253_402_300_799;
    let (seconds, millis) = match since_1970.as_secs() {
        seconds if seconds > LAST => (LAST, 999),
        seconds => (seconds, since_1970.subsec_millis()),
    };
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day comes last, and 400 of them
/// are 146,097 days (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        // As `date -u -d @N +%FT%TZ` prints them.
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
