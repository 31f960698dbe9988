//! The record rules judge: both ends' figures of one test, reduced to its steady part.
//!
//! What the record holds is here, how it is made of the reports beside it: which part of a test is judged in `judged`,
//! the figures of a stream in `flow`, those of a host in `host`. Rules see the record alone.

mod flow;
mod host;
mod judged;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Remedy;
use crate::host::{Interface, QdiscCounters};
use crate::path::{PathProfile, seconds};
use crate::stats::median;
use crate::tcp_model;
use crate::units::{BitRate, Bytes};
use crate::wire::test::{EndReport, Kernel, SocketReport};
use judged::{Judged, length};

pub(crate) use judged::{steady, whole_intervals};

/// What is known of a test when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The path with its capacity, if that is known, and the RTT that was measured.
    pub path: Option<PathProfile>,
    /// The least RTT either end saw.
    pub base_rtt: Duration,
    /// Payload received over the receiver's time, start-up included.
    pub goodput: BitRate,
    /// The receiver's time.
    pub elapsed: Duration,
    /// The part past start-up; none of a run that is too short or still grew at its end.
    pub steady: Option<Steady>,
    /// What was to be left out as start-up, if somebody said so.
    pub omitted: Option<Duration>,
    /// How many intervals long enough to judge by there were.
    pub intervals: usize,
    /// How long they are.
    pub interval: Duration,
    /// The sender's host.
    pub sender: Host,
    /// The receiver's host.
    pub receiver: Host,
    /// The far host, as the user knows it.
    pub far: String,
    /// What to type after `lfn test` to measure there again, the same way: the far end as it was typed, and the direction.
    pub again: String,
    /// The other direction was measured at the same time: its data and acknowledgements use the same interfaces.
    pub at_once: bool,
    /// Both ends are on one host: they share its processors.
    pub one_host: bool,
    /// Datagrams were to be handed to the device one by one (`--no-gso`).
    pub no_gso: bool,
    /// The path MTU of the data's direction as probes found it, if they were sent (`--path`): TCP may know of less only.
    pub probed_mtu: Option<u32>,
    /// What the server holds the streams together to.
    pub rate_limit: Option<BitRate>,
    /// Each stream.
    pub flows: Vec<Flow>,
}

/// The part of a test past start-up, on the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Steady {
    /// When it begins.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// When it ends.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// What was received in it.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
}

/// One end's host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Host {
    /// As the user knows it.
    pub name: String,
    /// Its limits; absent of a host that does not tell them.
    pub kernel: Option<Kernel>,
    /// The interface the load used, with what it counted over the whole test: single drops matter.
    pub interface: Option<Interface>,
    /// The kind of its queueing discipline, what that counted over the whole test, and the most that waited.
    pub qdisc: Option<(String, QdiscCounters)>,
    /// The processor that spent the most on packets alone, and which share of its time.
    pub softirq: Option<(u32, f64)>,
    /// How many processors it has.
    pub processors: Option<u32>,
    /// How many processors' worth of time was left over.
    pub idle: Option<f64>,
    /// How many processors' worth of time was spent on programs, lfn among them: on all but packets.
    pub at_work: Option<f64>,
    /// It does without copies of payload (`--no-copy`).
    pub no_copy: bool,
    /// Packets its sockets let go over the whole test.
    pub sockets_dropped: Option<u64>,
    /// What others sent by the interface in the direction of the data, and what it carried in all.
    pub others: Option<(BitRate, BitRate)>,
}

/// How a thread that moves data spent the judged part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Worker {
    /// Share of the time in which it ran.
    pub ran: f64,
    /// Share in which it could have run and others did; zero where the kernel does not tell.
    pub waited: f64,
    /// The processor it was last on.
    pub processor: u32,
}

impl Worker {
    /// Share of the time in which it wanted to run.
    pub fn wanted(&self) -> f64 {
        self.ran + self.waited
    }
}

/// What a sender moved in the judged part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Payload bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Payload bytes sent again.
    pub resent_bytes: u64,
    /// Segments the peer had already.
    pub duplicates: u64,
}

/// One stream over the judged part of the test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flow {
    /// What the receiver got.
    pub goodput: BitRate,
    /// The receive window the sender saw, bytes; none on a kernel that does not tell (before 5.4).
    pub snd_wnd: Option<Spread>,
    /// Congestion window, bytes, median.
    pub cwnd: Bytes,
    /// Smoothed RTT, median.
    pub rtt: Duration,
    /// Time with data to send.
    pub busy: Duration,
    /// Part of it stopped by the receive window.
    pub rwnd_limited: Duration,
    /// Part of it stopped by the send buffer.
    pub sndbuf_limited: Duration,
    /// Window scaling was negotiated.
    pub window_scaling: bool,
    /// Share of the time in which it had data to send; none where the kernel does not tell.
    pub busy_share: Option<f64>,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Path MTU; zero where it is not known.
    pub pmtu: u32,
    /// What was sent, and what of it again; none where the kernel does not tell (before 4.19).
    pub moved: Option<Moved>,
    /// Bytes the receiver had not read, median.
    pub unread: Option<u64>,
    /// The window the receiver offered, bytes, median.
    pub rcv_wnd: Option<u64>,
    /// The sender's thread.
    pub sending_worker: Option<Worker>,
    /// The receiver's thread.
    pub receiving_worker: Option<Worker>,
    /// The sender's socket options.
    pub sending: SocketReport,
    /// The receiver's socket options.
    pub receiving: SocketReport,
}

/// A figure over the judged intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// Least.
    pub least: u64,
    /// Median.
    pub median: u64,
    /// Most.
    pub most: u64,
}

impl Evidence {
    /// Reduces the reports of both ends. `path` has the capacity, if one is known; its RTT is replaced by what was
    /// measured, `rtt` on the control connection or less. `omit` says how much is start-up, instead of the figures.
    pub fn new(
        path: Option<PathProfile>,
        rtt: Duration,
        omit: Option<Duration>,
        (sender_name, sender): (&str, &EndReport),
        (receiver_name, receiver): (&str, &EndReport),
        far: &str,
    ) -> Self {
        let base_rtt = base_rtt(rtt, sender);
        let whole = whole_intervals(&receiver.intervals);
        let steady = steady(whole, omit);
        let judged = Judged::of(whole, steady);
        Evidence {
            path: path.map(|path| PathProfile { base_rtt, ..path }),
            base_rtt,
            goodput: Bytes(receiver.bytes).per(receiver.elapsed),
            elapsed: receiver.elapsed,
            steady,
            omitted: omit,
            intervals: whole.len(),
            interval: whole.first().map(length).unwrap_or_default(),
            sender: host::host(sender_name, sender, judged, true),
            receiver: host::host(receiver_name, receiver, judged, false),
            far: far.to_owned(),
            again: far.to_owned(),
            at_once: false,
            one_host: by_loopback(sender) || by_loopback(receiver),
            no_gso: false,
            probed_mtu: None,
            rate_limit: sender.rate_limit.or(receiver.rate_limit),
            flows: sender.streams.iter().map(|stream| flow::flow(stream, sender, receiver, judged)).collect(),
        }
    }

    /// Goodput of the part that is judged.
    pub fn judged_goodput(&self) -> BitRate {
        self.steady.map_or(self.goodput, |steady| steady.goodput)
    }

    /// The most goodput the path carries with the congestion control in use, if its capacity is known.
    pub fn possible(&self) -> Option<BitRate> {
        let congestion = self.flows.first().and_then(|flow| flow.sending.congestion.parse().ok()).unwrap_or_default();
        let flow = tcp_model::Flow { streams: self.streams(), congestion, ..tcp_model::Flow::default() };
        self.path.map(|path| tcp_model::steady(&path, &flow).goodput)
    }

    /// What each stream needs in flight to fill the path, if its capacity is known.
    pub fn needed(&self) -> Option<Bytes> {
        self.path.map(|path| Bytes(path.bdp().0.div_ceil(u64::from(self.streams()).max(1))))
    }

    /// The test again with `flags`, over as many streams unless they say how many.
    pub(super) fn again(&self, flags: &str) -> Remedy {
        let streams = match self.streams() {
            0 | 1 => String::new(),
            _ if flags.contains("--streams") => String::new(),
            streams => format!(" --streams {streams}"),
        };
        Remedy { command: format!("lfn test {} {flags}{streams}", self.again), host: None }
    }

    /// How many processors' worth of time lfn's own threads took on the host of one end.
    pub(super) fn own_load(&self, sends: bool) -> f64 {
        let ran = |worker: &Option<Worker>| worker.map_or(0.0, |worker| worker.ran);
        let of = |flow: &Flow| match sends {
            _ if self.one_host => ran(&flow.sending_worker) + ran(&flow.receiving_worker),
            true => ran(&flow.sending_worker),
            false => ran(&flow.receiving_worker),
        };
        let own: f64 = self.flows.iter().map(of).sum();
        // The other direction has as many threads at each end; what they took is in the other result.
        if self.at_once { 2.0 * own } else { own }
    }

    /// Whether the path is as good as full, so that nothing else can be the limit.
    pub fn is_full(&self) -> bool {
        const FULL: f64 = 0.97;
        self.possible().is_some_and(|possible| self.judged_goodput().as_f64() >= FULL * possible.as_f64())
    }

    /// Whether a sender's kernel told of TCP streams at all: not so of datagrams, and of ends that keep it to themselves.
    pub fn is_tcp(&self) -> bool {
        self.flows.iter().any(|flow| flow.busy_share.is_some())
    }

    /// The share of their busy time in which the receive window stopped the streams.
    pub fn rwnd_share(&self) -> Option<f64> {
        let sum = |figure: fn(&Flow) -> Duration| self.flows.iter().map(|f| figure(f).as_secs_f64()).sum::<f64>();
        let busy = sum(|flow| flow.busy);
        (busy > 0.0).then(|| (sum(|flow| flow.rwnd_limited) / busy).min(1.0))
    }

    /// The RTT the streams saw, median; zero where none is known.
    pub fn rtt_under_load(&self) -> Duration {
        let known: Vec<f64> = self.flows.iter().map(|flow| flow.rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0).collect();
        Duration::try_from_secs_f64(median(&known).unwrap_or_default()).unwrap_or_default()
    }

    /// The number of streams.
    pub fn streams(&self) -> u32 {
        u32::try_from(self.flows.len()).unwrap_or(u32::MAX)
    }
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Spread { least: least as u64, median: median(values)? as u64, most: most as u64 })
    }
}

/// Whether the load never left the host; of ends in namespaces of one host their clocks say it.
fn by_loopback(end: &EndReport) -> bool {
    end.host.as_ref().and_then(|host| host.interface.as_ref()).is_some_and(|interface| interface.loopback)
}

/// The least RTT known: of the control connection's handshake or, later, of the data itself.
fn base_rtt(rtt: Duration, sender: &EndReport) -> Duration {
    let streams =
        sender.streams.iter().filter_map(|stream| stream.tcp_info.as_ref()?.min_rtt).filter(|rtt| !rtt.is_zero());
    streams.chain((!rtt.is_zero()).then_some(rtt)).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::half_window;
    use super::*;
    use crate::tcp_info::TcpInfo;
    use crate::units::Ratio;
    use crate::wire::test::{Interval, StreamReport, StreamSample};

    const SECOND: Duration = Duration::from_secs(1);

    /// What CUBIC would make of a lossy path is no bound for BBR: a path judged full by it would have no findings.
    #[test]
    fn what_is_possible_is_so_with_the_congestion_control_in_use() {
        let mut evidence = half_window();
        evidence.path = evidence.path.map(|path| PathProfile { loss: Ratio::new(1e-3).unwrap(), ..path });
        let mut possible = |name: &str| {
            evidence.flows[0].sending.congestion = name.into();
            evidence.possible().unwrap().as_f64()
        };
        assert!(possible("bbr") > 2.0 * possible("cubic"));
    }

    /// An end whose single stream moved so many bytes in each second.
    fn end(bytes: &[u64], window: u32) -> EndReport {
        let interval = |(number, &bytes): (usize, &u64)| {
            let number = number as u32;
            let tcp_info = TcpInfo {
                rtt: SECOND / 2,
                snd_mss_bytes: 1000,
                cwnd_segments: 7,
                snd_wnd_bytes: Some(window),
                busy: Some(SECOND * (number + 1)),
                rwnd_limited: Some(SECOND / 4 * (number + 1)),
                window_scaling: true,
                ..TcpInfo::default()
            };
            let sample = StreamSample { bytes, tcp_info: Some(tcp_info), ..StreamSample::default() };
            Interval {
                start: SECOND * number,
                end: SECOND * (number + 1),
                bytes,
                streams: vec![sample],
                ..Interval::default()
            }
        };
        let intervals: Vec<_> = bytes.iter().enumerate().map(interval).collect();
        let stream = StreamReport {
            tcp_info: Some(TcpInfo { min_rtt: Some(SECOND * 2 / 5), window_scaling: true, ..TcpInfo::default() }),
            ..StreamReport::default()
        };
        EndReport {
            elapsed: SECOND * bytes.len() as u32,
            bytes: bytes.iter().sum(),
            streams: vec![stream],
            intervals,
            ..EndReport::default()
        }
    }

    fn evidence(bytes: &[u64], omit: Option<Duration>) -> Evidence {
        let (sender, receiver) = (end(bytes, 3000), end(bytes, 0));
        Evidence::new(None, SECOND / 2, omit, ("near", &sender), ("far", &receiver), "far")
    }

    #[test]
    fn the_steady_part_is_what_flows_are_judged_by() {
        let evidence = evidence(&[1, 10, 100, 1000, 1000, 1000], None);
        assert_eq!(evidence.base_rtt, SECOND * 2 / 5, "the least of handshake and data");
        let steady = evidence.steady.unwrap();
        assert_eq!((steady.start, steady.end, steady.goodput), (SECOND * 3, SECOND * 6, BitRate(8000)));
        let flow = &evidence.flows[0];
        assert_eq!(flow.goodput, BitRate(8000));
        assert_eq!((flow.busy, flow.rwnd_limited), (SECOND * 3, SECOND * 3 / 4), "growth within the part alone");
        assert_eq!((flow.cwnd, flow.rtt), (Bytes(7000), SECOND / 2));
        assert_eq!(flow.snd_wnd, Some(Spread { least: 3000, median: 3000, most: 3000 }));
        assert_eq!(evidence.goodput, BitRate(4148), "of the whole");
    }

    #[test]
    fn omit_decides_instead_of_the_figures() {
        let steady = evidence(&[1000, 1000, 1000, 1000], Some(SECOND * 2)).steady.unwrap();
        assert_eq!(steady.start, SECOND * 2);
        assert_eq!(evidence(&[1000, 1000], Some(SECOND * 5)).steady, None);
    }

    #[test]
    fn a_short_rest_at_the_end_decides_nothing() {
        let mut report = end(&[1000, 1000, 1000, 1], 0);
        report.intervals[3].end = report.intervals[3].start + SECOND / 10;
        let evidence = Evidence::new(None, SECOND, None, ("near", &report), ("far", &report), "far");
        assert_eq!(evidence.steady.unwrap().end, SECOND * 3);
    }

    #[test]
    fn the_first_subflow_of_multipath_tcp_is_no_evidence_of_the_whole() {
        let mut sender = end(&[1_000_000; 6], 70_000);
        let busy = Some(Duration::from_millis(1));
        for interval in &mut sender.intervals {
            interval.streams[0].tcp_info.get_or_insert_default().busy = busy;
        }
        sender.streams[0].tcp_info.get_or_insert_default().busy = busy;
        let of = |sender: &EndReport| {
            let receiver = end(&[1_000_000; 6], 70_000);
            Evidence::new(None, Duration::from_millis(10), None, ("near", sender), ("far", &receiver), "far")
        };
        assert!(of(&sender).is_tcp());
        let socket = |mptcp_subflows| SocketReport { mptcp_asked: true, mptcp_subflows, ..SocketReport::default() };
        sender.streams[0].socket = Some(socket(Some(1)));
        let evidence = of(&sender);
        assert!(!evidence.is_tcp() && evidence.flows[0].busy_share.is_none() && evidence.flows[0].snd_wnd.is_none());
        assert_eq!((evidence.flows[0].busy, evidence.rwnd_share()), (Duration::ZERO, None));
        // What fell back to plain TCP tells all of it.
        sender.streams[0].socket = Some(socket(None));
        assert!(of(&sender).is_tcp());
    }

    #[test]
    fn a_cure_measures_the_same_way_over_as_many_streams() {
        let mut evidence = half_window();
        evidence.again = "far.example --reverse".into();
        assert_eq!(evidence.again("--window 1").command, "lfn test far.example --reverse --window 1");
        evidence.flows.push(evidence.flows[0].clone());
        assert_eq!(evidence.again("--window 1").command, "lfn test far.example --reverse --window 1 --streams 2");
        assert_eq!(evidence.again("--streams 4").command, "lfn test far.example --reverse --streams 4");
    }

    #[test]
    fn nothing_moved_is_no_division_by_zero() {
        let empty = EndReport::default();
        let evidence = Evidence::new(None, Duration::ZERO, None, ("near", &empty), ("far", &empty), "far");
        assert_eq!((evidence.goodput, evidence.steady), (BitRate(0), None));
        assert_eq!(crate::diagnose::diagnose(&evidence), []);
        crate::diagnose::diagnose(&self::evidence(&[0, 0, 0], None));
    }
}
