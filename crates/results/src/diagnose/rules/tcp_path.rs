//! Rules of tests of TCP for the path: outages, losses, retransmissions, MTU, start-up and queues. Figures are of the steady
//! part of the test, or of the whole test if it has no steady part.

use lfn_base::units::Bytes;

use super::rule::Bound::{MaxFactor, MaxShare, MinBytes, MinCount, MinFactor, MinRate, MinShare, MinTime};
use super::rule::{ANY, EQUAL, MEASURED, NOT_FULL, Rule, TESTS, TESTS_AND_COPIES, Threshold, of};
use super::tcp_faults::EMULATED;
use crate::diagnose::network::{dips, flat_rtt, loss_kind};
use crate::diagnose::{Cause, black_hole, host, outage, path, shortfall, startup, unexplained};
use crate::evidence::figures::EvidenceKind::*;
use crate::evidence::figures::{FULL_SHARE, outage as silence};

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
    of(
        "or, below the prediction: lost datagrams of trains below the rate that passes",
        MinCount(loss_kind::MIN_LOST_DATAGRAMS),
    ),
    of("with their lost share", MinShare(loss_kind::MIN_QUIET_LOSS)),
];
/// Conditions of a loss of single packets, with those of [`LOSS`].
const SINGLE_LOSS: &[Threshold] = &[
    of("findings by the conditions of loss", MinCount(ANY)),
    of("mean losses of a recovery, or of a burst in the trains", MaxFactor(loss_kind::MAX_SINGLE_RUN)),
];
/// Conditions of losses in runs.
const LOSS_RUNS: &[Threshold] = &[
    of("mean losses of a recovery, or of a burst in the trains", MinFactor(loss_kind::MIN_RUN)),
    of("with findings by the conditions of loss", MinCount(ANY)),
    of("or, without BBR: losses of a recovery", MinFactor(loss_kind::MIN_RUN)),
    of("with goodput / minimum of the expected range", MaxShare(EQUAL)),
    of("with intervals with retransmissions", MinShare(loss_kind::MIN_LOSSY_SHARE)),
    of("with (median RTT minus 1 ms) / base RTT", MaxFactor(flat_rtt::MAX_FLAT_FACTOR)),
];

/// Source of the rules of losses.
const LOSS_SOURCE: &str = "loss formulas and budget: Mathis et al. 1997, RFC 9438, pathdiag; BBR: measured \
                 (doc/explanation/congestion-control.md); the other bounds are chosen to exclude losses of slow start and \
                 of a full queue";

/// Rules of the path after those of `tcp_faults`, in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
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
            of("or times without any answer to datagrams, with a timeout", MinCount(dips::MIN_OUTAGES as u64)),
            of("single losses of trains below the rate that passes", MaxShare(dips::MIN_TIMEOUT_LOSS)),
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
            of("time of the test / base RTT", MinFactor(path::MIN_ROUND_TRIPS as f64)),
            of("the same share with BBR", MinShare(path::BBR_LOSS_LIMIT)),
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
