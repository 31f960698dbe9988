//! Rules of tests of TCP. Figures are of the steady part of the test, or of the whole test if it has no steady part.

use lfn_base::units::Bytes;

use super::rule::Bound::{MaxFactor, MaxShare, MinBytes, MinCount, MinFactor, MinRate, MinShare, MinTime};
use super::rule::{ANY, EQUAL, MEASURED, NOT_FULL, Rule, TESTS, TESTS_AND_COPIES, Threshold, of};
use super::tcp_faults::EMULATED;
use crate::diagnose::network::{dips, flat_rtt, loss_kind};
use crate::diagnose::{
    Cause, black_hole, buffers, drops, host, limit, lockstep, outage, path, processor, shortfall, startup, unexplained,
    window,
};
use crate::evidence::figures::EvidenceKind::*;
use crate::evidence::figures::{FULL_SHARE, outage as silence};

/// Conditions of a stream that its receive window limits.
const WINDOW_RATE: Threshold = of("goodput / (window / base RTT)", MinShare(window::MIN_SHARE_OF_WINDOW_RATE));
const WINDOW_CHANGE: Threshold = of("change of the window / its median", MaxShare(window::MAX_WINDOW_CHANGE));
const WINDOW_QUEUE: Threshold = of("RTT under load / base RTT", MaxFactor(window::MAX_RTT_FACTOR));
const WINDOW_CWND: Threshold = of("congestion window / receive window", MinFactor(EQUAL));
const WINDOW_STREAMS: Threshold =
    of("goodput of the streams with these conditions / all goodput", MinShare(window::MIN_GOODPUT_SHARE));

/// Rules of the hosts, in the order of their evaluation.
pub(super) const HOST_RULES: &[Rule] = &[
    Rule {
        loads: TESTS,
        cause: Cause::CongestionControl,
        find: path::congestion_control,
        thresholds: &[
            of("streams with another congestion control than requested or planned", MinCount(ANY)),
            of("if the plan chose it: predicted goodput with it / goodput", MinFactor(1.0 / FULL_SHARE)),
        ],
        needs: &[SenderSocket],
        needs_one_of: &[],
        source: "ip-route(8): congctl; comparison of the requested and the used congestion control",
    },
    Rule {
        loads: TESTS,
        cause: Cause::ServerLimit,
        find: limit::server_limit,
        thresholds: &[of("goodput / rate limit of the server", MinShare(limit::MIN_SHARE_OF_LIMIT))],
        needs: &[],
        needs_one_of: &[],
        source: "comparison of two figures; 95 % is chosen: retransmissions and the ends of a test take the rest",
    },
    Rule {
        loads: TESTS,
        cause: Cause::LockStep,
        find: lockstep::lockstep,
        thresholds: &[
            of("requests for lock-step (--lockstep)", MinCount(ANY)),
            NOT_FULL,
            of("base RTT / time of a block and its answer", MinShare(lockstep::MIN_WAIT_SHARE)),
        ],
        needs: &[],
        needs_one_of: &[],
        source: "the request of the test; SC2000 report of the DisCom2 project, figure 4",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::WindowScaleAbsent,
        find: window::scale_absent,
        thresholds: &[
            NOT_FULL,
            of("streams without window scaling", MinCount(ANY)),
            WINDOW_RATE,
            WINDOW_CHANGE,
            WINDOW_QUEUE,
            WINDOW_CWND,
            WINDOW_STREAMS,
        ],
        needs: &[SendWindow],
        needs_one_of: &[],
        source: "RFC 7323; measured with injected faults (bench/findings)",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Processor,
        find: processor::processor,
        thresholds: &[
            NOT_FULL,
            of("time in which a thread runs or waits for a CPU", MinShare(processor::MIN_DEMAND)),
            of("or time in which a thread waits for a CPU", MinShare(processor::MIN_WAITING)),
            of(
                "or the same time, if the queue of the path is shorter than pauses of a host and the goodput is below the \
                 prediction",
                MinShare(processor::MIN_WAITING_SHORT_QUEUE),
            ),
            of("or time of a CPU in soft interrupts", MinShare(processor::MIN_SOFTIRQ_SHARE)),
        ],
        needs: &[BusyTime],
        needs_one_of: &[SenderThread, ReceiverThread, SenderCounters, ReceiverCounters],
        source: "measured with injected faults (bench/findings); short queue: measured on healthy paths (bench/healthy)",
    },
    Rule {
        loads: TESTS,
        cause: Cause::LocalDrops,
        find: drops::local_drops,
        thresholds: &[
            NOT_FULL,
            of("drops of a counter that counts only drops", MinCount(drops::MIN_EXACT_DROPS)),
            of("with BBR or another counter: drops", MinCount(drops::MIN_DROPS)),
            of("with BBR or another counter: dropped share", MinShare(drops::MIN_DROPPED_SHARE)),
            of(
                "without BBR: goodput / result of the loss formula for the dropped share",
                MaxFactor(path::FORMULA_FACTOR),
            ),
        ],
        needs: &[],
        needs_one_of: &[SenderCounters, ReceiverCounters],
        source: "NET_XMIT_CN in __tcp_transmit_skb: TCP does not count a drop of its own queue as retransmitted; measured \
                 with injected faults (bench/findings)",
    },
    Rule {
        loads: TESTS,
        cause: Cause::SlowWriter,
        find: host::slow_writer,
        thresholds: &[
            NOT_FULL,
            of("time with data to send", MaxShare(host::MAX_BUSY_SHARE)),
            of("time in which a thread of the sender runs or waits for a CPU", MaxShare(host::MAX_IDLE_DEMAND)),
            of("time in which a thread of the sender waits for a CPU", MaxShare(host::MAX_IDLE_WAITING)),
        ],
        needs: &[BusyTime, SenderThread],
        needs_one_of: &[],
        source: MEASURED,
    },
    Rule {
        loads: TESTS,
        cause: Cause::SlowReader,
        find: host::slow_reader,
        thresholds: &[
            NOT_FULL,
            of("time in which a thread of the receiver runs or waits for a CPU", MaxShare(host::MAX_IDLE_DEMAND)),
            of("time in which a thread of the receiver waits for a CPU", MaxShare(host::MAX_IDLE_WAITING)),
            of("busy time limited by the receive window, each stream", MinShare(host::MIN_RWND_LIMITED_SHARE)),
            of("unread data / (window and unread data), each stream", MinShare(host::MIN_UNREAD_SHARE)),
            of("or smallest window / largest window, each stream", MaxShare(host::MAX_CLOSED_SHARE)),
        ],
        needs: &[BusyTime, SendWindow, ReceiverThread],
        needs_one_of: &[],
        source: MEASURED,
    },
    Rule {
        loads: TESTS,
        cause: Cause::KernelCap,
        find: buffers::kernel_cap_on_request,
        thresholds: &[of("requested buffer minus granted buffer", MinBytes(Bytes(buffers::MIN_CUT)))],
        needs: &[],
        needs_one_of: &[SenderSocket, ReceiverSocket],
        source: "socket(7): rmem_max, wmem_max; measured with injected faults (bench/findings)",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::ReceiveWindow,
        find: window::receive_window,
        thresholds: &[
            NOT_FULL,
            WINDOW_RATE,
            WINDOW_CHANGE,
            WINDOW_QUEUE,
            WINDOW_CWND,
            WINDOW_STREAMS,
            of("without window scaling: window", MinBytes(Bytes(window::MAX_UNSCALED_WINDOW + 1))),
        ],
        needs: &[SendWindow],
        needs_one_of: &[],
        source: "RFC 6349 section 3.3.1; measured at 539 ms on Linux 6.18, where tcpi_rwnd_limited shows 27 %",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::SendBuffer,
        find: buffers::send_buffer,
        thresholds: &[
            NOT_FULL,
            of("base RTT", MinTime(buffers::MIN_RTT)),
            BUFFER_COUNTED,
            BUFFER_IN_FLIGHT,
            BUFFER_ALLOWED,
        ],
        needs: &[],
        needs_one_of: &[BusyTime, SendWindow],
        source: MEASURED,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::KernelCap,
        find: buffers::kernel_cap_on_autotuning,
        thresholds: &[
            NOT_FULL,
            of(
                "without a requested receive buffer: window / half of the maximum of tcp_rmem",
                MinShare(buffers::AUTOTUNING_LIMIT_SHARE),
            ),
            WINDOW_RATE,
            WINDOW_CHANGE,
            WINDOW_QUEUE,
            WINDOW_CWND,
            WINDOW_STREAMS,
            of("or, without a requested send buffer (tcp_wmem): base RTT", MinTime(buffers::MIN_RTT)),
            of("with busy time limited by the send buffer", MinShare(buffers::MIN_SNDBUF_LIMITED_SHARE)),
            BUFFER_IN_FLIGHT,
            BUFFER_ALLOWED,
        ],
        needs: &[KernelLimits],
        needs_one_of: &[BusyTime, SendWindow],
        source: "tcp(7): tcp_rmem, tcp_wmem; 70 % is chosen: the kernel's bookkeeping takes a part of the buffer",
    },
];

/// Conditions of a loss that limits a test.
const LOSS: &[Threshold] = &[
    of("lost segments", MinCount(path::MIN_LOST_SEGMENTS)),
    of("RTT under load / base RTT", MaxFactor(path::QUEUE_RTT_FACTOR)),
    of("with a known capacity: goodput / maximum goodput without loss", MaxShare(FULL_SHARE)),
    of("with a known capacity, without BBR: goodput / result of the loss formula", MaxFactor(path::BURST_LOSS_FACTOR)),
    of("on a nearly full path, which has goodput / maximum goodput", MinShare(path::NEARLY_FULL_SHARE)),
    of("instead: RTT under load / base RTT", MaxFactor(path::NEARLY_FULL_RTT_FACTOR)),
    of("and without BBR: goodput / result of the loss formula", MaxFactor(path::FORMULA_FACTOR)),
    of("without a capacity: goodput / result of the loss formula", MinFactor(1.0 / path::FORMULA_FACTOR)),
    of("and the same quotient", MaxFactor(path::FORMULA_FACTOR)),
    of("and busy time limited by the receive window", MaxShare(path::MAX_RWND_LIMITED_SHARE)),
    of("without BBR: lost share / loss budget of the congestion control", MinFactor(EQUAL)),
    of("with BBR: lost share", MinShare(path::BBR_LOSS_LIMIT)),
    of("or, with BBR: lost share", MinShare(path::MIN_BBR_LOSS)),
    of("with goodput / capacity", MaxShare(path::MAX_BBR_GOODPUT_SHARE)),
    of("and time with data to send", MinShare(path::MIN_BUSY_SHARE)),
];
/// Conditions of a loss of single packets, with those of [`LOSS`].
const SINGLE_LOSS: &[Threshold] = &[
    of("conditions of the finding loss", MinCount(EACH)),
    of("losses of a recovery, or lost datagrams of trains in a run", MaxFactor(loss_kind::MAX_SINGLE_RUN)),
];
/// Conditions of losses in runs.
const LOSS_RUNS: &[Threshold] = &[
    of("losses of a recovery, or lost datagrams of trains in a run", MinFactor(loss_kind::MIN_RUN)),
    of("with conditions of the finding loss", MinCount(EACH)),
    of("or, without BBR: losses of a recovery", MinFactor(loss_kind::MIN_RUN)),
    of("with goodput / minimum of the expected range", MaxShare(EQUAL)),
    of("with intervals with retransmissions", MinShare(loss_kind::MIN_LOSSY_SHARE)),
    of("with median RTT / base RTT, less 1 ms", MaxFactor(flat_rtt::MAX_FLAT_FACTOR)),
];
/// Number of conditions that hold together.
const EACH: u64 = 1;
/// Source of the rules of losses.
const LOSS_SOURCE: &str = "loss formulas and budget: Mathis et al. 1997, RFC 9438, pathdiag; BBR: measured \
                 (doc/explanation/congestion-control.md); the other bounds are chosen to exclude losses of slow start and \
                 of a full queue";

/// Rules of the path after those of `tcp_faults`, in the order of their evaluation.
pub(super) const PATH_RULES: &[Rule] = &[
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Outage,
        find: outage::outage,
        thresholds: &[
            of("time without arrivals", MinTime(outage::MIN_TIME)),
            of("the same time / base RTT", MinFactor(outage::MIN_ROUND_TRIPS as f64)),
            of("part of this time with data in flight", MinShare(silence::MIN_BUSY_SHARE)),
            of("part of this time limited by the receive window", MaxShare(silence::MAX_RWND_SHARE)),
            of("other intervals with retransmissions", MaxShare(outage::MAX_LOSSY_SHARE)),
        ],
        needs: &[Intervals, BusyTime],
        needs_one_of: &[],
        source: "RFC 6298 section 2.4: the minimum of the retransmission timeout is one second; the shares are chosen: \
                 random loss has retransmissions in almost every interval",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Outage,
        find: dips::outages,
        thresholds: &[
            of("intervals with a timeout and a low goodput, in groups", MinCount(dips::MIN_OUTAGES as u64)),
            of("goodput of these intervals / goodput of a clean interval", MaxShare(dips::MAX_GOODPUT_SHARE)),
            of("other intervals with retransmissions", MaxShare(dips::MAX_LOSSY_SHARE)),
            of("other intervals", MinCount(dips::MIN_OTHER_INTERVALS as u64)),
        ],
        needs: &[Intervals, TcpInfo],
        needs_one_of: &[],
        source: EMULATED,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Loss,
        find: loss_kind::loss,
        thresholds: LOSS,
        needs: &[SentBytes],
        needs_one_of: &[],
        source: LOSS_SOURCE,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::RandomLoss,
        find: loss_kind::random_loss,
        thresholds: SINGLE_LOSS,
        needs: &[SentBytes],
        needs_one_of: &[],
        source: LOSS_SOURCE,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::LossBursts,
        find: loss_kind::loss_bursts,
        thresholds: LOSS_RUNS,
        needs: &[SentBytes],
        needs_one_of: &[],
        source: LOSS_SOURCE,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Retransmissions,
        find: path::retransmissions,
        thresholds: &[
            of("retransmitted share of the sent data in the second half", MinShare(path::MAX_RETRANSMITTED_SHARE)),
            of("retransmitted segments in the second half", MinCount(path::MIN_RETRANSMITTED_SEGMENTS)),
        ],
        needs: &[SentBytes],
        needs_one_of: &[],
        source: "RFC 6349 section 4.2: TCP efficiency; the bounds are chosen: less costs no capacity worth a change",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Competing,
        find: host::competing_traffic,
        thresholds: &[
            NOT_FULL,
            of("without --bidir: other traffic / all traffic of the interface", MinShare(host::MIN_OTHER_SHARE)),
            of("other traffic", MinRate(host::MIN_OTHER_RATE)),
        ],
        needs: &[],
        needs_one_of: &[SenderCounters, ReceiverCounters],
        source: MEASURED,
    },
    Rule {
        loads: TESTS,
        cause: Cause::BlackHole,
        find: black_hole::black_hole,
        thresholds: &[
            of("probes of a larger size that got lost without an ICMP message", MinCount(ANY)),
            of("path MTU of TCP / largest packet that passed", MinFactor(EQUAL)),
        ],
        needs: &[],
        needs_one_of: &[TcpInfo, PathProbes],
        source: "RFC 2923 section 2.1; RFC 8899",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::SmallMtu,
        find: path::small_mtu,
        thresholds: &[of("smaller interface MTU minus path MTU", MinBytes(Bytes(path::MIN_MTU_DIFFERENCE as u64)))],
        needs: &[SenderCounters, ReceiverCounters],
        needs_one_of: &[TcpInfo, PathProbes],
        source: "RFC 1191; RFC 8899; 20 B is chosen: the MTU of loopback is one byte short",
    },
    Rule {
        loads: TESTS,
        cause: Cause::StartUp,
        find: startup::start_up,
        thresholds: &[
            of("without --omit: start-up / time of the test", MinShare(startup::MIN_START_UP_SHARE)),
            of("with steady goodput / goodput of the whole test", MinFactor(startup::MIN_GAIN_FACTOR)),
            of("and start-up without its last interval / base RTT", MaxFactor(startup::MAX_GROWTH_ROUND_TRIPS as f64)),
            of(
                "or, without a steady part: time of the test / base RTT",
                MaxFactor(startup::MAX_TEST_ROUND_TRIPS as f64),
            ),
            of("with intervals", MinCount(startup::MIN_INTERVALS as u64)),
            of("or goodput / minimum of the expected range", MaxShare(EQUAL)),
        ],
        needs: &[],
        needs_one_of: &[Intervals, Capacity],
        source: "RFC 5681 section 3.1; measured on healthy paths (bench/healthy); 100 round trips are chosen: growth to \
                 the largest window takes 20",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Queueing,
        find: path::queueing,
        thresholds: &[
            of("RTT under load / base RTT", MinFactor(path::STANDING_QUEUE_RTT_FACTOR)),
            of("RTT under load minus base RTT", MinTime(path::MIN_QUEUEING_DELAY)),
        ],
        needs: &[TcpInfo],
        needs_one_of: &[],
        source: "half of the interval of CoDel, RFC 8289 section 4.2; measured with injected faults (bench/findings)",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Unexplained,
        find: unexplained::unexplained,
        thresholds: &[
            of("goodput / minimum of the expected range", MaxShare(EQUAL)),
            of("shortfall that the other findings explain", MaxShare(shortfall::MIN_EXPLAINED_SHARE)),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: "doc/explanation/prediction.md",
    },
];

/// Conditions of a sender that its buffer limits.
const BUFFER_COUNTED: Threshold =
    of("busy time limited by the send buffer", MinShare(buffers::MIN_SNDBUF_LIMITED_SHARE));
const BUFFER_IN_FLIGHT: Threshold = of(
    "or, without BBR: bytes in flight / granted send buffer, each stream",
    MinFactor(buffers::MIN_IN_FLIGHT_PER_BUFFER),
);
const BUFFER_ALLOWED: Threshold = of(
    "with bytes that both windows allow / bytes in flight, each stream",
    MinFactor(buffers::MIN_ALLOWED_PER_IN_FLIGHT),
);
