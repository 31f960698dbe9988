//! How long a client waits for the server's words: while the load runs, for the report that ends it, and for the same
//! report where somebody has interrupted the command and sits before it. Time alone: which words count is the
//! conversation's to say, and `now` an argument.

use std::time::{Duration, Instant};

use crate::session::SessionError;

/// For the report after an interrupt, beside four round trips: who presses Ctrl-C waits for it.
pub(crate) const AFTER_STOP: Duration = Duration::from_secs(5);

/// The deadlines of one test.
#[derive(Debug)]
pub(super) struct Deadline {
    rtt: Duration,
    /// How long the server may say nothing of the test.
    silence: Duration,
    /// When it last said something of it.
    heard: Instant,
    /// When its report must be there, whatever else it says, and how long that was waited for.
    report: Option<(Instant, Duration)>,
    stopped: bool,
}

impl Deadline {
    /// Of a test that begins now.
    pub(super) fn new(silence: Duration, rtt: Duration, now: Instant) -> Self {
        Deadline { rtt, silence, heard: now, report: None, stopped: false }
    }

    /// The server said something of the test.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The load is over in so much time at most: then the report comes, or never.
    pub(super) fn report_within(&mut self, load: Duration, now: Instant) {
        if !self.stopped {
            let at = now.checked_add(load.saturating_add(self.silence + 4 * self.rtt));
            self.report = at.map(|at| (at, self.silence));
        }
    }

    /// The user has ended the load: the report comes soon, or is not waited for.
    pub(super) fn stopped(&mut self, now: Instant) {
        if !self.stopped {
            let within = (AFTER_STOP + 4 * self.rtt).min(self.silence + 4 * self.rtt);
            (self.stopped, self.report) = (true, Some((now + within, within)));
        }
    }

    /// Whether the load's end is known, so that nothing but the report is due.
    pub(super) fn is_set(&self) -> bool {
        self.report.is_some()
    }

    /// An error if what is waited for should have come.
    pub(super) fn check(&self, now: Instant) -> Result<(), SessionError> {
        let late = |after, while_doing| Err(SessionError::Timeout { peer: "the server", after, while_doing });
        match self.report {
            Some((at, after)) if now > at => late(after, "that ends the test"),
            _ if now.saturating_duration_since(self.heard) > self.silence => late(self.silence, "during the test"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_server_that_only_talks_is_not_waited_for() {
        let (start, rtt) = (Instant::now(), SECOND / 10);
        let mut deadline = Deadline::new(30 * SECOND, rtt, start);
        deadline.report_within(10 * SECOND, start);
        let at = |tenths: u32| start + tenths * SECOND / 10;
        for tenths in 1..=404 {
            deadline.heard(at(tenths));
            deadline.check(at(tenths)).unwrap();
        }
        assert!(deadline.check(at(405)).is_err());
    }

    #[test]
    fn one_that_says_nothing_is_given_up_before_that() {
        let start = Instant::now();
        let mut deadline = Deadline::new(30 * SECOND, SECOND, start);
        deadline.report_within(3600 * SECOND, start);
        deadline.check(start + 30 * SECOND).unwrap();
        let said = deadline.check(start + 31 * SECOND).unwrap_err().to_string();
        assert!(said.contains("30 s during the test"), "{said}");
    }

    #[test]
    fn after_an_interrupt_the_report_comes_in_five_seconds_and_four_round_trips() {
        let start = Instant::now();
        let mut deadline = Deadline::new(30 * SECOND, SECOND, start);
        deadline.report_within(3600 * SECOND, start);
        deadline.stopped(start + SECOND);
        // Neither what else is said nor a second word of the end moves that.
        deadline.report_within(Duration::ZERO, start + 2 * SECOND);
        deadline.stopped(start + 3 * SECOND);
        deadline.heard(start + 9 * SECOND);
        deadline.check(start + 10 * SECOND).unwrap();
        let said = deadline.check(start + 11 * SECOND).unwrap_err().to_string();
        assert!(said.contains("9 s that ends the test"), "{said}");
    }
}
