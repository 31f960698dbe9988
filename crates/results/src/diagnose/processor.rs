//! No CPU time left: a thread that used a CPU for the whole time or did not get one, and CPUs that handle only packets.
//!
//! The remedy depends on the processes that use the CPU. If lfn has more threads than CPUs, or if both ends are on one
//! host, its threads compete with each other. Other processes are found with `ps`.

use serde_json::json;

use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::evidence::figures::{HostFigures, StreamFigures, WorkerTime};
use crate::prediction;

/// Minimum share of the time in which a CPU-bound thread runs or waits for a CPU.
pub(super) const MIN_DEMAND: f64 = 0.9;
/// Minimum share of the time in which a thread waits for a CPU, for a thread with little work: if both ends share a
/// CPU, each of them sleeps while the other runs.
pub(super) const MIN_WAITING: f64 = 0.35;
/// The same share if the queue of the path is shorter than the waits and the goodput is below the prediction: each wait
/// empties the path and then overflows the queue (`bench/healthy`, a queue of 1 ms).
pub(super) const MIN_WAITING_SHORT_QUEUE: f64 = 0.05;
/// Minimum share of the time in soft interrupts, for a CPU that handles only packets.
pub(super) const MIN_SOFTIRQ_SHARE: f64 = 0.8;

/// Finds a thread of the sender or the receiver, or the soft interrupts of one CPU, that took all the CPU time.
pub(super) fn processor(figures: &Figures) -> Option<Finding> {
    if figures.is_full() || !figures.is_tcp() {
        return None;
    }
    let waited = if has_short_queue(figures) { MIN_WAITING_SHORT_QUEUE } else { MIN_WAITING };
    let workers = |pick: fn(&StreamFigures) -> Option<&WorkerTime>| {
        let all = figures.streams.iter().enumerate().filter_map(move |(n, flow)| Some((n, pick(flow)?)));
        all.filter(|(_, worker)| worker.demand() >= MIN_DEMAND || worker.waiting >= waited)
            .max_by(|a, b| a.1.demand().total_cmp(&b.1.demand()))
    };
    let sending = workers(|flow| flow.sender_thread.as_ref()).map(|found| (true, found));
    let receiving = workers(|flow| flow.receiver_thread.as_ref()).map(|found| (false, found));
    let wanted = |found: &(bool, (usize, &WorkerTime))| found.1.1.demand();
    let bound = sending.into_iter().chain(receiving).max_by(|a, b| wanted(a).total_cmp(&wanted(b)));
    match bound {
        Some((sends, (stream, worker))) => Some(busy_thread(figures, sends, stream, worker)),
        None => [&figures.receiver, &figures.sender].into_iter().find_map(|host| softirq_bound(figures, host)),
    }
}

/// Returns true if the goodput is below the prediction and the queue of the path is shorter than the pauses of a host.
fn has_short_queue(figures: &Figures) -> bool {
    let below = prediction::predict_test(figures).is_some_and(|(_, expected)| figures.steady_goodput() < expected.min);
    below && figures.path.is_some_and(|path| prediction::loss_by_pauses(&path) > 0.0)
}

/// Processes that compete with a thread for its CPU.
struct CompetingProcesses {
    /// CPU time of lfn's other threads on this host, in CPUs.
    own_threads: f64,
    /// CPU time of other processes, in CPUs, without soft interrupts; none if the host does not report it.
    other_processes: Option<f64>,
}

impl CompetingProcesses {
    fn of(figures: &Figures, sends: bool, worker: &WorkerTime) -> CompetingProcesses {
        let host = if sends { &figures.sender } else { &figures.receiver };
        let all = figures.own_load(sends);
        let others = host.busy_on_programs.map(|at_work| (at_work - all).max(0.0));
        CompetingProcesses { own_threads: (all - worker.running).max(0.0), other_processes: others }
    }

    /// Returns true if lfn's own threads used more CPU time than other processes. Without figures of the host, the own
    /// threads count if they used as much time as this thread waited.
    fn are_mostly_own(&self, worker: &WorkerTime) -> bool {
        self.own_threads >= self.other_processes.unwrap_or(worker.waiting)
    }
}

fn busy_thread(figures: &Figures, sends: bool, stream: usize, worker: &WorkerTime) -> Finding {
    let host = if sends { &figures.sender } else { &figures.receiver };
    let percent = |share: f64| format!("{:.0} %", (share * 100.0).min(100.0));
    let starved = worker.waiting > worker.running;
    let rivals = CompetingProcesses::of(figures, sends, worker);
    let own = rivals.are_mostly_own(worker);
    let summary = if starved {
        let users = match (own, figures.is_one_host) {
            (false, _) => "other processes use",
            (true, false) => "lfn's other threads use",
            (true, true) => "lfn's other threads use: both ends are on this host",
        };
        format!(
            "the thread of stream {stream} on {} ran {} of the time and waited {} of the time for CPU {}, which {users}",
            host.name,
            percent(worker.running),
            percent(worker.waiting),
            worker.processor
        )
    } else {
        format!(
            "the thread of stream {stream} on {} used CPU {} for {} of the time",
            host.name,
            worker.processor,
            percent(worker.demand())
        )
    };
    let idle = host.idle.unwrap_or(0.0);
    let remedy = if starved && own {
        fewer_threads(figures, host).unwrap_or_else(|| relieve_processor(figures, host, worker))
    } else if starved {
        busy_processes(&host.name)
    } else if idle >= 1.0 {
        let more = figures.stream_count().saturating_add(idle as u32);
        figures.repeat_command(&format!("--streams {more}"))
    } else {
        relieve_processor(figures, host, worker)
    };
    let mut finding = finding(figures, Cause::Processor, summary, remedy, figures.possible_goodput());
    finding.evidence = figures_map([
        ("ran_share", json!(worker.running)),
        ("waited_share", json!(worker.waiting)),
        ("processor", json!(worker.processor)),
        ("stream", json!(stream)),
        ("own_processors", json!(rivals.own_threads + worker.running)),
    ]);
    if let Some(others) = rivals.other_processes {
        finding.evidence.extend(figures_map([("others_processors", json!(others))]));
    }
    if let Some(idle) = host.idle {
        finding.evidence.extend(figures_map([("idle_processors", json!(idle))]));
    }
    finding
}

/// Returns the command that shows the processes with the most CPU time of a host.
pub(super) fn busy_processes(host: &str) -> Remedy {
    Remedy { command: "ps -eo pcpu,psr,pid,comm --sort=-pcpu | head".into(), host: Some(host.to_owned()) }
}

/// Returns the command with one thread for each CPU, if there are more threads than CPUs.
fn fewer_threads(figures: &Figures, host: &HostFigures) -> Option<Remedy> {
    let directions = if figures.bidirectional { 2 } else { 1 };
    let threads = if figures.is_one_host { 2 } else { 1 } * directions;
    let most = (host.processors? / threads).max(1);
    (most < figures.stream_count()).then(|| figures.repeat_command(&format!("--streams {most}")))
}

/// Returns a remedy that relieves a CPU if no other CPU is idle. A physical device can take over work, a virtual one
/// cannot.
fn relieve_processor(figures: &Figures, host: &HostFigures, worker: &WorkerTime) -> Remedy {
    let here = |command: String| Remedy { command, host: Some(host.name.clone()) };
    match &host.interface {
        Some(interface) if !interface.loopback && interface.kind.is_none() => {
            here(format!("ethtool -K {} tso on gso on gro on", interface.name))
        }
        _ if !host.no_copy => figures.repeat_command("--no-copy"),
        _ => here(format!("perf top -C {}", worker.processor)),
    }
}

fn softirq_bound(figures: &Figures, host: &HostFigures) -> Option<Finding> {
    let (processor, share) = host.softirq.filter(|(_, share)| *share >= MIN_SOFTIRQ_SHARE)?;
    let interface = host.interface.as_ref()?;
    let summary = format!(
        "CPU {processor} on {} spent {:.0} % of the time on packets alone (soft interrupts)",
        host.name,
        (share * 100.0).min(100.0)
    );
    let command = format!("echo ff > /sys/class/net/{}/queues/rx-0/rps_cpus", interface.name);
    let remedy = Remedy { command, host: Some(host.name.clone()) };
    let mut finding = finding(figures, Cause::Processor, summary, remedy, figures.possible_goodput());
    finding.evidence = figures_map([("softirq_share", json!(share)), ("processor", json!(processor))]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use lfn_base::units::{BitRate, Bytes};

    use super::super::host::tests::{causes, first_finding, half_goodput};
    use super::super::rule_findings;
    use super::*;
    use crate::evidence::figures::StreamFigures;
    use crate::host::Interface;

    #[test]
    fn a_cpu_bound_thread_differs_from_a_waiting_one() {
        let busy = first_finding(|e| {
            e.streams[0].receiver_thread = Some(WorkerTime { running: 0.97, waiting: 0.02, processor: 0 })
        });
        assert_eq!(busy.summary, "the thread of stream 0 on far.example used CPU 0 for 99 % of the time");
        assert_eq!(busy.remedy.to_string(), "lfn test far.example --streams 4");
        let all = first_finding(|e| {
            e.receiver.idle = Some(0.1);
            e.streams[0].receiver_thread = Some(WorkerTime { running: 0.97, waiting: 0.02, processor: 0 });
        });
        assert_eq!(all.remedy.to_string(), "ethtool -K eth0 tso on gso on gro on   # on far.example");
        // A virtual device cannot take over work.
        for change in [|i: &mut Interface| i.loopback = true, |i: &mut Interface| i.kind = Some("veth".into())] {
            let mut figures = half_goodput();
            figures.receiver.idle = Some(0.1);
            figures.receiver.interface.iter_mut().for_each(change);
            figures.streams[0].receiver_thread = Some(WorkerTime { running: 0.97, waiting: 0.02, processor: 1 });
            assert_eq!(rule_findings(&figures)[0].remedy.to_string(), "lfn test far.example --no-copy");
            figures.receiver.no_copy = true;
            let remedy = rule_findings(&figures)[0].remedy.to_string();
            assert_eq!(remedy, "perf top -C 1   # on far.example");
        }
        let starved = first_finding(|e| {
            e.streams[0].sender_thread = Some(WorkerTime { running: 0.3, waiting: 0.68, processor: 2 })
        });
        assert_eq!(starved.cause(), Some(Cause::Processor));
        assert!(
            starved.summary.contains("ran 30 % of the time and waited 68 % of the time for CPU 2"),
            "{}",
            starved.summary
        );
        assert_eq!(starved.remedy.host.as_deref(), Some("near.example"));
        // Both ends on one CPU: each of them sleeps while the other runs.
        let shared = first_finding(|e| {
            e.streams[0].receiver_thread = Some(WorkerTime { running: 0.28, waiting: 0.5, processor: 0 })
        });
        assert_eq!(shared.cause(), Some(Cause::Processor));
        let mut near_miss = half_goodput();
        near_miss.streams[0].sender_thread = Some(WorkerTime { running: 0.6, waiting: 0.25, processor: 2 });
        assert_eq!(causes(&near_miss), []);
    }

    /// Returns the finding for threads that ran 12 % of the time and waited 85 %, with this number of streams on two
    /// busy CPUs.
    fn starved(streams: usize, change: fn(&mut Figures)) -> Finding {
        let mut figures = half_goodput();
        let worker = WorkerTime { running: 0.12, waiting: 0.85, processor: 0 };
        let flow =
            StreamFigures { sender_thread: Some(worker), receiver_thread: Some(worker), ..figures.streams[0].clone() };
        figures.streams = vec![flow; streams];
        for host in [&mut figures.sender, &mut figures.receiver] {
            (host.processors, host.idle, host.busy_on_programs) = (Some(2), Some(0.0), Some(1.9));
        }
        change(&mut figures);
        let found = rule_findings(&figures).into_iter().find(|finding| finding.cause() == Some(Cause::Processor));
        found.expect("a finding")
    }

    #[test]
    fn own_threads_are_not_other_processes() {
        // 0.12 of each of 12 streams: 1.44 of the 1.9 busy CPUs.
        let own = starved(12, |_| ());
        assert!(own.summary.ends_with("for CPU 0, which lfn's other threads use"), "{}", own.summary);
        assert_eq!(own.remedy.to_string(), "lfn test far.example --streams 2");
        assert_eq!(own.evidence["own_processors"].as_f64().map(|own| (own * 100.0).round()), Some(144.0));
        assert_eq!(own.evidence["others_processors"].as_f64().map(|others| (others * 100.0).round()), Some(46.0));
        let others = starved(1, |_| ());
        assert!(others.summary.ends_with("for CPU 0, which other processes use"), "{}", others.summary);
        assert!(others.remedy.to_string().starts_with("ps -eo pcpu"), "{}", others.remedy);
        // Half of the threads belong to the other direction.
        assert!(starved(6, |e| e.bidirectional = true).summary.ends_with("which lfn's other threads use"));
        assert!(starved(6, |_| ()).summary.ends_with("which other processes use"));
        // A host without figures of its CPU time.
        let untold = |e: &mut Figures| (e.sender.busy_on_programs, e.receiver.busy_on_programs) = (None, None);
        assert!(starved(12, untold).summary.ends_with("which lfn's other threads use"));
        assert!(starved(1, untold).summary.ends_with("which other processes use"));
    }

    #[test]
    fn both_ends_on_one_host_share_its_cpus() {
        let both = "which lfn's other threads use: both ends are on this host";
        let own = starved(8, |e| e.is_one_host = true);
        assert!(own.summary.ends_with(both), "{}", own.summary);
        assert_eq!(own.remedy.to_string(), "lfn test far.example --streams 1");
        // One stream with two threads on one CPU: there cannot be fewer threads.
        let one = |e: &mut Figures| {
            e.is_one_host = true;
            e.streams[0].receiver_thread = Some(WorkerTime { running: 0.6, waiting: 0.1, processor: 0 });
            e.sender.busy_on_programs = Some(0.8);
            e.sender.interface.iter_mut().for_each(|interface| interface.loopback = true);
        };
        let pinned = starved(1, one);
        assert!(pinned.summary.ends_with(both), "{}", pinned.summary);
        assert_eq!(pinned.remedy.to_string(), "lfn test far.example --no-copy");
    }

    #[test]
    fn brief_waits_count_with_a_short_queue() {
        let mut figures = half_goodput();
        figures.streams[0].sender_thread = Some(WorkerTime { running: 0.1, waiting: 0.12, processor: 1 });
        assert_eq!(causes(&figures), [], "a queue of one BDP of 539 ms");
        figures.path = figures.path.map(|path| lfn_base::path::PathProfile { queue: Some(Bytes(17_000)), ..path });
        assert_eq!(causes(&figures), [Cause::Processor]);
        figures.streams[0].sender_thread = Some(WorkerTime { running: 0.1, waiting: 0.04, processor: 1 });
        assert_eq!(causes(&figures), []);
        // The goodput is within the prediction for this path.
        figures.streams[0].sender_thread = Some(WorkerTime { running: 0.1, waiting: 0.12, processor: 1 });
        figures.path = figures.path.map(|path| lfn_base::path::PathProfile { capacity: BitRate(80_000_000), ..path });
        assert_eq!(causes(&figures), []);
    }

    #[test]
    fn a_cpu_that_handles_only_packets_is_cpu_bound() {
        let found = first_finding(|e| e.receiver.softirq = Some((3, 0.93)));
        assert_eq!(found.summary, "CPU 3 on far.example spent 93 % of the time on packets alone (soft interrupts)");
        assert!(found.remedy.command.contains("/eth0/queues/rx-0/rps_cpus"));
    }
}
