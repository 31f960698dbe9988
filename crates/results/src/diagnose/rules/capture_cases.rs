//! Cases of the rules of captures: just below and just above each threshold.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::Bytes;

use super::capture_examples::{END, finds, healthy, rule, startup_periods};
use crate::diagnose::Cause;
use crate::diagnose::capture::{application, delivery, faults, queue, startup, window};
use crate::evidence::capture::CaptureEvidence;

/// Distance from a threshold, as a share of the threshold.
const STEP: f64 = 0.002;

/// Change of a connection with a value near a threshold.
pub(super) type Case<'a> = &'a dyn Fn(&mut CaptureEvidence, f64);

/// Change of a connection to one with the signs of a cause.
type Sign = fn(&mut CaptureEvidence);

fn assert_bound(cause: Cause, finds_above: bool, bound: f64, case: Case<'_>) {
    let found = [1.0 - STEP, 1.0 + STEP].map(|factor| {
        let mut capture = healthy();
        case(&mut capture, bound * factor);
        finds(rule(cause), &capture)
    });
    assert_eq!(found, [!finds_above, finds_above], "{} at {bound}", cause.name());
}

pub(super) fn assert_min(cause: Cause, bound: f64, case: Case<'_>) {
    assert_bound(cause, true, bound, case);
}

pub(super) fn assert_max(cause: Cause, bound: f64, case: Case<'_>) {
    assert_bound(cause, false, bound, case);
}

#[test]
fn bounds_of_capture_faults_are_those_of_their_rows() {
    assert_min(Cause::IncompleteCapture, faults::MIN_MISSED_SHARE, &|capture, share| {
        capture.faults.missed = Bytes((share * capture.payload.0 as f64) as u64);
    });
    assert_min(Cause::IncompleteCapture, faults::MIN_DATA_PACKETS as f64, &|capture, packets| {
        capture.faults.missed = capture.payload;
        capture.data_packets = packets as u64;
    });
    assert_min(Cause::IncompleteCapture, faults::MIN_DATA_PACKETS as f64, &|capture, packets| {
        capture.faults.is_one_way = true;
        capture.packets = packets as u64;
    });
    assert_min(Cause::IncompleteCapture, faults::MIN_DATA_PACKETS as f64, &|capture, packets| {
        capture.faults.pure_acknowledgements = 0;
        capture.handshake.is_complete = false;
        capture.packets = packets as u64;
    });
}

#[test]
fn bounds_of_window_rules_are_those_of_their_rows() {
    assert_min(Cause::SlowReader, window::MIN_CLOSED_SHARE, &|capture, share| {
        capture.window.zero = END.mul_f64(share);
    });
    assert_min(Cause::SlowReader, window::MIN_UNREAD_SHARE, &|capture, share| capture.window.unread_share = share);
    assert_min(Cause::SlowReader, window::MIN_PACKETS as f64, &|capture, packets| {
        capture.window.unread_share = 1.0;
        capture.data_packets = packets as u64;
    });
    assert_min(Cause::SlowReader, window::MIN_SHRUNK_SHARE, &|capture, share| {
        (capture.window.shrunk_share, capture.window.full_share) = (share, 0.5);
    });
    assert_min(Cause::SlowReader, window::MIN_SHRUNK_SHARE, &|capture, share| {
        (capture.window.shrunk_share, capture.window.full_share) = (0.5, share);
    });
    let unscaled = |capture: &mut CaptureEvidence| {
        capture.handshake.receiver_offers_scaling = false;
        capture.window.max = Bytes(65_535);
        capture.window.binding_share = 0.9;
    };
    assert_min(Cause::WindowScaleAbsent, window::MIN_BINDING_SHARE, &|capture, share| {
        unscaled(capture);
        capture.window.binding_share = share;
    });
    assert_min(Cause::WindowScaleAbsent, window::MIN_UNSCALED_WINDOW as f64, &|capture, bytes| {
        unscaled(capture);
        capture.window.max = Bytes(bytes as u64);
    });
    // A small window without scaling is the setting of the receiver.
    assert_max(Cause::ReceiveWindow, window::MIN_UNSCALED_WINDOW as f64, &|capture, bytes| {
        unscaled(capture);
        capture.window.max = Bytes(bytes as u64);
    });
    assert_min(Cause::ReceiveWindow, window::MIN_BINDING_SHARE, &|capture, share| {
        capture.window.binding_share = share;
    });
}

#[test]
fn bounds_of_application_rules_are_those_of_their_rows() {
    assert_min(Cause::LockStep, application::MIN_LOCKSTEP_SHARE, &|capture, share| {
        capture.application.lockstep = END.mul_f64(share);
        capture.application.lockstep_blocks = 100;
    });
    assert_min(Cause::LockStep, application::MIN_LOCKSTEP_BLOCKS as f64, &|capture, blocks| {
        capture.application.lockstep = END;
        capture.application.lockstep_blocks = blocks as u64;
    });
    assert_max(Cause::LockStep, application::MIN_STALLED_BLOCKS, &|capture, share| {
        capture.application.lockstep = END;
        capture.application.delayed_ack = END / 2;
        capture.application.delayed_ack_stalls = 300;
        capture.application.lockstep_blocks = (300.0 / share) as u64;
    });
    assert_min(Cause::DelayedAck, application::MIN_STALL_SHARE, &|capture, share| {
        capture.application.delayed_ack = END.mul_f64(share);
        capture.application.delayed_ack_stalls = 20;
    });
    assert_min(Cause::DelayedAck, application::MIN_STALLS as f64, &|capture, stalls| {
        capture.application.delayed_ack = END / 2;
        capture.application.delayed_ack_stalls = stalls as u64;
    });
    assert_min(Cause::SlowWriter, application::MIN_PAUSE_SHARE, &|capture, share| {
        capture.application.idle = END.mul_f64(share);
    });
    assert_min(Cause::SlowWriter, application::MIN_PAUSE.as_secs_f64(), &|capture, seconds| {
        capture.duration = Duration::from_millis(300);
        capture.application.idle = Duration::from_secs_f64(seconds);
    });
    assert_min(Cause::SlowWriter, application::MIN_SHORT_SHARE, &|capture, share| {
        capture.application.short_packet_share = share;
    });
}

#[test]
fn bounds_of_slow_start_rules_are_those_of_their_rows() {
    assert_min(Cause::StartUp, startup::MIN_STARTUP_SHARE, &|capture, share| {
        capture.periods = startup_periods(share);
    });
    assert_min(Cause::StartUp, startup::MIN_ROUND_TRIPS, &|capture, round_trips| {
        capture.periods = startup_periods(1.0);
        capture.active = capture.rtt.base.mul_f64(round_trips);
    });
    // Ten packets need two round trips.
    let long = |capture: &mut CaptureEvidence, factor: f64| {
        (capture.periods, capture.startup.is_unfinished) = (startup_periods(1.0), true);
        (capture.startup.payload, capture.startup.time) = (Bytes(14_480), capture.rtt.base.mul_f64(2.0 * factor));
        capture.application.short_packet_share = 0.5;
    };
    assert_max(Cause::StartUp, startup::MAX_LENGTH, &long);
    assert_min(Cause::SlowWriter, startup::MAX_LENGTH, &long);
    let early = |capture: &mut CaptureEvidence, growth: f64| {
        (capture.startup.is_early_exit, capture.queue.unused_share) = (true, 0.4);
        capture.startup.peak_in_flight = Bytes(1_000_000);
        capture.startup.later_in_flight = Bytes((1e6 * growth) as u64);
    };
    assert_min(Cause::EarlyExit, startup::MIN_LATER_GROWTH, &early);
    assert_max(Cause::EarlyExit, startup::MAX_STANDING_SHARE, &|capture, share| {
        early(capture, 3.0);
        capture.queue.standing_share = share;
    });
    assert_min(Cause::EarlyExit, queue::MIN_PATH_SHARE, &|capture, share| {
        early(capture, 3.0);
        capture.periods = startup_periods(1.0 - share);
    });
    assert_min(Cause::EarlyExit, startup::MIN_EXIT_UNUSED_SHARE, &|capture, share| {
        early(capture, 3.0);
        capture.queue.unused_share = share;
    });
    let overshoot = |capture: &mut CaptureEvidence| {
        capture.loss.after_capture = 100;
        capture.loss.startup_losses = 90;
        capture.queue.unused_share = 0.4;
    };
    assert_min(Cause::Overshoot, startup::MIN_OVERSHOOT as f64, &|capture, losses| {
        overshoot(capture);
        (capture.loss.after_capture, capture.loss.startup_losses) = (losses as u64, losses as u64);
    });
    assert_min(Cause::Overshoot, startup::MIN_OVERSHOOT_SHARE, &|capture, share| {
        overshoot(capture);
        capture.loss.after_capture = 10_000;
        capture.loss.startup_losses = (share * 1e4) as u64;
    });
    assert_min(Cause::Overshoot, startup::MIN_UNUSED_SHARE, &|capture, share| {
        overshoot(capture);
        capture.queue.unused_share = share;
    });
    assert_max(Cause::Overshoot, startup::MAX_PAUSE_SHARE, &|capture, share| {
        overshoot(capture);
        capture.application.idle = END.mul_f64(share);
    });
}

#[test]
fn bounds_of_delivery_rules_are_those_of_their_rows() {
    for cause in [Cause::Reordering, Cause::Duplicates] {
        let disturb = |capture: &mut CaptureEvidence, packets: u64| match cause {
            Cause::Reordering => capture.delivery.reordered = packets,
            _ => capture.delivery.duplicated = packets,
        };
        assert_min(cause, delivery::MIN_DISTURBED as f64, &|capture, packets| {
            capture.data_packets = 1000;
            disturb(capture, packets as u64);
        });
        assert_min(cause, delivery::MIN_DISTURBED_SHARE, &|capture, share| {
            capture.data_packets = (1000.0 / share) as u64;
            disturb(capture, 1000);
        });
    }
    assert_min(Cause::Outage, delivery::MIN_OUTAGE.as_secs_f64(), &|capture, seconds| {
        capture.duration = Duration::from_secs(2);
        capture.path.outage = Duration::from_secs_f64(seconds);
    });
    assert_min(Cause::Outage, delivery::MIN_OUTAGE_SHARE, &|capture, share| {
        capture.duration = END * 10;
        capture.path.outage = capture.duration.mul_f64(share);
    });
    assert_max(Cause::Outage, delivery::MIN_LOSSY_SHARE, &|capture, share| {
        capture.path.outage = END / 2;
        (capture.loss.share, capture.loss.events) = (share, delivery::MIN_LOSSY_EVENTS);
    });
    assert_min(Cause::SilentPeer, delivery::MIN_LOSSY_SHARE.recip(), &|capture, reciprocal| {
        capture.path.is_silent_peer = true;
        (capture.loss.share, capture.loss.events) = (reciprocal.recip(), delivery::MIN_LOSSY_EVENTS);
    });
    assert_max(Cause::Outage, delivery::MAX_OTHER_WAITS, &|capture, factor| {
        capture.path.outage = END / 4;
        capture.loss.timeout = capture.path.outage.mul_f64(factor);
    });
    let small = |capture: &mut CaptureEvidence, difference: f64| {
        capture.mss_bytes = 1460 - difference as u32;
        (capture.handshake.receiver_mss, capture.handshake.sender_mss) = (Some(1460), Some(1460));
    };
    assert_min(Cause::SmallMtu, f64::from(delivery::MIN_MSS_DIFFERENCE), &small);
    assert_max(Cause::SmallMtu, delivery::MAX_SHORT_SHARE, &|capture, share| {
        small(capture, 400.0);
        capture.application.short_packet_share = share;
    });
    assert_min(Cause::SmallMtu, delivery::MIN_FULL_PACKETS as f64, &|capture, packets| {
        small(capture, 400.0);
        capture.application.full_packets = packets as u64;
    });
    assert_max(Cause::SmallMtu, delivery::MAX_PUSHED_SHARE, &|capture, share| {
        small(capture, 400.0);
        capture.application.pushed_share = share;
    });
    assert_max(Cause::SmallMtu, f64::from(1460 - delivery::MIN_MTU_PAYLOAD), &small);
    let lossy_return = |capture: &mut CaptureEvidence, lost: u64, share: f64| {
        capture.delivery.lost_acknowledgements = lost;
        capture.delivery.acknowledgements = (lost as f64 / share) as u64 - lost;
    };
    assert_min(Cause::ReturnPath, delivery::MIN_DISTURBED as f64, &|capture, lost| {
        lossy_return(capture, lost as u64, 0.5);
    });
    assert_min(Cause::ReturnPath, delivery::MIN_LOST_ACKS_SHARE, &|capture, share| lossy_return(capture, 1000, share));
    assert_min(Cause::ReturnPath, delivery::MIN_DELAYED_SHARE, &|capture, share| {
        capture.rtt.median = capture.rtt.base * 2;
        capture.delivery.acknowledgement_delay_share = Figure::new(share);
    });
    assert_min(Cause::ReturnPath, delivery::MIN_INFLATION, &|capture, inflation| {
        capture.rtt.median = capture.rtt.base.mul_f64(inflation);
        capture.delivery.acknowledgement_delay_share = Figure::new(0.9);
    });
    assert_min(Cause::EcnMarks, delivery::MIN_MARKED_SHARE, &|capture, share| {
        capture.data_packets = 1_000_000;
        capture.path.ecn_marked = (share * 1e6) as u64;
    });
    assert_min(Cause::EcnMarks, delivery::MIN_MARKED_SHARE, &|capture, share| {
        capture.delivery.acknowledgements = 1_000_000;
        capture.path.ecn_echoes = (share * 1e6) as u64;
    });
}

#[test]
fn path_of_few_packets_is_not_judged() {
    let signs: [(Cause, Sign); 3] = [
        (Cause::Queueing, |capture| {
            (capture.rtt.p95, capture.queue.standing_share) = (capture.rtt.base * 4, 0.9);
        }),
        (Cause::SmallMtu, |capture| {
            (capture.mss_bytes, capture.path.largest_passed_bytes) = (1060, 1060);
        }),
        (Cause::ReturnPath, |capture| {
            capture.rtt.median = capture.rtt.base * 2;
            capture.delivery.acknowledgement_delay_share = Figure::new(0.9);
        }),
    ];
    for (cause, sign) in signs {
        assert_min(cause, faults::MIN_PATH_PACKETS as f64, &|capture, packets| {
            sign(capture);
            (capture.data_packets, capture.payload) = (packets as u64, Bytes(20_000));
        });
        assert_min(cause, faults::MIN_PATH_PAYLOAD as f64, &|capture, payload| {
            sign(capture);
            (capture.data_packets, capture.payload) = (3, Bytes(payload as u64));
        });
    }
}
