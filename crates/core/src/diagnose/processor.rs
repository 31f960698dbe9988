//! No processor left: a thread of the load that had one to itself all the time, or did not get one, and processors that
//! packets alone keep at work.
//!
//! Who a thread waits for decides the cure. lfn's own threads are in each other's way where there are more of them than
//! processors, or where both ends are on one host; anybody else is for `ps` to name.

use std::collections::BTreeMap;

use serde_json::json;

use super::evidence::{Host, Worker};
use super::{Cause, Remedy, Evidence, Finding, finding};
use crate::prediction;

/// A thread that ran, or could have run, for this share of the time was held by its processor.
const BOUND: f64 = 0.9;
/// A thread that could have run for this share of the time, and others did, was held too, however little it wanted: where
/// both ends share a processor each of them sleeps while the other has it.
const WAITED: f64 = 0.35;
/// The same where the queue of the path does not outlast such a wait, and less was measured than such waits explain: each
/// of them empties the path and then overflows it (`bench/healthy`, a queue of 1 ms).
const WAITED_BRIEFLY: f64 = 0.05;
/// A processor that handled packets for this share of the time did little else.
const INTERRUPTS: f64 = 0.8;

/// The sender's or the receiver's thread, or the soft interrupts of one processor, took all the time there was.
pub(super) fn processor(evidence: &Evidence) -> Option<Finding> {
    if evidence.is_full() || !evidence.is_tcp() {
        return None;
    }
    let waited = if is_short_of_queue(evidence) { WAITED_BRIEFLY } else { WAITED };
    let workers = |pick: fn(&super::Flow) -> Option<&Worker>| {
        let all = evidence.flows.iter().enumerate().filter_map(move |(n, flow)| Some((n, pick(flow)?)));
        all.filter(|(_, worker)| worker.wanted() >= BOUND || worker.waited >= waited)
            .max_by(|a, b| a.1.wanted().total_cmp(&b.1.wanted()))
    };
    let sending = workers(|flow| flow.sending_worker.as_ref()).map(|found| (true, found));
    let receiving = workers(|flow| flow.receiving_worker.as_ref()).map(|found| (false, found));
    let wanted = |found: &(bool, (usize, &Worker))| found.1.1.wanted();
    let bound = sending.into_iter().chain(receiving).max_by(|a, b| wanted(a).total_cmp(&wanted(b)));
    match bound {
        Some((sends, (stream, worker))) => Some(busy_thread(evidence, sends, stream, worker)),
        None => [&evidence.receiver, &evidence.sender].into_iter().find_map(|host| interrupts(evidence, host)),
    }
}

/// Whether less was measured than a path allows whose queue is shorter than a host's pauses.
fn is_short_of_queue(evidence: &Evidence) -> bool {
    let below = prediction::of_test(evidence).is_some_and(|(_, expected)| evidence.judged_goodput() < expected.least);
    below && evidence.path.is_some_and(|path| prediction::lost_in_pauses(&path) > 0.0)
}

/// What a thread that waits for a processor waits for.
struct Rivals {
    /// Processors' worth of time that lfn's other threads took on that host.
    own: f64,
    /// The same of everybody else, but for packets; none of a host that does not tell.
    others: Option<f64>,
}

impl Rivals {
    fn of(evidence: &Evidence, sends: bool, worker: &Worker) -> Rivals {
        let host = if sends { &evidence.sender } else { &evidence.receiver };
        let all = evidence.own_load(sends);
        let others = host.at_work.map(|at_work| (at_work - all).max(0.0));
        Rivals { own: (all - worker.ran).max(0.0), others }
    }

    /// Whether lfn is in its own way more than anybody else is: of a host that does not tell, if its threads took as much
    /// as this one was kept from.
    fn are_own(&self, worker: &Worker) -> bool {
        self.own >= self.others.unwrap_or(worker.waited)
    }
}

fn busy_thread(evidence: &Evidence, sends: bool, stream: usize, worker: &Worker) -> Finding {
    let host = if sends { &evidence.sender } else { &evidence.receiver };
    let percent = |share: f64| format!("{:.0} %", (share * 100.0).min(100.0));
    let starved = worker.waited > worker.ran;
    let rivals = Rivals::of(evidence, sends, worker);
    let own = rivals.are_own(worker);
    let summary = if starved {
        let who = match (own, evidence.one_host) {
            (false, _) => "others use",
            (true, false) => "lfn's other threads use",
            (true, true) => "lfn's other threads use: both ends are on this host",
        };
        format!(
            "the thread of stream {stream} on {} ran {} of the time and waited {} for processor {}, which {who}",
            host.name,
            percent(worker.ran),
            percent(worker.waited),
            worker.processor
        )
    } else {
        format!(
            "the thread of stream {stream} on {} kept processor {} at work {} of the time",
            host.name,
            worker.processor,
            percent(worker.wanted())
        )
    };
    let idle = host.idle.unwrap_or(0.0);
    let cure = if starved && own {
        fewer_threads(evidence, host).unwrap_or_else(|| relieved(evidence, host, worker))
    } else if starved {
        Remedy { command: "ps -eo pcpu,psr,pid,comm --sort=-pcpu | head".into(), host: Some(host.name.clone()) }
    } else if idle >= 1.0 {
        let more = evidence.streams().saturating_add(idle as u32);
        evidence.again(&format!("--streams {more}"))
    } else {
        relieved(evidence, host, worker)
    };
    let mut finding = finding(evidence, Cause::Processor, summary, cure, evidence.possible());
    finding.evidence = BTreeMap::from([
        ("ran_share", json!(worker.ran)),
        ("waited_share", json!(worker.waited)),
        ("processor", json!(worker.processor)),
        ("stream", json!(stream)),
        ("own_processors", json!(rivals.own + worker.ran)),
    ]);
    if let Some(others) = rivals.others {
        finding.evidence.insert("others_processors", json!(others));
    }
    if let Some(idle) = host.idle {
        finding.evidence.insert("idle_processors", json!(idle));
    }
    finding
}

/// No more threads than processors, where there are more.
fn fewer_threads(evidence: &Evidence, host: &Host) -> Option<Remedy> {
    let directions = if evidence.at_once { 2 } else { 1 };
    let threads = if evidence.one_host { 2 } else { 1 } * directions;
    let most = (host.processors? / threads).max(1);
    (most < evidence.streams()).then(|| evidence.again(&format!("--streams {most}")))
}

/// Less work for a processor where no other is idle: a device can take some of it over, what the kernel made cannot.
fn relieved(evidence: &Evidence, host: &Host, worker: &Worker) -> Remedy {
    let here = |command: String| Remedy { command, host: Some(host.name.clone()) };
    match &host.interface {
        Some(interface) if !interface.loopback && interface.kind.is_none() => {
            here(format!("ethtool -K {} tso on gso on gro on", interface.name))
        }
        _ if !host.no_copy => evidence.again("--no-copy"),
        _ => here(format!("perf top -C {}   # what takes its time", worker.processor)),
    }
}

fn interrupts(evidence: &Evidence, host: &Host) -> Option<Finding> {
    let (processor, share) = host.softirq.filter(|(_, share)| *share >= INTERRUPTS)?;
    let interface = host.interface.as_ref()?;
    let summary = format!(
        "processor {processor} on {} spent {:.0} % of the time on packets alone (soft interrupts)",
        host.name,
        (share * 100.0).min(100.0)
    );
    let command = format!("echo ff > /sys/class/net/{}/queues/rx-0/rps_cpus", interface.name);
    let cure = Remedy { command, host: Some(host.name.clone()) };
    let mut finding = finding(evidence, Cause::Processor, summary, cure, evidence.possible());
    finding.evidence = BTreeMap::from([("softirq_share", json!(share)), ("processor", json!(processor))]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::{causes, first, half};
    use super::super::{Flow, diagnose};
    use super::*;
    use crate::host::Interface;
    use crate::units::{BitRate, Bytes};

    #[test]
    fn a_thread_at_its_processors_end_is_told_from_one_that_waits() {
        let busy = first(|e| e.flows[0].receiving_worker = Some(Worker { ran: 0.97, waited: 0.02, processor: 0 }));
        assert_eq!(busy.summary, "the thread of stream 0 on far.example kept processor 0 at work 99 % of the time");
        assert_eq!(busy.cure.to_string(), "lfn test far.example --streams 4");
        let all = first(|e| {
            e.receiver.idle = Some(0.1);
            e.flows[0].receiving_worker = Some(Worker { ran: 0.97, waited: 0.02, processor: 0 });
        });
        assert_eq!(all.cure.to_string(), "ethtool -K eth0 tso on gso on gro on   (on far.example)");
        // Nothing can be handed over to what is no device.
        for change in [|i: &mut Interface| i.loopback = true, |i: &mut Interface| i.kind = Some("veth".into())] {
            let mut evidence = half();
            evidence.receiver.idle = Some(0.1);
            evidence.receiver.interface.iter_mut().for_each(change);
            evidence.flows[0].receiving_worker = Some(Worker { ran: 0.97, waited: 0.02, processor: 1 });
            assert_eq!(diagnose(&evidence)[0].cure.to_string(), "lfn test far.example --no-copy");
            evidence.receiver.no_copy = true;
            let cure = diagnose(&evidence)[0].cure.to_string();
            assert_eq!(cure, "perf top -C 1   # what takes its time   (on far.example)");
        }
        let starved = first(|e| e.flows[0].sending_worker = Some(Worker { ran: 0.3, waited: 0.68, processor: 2 }));
        assert_eq!(starved.cause, Cause::Processor);
        assert!(
            starved.summary.contains("ran 30 % of the time and waited 68 % for processor 2"),
            "{}",
            starved.summary
        );
        assert_eq!(starved.cure.host.as_deref(), Some("near.example"));
        // Both ends on one processor: each of them sleeps while the other runs.
        let shared = first(|e| e.flows[0].receiving_worker = Some(Worker { ran: 0.28, waited: 0.5, processor: 0 }));
        assert_eq!(shared.cause, Cause::Processor);
        let mut near_miss = half();
        near_miss.flows[0].sending_worker = Some(Worker { ran: 0.6, waited: 0.25, processor: 2 });
        assert_eq!(causes(&near_miss), []);
    }

    /// What is said of a thread that ran for 12 % of the time and waited for 85 % of it, where lfn runs so many streams
    /// between these processors, which are all at work.
    fn starved(streams: usize, change: fn(&mut Evidence)) -> Finding {
        let mut evidence = half();
        let worker = Worker { ran: 0.12, waited: 0.85, processor: 0 };
        let flow = Flow { sending_worker: Some(worker), receiving_worker: Some(worker), ..evidence.flows[0].clone() };
        evidence.flows = vec![flow; streams];
        for host in [&mut evidence.sender, &mut evidence.receiver] {
            (host.processors, host.idle, host.at_work) = (Some(2), Some(0.0), Some(1.9));
        }
        change(&mut evidence);
        let found = diagnose(&evidence).into_iter().find(|finding| finding.cause == Cause::Processor);
        found.expect("a finding")
    }

    #[test]
    fn threads_in_each_others_way_are_no_others() {
        // 0.12 of each of 12 streams: 1.44 of the 1.9 processors at work.
        let own = starved(12, |_| ());
        assert!(own.summary.ends_with("for processor 0, which lfn's other threads use"), "{}", own.summary);
        assert_eq!(own.cure.to_string(), "lfn test far.example --streams 2");
        assert_eq!(own.evidence["own_processors"].as_f64().map(|own| (own * 100.0).round()), Some(144.0));
        assert_eq!(own.evidence["others_processors"].as_f64().map(|others| (others * 100.0).round()), Some(46.0));
        let others = starved(1, |_| ());
        assert!(others.summary.ends_with("for processor 0, which others use"), "{}", others.summary);
        assert!(others.cure.to_string().starts_with("ps -eo pcpu"), "{}", others.cure);
        // Half of the threads are the other direction's.
        assert!(starved(6, |e| e.at_once = true).summary.ends_with("which lfn's other threads use"));
        assert!(starved(6, |_| ()).summary.ends_with("which others use"));
        // A host that does not tell what it did.
        let untold = |e: &mut Evidence| (e.sender.at_work, e.receiver.at_work) = (None, None);
        assert!(starved(12, untold).summary.ends_with("which lfn's other threads use"));
        assert!(starved(1, untold).summary.ends_with("which others use"));
    }

    #[test]
    fn both_ends_on_one_host_share_its_processors() {
        let both = "which lfn's other threads use: both ends are on this host";
        let own = starved(8, |e| e.one_host = true);
        assert!(own.summary.ends_with(both), "{}", own.summary);
        assert_eq!(own.cure.to_string(), "lfn test far.example --streams 1");
        // One stream, its two threads on one processor: fewer there cannot be.
        let one = |e: &mut Evidence| {
            e.one_host = true;
            e.flows[0].receiving_worker = Some(Worker { ran: 0.6, waited: 0.1, processor: 0 });
            e.sender.at_work = Some(0.8);
            e.sender.interface.iter_mut().for_each(|interface| interface.loopback = true);
        };
        let pinned = starved(1, one);
        assert!(pinned.summary.ends_with(both), "{}", pinned.summary);
        assert_eq!(pinned.cure.to_string(), "lfn test far.example --no-copy");
    }

    #[test]
    fn brief_waits_count_where_the_queue_does_not_outlast_them() {
        let mut evidence = half();
        evidence.flows[0].sending_worker = Some(Worker { ran: 0.1, waited: 0.12, processor: 1 });
        assert_eq!(causes(&evidence), [], "a queue of one BDP of 539 ms");
        evidence.path = evidence.path.map(|path| crate::path::PathProfile { queue: Some(Bytes(17_000)), ..path });
        assert_eq!(causes(&evidence), [Cause::Processor]);
        evidence.flows[0].sending_worker = Some(Worker { ran: 0.1, waited: 0.04, processor: 1 });
        assert_eq!(causes(&evidence), []);
        // Within what such a path is expected to give.
        evidence.flows[0].sending_worker = Some(Worker { ran: 0.1, waited: 0.12, processor: 1 });
        evidence.path = evidence.path.map(|path| crate::path::PathProfile { capacity: BitRate(80_000_000), ..path });
        assert_eq!(causes(&evidence), []);
    }

    #[test]
    fn a_processor_lost_to_packets_is_cpu_bound_too() {
        let found = first(|e| e.receiver.softirq = Some((3, 0.93)));
        assert_eq!(
            found.summary,
            "processor 3 on far.example spent 93 % of the time on packets alone (soft interrupts)"
        );
        assert!(found.cure.command.contains("/eth0/queues/rx-0/rps_cpus"));
    }
}
