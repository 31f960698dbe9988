//! Line of a running copy for a terminal's width. The bar takes the free columns. On a narrow terminal, the least
//! important parts are dropped first.

use std::time::Duration;

use lfn_core::units::{BitRate, Bytes, show_duration};

/// Width of a step of the bar, and the maximum number of steps. Steps keep the bar from changing with each figure.
const STEP_COLUMNS: usize = 4;
const MAX_STEPS: usize = 4;

/// Space between the parts.
const GAP: &str = "  ";

/// Figures of the line.
#[derive(Clone, Debug)]
pub struct ProgressLine {
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
}

/// State of a running copy.
#[derive(Clone, Debug)]
pub enum CopyState {
    /// There is a connection.
    Moving {
        /// Goodput of the last seconds.
        goodput: BitRate,
        /// Time until all is done.
        remaining: Option<Duration>,
        /// Cause that limits the copy.
        limit: Option<String>,
    },
    /// The connection is lost.
    Disconnected {
        /// Time since the loss.
        without: Duration,
        /// Time after which reconnecting ends.
        retry_for: Duration,
    },
}

impl ProgressLine {
    /// Returns the longest form that fits into the columns, with a bar if there is room.
    pub fn fit(&self, columns: usize) -> String {
        let text = |narrowness| self.parts(narrowness).join(GAP);
        let (whole, fits) = (text(0), |text: &String| text.chars().count() <= columns);
        if !fits(&whole) {
            return (1..MAX_NARROWNESS).map(text).find(fits).unwrap_or_else(|| text(MAX_NARROWNESS));
        }
        let room = columns.saturating_sub(whole.chars().count() + GAP.len());
        match (self.share(), room / STEP_COLUMNS) {
            (Some(share), steps @ 1..) => format!("{}{GAP}{whole}", bar(share, STEP_COLUMNS * steps.min(MAX_STEPS))),
            _ => whole,
        }
    }

    /// Returns the parts that remain at this level of narrowness.
    fn parts(&self, narrowness: usize) -> Vec<String> {
        let unless_dropped = |level: usize, text: Option<String>| text.filter(|_| narrowness < level);
        let percent = self.share().map(|share| format!("{:>3} %", (100.0 * share).floor()));
        let mut parts = vec![unless_dropped(2, percent)];
        match &self.state {
            CopyState::Moving { goodput, remaining: left, limit } => {
                let seconds = |left: Duration| Duration::from_secs(left.as_secs_f64().ceil() as u64);
                let limit = limit.as_deref().map(|limit| match limit.split_once(':') {
                    Some((short, _)) if narrowness >= 1 => short.to_owned(),
                    _ => limit.to_owned(),
                });
                parts.push(Some(goodput.to_string()));
                parts.push(unless_dropped(7, left.map(|left| format!("{} left", show_duration(seconds(left))))));
                parts.push(unless_dropped(5, limit));
            }
            CopyState::Disconnected { without, retry_for } => {
                let without = show_duration(Duration::from_secs(without.as_secs()));
                let until = show_duration(*retry_for);
                parts.push(Some(format!("no connection for {without}")));
                parts.push(unless_dropped(5, Some(format!("reconnecting for up to {until}"))));
            }
        }
        parts.push(unless_dropped(6, Some(self.bytes())));
        parts.push(unless_dropped(4, self.count(narrowness >= 3)));
        parts.into_iter().flatten().collect()
    }

    /// The unit is printed once if it is the same.
    fn bytes(&self) -> String {
        let [done, all] = Bytes::in_common_unit([self.done, self.all]);
        let done = match (done.split_once(' '), all.split_once(' ')) {
            (Some((figure, unit)), Some((_, other))) if unit == other => figure,
            _ => &done,
        };
        format!("{done} of {all}{}", self.plus())
    }

    fn count(&self, short: bool) -> Option<String> {
        let ProgressLine { settled, entries, .. } = *self;
        let plus = self.plus();
        match short {
            _ if entries <= 1 => None,
            true if settled == 1 => Some("1 entry".to_owned()),
            true => Some(format!("{settled} entries")),
            false => Some(format!("{settled} of {entries}{plus} entries")),
        }
    }

    /// Returns `+` for a figure that may still grow.
    fn plus(&self) -> &'static str {
        if self.complete { "" } else { "+" }
    }

    /// Returns the share of the bytes that are done.
    fn share(&self) -> Option<f64> {
        (self.all.0 > 0).then(|| (self.done.0 as f64 / self.all.0 as f64).min(1.0))
    }
}

/// Highest level of narrowness.
const MAX_NARROWNESS: usize = 7;

fn bar(share: f64, columns: usize) -> String {
    let full = (share * columns as f64) as usize;
    "█".repeat(full) + &"░".repeat(columns - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> ProgressLine {
        ProgressLine {
            done: Bytes(5_226_000),
            all: Bytes(64_000_000),
            settled: 1,
            entries: 9,
            complete: true,
            state: CopyState::Moving {
                goodput: BitRate(192_700_000),
                remaining: Some(Duration::from_millis(2400)),
                limit: Some("the server's limit".to_owned()),
            },
        }
    }

    #[test]
    fn the_bar_and_then_whole_parts_are_dropped() {
        for (columns, text) in [
            (120, "█░░░░░░░░░░░░░░░    8 %  192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB  1 of 9 entries"),
            (90, "░░░░░░░░    8 %  192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB  1 of 9 entries"),
            (80, "  8 %  192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB  1 of 9 entries"),
            (78, "192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB  1 of 9 entries"),
            (66, "192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB  1 entry"),
            (60, "192.7 Mb/s  3 s left  the server's limit  5.226 of 64 MB"),
            (40, "192.7 Mb/s  3 s left  5.226 of 64 MB"),
            (26, "192.7 Mb/s  3 s left"),
            (16, "192.7 Mb/s"),
            (4, "192.7 Mb/s"),
        ] {
            assert_eq!(line().fit(columns), text, "{columns}");
        }
    }

    #[test]
    fn nothing_is_cut_while_rate_and_time_fit() {
        let full = "link full: 97 % of predicted";
        let long = ProgressLine {
            done: Bytes(123_400_000_000),
            all: Bytes(5_678_900_000_000),
            settled: 123_456,
            entries: 1_234_567,
            complete: false,
            state: CopyState::Moving {
                goodput: BitRate(192_700_000),
                remaining: Some(Duration::from_secs(35_999)),
                limit: Some(full.to_owned()),
            },
        };
        for columns in 31..=200 {
            let text = long.fit(columns);
            assert!(text.chars().count() <= columns, "{columns}: {text}");
            assert!(text.contains("192.7 Mb/s  10 h left"), "{columns}: {text}");
            assert!(columns < 100 || text.contains("123456 of 1234567+ entries"), "{columns}: {text}");
            assert!(columns < 130 || text.contains(full), "{columns}: {text}");
        }
    }

    #[test]
    fn a_lost_connection_replaces_the_rate() {
        let state =
            CopyState::Disconnected { without: Duration::from_millis(3400), retry_for: Duration::from_secs(600) };
        let line = ProgressLine { state, ..line() };
        let whole = "no connection for 3 s  reconnecting for up to 10 min  5.226 of 64 MB  1 of 9 entries";
        assert!(line.fit(110).ends_with(whole), "{}", line.fit(110));
        assert_eq!(line.fit(36), "no connection for 3 s");
    }

    #[test]
    fn unknown_figures_are_not_drawn() {
        let moving = CopyState::Moving { goodput: BitRate(0), remaining: None, limit: None };
        let line =
            ProgressLine { done: Bytes(0), all: Bytes(0), settled: 0, entries: 0, complete: false, state: moving };
        assert_eq!(line.fit(80), "0 b/s  0 of 0 B+");
    }
}
