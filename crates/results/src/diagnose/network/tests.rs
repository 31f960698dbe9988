//! Faults of the path: figures of emulated tests, shortened, and figures that look alike.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};

use crate::diagnose::host::tests::half_goodput;
use crate::diagnose::{Cause, Confidence, Diagnosis, Finding, diagnose_figures};
use crate::evidence::figures::{
    Course, Figures, IntervalFigures, PathCounters, SendTotals, SteadyPart, TrainFigures, TrainPlateau, Waits,
};

const SECOND: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(40);
const FLAT: f64 = 40.6;

/// A test over a path of 100 Mb/s and 40 ms with these rates in Mb/s, at this RTT in milliseconds.
fn test(congestion: &str, rates: &[f64], rtt: f64) -> Figures {
    let mut figures = half_goodput();
    let interval = |(number, rate): (usize, &f64)| IntervalFigures {
        start: SECOND * number as u32,
        end: SECOND * (number as u32 + 1),
        goodput: BitRate((rate * 1e6) as u64),
        rtt: Duration::from_secs_f64(rtt / 1e3),
        rtt_deviation: Duration::from_micros(200),
        ..IntervalFigures::default()
    };
    let mean = BitRate((rates.iter().sum::<f64>() / rates.len() as f64 * 1e6) as u64);
    figures.path = Some(PathProfile::new(BitRate(100_000_000), RTT));
    (figures.base_rtt, figures.handshake_rtt) = (RTT, RTT);
    figures.course = Course { intervals: rates.iter().enumerate().map(interval).collect(), start_up: 1 };
    figures.elapsed = SECOND * rates.len() as u32;
    figures.goodput = mean;
    figures.steady = Some(SteadyPart { start: Duration::ZERO, end: figures.elapsed, goodput: mean });
    figures.counters = PathCounters { sent: 20_000, delivered: 20_000, recoveries: Some(0), ..PathCounters::default() };
    let flow = &mut figures.streams[0];
    (flow.goodput, flow.mss, flow.cwnd) = (mean, 1448, Bytes(60 * 1448));
    flow.rtt = Duration::from_secs_f64(rtt / 1e3);
    flow.sender_socket.congestion = congestion.into();
    flow.busy = figures.elapsed;
    figures
}

/// Adds retransmissions of each interval, and the recoveries that repaired them.
fn lose(mut figures: Figures, retransmitted: u64, recoveries: u64) -> Figures {
    figures.course.intervals.iter_mut().for_each(|at| at.retransmitted = retransmitted);
    figures.counters.retransmitted = retransmitted * figures.course.intervals.len() as u64;
    figures.counters.recoveries = Some(recoveries);
    figures
}

fn causes(figures: &Figures) -> Vec<Cause> {
    diagnose_figures(figures).findings.iter().filter_map(Finding::cause).collect()
}

const POLICED: [f64; 10] = [20.1, 22.3, 21.7, 22.1, 21.3, 22.2, 21.6, 22.3, 21.6, 21.9];
const SHAPED: [f64; 10] = [18.2, 19.1, 19.1, 19.1, 19.1, 19.1, 19.1, 19.1, 19.1, 19.1];
const FULL: [f64; 10] = [95.6; 10];

fn plateau(dropped_excess: f64, delay_of_excess: f64, burst_bytes: Option<u64>) -> TrainFigures {
    let plateau = TrainPlateau {
        rate: BitRate(20_000_000),
        trains: 3,
        dropped_excess,
        delay_of_excess,
        max_delay: Duration::from_millis(2),
        burst_bytes,
    };
    TrainFigures { plateau: Some(plateau), quiet: (500, 0), ..TrainFigures::default() }
}

#[test]
fn a_constant_rate_with_flat_losses_is_a_policer() {
    let diagnosis = diagnose_figures(&lose(test("cubic", &POLICED, FLAT), 9, 9));
    let found = &diagnosis.findings[0];
    assert_eq!((found.cause(), found.confidence), (Some(Cause::Policer), Some(Confidence::Low)));
    assert_eq!(diagnosis.verdict.summary, "limited by a policer, 22.3 Mb/s");
    assert!(found.confirmation.as_ref().unwrap().ends_with("--udp --ramp"), "{found:?}");
    // BBR keeps most of the capacity with as many random losses.
    assert_eq!(causes(&lose(test("bbr", &POLICED, FLAT), 150, 190))[0], Cause::Policer);
    let capacity = [90.7, 91.6, 90.7, 89.4, 93.2, 91.8, 90.8, 91.3, 90.8, 91.0];
    assert!(!causes(&lose(test("bbr", &capacity, FLAT), 410, 105)).contains(&Cause::Policer));
    // Single losses, and a queue before the losses.
    assert!(!causes(&lose(test("cubic", &POLICED, FLAT), 9, 90)).contains(&Cause::Policer));
    assert!(!causes(&lose(test("cubic", &POLICED, 70.0), 9, 9)).contains(&Cause::Policer));
}

#[test]
fn a_constant_rate_behind_a_queue_is_a_shaper() {
    let mut figures = test("bbr", &SHAPED, 46.0);
    figures.course.intervals[0].rtt = Duration::from_millis(212);
    let diagnosis = diagnose_figures(&figures);
    assert_eq!(diagnosis.verdict.summary, "limited by a shaper, 19.1 Mb/s");
    assert_eq!(diagnosis.findings.len(), 1, "{:?}", diagnosis.findings);
    assert!(diagnosis.hidden.iter().any(|hidden| hidden.cause == "receive window" && hidden.behind == "shaper"));
    // Without a queue nothing shows a shaper.
    assert_eq!(causes(&test("bbr", &SHAPED, FLAT)), [Cause::Unexplained]);
    // A full path has a queue, too.
    assert_eq!(causes(&test("bbr", &FULL, 70.0)), []);
}

#[test]
fn trains_separate_a_policer_from_a_shaper() {
    let with = |trains| Figures { trains: Some(trains), ..test("cubic", &POLICED, FLAT) };
    let policer = &diagnose_figures(&with(plateau(0.95, 0.01, None))).findings[0];
    assert_eq!((policer.cause(), policer.confidence), (Some(Cause::Policer), Some(Confidence::High)));
    assert_eq!(policer.confirmation, None);
    let shaper = &diagnose_figures(&with(plateau(0.0, 0.9, Some(500_000)))).findings[0];
    assert_eq!((shaper.cause(), shaper.confidence), (Some(Cause::Shaper), Some(Confidence::High)));
    assert!(shaper.summary.contains("after a burst of 500 kB"), "{}", shaper.summary);
    // The rate of the line is no bucket.
    let mut line = plateau(0.95, 0.01, None);
    line.plateau.as_mut().unwrap().rate = BitRate(95_000_000);
    assert!(!causes(&with(line)).contains(&Cause::Policer));
}

#[test]
fn waiting_acknowledgements_are_the_return_path() {
    let wait = |data: f64, acknowledgements: f64| {
        let mut figures = test("cubic", &[9.5, 20.3, 21.7, 21.2, 21.5, 21.0, 21.3, 21.1], 150.0);
        figures.course.intervals.iter_mut().for_each(|at| at.waits = Some(Waits { data, acknowledgements }));
        causes(&figures)
    };
    assert_eq!(wait(0.001, 0.11), [Cause::ReturnPath]);
    // The queue of the data is a shaper.
    assert_eq!(wait(0.11, 0.001), [Cause::Shaper]);
}

#[test]
fn lost_acknowledgements_are_the_return_path() {
    let lossy = |arrived, retransmitted| {
        let mut figures = test("cubic", &FULL, 60.0);
        figures.counters.answers = Some((32_637, arrived));
        figures.counters.retransmitted = retransmitted;
        diagnose_figures(&figures)
    };
    let Diagnosis { findings, verdict, .. } = lossy(22_757, 10);
    assert_eq!(findings.iter().filter_map(Finding::cause).collect::<Vec<_>>(), [Cause::ReturnPath]);
    assert!(!findings[0].is_limit() && verdict.summary.starts_with("limited by the path"), "{verdict:?}");
    assert!(findings[0].summary.contains("9880 of 32637 acknowledgements were lost (30 %)"), "{findings:?}");
    assert_eq!(lossy(32_000, 10).findings, [], "those on their way at the end");
    assert!(lossy(30_500, 1200).findings.iter().all(|found| found.cause() != Some(Cause::ReturnPath)), "both ways");
}

#[test]
fn several_interruptions_are_counted() {
    let rates = [75.8, 95.6, 22.7, 70.8, 95.6, 23.6, 74.4, 95.6, 22.9, 74.2, 95.8, 21.7, 74.2, 95.6, 95.6];
    let mut figures = test("cubic", &rates, 60.0);
    for number in [2, 5, 8, 11] {
        figures.course.intervals[number].timeouts = 2;
        figures.course.intervals[number + 1].retransmitted = 200;
    }
    let diagnosis = diagnose_figures(&figures);
    let found = &diagnosis.findings[0];
    assert_eq!((found.cause(), found.confidence), (Some(Cause::Outage), Some(Confidence::High)));
    assert!(found.summary.starts_with("4 interruptions in 15 s, about every 3 s"), "{}", found.summary);
    assert!(diagnosis.findings.len() == 1, "{:?}", diagnosis.findings);
    // Losses in the other intervals: the timeouts follow from them.
    figures.course.intervals.iter_mut().for_each(|at| at.retransmitted = 200);
    assert!(!causes(&figures).contains(&Cause::Outage));
}

#[test]
fn reordered_segments_are_no_loss() {
    let reordered = |reordered, rates: &[f64]| {
        let mut figures = lose(test("cubic", rates, 48.0), 9, 90);
        (figures.counters.reordered, figures.counters.duplicates) = (reordered, 88);
        diagnose_figures(&figures).findings
    };
    let slow = reordered(160, &POLICED);
    assert_eq!((slow.len(), slow[0].cause()), (1, Some(Cause::Reordering)));
    assert!(slow[0].is_limit());
    let fast = reordered(160, &FULL);
    assert_eq!((fast[0].cause(), fast[0].is_limit()), (Some(Cause::Reordering), false));
    assert!(reordered(99, &FULL).iter().all(|found| found.cause() != Some(Cause::Reordering)));
}

#[test]
fn runs_of_losses_without_a_queue_are_a_short_queue() {
    let rates = [11.8, 16.4, 12.5, 12.3, 11.9, 11.3, 11.7, 9.8, 13.4, 17.0];
    let mut figures = lose(test("cubic", &rates, FLAT), 12, 8);
    figures.counters.hystart_exits = Some(0);
    let later = SendTotals { sent_bytes: 8_000_000, resent_bytes: 87_000, duplicates: 0 };
    figures.streams[0].sent_later = Some(later);
    let found = &diagnose_figures(&figures).findings[0];
    assert_eq!((found.cause(), found.confidence), (Some(Cause::ShortQueue), Some(Confidence::Low)));
    // HyStart saw a queue, so the losses are not its overflow.
    figures.counters.hystart_exits = Some(1);
    assert_eq!(causes(&figures)[0], Cause::LossBursts);
    // Single losses.
    figures.counters.recoveries = Some(110);
    assert!(!causes(&figures).iter().any(|cause| [Cause::ShortQueue, Cause::LossBursts].contains(cause)));
}

#[test]
fn marks_are_named_with_and_without_a_shortfall() {
    let marked = |rates: &[f64], ecn| {
        let mut figures = test("cubic", rates, FLAT);
        (figures.counters.marked, figures.counters.ecn) = (400, ecn);
        causes(&figures)
    };
    assert_eq!(marked(&[56.0, 58.0, 61.0, 63.0, 67.0, 70.0], true), [Cause::EcnMarks]);
    assert_eq!(marked(&FULL, true), [Cause::EcnMarks]);
    assert_eq!(marked(&FULL, false), []);
}

#[test]
fn jitter_needs_trains_or_a_varying_rtt() {
    let mut figures = test("cubic", &[23.3, 22.4, 23.9, 27.3, 23.6, 25.1, 25.4, 21.9], 55.0);
    figures.course.intervals.iter_mut().for_each(|at| at.rtt_deviation = Duration::from_millis(4));
    let found = &diagnose_figures(&figures).findings[0];
    assert_eq!((found.cause(), found.confidence), (Some(Cause::Jitter), Some(Confidence::Low)));
    let trains =
        |millis| TrainFigures { delay_variation: Some(Duration::from_millis(millis)), ..TrainFigures::default() };
    figures.trains = Some(trains(5));
    assert_eq!(diagnose_figures(&figures).findings[0].confidence, Some(Confidence::High));
    figures.trains = Some(trains(1));
    assert!(!causes(&figures).contains(&Cause::Jitter), "the trains show a constant delay");
}

#[test]
fn a_queue_with_a_varying_rate_is_other_traffic() {
    let mut figures = test("cubic", &[30.0, 41.0, 35.0, 52.0, 44.0, 38.0, 57.0, 33.0], 75.0);
    figures.course.intervals.iter_mut().for_each(|at| at.waits = Some(Waits { data: 0.035, acknowledgements: 0.001 }));
    assert_eq!(causes(&figures), [Cause::SharedPath]);
}

#[test]
fn late_messages_show_a_proxy() {
    let with = |millis, scales_differ| {
        let mut figures = test("cubic", &FULL, 60.0);
        figures.message_rtt = Some(Duration::from_millis(millis));
        figures.counters.scales_differ = scales_differ;
        diagnose_figures(&figures).findings
    };
    assert_eq!(with(160, true)[0].confidence, Some(Confidence::High));
    assert_eq!(with(160, false)[0].cause(), Some(Cause::Proxy));
    assert_eq!(with(70, false), [], "a queue delays messages");
}
