//! Checks of the tables: cases just below and just above a threshold, and cases without evidence.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use crate::diagnose::bottleneck::{MAX_HOST_RTT, MIN_HASH_SHARE, MIN_MAIN_SHARE, NEAR_PREDICTED};
use crate::diagnose::host::tests::half_goodput;
use crate::diagnose::network::{delivery, ecn, return_path};
use crate::diagnose::rules::rule::COPIES;
use crate::diagnose::rules::{Rule, rules};
use crate::diagnose::settings::{congestion_fit, link, thresholds};
use crate::diagnose::window::tests::half_bdp_window;
use crate::diagnose::{Cause, buffers, copy, disk, host, limit, outage, path, processor, startup, window};
use crate::evidence::disk::{DiskEvidence, DiskMethod, DiskRate, DiskReport};
use crate::evidence::figures::{
    EvidenceKind, FULL_SHARE, Figures, Outage, PathCounters, SendTotals, SteadyPart, WorkerTime,
};
use crate::evidence::{CopyEvidence, Evidence, LoadKind, ProgressSample, Side, SocketEvidence, StreamTime};
use crate::host::Interface;
use crate::measure::TestDirection;

/// Distance from a threshold, as a share of the threshold.
const STEP: f64 = 0.002;

fn finds(rule: &Rule, figures: &Figures) -> bool {
    (rule.find)(figures).is_some()
}

fn rule(load: LoadKind, cause: Cause) -> &'static Rule {
    rules().find(|rule| rule.examines(load) && rule.cause == cause).unwrap()
}

/// Asserts that the rules find their cause on one side of the threshold only. The rules of copies are those without a test.
fn assert_bound(load: LoadKind, cause: Cause, finds_above: bool, bound: f64, case: impl Fn(f64) -> Figures) {
    let of_cause = |rule: &&Rule| rule.examines(load) && rule.cause == cause;
    let found = [1.0 - STEP, 1.0 + STEP].map(|factor| {
        let figures = case(bound * factor);
        let mut own = rules().filter(of_cause).filter(|rule| load != LoadKind::Copy || rule.loads == COPIES);
        own.any(|rule| finds(rule, &figures))
    });
    assert_eq!(found, [!finds_above, finds_above], "{} at {bound}", cause.name());
}

fn tcp(change: impl FnOnce(&mut Figures)) -> Figures {
    let mut figures = half_bdp_window();
    figures.streams[0].busy_share = Some(1.0);
    change(&mut figures);
    figures
}

fn set_goodput(figures: &mut Figures, rate: f64) {
    let goodput = BitRate(rate as u64);
    figures.goodput = goodput;
    figures.streams[0].goodput = goodput;
    figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
}

fn set_disk(figures: &mut Figures, side: Side, rate: f64, limit: Option<f64>) {
    let second = Duration::from_secs(1);
    let rate = Some(DiskRate::new(DiskMethod::Direct, Bytes((rate / 8.0) as u64), second, &[]));
    let rate_limit = limit.map(|limit| BitRate(limit as u64));
    let report = DiskReport { read: rate, write: rate, rate_limit, ..DiskReport::default() };
    let host = if side == Side::Near { &mut figures.sender } else { &mut figures.receiver };
    host.disk = Some(DiskEvidence { report, ..DiskEvidence::default() });
}

fn worker(running: f64, waiting: f64) -> Option<WorkerTime> {
    Some(WorkerTime { running, waiting, processor: 0 })
}

#[test]
fn bounds_of_tcp_rules_are_those_of_their_rows() {
    let check = |cause, above, bound, case: &dyn Fn(&mut Figures, f64)| {
        assert_bound(LoadKind::Tcp, cause, above, bound, |value| tcp(|figures| case(figures, value)));
    };
    let window_rate = Bytes(4_547_840).per(Duration::from_millis(539)).as_f64();
    check(Cause::ReceiveWindow, true, window::MIN_SHARE_OF_WINDOW_RATE, &|figures, share| {
        set_goodput(figures, share * window_rate);
    });
    check(Cause::ReceiveWindow, false, window::MAX_RTT_FACTOR, &|figures, factor| {
        figures.streams[0].rtt = figures.base_rtt.mul_f64(factor);
    });
    check(Cause::WindowScaleAbsent, false, window::MAX_RTT_FACTOR, &|figures, factor| {
        figures.streams[0].window_scaling = false;
        figures.streams[0].rtt = figures.base_rtt.mul_f64(factor);
    });
    check(Cause::ServerLimit, true, limit::MIN_SHARE_OF_LIMIT, &|figures, share| {
        figures.rate_limit = Some(BitRate((figures.goodput.as_f64() / share) as u64));
    });
    check(Cause::Processor, true, processor::MIN_DEMAND, &|figures, demand| {
        figures.streams[0].sender_thread = worker(demand, 0.0);
    });
    check(Cause::SlowWriter, false, host::MAX_BUSY_SHARE, &|figures, busy| {
        figures.streams[0].busy_share = Some(busy);
        figures.streams[0].sender_thread = worker(0.1, 0.0);
    });
    check(Cause::SlowWriter, false, host::MAX_IDLE_DEMAND, &|figures, demand| {
        figures.streams[0].busy_share = Some(0.5);
        figures.streams[0].sender_thread = worker(demand, 0.0);
    });
    check(Cause::SendBuffer, true, buffers::MIN_SNDBUF_LIMITED_SHARE, &|figures, share| {
        figures.streams[0].sndbuf_limited = figures.streams[0].busy.mul_f64(share);
    });
    check(Cause::Outage, true, outage::MIN_ROUND_TRIPS as f64, &|figures, round_trips| {
        let time = figures.base_rtt.mul_f64(round_trips);
        figures.outage = Some(Outage { time, other_intervals: 20, lossy_intervals: 0 });
    });
    check(Cause::Queueing, true, path::STANDING_QUEUE_RTT_FACTOR, &|figures, factor| {
        figures.streams[0].rtt = figures.base_rtt.mul_f64(factor);
    });
    check(Cause::Competing, true, host::MIN_OTHER_SHARE, &|figures, share| {
        figures.sender.other_traffic = Some((BitRate((share * 1e8) as u64), BitRate(100_000_000)));
    });
    check(Cause::StartUp, true, startup::MIN_GAIN_FACTOR, &|figures, factor| {
        figures.steady = figures.steady.map(|steady| SteadyPart { start: Duration::from_secs(10), ..steady });
        figures.goodput = BitRate((figures.steady_goodput().as_f64() / factor) as u64);
    });
    check(Cause::Retransmissions, true, path::MAX_RETRANSMITTED_SHARE, &|figures, share| {
        let sent = SendTotals { sent_bytes: 90_000_000, resent_bytes: (9e7 * share) as u64, duplicates: 0 };
        figures.streams[0].sent_later = Some(sent);
        figures.streams[0].mss = 1448;
        figures.elapsed = figures.base_rtt * path::MIN_ROUND_TRIPS;
    });
    for (cause, side) in [(Cause::SourceDisk, Side::Near), (Cause::DestinationDisk, Side::Far)] {
        check(cause, false, disk::MAX_DISK_SHARE, &|figures, share| {
            figures.path = None;
            set_disk(figures, side, share * figures.goodput.as_f64(), None);
        });
        check(cause, false, disk::MAX_SHARE_OF_LIMIT, &|figures, share| {
            set_disk(figures, side, 1e6, Some(1e6 / share))
        });
        let possible = half_bdp_window().possible_goodput().unwrap().as_f64();
        check(cause, false, disk::MAX_DISK_SHARE, &|figures, share| set_disk(figures, side, share * possible, None));
    }
    let possible = half_bdp_window().possible_goodput().unwrap().as_f64();
    check(Cause::Processor, false, FULL_SHARE, &|figures, share| {
        figures.streams[0].sender_thread = worker(1.0, 0.0);
        set_goodput(figures, share * possible);
    });
}

/// A test at half of the capacity of its path, without a sign of a cause.
fn faulty(change: impl FnOnce(&mut Figures)) -> Figures {
    let mut figures = half_goodput();
    figures.streams[0].mss = 1448;
    figures.streams[0].sender_socket.congestion = "cubic".into();
    figures.elapsed = Duration::from_secs(60);
    figures.counters = PathCounters { sent: 100_000, delivered: 100_000, ..PathCounters::default() };
    change(&mut figures);
    figures
}

#[test]
fn bounds_of_fault_rules_are_those_of_their_rows() {
    let check = |cause, above, bound, case: &dyn Fn(&mut Figures, f64)| {
        assert_bound(LoadKind::Tcp, cause, above, bound, |value| faulty(|figures| case(figures, value)));
    };
    let count = |share: f64| (share * 1e5).round() as u64;
    check(Cause::Reordering, true, delivery::MIN_REORDERED_SHARE, &|figures, share| {
        figures.counters.reordered = count(share);
    });
    check(Cause::Duplicates, true, delivery::MIN_REORDERED_SHARE, &|figures, share| {
        figures.counters.duplicates = count(share);
    });
    check(Cause::EcnMarks, true, delivery::MIN_MARKED_SHARE, &|figures, share| {
        (figures.counters.ecn, figures.counters.delivered) = (true, 10_000_000);
        figures.counters.marked = (share * 1e7) as u64;
    });
    check(Cause::EcnBleached, true, ecn::MIN_WITHOUT_ECN as f64, &|figures, segments| {
        (figures.counters.ecn, figures.counters.without_ecn) = (true, Some(segments as u64));
    });
    check(Cause::ReturnPath, true, return_path::MIN_LOST_SHARE, &|figures, share| {
        let round_trips = figures.elapsed.as_secs_f64() / figures.rtt_under_load().as_secs_f64();
        figures.counters.answers = Some((100_000, 100_000 - count(share) - (1e5 / round_trips) as u64));
    });
    check(Cause::LinkRate, true, link::MIN_SHARE_OF_LINK, &|figures, share| {
        let rate = Some(BitRate(100_000_000));
        figures.sender.interface = Some(Interface { name: "eth0".into(), rate, ..Interface::default() });
        set_goodput(figures, share * 1e8);
    });
    check(Cause::EarlyExit, false, thresholds::MAX_THRESHOLD, &|figures, share| {
        figures.counters.hystart_exits = Some(1);
        let needed = figures.needed_in_flight().unwrap().0 as f64;
        figures.counters.threshold_without_loss = Some((share * needed) as u64);
    });
    check(Cause::RouteMetrics, false, thresholds::MAX_THRESHOLD, &|figures, share| {
        figures.counters.hystart_exits = Some(0);
        let needed = figures.needed_in_flight().unwrap().0 as f64;
        figures.counters.threshold_without_loss = Some((share * needed) as u64);
    });
    check(Cause::StreamCount, false, congestion_fit::MAX_WINDOW_SEGMENTS as f64, &|figures, segments| {
        figures.streams[0].cwnd = Bytes((segments * 1448.0) as u64);
        figures.streams = vec![figures.streams[0].clone(); congestion_fit::MIN_STREAMS as usize];
        figures.counters.timeouts = 1;
    });
}

/// A copy of ten seconds over four streams at a tenth of its prediction. Without a change no cause is known.
fn slow_copy(change: impl FnOnce(&mut CopyEvidence, &mut SocketEvidence)) -> Figures {
    let mut sockets = SocketEvidence {
        receive_window: Bytes(64 << 20),
        congestion_window: Bytes(2_000_000),
        busy_seconds: 4.0,
        retransmits: 77,
        min_rtt_seconds: 0.5,
        ..SocketEvidence::default()
    };
    let end = ProgressSample {
        at: Duration::from_secs(10),
        bytes: Bytes(12_500_000),
        sockets: Some(sockets),
        ..ProgressSample::default()
    };
    let mut copy = CopyEvidence { end, streams: 4, predicted: Some(BitRate(100_000_000)), ..CopyEvidence::default() };
    change(&mut copy, &mut sockets);
    copy.end.sockets = Some(sockets);
    Figures::of(&Evidence::of_copy(TestDirection::Forward, copy, &[]))
}

#[test]
fn bounds_of_copy_rules_are_those_of_their_rows() {
    type Case<'a> = &'a dyn Fn(&mut CopyEvidence, &mut SocketEvidence, f64);
    let check = |cause, above, bound, case: Case<'_>| {
        assert_bound(LoadKind::Copy, cause, above, bound, |value| {
            slow_copy(|copy, sockets| case(copy, sockets, value))
        });
    };
    let threads = 40.0;
    let time = |disk, hash| StreamTime { disk, hash, ..StreamTime::default() };
    check(Cause::SourceDisk, true, MIN_MAIN_SHARE, &|copy, _, share| copy.end.sender = time(share * threads, 0.0));
    check(Cause::DestinationDisk, true, MIN_MAIN_SHARE, &|copy, _, share| {
        copy.end.receiver = time(share * threads, 0.0);
    });
    check(Cause::Processor, true, MIN_HASH_SHARE, &|copy, _, share| copy.end.sender = time(0.0, share * threads));
    check(Cause::Processor, false, MAX_HOST_RTT.as_secs_f64(), &|_, sockets, rtt| sockets.min_rtt_seconds = rtt);
    check(Cause::SendBuffer, true, MIN_MAIN_SHARE, &|_, sockets, share| {
        sockets.sndbuf_limited_seconds = share * threads;
    });
    check(Cause::ReceiveWindow, true, MIN_MAIN_SHARE, &|_, sockets, share| {
        sockets.rwnd_limited_seconds = share * threads;
    });
    check(Cause::CongestionWindow, true, MIN_MAIN_SHARE, &|_, sockets, share| sockets.busy_seconds = share * threads);
    check(Cause::Loss, true, MIN_MAIN_SHARE, &|_, sockets, share| {
        (sockets.congestion_window, sockets.busy_seconds) = (Bytes(7_000_000), share * threads);
    });
    check(Cause::ServerLimit, true, MIN_MAIN_SHARE, &|copy, _, share| {
        copy.end.sender.rate_limited = share * threads;
    });
    check(Cause::Outage, true, copy::MIN_STALLED_SHARE, &|copy, _, share| {
        copy.stalled = copy.end.at.mul_f64(share);
    });
    check(Cause::Unexplained, false, NEAR_PREDICTED, &|copy, _, share| {
        copy.end.bytes = Bytes((share * 1.25e8) as u64);
    });
    check(Cause::Unexplained, true, copy::MIN_DURATION.as_secs_f64(), &|copy, sockets, seconds| {
        (copy.end.at, copy.end.bytes) = (Duration::from_secs_f64(seconds), Bytes(1_250_000));
        sockets.busy_seconds = 0.1;
    });
}

#[test]
fn a_copy_without_needed_evidence_has_no_finding() {
    for rule in rules().filter(|rule| rule.loads == COPIES) {
        for kind in rule.needs {
            let mut figures = slow_copy(|copy, sockets| {
                (sockets.busy_seconds, sockets.in_slow_start, copy.end.sender.hash) = (40.0, 4, 39.0);
            });
            let evidence = figures.copy.as_mut().unwrap();
            match kind {
                EvidenceKind::Capacity => evidence.predicted = None,
                EvidenceKind::CopySockets => evidence.end.sockets = None,
                other => panic!("{} is no evidence of a copy", other.name()),
            }
            assert!(!finds(rule, &figures), "{} without {}", rule.cause.name(), kind.name());
            assert!(rule.missing(&figures).contains(kind));
        }
    }
}

/// Each row of TCP with an example that it finds, for the removal of its evidence.
fn tcp_examples() -> Vec<(Cause, Figures)> {
    let mut figures = half_bdp_window();
    figures.streams[0].busy_share = Some(0.5);
    figures.streams[0].sender_thread = worker(0.1, 0.0);
    figures.streams[0].receiver_thread = worker(0.1, 0.0);
    figures.streams[0].pmtu = 1200;
    for host in [&mut figures.sender, &mut figures.receiver] {
        host.interface = Some(Interface { name: "eth0".into(), mtu_bytes: 1500, ..Interface::default() });
    }
    let with = |change: fn(&mut Figures)| {
        let mut figures = figures.clone();
        change(&mut figures);
        figures
    };
    vec![
        (Cause::SlowWriter, figures.clone()),
        (Cause::ReceiveWindow, figures.clone()),
        (Cause::SmallMtu, figures.clone()),
        (Cause::WindowScaleAbsent, with(|figures| figures.streams[0].window_scaling = false)),
        (
            Cause::SlowReader,
            with(|figures| {
                let stream = &mut figures.streams[0];
                (stream.rwnd_limited, stream.unread_bytes, stream.rcv_wnd) = (stream.busy, Some(1 << 20), Some(1000));
            }),
        ),
        (Cause::Queueing, with(|figures| figures.streams[0].rtt = figures.base_rtt * 3)),
        (Cause::Processor, with(|figures| figures.streams[0].sender_thread = worker(1.0, 0.0))),
    ]
}

fn without(mut figures: Figures, kind: EvidenceKind) -> Figures {
    for stream in &mut figures.streams {
        match kind {
            EvidenceKind::TcpInfo => (stream.rtt, stream.pmtu) = (Duration::ZERO, 0),
            EvidenceKind::BusyTime => {
                (stream.busy_share, stream.busy, stream.rwnd_limited) = (None, Duration::ZERO, Duration::ZERO);
            }
            EvidenceKind::SendWindow => stream.snd_wnd = None,
            EvidenceKind::SenderThread => stream.sender_thread = None,
            EvidenceKind::ReceiverThread => stream.receiver_thread = None,
            _ => {}
        }
    }
    match kind {
        EvidenceKind::SenderCounters => figures.sender.interface = None,
        EvidenceKind::ReceiverCounters => figures.receiver.interface = None,
        EvidenceKind::PathProbes => figures.probed_mtu = None,
        _ => {}
    }
    figures
}

#[test]
fn a_test_without_needed_evidence_has_no_finding() {
    for (cause, figures) in tcp_examples() {
        let rule = rule(LoadKind::Tcp, cause);
        assert!(finds(rule, &figures), "{}", cause.name());
        for kind in rule.needs {
            let figures = without(figures.clone(), *kind);
            assert!(!finds(rule, &figures), "{} without {}", cause.name(), kind.name());
            assert_eq!(rule.missing(&figures), [*kind], "{}", cause.name());
        }
        let alternatives = rule.needs_one_of.iter().fold(figures, |figures, kind| without(figures, *kind));
        assert_eq!(finds(rule, &alternatives), rule.needs_one_of.is_empty(), "{}", cause.name());
        assert_eq!(rule.missing(&alternatives), rule.needs_one_of, "{}", cause.name());
    }
}
