//! What one end counts of a test: from when, less the warm-up, cut into intervals, and what it tells the other end.

use std::sync::Arc;
use std::time::Duration;

use lfn_core::iperf3::datagram::Arrivals;
use lfn_core::iperf3::results::CpuPercent;
use lfn_core::iperf3::{Results, StreamResult};
use lfn_core::tcp_info::TcpInfo;
use lfn_sys::tcp;

use super::flow::{Flow, Load, Socket};

/// The streams of one end, and what was counted of them.
#[derive(Debug)]
pub(super) struct Figures {
    load: Arc<Load>,
    pub(super) flows: Vec<Flow>,
    /// When counting began, from the load's origin.
    start: Duration,
    /// The warm-up, until it is over.
    omit: Option<Duration>,
    interval: Duration,
    /// When the next interval ends, from the start.
    next: Duration,
    /// When the last interval ended, from the start.
    until: Duration,
    /// Of each stream, when counting began.
    marks: Vec<Mark>,
    /// Bytes of each stream at the end of the last interval.
    counted: Vec<u64>,
    /// When counting ended, from the start, and what had been received on each stream then.
    end: Option<Duration>,
    received: Option<Vec<u64>>,
    /// When the last byte had arrived, where that is known and was waited for.
    settled: Option<Duration>,
    cpu: CpuPercent,
    /// Of the thread that counts, when counting began.
    cpu_before: tcp::CpuTime,
}

/// Where a stream stood when its warm-up was over.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    bytes: u64,
    blocks: u64,
    arrivals: Arrivals,
    retransmits: u64,
    /// Acknowledged by the receiver's kernel.
    acked: u64,
}

/// One interval.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    /// From when, counted from the start.
    pub(super) start: Duration,
    /// Until when.
    pub(super) end: Duration,
    /// It is part of the warm-up.
    pub(super) omitted: bool,
    /// Bytes of each stream, and what the kernel says of it.
    pub(super) streams: Vec<(u64, Option<TcpInfo>)>,
}

impl Figures {
    /// Counting begins now.
    pub(super) fn new(load: Arc<Load>, flows: Vec<Flow>, omit: Duration, interval: Duration) -> Self {
        let start = load.now();
        let count = flows.len();
        // The cookie was acknowledged before, and is no load.
        let acked = |flow: &Flow| flow.socket.info().and_then(|info| info.acked_bytes).unwrap_or(0);
        let marks = flows.iter().map(|flow| Mark { acked: acked(flow), ..Mark::default() }).collect();
        Figures {
            load,
            flows,
            start,
            omit: Some(omit).filter(|omit| !omit.is_zero()),
            interval: interval.max(Duration::from_millis(10)),
            next: interval.max(Duration::from_millis(10)),
            until: Duration::ZERO,
            marks,
            counted: vec![0; count],
            end: None,
            received: None,
            settled: None,
            cpu: CpuPercent::default(),
            cpu_before: tcp::thread_cpu(),
        }
    }

    /// Since counting began.
    pub(super) fn now(&self) -> Duration {
        self.load.now().saturating_sub(self.start)
    }

    /// Whether the warm-up is still going on.
    pub(super) fn omitting(&self) -> bool {
        self.omit.is_some()
    }

    /// Until the next thing to do.
    pub(super) fn idle(&self) -> Duration {
        let next = self.omit.map_or(self.next, |omit| omit.min(self.next));
        next.saturating_sub(self.now())
    }

    /// Bytes of all streams that send, or all that receive, since counting began.
    pub(super) fn bytes(&self, sends: bool) -> u64 {
        let counted = |(flow, mark): (&Flow, &Mark)| flow.counter().bytes().saturating_sub(mark.bytes);
        self.flows.iter().zip(&self.marks).filter(|(flow, _)| flow.sends == sends).map(counted).sum()
    }

    /// The interval that is over by now, if one is. The end of the warm-up ends an interval, and begins counting anew.
    pub(super) fn tick(&mut self) -> Option<Slice> {
        let now = self.now();
        if self.omit.is_some_and(|omit| now >= omit) {
            let slice = self.cut(now);
            self.begin_anew();
            return Some(slice);
        }
        if now < self.next {
            return None;
        }
        let slice = self.cut(now);
        // An interval that was noticed late does not shift those after it.
        let passed = now.as_nanos() / self.interval.as_nanos().max(1);
        self.next = self.interval.saturating_mul(u32::try_from(passed + 1).unwrap_or(u32::MAX));
        Some(slice)
    }

    /// What has been counted since the last interval, if that is worth telling, and the end of counting.
    pub(super) fn finish(&mut self) -> Option<Slice> {
        let now = self.now();
        self.end = Some(now);
        self.received = Some(self.flows.iter().map(|flow| flow.counter().bytes()).collect());
        let slice = (now > self.until).then(|| self.cut(now));
        slice.filter(|slice| {
            slice.streams.iter().any(|(bytes, _)| *bytes > 0) || slice.end - slice.start > self.interval / 2
        })
    }

    /// What came after [`Figures::finish`], until the last of it: counting ended then.
    pub(super) fn extend(&mut self) {
        let last = self.last(false);
        self.end = self.end.map(|end| end.max(last));
        self.received = None;
    }

    /// When the last byte of a direction was moved, from the start.
    pub(super) fn last(&self, sends: bool) -> Duration {
        let last = self.flows.iter().filter(|flow| flow.sends == sends).map(|flow| flow.counter().last()).max();
        last.unwrap_or_default().saturating_sub(self.start)
    }

    /// What a stream's receiver had acknowledged when counting began.
    pub(super) fn acked_before(&self, at: usize) -> u64 {
        self.marks.get(at).map_or(0, |mark| mark.acked)
    }

    /// How long intervals are.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// How long was counted.
    pub(super) fn elapsed(&self) -> Duration {
        self.settled.or(self.end).unwrap_or_else(|| self.now())
    }

    /// The last byte has arrived: what is waited for from now on is no time of the test.
    pub(super) fn settle(&mut self) {
        self.settled = Some(self.now());
    }

    /// Whether the last byte was waited for.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Ends the streams of one direction; processor time is known then.
    pub(super) fn stop(&mut self, sends: bool) {
        if sends {
            self.load.stop_sending()
        } else {
            self.load.stop_receiving()
        }
        self.flows.iter_mut().filter(|flow| flow.sends == sends).for_each(Flow::stop);
        self.cpu = self.measure_cpu();
    }

    /// Processor time of the threads of one direction since counting began, as far as they have ended.
    pub(super) fn cpu_time(&self, sends: bool) -> tcp::CpuTime {
        let mut sum = tcp::CpuTime::default();
        for flow in self.flows.iter().filter(|flow| flow.sends == sends) {
            let cpu = flow.counter().cpu();
            (sum.user, sum.system) = (sum.user + cpu.user, sum.system + cpu.system);
        }
        sum
    }

    /// Of those and of this thread, as a share of the time counted.
    fn measure_cpu(&self) -> CpuPercent {
        let own = tcp::thread_cpu();
        let (one, other) = (self.cpu_time(true), self.cpu_time(false));
        let user = own.user.saturating_sub(self.cpu_before.user) + one.user + other.user;
        let system = own.system.saturating_sub(self.cpu_before.system) + one.system + other.system;
        let time = self.now().as_secs_f64().max(1e-3);
        let percent = |used: Duration| 100.0 * used.as_secs_f64() / time;
        CpuPercent { total: percent(user + system), user: percent(user), system: percent(system) }
    }

    /// What is told the other end.
    pub(super) fn results(&self) -> Results {
        let is_tcp = self.flows.iter().any(|flow| matches!(*flow.socket, Socket::Tcp(_)));
        let sends = self.flows.iter().any(|flow| flow.sends);
        Results {
            cpu: self.cpu,
            has_retransmits: sends.then_some(is_tcp),
            congestion: self.congestion(),
            output: None,
            streams: (0..self.flows.len()).map(|at| self.stream(at)).collect(),
        }
    }

    fn congestion(&self) -> Option<String> {
        self.flows.iter().find_map(|flow| match &*flow.socket {
            Socket::Tcp(socket) => tcp::congestion(socket).ok(),
            Socket::Udp(_) => None,
        })
    }

    fn stream(&self, at: usize) -> StreamResult {
        let (flow, mark) = (&self.flows[at], &self.marks[at]);
        let (counter, arrivals) = (flow.counter(), flow.counter().arrivals());
        // What comes after the end is read so that nothing is stuck, and does not count.
        let received = self.received.as_ref().map(|all| all[at]).filter(|_| !flow.sends);
        let (packets, omitted) = match (&*flow.socket, flow.sends) {
            (Socket::Udp(_), true) => (counter.blocks(), mark.blocks),
            (Socket::Udp(_), false) => (arrivals.highest, mark.arrivals.highest),
            (Socket::Tcp(_), _) => (0, 0),
        };
        StreamResult {
            id: flow.id,
            bytes: received.unwrap_or(counter.bytes()).saturating_sub(mark.bytes),
            retransmits: flow.retransmits().filter(|_| flow.sends).map(|all| all.saturating_sub(mark.retransmits)),
            jitter: arrivals.jitter,
            errors: arrivals.lost,
            packets,
            omitted: Some((mark.arrivals.lost, omitted)),
            time: Some(self.elapsed()),
        }
    }

    fn cut(&mut self, now: Duration) -> Slice {
        let streams = self.flows.iter().zip(&mut self.counted).map(|(flow, counted)| {
            let total = flow.counter().bytes();
            (total.saturating_sub(std::mem::replace(counted, total)), flow.socket.info())
        });
        let streams = streams.collect();
        let start = std::mem::replace(&mut self.until, now);
        Slice { start, end: now, omitted: self.omitting(), streams }
    }

    fn begin_anew(&mut self) {
        self.omit = None;
        self.start = self.load.now();
        self.load.begin_anew();
        self.cpu_before = tcp::thread_cpu();
        (self.until, self.next) = (Duration::ZERO, self.interval);
        for (flow, mark) in self.flows.iter().zip(&mut self.marks) {
            flow.counter().forget_jitter();
            *mark = Mark {
                bytes: flow.counter().bytes(),
                blocks: flow.counter().blocks(),
                arrivals: flow.counter().arrivals(),
                retransmits: flow.retransmits().unwrap_or(0),
                acked: flow.socket.info().and_then(|info| info.acked_bytes).unwrap_or(0),
            };
        }
        // What is counted in the first interval begins where the results begin.
        self.counted = self.marks.iter().map(|mark| mark.bytes).collect();
    }
}

impl Flow {
    /// Segments sent again, as far as the kernel tells.
    fn retransmits(&self) -> Option<u64> {
        self.socket.info().map(|info| info.retransmitted_segments.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use lfn_core::iperf3::Parameters;

    use super::*;
    use crate::server::throttle::Throttle;

    /// A stream that receives, and its sender's socket.
    fn receiver(load: &Arc<Load>) -> (Flow, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut flow = Flow::new(1, false, Socket::Tcp(listener.accept().unwrap().0), load.clone());
        flow.start().unwrap();
        (flow, far)
    }

    fn send(far: &mut TcpStream, bytes: u64, figures: &Figures) {
        let wanted = figures.flows[0].counter().bytes() + bytes;
        let (block, mut left) = (vec![0; 1 << 20], bytes);
        while left > 0 {
            let part = left.min(1 << 20);
            far.write_all(&block[..part as usize]).unwrap();
            left -= part;
        }
        while figures.flows[0].counter().bytes() < wanted {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn processor_time_of_the_warm_up_does_not_count() {
        let used = |warm_up: bool, after: u64| {
            let load = Load::new(&Parameters::default(), None, Throttle::none());
            let (flow, mut far) = receiver(&load);
            let omit = if warm_up { Duration::from_millis(1) } else { Duration::ZERO };
            let mut figures = Figures::new(load, vec![flow], omit, Duration::from_secs(3600));
            send(&mut far, 1 << 30, &figures);
            assert_eq!(figures.tick().is_some(), warm_up);
            if after > 0 {
                send(&mut far, after, &figures);
            }
            figures.stop(false);
            let cpu = figures.cpu_time(false);
            cpu.user + cpu.system
        };
        // A GiB and a byte, the byte alone, and nothing at all: the last two are next to nothing.
        let (all, byte, none) = (used(false, 1), used(true, 1), used(true, 0));
        assert!(byte < all / 10 && none < all / 10, "{all:?} {byte:?} {none:?}");
    }
}
