//! Comparing the two ends' clocks while a test runs: short questions on the control connection, answered at once.
//!
//! The first few are asked close together, before the load has filled a queue on the way; then one a second, for long
//! tests, whose clocks drift. None is waited for, so none costs the test a round trip; what the stamps say is worked out
//! by `lfn_core::host::clock`.

use std::time::{Duration, Instant};

use lfn_core::host::clock::{Alignment, Exchange, MOST_EXCHANGES};
use lfn_core::wire::test::{ClientMessage, EndReport, Interval, ServerMessage};
use lfn_sys::clock::monotonic_nanos;

use crate::session::{Control, SessionError};

/// So many questions are asked early on.
const EARLY: u32 = 5;
/// Between those.
const SOON: Duration = Duration::from_millis(20);
/// Between the later ones.
pub(super) const LATER: Duration = Duration::from_secs(1);

/// Most answers in a second: five times what probes over TCP ask at their quickest pace.
const MOST_ANSWERS: u32 = 1000;

/// The client's questions, and what came back.
#[derive(Debug)]
pub(super) struct Questions {
    /// When each question left.
    asked: Vec<u64>,
    exchanges: Vec<Exchange>,
    next: Instant,
}

impl Questions {
    /// The first one is due now.
    pub(super) fn new() -> Self {
        Questions { asked: Vec::new(), exchanges: Vec::new(), next: Instant::now() }
    }

    /// Asks, if it is time to.
    pub(super) fn ask(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let number = u32::try_from(self.asked.len()).unwrap_or(u32::MAX);
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + if number + 1 < EARLY { SOON } else { LATER };
        // Beyond what is kept it is a sign of life: a server ends the session of a client that says nothing.
        if self.asked.len() < MOST_EXCHANGES {
            self.asked.push(monotonic_nanos());
        }
        control.send(&ClientMessage::Ping { number })
    }

    /// How long until the next question is due.
    pub(super) fn idle(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Takes an answer. One to a question that was not asked says nothing.
    pub(super) fn hear(&mut self, number: u32, received: u64, answered: u64) {
        let heard = monotonic_nanos();
        let asked = usize::try_from(number).ok().and_then(|number| self.asked.get(number));
        if let Some(&asked) = asked.filter(|_| self.exchanges.len() < MOST_EXCHANGES) {
            self.exchanges.push(Exchange { asked, received, answered, heard });
        }
    }

    /// What the answers say.
    pub(super) fn alignment(&self) -> Option<Alignment> {
        Alignment::of(&self.exchanges)
    }
}

/// The server's answers: a flood of questions gets no flood of them.
#[derive(Debug)]
pub(super) struct Answers {
    /// When the second began that they are counted in.
    since: Instant,
    given: u32,
}

impl Answers {
    /// None so far.
    pub(super) fn new() -> Self {
        Answers { since: Instant::now(), given: 0 }
    }

    /// Answers, unless that would be too many in a second.
    pub(super) fn answer(&mut self, control: &mut Control, number: u32) -> Result<(), SessionError> {
        let received_nanos = monotonic_nanos();
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Answers::new();
        }
        if self.given == MOST_ANSWERS {
            return Ok(());
        }
        self.given += 1;
        control.send(&ServerMessage::Pong { number, received_nanos, sent_nanos: monotonic_nanos() })
    }
}

/// Puts the far end's intervals on the near end's clock.
pub(super) fn lay_side_by_side(near: &EndReport, far: &mut EndReport, alignment: Option<&Alignment>) {
    for interval in &mut far.intervals {
        place(interval, near.started, far.started, alignment);
    }
}

/// Puts one there, as well as it is known by now; of ends whose starts are known.
pub(super) fn place(interval: &mut Interval, near: Option<u64>, far: Option<u64>, alignment: Option<&Alignment>) {
    let (Some(alignment), Some(near), Some(far)) = (alignment, near, far) else { return };
    let on_near_clock = |time: Duration| {
        let far = far.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let since = alignment.on_near_clock(far).saturating_sub(near.cast_signed());
        // The far end of a reverse test may have begun before this end saw a byte: its time is then zero.
        Duration::from_nanos(u64::try_from(since).unwrap_or(0))
    };
    interval.near_start = Some(on_near_clock(interval.start));
    interval.near_end = Some(on_near_clock(interval.end));
}
