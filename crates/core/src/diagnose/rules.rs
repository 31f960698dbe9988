//! All rules of the diagnosis with their thresholds, their evidence and their sources.
//!
//! A rule is one function of the [`Figures`]. It belongs to one kind of load. This table is the only list: the diagnosis
//! runs it, and `--list-findings` prints it. The constants of the thresholds are next to the functions that use them.

use std::time::Duration;

use super::{
    Cause, Finding, bottleneck, buffers, copy, datagrams, drops, host, limit, path, processor, random_loss, standstill,
    startup, unexplained, window,
};
use crate::evidence::LoadKind::{self, Copy, Datagrams, Tcp};
use crate::evidence::figures::EvidenceKind::{self, *};
use crate::evidence::figures::Figures;
use crate::units::BitRate;

/// One rule: the cause that it finds, and the conditions.
pub(super) struct Rule {
    pub(super) load: LoadKind,
    pub(super) cause: Cause,
    pub(super) find: fn(&Figures) -> Option<Finding>,
    /// Conditions under which the cause is a finding.
    pub(super) thresholds: &'static [Threshold],
    /// Evidence without which the rule finds nothing.
    pub(super) needs: &'static [EvidenceKind],
    /// Source of the rule or of its thresholds; empty for a direct comparison of two figures.
    pub(super) source: &'static str,
}

/// A condition of a rule: a figure and its bound.
pub(super) struct Threshold {
    pub(super) figure: &'static str,
    pub(super) bound: Bound,
}

/// Bound of a figure with its unit.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    MinShare(f64),
    MaxShare(f64),
    MinFactor(f64),
    MaxFactor(f64),
    MinCount(u64),
    MinTime(Duration),
    MinRate(BitRate),
    MinBytes(u64),
    MaxBytes(u64),
}

use Bound::{MaxBytes, MaxFactor, MaxShare, MinBytes, MinCount, MinFactor, MinRate, MinShare, MinTime};

const fn of(figure: &'static str, bound: Bound) -> Threshold {
    Threshold { figure, bound }
}

const MEASURED: &str = "measured with injected faults (bench/findings)";

/// The rules in the order of their evaluation. If gains are equal, the earlier rule of a load is the cause and the later
/// one is a consequence. `Cause::Unexplained` of TCP is examined last, and only if no other finding is a limit.
pub(super) const RULES: &[Rule] = &[
    Rule {
        load: Tcp,
        cause: Cause::CongestionControl,
        find: path::congestion_control,
        thresholds: &[of("gain of a planned congestion control", MinFactor(1.0 / path::FULL_SHARE))],
        needs: &[SocketOptions],
        source: "ip-route(8): congctl",
    },
    Rule {
        load: Tcp,
        cause: Cause::ServerLimit,
        find: limit::server_limit,
        thresholds: &[of("goodput / rate limit of the server", MinShare(limit::MIN_SHARE_OF_LIMIT))],
        needs: &[Intervals],
        source: "",
    },
    Rule {
        load: Tcp,
        cause: Cause::WindowScaleAbsent,
        find: window::scale_absent,
        thresholds: &[
            of("receive window without a scale", MaxBytes(window::MAX_UNSCALED_WINDOW)),
            of("goodput / (window / base RTT)", MinShare(window::MIN_SHARE_OF_WINDOW_RATE)),
        ],
        needs: &[TcpInfo, SendWindow],
        source: "RFC 7323",
    },
    Rule {
        load: Tcp,
        cause: Cause::Processor,
        find: processor::processor,
        thresholds: &[
            of("time in which a thread runs or waits for a CPU", MinShare(processor::MIN_DEMAND)),
            of("or time in which a thread waits", MinShare(processor::MIN_WAITING)),
            of("the same, if the queue of the path is short", MinShare(processor::MIN_WAITING_SHORT_QUEUE)),
            of("or time of a CPU in soft interrupts", MinShare(processor::MIN_SOFTIRQ_SHARE)),
        ],
        needs: &[TcpInfo, ThreadTime],
        source: MEASURED,
    },
    Rule {
        load: Tcp,
        cause: Cause::LocalDrops,
        find: drops::local_drops,
        thresholds: &[
            of("goodput / result of the loss formula for the dropped share", MaxFactor(path::FORMULA_FACTOR)),
            of("drops, with BBR or an inexact counter", MinCount(drops::MIN_DROPS.0)),
            of("dropped share, with BBR or an inexact counter", MinShare(drops::MIN_DROPS.1)),
        ],
        needs: &[HostCounters],
        source: "NET_XMIT_CN in __tcp_transmit_skb: TCP does not count a drop of its own queue as retransmitted",
    },
    Rule {
        load: Tcp,
        cause: Cause::SlowWriter,
        find: host::slow_writer,
        thresholds: &[
            of("time with data to send", MaxShare(host::MAX_BUSY_SHARE)),
            of("time in which a thread runs or waits", MaxShare(host::MAX_IDLE_THREAD.0)),
            of("time in which a thread waits", MaxShare(host::MAX_IDLE_THREAD.1)),
        ],
        needs: &[TcpInfo, ThreadTime],
        source: MEASURED,
    },
    Rule {
        load: Tcp,
        cause: Cause::SlowReader,
        find: host::slow_reader,
        thresholds: &[
            of("busy time limited by the receive window", MinShare(host::MIN_RWND_LIMITED_SHARE)),
            of("unread data / window", MinShare(host::MIN_UNREAD_SHARE)),
            of("or smallest window / largest window", MaxShare(host::MAX_CLOSED_SHARE)),
        ],
        needs: &[TcpInfo, SendWindow, ThreadTime],
        source: MEASURED,
    },
    Rule {
        load: Tcp,
        cause: Cause::KernelCap,
        find: buffers::kernel_cap_on_request,
        thresholds: &[],
        needs: &[SocketOptions],
        source: "socket(7): rmem_max, wmem_max",
    },
    Rule {
        load: Tcp,
        cause: Cause::ReceiveWindow,
        find: window::receive_window,
        thresholds: &[
            of("goodput / (window / base RTT)", MinShare(window::MIN_SHARE_OF_WINDOW_RATE)),
            of("change of the window", MaxShare(window::MAX_WINDOW_CHANGE)),
            of("RTT under load / base RTT", MaxFactor(window::MAX_RTT_FACTOR)),
            of("congestion window / receive window", MinFactor(1.0)),
        ],
        needs: &[TcpInfo, SendWindow],
        source: "RFC 6349 section 3.3.1; measured at 539 ms on Linux 6.18, where tcpi_rwnd_limited shows 27 %",
    },
    Rule {
        load: Tcp,
        cause: Cause::SendBuffer,
        find: buffers::send_buffer,
        thresholds: &[
            of("busy time limited by the send buffer", MinShare(buffers::MIN_SNDBUF_LIMITED_SHARE)),
            of("or bytes in flight / granted buffer", MinFactor(buffers::MIN_IN_FLIGHT_PER_BUFFER)),
            of("with allowed bytes / bytes in flight", MinFactor(buffers::MIN_ALLOWED_PER_IN_FLIGHT)),
            of("base RTT", MinTime(buffers::MIN_RTT)),
        ],
        needs: &[TcpInfo, SocketOptions],
        source: MEASURED,
    },
    Rule {
        load: Tcp,
        cause: Cause::KernelCap,
        find: buffers::kernel_cap_on_autotuning,
        thresholds: &[of("window / half of the maximum of tcp_rmem", MinShare(buffers::AUTOTUNING_LIMIT_SHARE))],
        needs: &[TcpInfo, KernelLimits],
        source: "tcp(7): tcp_rmem, tcp_wmem",
    },
    Rule {
        load: Tcp,
        cause: Cause::Standstill,
        find: standstill::standstill,
        thresholds: &[
            of("time without arrivals, with data in flight", MinTime(standstill::MIN_TIME)),
            of("the same time / base RTT", MinFactor(standstill::MIN_ROUND_TRIPS as f64)),
            of("other intervals with retransmissions", MaxShare(standstill::MAX_LOSSY_SHARE)),
        ],
        needs: &[TcpInfo, Intervals],
        source: "RFC 6298 section 2.4: the minimum of the retransmission timeout is one second",
    },
    Rule {
        load: Tcp,
        cause: Cause::Loss,
        find: path::loss,
        thresholds: &[
            of("lost segments", MinCount(path::MIN_LOST_SEGMENTS)),
            of("goodput / goodput without loss", MaxShare(path::FULL_SHARE)),
            of("goodput / result of the loss formula", MaxFactor(path::BURST_LOSS_FACTOR)),
            of("RTT under load / base RTT", MaxFactor(path::QUEUE_RTT_FACTOR)),
            of("with BBR: lost share", MinShare(path::BBR_LOSS_LIMIT)),
            of("with BBR: or lost share", MinShare(path::BBR_SLOWED_BY_LOSS.0)),
            of("with BBR: and goodput / capacity", MaxShare(path::BBR_SLOWED_BY_LOSS.1)),
        ],
        needs: &[TcpInfo, SentBytes],
        source: "Mathis et al. 1997; RFC 9438; pathdiag; BBR measured (doc/explanation/congestion-control.md)",
    },
    Rule {
        load: Tcp,
        cause: Cause::Retransmissions,
        find: path::retransmissions,
        thresholds: &[
            of("retransmitted share in the second half", MinShare(path::MAX_RETRANSMITTED_SHARE)),
            of("retransmitted segments in the second half", MinCount(path::MIN_RETRANSMITTED_SEGMENTS)),
        ],
        needs: &[TcpInfo, SentBytes],
        source: "RFC 6349 section 4.2: TCP efficiency",
    },
    Rule {
        load: Tcp,
        cause: Cause::Competing,
        find: host::competing_traffic,
        thresholds: &[
            of("other traffic / all traffic of the interface", MinShare(host::MIN_OTHER_TRAFFIC.0)),
            of("other traffic", MinRate(host::MIN_OTHER_TRAFFIC.1)),
        ],
        needs: &[TcpInfo, HostCounters],
        source: MEASURED,
    },
    Rule {
        load: Tcp,
        cause: Cause::SmallMtu,
        find: path::small_mtu,
        thresholds: &[of("interface MTU minus path MTU", MinBytes(path::MIN_MTU_DIFFERENCE as u64))],
        needs: &[TcpInfo, HostCounters],
        source: "RFC 1191; RFC 8899",
    },
    Rule {
        load: Tcp,
        cause: Cause::StartUp,
        find: startup::start_up,
        thresholds: &[
            of("start-up / time of the test", MinShare(startup::MIN_START_UP_SHARE)),
            of("steady goodput / goodput of the whole test", MinFactor(startup::MIN_GAIN_FACTOR)),
        ],
        needs: &[Intervals],
        source: "RFC 5681 section 3.1; measured on healthy paths (bench/healthy)",
    },
    Rule {
        load: Tcp,
        cause: Cause::Queueing,
        find: path::queueing,
        thresholds: &[
            of("RTT under load / base RTT", MinFactor(path::STANDING_QUEUE_RTT_FACTOR)),
            of("RTT under load minus base RTT", MinTime(path::MIN_QUEUEING_DELAY)),
        ],
        needs: &[TcpInfo],
        source: "half of the interval of CoDel, RFC 8289 section 4.2",
    },
    Rule {
        load: Tcp,
        cause: Cause::Unexplained,
        find: unexplained::unexplained,
        thresholds: &[of("goodput / minimum of the expected range", MaxShare(1.0))],
        needs: &[Capacity],
        source: "doc/explanation/prediction.md",
    },
    Rule {
        load: Datagrams,
        cause: Cause::ServerLimit,
        find: datagrams::server_limit,
        thresholds: &[of("for a ramp: highest rate that passed / limit", MinShare(datagrams::MIN_SHARE_OF_LIMIT))],
        needs: &[DatagramCounts],
        source: "",
    },
    Rule {
        load: Datagrams,
        cause: Cause::SlowSender,
        find: datagrams::slow_sender,
        thresholds: &[
            of("sent rate / requested rate", MaxShare(datagrams::MIN_RATE_SHARE)),
            of("for a ramp: time behind the schedule", MinShare(datagrams::MIN_LATE_SHARE)),
        ],
        needs: &[DatagramCounts],
        source: "",
    },
    Rule {
        load: Datagrams,
        cause: Cause::ReceiverOverflow,
        find: datagrams::overflow,
        thresholds: &[of("datagrams that the full receive buffer dropped", MinCount(1))],
        needs: &[DatagramCounts, SocketOptions],
        source: "SO_MEMINFO: sk_drops in udp_queue_rcv_one_skb",
    },
    Rule {
        load: Datagrams,
        cause: Cause::LocalDrops,
        find: datagrams::local_drops,
        thresholds: &[
            of("lost datagrams", MinCount(datagrams::MIN_LOSS.0)),
            of("dropped packets of one host / lost datagrams", MinShare(0.5)),
        ],
        needs: &[DatagramCounts, HostCounters],
        source: "",
    },
    Rule {
        load: Datagrams,
        cause: Cause::Loss,
        find: datagrams::loss,
        thresholds: &[
            of("lost datagrams", MinCount(datagrams::MIN_LOSS.0)),
            of("lost share", MinShare(datagrams::MIN_LOSS.1)),
        ],
        needs: &[DatagramCounts],
        source: "RFC 7680; RFC 3357",
    },
    Rule {
        load: Copy,
        cause: Cause::Outage,
        find: |figures| copy::shortfall(figures, Cause::Outage),
        thresholds: &[BELOW_PREDICTION, of("outage / missing time", MinShare(copy::MIN_OUTAGE_SHARE))],
        needs: &[Capacity],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::Standstill,
        find: |figures| copy::shortfall(figures, Cause::Standstill),
        thresholds: &[BELOW_PREDICTION, of("standstill / time of the copy", MinShare(copy::MIN_STANDSTILL_SHARE))],
        needs: &[Capacity],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::ServerLimit,
        find: |figures| copy::shortfall(figures, Cause::ServerLimit),
        thresholds: &[
            BELOW_PREDICTION,
            of("time of the streams in the rate limiter", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::DestinationDisk,
        find: |figures| copy::shortfall(figures, Cause::DestinationDisk),
        thresholds: &[
            BELOW_PREDICTION,
            of("time of the receiving threads in writes", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::SourceDisk,
        find: |figures| copy::shortfall(figures, Cause::SourceDisk),
        thresholds: &[
            BELOW_PREDICTION,
            of("time of the sending threads in reads", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::Processor,
        find: |figures| copy::shortfall(figures, Cause::Processor),
        thresholds: &[
            BELOW_PREDICTION,
            of("time of the threads in hashing, with an idle network", MinShare(bottleneck::MIN_HASH_SHARE)),
        ],
        needs: &[Capacity, CopySockets],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::ReceiveWindow,
        find: |figures| copy::shortfall(figures, Cause::ReceiveWindow),
        thresholds: &[
            BELOW_PREDICTION,
            of("goodput / (window / base RTT)", MinShare(bottleneck::MIN_SHARE_OF_WINDOW_RATE)),
            of("or time limited by the receive window", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity, CopySockets],
        source: "measured at 539 ms on Linux 6.18",
    },
    Rule {
        load: Copy,
        cause: Cause::SendBuffer,
        find: |figures| copy::shortfall(figures, Cause::SendBuffer),
        thresholds: &[BELOW_PREDICTION, of("time limited by the send buffer", MinShare(bottleneck::MIN_MAIN_SHARE))],
        needs: &[Capacity, CopySockets],
        source: "",
    },
    Rule {
        load: Copy,
        cause: Cause::StartUp,
        find: |figures| copy::shortfall(figures, Cause::StartUp),
        thresholds: &[BELOW_PREDICTION, of("streams in slow start at the end", MinCount(1))],
        needs: &[Capacity, CopySockets],
        source: "RFC 5681 section 3.1",
    },
    Rule {
        load: Copy,
        cause: Cause::Loss,
        find: |figures| copy::shortfall(figures, Cause::Loss),
        thresholds: &[
            BELOW_PREDICTION,
            of("congestion window / BDP", MinFactor(1.0)),
            of("retransmitted segments", MinCount(1)),
            of("for a change to BBR during the copy: retransmitted share", MinShare(random_loss::MIN_LOSSES.0)),
            of("and retransmitted segments", MinCount(random_loss::MIN_LOSSES.1)),
            of("and RTT / minimum RTT", MaxFactor(random_loss::MAX_UNQUEUED_RTT.0)),
            of("and successive intervals", MinCount(random_loss::REQUIRED_INTERVALS as u64)),
        ],
        needs: &[Capacity, CopySockets],
        source: "change to BBR: Mathis et al. 1997",
    },
    Rule {
        load: Copy,
        cause: Cause::CongestionWindow,
        find: |figures| copy::shortfall(figures, Cause::CongestionWindow),
        thresholds: &[BELOW_PREDICTION, of("congestion window / BDP", MaxFactor(1.0))],
        needs: &[Capacity, CopySockets],
        source: "RFC 5681",
    },
    Rule {
        load: Copy,
        cause: Cause::Unexplained,
        find: |figures| copy::shortfall(figures, Cause::Unexplained),
        thresholds: &[BELOW_PREDICTION],
        needs: &[Capacity],
        source: "doc/explanation/prediction.md",
    },
];

/// Condition of each rule of a copy.
const BELOW_PREDICTION: Threshold = of("goodput / predicted goodput", MaxShare(copy::NEAR_PREDICTED));
