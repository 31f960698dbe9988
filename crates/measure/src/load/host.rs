//! Readings of this host during a test: processors, the load's threads, the interface, queueing disciplines, and
//! counters of the network stack.
//!
//! The thread of the control connection reads them at the ends of intervals, at most ten times a second, so that the
//! data threads are not disturbed. A test below limits the cost of one reading. Figures that cannot be read are
//! skipped, with one note in the report.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use lfn_base::units::BitRate;
use lfn_results::host::{
    self, CounterTable, HostReport, HostSample, Interface, InterfaceCounters, Note, ProcessorTime, Qdisc,
    QdiscCounters, ThreadTime,
};
use lfn_session::transport::Handle;
use lfn_sys::ethtool;
use lfn_sys::netlink::Netlink;
use lfn_sys::traffic::{InterfaceStats, QdiscStats};

/// Minimum interval with a sample of its own.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Tolerance for [`MIN_SAMPLE_INTERVAL`], because the end of an interval is noticed a little early or late.
const SAMPLE_SLACK: Duration = Duration::from_millis(20);
/// Minimum share of an interval that a processor must be busy to appear in a sample.
const MIN_BUSY_SHARE: f64 = 0.01;

/// Watch of this host from the start of a test.
#[derive(Debug)]
pub(crate) struct HostWatch {
    interface: Option<LoadInterface>,
    first: Reading,
    last: Reading,
    notes: Vec<Note>,
    /// Figures of each stream's thread at the last reading.
    threads: BTreeMap<u16, ThreadTime>,
}

/// Interface that the load uses.
#[derive(Debug)]
struct LoadInterface {
    netlink: Netlink,
    index: u32,
}

/// Readings of one moment.
#[derive(Debug, Clone)]
struct Reading {
    at: Instant,
    processors: Vec<ProcessorTime>,
    traffic: Option<InterfaceStats>,
    qdiscs: Option<Vec<Qdisc>>,
    /// Values only, without names, as the kernel writes them. A table of names and values needs ten times the memory
    /// for the life of the session.
    counters: Option<Arc<str>>,
    retransmitted_segments: Option<i64>,
}

impl HostWatch {
    /// Takes the first reading. The load uses the same interface as `connection`.
    pub(crate) fn begin(connection: &dyn Handle) -> Self {
        match (connection.peer_address(), connection.local_address()) {
            (Ok(peer), Ok(local)) => Self::for_destination(peer.ip(), Some(local.ip())),
            (Err(error), _) | (_, Err(error)) => Self::with_interface(Err(error)),
        }
    }

    /// Takes the first reading before a socket exists, so that drops of the first packets count too.
    pub(crate) fn for_destination(to: IpAddr, from: Option<IpAddr>) -> Self {
        // In a thread of its own: reading netlink messages and kernel files needs a large stack, and many small
        // allocations stay in the thread's cache. Both would occupy memory as long as the thread lives.
        let result = thread::scope(|scope| scope.spawn(|| Self::with_interface(interface_towards(to, from))).join());
        result.unwrap_or_else(|_| {
            Self::with_interface(Err(io::Error::other("the thread that looks up the route failed")))
        })
    }

    /// Returns this watch, or a new one if the load uses another interface than expected.
    pub(crate) fn for_connected(self, connection: &dyn Handle) -> Self {
        let current = HostWatch::begin(connection);
        let index = |watch: &HostWatch| watch.interface.as_ref().map(|interface| interface.index);
        if index(&self) == index(&current) { self } else { current }
    }

    fn with_interface(interface: io::Result<LoadInterface>) -> Self {
        let mut notes = Vec::new();
        let mut interface = interface
            .inspect_err(|error| notes.push(Note::warning(format!("interface of the load unknown: {error}"))))
            .ok();
        let first = Reading::take(interface.as_mut());
        if first.processors.is_empty() {
            notes.push(Note::warning("processor times not readable: /proc/stat"));
        }
        if first.counters.is_none() {
            notes.push(Note::warning("counters of the network stack not readable: /proc/net/snmp"));
        }
        HostWatch { interface, last: first.clone(), first, notes, threads: BTreeMap::new() }
    }

    /// Returns the figures since the last sample, if the last one is old enough.
    pub(crate) fn sample(&mut self) -> Option<HostSample> {
        let elapsed = self.last.at.elapsed();
        if elapsed + SAMPLE_SLACK < MIN_SAMPLE_INTERVAL {
            return None;
        }
        let now = Reading::take(self.interface.as_mut());
        let before = std::mem::replace(&mut self.last, now);
        let at_work = |time: &ProcessorTime| time.busy().as_secs_f64() >= MIN_BUSY_SHARE * elapsed.as_secs_f64();
        let mut processors = self.last.processors_since(&before);
        processors.retain(at_work);
        let sample = HostSample {
            elapsed: self.last.at.duration_since(before.at),
            processors,
            interface: self.last.counters_since(&before),
            qdiscs: self.last.qdiscs_since(&before).and_then(|qdiscs| host::combine_qdiscs(&qdiscs)),
            retransmitted_segments: self.last.retransmitted_since(&before),
        };
        let nothing = HostSample { elapsed: sample.elapsed, ..HostSample::default() };
        (sample != nothing).then_some(sample)
    }

    /// Returns the figures of a stream's thread since the last call.
    pub(crate) fn thread(&mut self, stream: u16, id: i32) -> Option<ThreadTime> {
        let now = thread(id, false)?;
        let before = self.threads.insert(stream, now.clone());
        Some(before.map_or(now.clone(), |before| now.since(&before)))
    }

    /// Returns the figures of a stream's thread since its start. For an ended thread: the last known figures.
    pub(crate) fn thread_total(&self, stream: u16, id: i32) -> Option<ThreadTime> {
        thread(id, true).or_else(|| self.threads.get(&stream).cloned())
    }

    /// Returns the figures of the whole test, and notes about figures that could not be read.
    pub(crate) fn finish(&mut self) -> (Option<HostReport>, Vec<Note>) {
        let now = Reading::take(self.interface.as_mut());
        let interface = now.traffic.as_ref().zip(self.first.traffic.as_ref()).map(|(traffic, before)| Interface {
            name: traffic.name.clone(),
            mtu_bytes: traffic.mtu,
            rate: rate(traffic),
            loopback: traffic.is_loopback,
            kind: traffic.kind.clone(),
            counters: interface_counters(traffic).since(&interface_counters(before)),
        });
        let report = HostReport {
            processors: now.processors_since(&self.first),
            interface,
            qdiscs: now.qdiscs_since(&self.first).unwrap_or_default(),
            counters: self.first.counters.as_deref().and_then(changed_counters),
        };
        let known = (report != HostReport::default()).then_some(report);
        (known, std::mem::take(&mut self.notes))
    }
}

impl Reading {
    fn take(interface: Option<&mut LoadInterface>) -> Self {
        // The time is read first, so that the duration of the reading itself is not lost between two samples.
        let at = Instant::now();
        let (traffic, qdiscs) = match interface {
            Some(LoadInterface { netlink, index }) => {
                let qdiscs = netlink.qdisc_stats(*index).ok();
                let queues = |all: Vec<QdiscStats>| all.iter().filter(|one| one.kind != "noqueue").map(qdisc).collect();
                (netlink.interface_stats(*index).ok(), qdiscs.map(queues))
            }
            None => (None, None),
        };
        let mut processors = read_file("/proc/stat").map(|text| host::parse_processor_times(&text)).unwrap_or_default();
        if let Ok(text) = read_file("/proc/softirqs") {
            host::add_softirqs(&text, &mut processors);
        }
        // `/proc/net` shows the namespace of the calling thread, which is the sockets' namespace.
        let kernel_text = counters().ok();
        let retransmitted_segments =
            kernel_text.as_deref().and_then(|text| host::parse_counter(text, "Tcp", "RetransSegs"));
        let counters = kernel_text.map(|kernel_text| host::counter_values(&kernel_text).into());
        Reading { at, processors, traffic, qdiscs, counters, retransmitted_segments }
    }

    fn processors_since(&self, before: &Reading) -> Vec<ProcessorTime> {
        host::processors_since(&self.processors, &before.processors)
    }

    fn counters_since(&self, before: &Reading) -> Option<InterfaceCounters> {
        Some(interface_counters(self.traffic.as_ref()?).since(&interface_counters(before.traffic.as_ref()?)))
    }

    fn qdiscs_since(&self, before: &Reading) -> Option<Vec<Qdisc>> {
        Some(host::qdiscs_since(self.qdiscs.as_ref()?, before.qdiscs.as_ref()?))
    }

    fn retransmitted_since(&self, before: &Reading) -> Option<u64> {
        u64::try_from(self.retransmitted_segments?.wrapping_sub(before.retransmitted_segments?)).ok()
    }
}

/// Returns the counters of the network stack as the kernel writes them, in the network namespace of the calling thread.
fn counters() -> io::Result<String> {
    let more = read_file("/proc/thread-self/net/netstat").unwrap_or_default();
    Ok(read_file("/proc/thread-self/net/snmp")? + &more)
}

/// Returns the counters that changed since these values were read.
fn changed_counters(values: &str) -> Option<CounterTable> {
    let now = counters().ok()?;
    Some(host::counter_changes(&host::parse_counter_values(values, &now), &host::parse_counters(&now)))
}

/// Returns the interface on the route to an address.
fn interface_towards(to: IpAddr, from: Option<IpAddr>) -> io::Result<LoadInterface> {
    let mut netlink = Netlink::open()?;
    // The route of an IPv4-mapped address is the route of the IPv4 address.
    let canonical = |address: IpAddr| address.to_canonical();
    let (to, from) = (canonical(to), from.map(canonical));
    let index = netlink.route_interface(to, from).or_else(|_| netlink.route_interface(to, None))?;
    Ok(LoadInterface { netlink, index })
}

fn rate(traffic: &InterfaceStats) -> Option<BitRate> {
    let megabits = ethtool::link_speed_megabits(&traffic.name).ok().flatten()?;
    Some(BitRate(u64::from(megabits) * 1_000_000))
}

pub(crate) fn interface_counters(traffic: &InterfaceStats) -> InterfaceCounters {
    InterfaceCounters {
        sent_bytes: traffic.sent_bytes,
        sent_packets: traffic.sent_packets,
        sent_errors: traffic.sent_errors,
        sent_dropped: traffic.sent_dropped,
        received_bytes: traffic.received_bytes,
        received_packets: traffic.received_packets,
        received_errors: traffic.received_errors,
        received_dropped: traffic.received_dropped,
        received_missed: traffic.received_missed,
    }
}

pub(crate) fn qdisc(discipline: &QdiscStats) -> Qdisc {
    Qdisc {
        kind: discipline.kind.clone(),
        handle: handle(discipline.handle),
        parent: if discipline.parent == u32::MAX { "root".into() } else { handle(discipline.parent) },
        counters: QdiscCounters {
            sent_bytes: discipline.sent_bytes,
            sent_packets: discipline.sent_packets,
            dropped_packets: discipline.dropped_packets,
            overlimits: discipline.overlimits,
            requeues: discipline.requeues,
            backlog_bytes: discipline.backlog_bytes,
            backlog_packets: discipline.backlog_packets,
        },
    }
}

/// Formats a handle as `tc` prints it: two hexadecimal halves, without the second one if it is zero.
fn handle(value: u32) -> String {
    match value & 0xffff {
        0 => format!("{:x}:", value >> 16),
        minor => format!("{:x}:{minor:x}", value >> 16),
    }
}

/// Returns the figures of a thread of this process since its start.
fn thread(id: i32, migrations: bool) -> Option<ThreadTime> {
    let file = |name: &str| read_file(&format!("/proc/self/task/{id}/{name}")).ok();
    let mut thread = host::parse_thread_time(&file("stat")?)?;
    if let Some(schedstat) = file("schedstat") {
        host::apply_schedstat(&schedstat, &mut thread);
    }
    if migrations {
        thread.migrations = file("sched").as_deref().and_then(host::parse_migrations);
    }
    Some(thread)
}

/// Reads a kernel file up to a limit. The longest ones, on machines with many processors, have some hundred kilobytes.
fn read_file(path: &str) -> io::Result<String> {
    use std::io::Read;
    const MAX_BYTES: u64 = 4 << 20;
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use lfn_session::transport::{Stream, memory, tcp};

    use super::*;

    #[test]
    fn watch_reports_figures_of_any_linux() {
        let (client, _server) = tcp::pair();
        let mut watch = HostWatch::begin(&**client.handle());
        watch.last.at = Instant::now();
        assert_eq!(watch.sample(), None, "too soon");
        std::thread::sleep(MIN_SAMPLE_INTERVAL);
        let sample = watch.sample().unwrap();
        assert!(sample.elapsed >= MIN_SAMPLE_INTERVAL && sample.interface.is_some(), "{sample:?}");
        let id = lfn_sys::process::thread_id();
        assert!(watch.thread(0, id).is_some() && watch.thread_total(0, id).is_some());
        assert_eq!(watch.thread(1, 0), None, "no such thread");
        let (report, notes) = watch.finish();
        let report = report.unwrap();
        assert!(report.interface.unwrap().loopback && !report.processors.is_empty());
        assert_eq!((report.counters.is_some(), notes), (true, vec![]));
    }

    #[test]
    fn stream_without_addresses_is_watched_without_interface() {
        let (client, _server) = memory::pair();
        let (report, notes) = HostWatch::begin(&**client.handle()).finish();
        let report = report.unwrap();
        assert!(report.interface.is_none() && !report.processors.is_empty(), "{report:?}");
        assert!(notes[0].message.starts_with("interface of the load unknown"), "{notes:?}");
    }

    #[test]
    fn reading_is_cheap() {
        let (client, _server) = tcp::pair();
        let mut watch = HostWatch::begin(&**client.handle());
        let times = (0..20).map(|_| {
            let first = Instant::now();
            Reading::take(watch.interface.as_mut());
            first.elapsed()
        });
        // The fastest reading: the load of other programs is not its cost.
        let fastest = times.min().unwrap();
        assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    }

    #[test]
    fn handles_match_tc_output() {
        assert_eq!((handle(0x8001_0000), handle(0x1_000a)), ("8001:".into(), "1:a".into()));
    }
}
