//! Faults of the path: figures of emulated tests, shortened, and figures that look alike.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};

use crate::diagnose::host::tests::half_goodput;
use crate::diagnose::{Cause, Confidence, Diagnosis, Finding, diagnose_figures};
use crate::evidence::figures::{
    Course, Figures, IntervalFigures, PathCounters, SendTotals, SteadyPart, TrainFigures, TrainPlateau, Waits,
};
use crate::latency::RttDistribution;

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
        usual_delay: Duration::from_millis(2),
        burst_bytes,
        ..TrainPlateau::default()
    };
    TrainFigures { plateau: Some(plateau), quiet: (500, 0), ..TrainFigures::default() }
}

#[test]
fn a_constant_rate_with_flat_losses_is_a_policer() {
    let diagnosis = diagnose_figures(&lose(test("cubic", &POLICED, FLAT), 9, 9));
    let found = &diagnosis.findings[0];
    assert_eq!((found.cause(), found.confidence), (Some(Cause::Policer), Some(Confidence::Low)));
    assert_eq!(diagnosis.verdict.summary, "limited by a policer, 21.9 Mb/s");
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
        |micros| TrainFigures { delay_variation: Some(Duration::from_micros(micros)), ..TrainFigures::default() };
    figures.trains = Some(trains(5000));
    assert_eq!(diagnose_figures(&figures).findings[0].confidence, Some(Confidence::High));
    figures.trains = Some(trains(500));
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

#[test]
fn goodput_above_a_rate_excludes_its_bucket() {
    let with = |rate: f64| {
        let trains = Some(plateau(0.95, 0.0, None));
        causes(&Figures { trains, ..test("bbr", &[rate; 10], FLAT) }).contains(&Cause::Policer)
    };
    let limit = plateau(0.95, 0.0, None).plateau.unwrap().rate.as_f64() / 1e6;
    assert!(with(limit) && !with(1.3 * limit));
}

#[test]
fn missing_early_acknowledgements_are_certainly_lost() {
    let mut figures = test("bbr", &[30.0, 30.0, 30.0], 60.0);
    (figures.base_rtt, figures.streams[0].rtt) = (SECOND, SECOND);
    figures.course.intervals.iter_mut().for_each(|at| at.rtt = SECOND);
    figures.counters.answers = Some((7000, 4700));
    assert!(!causes(&figures).contains(&Cause::ReturnPath));
    figures.counters.early_answers = Some(6700);
    assert!(causes(&figures).contains(&Cause::ReturnPath));
}

#[test]
fn a_queue_that_is_soon_full_is_a_shaper() {
    let with = |usual_delay, variation| {
        let mut figures = test("bbr", &POLICED, 60.0);
        let mut trains = plateau(0.73, 0.2, None);
        trains.delay_variation = Some(Duration::from_millis(variation));
        trains.plateau.as_mut().unwrap().usual_delay = Duration::from_millis(usual_delay);
        figures.trains = Some(trains);
        causes(&figures)[0]
    };
    assert_eq!(with(99, 0), Cause::Shaper);
    assert_eq!(with(4, 0), Cause::Policer);
    assert_eq!(with(12, 5), Cause::Policer, "jitter delays the trains");
}

#[test]
fn faster_trains_exclude_a_bucket() {
    let mut figures = test("bbr", &SHAPED, 46.0);
    figures.course.intervals[0].rtt = Duration::from_millis(212);
    figures.trains = Some(TrainFigures { max_passed: BitRate(60_000_000), ..TrainFigures::default() });
    assert_eq!(causes(&figures), [Cause::Unexplained]);
    let mut policed = lose(test("cubic", &POLICED, FLAT), 9, 9);
    policed.trains = figures.trains.clone();
    assert!(!causes(&policed).contains(&Cause::Policer));
}

#[test]
fn trains_show_the_queue_of_the_line() {
    let with = |max_delay, dropped_excess| {
        let mut figures = lose(test("reno", &POLICED, FLAT), 1, 1);
        figures.streams[0].sent_later = Some(SendTotals { sent_bytes: 8_000_000, resent_bytes: 8700, duplicates: 0 });
        let mut trains = plateau(dropped_excess, 0.1, None);
        let line = trains.plateau.as_mut().unwrap();
        (line.rate, line.max_delay) = (BitRate(95_000_000), Duration::from_millis(max_delay));
        figures.trains = Some(trains);
        causes(&figures)
    };
    assert_eq!(with(2, 0.95), [Cause::ShortQueue]);
    assert!(!with(40, 0.8).contains(&Cause::ShortQueue), "one BDP");
    assert!(!with(2, 0.2).contains(&Cause::ShortQueue), "the queue did not overflow");
}

#[test]
fn losses_below_the_rate_that_passes_are_no_queue() {
    let lossy = |quiet| {
        let mut figures = lose(test("cubic", &POLICED, 48.0), 9, 90);
        figures.counters.reordered = 160;
        figures.trains = Some(TrainFigures { quiet, mean_loss_run: Some(1.1), ..TrainFigures::default() });
        causes(&figures)
    };
    let both = lossy((4000, 40));
    assert!(both.contains(&Cause::RandomLoss) && both.contains(&Cause::Reordering), "{both:?}");
    assert_eq!(lossy((4000, 2)), [Cause::Reordering], "the order looks like losses");
}

#[test]
fn single_losses_above_the_rate_hide_no_bursts() {
    let rates = [11.8, 16.4, 12.5, 12.3, 9.9, 11.3, 14.7, 9.8, 13.4, 17.0];
    let mut figures = lose(test("reno", &rates, FLAT), 12, 10);
    let mut trains = plateau(0.7, 0.3, None);
    trains.plateau.as_mut().unwrap().rate = BitRate(95_000_000);
    trains.plateau.as_mut().unwrap().max_delay = Duration::from_millis(40);
    (trains.quiet, trains.mean_loss_run) = ((9000, 120), Some(1.4));
    figures.trains = Some(trains);
    assert_eq!(causes(&figures), [Cause::LossBursts]);
}

#[test]
fn trains_that_wait_without_jitter_show_other_traffic() {
    let with = |deviation, lost| {
        let mut figures = test("bbr", &[24.0, 31.0, 27.0, 22.0, 25.0, 29.0, 23.0, 26.0], 75.0);
        figures.course.intervals.iter_mut().for_each(|at| at.rtt_deviation = Duration::from_micros(deviation));
        let variation = Some(Duration::from_millis(18));
        figures.trains =
            Some(TrainFigures { delay_variation: variation, quiet: (6000, lost), ..TrainFigures::default() });
        causes(&figures)
    };
    assert_eq!(with(500, 0), [Cause::SharedPath]);
    let jitter = with(6000, 0);
    assert!(jitter.contains(&Cause::Jitter) && !jitter.contains(&Cause::SharedPath), "{jitter:?}");
    assert!(with(6000, 800).contains(&Cause::SharedPath), "a full queue");
}

#[test]
fn acknowledgements_on_their_way_are_not_lost() {
    let mut figures = test("bbr", &FULL, 60.0);
    (figures.base_rtt, figures.handshake_rtt) = (Duration::from_millis(600), Duration::from_millis(600));
    figures.course.intervals.iter_mut().for_each(|at| at.rtt = Duration::from_millis(700));
    figures.streams[0].rtt = Duration::from_millis(700);
    figures.counters.answers = Some((24_348, 22_975));
    assert!(!causes(&figures).contains(&Cause::ReturnPath));
    figures.counters.answers = Some((24_348, 19_000));
    assert!(causes(&figures).contains(&Cause::ReturnPath));
}

#[test]
fn outages_between_calm_losses_are_found() {
    let rates = [95.0, 95.6, 0.0, 0.0, 95.6, 94.0, 95.0, 0.0, 0.0, 95.6, 95.8, 95.0, 95.2, 95.6, 95.6];
    let mut figures = test("bbr", &rates, 60.0);
    figures.course.intervals.iter_mut().for_each(|at| at.retransmitted = if at.goodput.0 > 0 { 400 } else { 1 });
    for number in [2, 7] {
        figures.course.intervals[number].timeouts = 1;
    }
    assert!(causes(&figures).contains(&Cause::Outage));
    let lossy = Some(TrainFigures { quiet: (150, 43), mean_loss_run: Some(1.4), ..TrainFigures::default() });
    let of_trains = causes(&Figures { trains: lossy, ..figures.clone() });
    assert!(!of_trains.contains(&Cause::Outage), "{of_trains:?}");
    // Random losses cause timeouts at any time.
    figures.course.intervals.iter_mut().for_each(|at| at.timeouts = 1);
    assert!(!causes(&figures).contains(&Cause::Outage));
}

#[test]
fn trains_that_displace_other_traffic_show_it() {
    let rising = Some((BitRate(12_000_000), BitRate(35_000_000)));
    let mut figures = test("bbr", &POLICED, 46.0);
    figures.trains = Some(TrainFigures { rising, max_passed: BitRate(35_000_000), ..TrainFigures::default() });
    assert_eq!(causes(&figures), [Cause::SharedPath]);
    // A shaper below the capacity is the bottleneck that both use.
    figures.trains = Some(TrainFigures { rising, ..plateau(0.0, 0.9, None) });
    assert_eq!(causes(&figures), [Cause::Shaper, Cause::SharedPath]);
    let mut full = test("bbr", &FULL, 46.0);
    full.trains = Some(TrainFigures { rising, ..TrainFigures::default() });
    assert_eq!(causes(&full), [], "the path is full");
}

#[test]
fn bursts_dropped_far_below_a_rate_are_a_short_queue() {
    let with = |segments: u64, quiet, rate: f64| {
        let mut figures = lose(test("reno", &[rate; 10], FLAT), 60, 300);
        figures.streams[0].cwnd = Bytes(segments * 1448);
        figures.streams[0].sent_later =
            Some(SendTotals { sent_bytes: 8_000_000, resent_bytes: 300_000, duplicates: 0 });
        let mut trains = TrainFigures { quiet, ..plateau(0.95, 0.0, None) };
        trains.plateau.as_mut().unwrap().rate = BitRate(52_000_000);
        figures.trains = Some(trains);
        causes(&figures)[0]
    };
    assert_eq!(with(7, (3000, 0), 2.0), Cause::ShortQueue);
    assert_eq!(with(7, (3000, 0), 20.0), Cause::Policer, "a bucket passes its rate");
    assert_eq!(with(60, (3000, 0), 2.0), Cause::Policer, "large bursts");
    assert_eq!(with(7, (3000, 60), 2.0), Cause::Policer, "losses at any rate");
}

/// RTTs of datagrams without load, in milliseconds.
fn idle(min: u64, p50: u64, p90: u64) -> Option<RttDistribution> {
    let [min, p50, p90] = [min, p50, p90].map(Duration::from_millis);
    Some(RttDistribution { min, p50, p90, ..RttDistribution::default() })
}

#[test]
fn a_delay_that_varies_without_load_is_jitter() {
    let with = |idle_rtt, trains| causes(&Figures { idle_rtt, trains, ..test("bbr", &FULL, 50.0) });
    assert_eq!(with(idle(40, 47, 53), None), [Cause::Jitter]);
    assert_eq!(with(idle(40, 41, 60), None), [], "single late answers");
    let shared = Figures { idle_rtt: idle(40, 47, 53), ..test("bbr", &POLICED, 46.0) };
    let rising = Some((BitRate(12_000_000), BitRate(35_000_000)));
    let trains = Some(TrainFigures { rising, max_passed: BitRate(35_000_000), ..TrainFigures::default() });
    let found = causes(&Figures { trains, ..shared });
    assert_eq!(found.first(), Some(&Cause::SharedPath), "other traffic varies the delay: {found:?}");
}

#[test]
fn jitter_explains_acknowledgements_that_wait() {
    let with = |idle_rtt| {
        let mut figures = test("bbr", &POLICED, 80.0);
        let waits = Some(Waits { data: 0.002, acknowledgements: 0.03 });
        figures.course.intervals.iter_mut().for_each(|at| at.waits = waits);
        causes(&Figures { idle_rtt, ..figures })
    };
    assert_eq!(with(None)[0], Cause::ReturnPath);
    assert_eq!(with(idle(40, 40, 41))[0], Cause::ReturnPath);
    assert_eq!(with(idle(40, 55, 66)), [Cause::Jitter]);
}

#[test]
fn times_without_any_answer_are_outages() {
    let with = |silent: usize, timeouts| {
        let mut figures = lose(test("bbr", &POLICED, 60.0), 200, 10);
        figures.counters.timeouts = timeouts;
        figures.silences =
            (1..=silent as u32).map(|number| SECOND * 2 * number..SECOND * 2 * number + RTT * 10).collect();
        causes(&figures)
    };
    assert!(with(2, 3).contains(&Cause::Outage));
    assert!(!with(1, 3).contains(&Cause::Outage) && !with(2, 0).contains(&Cause::Outage));
}

#[test]
fn needless_retransmissions_are_no_duplicates() {
    let with = |retransmitted| {
        let mut figures = test("bbr", &FULL, FLAT);
        (figures.counters.duplicates, figures.counters.retransmitted) = (150, retransmitted);
        causes(&figures)
    };
    assert_eq!(with(0), [Cause::Duplicates]);
    assert_eq!(with(150), []);
}
