//! Rules of tests of TCP for the hosts and their sockets. Figures are of the steady part of the test, or of the whole test if it has no steady part.

use lfn_base::units::Bytes;

use super::rule::Bound::{MaxFactor, MaxShare, MinBytes, MinCount, MinFactor, MinShare, MinTime};
use super::rule::{ANY, EQUAL, MEASURED, NOT_FULL, Rule, TESTS, TESTS_AND_COPIES, Threshold, of};
use crate::diagnose::{Cause, buffers, drops, host, limit, lockstep, path, processor, window};
use crate::evidence::figures::EvidenceKind::*;
use crate::evidence::figures::FULL_SHARE;

/// Conditions of a stream that its receive window limits.
const WINDOW_RATE: Threshold = of("goodput / (window / RTT under load)", MinShare(window::MIN_SHARE_OF_WINDOW_RATE));
const WINDOW_CHANGE: Threshold = of("change of the window / its median", MaxShare(window::MAX_WINDOW_CHANGE));
const WINDOW_QUEUE: Threshold = of("without jitter: RTT under load / base RTT", MaxFactor(window::MAX_RTT_FACTOR));
const WINDOW_CWND: Threshold = of("congestion window / receive window", MinFactor(EQUAL));
const WINDOW_STREAMS: Threshold =
    of("goodput of the streams with these conditions / all goodput", MinShare(window::MIN_GOODPUT_SHARE));

/// Rules of the hosts, in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
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
        thresholds: &[
            of("goodput / rate limit of the server", MinShare(limit::MIN_SHARE_OF_LIMIT)),
            of("or, for a limit that another cause hides: limit / capacity", MaxShare(limit::MAX_SHARE_OF_CAPACITY)),
            of("and goodput / limit", MaxShare(limit::MAX_SHARE_OF_HIDDEN_LIMIT)),
        ],
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
                "or, with a short queue and a goodput below the prediction: time in which a thread waits for a CPU",
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
