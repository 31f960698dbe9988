//! Rules of copies: disks, hashing, sessions, and the limit of the path if no rule of tests names it. Figures are of the
//! whole copy, summed over its streams.

use super::rule::Bound::{MaxCount, MaxFactor, MaxShare, MaxTime, MinCount, MinFactor, MinShare, MinTime};
use super::rule::{COPIES, EQUAL, Rule, Threshold, of};
use crate::diagnose::{Cause, bottleneck, copy};
use crate::evidence::figures::EvidenceKind::*;

/// Conditions of each rule.
const LONG: Threshold = of("time of the copy", MinTime(copy::MIN_DURATION));
const BELOW_PREDICTION: Threshold = of("goodput / predicted goodput", MaxShare(bottleneck::NEAR_PREDICTED));
/// Conditions of each rule that names a bottleneck.
const BELOW_WHILE_CONNECTED: Threshold =
    of("goodput while connected / predicted goodput", MaxShare(bottleneck::NEAR_PREDICTED));
const CONNECTED: Threshold =
    of("time with a connection, if less than 1 MiB crossed the path", MinTime(bottleneck::MIN_CLASSIFIED_TIME));
/// The figure of [`CONNECTED`] has the bytes in words.
const _: () = assert!(bottleneck::MIN_CLASSIFIED_BYTES.0 == 1 << 20);
/// Conditions of the rules that read the sockets of the sender.
const HAS_PATH: Threshold = of("base RTT, if it is known", MinTime(bottleneck::MAX_HOST_RTT));
const BUSY: Threshold = of("time of the streams with data in flight", MinShare(bottleneck::MIN_MAIN_SHARE));

const CHOSEN_SHARE: &str = "comparison of the times of the streams; 50 % is chosen: the network waits for an activity that \
                            takes most of the time";
const CHOSEN_COUNTERS: &str =
    "comparison with the total time of the streams; 50 % is chosen: the limit takes most of the time";

/// Rules of copies in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        loads: COPIES,
        cause: Cause::LostConnection,
        find: |figures| copy::shortfall(figures, Cause::LostConnection),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            of("goodput while connected / predicted goodput", MinShare(bottleneck::NEAR_PREDICTED)),
            of(
                "or, without a bottleneck in a disk, a buffer or a server: time without a connection / missing share of \
                 the goodput",
                MinShare(copy::MIN_DISCONNECTED_SHARE),
            ),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: "comparison of two times; 50 % is chosen: the lost connection explains most of the missing goodput",
    },
    Rule {
        loads: COPIES,
        cause: Cause::Outage,
        find: |figures| copy::shortfall(figures, Cause::Outage),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            of(
                "without a bottleneck in a host, a buffer or a server: time without arrivals / time of the copy",
                MinShare(copy::MIN_STALLED_SHARE),
            ),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: "comparison of two times; 20 % is chosen: a shorter outage explains less than the losses around it",
    },
    Rule {
        loads: COPIES,
        cause: Cause::ServerLimit,
        find: |figures| copy::shortfall(figures, Cause::ServerLimit),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            of("time of the streams in the rate limiter", MinShare(bottleneck::MIN_MAIN_SHARE)),
            of("or the same time / network time of one end", MinShare(bottleneck::MIN_MAIN_SHARE)),
            of("with network time of this end / time of the streams", MinShare(bottleneck::MIN_NETWORK_SHARE)),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: "comparison of the times of the streams; the shares are chosen: the rate limiter admits one stream after \
                 another",
    },
    Rule {
        loads: COPIES,
        cause: Cause::DestinationDisk,
        find: |figures| copy::shortfall(figures, Cause::DestinationDisk),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            of("time of the receiving threads in writes", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: CHOSEN_SHARE,
    },
    Rule {
        loads: COPIES,
        cause: Cause::SourceDisk,
        find: |figures| copy::shortfall(figures, Cause::SourceDisk),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            of("time of the sending threads in reads", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity],
        needs_one_of: &[],
        source: CHOSEN_SHARE,
    },
    Rule {
        loads: COPIES,
        cause: Cause::Processor,
        find: |figures| copy::shortfall(figures, Cause::Processor),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            of("base RTT", MaxTime(bottleneck::MAX_HOST_RTT)),
            of("or time of the threads of one end in hashing", MinShare(bottleneck::MIN_HASH_SHARE)),
            of("with time of the streams with data in flight", MaxShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: "comparison of the times of the streams; 0.1 ms and 25 % are chosen: the network is idle, and hashing is \
                 the largest known activity",
    },
    Rule {
        loads: COPIES,
        cause: Cause::ReceiveWindow,
        find: |figures| copy::shortfall(figures, Cause::ReceiveWindow),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            HAS_PATH,
            of("goodput / (window / base RTT)", MinShare(bottleneck::MIN_SHARE_OF_WINDOW_RATE)),
            of("with congestion window / receive window", MinFactor(EQUAL)),
            of("or time limited by the receive window", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: "measured at 539 ms on Linux 6.18, where tcpi_rwnd_limited shows one third",
    },
    Rule {
        loads: COPIES,
        cause: Cause::SendBuffer,
        find: |figures| copy::shortfall(figures, Cause::SendBuffer),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            HAS_PATH,
            of("time limited by the send buffer", MinShare(bottleneck::MIN_MAIN_SHARE)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: CHOSEN_COUNTERS,
    },
    Rule {
        loads: COPIES,
        cause: Cause::StartUp,
        find: |figures| copy::shortfall(figures, Cause::StartUp),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            HAS_PATH,
            of("streams in slow start at the end", MinCount(bottleneck::MIN_STREAMS_IN_SLOW_START as u64)),
            of("retransmitted segments", MaxCount(0)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: "RFC 5681 section 3.1",
    },
    Rule {
        loads: COPIES,
        cause: Cause::Loss,
        find: |figures| copy::shortfall(figures, Cause::Loss),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            HAS_PATH,
            BUSY,
            of("congestion window / BDP", MinFactor(EQUAL)),
            of("retransmitted segments", MinCount(copy::MIN_RETRANSMITS)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: CHOSEN_COUNTERS,
    },
    Rule {
        loads: COPIES,
        cause: Cause::CongestionWindow,
        find: |figures| copy::shortfall(figures, Cause::CongestionWindow),
        thresholds: &[
            LONG,
            BELOW_PREDICTION,
            BELOW_WHILE_CONNECTED,
            CONNECTED,
            HAS_PATH,
            BUSY,
            of("congestion window / BDP", MaxFactor(EQUAL)),
        ],
        needs: &[Capacity, CopySockets],
        needs_one_of: &[],
        source: "RFC 5681; comparison with the total time of the streams; 50 % is chosen: the limit takes most of the time",
    },
    Rule {
        loads: COPIES,
        cause: Cause::Unexplained,
        find: |figures| copy::shortfall(figures, Cause::Unexplained),
        thresholds: &[LONG, BELOW_PREDICTION, BELOW_WHILE_CONNECTED, of("other findings of the copy", MaxCount(0))],
        needs: &[Capacity],
        needs_one_of: &[],
        source: "doc/explanation/prediction.md",
    },
];
