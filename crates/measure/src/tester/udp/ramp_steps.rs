//! Both ends of a ramp. The sender sends a step and reports its size. The receiver waits for late datagrams and reports
//! the result. The sender decides about the next step.

use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_results::measure::TestRequest;
use lfn_results::udp::ramp::{RampReport, RampRequest, StepReceived, StepSent};
use lfn_session::SessionError;

use super::end::{RampStep, UdpEnd};
use crate::proto::udp::ramp::Ramp;

/// Minimum number of datagrams in a step.
const MIN_DATAGRAMS: u64 = 50;

/// Sender's part of a ramp.
pub(super) struct RampSender {
    ramp: Ramp,
    request: RampRequest,
    datagram: u64,
    sent: Option<StepSent>,
    /// A step was started and is not reported yet.
    is_started: bool,
    is_over: bool,
}

impl RampSender {
    /// Starts the first step.
    pub(super) fn begin(request: RampRequest, datagram: u64, end: &mut UdpEnd) -> Self {
        let to = end.rate_limit().map_or(request.to, |limit| request.to.min(limit));
        let request = RampRequest { to, ..request };
        let mut ramp_sender = RampSender {
            ramp: Ramp::new(request.clone()),
            request,
            datagram,
            sent: None,
            is_started: false,
            is_over: false,
        };
        ramp_sender.start_step(end);
        ramp_sender
    }

    /// Returns the results so far, once for each step that is started.
    pub(super) fn take_started(&mut self) -> Option<RampReport> {
        std::mem::take(&mut self.is_started).then(|| self.report())
    }

    /// Returns the number of a step that was just sent, and its datagrams.
    pub(super) fn take_sent(&mut self, end: &mut UdpEnd) -> Option<(u32, u64)> {
        let sent = end.take_sent_step()?;
        self.sent = Some(sent);
        Some((self.ramp.step(), sent.datagrams))
    }

    /// Handles the receiver's result of a step. Results of other steps are ignored.
    pub(super) fn judge_step(&mut self, result: &StepReceived, end: &mut UdpEnd) {
        let Some(sent) = self.sent.take_if(|_| result.step == self.ramp.step()) else { return };
        match self.ramp.record_step(&sent, result) {
            Some(_) => self.start_step(end),
            None => self.is_over = true,
        }
    }

    /// Returns the minimum duration of a step at this rate.
    pub(super) fn min_duration(datagram: u64, rate: BitRate) -> Duration {
        Duration::from_secs_f64((MIN_DATAGRAMS * datagram * 8) as f64 / rate.as_f64().max(1.0))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn report(&self) -> RampReport {
        self.ramp.report_all()
    }

    fn start_step(&mut self, end: &mut UdpEnd) {
        self.is_started = true;
        let rate = self.ramp.rate();
        let time = self.request.step.max(RampSender::min_duration(self.datagram, rate));
        end.step(RampStep { number: self.ramp.step(), rate, time });
    }
}

/// Time-out of a ramp's steps. No overall time-out ends a ramp, so a lost message about a step would otherwise stall it
/// as long as other messages arrive.
pub(super) struct StepTimeout {
    /// Maximum time for a step and its messages; `None` if the test is not a ramp.
    timeout: Option<Duration>,
    last: Instant,
}

impl StepTimeout {
    pub(super) fn of(request: &TestRequest, datagram: u64, silence: Duration) -> Self {
        let ramp = request.udp.as_ref().and_then(|udp| udp.ramp.as_ref());
        let timeout =
            ramp.map(|ramp| ramp.step.max(RampSender::min_duration(datagram, ramp.from)).saturating_add(silence));
        StepTimeout { timeout, last: Instant::now() }
    }

    /// Records that a step was sent, or a message about one was sent or received.
    pub(super) fn step_progress(&mut self) {
        self.last = Instant::now();
    }

    /// Returns an error if `peer` has not continued the ramp in time.
    pub(super) fn check(&self, peer: &'static str) -> Result<(), SessionError> {
        match self.timeout {
            Some(after) if self.last.elapsed() > after => {
                Err(SessionError::Timeout { peer, after, while_doing: "during the ramp" })
            }
            _ => Ok(()),
        }
    }
}

/// Receiver's part of a ramp: a sent step with datagrams that still arrive.
pub(super) struct PendingStep {
    step: u32,
    datagrams: u64,
    since: Instant,
}

impl PendingStep {
    pub(super) fn new(step: u32, datagrams: u64) -> Self {
        PendingStep { step, datagrams, since: Instant::now() }
    }

    /// Returns the result of the step when no more datagrams are expected.
    pub(super) fn result(&self, end: &UdpEnd, rtt: Duration) -> Option<StepReceived> {
        end.has_step_settled(self.step, self.datagrams, self.since, rtt).then(|| end.result(self.step))
    }
}
