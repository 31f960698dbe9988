//! Rules of the connections of a packet capture.

use super::rule::Bound::{MaxCount, MaxFactor, MaxShare, MinBytes, MinCount, MinFactor, MinShare, MinTime};
use super::rule::{ANY, CAPTURES, Rule, Threshold, of};
use crate::diagnose::capture::{application, delivery, faults, losses, queue, startup, window};
use crate::diagnose::path::MIN_QUEUEING_DELAY;
use crate::diagnose::{Cause, Finding};
use crate::evidence::figures::Figures;
use lfn_base::units::Bytes;

const TRAINED: &str = "tuned with the captures of bench/trace, and scored on emulated captures of new seeds";
const POLICING: &str =
    "Flach et al., An Internet-Wide Analysis of Traffic Policing, SIGCOMM 2016; own fit of the bucket";

const FLAT: Threshold = of("losses without a queueing delay before them", MinShare(losses::MIN_FLAT_SHARE));
const NOT_FLAT: Threshold = of("losses without a queueing delay before them", MaxShare(losses::MIN_FLAT_SHARE));
const LOSSY: Threshold = of("lost packets / data packets", MinShare(losses::MIN_LOST_SHARE));
const LOSSES: Threshold = of("lost packets", MinCount(losses::MIN_LOSSES));

const LOSES_BY_CHANCE: Threshold =
    of("lost packets / data packets, if there are 5 or more loss events", MaxShare(delivery::MIN_LOSSY_SHARE));
const PACKETS: Threshold = of("data packets, if less than 64 KiB of payload", MinCount(faults::MIN_PATH_PACKETS));

const fn rule(
    cause: Cause,
    find: fn(&Figures) -> Option<Finding>,
    thresholds: &'static [Threshold],
    source: &'static str,
) -> Rule {
    Rule { loads: CAPTURES, cause, find, thresholds, needs: &[], needs_one_of: &[], source }
}

/// Rules of captures. The findings are sorted by the time that their cause took; faults of the capture come first.
pub(super) const RULES: &[Rule] = &[
    rule(
        Cause::CapturedTwice,
        faults::captured_twice,
        &[of("packets with the same headers and IP identification within 10 ms / packets", MinShare(0.4))],
        "measured: mirror ports and tcpdump -i any give each packet twice",
    ),
    rule(
        Cause::IncompleteCapture,
        faults::incomplete,
        &[
            of("acknowledged payload that is not in the capture / payload", MinShare(faults::MIN_MISSED_SHARE)),
            of("data packets", MinCount(faults::MIN_DATA_PACKETS)),
            of("or packets of one direction", MaxCount(0)),
            of("or, without a handshake: acknowledgements without payload", MaxCount(0)),
        ],
        TRAINED,
    ),
    rule(
        Cause::SlowReader,
        window::slow_reader,
        &[
            of("time with a closed window / time", MinShare(window::MIN_CLOSED_SHARE)),
            of("or bytes by which the window shrank / acknowledged bytes", MinShare(window::MIN_UNREAD_SHARE)),
            of("or time with a window below half its maximum / active time", MinShare(window::MIN_SHRUNK_SHARE)),
            of("with a full window / active time", MinShare(window::MIN_SHRUNK_SHARE)),
        ],
        "RFC 9293 section 3.8.6; Dapper (SOSR 2017)",
    ),
    rule(
        Cause::WindowScaleAbsent,
        window::no_scaling,
        &[
            of("time with a full window and no queue / active time", MinShare(window::MIN_BINDING_SHARE)),
            of("maximum window", MinBytes(Bytes(window::MIN_UNSCALED_WINDOW))),
            of("ends that offered window scaling", MaxCount(1)),
        ],
        "RFC 7323 section 2",
    ),
    rule(
        Cause::ReceiveWindow,
        window::receive_window,
        &[of("time with a full window and no queue / active time", MinShare(window::MIN_BINDING_SHARE))],
        "RFC 7323 section 1.1; Siekkinen et al., Root Cause Analysis for Long-Lived TCP Connections, CoNEXT 2005",
    ),
    rule(
        Cause::LockStep,
        application::lock_step,
        &[
            of("waits for the acknowledgement of a block / time", MinShare(application::MIN_LOCKSTEP_SHARE)),
            of("blocks", MinCount(application::MIN_LOCKSTEP_BLOCKS)),
        ],
        "SC2000 report, figure 4: gaps of one round trip",
    ),
    rule(
        Cause::DelayedAck,
        application::delayed_ack,
        &[
            of("waits of 33 to 62 ms or 140 to 260 ms above the RTT", MinCount(application::MIN_STALLS)),
            of("time of these waits / time", MinShare(application::MIN_STALL_SHARE)),
        ],
        "RFC 9293 section 3.8.6.3; timers of Linux (40 ms) and of other kernels (200 ms)",
    ),
    rule(
        Cause::StartUp,
        startup::slow_start,
        &[
            of("handshake and slow start / active time", MinShare(startup::MIN_STARTUP_SHARE)),
            of("active time / base RTT", MinFactor(startup::MIN_ROUND_TRIPS)),
            of("time of an unfinished slow start / RTTs that its data needs", MaxFactor(startup::MAX_LENGTH)),
        ],
        "RFC 5681 section 3.1",
    ),
    rule(
        Cause::EarlyExit,
        startup::early_exit,
        &[
            of("bytes in flight later / at the end of slow start", MinFactor(startup::MIN_LATER_GROWTH)),
            of("unused share of the possible rate", MinShare(startup::MIN_EXIT_UNUSED_SHARE)),
            of("time that the path limits / time", MinShare(queue::MIN_PATH_SHARE)),
        ],
        "RFC 9406; ip-tcp_metrics(8)",
    ),
    rule(
        Cause::Policer,
        losses::policer,
        &[
            of("losses", MinCount(losses::MIN_POLICED)),
            of("losses and passed packets that a token bucket explains", MinShare(losses::MIN_EXPLAINED_SHARE)),
            of("the same with 60 losses and more", MinShare(losses::MIN_EXPLAINED_OF_MANY)),
            of("median delay before losses / bucket at the rate", MaxShare(losses::MAX_POLICED_DELAY)),
            of("median delay before losses / base RTT", MaxShare(losses::MAX_POLICED_RTTS)),
            of("delay that 90 % of the losses exceed / base RTT", MaxShare(losses::MAX_LOW_DELAY)),
        ],
        POLICING,
    ),
    rule(
        Cause::Queueing,
        queue::queueing,
        &[
            PACKETS,
            of("RTT at 95 % / base RTT", MinFactor(queue::STANDING_QUEUE_RTT_FACTOR)),
            of("RTT at 95 % minus base RTT", MinTime(MIN_QUEUEING_DELAY)),
            of("time with a queue / active time", MinShare(queue::MIN_STANDING_SHARE)),
            of("time that the path limits / time", MinShare(queue::MIN_PATH_SHARE)),
        ],
        "RFC 8289 section 4.2",
    ),
    rule(
        Cause::Shaper,
        queue::shaper,
        &[
            of("rate of the first burst / later steady rate", MinFactor(1.4)),
            of("time with a queue / active time", MinShare(queue::MIN_STANDING_SHARE)),
        ],
        "RFC 2475 section 2.3.3.3; tuned with bench/trace",
    ),
    rule(
        Cause::ShortQueue,
        queue::short_queue,
        &[
            NOT_FLAT,
            of("lost packets", MinCount(queue::MIN_LOSSES)),
            of(
                "queueing delay before losses, and RTT at 95 % minus base RTT / base RTT",
                MaxFactor(queue::MAX_SHORT_QUEUE),
            ),
            of(
                "or losses that a bucket explains with such a delay / losses without one",
                MinShare(losses::MIN_OVERFLOW_SHARE),
            ),
        ],
        TRAINED,
    ),
    rule(
        Cause::Timeouts,
        losses::timeouts,
        &[of("waits for retransmission timeouts / time", MinShare(losses::MIN_TIMEOUT_SHARE))],
        "RFC 6298",
    ),
    rule(
        Cause::LossBursts,
        losses::loss_bursts,
        &[LOSSY, LOSSES, FLAT, of("losses in an RTT, mean", MinFactor(losses::MIN_BURST))],
        TRAINED,
    ),
    rule(
        Cause::RandomLoss,
        losses::random_loss,
        &[LOSSY, LOSSES, FLAT, of("losses in an RTT, mean", MaxFactor(losses::MIN_BURST))],
        "Mathis et al., The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, CCR 1997",
    ),
    rule(
        Cause::Overshoot,
        startup::overshoot,
        &[
            of("losses in slow start", MinCount(startup::MIN_OVERSHOOT)),
            of("losses in slow start / losses", MinShare(startup::MIN_OVERSHOOT_SHARE)),
            of("unused share of the possible rate", MinShare(startup::MIN_UNUSED_SHARE)),
        ],
        TRAINED,
    ),
    rule(
        Cause::Reordering,
        delivery::reordering,
        &[
            of("packets that arrive after later ones", MinCount(delivery::MIN_DISTURBED)),
            of("such packets / data packets", MinShare(delivery::MIN_DISTURBED_SHARE)),
        ],
        "RFC 4737",
    ),
    rule(
        Cause::Duplicates,
        delivery::duplicates,
        &[
            of("packets that arrive twice", MinCount(delivery::MIN_DISTURBED)),
            of("such packets / data packets", MinShare(delivery::MIN_DISTURBED_SHARE)),
        ],
        "RFC 5560; RFC 2883",
    ),
    rule(
        Cause::Outage,
        delivery::outage,
        &[
            of("time without answers to retransmissions", MinTime(delivery::MIN_OUTAGE)),
            of("this time / time", MinShare(delivery::MIN_OUTAGE_SHARE)),
            of("all waits for timeouts / this time", MaxFactor(delivery::MAX_OTHER_WAITS)),
            LOSES_BY_CHANCE,
        ],
        TRAINED,
    ),
    rule(
        Cause::SilentPeer,
        delivery::silent_peer,
        &[of("retransmissions without an answer until the end", MinCount(3)), LOSES_BY_CHANCE],
        "RFC 9293 section 3.8.3",
    ),
    rule(
        Cause::BlackHole,
        delivery::black_hole,
        &[
            of("retransmissions of the largest packet without an answer", MinCount(3)),
            of("payload of this packet", MinBytes(Bytes(delivery::MIN_MTU_PAYLOAD as u64))),
        ],
        "RFC 8899; RFC 2923 section 2.1",
    ),
    rule(
        Cause::SmallMtu,
        delivery::small_mtu,
        &[
            of(
                "MSS that both ends offered minus largest payload",
                MinBytes(Bytes(delivery::MIN_MSS_DIFFERENCE as u64)),
            ),
            of("short packets / data packets", MaxShare(delivery::MAX_SHORT_SHARE)),
            of("packets with the largest payload", MinCount(delivery::MIN_FULL_PACKETS)),
            of("of them with PSH, as messages of an application have it", MaxShare(delivery::MAX_PUSHED_SHARE)),
            of("largest payload", MinBytes(Bytes(delivery::MIN_MTU_PAYLOAD as u64))),
            PACKETS,
        ],
        "RFC 4821",
    ),
    rule(
        Cause::ReturnPath,
        delivery::return_path,
        &[
            PACKETS,
            of("lost acknowledgements", MinCount(delivery::MIN_DISTURBED)),
            of("lost acknowledgements / acknowledgements", MinShare(delivery::MIN_LOST_ACKS_SHARE)),
            of("or acknowledgements that waited by the receiver's timestamps", MinShare(delivery::MIN_DELAYED_SHARE)),
        ],
        "RFC 3449",
    ),
    rule(
        Cause::EcnMarks,
        delivery::ecn_marks,
        &[of("marked data packets or echoes", MinShare(delivery::MIN_MARKED_SHARE))],
        "RFC 3168; RFC 9768",
    ),
    rule(
        Cause::EcnBleached,
        delivery::ecn_bleached,
        &[of("data packets with an ECN field, after both ends agreed on ECN", MaxCount(0))],
        "RFC 3168 section 18; RFC 9331",
    ),
    rule(Cause::Proxy, delivery::proxy, &[of("signs of another host", MinCount(ANY))], "RFC 3135"),
    rule(
        Cause::SlowWriter,
        application::slow_writer,
        &[
            of("pauses of the applications / time", MinShare(application::MIN_PAUSE_SHARE)),
            of("pauses of the applications", MinTime(application::MIN_PAUSE)),
            of(
                "or, without losses, queue and full window: packets below the MSS",
                MinShare(application::MIN_SHORT_SHARE),
            ),
        ],
        "Siekkinen et al., CoNEXT 2005",
    ),
];
