//! Measurements that run always: latency, paths and counters. A few threads run them, so that one slow path does not delay the
//! others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lfn_measure::path;
use lfn_measure::proto::stamp::report::StampReport;
use lfn_measure::stamp::StampKey;
use lfn_mesh::entry::{Entry, EntryKind, Outcome, RawJson};
use lfn_mesh::schedule::{ContinuousTest, MAX_PARALLEL_MEASUREMENTS, continuous_tests};
use lfn_mesh::sites::HostKind;
use lfn_results::path_report::{PathReport, TraceEnd};
use lfn_session::dial::Target;
use lfn_session::{Ticket, split_host_port};
use lfn_sys::clock;
use lfn_sys::names::lookup;
use lfn_sys::netlink::Netlink;
use parking_lot::Mutex;

use super::event::AgentEvent;
use super::shared::{AgentPlan, POLL_INTERVAL, Shared};
use crate::stamp::{StampOptions, stamp};

/// Time between two packets of a latency measurement.
const PACKET_INTERVAL: Duration = Duration::from_millis(100);

/// A measurement with its next start.
struct Planned {
    test: ContinuousTest,
    next: Duration,
}

/// Last failures by test and host, so that the log has each change once.
type Failures = Mutex<BTreeMap<(String, String), String>>;

/// Runs the measurements of this host until the agent stops.
pub(super) fn run(shared: &Shared) {
    let running = AtomicUsize::new(0);
    let failures = Failures::default();
    let mut plan_digest = String::new();
    let mut planned: Vec<Planned> = Vec::new();
    thread::scope(|scope| {
        while !shared.is_stopping() {
            thread::sleep(POLL_INTERVAL);
            let Some(plan) = shared.plan() else { continue };
            let now = clock::since_1970();
            if plan.digest != plan_digest {
                plan_digest.clone_from(&plan.digest);
                let tests = continuous_tests(&plan.sites, &plan.host).into_iter();
                planned = tests.map(|test| Planned { next: test.next_start(now), test }).collect();
            }
            if shared.is_refused() {
                continue;
            }
            // The measurement that waits longest starts first, so that each has its turn if there are too many.
            planned.sort_by_key(|measurement| measurement.next);
            for measurement in &mut planned {
                // A clock that was set back does not stop the measurement.
                if measurement.next > now + measurement.test.interval * 2 {
                    measurement.next = measurement.test.next_start(now);
                }
                if measurement.next > now || running.load(Ordering::Relaxed) >= MAX_PARALLEL_MEASUREMENTS {
                    continue;
                }
                measurement.next = measurement.test.next_start(now);
                running.fetch_add(1, Ordering::Relaxed);
                let (plan, test, running, failures) = (plan.clone(), measurement.test.clone(), &running, &failures);
                let spawned = thread::Builder::new().name("sample".into()).spawn_scoped(scope, move || {
                    measure(shared, &plan, &test, failures);
                    running.fetch_sub(1, Ordering::Relaxed);
                });
                if spawned.is_err() {
                    // The next interval tries again.
                    running.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    });
}

fn measure(shared: &Shared, plan: &AgentPlan, test: &ContinuousTest, failures: &Failures) {
    let space = match shared.reserve() {
        Ok(space) => space,
        Err(error) => return shared.event(AgentEvent::Skipped { reason: error.to_string() }),
    };
    let started = clock::since_1970();
    let entry = |from: &str, to: &str| Entry { test: test.test.clone(), ..Entry::new(test.kind, from, to, started) };
    let forward = entry(&test.from, &test.to);
    let entries = match test.kind {
        EntryKind::Latency => latency(shared, plan, test, forward, entry(&test.to, &test.from)),
        EntryKind::Path => vec![trace(shared, plan, test, forward)],
        EntryKind::Counters | EntryKind::Load => vec![counters(forward)],
    };
    let end = clock::since_1970();
    if let Some(first) = entries.first() {
        report_change(shared, test, first.error.as_deref(), failures);
    }
    for mut entry in entries {
        entry.duration = Some(end.saturating_sub(started));
        shared.keep(plan, entry, end);
    }
    drop(space);
}

/// Reports a failure with a new reason, and the end of a failure.
fn report_change(shared: &Shared, test: &ContinuousTest, error: Option<&str>, failures: &Failures) {
    let key = (test.test.clone(), test.to.clone());
    let mut known = failures.lock();
    let before = match error {
        Some(reason) => known.insert(key, reason.to_owned()),
        None => known.remove(&key),
    };
    drop(known);
    let (name, from, to) = (test.test.clone(), test.from.clone(), test.to.clone());
    match (before, error) {
        (Some(before), Some(reason)) if before == reason => {}
        (_, Some(reason)) => {
            shared.event(AgentEvent::MeasurementFailed { test: name, from, to, reason: reason.to_owned() });
        }
        (Some(_), None) => shared.event(AgentEvent::Recovered { test: name, from, to }),
        (None, None) => {}
    }
}

fn failed(entry: Entry, reason: impl Into<String>) -> Entry {
    Entry { outcome: Outcome::Failed, error: Some(reason.into()), ..entry }
}

/// Sends packets to the reflector of a host. Each host makes the entry of its own direction. If the other host cannot measure,
/// this host makes both entries.
fn latency(shared: &Shared, plan: &AgentPlan, test: &ContinuousTest, forward: Entry, back: Entry) -> Vec<Entry> {
    let access = shared.access.lock().clone();
    let target = access.targets.iter().find(|target| target.host == test.to);
    let Some(reflector) = target.and_then(|target| target.stamp.clone()) else {
        return vec![failed(forward, format!("no reflector of {} is known", test.to))];
    };
    let is_agent = plan.sites.host(&test.to).is_some_and(|host| host.kind == HostKind::Agent);
    // An agent cannot measure towards a host that accepts no connections.
    let is_measured_back = is_agent && plan.sites.host(&test.from).is_some_and(|own| !own.dial_only);
    // The reflector reads the same text from its key file.
    let key = is_agent.then(|| StampKey::new(access.stamp_key.as_bytes()));
    let packets = (test.time.as_millis() / PACKET_INTERVAL.as_millis()).clamp(1, 100_000);
    let options = StampOptions {
        count: u32::try_from(packets).unwrap_or(u32::MAX),
        interval: PACKET_INTERVAL,
        key,
        ..StampOptions::new(reflector)
    };
    match stamp(&options, &shared.stop, &mut |_, _| ()) {
        Err(error) => vec![failed(forward, error.to_string())],
        Ok(document) => {
            let report = document.report;
            let mut entries = vec![latency_entry(forward, &report, true)];
            if !is_measured_back {
                entries.push(latency_entry(back, &report, false));
            }
            entries
        }
    }
}

fn latency_entry(entry: Entry, report: &StampReport, is_forward: bool) -> Entry {
    let seconds = |figure: lfn_base::figure::Figure| Duration::try_from_secs_f64(figure.get()).ok();
    let (lost, one_way) = match is_forward {
        true => (report.lost_forward, report.one_way.map(|one_way| one_way.forward)),
        false => (report.lost_back, report.one_way.map(|one_way| one_way.back)),
    };
    Entry {
        base_rtt: report.rtt.and_then(|rtt| seconds(rtt.min_seconds)),
        rtt: report.rtt.and_then(|rtt| seconds(rtt.p50_seconds)),
        max_rtt: report.rtt.and_then(|rtt| seconds(rtt.max_seconds)),
        one_way_delay: one_way.and_then(|delays| seconds(delays.min_seconds)),
        packets: Some(report.sent),
        // A reflector that does not count packets hides the direction of a loss.
        lost_packets: Some(lost.unwrap_or(report.lost)),
        outcome: if report.answered > 0 { Outcome::Good } else { Outcome::Failed },
        error: (report.answered == 0).then(|| "no packet was answered".to_owned()),
        detail: RawJson::of(report),
        ..entry
    }
}

/// Traces the path to a host.
fn trace(shared: &Shared, plan: &AgentPlan, test: &ContinuousTest, entry: Entry) -> Entry {
    let access = shared.access.lock().clone();
    let ticket = access.targets.iter().find(|target| target.host == test.to).and_then(|target| target.ticket.as_ref());
    let report = match ticket.and_then(|ticket| ticket.parse::<Ticket>().ok()) {
        Some(ticket) => {
            Target::new(ticket).and_then(|target| path::discover(&target, false)).map_err(|error| error.to_string())
        }
        None => address_of(plan, &test.to).map(|address| path::discover_alone(address, false)),
    };
    match report {
        Err(reason) => failed(entry, reason),
        Ok(report) => path_entry(entry, &report),
    }
}

fn address_of(plan: &AgentPlan, host: &str) -> Result<IpAddr, String> {
    let typed = plan.sites.host(host).and_then(|host| host.address.as_deref());
    let (name, port) =
        split_host_port(typed.ok_or_else(|| format!("{host} has no address"))?).map_err(|error| error.to_string())?;
    let addresses = lookup(&name, port.unwrap_or(0)).map_err(|error| format!("unknown host '{name}': {error}"))?;
    addresses.first().map(SocketAddr::ip).ok_or_else(|| format!("unknown host '{name}'"))
}

fn path_entry(entry: Entry, report: &PathReport) -> Entry {
    // The TCP trace takes the path of the loads.
    let trace = report.traces.first();
    let Some(trace) = trace else {
        return failed(entry, report.errors.first().map_or("no trace", String::as_str));
    };
    let address =
        |hop: &lfn_results::path_report::Hop| hop.nodes.first().map_or(String::new(), |node| node.address.to_string());
    let hops = trace.hops.iter().map(address).collect();
    let outcome = if trace.end == TraceEnd::Reached { Outcome::Good } else { Outcome::Unknown };
    Entry { hops, outcome, detail: RawJson::of(report), ..entry }
}

/// Reads the counters of the interfaces of this host since their creation.
fn counters(entry: Entry) -> Entry {
    let read = || -> std::io::Result<BTreeMap<String, BTreeMap<&'static str, u64>>> {
        let mut netlink = Netlink::open()?;
        let mut all = BTreeMap::new();
        for name in netlink.interface_names()? {
            let index = netlink.index(&name)?;
            let stats = netlink.interface_stats(index)?;
            if stats.is_loopback {
                continue;
            }
            all.insert(
                name,
                BTreeMap::from([
                    ("sent_bytes", stats.sent_bytes),
                    ("sent_packets", stats.sent_packets),
                    ("sent_errors", stats.sent_errors),
                    ("sent_dropped", stats.sent_dropped),
                    ("received_bytes", stats.received_bytes),
                    ("received_packets", stats.received_packets),
                    ("received_errors", stats.received_errors),
                    ("received_dropped", stats.received_dropped),
                ]),
            );
        }
        Ok(all)
    };
    match read() {
        Ok(interfaces) => {
            let detail = serde_json::json!({ "interfaces": interfaces });
            Entry { outcome: Outcome::Good, detail: RawJson::of(&detail), ..entry }
        }
        Err(error) => failed(entry, format!("cannot read the counters: {error}")),
    }
}
