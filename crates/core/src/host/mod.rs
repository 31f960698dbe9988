//! What a host did while a test ran: its processors, the threads of the load, the interface the load left by, the
//! interface's queueing disciplines and the counters of its network stack.
//!
//! Everything is a difference between two readings, and everything may be missing: a container without `/proc`, a
//! kernel without the file, a user who may not look. What could not be read is absent, never zero. The text of the
//! kernel's files is read in `kernel_files`, two clocks are laid on each other in [`clock`]; who opens files and sockets
//! is `lfn-net`. The types travel in a session's reports and are printed by `--json`, so their names carry units.

pub mod clock;
mod kernel_files;
mod remarks;

pub use kernel_files::{
    CounterTable, changed, counter, counters, counters_named, migrations, processor_times, softirqs, thread_runtime,
    thread_times, values,
};
pub(crate) use remarks::SEGMENTS_LET_GO;
pub use remarks::remarks;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::seconds;
use crate::tcp_info::optional_seconds;
use crate::units::BitRate;

/// What one host did, over a whole test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostReport {
    /// Each processor's time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTime>,
    /// The interface the load left by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// Its queueing disciplines, roots and leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qdiscs: Vec<Qdisc>,
    /// Counters of the network stack that changed, as `netstat -s` has them (`/proc/net/snmp`, `/proc/net/netstat`), by
    /// group and name: `Tcp.RetransSegs`. Those of the network namespace, so of every connection in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, i64>>,
}

/// What one host did in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostSample {
    /// Time since the sample before it.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Processors that did something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTime>,
    /// What the interface counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceCounters>,
    /// Its queueing disciplines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdiscs: Option<QdiscCounters>,
    /// Segments the host sent again, of all its connections (`Tcp.RetransSegs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
}

/// Where the time of one processor went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessorTime {
    /// Its number.
    pub processor: u32,
    /// Programs, niced ones and guests among them.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// The kernel for programs.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
    /// Soft interrupts, where packets are received, and hard ones.
    #[serde(rename = "softirq_seconds", with = "seconds")]
    pub softirq: Duration,
    /// Nothing to do.
    #[serde(rename = "idle_seconds", with = "seconds")]
    pub idle: Duration,
    /// Kept from this machine by its hypervisor.
    #[serde(rename = "stolen_seconds", with = "seconds")]
    pub stolen: Duration,
    /// Soft interrupts for packets received (`NET_RX`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_interrupts: Option<u64>,
    /// Soft interrupts for packets sent (`NET_TX`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_interrupts: Option<u64>,
}

/// An interface, and what it counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu_bytes: u32,
    /// Its rate, where the driver tells one.
    #[serde(default, rename = "rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Packets come back to this host: what it counts is of both ends.
    pub loopback: bool,
    /// What it is, of one that is no device but made by the kernel: `veth`, `bridge`, `wireguard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it counted over the test.
    #[serde(flatten)]
    pub counters: InterfaceCounters,
}

/// What an interface counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InterfaceCounters {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent; a super-packet is one or many, as the driver counts.
    pub sent_packets: u64,
    /// Sending failed.
    pub sent_errors: u64,
    /// Dropped instead of sent.
    pub sent_dropped: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Received damaged.
    pub received_errors: u64,
    /// Dropped after they were received, packets nobody asked for among them.
    pub received_dropped: u64,
    /// Not received for want of room (`rx_missed_errors`, `rx_fifo_errors`).
    pub received_missed: u64,
}

/// A queueing discipline of an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Qdisc {
    /// `fq_codel`, `tbf`.
    pub kind: String,
    /// Its handle, as `tc` prints it: `8001:`.
    pub handle: String,
    /// What it hangs on: `root`, or the class of another.
    pub parent: String,
    /// What it counted over the test.
    #[serde(flatten)]
    pub counters: QdiscCounters,
}

/// What a queueing discipline counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QdiscCounters {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// How often the rate set for it held a packet back.
    pub overlimits: u64,
    /// Packets the interface would not take yet.
    pub requeues: u64,
    /// Bytes waiting at the end.
    pub backlog_bytes: u64,
    /// Packets waiting at the end.
    pub backlog_packets: u64,
}

/// A thread that moves the data of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadTime {
    /// The processor it was last on.
    pub processor: u32,
    /// In user mode.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// In the kernel.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
    /// It could have run, and others did.
    #[serde(rename = "waited_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub waited: Option<Duration>,
    /// How often it moved to another processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
}

/// What an end has to say beyond figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Note {
    /// How bad it is.
    pub level: Level,
    /// Names the thing and the value.
    pub message: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The test went on.
    Warning,
    /// It did not.
    Error,
}

impl Note {
    /// Something that is not as it should be.
    pub fn warning(message: impl Into<String>) -> Self {
        Note { level: Level::Warning, message: message.into() }
    }

    /// Something that ended the test.
    pub fn error(message: impl Into<String>) -> Self {
        Note { level: Level::Error, message: message.into() }
    }
}

impl HostReport {
    /// How many processors were at work, and how many of those on packets; `None` of a host that does not tell, or of a
    /// test too short for the kernel's ticks. Each by the time the kernel counted for that processor, not by the test's:
    /// the host is watched from before the first byte until after the last.
    pub fn processors_at_work(&self) -> Option<(f64, f64)> {
        let counted: Vec<(&ProcessorTime, f64)> = self
            .processors
            .iter()
            .map(|time| (time, time.counted().as_secs_f64()))
            .filter(|(_, all)| *all > 0.0)
            .collect();
        let sum = |figure: fn(&ProcessorTime) -> Duration| {
            counted.iter().map(|(time, all)| figure(time).as_secs_f64() / all).sum::<f64>()
        };
        (!counted.is_empty()).then(|| (sum(ProcessorTime::busy), sum(|time| time.softirq)))
    }

    /// How many processors' worth of time was left over.
    pub fn processors_idle(&self) -> Option<f64> {
        let shares = self.processors.iter().filter(|time| !time.counted().is_zero());
        let shares: Vec<f64> = shares.map(|time| time.idle.as_secs_f64() / time.counted().as_secs_f64()).collect();
        (!shares.is_empty()).then(|| shares.iter().sum())
    }

    /// How much a counter of the network stack grew; `None` if the counters could not be read.
    pub fn counter(&self, name: &str) -> Option<i64> {
        self.counters.as_ref().map(|counters| counters.get(name).copied().unwrap_or(0))
    }
}

impl ProcessorTime {
    /// What it did since `before`.
    pub fn since(&self, before: &ProcessorTime) -> ProcessorTime {
        let grown = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        ProcessorTime {
            processor: self.processor,
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            softirq: self.softirq.saturating_sub(before.softirq),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
            receive_interrupts: grown(self.receive_interrupts, before.receive_interrupts),
            transmit_interrupts: grown(self.transmit_interrupts, before.transmit_interrupts),
        }
    }

    /// Time it was not idle.
    pub fn busy(&self) -> Duration {
        self.user + self.system + self.softirq
    }

    /// All the time the kernel counted for it.
    pub fn counted(&self) -> Duration {
        self.busy() + self.idle + self.stolen
    }
}

/// What each of them did since `before`; one that is new since then is left out.
pub fn processors_since(now: &[ProcessorTime], before: &[ProcessorTime]) -> Vec<ProcessorTime> {
    let find = |number| before.iter().find(|time| time.processor == number);
    now.iter().filter_map(|time| Some(time.since(find(time.processor)?))).collect()
}

impl InterfaceCounters {
    /// What it counted since `before`.
    pub fn since(&self, before: &InterfaceCounters) -> InterfaceCounters {
        InterfaceCounters {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
            sent_errors: self.sent_errors.saturating_sub(before.sent_errors),
            sent_dropped: self.sent_dropped.saturating_sub(before.sent_dropped),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            received_packets: self.received_packets.saturating_sub(before.received_packets),
            received_errors: self.received_errors.saturating_sub(before.received_errors),
            received_dropped: self.received_dropped.saturating_sub(before.received_dropped),
            received_missed: self.received_missed.saturating_sub(before.received_missed),
        }
    }
}

impl QdiscCounters {
    /// What it counted since `before`; what waits is as it is now.
    pub fn since(&self, before: &QdiscCounters) -> QdiscCounters {
        QdiscCounters {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
            dropped_packets: self.dropped_packets.saturating_sub(before.dropped_packets),
            overlimits: self.overlimits.saturating_sub(before.overlimits),
            requeues: self.requeues.saturating_sub(before.requeues),
            ..*self
        }
    }
}

/// What each of them did since `before`; one made since then counted from nothing.
pub fn qdiscs_since(now: &[Qdisc], before: &[Qdisc]) -> Vec<Qdisc> {
    let same = |a: &Qdisc, b: &Qdisc| (&a.kind, &a.handle, &a.parent) == (&b.kind, &b.handle, &b.parent);
    now.iter()
        .map(|qdisc| {
            let before = before.iter().find(|old| same(qdisc, old)).map(|old| old.counters).unwrap_or_default();
            Qdisc { counters: qdisc.counters.since(&before), ..qdisc.clone() }
        })
        .collect()
}

/// All of an interface together. A classful one counts again what those below it drop, so the most of them is taken.
pub fn together(qdiscs: &[Qdisc]) -> Option<QdiscCounters> {
    let most = |figure: fn(&QdiscCounters) -> u64| qdiscs.iter().map(|qdisc| figure(&qdisc.counters)).max();
    Some(QdiscCounters {
        sent_bytes: most(|c| c.sent_bytes)?,
        sent_packets: most(|c| c.sent_packets)?,
        dropped_packets: most(|c| c.dropped_packets)?,
        overlimits: most(|c| c.overlimits)?,
        requeues: most(|c| c.requeues)?,
        backlog_bytes: most(|c| c.backlog_bytes)?,
        backlog_packets: most(|c| c.backlog_packets)?,
    })
}

impl ThreadTime {
    /// What it did since `before`.
    pub fn since(&self, before: &ThreadTime) -> ThreadTime {
        ThreadTime {
            processor: self.processor,
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            waited: self.waited.zip(before.waited).map(|(now, then)| now.saturating_sub(then)),
            migrations: self.migrations.zip(before.migrations).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Time it ran.
    pub fn ran(&self) -> Duration {
        self.user + self.system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qdisc(handle: &str, dropped_packets: u64, backlog: u64) -> Qdisc {
        let counters = QdiscCounters { dropped_packets, backlog_bytes: backlog, ..QdiscCounters::default() };
        Qdisc { kind: "tbf".into(), handle: handle.into(), parent: "root".into(), counters }
    }

    #[test]
    fn differences_are_of_the_same_thing() {
        let before = [qdisc("1:", 10, 500), qdisc("2:", 7, 0)];
        let now = [qdisc("1:", 12, 300), qdisc("3:", 4, 0)];
        let grown = qdiscs_since(&now, &before);
        assert_eq!(
            (grown[0].counters.dropped_packets, grown[0].counters.backlog_bytes),
            (2, 300),
            "what waits is no growth"
        );
        assert_eq!(grown[1].counters.dropped_packets, 4, "new, so counted from nothing");
        assert_eq!(together(&grown).map(|all| all.dropped_packets), Some(4));
        assert_eq!(together(&[]), None, "none could be read");
    }

    #[test]
    fn a_counter_that_fell_back_is_no_growth() {
        let (big, small) = (InterfaceCounters { sent_bytes: 9, ..Default::default() }, InterfaceCounters::default());
        assert_eq!(small.since(&big).sent_bytes, 0);
        let (now, then) = (ProcessorTime { processor: 1, ..Default::default() }, ProcessorTime::default());
        assert_eq!(processors_since(&[now], &[then]), [], "another processor");
    }

    #[test]
    fn no_more_processors_are_at_work_than_there_are() {
        let ms = Duration::from_millis;
        let full = ProcessorTime { user: ms(300), system: ms(500), softirq: ms(200), ..Default::default() };
        let half =
            ProcessorTime { processor: 1, system: ms(400), idle: ms(500), stolen: ms(100), ..Default::default() };
        let new = ProcessorTime { processor: 2, ..Default::default() };
        let report = HostReport { processors: vec![full, half, new], ..HostReport::default() };
        let (busy, packets) = report.processors_at_work().unwrap();
        assert!((busy - 1.4).abs() < 1e-9 && (packets - 0.2).abs() < 1e-9, "{busy} {packets}");
        assert!((report.processors_idle().unwrap() - 0.5).abs() < 1e-9);
        let untold = HostReport { processors: vec![new], ..HostReport::default() };
        assert_eq!((untold.processors_at_work(), untold.processors_idle()), (None, None), "not a tick passed");
    }

    #[test]
    fn what_could_not_be_read_is_absent() {
        let text = serde_json::to_string(&HostReport::default()).unwrap();
        assert_eq!(text, "{}");
        assert_eq!(HostReport::default().counter("Tcp.RetransSegs"), None);
        let read = HostReport { counters: Some(BTreeMap::new()), ..HostReport::default() };
        assert_eq!(read.counter("Tcp.RetransSegs"), Some(0), "read, and it did not move");
        let (thread, other) =
            (ThreadTime::default(), ThreadTime { waited: Some(Duration::ZERO), ..Default::default() });
        assert_eq!(other.since(&thread).waited, None);
    }
}
