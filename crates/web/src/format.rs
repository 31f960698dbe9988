//! Times, figures and texts as the pages show them.

use std::time::Duration;

use lfn_base::date;
use lfn_base::units::{BitRate, Ratio, show_duration};
use lfn_mesh::entry::Marks;

/// Text of an unknown figure.
pub(crate) const UNKNOWN: &str = "–";
/// Longest text of another host in a table, characters.
const MAX_TEXT: usize = 2000;

/// Returns a time since 1970 to the minute: `2026-11-28 06:40`, in UTC.
pub(crate) fn minute(time: Duration) -> String {
    date::rfc3339(time).chars().take(16).collect::<String>().replace('T', " ")
}

/// Returns the day of a time since 1970: `2026-11-28`, in UTC.
pub(crate) fn day(time: Duration) -> String {
    date::rfc3339(time).chars().take(10).collect()
}

/// Returns a time since 1970 to the second, in UTC.
pub(crate) fn second(time: Duration) -> String {
    date::rfc3339(time).chars().take(19).collect::<String>().replace('T', " ")
}

/// Returns the age of an entry: `5 min`, `3 d 04 h`.
pub(crate) fn age(time: Duration, now: Duration) -> String {
    match now.saturating_sub(time).as_secs() {
        0 if time > now => "in the future".to_owned(),
        seconds if seconds < 60 => "less than 1 min".to_owned(),
        seconds if seconds < 3600 => format!("{} min", seconds / 60),
        seconds => show_duration(Duration::from_secs(seconds / 60 * 60)),
    }
}

pub(crate) fn rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), |rate| rate.to_string())
}

pub(crate) fn time(time: Option<Duration>) -> String {
    time.map_or_else(|| UNKNOWN.to_owned(), show_duration)
}

/// Returns a loss as percent with at most three digits after the point.
pub(crate) fn loss(loss: Option<Ratio>) -> String {
    let Some(loss) = loss else { return UNKNOWN.to_owned() };
    let percent = format!("{:.3}", loss.get() * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the share of a measured figure in the predicted figure, as percent.
pub(crate) fn share(goodput: Option<BitRate>, predicted: Option<BitRate>) -> Option<String> {
    let (goodput, predicted) = (goodput?, predicted.filter(|predicted| predicted.0 > 0)?);
    Some(format!("{:.0} %", goodput.as_f64() / predicted.as_f64() * 100.0))
}

/// Returns the marks of an entry in words.
pub(crate) fn marks(marks: Marks) -> String {
    let words = [
        (marks.own_load, "under own load"),
        (marks.maintenance, "maintenance"),
        (marks.clock, "clock off"),
        (marks.imported, "imported"),
    ];
    words.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect::<Vec<_>>().join(", ")
}

/// Returns `1 pair`, `2 pairs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a text of another host in one line: line ends and tabs are spaces, and characters that act on a terminal or on
/// the direction of a text are replaced.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { visible(c) }).collect()
}

/// Replaces everything in a complete answer that acts on a terminal, or on the direction of a text.
pub(crate) fn clean(answer: String) -> String {
    if answer.chars().all(|c| visible(c) == c) { answer } else { answer.chars().map(visible).collect() }
}

/// Returns U+FFFD for control characters except the line feed, and for invisible format characters.
fn visible(c: char) -> char {
    let is_format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'..='\u{e007f}');
    if c != '\n' && (c.is_control() || is_format) { '\u{fffd}' } else { c }
}

/// Returns a name as one part of an address: every byte except letters, digits, `-`, `.`, `_` and `~` with a percent sign.
pub(crate) fn path_part(name: &str) -> String {
    use std::fmt::Write as _;
    let mut part = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            part.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(part, "%{byte:02X}");
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ages_are_short() {
        let time = date::parse("2026-11-28T06:40:31.5Z").unwrap();
        assert_eq!((minute(time).as_str(), second(time).as_str()), ("2026-11-28 06:40", "2026-11-28 06:40:31"));
        let later = |seconds| age(time, time + Duration::from_secs(seconds));
        assert_eq!([later(59), later(359), later(76 * 3600)], ["less than 1 min", "5 min", "3 d 04 h"]);
        assert_eq!(age(time, time - Duration::from_secs(1)), "in the future");
    }

    #[test]
    fn characters_that_act_on_a_terminal_are_replaced() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{202e}c"), "a\u{fffd}[2J b\u{fffd}c");
        assert_eq!(clean("a\nb\u{7f}".to_owned()), "a\nb\u{fffd}");
    }

    #[test]
    fn any_name_is_one_part_of_an_address() {
        assert_eq!(path_part("a b/<é>.x"), "a%20b%2F%3C%C3%A9%3E.x");
        assert_eq!(crate::request::decode(&path_part("\u{1b}/%?#\"'&<>")), "\u{1b}/%?#\"'&<>");
        assert_eq!(path_part(".."), "..");
    }
}
