//! Goodput, RTT and congestion window over time of one run, whatever program measured it.

use lfn_plot::Point;
use lfn_results::report::{Iperf3Course, Iperf3Interval, Run};

use super::{Step, seconds, step_line};

/// Course of one run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunCourse {
    pub(super) name: String,
    pub(super) goodput: Vec<Point>,
    /// Goodput of the intervals, bit/s.
    pub(super) rates: Vec<f64>,
    pub(super) rtt: Vec<Point>,
    pub(super) congestion_window: Vec<Point>,
    /// Goodput of the whole run in one phrase.
    pub(super) summary: String,
}

impl RunCourse {
    pub(super) fn of_run(name: String, run: &Run) -> Self {
        let steps = run.intervals.iter().map(|interval| Step {
            from: seconds(interval.start),
            to: seconds(interval.end),
            value: interval.goodput.as_f64(),
        });
        let (mut rtt, mut congestion_window) = (Vec::new(), Vec::new());
        for interval in &run.evidence.sender().intervals {
            let infos: Vec<_> = interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref()).collect();
            let x = seconds(interval.placed().1);
            if let Some(highest) = infos.iter().map(|info| info.rtt).max() {
                rtt.push(Point { x, y: seconds(highest) });
                let sum: u64 = infos.iter().map(|info| info.cwnd().0).fold(0, u64::saturating_add);
                congestion_window.push(Point { x, y: sum as f64 });
            }
        }
        let goodput = step_line(&steps.collect::<Vec<_>>());
        let rates = run.intervals.iter().map(|interval| interval.goodput.as_f64()).collect();
        RunCourse { name, goodput, rates, rtt, congestion_window, summary: run.goodput.to_string() }
    }

    pub(super) fn of_iperf3(name: String, course: &Iperf3Course) -> Self {
        let steps = course.intervals.iter().map(|interval| Step {
            from: interval.start_seconds,
            to: interval.end_seconds,
            value: interval.bits_per_second,
        });
        let known = |figure: fn(&Iperf3Interval) -> Option<f64>| -> Vec<Point> {
            let points = course.intervals.iter();
            points.filter_map(|interval| Some(Point { x: interval.end_seconds, y: figure(interval)? })).collect()
        };
        RunCourse {
            name,
            goodput: step_line(&steps.collect::<Vec<_>>()),
            rates: course.intervals.iter().map(|interval| interval.bits_per_second).collect(),
            rtt: known(|interval| interval.rtt_seconds),
            congestion_window: known(|interval| interval.cwnd_bytes),
            summary: course.goodput.to_string(),
        }
    }
}
