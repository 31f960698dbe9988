//! Limits of the hosts themselves: an application that does not keep up, other traffic on the same interface.
//!
//! These come before what they cause: a reader that stops closes its window. Processors are in `processor`, packets that a
//! host drops in `drops`.

use std::collections::BTreeMap;

use serde_json::json;

use super::evidence::Worker;
use super::{Cause, Remedy, Evidence, Finding, finding};
use crate::units::{BitRate, Bytes};

/// A sender with data to send for less than this share of the time had none (`bench/findings`).
const HAD_DATA: f64 = 0.8;
/// A thread that works or waits for a processor for more of the time than the first, or waits for more of it than the
/// second, is no slow application.
const AT_EASE: (f64, f64) = (0.5, 0.2);
/// A receiver whose unread data is this share of what its window may hold is behind.
const UNREAD: f64 = 0.5;
/// A window that falls to this share of its largest was closed by a reader, not held by a limit.
const CLOSED: f64 = 0.25;
/// Share of the busy time in which a closed window stopped the sender.
const STOPPED: f64 = 0.5;
/// Other traffic of less than this share of the interface's, or less than this, is noise (`bench/findings`).
const COMPETING: (f64, BitRate) = (0.05, BitRate(500_000));

/// The sender had nothing to send for much of the time, and was not at work for it either.
pub(super) fn slow_writer(evidence: &Evidence) -> Option<Finding> {
    if evidence.is_full() {
        return None;
    }
    let busy: Vec<f64> = evidence.flows.iter().map(|flow| flow.busy_share).collect::<Option<_>>()?;
    let share = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    let at_ease = evidence.flows.iter().all(|flow| flow.sending_worker.as_ref().is_some_and(at_ease));
    if busy.is_empty() || share >= HAD_DATA || !at_ease {
        return None;
    }
    let summary = format!(
        "the sending application on {} had nothing to send for {:.0} % of the time, its threads idle",
        evidence.sender.name,
        (1.0 - share) * 100.0
    );
    let cure = Remedy { command: "iostat -x 1 5; pidstat -d 1 5".into(), host: Some(evidence.sender.name.clone()) };
    // What it sent while it had something is what it could have sent all the time, as far as the path goes.
    let freed = BitRate((evidence.judged_goodput().as_f64() / share.max(0.01)) as u64);
    let predicted = evidence.possible().map_or(freed, |possible| possible.min(freed));
    let mut finding = finding(evidence, Cause::SlowWriter, summary, cure, Some(predicted));
    finding.evidence = BTreeMap::from([("busy_share", json!(share))]);
    Some(finding)
}

/// Whether a thread had a processor whenever it wanted one, and did not want it much.
fn at_ease(worker: &Worker) -> bool {
    worker.wanted() < AT_EASE.0 && worker.waited < AT_EASE.1
}

/// The window closed because nobody read, not because it was small.
pub(super) fn slow_reader(evidence: &Evidence) -> Option<Finding> {
    // A reader that runs, or would if it could, reads as fast as its processor lets it; of one that does not tell it is not
    // known.
    let at_ease = evidence.flows.iter().all(|flow| flow.receiving_worker.as_ref().is_some_and(at_ease));
    if evidence.is_full() || evidence.flows.is_empty() || !at_ease {
        return None;
    }
    let behind: Vec<Behind> = evidence.flows.iter().map(behind).collect::<Option<_>>()?;
    let unread: u64 = behind.iter().map(|flow| flow.unread).sum();
    let stopped = evidence.rwnd_share()?;
    let how = if unread > 0 {
        format!("{} received lay unread at a time", Bytes(unread))
    } else {
        "the window it offered fell to almost nothing again and again".to_owned()
    };
    let summary = format!(
        "the receiving application on {} does not keep up: {how}; the closed window stopped the sender {:.0} % of the time",
        evidence.receiver.name,
        stopped * 100.0
    );
    let cure = Remedy { command: "iostat -x 1 5; pidstat -d 1 5".into(), host: Some(evidence.receiver.name.clone()) };
    let mut finding = finding(evidence, Cause::SlowReader, summary, cure, evidence.possible());
    let least = behind.iter().map(|flow| flow.least).sum::<u64>();
    let most = behind.iter().map(|flow| flow.most).sum::<u64>();
    finding.evidence = BTreeMap::from([
        ("unread_bytes", json!(unread)),
        ("least_window_bytes", json!(least)),
        ("most_window_bytes", json!(most)),
        ("rwnd_limited_share", json!(stopped)),
    ]);
    Some(finding)
}

/// How far behind the reader of a stream is.
struct Behind {
    unread: u64,
    least: u64,
    most: u64,
}

fn behind(flow: &super::Flow) -> Option<Behind> {
    let window = flow.snd_wnd?;
    let stopped =
        flow.busy > std::time::Duration::ZERO && flow.rwnd_limited.as_secs_f64() >= STOPPED * flow.busy.as_secs_f64();
    let unread = flow.unread.unwrap_or(0);
    let held = flow.rcv_wnd.unwrap_or(0) + unread;
    let full = unread > 0 && unread as f64 >= UNREAD * held as f64;
    let closed = (window.least as f64) <= CLOSED * window.most as f64;
    (stopped && (full || closed)).then_some(Behind {
        unread: if full { unread } else { 0 },
        least: window.least,
        most: window.most,
    })
}

/// Others send through the sender's interface, or to the receiver's, at the same time.
pub(super) fn competing(evidence: &Evidence) -> Option<Finding> {
    // Of two directions at once each sees the other's data or acknowledgements.
    if evidence.is_full() || evidence.at_once {
        return None;
    }
    let (host, others, all, verb) =
        [(&evidence.sender, "left by"), (&evidence.receiver, "came by")].into_iter().find_map(|(host, verb)| {
            let (others, all) = host.others?;
            let is_much = others.as_f64() >= COMPETING.0 * all.as_f64() && others >= COMPETING.1;
            is_much.then_some((host, others, all, verb))
        })?;
    let name = host.interface.as_ref().map_or("its interface", |interface| interface.name.as_str());
    let summary = format!(
        "{others} of other traffic {verb} {name} on {}, {:.0} % of the {all} it carried",
        host.name,
        others.as_f64() / all.as_f64().max(1.0) * 100.0
    );
    let cure = Remedy { command: "ss -tunpi".into(), host: Some(host.name.clone()) };
    let without = BitRate(evidence.judged_goodput().0.saturating_add(others.0));
    let predicted = evidence.possible().map_or(without, |possible| possible.min(without));
    let mut finding = finding(evidence, Cause::Competing, summary, cure, Some(predicted));
    finding.evidence =
        BTreeMap::from([("other_bits_per_second", json!(others.0)), ("interface_bits_per_second", json!(all.0))]);
    Some(finding)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Cause, Flow, Host, Spread, diagnose};
    use super::*;
    use crate::diagnose::window::tests::half_window;
    use crate::host::{Interface, InterfaceCounters, QdiscCounters};
    use std::time::Duration;

    /// Half of the path's goodput, and nothing yet that says why.
    pub(in super::super) fn half() -> Evidence {
        let mut evidence = half_window();
        let interface = Interface {
            name: "eth0".into(),
            mtu_bytes: 1500,
            counters: InterfaceCounters { sent_packets: 100_000, received_packets: 100_000, ..Default::default() },
            ..Interface::default()
        };
        for host in [&mut evidence.sender, &mut evidence.receiver] {
            host.interface = Some(interface.clone());
            host.idle = Some(3.2);
            host.softirq = Some((1, 0.1));
            host.others = Some((BitRate(100_000), BitRate(70_000_000)));
        }
        let at_ease = Worker { ran: 0.05, waited: 0.01, processor: 1 };
        let wide = Spread { least: 9 << 20, median: 9 << 20, most: 9 << 20 };
        evidence.flows[0] = Flow {
            snd_wnd: Some(wide),
            cwnd: Bytes(4_500_000),
            busy_share: Some(1.0),
            unread: Some(0),
            rcv_wnd: Some(9 << 20),
            sending_worker: Some(at_ease),
            receiving_worker: Some(at_ease),
            receiving: Default::default(),
            rwnd_limited: Duration::ZERO,
            ..evidence.flows[0].clone()
        };
        evidence
    }

    pub(in super::super) fn causes(evidence: &Evidence) -> Vec<Cause> {
        diagnose(evidence).iter().map(|finding| finding.cause).collect()
    }

    pub(in super::super) fn first(change: fn(&mut Evidence)) -> super::Finding {
        let mut evidence = half();
        change(&mut evidence);
        diagnose(&evidence).into_iter().next().expect("a finding")
    }

    #[test]
    fn where_nothing_speaks_nothing_is_found() {
        assert_eq!(causes(&half()), []);
        // A host that tells nothing of itself, as a stock iperf3 is.
        let mut evidence = half();
        let flow = Flow { goodput: evidence.flows[0].goodput, ..Flow::default() };
        evidence.flows = vec![flow];
        (evidence.sender, evidence.receiver) = (Host::default(), Host::default());
        assert_eq!(causes(&evidence), []);
    }

    #[test]
    fn a_reader_without_a_processor_is_no_slow_reader_and_no_small_window() {
        let mut evidence = half();
        let flow = &mut evidence.flows[0];
        flow.rwnd_limited = flow.busy;
        (flow.unread, flow.rcv_wnd) = (Some(4 << 20), Some(1000));
        assert_eq!(causes(&evidence), [Cause::SlowReader]);
        evidence.flows[0].receiving_worker = Some(Worker { ran: 0.2, waited: 0.79, processor: 0 });
        assert_eq!(causes(&evidence), [Cause::Processor]);
        evidence.flows[0].receiving_worker = None;
        assert_eq!(causes(&evidence), [], "an end that does not tell of its threads");
        // At work, or kept from it for a while: it reads as fast as it can.
        for (ran, waited) in [(0.6, 0.1), (0.15, 0.25)] {
            evidence.flows[0].receiving_worker = Some(Worker { ran, waited, processor: 0 });
            assert_eq!(causes(&evidence), [], "{ran} {waited}");
        }
    }

    #[test]
    fn a_slow_reader_is_told_from_a_small_window() {
        let reader = first(|e| {
            e.flows[0].rwnd_limited = e.flows[0].busy;
            (e.flows[0].unread, e.flows[0].rcv_wnd) = (Some(4 << 20), Some(65_536));
        });
        assert!(reader.summary.contains("does not keep up: 4 MiB received lay unread"), "{}", reader.summary);
        // Not seen unread, because it was read before anyone looked: the window shows it.
        let closing = first(|e| {
            e.flows[0].rwnd_limited = e.flows[0].busy;
            e.flows[0].snd_wnd = Some(Spread { least: 0, median: 100_000, most: 6 << 20 });
        });
        assert_eq!(closing.cause, Cause::SlowReader);
        // A small window stands still and everything is read: rwnd_limited is as high.
        let mut small = half_window();
        small.flows[0].rwnd_limited = small.flows[0].busy;
        (small.flows[0].unread, small.flows[0].rcv_wnd) = (Some(0), Some(4_547_840));
        assert_eq!(causes(&small)[0], Cause::ReceiveWindow);
    }

    #[test]
    fn a_writer_with_nothing_to_send_is_slow_and_one_that_waits_is_not() {
        let slow = first(|e| e.flows[0].busy_share = Some(0.3));
        assert_eq!(slow.cause, Cause::SlowWriter);
        assert!(slow.summary.contains("nothing to send for 70 % of the time"), "{}", slow.summary);
        let cases: [fn(&mut Evidence); 4] = [
            |e| e.flows[0].busy_share = Some(0.85),
            |e| e.flows[0].busy_share = None,
            |e| {
                e.flows[0].busy_share = Some(0.3);
                e.flows[0].sending_worker = Some(Worker { ran: 0.55, waited: 0.1, processor: 0 });
            },
            // A far end that does not tell of its threads.
            |e| {
                e.flows[0].busy_share = Some(0.3);
                e.flows[0].sending_worker = None;
            },
        ];
        for change in cases {
            let mut evidence = half();
            change(&mut evidence);
            assert_eq!(causes(&evidence), []);
        }
    }

    #[test]
    fn others_on_the_interface_are_counted_from_a_twentieth_on() {
        let found = first(|e| e.sender.others = Some((BitRate(60_000_000), BitRate(128_000_000))));
        let expected = "60 Mb/s of other traffic left by eth0 on near.example, 47 % of the 128 Mb/s it carried";
        assert_eq!((found.cause, found.summary.as_str()), (Cause::Competing, expected));
        assert_eq!(found.gain, Some(BitRate(60_000_000)));
        let mut both = half();
        both.sender.others = Some((BitRate(60_000_000), BitRate(128_000_000)));
        both.at_once = true;
        assert_eq!(causes(&both), [], "the other direction's");
        let mut little = half();
        little.sender.others = Some((BitRate(3_000_000), BitRate(70_000_000)));
        assert_eq!(causes(&little), []);
    }

    #[test]
    fn a_full_path_has_no_findings_of_its_hosts() {
        let mut evidence = half();
        evidence.path = evidence.path.map(|path| crate::path::PathProfile { capacity: BitRate(70_000_000), ..path });
        evidence.flows[0].sending_worker = Some(Worker { ran: 0.99, waited: 0.0, processor: 0 });
        evidence.flows[0].busy_share = Some(0.5);
        evidence.sender.others = Some((BitRate(60_000_000), BitRate(128_000_000)));
        evidence.sender.qdisc =
            Some(("tbf".into(), QdiscCounters { dropped_packets: 300, ..QdiscCounters::default() }));
        assert_eq!(causes(&evidence), []);
    }
}
