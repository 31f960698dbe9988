//! Applications that wait, and which end waits for which.

use std::time::Duration;

use lfn_packet::Timestamps;
use lfn_results::evidence::capture::PeriodLimit;

use crate::support::{Analyzed, Flow, GAP, MS, MSS, RTT, START};

/// Sends ten answers of ten packets. The receiver waits before each request, and the sender before each answer.
fn answers(mut flow: Flow, receiver_waits: u64, sender_waits: u64) -> Analyzed {
    let mut at = START;
    for answer in 0..10 {
        flow.send(at, answer * 10..(answer + 1) * 10);
        let done = at + 9 * GAP + flow.receiver_rtt;
        flow.request(done + receiver_waits, (answer + 1) * 10 * MSS);
        at = done + receiver_waits + flow.sender_rtt + sender_waits;
    }
    flow.analyze()
}

fn assert_near(time: Duration, expected: u64) {
    assert!(time.as_nanos().abs_diff(u128::from(expected)) < u128::from(20 * MS), "{time:?}");
}

#[test]
fn pauses_before_requests_are_those_of_the_receiver() {
    for flow in [Flow::at_sender(), Flow::at_receiver()] {
        let application = answers(flow, 500 * MS, 0).evidence().application;
        assert_near(application.receiver_waits, 9 * 500 * MS);
        assert_near(application.sender_waits, 0);
        assert_eq!(application.idle, Duration::ZERO);
    }
}

#[test]
fn pauses_before_answers_are_those_of_the_sender() {
    for flow in [Flow::at_sender(), Flow::at_receiver()] {
        let application = answers(flow, 0, 400 * MS).evidence().application;
        assert_near(application.sender_waits, 9 * 400 * MS);
        assert_near(application.receiver_waits, 0);
        assert_eq!(application.idle, Duration::ZERO);
    }
}

#[test]
fn pauses_without_requests_are_idle_time() {
    let mut flow = Flow::at_sender();
    for burst in 0..10 {
        flow.send(START + u64::from(burst) * 300 * MS, burst * 10..(burst + 1) * 10);
    }
    let application = flow.analyze().evidence().application;
    assert_near(application.idle, 9 * (300 * MS - RTT - 9 * GAP));
    assert_eq!((application.receiver_waits, application.sender_waits), (Duration::ZERO, Duration::ZERO));
    assert_eq!((application.pauses, application.lockstep_blocks), (9, 0));
}

#[test]
fn a_pause_with_a_closed_window_is_the_receivers() {
    let mut flow = Flow::at_sender();
    for burst in 0..10 {
        let (at, next) = (START + u64::from(burst) * 300 * MS, (burst + 1) * 10 * MSS);
        flow.send(at, burst * 10..(burst + 1) * 10);
        flow.ack(at + RTT + 10 * GAP, next).window = if burst % 2 == 0 { 0 } else { 1 };
        flow.ack(at + 300 * MS - GAP, next);
    }
    let analyzed = flow.analyze();
    let evidence = analyzed.evidence();
    assert_near(evidence.application.idle, 0);
    assert_near(evidence.time_of(PeriodLimit::Receiver), 9 * (300 * MS - RTT - 10 * GAP));
    assert_eq!((evidence.application.pauses, evidence.application.lockstep_blocks), (0, 0));
}

#[test]
fn a_pause_whose_packets_are_missing_has_timeouts() {
    for (missing, expected) in [(0, 0), (3, 9), (200, 0)] {
        let mut flow = Flow::at_receiver();
        for number in 0..10_u32 {
            let at = START + u64::from(number) * 900 * MS;
            flow.data(at, number * MSS, MSS).ip_id = Some(100 + number as u16 * (1 + missing));
            flow.ack(at + flow.receiver_rtt, (number + 1) * MSS);
        }
        let analyzed = flow.analyze();
        let evidence = analyzed.evidence();
        assert_eq!(evidence.loss.timeouts, expected, "{missing}");
        let (times, other) = (evidence.loss.timeout, evidence.application.idle);
        let (times, other) = if expected > 0 { (times, other) } else { (other, times) };
        assert_near(times, 9 * (900 * MS - RTT));
        assert_near(other, 0);
    }
}

#[test]
fn answers_behind_a_queue_are_lock_step() {
    let mut flow = Flow::at_receiver();
    let stamp = |value: u64, echo: u64| Some(Timestamps { value: (value / MS) as u32, echo: (echo / MS) as u32 });
    let (there, mut asked) = (flow.sender_rtt, START - RTT);
    for answer in 0..20 {
        // The acknowledgement of the first packet brings the third one, which waits for 15 ms.
        let (first, third) = (asked + there, asked + 2 * there + flow.receiver_rtt + 15 * MS);
        for (number, at, echo) in [(0, first, asked), (1, first + 20 * MS, asked), (2, third, first)] {
            let offset = (3 * answer + number) * MSS;
            flow.data(at, offset, MSS).options.timestamps = stamp(at - there / 2, echo);
            flow.ack(at + flow.receiver_rtt, offset + MSS).options.timestamps = stamp(at, at);
        }
        asked = third + flow.receiver_rtt + GAP;
        flow.request(asked, 3 * (answer + 1) * MSS);
        flow.last().options.timestamps = stamp(asked, third);
    }
    let application = flow.analyze().evidence().application;
    assert_near(application.sender_waits, 0);
    assert_near(application.receiver_waits, 0);
    assert_eq!(application.lockstep_blocks, 19);
}

#[test]
fn a_queue_before_an_answer_is_no_delayed_ack() {
    let mut flow = Flow::at_sender();
    let stamp = |value: u64, echo: u64| Some(Timestamps { value: (value / MS) as u32, echo: (echo / MS) as u32 });
    let mut at = START;
    for block in 0..20 {
        for number in 0..10 {
            let offset = (block * 10 + number) * MSS;
            flow.data(at, offset, MSS).options.timestamps = stamp(at, at - RTT);
        }
        let answered = at + RTT + 45 * MS;
        flow.request(answered, (block + 1) * 10 * MSS);
        flow.last().options.timestamps = stamp(answered, at);
        at = answered + GAP;
    }
    assert_eq!(flow.analyze().evidence().application.delayed_ack_stalls, 0);
}

#[test]
fn blocks_that_wait_for_an_acknowledgement_are_lock_step() {
    let mut flow = Flow::at_sender();
    for block in 0..20 {
        flow.send(START + u64::from(block) * (RTT + 2 * GAP), block * 2..block * 2 + 2);
    }
    let application = flow.analyze().evidence().application;
    assert_eq!((application.lockstep_blocks, application.lockstep_block.0), (19, u64::from(2 * MSS)));
    assert_near(application.lockstep, 19 * RTT);
    assert_eq!(application.delayed_ack_stalls, 0);
}

#[test]
fn waits_of_40_ms_above_the_rtt_are_delayed_acks() {
    for (delay, stalls) in [(40 * MS, 20), (200 * MS, 20), (15 * MS, 0), (100 * MS, 0)] {
        let mut flow = Flow::at_sender();
        // One full packet shows the MSS.
        flow.send(START, 0..1);
        for block in 0..20 {
            let at = START + u64::from(block + 1) * (RTT + delay + GAP);
            flow.data(at, MSS + block * 300, 300);
            flow.ack(at + RTT + delay, MSS + (block + 1) * 300);
        }
        let application = flow.analyze().evidence().application;
        assert_eq!(application.delayed_ack_stalls, stalls, "{delay}");
        assert_eq!(application.delayed_ack.as_nanos(), u128::from(stalls * delay));
    }
}

#[test]
fn pauses_between_messages_are_no_delay_of_the_path() {
    for mut flow in [Flow::at_sender(), Flow::at_receiver()] {
        let timestamps = |at: u64, echo: u64| Some(Timestamps { value: (at / MS) as u32, echo: (echo / MS) as u32 });
        let mut last_ack = 0;
        for message in 0..20_u32 {
            let start = START + u64::from(message) * 400 * MS;
            let echo = last_ack;
            for number in 2 * message..2 * message + 2 {
                let at = start + u64::from(number % 2) * GAP;
                flow.data(at, number * MSS, MSS).options.timestamps = timestamps(at, echo);
                last_ack = at + flow.receiver_rtt;
                flow.ack(last_ack, (number + 1) * MSS).options.timestamps = timestamps(last_ack, at);
            }
        }
        let analyzed = flow.analyze();
        let rtt = analyzed.evidence().rtt;
        assert!(rtt.p95.as_millis() <= 55 && rtt.max.as_millis() <= 55, "{rtt:?}");
    }
}
