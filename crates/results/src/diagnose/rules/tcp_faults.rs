//! Rules of tests of TCP for faults of the path and for settings of the hosts. They use the intervals of the test, and
//! trains of datagrams and facts of the hosts where they are known.

use super::rule::Bound::{MaxBytes, MaxCount, MaxFactor, MaxShare, MinCount, MinFactor, MinShare, MinTime};
use super::rule::{ANY, EQUAL, NOT_FULL, Rule, TESTS, TESTS_AND_COPIES, Threshold, of};
use crate::diagnose::network::{bucket, delivery, ecn, flat_rtt, loss_kind, queue, return_path, split};
use crate::diagnose::settings::{congestion_fit, few_streams, growth, link, quota, thresholds};
use crate::diagnose::{Cause, path};
use crate::evidence::figures::EvidenceKind::*;
use crate::evidence::figures::{course, trains};
use lfn_base::units::Bytes;

/// Condition of a goodput below the prediction.
const BELOW: Threshold = of("goodput / minimum of the expected range", MaxShare(EQUAL));
/// Condition of packets that no queue delays.
const FLAT: Threshold = of("median RTT / base RTT, less 1 ms", MaxFactor(flat_rtt::MAX_FLAT_FACTOR));
/// Rules that emulated faults have tried, and their sources.
pub(super) const EMULATED: &str =
    "measured over emulated paths of 10 to 200 Mb/s and 5 to 300 ms with CUBIC, Reno and BBR";

/// Rules of faults, in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        loads: TESTS,
        cause: Cause::Processor,
        find: quota::processor_quota,
        thresholds: &[
            NOT_FULL,
            of("demand of the data threads / processors of the control group", MinShare(quota::MIN_QUOTA_SHARE)),
        ],
        needs: &[],
        needs_one_of: &[SenderThread, ReceiverThread],
        source: "cgroup v2: cpu.max; 80 % is chosen: the kernel stops the group for the rest of each period",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Memory,
        find: quota::memory,
        thresholds: &[NOT_FULL, of("times of memory pressure", MinCount(ANY))],
        needs: &[],
        needs_one_of: &[SenderCounters, ReceiverCounters],
        source: "tcp(7): tcp_mem; TCPMemoryPressures in /proc/net/netstat",
    },
    Rule {
        loads: TESTS,
        cause: Cause::HalfDuplex,
        find: link::half_duplex,
        thresholds: &[of("links of the ends in half duplex", MinCount(ANY))],
        needs: &[],
        needs_one_of: &[],
        source: "ethtool(8); IEEE 802.3",
    },
    Rule {
        loads: TESTS,
        cause: Cause::LinkRate,
        find: link::link_rate,
        thresholds: &[
            of("rate of the link / capacity", MaxShare(EQUAL)),
            of("goodput / rate of the link", MinShare(link::MIN_SHARE_OF_LINK)),
        ],
        needs: &[Capacity],
        needs_one_of: &[SenderCounters, ReceiverCounters, HostFacts],
        source: "ethtool(8); 85 % is chosen: headers take a twentieth, and a test has short pauses",
    },
    Rule {
        loads: TESTS,
        cause: Cause::ReturnPath,
        find: return_path::return_path,
        thresholds: &[
            of("lost acknowledgements", MinCount(return_path::MIN_LOST)),
            of("lost acknowledgements / sent acknowledgements", MinShare(return_path::MIN_LOST_SHARE)),
            of("with this share / retransmitted share of the data", MinFactor(return_path::MIN_LOST_FACTOR)),
            of("and time of the test / base RTT", MinFactor(return_path::MIN_ROUND_TRIPS)),
            of("or wait of the acknowledgements", MinTime(bucket::MIN_DELAY)),
            of("with wait of the acknowledgements / base RTT", MinFactor(bucket::MIN_DELAY_SHARE)),
            of("and wait of the data / wait of the acknowledgements", MaxShare(return_path::MAX_DATA_WAIT)),
            of("and growth of the RTT / wait of the acknowledgements", MinShare(return_path::MIN_RISE)),
            of("and deviation of the RTT / wait of the acknowledgements", MaxShare(return_path::MAX_DEVIATION_SHARE)),
            of("intervals with known waits", MinCount(course::MIN_INTERVALS_WITH_WAITS as u64)),
            BELOW,
        ],
        needs: &[],
        needs_one_of: &[TcpInfo],
        source: EMULATED,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Reordering,
        find: delivery::reordering,
        thresholds: &[
            of("reordered segments", MinCount(delivery::MIN_REORDERED)),
            of("reordered segments / sent segments", MinShare(delivery::MIN_REORDERED_SHARE)),
            of("or reordered datagrams of trains / datagrams", MinShare(delivery::MIN_REORDERED_SHARE)),
        ],
        needs: &[],
        needs_one_of: &[TcpInfo, Trains],
        source: "RFC 4737; RFC 8985; the bounds are those of captures",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Duplicates,
        find: delivery::duplicates,
        thresholds: &[
            of("segments that arrived twice", MinCount(delivery::MIN_REORDERED)),
            of("segments that arrived twice / sent segments", MinShare(delivery::MIN_REORDERED_SHARE)),
            of("reordered segments / sent segments", MaxShare(delivery::MIN_REORDERED_SHARE)),
        ],
        needs: &[TcpInfo],
        needs_one_of: &[],
        source: "RFC 2883; the bounds are those of captures",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Policer,
        find: bucket::policer,
        thresholds: &[
            of("received rate of the trains / payload capacity", MaxShare(bucket::MAX_RATE_SHARE)),
            of("with sent rate / received rate", MinFactor(trains::MIN_OVERLOAD)),
            of("with a difference of the received rates / largest received rate", MaxShare(trains::MAX_PLATEAU_WIDTH)),
            of("with lost share of the excess", MinShare(trains::MIN_DROPPED_EXCESS)),
            of("with delay / delay of a queue for the excess", MaxShare(trains::MAX_POLICED_DELAY)),
            of("or, without trains: goodput / predicted goodput", MaxShare(bucket::MAX_RATE_SHARE)),
            BELOW,
            FLAT,
            of("intervals within 8 % of their median", MinShare(bucket::MIN_POLICED_SHARE)),
            of("retransmitted share", MinShare(bucket::MIN_POLICED_LOSS)),
            of("without BBR: losses of a recovery", MinFactor(bucket::MIN_POLICED_RUN)),
            of("with BBR: busy time limited by the receive window", MaxShare(bucket::MAX_BBR_RWND_SHARE)),
            of("with BBR: goodput / goodput that BBR keeps with this loss", MaxShare(bucket::MAX_BBR_SHARE)),
        ],
        needs: &[],
        needs_one_of: &[Intervals, Trains],
        source: EMULATED,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::Shaper,
        find: bucket::shaper,
        thresholds: &[
            of("received rate of the trains / payload capacity", MaxShare(bucket::MAX_RATE_SHARE)),
            of("with sent rate / received rate", MinFactor(trains::MIN_OVERLOAD)),
            of("with delay / delay of a queue for the excess", MinShare(trains::MIN_QUEUED_DELAY)),
            of("or, without trains: goodput / predicted goodput", MaxShare(bucket::MAX_RATE_SHARE)),
            BELOW,
            of("intervals within 3 % of their median", MinShare(bucket::MIN_CONSTANT_SHARE)),
            of("longest wait of the data", MinTime(bucket::MIN_DELAY)),
            of("longest wait of the data / base RTT", MinFactor(bucket::MIN_DELAY_SHARE)),
        ],
        needs: &[],
        needs_one_of: &[Intervals, Trains],
        source: EMULATED,
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::ShortQueue,
        find: queue::short_queue,
        thresholds: &[
            of("size of the queue, known or from the longest wait / BDP", MaxShare(queue::MAX_SHORT_QUEUE)),
            FLAT,
            of("without BBR: losses of a recovery", MinFactor(loss_kind::MIN_RUN)),
            of("and ends of slow start by HyStart, without a known queue and without trains", MaxCount(0)),
            of("or, with BBR: goodput / payload capacity", MinShare(queue::MIN_BBR_GOODPUT)),
            of("with losses of a recovery", MinFactor(queue::MIN_BBR_RUN)),
            of("with retransmitted share in the second half", MinShare(path::MAX_RETRANSMITTED_SHARE)),
        ],
        needs: &[Capacity, SentBytes],
        needs_one_of: &[],
        source: "RFC 9438 section 4.6: CUBIC needs 0.43 BDP; a quarter is chosen; measured over emulated paths",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::EcnMarks,
        find: delivery::ecn_marks,
        thresholds: &[
            of("marked segments", MinCount(delivery::MIN_MARKED)),
            of("marked segments / delivered segments", MinShare(delivery::MIN_MARKED_SHARE)),
        ],
        needs: &[TcpInfo],
        needs_one_of: &[],
        source: "RFC 3168; tcpi_delivered_ce",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::EcnBleached,
        find: ecn::ecn_bleached,
        thresholds: &[
            of("segments that arrived without an ECN codepoint", MinCount(ecn::MIN_WITHOUT_ECN)),
            of("segments that arrived with an ECN codepoint", MaxCount(0)),
        ],
        needs: &[TcpInfo],
        needs_one_of: &[],
        source: "RFC 3168 section 6.1; TCPI_OPT_ECN and TCPI_OPT_ECN_SEEN of both ends",
    },
    Rule {
        // Many streams fill a queue unevenly, which looks like jitter.
        loads: TESTS,
        cause: Cause::Jitter,
        find: delivery::jitter,
        thresholds: &[
            of("median delay of the slices of trains below the rate that passes", MinTime(delivery::MIN_VARIATION)),
            of("the same variation / base RTT", MinShare(delivery::MIN_DEVIATION_SHARE)),
            of("or, without trains: median deviation of the RTT", MinTime(delivery::MIN_DEVIATION)),
            of("with the deviation / base RTT", MinShare(delivery::MIN_DEVIATION_SHARE)),
            of("with RTT under load / base RTT", MinFactor(delivery::MIN_JITTER_FACTOR)),
            BELOW,
        ],
        needs: &[],
        needs_one_of: &[TcpInfo, Trains],
        source: EMULATED,
    },
    Rule {
        loads: TESTS,
        cause: Cause::SharedPath,
        find: queue::shared_path,
        thresholds: &[
            BELOW,
            of("wait of the data", MinTime(bucket::MIN_DELAY)),
            of("wait of the data / base RTT", MinFactor(bucket::MIN_DELAY_SHARE)),
            of("intervals within 3 % of their median", MaxShare(queue::MAX_CONSTANT_SHARE)),
            of("intervals after start-up", MinCount(queue::MIN_SETTLED as u64)),
        ],
        needs: &[Capacity, TcpInfo],
        needs_one_of: &[],
        source: "a queue that never empties belongs to a full link; the bounds are those of the shaper",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::EarlyExit,
        find: thresholds::early_exit,
        thresholds: &[
            BELOW,
            of("ends of slow start by HyStart", MinCount(ANY)),
            of("slow-start threshold without a loss / BDP", MaxShare(thresholds::MAX_THRESHOLD)),
        ],
        needs: &[Capacity, TcpInfo, SenderCounters],
        needs_one_of: &[],
        source: "RFC 9406; TCPHystartTrainDetect and TCPHystartDelayDetect; 60 % is chosen",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::RouteMetrics,
        find: thresholds::route_metrics,
        thresholds: &[
            BELOW,
            of(
                "threshold, window or cwnd of the route or of earlier connections / BDP",
                MaxShare(thresholds::MAX_THRESHOLD),
            ),
            of("or MTU of the route", MaxBytes(Bytes(thresholds::MIN_ROUTE_MTU))),
            of(
                "or, without HyStart and without a loss: slow-start threshold / BDP",
                MaxShare(thresholds::MAX_THRESHOLD),
            ),
        ],
        needs: &[Capacity],
        needs_one_of: &[HostFacts, TcpInfo],
        source: "ip-route(8): cwnd, ssthresh, window, mtu; ip-tcp_metrics(8); 60 % is chosen",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::StreamCount,
        find: congestion_fit::too_many_streams,
        thresholds: &[
            BELOW,
            of("streams", MinCount(congestion_fit::MIN_STREAMS as u64)),
            of("congestion window of half of the streams, segments", MaxCount(congestion_fit::MAX_WINDOW_SEGMENTS)),
            of("retransmission timeouts", MinCount(ANY)),
        ],
        needs: &[Capacity, TcpInfo],
        needs_one_of: &[],
        source: "RFC 5681 section 3.2: three duplicate acknowledgements need four segments",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::CongestionControl,
        find: congestion_fit::unfit_congestion,
        thresholds: &[
            BELOW,
            of("time of Reno for half of the BDP / time of the test", MinShare(congestion_fit::MIN_REPAIR_SHARE)),
            of("predicted goodput with BBR / goodput", MinFactor(congestion_fit::MIN_BBR_FACTOR)),
            of("retransmitted segments", MinCount(ANY)),
            of("intervals with retransmissions", MaxShare(congestion_fit::MAX_LOSSY_SHARE)),
        ],
        needs: &[Capacity, SenderSocket],
        needs_one_of: &[],
        source: "RFC 5681 section 3.1: one segment for each round trip",
    },
    Rule {
        loads: TESTS_AND_COPIES,
        cause: Cause::CongestionControl,
        find: growth::slow_growth,
        thresholds: &[
            BELOW,
            of("time of CUBIC to refill the path / time of the test", MinShare(congestion_fit::MIN_REPAIR_SHARE)),
            of("congestion window / BDP", MaxShare(growth::MAX_WINDOW_SHARE)),
            of("predicted goodput with BBR / goodput", MinFactor(congestion_fit::MIN_BBR_FACTOR)),
            of("retransmitted segments", MinCount(ANY)),
            of("intervals with retransmissions", MaxShare(congestion_fit::MAX_LOSSY_SHARE)),
        ],
        needs: &[Capacity, SenderSocket],
        needs_one_of: &[],
        source: "RFC 9438 section 4.2: K is the time until the window is as large as before the loss",
    },
    Rule {
        loads: TESTS,
        cause: Cause::StreamCount,
        find: few_streams::too_few_streams,
        thresholds: &[
            of("conditions of a finding of loss, without bursts", MinCount(ANY)),
            of("congestion controls of the sender that tolerate loss (BBR)", MaxCount(0)),
            of("predicted goodput with up to 32 streams / goodput", MinFactor(few_streams::MIN_GAIN_FACTOR)),
        ],
        needs: &[Capacity, SentBytes, SenderSocket, HostFacts],
        needs_one_of: &[],
        source: "Mathis et al. 1997: loss limits each stream, not their sum; 1.5 is chosen",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Proxy,
        find: return_path::proxy,
        thresholds: &[
            of("time of a message and its answer / RTT of the handshake", MinFactor(return_path::MIN_MESSAGE_FACTOR)),
            of("and the difference", MinTime(return_path::MIN_MESSAGE_DIFFERENCE)),
            of("and time of a message / RTT under load", MinFactor(return_path::MIN_LOADED_FACTOR)),
            of("or window scales of the ends that do not match", MinCount(ANY)),
        ],
        needs: &[],
        needs_one_of: &[TcpInfo],
        source: "RFC 3135; RFC 7323 section 2.2",
    },
    Rule {
        loads: TESTS,
        cause: Cause::Proxy,
        find: split::split_connection,
        thresholds: &[
            of(
                "time from an acknowledgement to the arrival of its data, beyond half of the time of a message and its answer",
                MinTime(split::MIN_EARLY),
            ),
            of("or RTT of datagrams / base RTT", MinFactor(return_path::MIN_MESSAGE_FACTOR)),
            of("and the difference", MinTime(return_path::MIN_MESSAGE_DIFFERENCE)),
        ],
        needs: &[],
        needs_one_of: &[TcpInfo],
        source: "RFC 3135 section 2.1: a proxy acknowledges data before the receiver has it",
    },
];
