//! Figures of the evidence: those of both ends of one load, reduced to its steady part.
//!
//! The record is here; its parts are computed from the reports in the sibling modules: the steady window in
//! `steady_window`, the figures of a stream in `stream`, those of a host in `host`. The rules of the diagnosis read only
//! the record.

pub mod course;
mod host;
mod kinds;
pub(crate) mod outage;
mod path_counters;
mod steady_window;
mod stream;
pub(crate) mod trains;

use std::ops::Range;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::stats::median;
use lfn_base::tcp_model;
use lfn_base::units::{BitRate, Bytes};

use crate::evidence::capture::CaptureEvidence;
use crate::evidence::couple::CoupleEvidence;
use crate::evidence::{CopyEvidence, Evidence, LoadKind, TypedArgument, host_of};
use crate::latency::{Latency, RttDistribution};
use crate::measure::{EndReport, SocketReport, TestDirection};
use crate::udp::figures::{UdpReceived, UdpSent};
use crate::udp::ramp::RampReport;
use steady_window::{SteadyWindow, length};

pub use course::{Course, IntervalFigures, Waits};
pub use host::HostFigures;
pub use kinds::EvidenceKind;
pub use outage::Outage;
pub use path_counters::PathCounters;
pub use steady_window::SteadyPart;
pub(crate) use steady_window::{full_intervals, steady_part};
pub use stream::{SendTotals, Spread, StreamFigures, WorkerTime};
pub use trains::{TrainFigures, TrainPlateau};

/// Minimum share of the possible goodput for a full path: bursts and interval edges cost the rest.
pub const FULL_SHARE: f64 = 0.97;

/// Minimum rate of a train that passed, over the goodput of TCP, for a path that TCP does not fill although no train shows its
/// capacity.
const MIN_UNUSED_FACTOR: f64 = 1.25;

/// Figures of a finished test that the rules examine.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Kind of the load, which selects the rules.
    pub kind: LoadKind,
    /// Direction of the data.
    pub direction: TestDirection,
    /// Path with its capacity, if known, and the measured RTT.
    pub path: Option<PathProfile>,
    /// The capacity is unknown, and trains of datagrams measured the one in `path`, or a minimum of it.
    pub is_capacity_measured: bool,
    /// Minimum RTT that either end measured.
    pub base_rtt: Duration,
    /// Goodput of the whole test: received payload over the receiver's time.
    pub goodput: BitRate,
    /// Elapsed time at the receiver.
    pub elapsed: Duration,
    /// Steady part; none if the test is too short or still grew at its end.
    pub steady: Option<SteadyPart>,
    /// Start-up time set by the user, if any.
    pub omit: Option<Duration>,
    /// Number of intervals that are long enough.
    pub intervals: usize,
    /// Length of an interval.
    pub interval: Duration,
    /// Host of the sender.
    pub sender: HostFigures,
    /// Host of the receiver.
    pub receiver: HostFigures,
    /// Name of the far host as the user typed it.
    pub far: String,
    /// Arguments of the command that repeats the load, as they were typed, with its direction.
    pub arguments: Vec<TypedArgument>,
    /// The streams used the settings of the plan (`--tuned`).
    pub is_tuned: bool,
    /// Both directions ran at the same time, so each used the interfaces of the other.
    pub bidirectional: bool,
    /// Both ends are on one host and share its CPUs.
    pub is_one_host: bool,
    /// Datagrams were sent to the device one by one (`--no-gso`).
    pub no_gso: bool,
    /// Path MTU in the direction of the data from probes (`--path`): TCP may know only a smaller one.
    pub probed_mtu: Option<u32>,
    /// Largest packet that passes if the path drops larger ones without a message, bytes.
    pub black_hole: Option<u32>,
    /// Rate limit of the server for all streams together.
    pub rate_limit: Option<BitRate>,
    /// Block after which each stream waits for the receiver's answer (`--lockstep`).
    pub lockstep: Option<Bytes>,
    /// Figures of each stream.
    pub streams: Vec<StreamFigures>,
    /// Longest time in which nothing arrived although the sender had data in flight.
    pub outage: Option<Outage>,
    /// Intervals of a test of TCP.
    pub course: Course,
    /// Counters of the path over a whole test of TCP.
    pub counters: PathCounters,
    /// Trains of datagrams in the direction of the load.
    pub trains: Option<TrainFigures>,
    /// RTT of the handshake of the control connection; zero if unknown.
    pub handshake_rtt: Duration,
    /// Shortest time of a message of the control connection and its answer.
    pub message_rtt: Option<Duration>,
    /// Shortest round trip of datagrams, before or during the load; none without probes or if TCP carried them.
    pub probe_rtt: Option<Duration>,
    /// Times under load in which no datagram was answered.
    pub silences: Vec<Range<Duration>>,
    /// RTTs of datagrams before the load; none without probes or if TCP carried them.
    pub idle_rtt: Option<RttDistribution>,
    /// Figures of the datagrams of a test without TCP.
    pub datagrams: DatagramFigures,
    /// Counters of a copy.
    pub copy: Option<CopyEvidence>,
    /// Figures of a connection of a capture.
    pub capture: Option<Box<CaptureEvidence>>,
    /// Figures of a coupled run.
    pub couple: Option<Box<CoupleEvidence>>,
}

/// Figures of the datagrams of a test over its whole time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DatagramFigures {
    /// Figures of the sender of each stream.
    pub sent: Vec<UdpSent>,
    /// Figures of the receiver of each stream.
    pub received: Vec<UdpReceived>,
    /// Result of a ramp.
    pub ramp: Option<RampReport>,
    /// Datagrams with a bad checksum that the receiving host dropped.
    pub damaged: u64,
    /// Socket options of the receiver.
    pub receiver_socket: Option<SocketReport>,
}

impl Figures {
    /// Returns the far host for a program other than `lfn`.
    pub fn far_network_name(&self) -> &str {
        host_of(&self.far)
    }

    /// Reduces the evidence to its steady part. The minimum RTT of the handshake and of the data replaces the RTT of the
    /// path.
    pub fn of(evidence: &Evidence) -> Self {
        let (sender, receiver) = (evidence.sender(), evidence.receiver());
        let base_rtt = evidence.base_rtt();
        let whole = full_intervals(&receiver.intervals);
        // The figures of an iperf3 server's test start after the warm-up.
        let omit = evidence.omit.map(|omit| if evidence.iperf3.is_some() { Duration::ZERO } else { omit });
        let steady = steady_part(whole, omit);
        let window = SteadyWindow::of(whole, steady);
        let name = |side| evidence.hosts.name(side);
        let udp = evidence.request.udp.as_deref();
        let facts = |side| evidence.facts.as_ref().and_then(|facts| facts.get(side).clone());
        let disk = |side| evidence.disks.as_ref().and_then(|disks| disks.get(side).clone());
        let trains = evidence.trains.as_deref().map(TrainFigures::of);
        let goodput = steady.map_or(Bytes(receiver.bytes).per(receiver.elapsed), |steady| steady.goodput);
        let is_unused = |min: &BitRate| min.as_f64() >= MIN_UNUSED_FACTOR * goodput.as_f64();
        let measured = trains.as_ref().filter(|_| evidence.path.is_none());
        let measured =
            measured.and_then(|trains| trains.line_capacity.or_else(|| trains.min_capacity.filter(is_unused)));
        let path = evidence.path.or_else(|| measured.map(|capacity| PathProfile::new(capacity, base_rtt)));
        Figures {
            kind: evidence.kind(),
            direction: evidence.request.direction,
            path: path.map(|path| PathProfile { base_rtt, ..path }),
            is_capacity_measured: measured.is_some(),
            base_rtt,
            goodput: match (&evidence.capture, &evidence.copy) {
                (Some(capture), _) => capture.payload.per(capture.active),
                (None, Some(copy)) => copy.goodput(),
                (None, None) => Bytes(receiver.bytes).per(receiver.elapsed),
            },
            elapsed: match (&evidence.capture, &evidence.copy) {
                (Some(capture), _) => capture.duration,
                (None, Some(copy)) => copy.end.at,
                (None, None) => receiver.elapsed,
            },
            steady,
            omit,
            intervals: whole.len(),
            interval: whole.first().map(length).unwrap_or_default(),
            sender: HostFigures {
                facts: facts(evidence.sending_side()),
                disk: disk(evidence.sending_side()),
                ..host::host_figures(name(evidence.sending_side()), sender, window, true)
            },
            receiver: HostFigures {
                facts: facts(evidence.receiving_side()),
                disk: disk(evidence.receiving_side()),
                ..host::host_figures(name(evidence.receiving_side()), receiver, window, false)
            },
            far: evidence.hosts.far.clone(),
            arguments: match evidence.arguments.as_slice() {
                [] => vec![TypedArgument { flag: None, text: evidence.hosts.far.clone() }],
                typed => typed.to_vec(),
            },
            is_tuned: evidence.is_tuned(),
            bidirectional: evidence.bidirectional,
            is_one_host: uses_loopback(sender)
                || uses_loopback(receiver)
                || evidence.clock.is_some_and(|clock| clock.is_one_clock()),
            no_gso: udp.is_some_and(|udp| udp.no_gso),
            probed_mtu: evidence.path_report.as_ref().and_then(|report| report.probed_mtu(evidence.request.direction)),
            black_hole: evidence.path_report.as_ref().and_then(|report| report.black_hole(evidence.request.direction)),
            rate_limit: sender.rate_limit.or(receiver.rate_limit),
            lockstep: evidence.request.lockstep.then_some(evidence.request.record),
            streams: sender
                .streams
                .iter()
                .map(|stream| stream::stream_figures(stream, sender, receiver, window))
                .collect(),
            outage: Outage::of(evidence, whole),
            course: Course::of(evidence, whole, steady),
            counters: PathCounters::of(evidence),
            trains,
            handshake_rtt: evidence.handshake_rtt,
            message_rtt: evidence.clock.and_then(|clock| clock.round_trip),
            probe_rtt: evidence.latency.as_ref().and_then(Latency::shortest_udp_round_trip),
            silences: evidence.latency.as_ref().map(Latency::silences).unwrap_or_default(),
            idle_rtt: evidence.latency.as_ref().and_then(Latency::idle_udp_round_trips),
            datagrams: DatagramFigures::of(evidence),
            copy: evidence.copy,
            capture: evidence.capture.clone(),
            couple: evidence.couple.clone(),
        }
    }

    /// Returns the goodput of the steady part, or of the whole test if it has none.
    pub fn steady_goodput(&self) -> BitRate {
        self.steady.map_or(self.goodput, |steady| steady.goodput)
    }

    /// Returns the maximum goodput of the path with the congestion control in use, if the capacity is known.
    pub fn possible_goodput(&self) -> Option<BitRate> {
        let congestion =
            self.streams.first().and_then(|flow| flow.sender_socket.congestion.parse().ok()).unwrap_or_default();
        let flow = tcp_model::FlowParameters {
            streams: self.stream_count(),
            congestion,
            ..tcp_model::FlowParameters::default()
        };
        self.path.map(|path| tcp_model::predict_steady(&path, &flow).goodput)
    }

    /// Returns the bytes in flight that each stream needs to fill the path, if the capacity is known.
    pub fn needed_in_flight(&self) -> Option<Bytes> {
        self.path.map(|path| Bytes(path.bdp().0.div_ceil(u64::from(self.stream_count()).max(1))))
    }

    /// Returns the CPU time of lfn's own threads on the host of one end, in CPUs.
    pub(crate) fn own_load(&self, sends: bool) -> f64 {
        let ran = |worker: &Option<WorkerTime>| worker.map_or(0.0, |worker| worker.running);
        let of = |flow: &StreamFigures| match sends {
            _ if self.is_one_host => ran(&flow.sender_thread) + ran(&flow.receiver_thread),
            true => ran(&flow.sender_thread),
            false => ran(&flow.receiver_thread),
        };
        let own: f64 = self.streams.iter().map(of).sum();
        // The other direction has as many threads at each end; their time is in the other result.
        if self.bidirectional { 2.0 * own } else { own }
    }

    /// Returns true if the path is full, so that nothing else can be the limit.
    pub fn is_full(&self) -> bool {
        self.possible_goodput().is_some_and(|possible| self.steady_goodput().as_f64() >= FULL_SHARE * possible.as_f64())
    }

    /// Returns true if a sender's kernel reported TCP streams. Datagrams, and ends without these figures, give false.
    pub fn is_tcp(&self) -> bool {
        self.streams.iter().any(|flow| flow.busy_share.is_some())
    }

    /// Returns the words for the sender's end and the receiver's end in the messages of a copy.
    pub(crate) fn ends_in_words(&self) -> (&'static str, &'static str) {
        match self.direction {
            TestDirection::Forward => ("near", "far"),
            TestDirection::Reverse => ("far", "near"),
        }
    }

    /// Returns the share of the busy time in which the receive window limited the streams.
    pub fn rwnd_share(&self) -> Option<f64> {
        let sum =
            |figure: fn(&StreamFigures) -> Duration| self.streams.iter().map(|f| figure(f).as_secs_f64()).sum::<f64>();
        let busy = sum(|flow| flow.busy);
        (busy > 0.0).then(|| (sum(|flow| flow.rwnd_limited) / busy).min(1.0))
    }

    /// Returns the median RTT of the streams under load; zero if none is known.
    pub fn rtt_under_load(&self) -> Duration {
        let known: Vec<f64> = self.streams.iter().map(|flow| flow.rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0).collect();
        Duration::try_from_secs_f64(median(&known).unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the number of streams.
    pub fn stream_count(&self) -> u32 {
        u32::try_from(self.streams.len()).unwrap_or(u32::MAX)
    }
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Spread { min: least as u64, median: median(values)? as u64, max: most as u64 })
    }
}

/// Returns true if the load used the loopback interface. Two namespaces of one host are detected by their clocks
/// instead.
fn uses_loopback(end: &EndReport) -> bool {
    end.host.as_ref().and_then(|host| host.interface.as_ref()).is_some_and(|interface| interface.loopback)
}

impl DatagramFigures {
    /// Takes the figures of both ends, or the totals of an iperf3 server.
    fn of(evidence: &Evidence) -> Self {
        let (sender, receiver) = (evidence.sender(), evidence.receiver());
        let reported =
            evidence.iperf3.as_ref().and_then(|report| report.udp_reports(&evidence.request, sender, receiver));
        let (sender, receiver) = reported.as_ref().map_or((sender, receiver), |(sender, receiver)| (sender, receiver));
        let sent = || sender.streams.iter().filter_map(|stream| stream.udp.as_deref());
        let received = receiver.streams.iter().filter_map(|stream| stream.udp.as_deref()?.received.clone());
        let damaged = receiver.host.as_ref().and_then(|host| host.counter("Udp.InCsumErrors")).unwrap_or(0);
        DatagramFigures {
            sent: sent().filter_map(|udp| udp.sent.clone()).collect(),
            received: received.collect(),
            ramp: sent().find_map(|udp| udp.ramp.clone()),
            damaged: u64::try_from(damaged).unwrap_or(0),
            receiver_socket: receiver.streams.iter().find_map(|stream| stream.socket.clone()),
        }
    }

    /// Returns the figures of both ends of each stream that both ends report.
    pub fn streams(&self) -> impl Iterator<Item = (&UdpSent, &UdpReceived)> {
        self.sent.iter().zip(&self.received)
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::tcp_info::TcpInfo;
    use lfn_base::units::Ratio;

    use super::*;
    use crate::diagnose::{diagnose_figures, half_bdp_window};
    use crate::evidence::HostNames;
    use crate::measure::{Interval, StreamReport, StreamSample, TestRequest};

    const SECOND: Duration = Duration::from_secs(1);

    fn reduce(rtt: Duration, omit: Option<Duration>, near: &EndReport, far: &EndReport) -> Figures {
        let evidence = Evidence::of_test(TestRequest::default(), rtt, near.clone(), far.clone());
        let hosts = HostNames { near: "near".into(), far: "far".into() };
        Figures::of(&Evidence { omit, hosts, ..evidence })
    }

    /// The goodput that CUBIC reaches on a lossy path is no bound for BBR: a path that counts as full has no findings.
    #[test]
    fn the_possible_goodput_depends_on_the_congestion_control() {
        let mut figures = half_bdp_window();
        figures.path = figures.path.map(|path| PathProfile { loss: Ratio::new(1e-3).unwrap(), ..path });
        let mut possible = |name: &str| {
            figures.streams[0].sender_socket.congestion = name.into();
            figures.possible_goodput().unwrap().as_f64()
        };
        assert!(possible("bbr") > 2.0 * possible("cubic"));
    }

    /// An end with one stream that moved these bytes in each second.
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

    fn reduced(bytes: &[u64], omit: Option<Duration>) -> Figures {
        let (sender, receiver) = (end(bytes, 3000), end(bytes, 0));
        reduce(SECOND / 2, omit, &sender, &receiver)
    }

    #[test]
    fn streams_are_reduced_to_the_steady_part() {
        let figures = reduced(&[1, 10, 100, 1000, 1000, 1000], None);
        assert_eq!(figures.base_rtt, SECOND * 2 / 5, "the minimum of handshake and data");
        let steady = figures.steady.unwrap();
        assert_eq!((steady.start, steady.end, steady.goodput), (SECOND * 3, SECOND * 6, BitRate(8000)));
        let flow = &figures.streams[0];
        assert_eq!(flow.goodput, BitRate(8000));
        assert_eq!((flow.busy, flow.rwnd_limited), (SECOND * 3, SECOND * 3 / 4), "growth within the steady part only");
        assert_eq!((flow.cwnd, flow.rtt), (Bytes(7000), SECOND / 2));
        assert_eq!(flow.snd_wnd, Some(Spread { min: 3000, median: 3000, max: 3000 }));
        assert_eq!(figures.goodput, BitRate(4148), "of the whole");
    }

    #[test]
    fn omit_replaces_the_detected_start_up() {
        let steady = reduced(&[1000, 1000, 1000, 1000], Some(SECOND * 2)).steady.unwrap();
        assert_eq!(steady.start, SECOND * 2);
        assert_eq!(reduced(&[1000, 1000], Some(SECOND * 5)).steady, None);
    }

    #[test]
    fn a_short_last_interval_is_ignored() {
        let mut report = end(&[1000, 1000, 1000, 1], 0);
        report.intervals[3].end = report.intervals[3].start + SECOND / 10;
        let figures = reduce(SECOND, None, &report, &report);
        assert_eq!(figures.steady.unwrap().end, SECOND * 3);
    }

    #[test]
    fn the_first_mptcp_subflow_is_not_evidence() {
        let mut sender = end(&[1_000_000; 6], 70_000);
        let busy = Some(Duration::from_millis(1));
        for interval in &mut sender.intervals {
            interval.streams[0].tcp_info.get_or_insert_default().busy = busy;
        }
        sender.streams[0].tcp_info.get_or_insert_default().busy = busy;
        let of = |sender: &EndReport| {
            let receiver = end(&[1_000_000; 6], 70_000);
            reduce(Duration::from_millis(10), None, sender, &receiver)
        };
        assert!(of(&sender).is_tcp());
        let socket = |mptcp_subflows| SocketReport { mptcp_requested: true, mptcp_subflows, ..SocketReport::default() };
        sender.streams[0].socket = Some(socket(Some(1)));
        let figures = of(&sender);
        assert!(!figures.is_tcp() && figures.streams[0].busy_share.is_none() && figures.streams[0].snd_wnd.is_none());
        assert_eq!((figures.streams[0].busy, figures.rwnd_share()), (Duration::ZERO, None));
        // A fallback to plain TCP has figures of the whole stream.
        sender.streams[0].socket = Some(socket(None));
        assert!(of(&sender).is_tcp());
    }

    #[test]
    fn a_test_without_data_does_not_divide_by_zero() {
        let empty = EndReport::default();
        let figures = reduce(Duration::ZERO, None, &empty, &empty);
        assert_eq!((figures.goodput, figures.steady), (BitRate(0), None));
        assert_eq!(diagnose_figures(&figures).findings, []);
        diagnose_figures(&reduced(&[0, 0, 0], None));
    }
}
