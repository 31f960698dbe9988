//! Reads what this host does while a test runs: processors, the load's threads, interface, queueing disciplines, the
//! network stack's counters.
//!
//! It is done by the control connection's thread, at the ends of intervals and never more often than ten times a second,
//! so that nothing is asked of the threads that move data. What one reading costs is bounded by a test below. What cannot
//! be read is left out, and said once in the end's notes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::host::{
    self, CounterTable, HostReport, HostSample, Interface, InterfaceCounters, Note, ProcessorTime, Qdisc,
    QdiscCounters, ThreadTime,
};
use lfn_core::units::BitRate;
use lfn_sys::ethtool;
use lfn_sys::netlink::Netlink;
use lfn_sys::traffic::{Discipline, Traffic};

/// An interval shorter than this has no sample of its own.
const SHORTEST: Duration = Duration::from_millis(100);
/// An interval's end is noticed a little early or late: one of [`SHORTEST`] still has its sample.
const SLACK: Duration = Duration::from_millis(20);
/// A processor busy for less than this share of an interval is left out of its sample.
const AT_WORK: f64 = 0.01;

/// One end's host, watched from the beginning of a test.
#[derive(Debug)]
pub(super) struct HostWatch {
    interface: Option<Watched>,
    begun: Reading,
    last: Reading,
    notes: Vec<Note>,
    /// What each stream's thread had done when it was last looked at.
    threads: BTreeMap<u16, ThreadTime>,
}

/// The interface the load leaves by.
#[derive(Debug)]
struct Watched {
    netlink: Netlink,
    index: u32,
}

/// What was read at one moment.
#[derive(Debug, Clone)]
struct Reading {
    at: Instant,
    processors: Vec<ProcessorTime>,
    traffic: Option<Traffic>,
    qdiscs: Option<Vec<Qdisc>>,
    /// As the kernel wrote them, without the names: a table of them takes ten times the room, for as long as the session
    /// lasts.
    counters: Option<Arc<str>>,
    retransmitted_segments: Option<i64>,
}

impl HostWatch {
    /// Takes the first reading; the load leaves by the interface `socket` leaves by.
    pub(super) fn begin(socket: &TcpStream) -> Self {
        match (socket.peer_addr(), socket.local_addr()) {
            (Ok(peer), Ok(local)) => Self::towards(peer.ip(), Some(local.ip())),
            (Err(error), _) | (_, Err(error)) => Self::by(Err(error)),
        }
    }

    /// The same before there is a socket: what is dropped of the first packets counts too.
    pub(super) fn towards(to: IpAddr, from: Option<IpAddr>) -> Self {
        // Aside: what reads a route's messages and the kernel's files uses much of a stack, and frees much into the
        // thread's store of small blocks; both stay in memory as long as the thread lives.
        let aside = thread::scope(|scope| scope.spawn(|| Self::by(watched(to, from))).join());
        aside.unwrap_or_else(|_| Self::by(Err(io::Error::other("the thread that asks for the route failed"))))
    }

    /// This one, or a new one if the load leaves by another interface than was thought.
    pub(super) fn confirmed(self, socket: &TcpStream) -> Self {
        let anew = HostWatch::begin(socket);
        let index = |watch: &HostWatch| watch.interface.as_ref().map(|interface| interface.index);
        if index(&self) == index(&anew) { self } else { anew }
    }

    fn by(interface: io::Result<Watched>) -> Self {
        let mut notes = Vec::new();
        let mut interface = interface
            .inspect_err(|error| notes.push(Note::warning(format!("interface of the load not known: {error}"))))
            .ok();
        let begun = Reading::take(interface.as_mut());
        if begun.processors.is_empty() {
            notes.push(Note::warning("processor times not readable: /proc/stat"));
        }
        if begun.counters.is_none() {
            notes.push(Note::warning("counters of the network stack not readable: /proc/net/snmp"));
        }
        HostWatch { interface, last: begun.clone(), begun, notes, threads: BTreeMap::new() }
    }

    /// What the host did since the last sample, if that is long enough ago.
    pub(super) fn sample(&mut self) -> Option<HostSample> {
        let elapsed = self.last.at.elapsed();
        if elapsed + SLACK < SHORTEST {
            return None;
        }
        let now = Reading::take(self.interface.as_mut());
        let before = std::mem::replace(&mut self.last, now);
        let at_work = |time: &ProcessorTime| time.busy().as_secs_f64() >= AT_WORK * elapsed.as_secs_f64();
        let mut processors = self.last.processors_since(&before);
        processors.retain(at_work);
        let sample = HostSample {
            elapsed: self.last.at.duration_since(before.at),
            processors,
            interface: self.last.counters_since(&before),
            qdiscs: self.last.qdiscs_since(&before).and_then(|qdiscs| host::together(&qdiscs)),
            retransmitted_segments: self.last.retransmitted_since(&before),
        };
        let nothing = HostSample { elapsed: sample.elapsed, ..HostSample::default() };
        (sample != nothing).then_some(sample)
    }

    /// What the thread of a stream did since it was last asked about.
    pub(super) fn thread(&mut self, stream: u16, id: i32) -> Option<ThreadTime> {
        let now = thread(id, false)?;
        let before = self.threads.insert(stream, now.clone());
        Some(before.map_or(now.clone(), |before| now.since(&before)))
    }

    /// What it did over the whole test, for which it was started; one that is gone, until it was last looked at.
    pub(super) fn whole_thread(&self, stream: u16, id: i32) -> Option<ThreadTime> {
        thread(id, true).or_else(|| self.threads.get(&stream).cloned())
    }

    /// What the host did over the whole test, and what could not be had.
    pub(super) fn finish(&mut self) -> (Option<HostReport>, Vec<Note>) {
        let now = Reading::take(self.interface.as_mut());
        let interface = now.traffic.as_ref().zip(self.begun.traffic.as_ref()).map(|(traffic, before)| Interface {
            name: traffic.name.clone(),
            mtu_bytes: traffic.mtu,
            rate: rate(traffic),
            loopback: traffic.is_loopback,
            kind: traffic.kind.clone(),
            counters: counted(traffic).since(&counted(before)),
        });
        let report = HostReport {
            processors: now.processors_since(&self.begun),
            interface,
            qdiscs: now.qdiscs_since(&self.begun).unwrap_or_default(),
            counters: self.begun.counters.as_deref().and_then(changed),
        };
        let known = (report != HostReport::default()).then_some(report);
        (known, std::mem::take(&mut self.notes))
    }
}

impl Reading {
    fn take(interface: Option<&mut Watched>) -> Self {
        // Before: what reading takes is not missing between two samples.
        let at = Instant::now();
        let (traffic, qdiscs) = match interface {
            Some(Watched { netlink, index }) => {
                let qdiscs = netlink.disciplines(*index).ok();
                let queues = |all: Vec<Discipline>| all.iter().filter(|one| one.kind != "noqueue").map(qdisc).collect();
                (netlink.traffic(*index).ok(), qdiscs.map(queues))
            }
            None => (None, None),
        };
        let mut processors = text("/proc/stat").map(|text| host::processor_times(&text)).unwrap_or_default();
        if let Ok(text) = text("/proc/softirqs") {
            host::softirqs(&text, &mut processors);
        }
        // The sockets' own namespace: /proc/net is that of the calling thread.
        let whole = counters().ok();
        let retransmitted_segments = whole.as_deref().and_then(|text| host::counter(text, "Tcp", "RetransSegs"));
        let counters = whole.map(|whole| host::values(&whole).into());
        Reading { at, processors, traffic, qdiscs, counters, retransmitted_segments }
    }

    fn processors_since(&self, before: &Reading) -> Vec<ProcessorTime> {
        host::processors_since(&self.processors, &before.processors)
    }

    fn counters_since(&self, before: &Reading) -> Option<InterfaceCounters> {
        Some(counted(self.traffic.as_ref()?).since(&counted(before.traffic.as_ref()?)))
    }

    fn qdiscs_since(&self, before: &Reading) -> Option<Vec<Qdisc>> {
        Some(host::qdiscs_since(self.qdiscs.as_ref()?, before.qdiscs.as_ref()?))
    }

    fn retransmitted_since(&self, before: &Reading) -> Option<u64> {
        u64::try_from(self.retransmitted_segments?.wrapping_sub(before.retransmitted_segments?)).ok()
    }
}

/// The counters of the network stack, as the kernel writes them. Those of the sockets' own namespace: /proc/net is that
/// of the calling thread.
fn counters() -> io::Result<String> {
    let more = text("/proc/thread-self/net/netstat").unwrap_or_default();
    Ok(text("/proc/thread-self/net/snmp")? + &more)
}

/// What changed since these values were read.
fn changed(values: &str) -> Option<CounterTable> {
    let now = counters().ok()?;
    Some(host::changed(&host::counters_named(values, &now), &host::counters(&now)))
}

/// The interface by which an address is reached.
fn watched(to: IpAddr, from: Option<IpAddr>) -> io::Result<Watched> {
    let mut netlink = Netlink::open()?;
    // An address of IPv4 on a socket of IPv6 is routed as what it is.
    let plain = |address: IpAddr| address.to_canonical();
    let (to, from) = (plain(to), from.map(plain));
    let index = netlink.interface_towards(to, from).or_else(|_| netlink.interface_towards(to, None))?;
    Ok(Watched { netlink, index })
}

fn rate(traffic: &Traffic) -> Option<BitRate> {
    let megabits = ethtool::megabits(&traffic.name).ok().flatten()?;
    Some(BitRate(u64::from(megabits) * 1_000_000))
}

fn counted(traffic: &Traffic) -> InterfaceCounters {
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

fn qdisc(discipline: &Discipline) -> Qdisc {
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

/// As `tc` prints it: hexadecimal halves, the second left out where it is zero.
fn handle(value: u32) -> String {
    match value & 0xffff {
        0 => format!("{:x}:", value >> 16),
        minor => format!("{:x}:{minor:x}", value >> 16),
    }
}

/// What a thread of this process has done since it was started.
fn thread(id: i32, migrations: bool) -> Option<ThreadTime> {
    let file = |name: &str| text(&format!("/proc/self/task/{id}/{name}")).ok();
    let mut thread = host::thread_times(&file("stat")?)?;
    if let Some(schedstat) = file("schedstat") {
        host::thread_runtime(&schedstat, &mut thread);
    }
    if migrations {
        thread.migrations = file("sched").as_deref().and_then(host::migrations);
    }
    Some(thread)
}

/// A file of the kernel's, bounded: the longest of these, on machines of many processors, take some hundred kilobytes.
fn text(path: &str) -> io::Result<String> {
    use std::io::Read;
    const LONGEST: u64 = 4 << 20;
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_watch_tells_what_there_is_on_any_linux() {
        let (client, _server) = connected();
        let mut watch = HostWatch::begin(&client);
        watch.last.at = Instant::now();
        assert_eq!(watch.sample(), None, "too soon");
        std::thread::sleep(SHORTEST);
        let sample = watch.sample().unwrap();
        assert!(sample.elapsed >= SHORTEST && sample.interface.is_some(), "{sample:?}");
        let id = lfn_sys::process::thread_id();
        assert!(watch.thread(0, id).is_some() && watch.whole_thread(0, id).is_some());
        assert_eq!(watch.thread(1, 0), None, "no such thread");
        let (report, notes) = watch.finish();
        let report = report.unwrap();
        assert!(report.interface.unwrap().loopback && !report.processors.is_empty());
        assert_eq!((report.counters.is_some(), notes), (true, vec![]));
    }

    #[test]
    fn a_reading_is_cheap() {
        let (client, _server) = connected();
        let mut watch = HostWatch::begin(&client);
        let times = (0..20).map(|_| {
            let begun = Instant::now();
            Reading::take(watch.interface.as_mut());
            begun.elapsed()
        });
        // The quickest of them: what else runs here is not its cost.
        let least = times.min().unwrap();
        assert!(least < Duration::from_secs(1), "{least:?}");
    }

    #[test]
    fn handles_are_as_tc_prints_them() {
        assert_eq!((handle(0x8001_0000), handle(0x1_000a)), ("8001:".into(), "1:a".into()));
    }
}
