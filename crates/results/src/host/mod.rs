//! Activity of a host during a test: its processors, the threads of the load, the interface of the load, the queueing
//! disciplines of the interface, and the counters of its network stack.
//!
//! Every figure is a difference between two readings, and every figure may be missing: in a container without `/proc`,
//! with a kernel without the file, or for a user without permission. Missing figures are absent, never zero.
//! [`facts`] has what a load does not change.
//! `kernel_files` parses the kernel's files, [`machine_files`] and [`control_group`] those of [`facts`], and [`clock`]
//! aligns two clocks; the callers open the files and sockets. A session's reports carry these types and `--json` prints
//! them, so their names have units.

mod bounded_facts;
pub mod clock;
pub mod control_group;
pub mod facts;
mod kernel_files;
pub mod machine_files;
mod warnings;

pub use kernel_files::{
    CounterTable, add_softirqs, apply_schedstat, counter_changes, counter_values, parse_counter, parse_counter_values,
    parse_counters, parse_migrations, parse_processor_times, parse_thread_time,
};
pub(crate) use warnings::SEGMENT_DROP_COUNTERS;
pub use warnings::socket_warnings;

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

/// Activity of one host over a whole test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HostReport {
    /// Time of each processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTime>,
    /// Interface through which the load left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// Queueing disciplines of the interface, roots and leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qdiscs: Vec<Qdisc>,
    /// Changed counters of the network stack by group and name (`Tcp.RetransSegs`), as `netstat -s` prints them
    /// (`/proc/net/snmp`, `/proc/net/netstat`). They count all connections of the network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, i64>>,
}

/// Activity of one host in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HostSample {
    /// Time since the previous sample.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Processors that were active.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTime>,
    /// Counters of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceCounters>,
    /// Sum over the queueing disciplines of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdiscs: Option<QdiscCounters>,
    /// Segments that the host retransmitted, over all its connections (`Tcp.RetransSegs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
}

/// Use of the time of one processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProcessorTime {
    /// Number of the processor.
    pub processor: u32,
    /// Programs, with niced programs and guests.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// Kernel work for programs.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
    /// Soft interrupts, which receive packets, and hard interrupts.
    #[serde(rename = "softirq_seconds", with = "seconds")]
    pub softirq: Duration,
    /// Time in which the processor was idle, in seconds.
    #[serde(rename = "idle_seconds", with = "seconds")]
    pub idle: Duration,
    /// Time that the hypervisor took from this machine.
    #[serde(rename = "stolen_seconds", with = "seconds")]
    pub stolen: Duration,
    /// Soft interrupts for received packets (`NET_RX`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_interrupts: Option<u64>,
    /// Soft interrupts for sent packets (`NET_TX`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_interrupts: Option<u64>,
}

/// An interface and its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Interface {
    /// Name of the interface, such as eth0.
    pub name: String,
    /// MTU of the interface, in bytes of the IP packet.
    pub mtu_bytes: u32,
    /// Link rate, if the driver reports it.
    #[serde(default, rename = "rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// True if packets return to this host, so that the counters cover both ends.
    pub loopback: bool,
    /// Type of an interface without hardware: `veth`, `bridge`, `wireguard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Counts over the test.
    #[serde(flatten)]
    pub counters: InterfaceCounters,
}

/// Counters of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct InterfaceCounters {
    /// Bytes sent, with link-layer headers (`tx_bytes`).
    pub sent_bytes: u64,
    /// Packets sent; the driver decides whether a super-packet counts as one.
    pub sent_packets: u64,
    /// Packets with transmit errors (`tx_errors`).
    pub sent_errors: u64,
    /// Packets dropped instead of sent.
    pub sent_dropped: u64,
    /// Bytes received, with link-layer headers (`rx_bytes`).
    pub received_bytes: u64,
    /// Packets received by the interface (`rx_packets`).
    pub received_packets: u64,
    /// Packets received with damage.
    pub received_errors: u64,
    /// Packets dropped after they were received, unwanted packets included.
    pub received_dropped: u64,
    /// Packets not received because the ring was full (`rx_missed_errors`, `rx_fifo_errors`).
    pub received_missed: u64,
}

/// A queueing discipline of an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Qdisc {
    /// For example `fq_codel` or `tbf`.
    pub kind: String,
    /// Handle as `tc` prints it, for example `8001:`.
    pub handle: String,
    /// `root`, or the class of another discipline.
    pub parent: String,
    /// Counts over the test.
    #[serde(flatten)]
    pub counters: QdiscCounters,
}

/// Counters of a queueing discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct QdiscCounters {
    /// Bytes that left the queueing discipline.
    pub sent_bytes: u64,
    /// Packets that left the queueing discipline.
    pub sent_packets: u64,
    /// Packets dropped by the queueing discipline.
    pub dropped_packets: u64,
    /// Number of times that the configured rate delayed a packet.
    pub overlimits: u64,
    /// Packets that the interface did not accept yet.
    pub requeues: u64,
    /// Bytes in the queue at the end.
    pub backlog_bytes: u64,
    /// Packets in the queue at the end.
    pub backlog_packets: u64,
}

/// A thread that moves the data of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ThreadTime {
    /// Last processor of the thread.
    pub processor: u32,
    /// CPU time in user mode, in seconds.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// CPU time in the kernel, in seconds.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
    /// Time in which the thread was ready to run and other threads ran.
    #[serde(rename = "waited_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub waited: Option<Duration>,
    /// Number of moves to another processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
}

/// A message of one end about its part of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Note {
    pub level: NoteLevel,
    /// Text with the object and the value.
    pub message: String,
}

/// Severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoteLevel {
    Warning,
    Error,
}

impl Note {
    /// Creates a note about an unexpected condition.
    pub fn warning(message: impl Into<String>) -> Self {
        Note { level: NoteLevel::Warning, message: message.into() }
    }

    /// Creates a note about the end of the test.
    pub fn error(message: impl Into<String>) -> Self {
        Note { level: NoteLevel::Error, message: message.into() }
    }
}

impl HostReport {
    /// Returns the number of busy processors, and how many of them processed packets. `None` if the host does not
    /// report it, or if the test is too short for the kernel's ticks. Each share uses the time that the kernel counted
    /// for the processor, because the observation starts before the first byte and ends after the last.
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

    /// Returns the idle time as a number of processors.
    pub fn processors_idle(&self) -> Option<f64> {
        let shares = self.processors.iter().filter(|time| !time.counted().is_zero());
        let shares: Vec<f64> = shares.map(|time| time.idle.as_secs_f64() / time.counted().as_secs_f64()).collect();
        (!shares.is_empty()).then(|| shares.iter().sum())
    }

    /// Returns the growth of a counter of the network stack; `None` if the counters could not be read.
    pub fn counter(&self, name: &str) -> Option<i64> {
        self.counters.as_ref().map(|counters| counters.get(name).copied().unwrap_or(0))
    }
}

impl ProcessorTime {
    /// Returns the activity since `before`.
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

    /// Returns the time that the processor was not idle.
    pub fn busy(&self) -> Duration {
        self.user + self.system + self.softirq
    }

    /// Returns all time that the kernel counted for the processor.
    pub fn counted(&self) -> Duration {
        self.busy() + self.idle + self.stolen
    }
}

/// Returns the activity of each processor since `before`; a new processor is skipped.
pub fn processors_since(now: &[ProcessorTime], before: &[ProcessorTime]) -> Vec<ProcessorTime> {
    let find = |number| before.iter().find(|time| time.processor == number);
    now.iter().filter_map(|time| Some(time.since(find(time.processor)?))).collect()
}

impl InterfaceCounters {
    /// Returns the counts since `before`.
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
    /// Returns the counts since `before`; the backlog is the current one.
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

/// Returns the counts of each discipline since `before`; a new discipline counts from zero.
pub fn qdiscs_since(now: &[Qdisc], before: &[Qdisc]) -> Vec<Qdisc> {
    let same = |a: &Qdisc, b: &Qdisc| (&a.kind, &a.handle, &a.parent) == (&b.kind, &b.handle, &b.parent);
    now.iter()
        .map(|qdisc| {
            let before = before.iter().find(|old| same(qdisc, old)).map(|old| old.counters).unwrap_or_default();
            Qdisc { counters: qdisc.counters.since(&before), ..qdisc.clone() }
        })
        .collect()
}

/// Combines the disciplines of an interface. A classful discipline counts the drops of its children again, so each
/// figure is the maximum.
pub fn combine_qdiscs(qdiscs: &[Qdisc]) -> Option<QdiscCounters> {
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
    /// Returns the activity since `before`.
    pub fn since(&self, before: &ThreadTime) -> ThreadTime {
        ThreadTime {
            processor: self.processor,
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            waited: self.waited.zip(before.waited).map(|(now, then)| now.saturating_sub(then)),
            migrations: self.migrations.zip(before.migrations).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Returns the time that the thread ran.
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
    fn differences_match_qdiscs_by_handle() {
        let before = [qdisc("1:", 10, 500), qdisc("2:", 7, 0)];
        let now = [qdisc("1:", 12, 300), qdisc("3:", 4, 0)];
        let grown = qdiscs_since(&now, &before);
        assert_eq!(
            (grown[0].counters.dropped_packets, grown[0].counters.backlog_bytes),
            (2, 300),
            "the backlog is not a difference"
        );
        assert_eq!(grown[1].counters.dropped_packets, 4, "a new discipline counts from zero");
        assert_eq!(combine_qdiscs(&grown).map(|all| all.dropped_packets), Some(4));
        assert_eq!(combine_qdiscs(&[]), None, "no discipline was read");
    }

    #[test]
    fn decreased_counter_counts_as_zero() {
        let (big, small) = (InterfaceCounters { sent_bytes: 9, ..Default::default() }, InterfaceCounters::default());
        assert_eq!(small.since(&big).sent_bytes, 0);
        let (now, then) = (ProcessorTime { processor: 1, ..Default::default() }, ProcessorTime::default());
        assert_eq!(processors_since(&[now], &[then]), [], "another processor");
    }

    #[test]
    fn busy_processors_never_exceed_their_number() {
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
        assert_eq!((untold.processors_at_work(), untold.processors_idle()), (None, None), "no tick passed");
    }

    #[test]
    fn unread_figures_are_absent() {
        let text = serde_json::to_string(&HostReport::default()).unwrap();
        assert_eq!(text, "{}");
        assert_eq!(HostReport::default().counter("Tcp.RetransSegs"), None);
        let read = HostReport { counters: Some(BTreeMap::new()), ..HostReport::default() };
        assert_eq!(read.counter("Tcp.RetransSegs"), Some(0), "read, and unchanged");
        let (thread, other) =
            (ThreadTime::default(), ThreadTime { waited: Some(Duration::ZERO), ..Default::default() });
        assert_eq!(other.since(&thread).waited, None);
    }
}
