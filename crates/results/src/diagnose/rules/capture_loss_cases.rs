//! Cases of the rules of losses and queues: just below and just above each threshold.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use super::capture_cases::{Case, assert_max, assert_min};
use super::capture_examples::{END, fit, startup_periods};
use crate::diagnose::Cause;
use crate::diagnose::capture::{losses, queue};
use crate::diagnose::path::MIN_QUEUEING_DELAY;
use crate::evidence::capture::{CaptureEvidence, PolicerFit};

fn flat_losses(capture: &mut CaptureEvidence, losses: u64, events: u64) {
    capture.loss.after_capture = losses;
    capture.loss.flat_losses = losses;
    (capture.loss.events, capture.loss.flat_events) = (events, events);
    capture.loss.at_flat_rtt_share = 1.0;
}

#[test]
fn bounds_of_loss_rules_are_those_of_their_rows() {
    for (cause, events) in [(Cause::RandomLoss, 1000), (Cause::LossBursts, 100)] {
        assert_min(cause, losses::MIN_LOST_SHARE, &|capture, share| {
            flat_losses(capture, 1000, events);
            capture.data_packets = (1000.0 / share) as u64;
        });
        assert_min(cause, losses::MIN_FLAT_SHARE, &|capture, share| {
            flat_losses(capture, 1000, events);
            capture.loss.at_flat_rtt_share = share;
        });
        assert_min(cause, losses::MIN_LOSSES as f64, &|capture, losses| {
            flat_losses(capture, losses as u64, if cause == Cause::RandomLoss { 3 } else { 1 });
            capture.data_packets = 1000;
        });
    }
    let burst = |capture: &mut CaptureEvidence, mean: f64| flat_losses(capture, (1e4 * mean) as u64, 10_000);
    assert_min(Cause::LossBursts, losses::MIN_BURST, &burst);
    assert_max(Cause::RandomLoss, losses::MIN_BURST, &burst);
    assert_min(Cause::Timeouts, losses::MIN_TIMEOUT_SHARE, &|capture, share| {
        capture.loss.timeout = END.mul_f64(share);
    });
}

#[test]
fn bounds_of_the_policer_are_those_of_its_row() {
    let policed = |capture: &mut CaptureEvidence, losses: u64, explained: f64| {
        capture.loss.at_flat_rtt_share = 1.0;
        capture.policer = Some(fit(losses, explained));
    };
    let check = |bound, case: Case<'_>| assert_min(Cause::Policer, bound, case);
    check(losses::MIN_POLICED as f64, &|capture, losses| policed(capture, losses as u64, 1.0));
    check(losses::MIN_EXPLAINED_SHARE, &|capture, share| policed(capture, losses::MANY_POLICED - 1, share));
    check(losses::MIN_EXPLAINED_OF_MANY, &|capture, share| policed(capture, losses::MANY_POLICED, share));
    let between = (losses::MIN_EXPLAINED_SHARE + losses::MIN_EXPLAINED_OF_MANY) / 2.0;
    check(losses::MANY_POLICED as f64, &|capture, losses| policed(capture, losses as u64, between));
    // Delays of packets, and those of round trips where the delays of packets are unknown.
    let drain = Duration::from_millis(200);
    for of_packets in [true, false] {
        let wait = |capture: &mut CaptureEvidence, median: Duration, low: Duration| {
            let (delay, low_delay) = if of_packets { (Some(median), Some(low)) } else { (None, None) };
            capture.policer = Some(PolicerFit { delay, low_delay, ..fit(100, 1.0) });
            capture.queue.delay_at_loss = if of_packets { None } else { Some(median.max(low)) };
        };
        assert_max(Cause::Policer, losses::MAX_POLICED_DELAY, &|capture, share| {
            capture.rtt.base = END;
            wait(capture, drain.mul_f64(share), Duration::ZERO);
        });
        let bound = if of_packets { losses::MAX_POLICED_RTTS } else { losses::MAX_LOW_DELAY };
        assert_max(Cause::Policer, bound, &|capture, share| {
            capture.rtt.base = drain / 10;
            wait(capture, capture.rtt.base.mul_f64(share), Duration::ZERO);
        });
        assert_max(Cause::Policer, losses::MAX_LOW_DELAY, &|capture, share| {
            capture.rtt.base = drain / 10;
            wait(capture, Duration::ZERO, capture.rtt.base.mul_f64(share));
        });
    }
}

#[test]
fn bounds_of_queue_rules_are_those_of_their_rows() {
    let standing = |capture: &mut CaptureEvidence| {
        capture.rtt.p95 = capture.rtt.base * 4;
        capture.queue.standing_share = 0.9;
    };
    assert_min(Cause::Queueing, queue::STANDING_QUEUE_RTT_FACTOR, &|capture, factor| {
        standing(capture);
        capture.rtt.p95 = capture.rtt.base.mul_f64(factor);
    });
    assert_min(Cause::Queueing, MIN_QUEUEING_DELAY.as_secs_f64(), &|capture, seconds| {
        standing(capture);
        capture.rtt.base = Duration::from_micros(50);
        capture.rtt.p95 = capture.rtt.base + Duration::from_secs_f64(seconds);
    });
    assert_min(Cause::Queueing, queue::MIN_STANDING_SHARE, &|capture, share| {
        standing(capture);
        capture.queue.standing_share = share;
    });
    assert_min(Cause::Queueing, queue::MIN_PATH_SHARE, &|capture, share| {
        standing(capture);
        capture.periods = startup_periods(1.0 - share);
    });
    assert_min(Cause::Shaper, queue::MIN_STANDING_SHARE, &|capture, share| {
        capture.queue.burst = Some(Bytes(1_000_000));
        capture.queue.plateau = Some(BitRate(90_000_000));
        capture.queue.standing_share = share;
    });
    let short = |capture: &mut CaptureEvidence| {
        capture.loss.after_capture = 50;
        capture.loss.at_flat_rtt_share = 0.1;
        capture.queue.delay_at_loss = Some(Duration::from_millis(5));
    };
    assert_min(Cause::ShortQueue, queue::MIN_LOSSES as f64, &|capture, losses| {
        short(capture);
        capture.loss.after_capture = losses as u64;
    });
    assert_max(Cause::ShortQueue, losses::MIN_FLAT_SHARE, &|capture, share| {
        short(capture);
        capture.loss.at_flat_rtt_share = share;
    });
    assert_max(Cause::ShortQueue, queue::MAX_SHORT_QUEUE, &|capture, factor| {
        short(capture);
        capture.queue.delay_at_loss = Some(capture.rtt.base.mul_f64(factor));
    });
    assert_max(Cause::ShortQueue, queue::MAX_SHORT_QUEUE, &|capture, factor| {
        short(capture);
        capture.rtt.p95 = capture.rtt.base.mul_f64(1.0 + factor);
    });
    assert_min(Cause::ShortQueue, losses::MIN_OVERFLOW_SHARE, &|capture, share| {
        flat_losses(capture, 10_000, 5000);
        let delay = Some(capture.rtt.base / 4);
        capture.policer = Some(PolicerFit { delay, low_delay: delay, ..fit((share * 1e4) as u64, 1.0) });
    });
}
