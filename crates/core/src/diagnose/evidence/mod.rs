//! Evidence of the diagnosis: the figures of both ends of one test, reduced to its steady part.
//!
//! The record is here; its parts are computed from the reports in the sibling modules: the steady window in
//! `steady_window`, the figures of a stream in `stream`, those of a host in `host`. The rules read only the record.

mod host;
mod steady_window;
mod stream;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Remedy;
use crate::host::{Interface, QdiscCounters};
use crate::path::{PathProfile, seconds};
use crate::stats::median;
use crate::tcp_model;
use crate::units::{BitRate, Bytes};
use crate::wire::measure::{EndReport, Kernel, SocketReport};
use steady_window::{SteadyWindow, length};

pub(crate) use steady_window::{full_intervals, steady_part};

/// Figures of a finished test that the rules examine.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Path with its capacity, if known, and the measured RTT.
    pub path: Option<PathProfile>,
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
    pub sender: HostEvidence,
    /// Host of the receiver.
    pub receiver: HostEvidence,
    /// Name of the far host as the user typed it.
    pub far: String,
    /// Arguments of `lfn test` that repeat the test, as they were typed, with its direction.
    pub repeat_arguments: Vec<TypedArgument>,
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
    /// Rate limit of the server for all streams together.
    pub rate_limit: Option<BitRate>,
    /// Figures of each stream.
    pub streams: Vec<StreamEvidence>,
}

/// An argument of `lfn test` as it was typed: the host, or a flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedArgument {
    /// Long name of the flag, without dashes; none for the host.
    pub flag: Option<String>,
    /// The argument, quoted for a shell.
    pub text: String,
}

/// Flags that another flag replaces: the flag of a remedy, and the flags that are removed with it.
const REPLACED_FLAGS: &[(&str, &[&str])] = &[
    ("time", &["count", "bytes", "precision"]),
    ("window", &["near-window", "far-window"]),
    ("sndbuf", &["near-sndbuf", "far-sndbuf"]),
    ("rcvbuf", &["near-rcvbuf", "far-rcvbuf"]),
    ("no-copy", &["near-no-copy", "far-no-copy", "check-data"]),
    ("compare", &["tuned", "bidir", "path", "path-names"]),
    (
        "ramp",
        &[
            "udp",
            "time",
            "count",
            "bytes",
            "precision",
            "streams",
            "pacing",
            "bidir",
            "check-data",
            "block-timing",
            "congestion",
        ],
    ),
];

/// Steady part of a test, after start-up, on the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SteadyPart {
    /// Start of the steady part.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// End of the steady part.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Steady goodput: bytes received in the steady part over its length.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
}

/// Figures of one end's host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostEvidence {
    /// Name of the host as the user typed it.
    pub name: String,
    /// Limits of the kernel; none if the host does not report them.
    pub kernel: Option<Kernel>,
    /// Interface of the load with its counters over the whole test, because single drops matter.
    pub interface: Option<Interface>,
    /// Kind of the queueing discipline, its counters over the whole test, and its maximum backlog.
    pub qdisc: Option<(String, QdiscCounters)>,
    /// CPU with the most soft interrupts, and their share of its time.
    pub softirq: Option<(u32, f64)>,
    /// Number of CPUs of the host.
    pub processors: Option<u32>,
    /// Idle CPU time, in CPUs.
    pub idle: Option<f64>,
    /// CPU time of programs, in CPUs, with lfn and without soft interrupts.
    pub busy_on_programs: Option<f64>,
    /// The host moves payload without copies (`--no-copy`).
    pub no_copy: bool,
    /// Packets that the host's sockets dropped over the whole test.
    pub sockets_dropped: Option<u64>,
    /// Other traffic of the interface in the direction of the data, and all of its traffic.
    pub other_traffic: Option<(BitRate, BitRate)>,
}

/// CPU time of a data thread over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerTime {
    /// Share of the time in which the thread ran.
    pub running: f64,
    /// Share of the time in which the thread waited for a CPU; zero if the kernel does not report it.
    pub waiting: f64,
    /// CPU that the thread used last.
    pub processor: u32,
}

impl WorkerTime {
    /// Share of the time in which the thread could run.
    pub fn demand(&self) -> f64 {
        self.running + self.waiting
    }
}

/// Totals of a sender over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendTotals {
    /// Payload bytes sent, with retransmissions.
    pub sent_bytes: u64,
    /// Payload bytes of the retransmissions.
    pub resent_bytes: u64,
    /// Segments that the receiver already had.
    pub duplicates: u64,
}

/// Figures of one stream over the steady window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamEvidence {
    /// Goodput of the stream at the receiver.
    pub goodput: BitRate,
    /// Receive window in bytes as the sender saw it; none on a kernel before 5.4.
    pub snd_wnd: Option<Spread>,
    /// Median congestion window in bytes.
    pub cwnd: Bytes,
    /// Median of the smoothed RTT.
    pub rtt: Duration,
    /// Time in which the sender had data to send.
    pub busy: Duration,
    /// Part of the busy time limited by the receive window.
    pub rwnd_limited: Duration,
    /// Part of the busy time limited by the send buffer.
    pub sndbuf_limited: Duration,
    /// True if window scaling was negotiated.
    pub window_scaling: bool,
    /// Share of the time with data to send; none if the kernel does not report it.
    pub busy_share: Option<f64>,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Path MTU in bytes; zero if unknown.
    pub pmtu: u32,
    /// Sent and retransmitted bytes; none on a kernel before 4.19.
    pub sent: Option<SendTotals>,
    /// The same in the second half of the steady window, after all losses of slow start; none with few intervals.
    pub sent_later: Option<SendTotals>,
    /// Median of the unread bytes at the receiver.
    pub unread_bytes: Option<u64>,
    /// Median of the window that the receiver advertised, in bytes.
    pub rcv_wnd: Option<u64>,
    /// CPU time of the sender's thread.
    pub sender_thread: Option<WorkerTime>,
    /// CPU time of the receiver's thread.
    pub receiver_thread: Option<WorkerTime>,
    /// Socket options of the sender.
    pub sender_socket: SocketReport,
    /// Socket options of the receiver.
    pub receiver_socket: SocketReport,
}

/// Minimum, median and maximum of a figure over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub min: u64,
    pub median: u64,
    pub max: u64,
}

/// Report of one end with the name of its host.
#[derive(Debug, Clone, Copy)]
pub struct NamedReport<'a> {
    pub name: &'a str,
    pub report: &'a EndReport,
}

impl<'a> NamedReport<'a> {
    /// Names the host of a report.
    pub fn new(name: &'a str, report: &'a EndReport) -> Self {
        NamedReport { name, report }
    }
}

impl Evidence {
    /// Reduces the reports of both ends. `path` has the capacity, if it is known. The measured RTT replaces the RTT of
    /// `path`: `rtt` from the control connection, or a lower one from the data. `omit` replaces the detected start-up
    /// time.
    pub fn new(
        path: Option<PathProfile>,
        rtt: Duration,
        omit: Option<Duration>,
        sender: NamedReport<'_>,
        receiver: NamedReport<'_>,
        far: &str,
    ) -> Self {
        let NamedReport { name: sender_name, report: sender } = sender;
        let NamedReport { name: receiver_name, report: receiver } = receiver;
        let base_rtt = base_rtt(rtt, sender);
        let whole = full_intervals(&receiver.intervals);
        let steady = steady_part(whole, omit);
        let window = SteadyWindow::of(whole, steady);
        Evidence {
            path: path.map(|path| PathProfile { base_rtt, ..path }),
            base_rtt,
            goodput: Bytes(receiver.bytes).per(receiver.elapsed),
            elapsed: receiver.elapsed,
            steady,
            omit,
            intervals: whole.len(),
            interval: whole.first().map(length).unwrap_or_default(),
            sender: host::host_evidence(sender_name, sender, window, true),
            receiver: host::host_evidence(receiver_name, receiver, window, false),
            far: far.to_owned(),
            repeat_arguments: vec![TypedArgument { flag: None, text: far.to_owned() }],
            is_tuned: false,
            bidirectional: false,
            is_one_host: uses_loopback(sender) || uses_loopback(receiver),
            no_gso: false,
            probed_mtu: None,
            rate_limit: sender.rate_limit.or(receiver.rate_limit),
            streams: sender
                .streams
                .iter()
                .map(|stream| stream::stream_evidence(stream, sender, receiver, window))
                .collect(),
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

    /// Returns the command that repeats the test with `flags`, which replace the same flags of the user. The number of
    /// streams stays unless `flags` sets it.
    pub(super) fn repeat_command(&self, flags: &str) -> Remedy {
        let new: Vec<&str> = flags.split_whitespace().filter_map(|word| word.strip_prefix("--")).collect();
        let is_replaced = |flag: &str| {
            let by = |name: &&str| REPLACED_FLAGS.iter().any(|(new, old)| new == name && old.contains(&flag));
            new.contains(&flag) || new.iter().any(by)
        };
        let keeps = |argument: &&TypedArgument| !argument.flag.as_deref().is_some_and(is_replaced);
        let mut words: Vec<&str> =
            self.repeat_arguments.iter().filter(keeps).map(|argument| argument.text.as_str()).collect();
        words.extend((!flags.is_empty()).then_some(flags));
        let sets_streams = |flag: &str| flag == "streams" || flag == "ramp";
        let typed = self.repeat_arguments.iter().filter_map(|argument| argument.flag.as_deref());
        let is_set = new.iter().copied().chain(typed).any(sets_streams);
        let streams = match self.stream_count() {
            0 | 1 => String::new(),
            _ if is_set => String::new(),
            streams => format!(" --streams {streams}"),
        };
        Remedy { command: format!("lfn test {}{streams}", words.join(" ")), host: None }
    }

    /// Returns the command that repeats the test without `flag`.
    pub(super) fn repeat_without(&self, flag: &str) -> Remedy {
        let kept = self.repeat_arguments.iter().filter(|argument| argument.flag.as_deref() != Some(flag)).cloned();
        Evidence { repeat_arguments: kept.collect(), ..self.clone() }.repeat_command("")
    }

    /// Reports whether the user gave the flag.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.repeat_arguments.iter().any(|argument| argument.flag.as_deref() == Some(flag))
    }

    /// Returns the CPU time of lfn's own threads on the host of one end, in CPUs.
    pub(super) fn own_load(&self, sends: bool) -> f64 {
        let ran = |worker: &Option<WorkerTime>| worker.map_or(0.0, |worker| worker.running);
        let of = |flow: &StreamEvidence| match sends {
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
        const FULL: f64 = 0.97;
        self.possible_goodput().is_some_and(|possible| self.steady_goodput().as_f64() >= FULL * possible.as_f64())
    }

    /// Returns true if a sender's kernel reported TCP streams. Datagrams, and ends without these figures, give false.
    pub fn is_tcp(&self) -> bool {
        self.streams.iter().any(|flow| flow.busy_share.is_some())
    }

    /// Returns the share of the busy time in which the receive window limited the streams.
    pub fn rwnd_share(&self) -> Option<f64> {
        let sum =
            |figure: fn(&StreamEvidence) -> Duration| self.streams.iter().map(|f| figure(f).as_secs_f64()).sum::<f64>();
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

/// Returns the minimum RTT of the control connection's handshake and of the data.
fn base_rtt(rtt: Duration, sender: &EndReport) -> Duration {
    let streams =
        sender.streams.iter().filter_map(|stream| stream.tcp_info.as_ref()?.min_rtt).filter(|rtt| !rtt.is_zero());
    streams.chain((!rtt.is_zero()).then_some(rtt)).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::half_bdp_window;
    use super::*;
    use crate::tcp_info::TcpInfo;
    use crate::units::Ratio;
    use crate::wire::measure::{Interval, StreamReport, StreamSample};

    const SECOND: Duration = Duration::from_secs(1);

    /// The goodput that CUBIC reaches on a lossy path is no bound for BBR: a path that counts as full has no findings.
    #[test]
    fn the_possible_goodput_depends_on_the_congestion_control() {
        let mut evidence = half_bdp_window();
        evidence.path = evidence.path.map(|path| PathProfile { loss: Ratio::new(1e-3).unwrap(), ..path });
        let mut possible = |name: &str| {
            evidence.streams[0].sender_socket.congestion = name.into();
            evidence.possible_goodput().unwrap().as_f64()
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

    fn evidence(bytes: &[u64], omit: Option<Duration>) -> Evidence {
        let (sender, receiver) = (end(bytes, 3000), end(bytes, 0));
        Evidence::new(
            None,
            SECOND / 2,
            omit,
            NamedReport::new("near", &sender),
            NamedReport::new("far", &receiver),
            "far",
        )
    }

    #[test]
    fn streams_are_reduced_to_the_steady_part() {
        let evidence = evidence(&[1, 10, 100, 1000, 1000, 1000], None);
        assert_eq!(evidence.base_rtt, SECOND * 2 / 5, "the minimum of handshake and data");
        let steady = evidence.steady.unwrap();
        assert_eq!((steady.start, steady.end, steady.goodput), (SECOND * 3, SECOND * 6, BitRate(8000)));
        let flow = &evidence.streams[0];
        assert_eq!(flow.goodput, BitRate(8000));
        assert_eq!((flow.busy, flow.rwnd_limited), (SECOND * 3, SECOND * 3 / 4), "growth within the steady part only");
        assert_eq!((flow.cwnd, flow.rtt), (Bytes(7000), SECOND / 2));
        assert_eq!(flow.snd_wnd, Some(Spread { min: 3000, median: 3000, max: 3000 }));
        assert_eq!(evidence.goodput, BitRate(4148), "of the whole");
    }

    #[test]
    fn omit_replaces_the_detected_start_up() {
        let steady = evidence(&[1000, 1000, 1000, 1000], Some(SECOND * 2)).steady.unwrap();
        assert_eq!(steady.start, SECOND * 2);
        assert_eq!(evidence(&[1000, 1000], Some(SECOND * 5)).steady, None);
    }

    #[test]
    fn a_short_last_interval_is_ignored() {
        let mut report = end(&[1000, 1000, 1000, 1], 0);
        report.intervals[3].end = report.intervals[3].start + SECOND / 10;
        let evidence = Evidence::new(
            None,
            SECOND,
            None,
            NamedReport::new("near", &report),
            NamedReport::new("far", &report),
            "far",
        );
        assert_eq!(evidence.steady.unwrap().end, SECOND * 3);
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
            Evidence::new(
                None,
                Duration::from_millis(10),
                None,
                NamedReport::new("near", sender),
                NamedReport::new("far", &receiver),
                "far",
            )
        };
        assert!(of(&sender).is_tcp());
        let socket = |mptcp_subflows| SocketReport { mptcp_requested: true, mptcp_subflows, ..SocketReport::default() };
        sender.streams[0].socket = Some(socket(Some(1)));
        let evidence = of(&sender);
        assert!(
            !evidence.is_tcp() && evidence.streams[0].busy_share.is_none() && evidence.streams[0].snd_wnd.is_none()
        );
        assert_eq!((evidence.streams[0].busy, evidence.rwnd_share()), (Duration::ZERO, None));
        // A fallback to plain TCP has figures of the whole stream.
        sender.streams[0].socket = Some(socket(None));
        assert!(of(&sender).is_tcp());
    }

    fn typed(arguments: &[(&str, &str)]) -> Vec<TypedArgument> {
        let flag = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        arguments.iter().map(|(name, text)| TypedArgument { flag: flag(name), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn a_remedy_keeps_the_flags_that_it_does_not_replace() {
        let mut evidence = half_bdp_window();
        evidence.repeat_arguments =
            typed(&[("", "far1"), ("time", "-t 15"), ("rate", "--rate 200mbit"), ("congestion", "-C cubic")]);
        let command = |flags| evidence.repeat_command(flags).command;
        assert_eq!(command("--congestion bbr"), "lfn test far1 -t 15 --rate 200mbit --congestion bbr");
        assert_eq!(command("--time 60"), "lfn test far1 --rate 200mbit -C cubic --time 60");
        assert_eq!(command("--ramp"), "lfn test far1 --rate 200mbit --ramp");
        assert_eq!(evidence.repeat_without("congestion").command, "lfn test far1 -t 15 --rate 200mbit");
    }

    #[test]
    fn a_remedy_repeats_the_test_with_as_many_streams() {
        let mut evidence = half_bdp_window();
        evidence.repeat_arguments = typed(&[("", "far.example"), ("reverse", "--reverse")]);
        assert_eq!(evidence.repeat_command("--window 1").command, "lfn test far.example --reverse --window 1");
        evidence.streams.push(evidence.streams[0].clone());
        assert_eq!(
            evidence.repeat_command("--window 1").command,
            "lfn test far.example --reverse --window 1 --streams 2"
        );
        assert_eq!(evidence.repeat_command("--streams 4").command, "lfn test far.example --reverse --streams 4");
    }

    #[test]
    fn a_test_without_data_does_not_divide_by_zero() {
        let empty = EndReport::default();
        let evidence = Evidence::new(
            None,
            Duration::ZERO,
            None,
            NamedReport::new("near", &empty),
            NamedReport::new("far", &empty),
            "far",
        );
        assert_eq!((evidence.goodput, evidence.steady), (BitRate(0), None));
        assert_eq!(crate::diagnose::diagnose(&evidence), []);
        crate::diagnose::diagnose(&self::evidence(&[0, 0, 0], None));
    }
}
