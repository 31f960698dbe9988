//! When a packet came: from the kernel's stamp, which is of the wall clock, to the clock of the model.
//!
//! The two clocks run at the same pace, so what lies between them is a constant, until somebody sets the wall clock. As
//! long as nobody has, a stamp is believed however old it is: a thread that was stopped for seconds is late with what it
//! sends, and the ledger is to show it. Across a setting a packet was stamped by the clock before or after it; most
//! often the order of arrivals and the present leave one of both, and where they do not, the packet counts as undated.

use std::time::Duration;

use lfn_core::time::Instant;

/// Turns stamps into instants.
pub(super) struct Dates {
    /// How far the wall clock is ahead of the model's, nanoseconds.
    offset: i128,
    /// The same before the wall clock was set, while packets may remain that were stamped before.
    before: Option<i128>,
    /// Nothing came before this.
    latest: Instant,
}

/// One look at both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Nanoseconds of `CLOCK_REALTIME`.
    pub(super) wall: u64,
    /// The same moment.
    pub(super) model: Instant,
}

/// When a packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Date {
    /// Then.
    At(Instant),
    /// Nobody knows; taken to be then.
    Unknown(Instant),
}

/// Looks at the clocks differ by less than this; and where two dates do, either will do.
const ALIKE: Duration = Duration::from_millis(1);

impl Dates {
    /// Before the first packet.
    pub(super) fn new(look: Look) -> Self {
        Dates { offset: look.offset(), before: None, latest: look.model }
    }

    /// Before the stamps of a batch are read.
    pub(super) fn look(&mut self, look: Look) {
        let offset = look.offset();
        if (offset - self.offset).unsigned_abs() > ALIKE.as_nanos() {
            // Of several settings while packets wait, the oldest packets tell.
            self.before.get_or_insert(self.offset);
        }
        self.offset = offset;
    }

    /// Everything that came before the last look has been dated.
    pub(super) fn caught_up(&mut self) {
        self.before = None;
    }

    /// When the packet came that was stamped so; packets are asked about in the order in which they came.
    pub(super) fn date(&mut self, stamp: u64, now: Instant) -> Date {
        let by = |offset: i128| u64::try_from(i128::from(stamp) - offset).ok().map(Instant::from_nanos);
        // Stamps are taken by several processors: they may be in disorder, or ahead of the look, by a little.
        let could_be = |at: &Instant| *at + ALIKE >= self.latest && *at <= now + ALIKE;
        let date = match self.before {
            None => by(self.offset).filter(|at| *at <= now + ALIKE).map_or(Date::Unknown(now), Date::At),
            Some(before) => match [before, self.offset].map(|offset| by(offset).filter(could_be)) {
                [Some(at), None] | [None, Some(at)] => Date::At(at),
                [Some(one), Some(other)] if one.max(other) - one.min(other) <= ALIKE => Date::At(other),
                [_, at] => Date::Unknown(at.unwrap_or(now)),
            },
        };
        let (Date::At(at) | Date::Unknown(at)) = date;
        let at = at.min(now);
        self.latest = self.latest.max(at);
        match date {
            Date::At(_) => Date::At(at),
            Date::Unknown(_) => Date::Unknown(at),
        }
    }
}

impl Look {
    fn offset(&self) -> i128 {
        i128::from(self.wall) - i128::from(self.model.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000_000_000;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(START + millis * 1_000_000)
    }

    /// A wall clock so far ahead.
    fn wall(millis: u64, ahead: u64) -> u64 {
        at(millis).as_nanos() + ahead * 1_000_000_000
    }

    fn look(millis: u64, ahead: u64) -> Look {
        Look { wall: wall(millis, ahead), model: at(millis) }
    }

    #[test]
    fn stamps_are_believed_however_old() {
        let mut dates = Dates::new(look(0, 500));
        dates.look(look(4_000, 500));
        for millis in [10, 20, 3_999] {
            assert_eq!(dates.date(wall(millis, 500), at(4_000)), Date::At(at(millis)));
        }
        assert_eq!(dates.date(wall(4_001, 500), at(4_000)), Date::At(at(4_000)), "nothing comes in the future");
        assert_eq!(dates.date(wall(9_000, 500), at(4_000)), Date::Unknown(at(4_000)), "that is no stamp of it");
        assert_eq!(dates.date(0, at(4_000)), Date::Unknown(at(4_000)));
    }

    #[test]
    fn a_clock_that_was_set_is_seen_through() {
        for (before, after) in [(500, 530), (500, 470)] {
            let mut dates = Dates::new(look(0, before));
            dates.look(look(100, before));
            dates.date(wall(99, before), at(100));
            // It was set at 300 ms, and looked at only at 2 s.
            dates.look(look(2_000, after));
            for millis in [110, 299] {
                assert_eq!(dates.date(wall(millis, before), at(2_000)), Date::At(at(millis)));
            }
            for millis in [301, 1_999] {
                assert_eq!(dates.date(wall(millis, after), at(2_000)), Date::At(at(millis)));
            }
            dates.caught_up();
            assert_eq!(dates.date(wall(2_001, after), at(2_002)), Date::At(at(2_001)));
        }
    }

    #[test]
    fn what_could_be_two_dates_is_none() {
        let mut dates = Dates::new(look(0, 500));
        // Back by 1 s: stamped then before, or a second later after it.
        dates.look(look(5_000, 499));
        assert_eq!(dates.date(wall(2_000, 500), at(5_000)), Date::Unknown(at(3_000)));
        assert_eq!(dates.date(wall(4_500, 500), at(5_000)), Date::At(at(4_500)));
    }
}
