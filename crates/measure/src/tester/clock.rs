//! Comparison of the two ends' clocks during a test, with probes on the control connection that are answered at once.
//!
//! The first probes follow each other closely, before the load fills a queue on the path. Later probes follow once a
//! second, because the clocks drift in a long test. The client never waits for a reply, so probes cost the test no
//! round trip. `lfn_results::host::clock` evaluates the time stamps.

use std::time::{Duration, Instant};

use lfn_results::host::clock::{ClockAlignment, Exchange, MAX_EXCHANGES};
use lfn_results::measure::{ClientMessage, EndReport, Interval, ServerMessage};
use lfn_session::{Control, SessionError};
use lfn_sys::clock::monotonic_nanos;

/// Number of probes at the short interval.
const EARLY_PROBES: u32 = 5;
const EARLY_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum replies per second: five times the maximum rate of latency probes over TCP.
const MAX_REPLIES_PER_SECOND: u32 = 1000;

/// Clock probes of the client and their replies.
#[derive(Debug)]
pub(super) struct ClockProbes {
    /// Departure time of each probe, nanoseconds.
    sent_at: Vec<u64>,
    exchanges: Vec<Exchange>,
    next: Instant,
}

impl ClockProbes {
    /// Creates the state; the first probe is due now.
    pub(super) fn new() -> Self {
        ClockProbes { sent_at: Vec::new(), exchanges: Vec::new(), next: Instant::now() }
    }

    /// Sends a probe, if one is due.
    pub(super) fn send_due(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let number = u32::try_from(self.sent_at.len()).unwrap_or(u32::MAX);
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + if number + 1 < EARLY_PROBES { EARLY_INTERVAL } else { PROBE_INTERVAL };
        // Probes above the maximum are not evaluated; they keep the session alive, because the server ends a silent
        // client's session.
        if self.sent_at.len() < MAX_EXCHANGES {
            self.sent_at.push(monotonic_nanos());
        }
        control.send(&ClientMessage::Ping { number })
    }

    /// Returns the time until the next probe is due.
    pub(super) fn time_to_next(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Records a reply. Replies to unknown probes are ignored.
    pub(super) fn record_reply(&mut self, number: u32, received: u64, answered: u64) {
        let received_back = monotonic_nanos();
        let sent_at = usize::try_from(number).ok().and_then(|number| self.sent_at.get(number));
        if let Some(&sent_at) = sent_at.filter(|_| self.exchanges.len() < MAX_EXCHANGES) {
            self.exchanges.push(Exchange {
                request_sent: sent_at,
                request_received: received,
                reply_sent: answered,
                reply_received: received_back,
            });
        }
    }

    /// Returns the clock offset that follows from the replies.
    pub(super) fn alignment(&self) -> Option<ClockAlignment> {
        ClockAlignment::from_exchanges(&self.exchanges)
    }
}

/// Replies of the server, with a maximum rate.
#[derive(Debug)]
pub(super) struct ClockReplies {
    /// Start of the second for which replies are counted.
    second_started: Instant,
    sent_this_second: u32,
}

impl ClockReplies {
    /// Creates the state without any replies.
    pub(super) fn new() -> Self {
        ClockReplies { second_started: Instant::now(), sent_this_second: 0 }
    }

    /// Sends a reply, unless the maximum rate is reached.
    pub(super) fn reply(&mut self, control: &mut Control, number: u32) -> Result<(), SessionError> {
        let received_nanos = monotonic_nanos();
        if self.second_started.elapsed() >= Duration::from_secs(1) {
            *self = ClockReplies::new();
        }
        if self.sent_this_second == MAX_REPLIES_PER_SECOND {
            return Ok(());
        }
        self.sent_this_second += 1;
        control.send(&ServerMessage::Pong { number, received_nanos, sent_nanos: monotonic_nanos() })
    }
}

/// Converts the times of the server's intervals to this end's clock.
pub(super) fn align_clocks(near: &EndReport, far: &mut EndReport, alignment: Option<&ClockAlignment>) {
    for interval in &mut far.intervals {
        align_interval(interval, near.started, far.started, alignment);
    }
}

/// Converts the times of one interval with the current alignment, if the starts of both ends are known.
pub(super) fn align_interval(
    interval: &mut Interval,
    near: Option<u64>,
    far: Option<u64>,
    alignment: Option<&ClockAlignment>,
) {
    let (Some(alignment), Some(near), Some(far)) = (alignment, near, far) else { return };
    let on_near_clock = |time: Duration| {
        let far = far.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let since = alignment.on_near_clock(far).saturating_sub(near.cast_signed());
        // The server may start a reverse test before this end sees a byte; the time is then zero.
        Duration::from_nanos(u64::try_from(since).unwrap_or(0))
    };
    interval.near_start = Some(on_near_clock(interval.start));
    interval.near_end = Some(on_near_clock(interval.end));
}
