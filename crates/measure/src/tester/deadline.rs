//! Time-outs of a client: for the server's messages during the load, for the report at the end, and for the report
//! after an interrupt. This module handles time only: the caller decides which messages count, and passes `now`.

use std::time::{Duration, Instant};

use lfn_session::SessionError;

/// Maximum wait for the report after an interrupt, plus four round trips. The user waits during this time.
pub(crate) const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time-outs of one test.
#[derive(Debug)]
pub(super) struct ReportDeadline {
    rtt: Duration,
    /// Maximum time without a message about the test.
    silence_timeout: Duration,
    /// Time of the last message about the test.
    last_message_at: Instant,
    /// Latest time for the report, independent of other messages, and the wait to report in the error.
    report_deadline: Option<(Instant, Duration)>,
    is_interrupted: bool,
}

impl ReportDeadline {
    /// Creates the time-outs of a test that starts now.
    pub(super) fn new(silence_timeout: Duration, rtt: Duration, now: Instant) -> Self {
        ReportDeadline { rtt, silence_timeout, last_message_at: now, report_deadline: None, is_interrupted: false }
    }

    /// Records a message about the test.
    pub(super) fn message_received(&mut self, now: Instant) {
        self.last_message_at = now;
    }

    /// Sets the deadline of the report, for a load that lasts `load` at most.
    pub(super) fn expect_report(&mut self, load: Duration, now: Instant) {
        if !self.is_interrupted {
            let at = now.checked_add(load.saturating_add(self.silence_timeout + 4 * self.rtt));
            self.report_deadline = at.map(|at| (at, self.silence_timeout));
        }
    }

    /// Sets the deadline of the report after an interrupt by the user.
    pub(super) fn interrupted(&mut self, now: Instant) {
        if !self.is_interrupted {
            let timeout = (INTERRUPT_TIMEOUT + 4 * self.rtt).min(self.silence_timeout + 4 * self.rtt);
            self.is_interrupted = true;
            self.report_deadline = Some((now + timeout, timeout));
        }
    }

    /// Returns whether the end of the load is known, so that only the report is missing.
    pub(super) fn is_report_due(&self) -> bool {
        self.report_deadline.is_some()
    }

    /// Returns an error if a message or the report is overdue.
    pub(super) fn check(&self, now: Instant) -> Result<(), SessionError> {
        let late = |after, while_doing| Err(SessionError::Timeout { peer: "the server", after, while_doing });
        match self.report_deadline {
            Some((at, after)) if now > at => late(after, "that ends the test"),
            _ if now.saturating_duration_since(self.last_message_at) > self.silence_timeout => {
                late(self.silence_timeout, "during the test")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn report_deadline_holds_despite_other_messages() {
        let (start, rtt) = (Instant::now(), SECOND / 10);
        let mut deadline = ReportDeadline::new(30 * SECOND, rtt, start);
        deadline.expect_report(10 * SECOND, start);
        let at = |tenths: u32| start + tenths * SECOND / 10;
        for tenths in 1..=404 {
            deadline.message_received(at(tenths));
            deadline.check(at(tenths)).unwrap();
        }
        assert!(deadline.check(at(405)).is_err());
    }

    #[test]
    fn silent_server_times_out_first() {
        let start = Instant::now();
        let mut deadline = ReportDeadline::new(30 * SECOND, SECOND, start);
        deadline.expect_report(3600 * SECOND, start);
        deadline.check(start + 30 * SECOND).unwrap();
        let message = deadline.check(start + 31 * SECOND).unwrap_err().to_string();
        assert!(message.contains("30 s during the test"), "{message}");
    }

    #[test]
    fn interrupt_shortens_the_report_deadline() {
        let start = Instant::now();
        let mut deadline = ReportDeadline::new(30 * SECOND, SECOND, start);
        deadline.expect_report(3600 * SECOND, start);
        deadline.interrupted(start + SECOND);
        // Other messages and a second interrupt do not move the deadline.
        deadline.expect_report(Duration::ZERO, start + 2 * SECOND);
        deadline.interrupted(start + 3 * SECOND);
        deadline.message_received(start + 9 * SECOND);
        deadline.check(start + 10 * SECOND).unwrap();
        let message = deadline.check(start + 11 * SECOND).unwrap_err().to_string();
        assert!(message.contains("9 s that ends the test"), "{message}");
    }
}
