//! Rules of tests of datagrams. Figures are of the whole test.

use super::rule::Bound::{MaxCount, MaxFactor, MaxShare, MinCount, MinShare};
use super::rule::{ANY, DATAGRAM_TESTS, EQUAL, Rule, Threshold, of};
use crate::diagnose::{Cause, datagrams};
use crate::evidence::figures::EvidenceKind::*;

/// A ramp searches for loss, so that its loss is no finding.
const LOST: Threshold =
    of("not for a ramp: lost datagrams that the receive buffer did not drop", MinCount(datagrams::MIN_LOST));

/// Rules of datagrams in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        loads: DATAGRAM_TESTS,
        cause: Cause::ServerLimit,
        find: datagrams::server_limit,
        thresholds: &[
            of("limit of the server / requested rate", MaxFactor(EQUAL)),
            of("for a ramp: highest rate that passed / limit", MinShare(datagrams::MIN_SHARE_OF_LIMIT)),
            of("for a ramp: failed steps", MaxCount(0)),
        ],
        needs: &[DatagramCounts],
        needs_one_of: &[],
        source: "comparison of two rates; 95 % is chosen: a ramp ends within 2 % of its result",
    },
    Rule {
        loads: DATAGRAM_TESTS,
        cause: Cause::SlowSender,
        find: datagrams::slow_sender,
        thresholds: &[
            of("not for a ramp: sent rate / requested or granted rate", MaxShare(datagrams::MIN_RATE_SHARE)),
            of("or, for a ramp: time behind the schedule", MinShare(datagrams::MIN_LATE_SHARE)),
            of("with failed steps", MinCount(ANY)),
        ],
        needs: &[DatagramCounts],
        needs_one_of: &[],
        source: "comparison of two rates; 98 % and 5 % are chosen: clocks and the end of a test take the rest, and late \
                 datagrams leave in bursts",
    },
    Rule {
        loads: DATAGRAM_TESTS,
        cause: Cause::ReceiverOverflow,
        find: datagrams::overflow,
        thresholds: &[of(
            "not for a ramp: datagrams that the full receive buffer dropped",
            MinCount(datagrams::MIN_OVERFLOWS),
        )],
        needs: &[DatagramCounts, ReceiverSocket],
        needs_one_of: &[],
        source: "SO_MEMINFO: sk_drops in udp_queue_rcv_one_skb",
    },
    Rule {
        loads: DATAGRAM_TESTS,
        cause: Cause::LocalDrops,
        find: datagrams::local_drops,
        thresholds: &[
            LOST,
            of("dropped packets of one host / lost datagrams", MinShare(datagrams::MIN_EXPLAINED_SHARE)),
        ],
        needs: &[DatagramCounts],
        needs_one_of: &[SenderCounters, ReceiverCounters],
        source: "comparison of two counters; 50 % is chosen: fewer drops explain less than the path, and drops of other \
                 traffic count too",
    },
    Rule {
        loads: DATAGRAM_TESTS,
        cause: Cause::Loss,
        find: datagrams::loss,
        thresholds: &[
            LOST,
            of("the same datagrams / sent datagrams", MinShare(datagrams::MIN_LOST_SHARE)),
            of("drops of a host that explain the loss", MaxCount(0)),
        ],
        needs: &[DatagramCounts],
        needs_one_of: &[],
        source: "RFC 7680; RFC 3357; the bounds are chosen: fewer losses are chance",
    },
];
