//! Dates of the proleptic Gregorian calendar in UTC, as logs and files write them (RFC 3339), from and to seconds since
//! 1970. UTC is the only time zone, and leap seconds do not exist. The caller reads the clock.

use std::time::Duration;

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

/// Formats the time since 1970 as `2026-11-22T06:40:00.123Z`. A year beyond 9999 has no such form: the result is then
/// the last millisecond of 9999.
pub fn rfc3339(since: Duration) -> String {
    /// The last millisecond of 9999, since 1970.
    const LAST: Duration = Duration::from_millis(253_402_300_799_999);
    let at = OffsetDateTime::UNIX_EPOCH + since.min(LAST);
    let (date, time) = (at.date(), at.time());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second, millisecond) = time.as_hms_milli();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// Parses `2026-12-31` (its first moment), `2026-12-31T12:00:00Z` or `2026-12-31T12:00:00.123Z` (1 to 9 digits) into the time
/// since 1970; `None` for any other text.
pub fn parse(text: &str) -> Option<Duration> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time.strip_suffix('Z')?)),
        None => (text, None),
    };
    let (time, fraction) = match time.and_then(|time| time.split_once('.')) {
        Some((time, digits)) => (Some(time), parse_fraction(digits)?),
        None => (time, Duration::ZERO),
    };
    let (year, month, day) = parse_numbers(date, '-', 4)?;
    let (hour, minute, second) = time.map_or(Some((0, 0, 0)), |time| parse_numbers(time, ':', 2))?;
    let date = Date::from_calendar_date(i32::from(year), Month::try_from(month).ok()?, day).ok()?;
    let time = Time::from_hms(u8::try_from(hour).ok()?, minute, second).ok()?;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp();
    u64::try_from(seconds).ok().map(|seconds| Duration::from_secs(seconds) + fraction)
}

/// Parses the digits after the decimal point of a second.
fn parse_fraction(digits: &str) -> Option<Duration> {
    let is_valid = (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let nanos = is_valid.then(|| format!("{digits:0<9}"))?;
    nanos.parse().ok().map(Duration::from_nanos)
}

/// Parses three numbers: the first with this number of digits, the others with two.
fn parse_numbers(text: &str, separator: char, first_length: usize) -> Option<(u16, u8, u8)> {
    let is_number = |(part, length): (&str, usize)| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.split(separator);
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next()?);
    let is_valid = [(first, first_length), (second, 2), (third, 2)].into_iter().all(is_number);
    (is_valid && parts.next().is_none()).then_some((first.parse().ok()?, second.parse().ok()?, third.parse().ok()?))
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
        let with_fraction = Duration::from_millis(1_795_329_723_456);
        assert_eq!(parse(&rfc3339(with_fraction)), Some(with_fraction));
        assert_eq!(parse("1970-01-01T00:00:00.5Z"), Some(Duration::from_millis(500)));
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-12-31T24:00:00Z",
            "2026-12-31T12:00:00",
            "1969-12-31",
            "2026-12-31T12:00:00.Z",
            "2026-12-31T12:00:00.1234567890Z",
            "2026-12-31T12:00:00.+1Z",
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
