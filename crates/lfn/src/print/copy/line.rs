//! The line that is drawn while a copy goes, as wide as the terminal: the bar takes what room is left, and where there
//! is too little, parts go whole, those first that say least.

use std::time::Duration;

use lfn_core::units::{BitRate, Bytes, show_duration};

/// Columns by which the bar grows, so that it does not follow each figure, and how often it does at most.
const STEP: usize = 4;
const STEPS: usize = 4;

/// Between parts.
const GAP: &str = "  ";

/// What there is to say.
#[derive(Clone, Debug)]
pub struct Line {
    /// What is through.
    pub done: Bytes,
    /// Of so much, as far as it is listed.
    pub all: Bytes,
    /// The same of files, directories and links.
    pub settled: u64,
    /// As above.
    pub entries: u64,
    /// Nothing more is to be listed.
    pub complete: bool,
    /// How it goes.
    pub state: State,
}

/// How a copy goes at present.
#[derive(Clone, Debug)]
pub enum State {
    /// There is a connection.
    Moving {
        /// At present.
        goodput: BitRate,
        /// Until all is through.
        left: Option<Duration>,
        /// What holds it back.
        limit: Option<String>,
    },
    /// There is none.
    Lost {
        /// For how long.
        without: Duration,
        /// How long another one is sought.
        patience: Duration,
    },
}

impl Line {
    /// As much of it as goes into so many columns; of the last part that is left more, if it does not.
    pub fn fit(&self, columns: usize) -> String {
        let text = |narrow| self.parts(narrow).join(GAP);
        let (whole, fits) = (text(0), |text: &String| text.chars().count() <= columns);
        if !fits(&whole) {
            return (1..NARROWEST).map(text).find(fits).unwrap_or_else(|| text(NARROWEST));
        }
        let room = columns.saturating_sub(whole.chars().count() + GAP.len());
        match (self.share(), room / STEP) {
            (Some(share), steps @ 1..) => format!("{}{GAP}{whole}", bar(share, STEP * steps.min(STEPS))),
            _ => whole,
        }
    }

    /// Its parts, where so much has given way.
    fn parts(&self, narrow: usize) -> Vec<String> {
        let below = |gone: usize, text: Option<String>| text.filter(|_| narrow < gone);
        let percent = self.share().map(|share| format!("{:>3} %", (100.0 * share).floor()));
        let mut parts = vec![below(2, percent)];
        match &self.state {
            State::Moving { goodput, left, limit } => {
                let seconds = |left: Duration| Duration::from_secs(left.as_secs_f64().ceil() as u64);
                let limit = limit.as_deref().map(|limit| match limit.split_once(':') {
                    Some((short, _)) if narrow >= 1 => short.to_owned(),
                    _ => limit.to_owned(),
                });
                parts.push(Some(goodput.to_string()));
                parts.push(below(7, left.map(|left| format!("{} left", show_duration(seconds(left))))));
                parts.push(below(5, limit));
            }
            State::Lost { without, patience } => {
                let without = show_duration(Duration::from_secs(without.as_secs()));
                let until = show_duration(*patience);
                parts.push(Some(format!("no connection for {without}")));
                parts.push(below(5, Some(format!("trying again for up to {until}"))));
            }
        }
        parts.push(below(6, Some(self.bytes())));
        parts.push(below(4, self.count(narrow >= 3)));
        parts.into_iter().flatten().collect()
    }

    /// One unit is enough, where it is that of both.
    fn bytes(&self) -> String {
        let [done, all] = Bytes::alike([self.done, self.all]);
        let done = match (done.split_once(' '), all.split_once(' ')) {
            (Some((figure, unit)), Some((_, other))) if unit == other => figure,
            _ => &done,
        };
        format!("{done} of {all}{}", self.more())
    }

    fn count(&self, short: bool) -> Option<String> {
        let Line { settled, entries, .. } = *self;
        let more = self.more();
        match short {
            _ if entries <= 1 => None,
            true if settled == 1 => Some("1 entry".to_owned()),
            true => Some(format!("{settled} entries")),
            false => Some(format!("{settled} of {entries}{more} entries")),
        }
    }

    /// Behind what may still grow.
    fn more(&self) -> &'static str {
        if self.complete { "" } else { "+" }
    }

    /// Which part of the bytes is through.
    fn share(&self) -> Option<f64> {
        (self.all.0 > 0).then(|| (self.done.0 as f64 / self.all.0 as f64).min(1.0))
    }
}

/// How often something can give way.
const NARROWEST: usize = 7;

fn bar(share: f64, columns: usize) -> String {
    let full = (share * columns as f64) as usize;
    "█".repeat(full) + &"░".repeat(columns - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            done: Bytes(5_226_000),
            all: Bytes(64_000_000),
            settled: 1,
            entries: 9,
            complete: true,
            state: State::Moving {
                goodput: BitRate(192_700_000),
                left: Some(Duration::from_millis(2400)),
                limit: Some("the server's limit".to_owned()),
            },
        }
    }

    #[test]
    fn the_bar_gives_way_first_and_then_parts_as_a_whole() {
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
    fn nothing_is_cut_where_rate_and_time_find_room() {
        let full = "link full: 97 % of predicted";
        let long = Line {
            done: Bytes(123_400_000_000),
            all: Bytes(5_678_900_000_000),
            settled: 123_456,
            entries: 1_234_567,
            complete: false,
            state: State::Moving {
                goodput: BitRate(192_700_000),
                left: Some(Duration::from_secs(35_999)),
                limit: Some(full.to_owned()),
            },
        };
        for columns in 31..=200 {
            let text = long.fit(columns);
            assert!(text.chars().count() <= columns, "{columns}: {text}");
            assert!(text.contains("192.7 Mb/s  599 min 59 s left"), "{columns}: {text}");
            assert!(columns < 100 || text.contains("123456 of 1234567+ entries"), "{columns}: {text}");
            assert!(columns < 130 || text.contains(full), "{columns}: {text}");
        }
    }

    #[test]
    fn without_a_connection_that_is_what_stands() {
        let state = State::Lost { without: Duration::from_millis(3400), patience: Duration::from_secs(600) };
        let line = Line { state, ..line() };
        let whole = "no connection for 3 s  trying again for up to 10 min 00 s  5.226 of 64 MB  1 of 9 entries";
        assert!(line.fit(110).ends_with(whole), "{}", line.fit(110));
        assert_eq!(line.fit(36), "no connection for 3 s");
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let moving = State::Moving { goodput: BitRate(0), left: None, limit: None };
        let line = Line { done: Bytes(0), all: Bytes(0), settled: 0, entries: 0, complete: false, state: moving };
        assert_eq!(line.fit(80), "0 b/s  0 of 0 B+");
    }
}
