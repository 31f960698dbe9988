//! Line of a running copy for a terminal's width. The percentage is first and always shown. On a narrow terminal, the
//! least important parts are dropped. The widths of the parts at the left depend on the terminal only, so that they do
//! not move.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_session::wire::copy::entry::Name;

use crate::print::progress::{Figures, bar};
use crate::print::terminal::use_unicode;

/// Space between the parts.
const GAP: &str = "  ";

/// Width of the rate, which is at most `999.9 Mb/s`.
const RATE_COLUMNS: usize = 10;

/// Widths that usually hold the time left and the bytes. Room for them decides whether the next part is shown.
const TIME_COLUMNS: usize = 10;
const BYTES_COLUMNS: usize = 15;

/// Figures of the line.
#[derive(Clone, Debug, Default)]
pub struct ProgressLine {
    /// Name of the file that started last.
    pub name: Option<String>,
    /// Bytes that are done.
    pub done: Bytes,
    /// Bytes of the listed files.
    pub all: Bytes,
    /// Files, directories and links that are done.
    pub settled: u64,
    /// Files, directories and links that are listed.
    pub entries: u64,
    /// True if the list is complete.
    pub complete: bool,
    /// State of the connection.
    pub state: CopyState,
    /// Throughput of each stripe, if there are stripes.
    pub stripes: Option<String>,
}

/// State of a running copy.
#[derive(Clone, Debug)]
pub enum CopyState {
    /// Data arrives over the connection.
    Moving {
        /// Goodput of the last seconds.
        goodput: BitRate,
        /// Time until all is done.
        remaining: Option<Duration>,
        /// Cause that limits the copy.
        limit: Option<String>,
    },
    /// Nothing arrives, but the connection is not lost so far.
    Stalled {
        /// Time since the last arrival.
        since: Duration,
    },
    /// The connection is lost.
    Disconnected {
        /// Time since the loss.
        without: Duration,
        /// Time after which reconnecting ends.
        retry_for: Duration,
    },
}

/// A part of the line with the width that it usually needs.
struct Part {
    text: String,
    width: usize,
    /// Position in the line.
    place: usize,
}

impl Part {
    fn new(place: usize, text: String) -> Self {
        Part { width: text.chars().count(), text, place }
    }

    fn at_least(place: usize, width: usize, text: String) -> Self {
        Part { width: text.chars().count().max(width), text, place }
    }
}

impl Default for CopyState {
    fn default() -> Self {
        CopyState::Moving { goodput: BitRate(0), remaining: None, limit: None }
    }
}

impl Figures for ProgressLine {
    fn lines(&mut self, _now: Duration, columns: usize, _rows: usize) -> Vec<String> {
        vec![self.fit(columns, use_unicode())]
    }

    fn plain(&self) -> Option<String> {
        (self.entries > 0).then(|| self.plain_line(use_unicode()))
    }
}

impl ProgressLine {
    /// Sets the name of the file that started last.
    pub fn set_name(&mut self, name: &Name) {
        self.name = Some(name.to_string());
    }

    /// Returns the parts that fit into the columns. Without `unicode`, the line is ASCII.
    fn fit(&self, columns: usize, unicode: bool) -> String {
        let mut used = 0;
        let mut shown = Vec::new();
        for part in self.parts(columns, unicode) {
            let gap = if shown.is_empty() { 0 } else { GAP.len() };
            // The parts come in the order of importance.
            if used + gap + part.width > columns && !shown.is_empty() {
                break;
            }
            used += gap + part.width;
            shown.push(part);
        }
        shown.sort_by_key(|part| part.place);
        let texts: Vec<_> = shown.iter().map(|part| part.text.as_str()).collect();
        texts.join(GAP).trim_end().to_owned()
    }

    /// Returns the complete line without a bar, for output that is not a terminal.
    fn plain_line(&self, unicode: bool) -> String {
        let mut parts = self.parts(usize::MAX, unicode);
        parts.retain(|part| part.place != BAR);
        parts.sort_by_key(|part| part.place);
        let texts: Vec<_> = parts.iter().map(|part| part.text.trim()).filter(|text| !text.is_empty()).collect();
        texts.join(GAP)
    }

    /// Returns the parts in the order of importance.
    fn parts(&self, columns: usize, unicode: bool) -> Vec<Part> {
        let mut parts = vec![Part::new(PERCENT, format!("{:>3} %", self.percent()))];
        let bar = Part::new(BAR, bar(self.share(), (columns / 8).clamp(6, 16), unicode));
        let name = self.name_part((columns / 5).clamp(8, 24), columns == usize::MAX, unicode);
        let bytes = Part::at_least(BYTES, BYTES_COLUMNS, self.bytes());
        match &self.state {
            CopyState::Moving { goodput, remaining, limit } => {
                let seconds = |left: Duration| Duration::from_secs(left.as_secs_f64().ceil() as u64);
                let left = remaining.map(|left| format!("{} left", show_duration(seconds(left)))).unwrap_or_default();
                parts.push(Part::new(STATE, format!("{:<RATE_COLUMNS$}", goodput.to_string())));
                parts.push(bar);
                parts.push(Part::at_least(TIME, TIME_COLUMNS, left));
                parts.extend(self.stripes.clone().map(|stripes| Part::new(STRIPES, stripes)));
                parts.extend(name);
                parts.push(bytes);
                parts.extend(self.count().map(|count| Part::new(COUNT, count)));
                parts.extend(limit.as_ref().map(|limit| Part::new(LIMIT, format!("limit: {limit}"))));
            }
            CopyState::Stalled { since } => {
                parts.push(Part::new(STATE, format!("nothing arrives for {}", whole_seconds(*since))));
                parts.push(bar);
                parts.extend(name);
                parts.push(bytes);
            }
            CopyState::Disconnected { without, retry_for } => {
                parts.push(Part::new(STATE, format!("no connection for {}", whole_seconds(*without))));
                parts.push(bar);
                parts.extend(name);
                parts.push(Part::new(TIME, format!("reconnecting for up to {}", show_duration(*retry_for))));
                parts.push(bytes);
            }
        }
        parts
    }

    /// Returns the name in a field of at most `width` columns. Of a longer name, the end is shown.
    fn name_part(&self, width: usize, is_whole: bool, unicode: bool) -> Option<Part> {
        let name = self.name.as_deref()?;
        let safe = |c: char| if c.is_control() || (!unicode && !c.is_ascii()) { '?' } else { c };
        let name: String = name.chars().map(safe).collect();
        let length = name.chars().count();
        // The field of a single file is as wide as its name.
        let width = if self.entries <= 1 && self.complete { width.min(length) } else { width };
        let text = if is_whole || length <= width {
            format!("{name:<width$}")
        } else {
            let dots = if unicode { "…" } else { ".." };
            let end: String = name.chars().skip(length + dots.chars().count() - width).collect();
            format!("{dots}{end}")
        };
        Some(Part::new(NAME, text))
    }

    /// The unit is printed once if it is the same.
    fn bytes(&self) -> String {
        let [done, all] = Bytes::in_common_decimal_unit([self.done, self.all]);
        let done = match (done.split_once(' '), all.split_once(' ')) {
            (Some((figure, unit)), Some((_, other))) if unit == other => figure,
            _ => &done,
        };
        format!("{done} of {all}{}", self.plus())
    }

    fn count(&self) -> Option<String> {
        let ProgressLine { settled, entries, .. } = *self;
        (entries > 1).then(|| format!("{settled} of {entries}{} entries", self.plus()))
    }

    /// Returns `+` for a figure that may still grow.
    fn plus(&self) -> &'static str {
        if self.complete { "" } else { "+" }
    }

    /// Returns the share of the bytes that are done; without bytes, that of the entries.
    fn share(&self) -> f64 {
        let (done, all) = match (self.all.0, self.entries) {
            (0, 0) => return 0.0,
            (0, entries) => (self.settled, entries),
            (bytes, _) => (self.done.0, bytes),
        };
        (done as f64 / all as f64).min(1.0)
    }

    /// Returns the percentage. An incomplete list is never at 100 %.
    fn percent(&self) -> u8 {
        let percent = (100.0 * self.share()).floor() as u8;
        if self.complete { percent } else { percent.min(99) }
    }
}

/// Places of the parts in the line.
const PERCENT: usize = 0;
const NAME: usize = 1;
const BAR: usize = 2;
const STATE: usize = 3;
const TIME: usize = 4;
const BYTES: usize = 5;
const COUNT: usize = 6;
const LIMIT: usize = 7;
const STRIPES: usize = 8;

fn whole_seconds(time: Duration) -> String {
    show_duration(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> ProgressLine {
        ProgressLine {
            name: Some("runs/2026/field.nc".to_owned()),
            done: Bytes(15_226_000),
            all: Bytes(64_000_000),
            settled: 1,
            entries: 9,
            complete: true,
            state: CopyState::Moving {
                goodput: BitRate(192_700_000),
                remaining: Some(Duration::from_millis(2400)),
                limit: Some("server rate limit".to_owned()),
            },
            stripes: None,
        }
    }

    #[test]
    fn percentage_is_first_and_parts_are_dropped() {
        for (columns, text) in [
            (
                140,
                " 23 %  runs/2026/field.nc        ███░░░░░░░░░░░░░  192.7 Mb/s  3 s left  15.23 of 64 MB  1 of 9 entries  limit: server rate limit",
            ),
            (80, " 23 %  …s/2026/field.nc  ██░░░░░░░░  192.7 Mb/s  3 s left  15.23 of 64 MB"),
            (50, " 23 %  …/field.nc  █░░░░░  192.7 Mb/s  3 s left"),
            (40, " 23 %  █░░░░░  192.7 Mb/s  3 s left"),
            (30, " 23 %  █░░░░░  192.7 Mb/s"),
            (20, " 23 %  192.7 Mb/s"),
            (10, " 23 %"),
            (1, " 23 %"),
        ] {
            assert_eq!(line().fit(columns, true), text, "{columns}");
        }
        assert_eq!(
            line().plain_line(true),
            "23 %  runs/2026/field.nc  192.7 Mb/s  3 s left  15.23 of 64 MB  1 of 9 entries  limit: server rate limit"
        );
    }

    #[test]
    fn line_is_ascii_without_utf_8() {
        let name = Some("données/été.nc".to_owned());
        for columns in [30, 50, 80, 200] {
            let text = ProgressLine { name: name.clone(), ..line() }.fit(columns, false);
            assert!(text.is_ascii(), "{text}");
            assert!(text.contains("#-") && text.starts_with(" 23 %"), "{text}");
        }
        let text = line().fit(50, false);
        assert_eq!(text, " 23 %  ..field.nc  #-----  192.7 Mb/s  3 s left");
    }

    #[test]
    fn line_never_exceeds_the_columns() {
        let long = ProgressLine {
            done: Bytes(123_400_000_000),
            all: Bytes(5_678_900_000_000),
            settled: 123_456,
            entries: 1_234_567,
            complete: false,
            state: CopyState::Moving {
                goodput: BitRate(192_700_000),
                remaining: Some(Duration::from_secs(35_999)),
                limit: Some("link full".to_owned()),
            },
            ..line()
        };
        for columns in 17..=200 {
            let text = long.fit(columns, true);
            assert!(text.chars().count() <= columns, "{columns}: {text}");
            assert!(text.starts_with("  2 %  ") && text.contains("192.7 Mb/s"), "{columns}: {text}");
            assert!(columns < 50 || text.contains('░'), "{columns}: {text}");
        }
    }

    #[test]
    fn bytes_use_one_family_of_units() {
        let line = ProgressLine { done: Bytes(1 << 20), all: Bytes(1 << 30), ..line() };
        let text = line.plain_line(true);
        assert!(text.contains("B  1 of 9 entries") && !text.contains("iB"), "{text}");
    }

    #[test]
    fn outage_is_shown_with_its_seconds() {
        let state =
            CopyState::Disconnected { without: Duration::from_millis(3400), retry_for: Duration::from_secs(600) };
        let lost = ProgressLine { state, ..line() };
        assert_eq!(lost.fit(30, true), " 23 %  no connection for 3 s");
        assert_eq!(lost.fit(50, true), " 23 %  …/field.nc  █░░░░░  no connection for 3 s");
        assert!(lost.fit(130, true).contains("no connection for 3 s  reconnecting for up to 10 min  15.23 of 64 MB"));
        let stalled = ProgressLine { state: CopyState::Stalled { since: Duration::from_secs(12) }, ..line() };
        assert_eq!(stalled.fit(40, true), " 23 %  █░░░░░  nothing arrives for 12 s");
    }

    #[test]
    fn percentage_exists_before_the_list() {
        let state = CopyState::Moving { goodput: BitRate(0), remaining: None, limit: None };
        let empty = ProgressLine {
            name: None,
            done: Bytes(0),
            all: Bytes(0),
            settled: 0,
            entries: 0,
            complete: false,
            state,
            stripes: None,
        };
        assert!(empty.fit(80, true).starts_with("  0 %  "), "{}", empty.fit(80, true));
        let links = ProgressLine { settled: 1, entries: 4, ..empty.clone() };
        assert!(links.fit(80, true).starts_with(" 25 %"), "{}", links.fit(80, true));
        let incomplete = ProgressLine { done: Bytes(5), all: Bytes(5), ..empty };
        assert!(incomplete.fit(80, true).starts_with(" 99 %"), "{}", incomplete.fit(80, true));
    }
}
