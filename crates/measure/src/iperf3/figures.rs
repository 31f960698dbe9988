//! Counts of one end: the start, the warm-up, the intervals, and the results for the peer.

use std::sync::Arc;
use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_sys::tcp;

use super::stream::{IperfStream, Load, Socket};
use crate::proto::iperf3::datagram::DatagramCounts;
use crate::proto::iperf3::results::CpuPercent;
use crate::proto::iperf3::{Results, StreamResult};

/// Streams of one end with their counts.
#[derive(Debug)]
pub(super) struct IperfFigures {
    load: Arc<Load>,
    pub(super) streams: Vec<IperfStream>,
    /// Start of the count, from the load's origin.
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

/// Counts of a stream at the end of its warm-up.
#[derive(Debug, Clone, Copy, Default)]
struct Baseline {
    bytes: u64,
    blocks: u64,
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
    /// Starts the count now, with the streams that are already open.
    pub(super) fn new(load: Arc<Load>, streams: Vec<IperfStream>, omit: Duration, interval: Duration) -> Self {
        let start = load.now();
        let count = streams.len();
        // The cookie was acknowledged before and is not part of the load.
        let acked = |stream: &IperfStream| stream.socket.info().and_then(|info| info.acked_bytes).unwrap_or(0);
        let baselines = streams.iter().map(|stream| Baseline { acked: acked(stream), ..Baseline::default() }).collect();
        IperfFigures {
            load,
            streams,
            start,
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

    /// Returns the time since the start of the count.
    pub(super) fn now(&self) -> Duration {
        self.load.now().saturating_sub(self.start)
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
        let counted =
            |(stream, baseline): (&IperfStream, &Baseline)| stream.counter().bytes().saturating_sub(baseline.bytes);
        self.streams.iter().zip(&self.baselines).filter(|(stream, _)| stream.sends == sends).map(counted).sum()
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
        self.received_at_end = Some(self.streams.iter().map(|stream| stream.counter().bytes()).collect());
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
        let last =
            self.streams.iter().filter(|stream| stream.sends == sends).map(|stream| stream.counter().last()).max();
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
        if sends {
            self.load.stop_sending()
        } else {
            self.load.stop_receiving()
        }
        self.streams.iter_mut().filter(|stream| stream.sends == sends).for_each(IperfStream::stop);
        self.cpu = self.measure_cpu();
    }

    /// Returns the processor time of one direction's threads since the start of the count, for threads that have ended.
    pub(super) fn cpu_time(&self, sends: bool) -> tcp::CpuTime {
        let mut sum = tcp::CpuTime::default();
        for stream in self.streams.iter().filter(|stream| stream.sends == sends) {
            let cpu = stream.counter().cpu();
            (sum.user, sum.system) = (sum.user + cpu.user, sum.system + cpu.system);
        }
        sum
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
        let is_tcp = self.streams.iter().any(|stream| matches!(*stream.socket, Socket::Tcp(_)));
        let sends = self.streams.iter().any(|stream| stream.sends);
        Results {
            cpu: self.cpu,
            has_retransmits: sends.then_some(is_tcp),
            congestion: self.congestion(),
            output: None,
            streams: (0..self.streams.len()).map(|at| self.stream(at)).collect(),
        }
    }

    fn congestion(&self) -> Option<String> {
        self.streams.iter().find_map(|stream| match &*stream.socket {
            Socket::Tcp(socket) => tcp::congestion(socket).ok(),
            Socket::Udp(_) => None,
        })
    }

    fn stream(&self, at: usize) -> StreamResult {
        let (stream, baseline) = (&self.streams[at], &self.baselines[at]);
        let (counter, arrivals) = (stream.counter(), stream.counter().arrivals());
        // Later data is read to unblock the sender, but does not count.
        let received = self.received_at_end.as_ref().map(|all| all[at]).filter(|_| !stream.sends);
        let (packets, omitted) = match (&*stream.socket, stream.sends) {
            (Socket::Udp(_), true) => (counter.blocks(), baseline.blocks),
            (Socket::Udp(_), false) => (arrivals.highest, baseline.arrivals.highest),
            (Socket::Tcp(_), _) => (0, 0),
        };
        StreamResult {
            id: stream.id,
            bytes: received.unwrap_or(counter.bytes()).saturating_sub(baseline.bytes),
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
        let streams = self.streams.iter().zip(&mut self.counted_bytes).map(|(stream, counted)| {
            let total = stream.counter().bytes();
            (total.saturating_sub(std::mem::replace(counted, total)), stream.socket.info())
        });
        let streams = streams.collect();
        let start = std::mem::replace(&mut self.last_interval_end, now);
        IntervalFigures { start, ended_at: now, omitted: self.is_warming_up(), streams }
    }

    fn end_warm_up(&mut self) {
        self.omit = None;
        self.start = self.load.now();
        self.load.end_warm_up();
        self.cpu_before = tcp::thread_cpu();
        (self.last_interval_end, self.next_interval_end) = (Duration::ZERO, self.interval);
        for (stream, baseline) in self.streams.iter().zip(&mut self.baselines) {
            stream.counter().forget_jitter();
            *baseline = Baseline {
                bytes: stream.counter().bytes(),
                blocks: stream.counter().blocks(),
                arrivals: stream.counter().arrivals(),
                retransmits: stream.retransmits().unwrap_or(0),
                acked: stream.socket.info().and_then(|info| info.acked_bytes).unwrap_or(0),
            };
        }
        // The first interval starts where the results start.
        self.counted_bytes = self.baselines.iter().map(|baseline| baseline.bytes).collect();
    }
}

impl IperfStream {
    /// Returns the retransmitted segments, if the kernel reports them.
    fn retransmits(&self) -> Option<u64> {
        self.socket.info().map(|info| info.retransmitted_segments.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use lfn_session::limits::rate_limiter::RateLimiter;
    use lfn_session::transport::tcp::{TcpSocket, pair};

    use super::*;
    use crate::proto::iperf3::Parameters;

    /// Returns a receiving stream and its sender's socket.
    fn receiver(load: &Arc<Load>) -> (IperfStream, TcpSocket) {
        let (near, far) = pair();
        let mut stream = IperfStream::new(1, false, Socket::Tcp(near), load.clone());
        stream.start().unwrap();
        (stream, far)
    }

    fn send(far: &mut TcpSocket, bytes: u64, figures: &IperfFigures) {
        let wanted = figures.streams[0].counter().bytes() + bytes;
        let (block, mut left) = (vec![0; 1 << 20], bytes);
        while left > 0 {
            let part = left.min(1 << 20);
            far.write_all(&block[..part as usize]).unwrap();
            left -= part;
        }
        while figures.streams[0].counter().bytes() < wanted {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn warm_up_processor_time_does_not_count() {
        let used = |warm_up: bool, after: u64| {
            let load = Load::new(&Parameters::default(), None, RateLimiter::unlimited());
            let (stream, mut far) = receiver(&load);
            let omit = if warm_up { Duration::from_millis(1) } else { Duration::ZERO };
            let mut figures = IperfFigures::new(load, vec![stream], omit, Duration::from_secs(3600));
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
