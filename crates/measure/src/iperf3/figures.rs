//! Counts of one end: the start, the warm-up, the intervals, and the results for the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::tcp_info::TcpInfo;
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::Cpu;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_sys::tcp;

use super::Error;
use super::stream::{ArrivedDatagrams, OpenStream, load_options, lock};
use crate::load::{LoadEngine, LoadError, LoadState, LoadStream};
use crate::proto::iperf3::datagram::{CounterWidth, DatagramCounts};
use crate::proto::iperf3::results::CpuPercent;
use crate::proto::iperf3::{Parameters, Results, StreamResult};

/// Streams of one end with their counts.
#[derive(Debug)]
pub(super) struct IperfFigures {
    protocol: LoadProtocol,
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
    interval: Duration,
    /// End of the current interval, from the start.
    next_interval_end: Duration,
    /// End of the last closed interval, from the start.
    last_interval_end: Duration,
    /// State of each stream at the start of the count.
    baselines: Vec<Baseline>,
    /// Bytes of each stream at the end of the last interval.
    counted_bytes: Vec<u64>,
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

/// Counts of one interval.
#[derive(Debug, Clone)]
pub(super) struct IntervalFigures {
    /// Time from the start.
    pub(super) start: Duration,
    /// Time from the start.
    pub(super) ended_at: Duration,
    /// The interval belongs to the warm-up.
    pub(super) omitted: bool,
    /// Bytes and TCP_INFO of each stream.
    pub(super) streams: Vec<(u64, Option<TcpInfo>)>,
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
        IperfFigures {
            protocol: parameters.protocol,
            width: parameters.width,
            origin,
            engines,
            waiting,
            arrivals: (0..count).map(|_| ArrivedDatagrams::default()).collect(),
            start: origin.elapsed(),
            omit: Some(omit).filter(|omit| !omit.is_zero()),
            interval: interval.max(Duration::from_millis(10)),
            next_interval_end: interval.max(Duration::from_millis(10)),
            last_interval_end: Duration::ZERO,
            baselines,
            counted_bytes: vec![0; count],
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
            let engine = self.engines.iter().find(|engine| engine.sends() == open.sends);
            let Some(engine) = engine else { continue };
            let Some(stream) = engine.streams().iter().find(|stream| stream.number == id) else { continue };
            let started = open.start(engine, stream.counter.clone(), self.width, arrivals.clone());
            started.map_err(|source| Error::Stream { id: id.into(), source })?;
        }
        Ok(())
    }

    /// Returns the streams in the order of their ids.
    pub(super) fn streams(&self) -> impl Iterator<Item = IperfStream<'_>> {
        self.engines.iter().flat_map(|engine| {
            let sends = engine.sends();
            engine.streams().iter().map(move |stream| IperfStream { sends, stream })
        })
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
        self.engines.iter().filter(|engine| engine.sends()).for_each(|engine| engine.load().limit(bytes));
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
        let next = self.omit.map_or(self.next_interval_end, |omit| omit.min(self.next_interval_end));
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
        if now < self.next_interval_end {
            return None;
        }
        let interval = self.close_interval(now);
        // A late end of an interval does not shift the next ones.
        let passed = now.as_nanos() / self.interval.as_nanos().max(1);
        self.next_interval_end = self.interval.saturating_mul(u32::try_from(passed + 1).unwrap_or(u32::MAX));
        Some(interval)
    }

    /// Ends the count. Returns the rest since the last interval, if it has data or is long enough.
    pub(super) fn finish(&mut self) -> Option<IntervalFigures> {
        let now = self.now();
        self.ended_at = Some(now);
        self.received_at_end = Some(self.streams().map(|stream| stream.bytes()).collect());
        let interval = (now > self.last_interval_end).then(|| self.close_interval(now));
        interval.filter(|interval| {
            interval.streams.iter().any(|(bytes, _)| *bytes > 0)
                || interval.ended_at - interval.start > self.interval / 2
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
        self.interval
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
        let arrivals = *lock(&self.arrivals[at]);
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
        let mut counted_bytes = std::mem::take(&mut self.counted_bytes);
        let streams = self.streams().zip(&mut counted_bytes).map(|(stream, counted)| {
            let total = stream.bytes();
            (total.saturating_sub(std::mem::replace(counted, total)), stream.stream.handle.info())
        });
        let streams = streams.collect();
        self.counted_bytes = counted_bytes;
        let start = std::mem::replace(&mut self.last_interval_end, now);
        IntervalFigures { start, ended_at: now, omitted: self.is_warming_up(), streams }
    }

    fn end_warm_up(&mut self) {
        self.omit = None;
        self.start = self.origin.elapsed();
        self.engines.iter().for_each(|engine| engine.load().end_warm_up());
        self.cpu_before = tcp::thread_cpu();
        (self.last_interval_end, self.next_interval_end) = (Duration::ZERO, self.interval);
        let baselines = self.streams().zip(&self.arrivals).map(|(stream, arrivals)| {
            lock(arrivals).reset_jitter();
            Baseline {
                bytes: stream.bytes(),
                datagrams: stream.stream.counter.datagrams(),
                arrivals: *lock(arrivals),
                retransmits: stream.retransmits().unwrap_or(0),
                acked: stream.stream.handle.info().and_then(|info| info.acked_bytes).unwrap_or(0),
            }
        });
        self.baselines = baselines.collect();
        // The first interval starts where the results start.
        self.counted_bytes = self.baselines.iter().map(|baseline| baseline.bytes).collect();
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
