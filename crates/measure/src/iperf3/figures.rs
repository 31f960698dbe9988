//! Counts of one end: the start, the warm-up, the intervals, and the results for the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::{Cpu, Interval, StreamSample};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_sys::tcp;

use super::Error;
use super::stream::{ArrivedDatagrams, OpenStream, load_options};
use crate::load::{IntervalMeter, LoadEngine, LoadError, LoadState, LoadStream, MeteredStream, StreamTotals};
use crate::proto::iperf3::datagram::{CounterWidth, DatagramCounts};
use crate::proto::iperf3::results::CpuPercent;
use crate::proto::iperf3::{Parameters, Results, StreamResult};

/// Streams of one end with their counts.
#[derive(Debug)]
pub(super) struct IperfFigures {
    protocol: LoadProtocol,
    block_bytes: u64,
    width: CounterWidth,
    /// Origin of all times.
    origin: Instant,
    /// One for each direction, in the order of the streams' ids.
    engines: Vec<LoadEngine>,
    /// Streams that are not started.
    waiting: Vec<OpenStream>,
    /// Counts of the datagrams that arrived on each stream.
    arrivals: Vec<ArrivedDatagrams>,
    /// Start of the count, from the origin.
    start: Duration,
    /// Duration of the warm-up; `None` when it is over.
    omit: Option<Duration>,
    intervals: IntervalMeter,
    /// State of each stream at the start of the count.
    baselines: Vec<Baseline>,
    /// End of the count, from the start.
    ended_at: Option<Duration>,
    /// Bytes received on each stream at the end of the count.
    received_at_end: Option<Vec<u64>>,
    /// Time at which all bytes had arrived, if the client waited for them.
    delivered_at: Option<Duration>,
    cpu: CpuPercent,
    /// Processor time of the counting thread at the start of the count.
    cpu_before: tcp::CpuTime,
}

/// A stream with its direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct IperfStream<'a> {
    pub(super) sends: bool,
    pub(super) stream: &'a LoadStream,
}

/// Counts of a stream at the end of its warm-up.
#[derive(Debug, Clone, Copy, Default)]
struct Baseline {
    bytes: u64,
    datagrams: u64,
    arrivals: DatagramCounts,
    retransmits: u64,
    /// Bytes that the receiver's kernel had acknowledged.
    acked: u64,
}

/// Figures of one interval, with the streams of both directions.
#[derive(Debug, Clone)]
pub(super) struct IntervalFigures {
    pub(super) interval: Interval,
    /// The interval belongs to the warm-up.
    pub(super) omitted: bool,
}

impl IperfFigures {
    /// Starts the count now, with the streams that are already open. `rate_limiter` limits all streams together.
    pub(super) fn new(
        parameters: &Parameters,
        rate_limiter: &Arc<RateLimiter>,
        waiting: Vec<OpenStream>,
        interval: Duration,
    ) -> Self {
        let (origin, count, omit) = (Instant::now(), waiting.len(), parameters.omit);
        let mut engines: Vec<LoadEngine> = Vec::new();
        let mut baselines = Vec::new();
        for open in &waiting {
            let stream = open.load_stream();
            // The cookie was acknowledged before and is not part of the load.
            let acked = stream.handle.info().and_then(|info| info.acked_bytes).unwrap_or(0);
            baselines.push(Baseline { acked, ..Baseline::default() });
            if engines.last().is_none_or(|engine| engine.sends() != open.sends) {
                let options = load_options(parameters, open.sends);
                engines.push(LoadEngine::new(LoadState::new(options, origin, rate_limiter.clone())));
            }
            if let Some(engine) = engines.last_mut() {
                engine.add(stream);
            }
        }
        let mut intervals = IntervalMeter::new(interval.max(Duration::from_millis(10)), 1);
        (0..count).for_each(|index| intervals.add_stream(index));
        IperfFigures {
            protocol: parameters.protocol,
            block_bytes: parameters.length.0,
            width: parameters.width,
            origin,
            engines,
            waiting,
            arrivals: (0..count).map(|_| ArrivedDatagrams::default()).collect(),
            start: origin.elapsed(),
            omit: Some(omit).filter(|omit| !omit.is_zero()),
            intervals,
            baselines,
            ended_at: None,
            received_at_end: None,
            delivered_at: None,
            cpu: CpuPercent::default(),
            cpu_before: tcp::thread_cpu(),
        }
    }

    /// Starts the threads of the streams.
    pub(super) fn start_streams(&mut self) -> Result<(), Error> {
        for (open, arrivals) in std::mem::take(&mut self.waiting).into_iter().zip(&self.arrivals) {
            let id = open.id;
            let engine = self.engines.iter_mut().find(|engine| engine.sends() == open.sends);
            let Some(engine) = engine else { continue };
            let Some(stream) = engine.streams().iter().find(|stream| stream.number == id) else { continue };
            let counter = stream.counter.clone();
            let started = open.start(engine, counter, self.width, arrivals.clone());
            started.map_err(|source| Error::Stream { id: id.into(), source })?;
        }
        Ok(())
    }

    /// Returns the streams in the order of their ids.
    pub(super) fn streams(&self) -> impl Iterator<Item = IperfStream<'_>> {
        streams(&self.engines)
    }

    /// Returns the ids of the streams.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.streams().map(|stream| stream.id()).collect()
    }

    /// Returns an error if a stream has failed.
    pub(super) fn check_streams(&mut self) -> Result<(), Error> {
        Ok(self.engines.iter_mut().try_for_each(|engine| engine.collect(|_, _| ()))?)
    }

    /// Returns whether all streams of a direction have ended. A direction without streams has not.
    pub(super) fn have_all_ended(&self, sends: bool) -> bool {
        self.engines.iter().any(|engine| engine.sends() == sends && engine.ended() == engine.streams().len())
    }

    /// Returns whether a stream of a direction has ended.
    pub(super) fn has_any_ended(&self, sends: bool) -> bool {
        self.engines.iter().any(|engine| engine.sends() == sends && engine.ended() > 0)
    }

    /// Limits the bytes that are sent from now on.
    pub(super) fn limit_bytes(&self, bytes: u64) {
        // A datagram is never shortened.
        let amount = match self.protocol {
            LoadProtocol::Tcp => bytes,
            LoadProtocol::Udp => bytes.div_ceil(self.block_bytes.max(1)),
        };
        self.engines.iter().filter(|engine| engine.sends()).for_each(|engine| engine.load().limit(amount));
    }

    /// Ends the sending at the senders' next block.
    pub(super) fn stop_sending(&self) {
        self.engines.iter().filter(|engine| engine.sends()).for_each(|engine| engine.load().stop());
    }

    /// Returns the bytes of all streams, with the warm-up.
    pub(super) fn all_bytes(&self) -> u64 {
        self.engines.iter().map(LoadEngine::bytes).sum()
    }

    /// Returns the time since the start of the count.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed().saturating_sub(self.start)
    }

    /// Returns whether the warm-up continues.
    pub(super) fn is_warming_up(&self) -> bool {
        self.omit.is_some()
    }

    /// Returns the time until there is something to do.
    pub(super) fn time_to_next_event(&self) -> Duration {
        let next = self.omit.unwrap_or(Duration::MAX).min(self.intervals.next_end());
        next.saturating_sub(self.now())
    }

    /// Returns the bytes of all sending or all receiving streams since the start of the count.
    pub(super) fn bytes(&self, sends: bool) -> u64 {
        let streams = self.streams().zip(&self.baselines).filter(|(stream, _)| stream.sends == sends);
        streams.map(|(stream, baseline)| stream.bytes().saturating_sub(baseline.bytes)).sum()
    }

    /// Closes the current interval if it is over, and returns it. The end of the warm-up also ends an interval and
    /// restarts the count.
    pub(super) fn close_due_interval(&mut self) -> Option<IntervalFigures> {
        let now = self.now();
        if self.omit.is_some_and(|omit| now >= omit) {
            let interval = self.close_interval(now);
            self.end_warm_up();
            return Some(interval);
        }
        let omitted = self.is_warming_up();
        let interval = self.intervals.take_due(now, streams(&self.engines))?;
        Some(IntervalFigures { interval, omitted })
    }

    /// Ends the count. Returns the rest since the last interval, if it has data or is long enough.
    pub(super) fn finish(&mut self) -> Option<IntervalFigures> {
        let now = self.now();
        self.ended_at = Some(now);
        self.received_at_end = Some(self.streams().map(|stream| stream.bytes()).collect());
        let interval = (now > self.intervals.last_end()).then(|| self.close_interval(now));
        interval.filter(|IntervalFigures { interval, .. }| {
            interval.bytes > 0 || interval.end - interval.start > self.intervals.interval() / 2
        })
    }

    /// Includes data that arrived after [`IperfFigures::finish`], and moves the end of the count to the last byte.
    pub(super) fn include_late_arrivals(&mut self) {
        let last = self.last(false);
        self.ended_at = self.ended_at.map(|end| end.max(last));
        self.received_at_end = None;
    }

    /// Returns the time of the last byte of a direction, from the start.
    pub(super) fn last(&self, sends: bool) -> Duration {
        let streams = self.streams().filter(|stream| stream.sends == sends);
        let last = streams.map(|stream| stream.stream.counter.last()).max();
        last.unwrap_or_default().saturating_sub(self.start)
    }

    /// Returns the bytes that a stream's receiver had acknowledged at the start of the count.
    pub(super) fn acked_at_start(&self, at: usize) -> u64 {
        self.baselines.get(at).map_or(0, |baseline| baseline.acked)
    }

    /// Returns the length of the intervals.
    pub(super) fn interval(&self) -> Duration {
        self.intervals.interval()
    }

    /// Returns the counted time.
    pub(super) fn elapsed(&self) -> Duration {
        self.delivered_at.or(self.ended_at).unwrap_or_else(|| self.now())
    }

    /// Records that all bytes have arrived; later waits do not belong to the test.
    pub(super) fn mark_delivered(&mut self) {
        self.delivered_at = Some(self.now());
    }

    /// Returns whether the client waited for the arrival of all bytes.
    pub(super) fn is_delivered(&self) -> bool {
        self.delivered_at.is_some()
    }

    /// Ends the streams of one direction; their processor time is known afterwards.
    pub(super) fn stop(&mut self, sends: bool) {
        for engine in self.engines.iter_mut().filter(|engine| engine.sends() == sends) {
            // The load is over: its results are valid, whatever happens to a stream now.
            let _ = engine.stop();
        }
        self.cpu = self.measure_cpu();
    }

    /// Returns the processor time of one direction's threads since the start of the count, for threads that have ended.
    pub(super) fn cpu_time(&self, sends: bool) -> Cpu {
        self.engines.iter().find(|engine| engine.sends() == sends).map(LoadEngine::cpu).unwrap_or_default()
    }

    /// Returns the processor time of all streams' threads and of this thread, as a share of the counted time.
    fn measure_cpu(&self) -> CpuPercent {
        let own = tcp::thread_cpu();
        let (one, other) = (self.cpu_time(true), self.cpu_time(false));
        let user = own.user.saturating_sub(self.cpu_before.user) + one.user + other.user;
        let system = own.system.saturating_sub(self.cpu_before.system) + one.system + other.system;
        let time = self.now().as_secs_f64().max(1e-3);
        let percent = |used: Duration| 100.0 * used.as_secs_f64() / time;
        CpuPercent { total: percent(user + system), user: percent(user), system: percent(system) }
    }

    /// Returns the results for the peer.
    pub(super) fn results(&self) -> Results {
        let is_tcp = self.protocol == LoadProtocol::Tcp;
        let sends = self.streams().any(|stream| stream.sends);
        Results {
            cpu: self.cpu,
            has_retransmits: sends.then_some(is_tcp),
            congestion: self.congestion(),
            output: None,
            streams: self.streams().enumerate().map(|(at, stream)| self.stream(at, stream)).collect(),
        }
    }

    fn congestion(&self) -> Option<String> {
        let is_tcp = self.protocol == LoadProtocol::Tcp;
        self.streams().filter(|_| is_tcp).find_map(|stream| tcp::congestion(stream.stream.handle.socket()?).ok())
    }

    fn stream(&self, at: usize, stream: IperfStream<'_>) -> StreamResult {
        let baseline = &self.baselines[at];
        let arrivals = *self.arrivals[at].lock();
        // Later data is read to unblock the sender, but does not count.
        let received = self.received_at_end.as_ref().map(|all| all[at]).filter(|_| !stream.sends);
        let (packets, omitted) = match (self.protocol, stream.sends) {
            (LoadProtocol::Udp, true) => (stream.stream.counter.datagrams(), baseline.datagrams),
            (LoadProtocol::Udp, false) => (arrivals.highest, baseline.arrivals.highest),
            (LoadProtocol::Tcp, _) => (0, 0),
        };
        StreamResult {
            id: stream.id(),
            bytes: received.unwrap_or(stream.bytes()).saturating_sub(baseline.bytes),
            retransmits: stream
                .retransmits()
                .filter(|_| stream.sends)
                .map(|all| all.saturating_sub(baseline.retransmits)),
            jitter: arrivals.jitter,
            errors: arrivals.lost,
            packets,
            omitted: Some((baseline.arrivals.lost, omitted)),
            time: Some(self.elapsed()),
        }
    }

    fn close_interval(&mut self, now: Duration) -> IntervalFigures {
        let interval = self.intervals.take(now, streams(&self.engines));
        IntervalFigures { interval, omitted: self.is_warming_up() }
    }

    fn end_warm_up(&mut self) {
        self.omit = None;
        self.start = self.origin.elapsed();
        self.engines.iter().for_each(|engine| engine.load().end_warm_up());
        self.cpu_before = tcp::thread_cpu();
        let baselines = self.streams().zip(&self.arrivals).map(|(stream, arrivals)| {
            arrivals.lock().reset_jitter();
            Baseline {
                bytes: stream.bytes(),
                datagrams: stream.stream.counter.datagrams(),
                arrivals: *arrivals.lock(),
                retransmits: stream.retransmits().unwrap_or(0),
                acked: stream.stream.handle.info().and_then(|info| info.acked_bytes).unwrap_or(0),
            }
        });
        self.baselines = baselines.collect();
        // The first interval starts where the results start.
        self.intervals.restart(self.baselines.iter().map(|baseline| StreamTotals::of_bytes(baseline.bytes)).collect());
    }
}

impl IperfStream<'_> {
    pub(super) fn id(&self) -> u32 {
        self.stream.number.into()
    }

    fn bytes(&self) -> u64 {
        self.stream.counter.bytes()
    }

    /// Returns the retransmitted segments, if the kernel reports them.
    fn retransmits(&self) -> Option<u64> {
        self.stream.handle.info().map(|info| info.retransmitted_segments.into())
    }
}

impl MeteredStream for IperfStream<'_> {
    fn number(&self) -> u16 {
        self.stream.number
    }

    fn thread(&self) -> i32 {
        self.stream.counter.thread()
    }

    fn totals(&self, _before: &StreamTotals) -> StreamTotals {
        StreamTotals::of_bytes(self.bytes())
    }

    fn sample(&self, added: &StreamTotals) -> StreamSample {
        let tcp_info = self.stream.handle.info();
        StreamSample { stream: self.stream.number, bytes: added.bytes, tcp_info, ..StreamSample::default() }
    }
}

fn streams(engines: &[LoadEngine]) -> impl Iterator<Item = IperfStream<'_>> {
    engines.iter().flat_map(|engine| {
        let sends = engine.sends();
        engine.streams().iter().map(move |stream| IperfStream { sends, stream })
    })
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Stream { stream, source } => Error::Stream { id: stream.into(), source },
            // The streams are open before the load.
            LoadError::Open(source) => Error::Stream { id: 0, source: std::io::Error::other(*source) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use lfn_session::transport::tcp::{TcpSocket, pair};

    use super::*;

    fn send(far: &mut TcpSocket, bytes: u64, figures: &IperfFigures) {
        let wanted = figures.all_bytes() + bytes;
        let (block, mut left) = (vec![0; 1 << 20], bytes);
        while left > 0 {
            let part = left.min(1 << 20);
            far.write_all(&block[..part as usize]).unwrap();
            left -= part;
        }
        while figures.all_bytes() < wanted {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn warm_up_processor_time_does_not_count() {
        let used = |warm_up: bool, after: u64| {
            let (near, mut far) = pair();
            let omit = if warm_up { Duration::from_millis(1) } else { Duration::ZERO };
            let parameters = Parameters { omit, ..Parameters::default() };
            let streams = vec![OpenStream::tcp(1, false, near)];
            let mut figures =
                IperfFigures::new(&parameters, &RateLimiter::unlimited(), streams, Duration::from_secs(3600));
            figures.start_streams().unwrap();
            send(&mut far, 1 << 30, &figures);
            assert_eq!(figures.close_due_interval().is_some(), warm_up);
            if after > 0 {
                send(&mut far, after, &figures);
            }
            figures.stop(false);
            let cpu = figures.cpu_time(false);
            cpu.user + cpu.system
        };
        // One GiB and one byte, then the byte alone, then nothing: the last two take almost no time.
        let (all, byte, none) = (used(false, 1), used(true, 1), used(true, 0));
        assert!(byte < all / 10 && none < all / 10, "{all:?} {byte:?} {none:?}");
    }
}
