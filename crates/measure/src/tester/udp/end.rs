//! One end of a test with datagrams: its threads, its clock, its intervals, and its report.
//!
//! This module knows nothing of the protocol's messages; the client and the server query it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_results::host::socket_warnings;
use lfn_results::measure::{
    EndReport, Interval, Kernel, SocketRequest, StreamReport, StreamSample, TestLoad, TestRequest, UdpRequest,
};
use lfn_results::udp::figures::{UdpFigures, UdpSample};
use lfn_results::udp::ramp::{RampReport, StepReceived, StepSent};
use lfn_session::DatagramStream;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_sys::clock::monotonic_nanos;

use super::flow::UdpFlow;
use super::receiver;
use super::sender::UdpSender;
use crate::load::{
    HostWatch, IntervalMeter, LoadEngine, LoadOptions, LoadState, MeteredStream, SendUntil, StreamTotals,
};
use crate::tester::TestError;

/// Maximum sleep of the control thread.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time without arrivals, plus a round trip, after which missing datagrams count as lost.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// Maximum lateness, plus a round trip, after which missing datagrams count as lost in any case.
const MAX_LATENESS: Duration = Duration::from_secs(5);

/// A step of a ramp to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct RampStep {
    pub(super) number: u32,
    pub(super) rate: BitRate,
    pub(super) time: Duration,
}

/// Streams of one end while they run.
pub(super) struct UdpEnd {
    flows: Vec<Arc<UdpFlow>>,
    engine: LoadEngine,
    /// Channel to the sender of a ramp.
    steps: Option<Sender<RampStep>>,
    /// Channel from the sender of a ramp.
    sent_steps: Option<Receiver<StepSent>>,
    sent_step: Option<StepSent>,
    /// Maximum rate per stream that the server allows.
    rate_limit: Option<BitRate>,
    intervals: IntervalMeter,
}

impl UdpEnd {
    /// Sets the socket options and starts a thread for each stream. `limit` is the maximum rate of each stream.
    pub(super) fn start(
        streams: Vec<DatagramStream>,
        request: &TestRequest,
        socket_request: &SocketRequest,
        sends: bool,
        rate_limiter: &Arc<RateLimiter>,
        limit: Option<BitRate>,
    ) -> Result<UdpEnd, TestError> {
        let udp = request.udp.as_deref().cloned().unwrap_or_default();
        let options = LoadOptions { sends, ..LoadOptions::default() };
        let load = LoadState::new(options, Instant::now(), rate_limiter.clone());
        let mut end = UdpEnd {
            flows: Vec::new(),
            engine: LoadEngine::new(load.clone()),
            steps: None,
            sent_steps: None,
            sent_step: None,
            rate_limit: limit,
            intervals: IntervalMeter::new(request.interval, 1),
        };
        if let Some(stream) = streams.first() {
            let local = stream.socket().local_addr().ok().map(|address| address.ip());
            end.intervals.set_host_watch(HostWatch::for_destination(stream.peer().ip(), local));
        }
        let highest = udp.ramp.as_ref().map_or(udp.rate, |ramp| ramp.to);
        let rate_limit = limit.filter(|limit| sends && *limit < highest).map(|limit| (highest, limit));
        if let TestLoad::Records(datagrams) = request.load {
            load.limit(datagrams);
        }
        for stream in streams {
            let number = stream.stream();
            let failed = |source| TestError::Stream { stream: number, source };
            let mut flow = UdpFlow::new(stream, socket_request, &udp, sends).map_err(failed)?;
            flow.rate_limit = rate_limit;
            let flow = Arc::new(flow);
            if let (TestLoad::Bytes(bytes), true) = (request.load, end.flows.is_empty()) {
                load.limit(bytes.0.div_ceil(flow.datagram_bytes as u64));
            }
            let rate = limit.map_or(udp.rate, |limit| udp.rate.min(limit));
            let work = FlowWork { flow: flow.clone(), rate, load: request.load, ramp: end.open_ramp(&udp) };
            let counter = flow.counter.clone();
            end.engine.start(number, counter, move |load, _, _| work.run(load)).map_err(failed)?;
            end.intervals.add_stream(end.flows.len());
            end.flows.push(flow);
        }
        Ok(end)
    }

    /// Opens the channels to the sender of a ramp.
    fn open_ramp(&mut self, udp: &UdpRequest) -> Option<RampChannels> {
        udp.ramp.as_ref().filter(|_| self.engine.sends())?;
        let ((steps_out, steps), (sent_out, sent_steps)) = (channel(), channel());
        self.steps = Some(steps_out);
        self.sent_steps = Some(sent_steps);
        Some(RampChannels { steps, sent: sent_out })
    }

    /// Handles the events of the threads. Returns an error if a thread failed.
    pub(super) fn collect(&mut self) -> Result<(), TestError> {
        self.engine.collect(|_, _| ())?;
        if let Some(sent) = self.sent_steps.as_ref().and_then(|sent| sent.try_iter().last()) {
            self.sent_step = Some(sent);
        }
        Ok(())
    }

    /// Returns whether every thread has ended by itself.
    pub(super) fn have_all_ended(&self) -> bool {
        self.engine.ended() == self.flows.len()
    }

    /// Returns the payload of each sent datagram, bytes.
    pub(super) fn datagram(&self) -> u64 {
        self.flows.first().map_or(1, |flow| flow.datagram_bytes as u64)
    }

    /// Ends the sending now.
    pub(super) fn stop_sending(&self) {
        if self.engine.sends() {
            self.engine.load().stop();
        }
    }

    /// Returns the maximum rate per stream that the server allows.
    pub(super) fn rate_limit(&self) -> Option<BitRate> {
        self.rate_limit
    }

    /// Passes a step to the sender of a ramp.
    pub(super) fn step(&mut self, step: RampStep) {
        if let Some(steps) = &self.steps {
            let _ = steps.send(step);
        }
    }

    /// Returns a step that was just sent, once.
    pub(super) fn take_sent_step(&mut self) -> Option<StepSent> {
        self.sent_step.take()
    }

    /// Returns the result of a step so far.
    pub(super) fn result(&self, step: u32) -> StepReceived {
        let meter = self.flows.first().map(|flow| flow.incoming.lock().step).unwrap_or_default();
        if meter.step() == step { meter.figures() } else { StepReceived { step, ..StepReceived::default() } }
    }

    /// Returns the number of datagrams that each stream sent.
    pub(super) fn sent(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.counter.datagrams()).collect()
    }

    /// Returns whether all sent datagrams have arrived, or no more are expected. `since` is the time of the message
    /// with the sent numbers.
    pub(super) fn has_settled(&self, sent: &[u64], since: Instant, rtt: Duration) -> bool {
        let all = self.flows.iter().zip(sent).all(|(flow, &sent)| flow.incoming.lock().stats.received() >= sent);
        all || self.is_quiet(since, rtt)
    }

    /// Returns whether all datagrams of a step have arrived, or no more are expected.
    pub(super) fn has_step_settled(&self, step: u32, datagrams: u64, since: Instant, rtt: Duration) -> bool {
        self.result(step).datagrams >= datagrams || self.is_quiet(since, rtt)
    }

    fn is_quiet(&self, since: Instant, rtt: Duration) -> bool {
        let last = self.flows.iter().map(|flow| flow.incoming.lock().last).max().unwrap_or(0);
        let silent = Duration::from_nanos(monotonic_nanos().saturating_sub(last)).min(since.elapsed());
        silent > QUIET_TIME + rtt || since.elapsed() > MAX_LATENESS + rtt
    }

    /// Returns the time until there is something to do.
    pub(super) fn time_to_next_event(&self) -> Duration {
        let Some(now) = self.now() else { return POLL_INTERVAL };
        self.intervals.next_end().saturating_sub(now).min(POLL_INTERVAL).max(Duration::from_millis(1))
    }

    /// Closes the current interval if it is over, and returns it.
    pub(super) fn close_due_interval(&mut self) -> Option<&Interval> {
        let now = self.now()?;
        self.intervals.close_due(now, metered(&self.flows, self.engine.sends()))
    }

    /// Like [`UdpEnd::close_due_interval`], for callers that send the interval at once: it is not kept.
    pub(super) fn take_interval(&mut self) -> Option<Interval> {
        let now = self.now()?;
        self.intervals.take_due(now, metered(&self.flows, self.engine.sends()))
    }

    /// Returns the number of intervals that [`UdpEnd::close_due_interval`] closed.
    pub(super) fn closed_intervals(&self) -> usize {
        self.intervals.closed_count()
    }

    /// Returns the time since the first datagram.
    pub(super) fn now(&self) -> Option<Duration> {
        Some(Duration::from_nanos(monotonic_nanos().saturating_sub(self.first()?)))
    }

    /// Stops the threads and returns the report. A receiver needs the number of datagrams sent on each stream.
    pub(super) fn finish(
        &mut self,
        sent: Option<&[u64]>,
        ramp: Option<RampReport>,
        kernel: Kernel,
    ) -> Result<EndReport, TestError> {
        self.stop()?;
        for (flow, &sent) in self.flows.iter().zip(sent.unwrap_or(&[])) {
            flow.incoming.lock().stats.finish(sent);
        }
        let elapsed = self.elapsed();
        let last_end = self.intervals.last_end();
        let (flows, sends) = (&self.flows, self.engine.sends());
        if elapsed > last_end || self.intervals.closed_count() == 0 {
            self.intervals.close(elapsed.max(last_end), metered(flows, sends));
        } else if self.intervals.has_uncounted(metered(flows, sends)) {
            // Losses of the last datagrams are known only now.
            self.intervals.close(self.now().unwrap_or(last_end), metered(flows, sends));
        }
        let streams: Vec<StreamReport> = self.flows.iter().map(|flow| self.report(flow, ramp.clone())).collect();
        let (host, mut notes) = self.intervals.finish_host_watch();
        notes.extend(socket_warnings(&streams, host.as_ref()));
        Ok(EndReport {
            host,
            notes,
            elapsed,
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            cpu: Some(self.engine.cpu()),
            kernel: Some(kernel),
            lfn_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            started: self.first(),
            streams,
            intervals: self.intervals.take_intervals(),
            ..EndReport::default()
        })
    }

    /// Stops the threads, which check the flag twenty times a second. A send waits a second at most.
    fn stop(&mut self) -> Result<(), TestError> {
        self.steps = None;
        Ok(self.engine.stop()?)
    }

    /// Returns the time at which the first datagram left or arrived.
    fn first(&self) -> Option<u64> {
        let first = |flow: &Arc<UdpFlow>| {
            if self.engine.sends() { flow.outgoing.lock().first } else { flow.incoming.lock().first }
        };
        self.flows.iter().filter_map(first).min()
    }

    /// Returns the time from the first datagram to the time at which the one after the last would be due.
    fn elapsed(&self) -> Duration {
        let end = |flow: &Arc<UdpFlow>| {
            if self.engine.sends() {
                let outgoing = flow.outgoing.lock();
                flow_end(outgoing.first, outgoing.last, flow.counter.datagrams())
            } else {
                let incoming = flow.incoming.lock();
                flow_end(incoming.first, incoming.last, incoming.stats.received())
            }
        };
        let end = self.flows.iter().map(end).max().unwrap_or(0);
        Duration::from_nanos(end.saturating_sub(self.first().unwrap_or(end)))
    }

    fn report(&self, flow: &UdpFlow, ramp: Option<RampReport>) -> StreamReport {
        let figures = if self.engine.sends() {
            UdpFigures { sent: Some(flow.sent()), ramp, ..UdpFigures::default() }
        } else {
            UdpFigures { received: Some(flow.received()), ..UdpFigures::default() }
        };
        StreamReport {
            stream: flow.stream.stream(),
            thread: self
                .intervals
                .host_watch()
                .and_then(|host| host.thread_total(flow.stream.stream(), flow.counter.thread())),
            bytes: flow.counter.bytes(),
            socket: Some(flow.socket.clone()),
            udp: Some(Box::new(figures)),
            ..StreamReport::default()
        }
    }
}

impl Drop for UdpEnd {
    fn drop(&mut self) {
        // The test is over, so an error has no reader.
        let _ = self.stop();
    }
}

/// Work of a stream's thread.
struct FlowWork {
    flow: Arc<UdpFlow>,
    rate: BitRate,
    load: TestLoad,
    ramp: Option<RampChannels>,
}

/// Channels of a ramp at its sender's thread.
struct RampChannels {
    steps: Receiver<RampStep>,
    sent: Sender<StepSent>,
}

impl FlowWork {
    fn run(self, load: &LoadState) -> io::Result<()> {
        if !load.options.sends {
            return receiver::run(&self.flow, load);
        }
        let mut sender = UdpSender::new(&self.flow, load)?;
        let Some(ramp) = self.ramp else {
            let until = match self.load {
                TestLoad::TimeSeconds(time) => SendUntil::Time(time),
                TestLoad::Records(_) | TestLoad::Bytes(_) => SendUntil::Count,
            };
            return sender.run(self.rate, 0, until).map(drop);
        };
        // The loop ends when the channel of steps is closed.
        while let Ok(step) = ramp.steps.recv() {
            let sent = sender.run(step.rate, step.number, SendUntil::Time(step.time))?;
            // At the end of the test no client reads the result.
            let _ = ramp.sent.send(sent);
        }
        Ok(())
    }
}

/// Returns the end time of a stream: one mean gap after its last datagram. N datagrams have N - 1 gaps; without the
/// extra gap, a few datagrams would show a goodput above their sending rate.
fn flow_end(first: Option<u64>, last: u64, datagrams: u64) -> u64 {
    let span = last.saturating_sub(first.unwrap_or(last));
    let gap = span.checked_div(datagrams.saturating_sub(1)).unwrap_or(0);
    last.saturating_add(gap)
}

/// Returns the streams for the meter of intervals.
fn metered(flows: &[Arc<UdpFlow>], sends: bool) -> impl Iterator<Item = MeteredFlow<'_>> {
    flows.iter().map(move |flow| MeteredFlow { flow, sends })
}

/// A stream with the statistics of its datagrams.
struct MeteredFlow<'a> {
    flow: &'a UdpFlow,
    sends: bool,
}

impl MeteredStream for MeteredFlow<'_> {
    fn number(&self) -> u16 {
        self.flow.stream.stream()
    }

    fn thread(&self) -> i32 {
        self.flow.counter.thread()
    }

    fn totals(&self, before: &StreamTotals) -> StreamTotals {
        if self.sends {
            let _lock = self.flow.outgoing.lock();
            let counter = &self.flow.counter;
            return StreamTotals { bytes: counter.bytes(), datagrams: counter.datagrams(), ..StreamTotals::default() };
        }
        let incoming = self.flow.incoming.lock();
        let stats = &incoming.stats;
        StreamTotals {
            bytes: self.flow.counter.bytes(),
            datagrams: stats.received(),
            // A datagram that arrives late stays lost in the interval that missed it.
            lost: stats.missing().max(before.lost),
            reordered: stats.reordered(),
            duplicates: stats.duplicates(),
        }
    }

    fn sample(&self, added: &StreamTotals) -> StreamSample {
        let udp = UdpSample {
            datagrams: added.datagrams,
            lost: added.lost,
            reordered: added.reordered,
            duplicates: added.duplicates,
            jitter: (!self.sends).then(|| self.flow.incoming.lock().stats.jitter().smoothed()),
        };
        StreamSample { stream: self.number(), bytes: added.bytes, udp: Some(udp), ..StreamSample::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_datagram_counts_with_its_gap() {
        // Nine datagrams, one every 100 ms from 50 ms on, last 0.9 s.
        let ms = 1_000_000;
        assert_eq!(flow_end(Some(50 * ms), 850 * ms, 9), 950 * ms);
        assert_eq!(flow_end(Some(50 * ms), 50 * ms, 1), 50 * ms);
        assert_eq!(flow_end(None, 0, 0), 0);
    }
}
