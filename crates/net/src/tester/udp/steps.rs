//! A ramp as its two ends go through it: the sender makes a step and says so, the receiver waits for the late ones and
//! says what came, the sender judges.

use std::time::{Duration, Instant};

use lfn_core::udp::ramp::{Ramp, RampReport, RampRequest, StepSeen, StepSent};
use lfn_core::units::BitRate;
use lfn_core::wire::test::TestRequest;

use super::end::{End, Step};
use crate::session::SessionError;

/// A step is no shorter than it takes to send so many.
const LEAST_DATAGRAMS: u64 = 50;

/// The sender's part.
pub(super) struct Climb {
    ramp: Ramp,
    request: RampRequest,
    datagram: u64,
    sent: Option<StepSent>,
    /// A step was begun, and nobody told of it.
    begun: bool,
    over: bool,
}

impl Climb {
    /// Has the first step made.
    pub(super) fn begin(request: RampRequest, datagram: u64, end: &mut End) -> Self {
        let to = end.most().map_or(request.to, |most| request.to.min(most));
        let request = RampRequest { to, ..request };
        let mut climb = Climb { ramp: Ramp::new(request), request, datagram, sent: None, begun: false, over: false };
        climb.make(end);
        climb
    }

    /// What is known, once for each step that is begun.
    pub(super) fn just_begun(&mut self) -> Option<RampReport> {
        std::mem::take(&mut self.begun).then(|| self.report())
    }

    /// The number of a step that has just been sent, and its datagrams.
    pub(super) fn just_sent(&mut self, end: &mut End) -> Option<(u32, u64)> {
        let sent = end.take_stepped()?;
        self.sent = Some(sent);
        Some((self.ramp.step(), sent.datagrams))
    }

    /// Takes the receiver's word for a step; one that nobody waits for is no word.
    pub(super) fn hear(&mut self, seen: &StepSeen, end: &mut End) {
        let Some(sent) = self.sent.take_if(|_| seen.step == self.ramp.step()) else { return };
        match self.ramp.judge(&sent, seen) {
            Some(_) => self.make(end),
            None => self.over = true,
        }
    }

    /// The shortest step at this rate.
    pub(super) fn least(datagram: u64, rate: BitRate) -> Duration {
        Duration::from_secs_f64((LEAST_DATAGRAMS * datagram * 8) as f64 / rate.as_f64().max(1.0))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn report(&self) -> RampReport {
        self.ramp.report_all()
    }

    fn make(&mut self, end: &mut End) {
        self.begun = true;
        let rate = self.ramp.rate();
        let time = self.request.step.max(Climb::least(self.datagram, rate));
        end.step(Step { number: self.ramp.step(), rate, time });
    }
}

/// That a ramp goes on. No clock of the whole ends it, and a word about a step that got lost would be waited for as long
/// as everything else is heard.
pub(super) struct Turns {
    /// The longest a step and the word about it may take; `None` of a test that is no ramp.
    most: Option<Duration>,
    last: Instant,
}

impl Turns {
    pub(super) fn of(request: &TestRequest, datagram: u64, silence: Duration) -> Self {
        let ramp = request.udp.as_ref().and_then(|udp| udp.ramp);
        let most = ramp.map(|ramp| ramp.step.max(Climb::least(datagram, ramp.from)).saturating_add(silence));
        Turns { most, last: Instant::now() }
    }

    /// A step was made, or a word about one came or went.
    pub(super) fn taken(&mut self) {
        self.last = Instant::now();
    }

    /// An error, if `peer` owes its turn for too long.
    pub(super) fn check(&self, peer: &'static str) -> Result<(), SessionError> {
        match self.most {
            Some(after) if self.last.elapsed() > after => {
                Err(SessionError::Timeout { peer, after, while_doing: "to go on with the ramp" })
            }
            _ => Ok(()),
        }
    }
}

/// The receiver's part: a step that was sent and may still be coming.
pub(super) struct Awaited {
    step: u32,
    datagrams: u64,
    since: Instant,
}

impl Awaited {
    pub(super) fn new(step: u32, datagrams: u64) -> Self {
        Awaited { step, datagrams, since: Instant::now() }
    }

    /// What came of it, once nothing more comes.
    pub(super) fn seen(&self, end: &End, rtt: Duration) -> Option<StepSeen> {
        end.step_settled(self.step, self.datagrams, self.since, rtt).then(|| end.seen(self.step))
    }
}
