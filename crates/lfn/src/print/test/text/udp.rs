//! Text output of a test of datagrams: the rows of the table and the lines of the summary.

use std::time::Duration;

use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::evidence::EndReason;
use lfn_results::measure::{EndReport, Interval, TestLoad, TestRequest};
use lfn_results::report::Run;
use lfn_results::udp::figures::UdpSample;
use lfn_results::udp::ramp::{RampReport, StepOutcome};

use super::datagrams::{self, percent};
use super::findings::{all_findings, missing_evidence, more_findings};
use super::layout::{Grid, paragraphs, rate_cell, time_cell, wrapped};
use crate::print::terminal::{columns, wrap_columns};

/// Columns: time, goodput, datagrams, lost, lost per cent, reordered, duplicates, jitter.
const GRID: Grid<8> =
    Grid { wide: [15, 12, 10, 8, 8, 9, 10, 8], min: [12, 10, 9, 8, 7, 9, 10, 8], dropped: &[6, 5, 2, 3, 7] };

/// Columns: step, requested, sent, received, datagrams, lost, delay, outcome.
const STEPS: Grid<8> =
    Grid { wide: [4, 12, 12, 12, 10, 8, 10, 15], min: [4, 10, 10, 10, 9, 7, 9, 14], dropped: &[4, 2, 5, 3] };

/// Returns the load in a few words.
pub(super) fn load(request: &TestRequest) -> String {
    let udp = request.udp.as_deref().cloned().unwrap_or_default();
    let bytes = udp.datagram_bytes.map(|bytes| format!(" of {bytes} B")).unwrap_or_default();
    match (&udp.ramp, request.load) {
        (Some(ramp), _) => format!("datagrams{bytes}, steps of {}", show_duration(ramp.step)),
        (None, TestLoad::TimeSeconds(time)) => {
            format!("{} of datagrams{bytes} at {} each", show_duration(time), udp.rate)
        }
        (None, TestLoad::Records(count)) => format!("{count} datagrams{bytes} at {} each", udp.rate),
        (None, TestLoad::Bytes(load)) => format!("{load} in datagrams{bytes} at {} each", udp.rate),
    }
}

/// Returns the head of the columns of [`row`].
pub(super) fn head(columns: usize) -> String {
    GRID.line(["seconds", "goodput", "datagrams", "lost", "lost %", "reordered", "duplicates", "jitter"], columns)
}

/// Returns the row of a receiver's interval; a sender's interval has only the requested rate.
pub(super) fn row(got: &Interval, columns: usize) -> String {
    let samples: Vec<&UdpSample> = got.streams.iter().filter_map(|stream| stream.udp.as_ref()).collect();
    let sum = |figure: fn(&UdpSample) -> u64| samples.iter().map(|sample| figure(sample)).sum::<u64>();
    let (datagrams, lost) = (sum(|s| s.datagrams), sum(|s| s.lost));
    let jitter = samples.iter().filter_map(|sample| sample.jitter).max().unwrap_or_default();
    let mut cells = [
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        rate_cell(Bytes(got.bytes).per(got.end.saturating_sub(got.start))),
        datagrams.to_string(),
        lost.to_string(),
        percent(lost, datagrams + lost),
        sum(|s| s.reordered).to_string(),
        sum(|s| s.duplicates).to_string(),
        time_cell(jitter),
    ];
    if samples.is_empty() {
        // The loss of iperf3's datagrams is known only at the end.
        cells[2..].fill("-".to_owned());
    }
    GRID.line(cells.each_ref().map(String::as_str), columns)
}

/// Returns the summary of a test of datagrams.
pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    let evidence = &run.evidence;
    let mut page = String::new();
    let is_ramp = evidence.request.udp.as_ref().is_some_and(|udp| udp.ramp.is_some());
    let verdict = verdict(run, is_ramp) + &missing_evidence(run);
    page += &paragraphs(&verdict, wrap_columns());
    page.push('\n');
    let goodput = format!("{} over {}", run.goodput, show_duration(run.elapsed));
    page += &wrapped("goodput", &goodput);
    page += &predicted(run);
    page += &super::load::ended(evidence.ended).map(|text| wrapped("ended", &text)).unwrap_or_default();
    page += &datagrams::received(evidence.receiver());
    if let Some(sent) = datagrams::sent(evidence.sender()) {
        page += &wrapped("sender", &format!("{sender}: {sent}"));
    }
    page += &wrapped("receiver", &format!("{receiver}: {}", buffer(evidence.receiver())));
    if let Some(server) = super::ends::server(&evidence.far) {
        page += &wrapped("server", &server);
    }
    if let Some(latency) = &evidence.latency {
        page += &super::latency::lines(latency);
    }
    let ramps = evidence.sender().streams.iter().filter_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    let result = (evidence.ended == EndReason::Completed).then_some(run.diagnosis.verdict.summary.as_str());
    ramps.for_each(|ramp| page += &ramp_lines(ramp, result, columns()));
    if let Some(path) = &evidence.path_report {
        page += &super::path::path(path);
    }
    page += &super::host::hosts(run);
    page += &datagrams::streams(evidence.sender(), evidence.receiver(), columns());
    page
}

/// Returns the limit of the test and the findings.
fn verdict(run: &Run, is_ramp: bool) -> String {
    let head = if is_ramp { "ramp".to_owned() } else { format!("goodput {}", run.goodput) };
    match all_findings(&run.diagnosis.findings) {
        Some(found) if !is_ramp => format!("{head}: {found}"),
        _ if is_ramp && run.evidence.ended != EndReason::Completed => more_findings(&run.diagnosis.findings),
        _ => format!("{head}: {}\n{}", run.diagnosis.verdict.summary, more_findings(&run.diagnosis.findings)),
    }
}

/// Returns the prediction if the capacity is known, with the measured share or the passed share of a ramp.
fn predicted(run: &Run) -> String {
    let Some((predicted, expected)) = run.diagnosis.predicted.zip(run.diagnosis.expected.as_ref()) else {
        return String::new();
    };
    let mut ramps = run.evidence.sender().streams.iter().filter_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    let (measured, verb) = match ramps.next() {
        Some(ramp) if run.evidence.ended != EndReason::Completed => {
            (ramp.highest_passed.unwrap_or_default(), "passed so far")
        }
        Some(ramp) => (ramp.highest_passed.unwrap_or_default(), "passed"),
        None => (run.goodput, "measured"),
    };
    let limit = if predicted.limit == GoodputLimit::RequestedRate { "the requested rate" } else { "capacity" };
    let share = measured.as_f64() / predicted.goodput.as_f64().max(1.0) * 100.0;
    let text = format!(
        "{} ({} to {}), limited by {limit}; {verb} {share:.1} % of it",
        predicted.goodput, expected.min, expected.max
    );
    wrapped("predicted", &text)
}

fn buffer(report: &EndReport) -> String {
    let socket = report.streams.first().and_then(|stream| stream.socket.as_ref());
    let received = || report.streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref());
    let buffer = socket.map_or("buffer unknown".into(), |socket| match socket.rcvbuf_requested_bytes {
        Some(requested) if requested > socket.rcvbuf_granted_bytes => {
            let [requested, granted] = Bytes::in_common_unit([requested, socket.rcvbuf_granted_bytes]);
            format!("receive buffer {requested} requested, {granted} granted")
        }
        _ => format!("receive buffer {}", socket.rcvbuf_granted_bytes.decimal()),
    });
    let each = if report.streams.len() > 1 { " each" } else { "" };
    let merged = received().map(|received| received.max_merged_datagrams).max().unwrap_or_default();
    let gro_text = if merged > 1 { format!("; up to {merged} datagrams merged (GRO)") } else { String::new() };
    let from_kernel = received().next().is_some() && received().all(|received| received.kernel_timestamps);
    format!(
        "{buffer}{each}{gro_text}; {}",
        if from_kernel { "timestamps of the kernel" } else { "timestamps of the reading thread" }
    )
}

/// Returns the steps and the result of a ramp; `result` is none if the ramp ended early.
pub(super) fn ramp_lines(ramp: &RampReport, result: Option<&str>, columns: usize) -> String {
    let heads = ["step", "requested", "sent", "received", "datagrams", "lost", "delay", "outcome"];
    let mut page = format!("\n{}", STEPS.line(heads, columns));
    for step in &ramp.steps {
        let outcome = match step.outcome {
            StepOutcome::Passed => "passed",
            StepOutcome::Lost => "lost",
            StepOutcome::Queued => "queue grew",
            StepOutcome::SenderLimit => "sender limit",
        };
        let grown = Duration::try_from_secs_f64(step.delay_growth_seconds.get().max(0.0)).unwrap_or_default();
        let [requested, sent, received] = BitRate::in_common_unit([step.requested, step.sent, step.received]);
        let cells = [
            step.step.to_string(),
            requested,
            sent,
            received,
            step.datagrams.to_string(),
            step.lost.to_string(),
            format!("+{}", show_duration(grown)),
            outcome.to_owned(),
        ];
        page += &STEPS.line(cells.each_ref().map(String::as_str), columns);
    }
    page + "\n" + &wrapped("ramp", &result.map_or_else(|| unfinished_ramp(ramp), str::to_owned))
}

/// Returns the result of a ramp that ended early.
fn unfinished_ramp(ramp: &RampReport) -> String {
    let known = match (ramp.highest_passed, ramp.lowest_failed) {
        (Some(highest), Some(failed)) => {
            format!("{highest} of payload passed, {failed} failed, the rates between them were not tested")
        }
        (Some(highest), None) => format!("{highest} of payload passed, higher rates were not tested"),
        (None, Some(failed)) => format!("{failed} of payload failed, lower rates were not tested"),
        (None, None) => "no result".into(),
    };
    let steps = match ramp.steps.len() {
        0 => "before the end of its first step".into(),
        1 => "after 1 step".into(),
        steps => format!("after {steps} steps"),
    };
    let begun = ramp.unfinished_step.map(|rate| format!("; the step at {rate} is unfinished"));
    format!("ended early {steps}: {known}{}", begun.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use lfn_results::measure::StreamSample;
    use lfn_results::udp::ramp::StepReport;

    use super::*;

    const WIDTHS: [usize; 4] = [40, 60, 80, 120];

    fn step(requested: u64, outcome: StepOutcome) -> StepReport {
        StepReport {
            requested: BitRate(requested),
            datagrams: 12_345_678,
            lost: 123_456,
            outcome,
            ..StepReport::default()
        }
    }

    #[test]
    fn rows_fit_the_terminal_and_show_the_loss() {
        let udp =
            UdpSample { datagrams: 12_345_678, lost: 345_678, reordered: 12, duplicates: 7, ..UdpSample::default() };
        let (start, end) = (Duration::from_secs(999), Duration::from_secs(1000));
        let streams = vec![StreamSample { udp: Some(udp), ..StreamSample::default() }];
        let got = Interval { start, end, bytes: 118_662_500, streams, ..Interval::default() };
        for (width, cells) in WIDTHS.into_iter().zip([4, 6, 8, 8]) {
            let (head, row) = (head(width), row(&got, width));
            assert!(
                head.trim_end().chars().count() <= width && row.trim_end().chars().count() <= width,
                "{width}: {row}"
            );
            assert_eq!(
                head.trim_end().chars().count(),
                row.trim_end().chars().count(),
                "columns stand under their heads"
            );
            // Heads and figures with a space count as two words.
            assert_eq!(head.split_whitespace().count(), cells + 1, "{head}");
            assert_eq!(row.split_whitespace().count(), cells + 2, "{row}");
            assert!(row.contains("949.3 Mb/s") && row.contains("2.724") && head.contains("jitter"), "{row}");
        }
    }

    #[test]
    fn steps_fit_the_terminal_and_show_the_outcome() {
        let steps = vec![step(1_000_000_000, StepOutcome::Passed), step(2_000_000_000, StepOutcome::SenderLimit)];
        let ramp = RampReport { steps, ..RampReport::default() };
        for width in WIDTHS {
            let page = ramp_lines(&ramp, Some("done"), width);
            let table: Vec<&str> = page.lines().skip(1).take(3).collect();
            assert!(table.iter().all(|line| line.chars().count() <= width), "{width}: {page}");
            assert!(table[2].contains("2 Gb/s") && table[2].ends_with("sender limit"), "{width}: {page}");
            assert_eq!(table[0].contains("datagrams"), width >= 80, "{width}: {page}");
        }
    }

    #[test]
    fn an_unfinished_ramp_reports_only_its_results() {
        let (passed, failed) = (step(64_000_000, StepOutcome::Passed), step(128_000_000, StepOutcome::Lost));
        let ramp = |highest: Option<u64>, failed: Option<u64>, steps: &[StepReport]| RampReport {
            highest_passed: highest.map(BitRate),
            lowest_failed: failed.map(BitRate),
            steps: steps.to_vec(),
            ..RampReport::default()
        };
        let last = |ramp: &RampReport| {
            let page = ramp_lines(ramp, None, 80);
            page.split("\nramp ").last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let none = ramp(None, None, &[]);
        assert_eq!(last(&none), "ended early before the end of its first step: no result");
        let low = ramp(Some(64_000_000), None, std::slice::from_ref(&passed));
        assert_eq!(last(&low), "ended early after 1 step: 64 Mb/s of payload passed, higher rates were not tested");
        let next = RampReport { unfinished_step: Some(BitRate(128_000_000)), ..low.clone() };
        assert!(last(&next).ends_with("higher rates were not tested; the step at 128 Mb/s is unfinished"));
        let between = ramp(Some(64_000_000), Some(128_000_000), &[passed, failed.clone()]);
        assert_eq!(
            last(&between),
            "ended early after 2 steps: 64 Mb/s of payload passed, 128 Mb/s failed, the rates between them were not tested"
        );
        let high = ramp(None, Some(128_000_000), &[failed]);
        assert!(last(&high).ends_with("128 Mb/s of payload failed, lower rates were not tested"));
    }
}
