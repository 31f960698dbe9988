//! Limits of the hosts: a slow application, and other traffic on the same interface.
//!
//! These rules come before the rules for their consequences: a receiver that pauses closes its window. CPU limits are
//! in `processor`, packets that a host drops are in `drops`.

use lfn_base::units::{BitRate, Bytes};
use serde_json::json;

use super::pacing::is_limited_by_pacing;
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::{Figures, StreamFigures, WorkerTime};

/// Maximum share of the time with data to send, for a sender without enough data (`bench/findings`).
pub(super) const MAX_BUSY_SHARE: f64 = 0.8;
/// Maximum share of the time in which an idle thread runs or waits for a CPU.
pub(super) const MAX_IDLE_DEMAND: f64 = 0.5;
/// Maximum share of the time in which an idle thread waits for a CPU.
pub(super) const MAX_IDLE_WAITING: f64 = 0.2;
/// Minimum unread data as a share of the window, for a receiver that falls behind.
pub(super) const MIN_UNREAD_SHARE: f64 = 0.5;
/// Maximum window as a share of the largest one, for a window that the receiver closed.
pub(super) const MAX_CLOSED_SHARE: f64 = 0.25;
/// Minimum share of the busy time in which a closed window stopped the sender.
pub(super) const MIN_RWND_LIMITED_SHARE: f64 = 0.5;
/// Minimum other traffic as a share of the interface's traffic; less is noise (`bench/findings`).
pub(super) const MIN_OTHER_SHARE: f64 = 0.05;
/// Minimum rate of other traffic; less is noise (`bench/findings`).
pub(super) const MIN_OTHER_RATE: BitRate = BitRate(500_000);

/// Finds a sender that had no data to send for much of the time, although its threads were idle.
pub(super) fn slow_writer(figures: &Figures) -> Option<Finding> {
    if figures.is_full() || is_limited_by_pacing(figures, figures.steady_goodput()) {
        return None;
    }
    let busy: Vec<f64> = figures.streams.iter().map(|flow| flow.busy_share).collect::<Option<_>>()?;
    let share = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    let at_ease = figures.streams.iter().all(|flow| flow.sender_thread.as_ref().is_some_and(is_idle));
    if busy.is_empty() || share >= MAX_BUSY_SHARE || !at_ease {
        return None;
    }
    let summary = format!(
        "the sending application on {} had no data to send for {:.0} % of the time, and its threads were idle",
        figures.sender.name,
        (1.0 - share) * 100.0
    );
    let remedy = slow_disk(&figures.sender.name);
    // The rate while data was available is the rate for the whole time, up to the limit of the path.
    let freed = BitRate((figures.steady_goodput().as_f64() / share.max(0.01)) as u64);
    let predicted = figures.possible_goodput().map_or(freed, |possible| possible.min(freed));
    let mut finding = finding(figures, Cause::SlowWriter, summary, remedy, Some(predicted));
    finding.evidence = figures_map([("busy_share", json!(share))]);
    Some(finding)
}

/// Returns the command that shows a slow disk, and the programs that use it.
pub(super) fn slow_disk(host: &str) -> Remedy {
    Remedy { command: "iostat -x 1 5; pidstat -d 1 5".into(), host: Some(host.to_owned()) }
}

/// Returns true if a thread had little to do and rarely waited for a CPU.
fn is_idle(worker: &WorkerTime) -> bool {
    worker.demand() < MAX_IDLE_DEMAND && worker.waiting < MAX_IDLE_WAITING
}

/// Finds a window that closed because the application did not read.
pub(super) fn slow_reader(figures: &Figures) -> Option<Finding> {
    // A thread that runs, or waits for a CPU, reads as fast as its CPU allows. A thread without figures is not
    // evidence.
    let at_ease = figures.streams.iter().all(|flow| flow.receiver_thread.as_ref().is_some_and(is_idle));
    if figures.is_full() || figures.streams.is_empty() || !at_ease {
        return None;
    }
    let slow_streams: Vec<UnreadBacklog> = figures.streams.iter().map(unread_backlog).collect::<Option<_>>()?;
    let unread: u64 = slow_streams.iter().map(|flow| flow.unread).sum();
    let stopped = figures.rwnd_share()?;
    let how = if unread > 0 {
        format!("{} of received data were unread", Bytes(unread))
    } else {
        "its window fell to almost zero again and again".to_owned()
    };
    let summary = format!(
        "the receiving application on {} reads too slowly: {how}; the closed window stopped the sender {:.0} % of the time",
        figures.receiver.name,
        stopped * 100.0
    );
    let remedy = slow_disk(&figures.receiver.name);
    let mut finding = finding(figures, Cause::SlowReader, summary, remedy, figures.possible_goodput());
    let min_window = slow_streams.iter().map(|flow| flow.min_window).sum::<u64>();
    let max_window = slow_streams.iter().map(|flow| flow.max_window).sum::<u64>();
    finding.evidence = figures_map([
        ("unread_bytes", json!(unread)),
        ("min_window_bytes", json!(min_window)),
        ("max_window_bytes", json!(max_window)),
        ("rwnd_limited_share", json!(stopped)),
    ]);
    Some(finding)
}

/// Unread data and window of a stream with a slow receiver.
struct UnreadBacklog {
    unread: u64,
    min_window: u64,
    max_window: u64,
}

fn unread_backlog(flow: &StreamFigures) -> Option<UnreadBacklog> {
    let window = flow.snd_wnd?;
    let stopped = flow.busy > std::time::Duration::ZERO
        && flow.rwnd_limited.as_secs_f64() >= MIN_RWND_LIMITED_SHARE * flow.busy.as_secs_f64();
    let unread = flow.unread_bytes.unwrap_or(0);
    let window_in_use = flow.rcv_wnd.unwrap_or(0) + unread;
    let full = unread > 0 && unread as f64 >= MIN_UNREAD_SHARE * window_in_use as f64;
    let closed = (window.min as f64) <= MAX_CLOSED_SHARE * window.max as f64;
    (stopped && (full || closed)).then_some(UnreadBacklog {
        unread: if full { unread } else { 0 },
        min_window: window.min,
        max_window: window.max,
    })
}

/// Finds other traffic on the sender's or the receiver's interface during the test.
pub(super) fn competing_traffic(figures: &Figures) -> Option<Finding> {
    // With two directions at once, each direction is other traffic to the other one.
    if figures.is_full() || figures.bidirectional {
        return None;
    }
    let (host, others, all, verb) =
        [(&figures.sender, "sent by"), (&figures.receiver, "received by")].into_iter().find_map(|(host, verb)| {
            let (others, all) = host.other_traffic?;
            let is_much = others.as_f64() >= MIN_OTHER_SHARE * all.as_f64() && others >= MIN_OTHER_RATE;
            is_much.then_some((host, others, all, verb))
        })?;
    let name = host.interface.as_ref().map_or("its interface", |interface| interface.name.as_str());
    let summary = format!(
        "{others} of other traffic {verb} {name} on {}, {:.0} % of the {all} it carried",
        host.name,
        others.as_f64() / all.as_f64().max(1.0) * 100.0
    );
    let remedy = Remedy { command: "ss -tunpi".into(), host: Some(host.name.clone()) };
    let without = BitRate(figures.steady_goodput().0.saturating_add(others.0));
    let predicted = figures.possible_goodput().map_or(without, |possible| possible.min(without));
    let mut finding = finding(figures, Cause::Competing, summary, remedy, Some(predicted));
    finding.evidence =
        figures_map([("other_bits_per_second", json!(others.0)), ("interface_bits_per_second", json!(all.0))]);
    Some(finding)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::{Cause, rule_findings};
    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::evidence::figures::{HostFigures, Spread, StreamFigures};
    use crate::host::{Interface, InterfaceCounters, QdiscCounters};

    /// Half of the path's goodput, without any evidence of a cause.
    pub(in super::super) fn half_goodput() -> Figures {
        let mut figures = half_bdp_window();
        let interface = Interface {
            name: "eth0".into(),
            mtu_bytes: 1500,
            counters: InterfaceCounters { sent_packets: 100_000, received_packets: 100_000, ..Default::default() },
            ..Interface::default()
        };
        for host in [&mut figures.sender, &mut figures.receiver] {
            host.interface = Some(interface.clone());
            host.idle = Some(3.2);
            host.softirq = Some((1, 0.1));
            host.other_traffic = Some((BitRate(100_000), BitRate(70_000_000)));
        }
        let at_ease = WorkerTime { running: 0.05, waiting: 0.01, processor: 1 };
        let wide = Spread { min: 9 << 20, median: 9 << 20, max: 9 << 20 };
        figures.streams[0] = StreamFigures {
            snd_wnd: Some(wide),
            cwnd: Bytes(4_500_000),
            busy_share: Some(1.0),
            unread_bytes: Some(0),
            rcv_wnd: Some(9 << 20),
            sender_thread: Some(at_ease),
            receiver_thread: Some(at_ease),
            receiver_socket: Default::default(),
            rwnd_limited: Duration::ZERO,
            ..figures.streams[0].clone()
        };
        figures
    }

    pub(in super::super) fn causes(figures: &Figures) -> Vec<Cause> {
        rule_findings(figures).iter().filter_map(Finding::cause).collect()
    }

    pub(in super::super) fn first_finding(change: fn(&mut Figures)) -> super::Finding {
        let mut figures = half_goodput();
        change(&mut figures);
        rule_findings(&figures).into_iter().next().expect("a finding")
    }

    #[test]
    fn no_evidence_gives_no_finding() {
        assert_eq!(causes(&half_goodput()), []);
        // A host without figures, for example a stock iperf3.
        let mut figures = half_goodput();
        let flow = StreamFigures { goodput: figures.streams[0].goodput, ..StreamFigures::default() };
        figures.streams = vec![flow];
        (figures.sender, figures.receiver) = (HostFigures::default(), HostFigures::default());
        assert_eq!(causes(&figures), []);
    }

    #[test]
    fn a_receiver_without_cpu_time_is_not_a_slow_reader() {
        let mut figures = half_goodput();
        let flow = &mut figures.streams[0];
        flow.rwnd_limited = flow.busy;
        (flow.unread_bytes, flow.rcv_wnd) = (Some(4 << 20), Some(1000));
        assert_eq!(causes(&figures), [Cause::SlowReader]);
        figures.streams[0].receiver_thread = Some(WorkerTime { running: 0.2, waiting: 0.79, processor: 0 });
        assert_eq!(causes(&figures), [Cause::Processor]);
        figures.streams[0].receiver_thread = None;
        assert_eq!(causes(&figures), [], "an end without figures of its threads");
        // A thread at work, or a thread that waits for a CPU: it reads as fast as it can.
        for (ran, waited) in [(0.6, 0.1), (0.15, 0.25)] {
            figures.streams[0].receiver_thread = Some(WorkerTime { running: ran, waiting: waited, processor: 0 });
            assert_eq!(causes(&figures), [], "{ran} {waited}");
        }
    }

    #[test]
    fn a_slow_reader_differs_from_a_small_window() {
        let reader = first_finding(|e| {
            e.streams[0].rwnd_limited = e.streams[0].busy;
            (e.streams[0].unread_bytes, e.streams[0].rcv_wnd) = (Some(4 << 20), Some(65_536));
        });
        assert!(reader.summary.contains("reads too slowly: 4 MiB of received data were unread"), "{}", reader.summary);
        // The data was read before the sample: the window is the evidence.
        let closing = first_finding(|e| {
            e.streams[0].rwnd_limited = e.streams[0].busy;
            e.streams[0].snd_wnd = Some(Spread { min: 0, median: 100_000, max: 6 << 20 });
        });
        assert_eq!(closing.cause(), Some(Cause::SlowReader));
        // A small window is constant and everything is read, but rwnd_limited is as high.
        let mut small = half_bdp_window();
        small.streams[0].rwnd_limited = small.streams[0].busy;
        (small.streams[0].unread_bytes, small.streams[0].rcv_wnd) = (Some(0), Some(4_547_840));
        assert_eq!(causes(&small)[0], Cause::ReceiveWindow);
    }

    #[test]
    fn an_idle_sender_is_slow_but_a_waiting_one_is_not() {
        let slow = first_finding(|e| e.streams[0].busy_share = Some(0.3));
        assert_eq!(slow.cause(), Some(Cause::SlowWriter));
        assert!(slow.summary.contains("no data to send for 70 % of the time"), "{}", slow.summary);
        let cases: [fn(&mut Figures); 4] = [
            |e| e.streams[0].busy_share = Some(0.85),
            |e| e.streams[0].busy_share = None,
            |e| {
                e.streams[0].busy_share = Some(0.3);
                e.streams[0].sender_thread = Some(WorkerTime { running: 0.55, waiting: 0.1, processor: 0 });
            },
            // A far end without figures of its threads.
            |e| {
                e.streams[0].busy_share = Some(0.3);
                e.streams[0].sender_thread = None;
            },
        ];
        for change in cases {
            let mut figures = half_goodput();
            change(&mut figures);
            assert_eq!(causes(&figures), []);
        }
    }

    #[test]
    fn other_traffic_counts_from_a_twentieth_on() {
        let found = first_finding(|e| e.sender.other_traffic = Some((BitRate(60_000_000), BitRate(128_000_000))));
        let expected = "60 Mb/s of other traffic sent by eth0 on near.example, 47 % of the 128 Mb/s it carried";
        assert_eq!((found.cause(), found.summary.as_str()), (Some(Cause::Competing), expected));
        assert_eq!(found.gain, Some(BitRate(60_000_000)));
        let mut both = half_goodput();
        both.sender.other_traffic = Some((BitRate(60_000_000), BitRate(128_000_000)));
        both.bidirectional = true;
        assert_eq!(causes(&both), [], "the other direction's");
        let mut little = half_goodput();
        little.sender.other_traffic = Some((BitRate(3_000_000), BitRate(70_000_000)));
        assert_eq!(causes(&little), []);
    }

    #[test]
    fn a_full_path_has_no_findings_of_its_hosts() {
        let mut figures = half_goodput();
        figures.path = figures.path.map(|path| lfn_base::path::PathProfile { capacity: BitRate(70_000_000), ..path });
        figures.streams[0].sender_thread = Some(WorkerTime { running: 0.99, waiting: 0.0, processor: 0 });
        figures.streams[0].busy_share = Some(0.5);
        figures.sender.other_traffic = Some((BitRate(60_000_000), BitRate(128_000_000)));
        figures.sender.qdisc = Some(("tbf".into(), QdiscCounters { dropped_packets: 300, ..QdiscCounters::default() }));
        assert_eq!(causes(&figures), []);
    }
}
