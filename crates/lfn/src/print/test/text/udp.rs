//! A test of datagrams for a person: the table's head and rows, and the lines of its summary.

use std::time::Duration;

use lfn_core::report::Ended;
use lfn_core::tcp_model::Limit;
use lfn_core::udp::figures::UdpSample;
use lfn_core::udp::ramp::{Outcome, RampReport};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::test::{EndReport, Interval, Load, TestRequest};

use super::datagrams::{self, percent};
use super::layout::{Grid, paragraphs, wrapped};
use super::summary::because;
use crate::print::terminal::{breaks_at, columns};
use crate::print::test::Run;

/// Time, goodput, datagrams, lost, lost per cent, reordered, duplicates, jitter.
const GRID: Grid<8> =
    Grid { wide: [15, 12, 10, 8, 8, 9, 10, 8], least: [12, 10, 9, 8, 7, 9, 10, 8], spared: &[6, 5, 2, 3, 7] };

/// Step, asked, sent, received, datagrams, lost, delay, outcome.
const STEPS: Grid<8> =
    Grid { wide: [4, 12, 12, 12, 10, 8, 10, 15], least: [4, 10, 10, 10, 9, 7, 9, 14], spared: &[4, 2, 5, 3] };

/// What is sent, in a few words.
pub(super) fn load(request: &TestRequest) -> String {
    let udp = request.udp.as_deref().copied().unwrap_or_default();
    let bytes = udp.datagram_bytes.map(|bytes| format!(" of {bytes} B")).unwrap_or_default();
    match (udp.ramp, request.load) {
        (Some(ramp), _) => format!("datagrams{bytes}, steps of {}", show_duration(ramp.step)),
        (None, Load::TimeSeconds(time)) => format!("{} of datagrams{bytes} at {} each", show_duration(time), udp.rate),
        (None, Load::Records(count)) => format!("{count} datagrams{bytes} at {} each", udp.rate),
        (None, Load::Bytes(load)) => format!("{load} in datagrams{bytes} at {} each", udp.rate),
    }
}

/// The names over the columns of [`row`].
pub(super) fn head(columns: usize) -> String {
    GRID.line(["seconds", "goodput", "datagrams", "lost", "lost %", "reordered", "duplicates", "jitter"], columns)
}

/// An interval of the receiver; a sender's says no more than what was asked.
pub(super) fn row(got: &Interval, columns: usize) -> String {
    let samples: Vec<&UdpSample> = got.streams.iter().filter_map(|stream| stream.udp.as_ref()).collect();
    let sum = |figure: fn(&UdpSample) -> u64| samples.iter().map(|sample| figure(sample)).sum::<u64>();
    let (datagrams, lost) = (sum(|s| s.datagrams), sum(|s| s.lost));
    let jitter = samples.iter().filter_map(|sample| sample.jitter).max().unwrap_or_default();
    let mut cells = [
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        Bytes(got.bytes).per(got.end.saturating_sub(got.start)).to_string(),
        datagrams.to_string(),
        lost.to_string(),
        percent(lost, datagrams + lost),
        sum(|s| s.reordered).to_string(),
        sum(|s| s.duplicates).to_string(),
        show_duration(jitter),
    ];
    if samples.is_empty() {
        // What iperf3's datagrams came to is known at the end alone.
        cells[2..].fill("-".to_owned());
    }
    GRID.line(cells.each_ref().map(String::as_str), columns)
}

/// What it came to.
pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    let measurement = &run.measurement;
    let mut page = String::new();
    let goodput = format!("{} over {}", run.evidence.goodput, show_duration(run.evidence.elapsed));
    page += &wrapped("goodput", &goodput);
    page += &predicted(run);
    page += &super::load::ended(measurement.ended).map(|text| wrapped("ended", &text)).unwrap_or_default();
    page += &datagrams::received(measurement.receiver());
    if let Some(sent) = datagrams::sent(measurement.sender()) {
        page += &wrapped("sender", &format!("{sender}: {sent}"));
    }
    page += &wrapped("receiver", &format!("{receiver}: {}", buffer(measurement.receiver())));
    if let Some(server) = super::ends::server(&measurement.far) {
        page += &wrapped("server", &server);
    }
    if let Some(latency) = &measurement.latency {
        page += &super::latency::lines(latency);
    }
    let ramps = measurement.sender().streams.iter().filter_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    ramps.for_each(|ramp| page += &ramp_lines(ramp, measurement.ended == Ended::Done, columns()));
    if let Some(path) = &measurement.path {
        page += &super::path::path(path);
    }
    page += &super::host::hosts(run);
    page += &datagrams::streams(measurement.sender(), measurement.receiver(), columns());
    let found: String = run.findings.iter().map(because).collect();
    if !found.is_empty() {
        page += &format!("\n{}", paragraphs(&found, breaks_at()));
    }
    page
}

/// What the path should carry of it, where its capacity is known; of a ramp beside what passed.
fn predicted(run: &Run) -> String {
    let Some((predicted, expected)) = run.predicted.zip(run.expected.as_ref()) else { return String::new() };
    let mut ramps = run.measurement.sender().streams.iter().filter_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    let (measured, of) = match ramps.next() {
        Some(ramp) if run.measurement.ended != Ended::Done => (ramp.highest.unwrap_or_default(), "passed so far"),
        Some(ramp) => (ramp.highest.unwrap_or_default(), "passed"),
        None => (run.evidence.goodput, "measured"),
    };
    let limit = if predicted.limit == Limit::Asked { "the rate asked" } else { "capacity" };
    let share = measured.as_f64() / predicted.goodput.as_f64().max(1.0) * 100.0;
    let text = format!(
        "{} ({} to {}), limited by {limit}; {share:.1} % of it {of}",
        predicted.goodput, expected.least, expected.most
    );
    wrapped("predicted", &text)
}

fn buffer(report: &EndReport) -> String {
    let socket = report.streams.first().and_then(|stream| stream.socket.as_ref());
    let received = || report.streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref());
    let buffer = socket.map_or("buffer not known".into(), |socket| match socket.rcvbuf_asked_bytes {
        Some(asked) if asked > socket.rcvbuf_granted_bytes => {
            let [asked, granted] = Bytes::alike([asked, socket.rcvbuf_granted_bytes]);
            format!("receive buffer {asked} asked, {granted} granted")
        }
        _ => format!("receive buffer {}", socket.rcvbuf_granted_bytes.decimal()),
    });
    let each = if report.streams.len() > 1 { " each" } else { "" };
    let merged = received().map(|received| received.merged).max().unwrap_or_default();
    let gro = if merged > 1 { format!("; up to {merged} datagrams merged (GRO)") } else { String::new() };
    let stamps = received().next().is_some() && received().all(|received| received.kernel_stamps);
    format!("{buffer}{each}{gro}; {}", if stamps { "times are the kernel's" } else { "times are the reading thread's" })
}

/// The steps, and what they come to; `whole` if nothing broke it off.
pub(super) fn ramp_lines(ramp: &RampReport, whole: bool, columns: usize) -> String {
    let heads = ["step", "asked", "sent", "received", "datagrams", "lost", "delay", "outcome"];
    let mut page = format!("\n{}", STEPS.line(heads, columns));
    for step in &ramp.steps {
        let outcome = match step.outcome {
            Outcome::Passed => "passed",
            Outcome::Lost => "lost",
            Outcome::Queued => "queue grew",
            Outcome::SenderLimit => "sender's limit",
        };
        let grown = Duration::try_from_secs_f64(step.delay_growth_seconds.get().max(0.0)).unwrap_or_default();
        let [asked, sent, received] = BitRate::alike([step.asked, step.sent, step.received]);
        let cells = [
            step.step.to_string(),
            asked,
            sent,
            received,
            step.datagrams.to_string(),
            step.lost.to_string(),
            format!("+{}", show_duration(grown)),
            outcome.to_owned(),
        ];
        page += &STEPS.line(cells.each_ref().map(String::as_str), columns);
    }
    page + "\n" + &wrapped("ramp", &if whole { found(ramp) } else { broken_off(ramp) })
}

/// What a ramp that came to its end says.
fn found(ramp: &RampReport) -> String {
    let rate = |rate: BitRate| format!("{rate} of payload");
    match (ramp.highest, ramp.onset, ramp.sender_limit) {
        (Some(highest), _, true) => format!("at least {}: the sender could do no more", rate(highest)),
        (Some(highest), Some(onset), _) => format!("{} passes, {onset} does not", rate(highest)),
        (Some(highest), None, _) => format!("{} passes, the highest rate asked for", rate(highest)),
        (None, onset, _) => {
            let least = onset.map(|onset| format!(" down to {onset}")).unwrap_or_default();
            format!(
                "datagrams were lost at every rate{least}: --loss-allowed takes loss that does not come of the rate"
            )
        }
    }
}

/// What is known of one that was not let go on.
fn broken_off(ramp: &RampReport) -> String {
    let known = match (ramp.highest, ramp.onset) {
        (Some(highest), Some(onset)) => {
            format!("{highest} of payload passes, {onset} does not, and between them the ramp was not done")
        }
        (Some(highest), None) => format!("{highest} of payload passes, and no step above it was done"),
        (None, Some(onset)) => format!("{onset} of payload does not pass, and no step below it was done"),
        (None, None) => "nothing is known yet".into(),
    };
    let steps = match ramp.steps.len() {
        0 => "before its first step was done".into(),
        1 => "after 1 step".into(),
        steps => format!("after {steps} steps"),
    };
    let begun = ramp.begun.map(|rate| format!("; {rate} had been begun, of which nothing is known"));
    format!("broken off {steps}: {known}{}", begun.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use lfn_core::udp::ramp::StepReport;
    use lfn_core::wire::test::StreamSample;

    use super::*;

    const WIDTHS: [usize; 4] = [40, 60, 80, 120];

    fn step(asked: u64, outcome: Outcome) -> StepReport {
        StepReport { asked: BitRate(asked), datagrams: 12_345_678, lost: 123_456, outcome, ..StepReport::default() }
    }

    #[test]
    fn rows_fit_the_terminal_and_tell_the_loss_in_any() {
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
            assert_eq!(head.trim_end().len(), row.trim_end().len(), "columns stand under their heads");
            // A space within "lost %" and two of figures with units.
            assert_eq!(head.split_whitespace().count(), cells + 1, "{head}");
            assert_eq!(row.split_whitespace().count(), cells + 2, "{row}");
            assert!(row.contains("949.3 Mb/s") && row.contains("2.724") && head.contains("jitter"), "{row}");
        }
    }

    #[test]
    fn steps_fit_the_terminal_and_tell_the_outcome_in_any() {
        let steps = vec![step(1_000_000_000, Outcome::Passed), step(2_000_000_000, Outcome::SenderLimit)];
        let ramp = RampReport { steps, ..RampReport::default() };
        for width in WIDTHS {
            let page = ramp_lines(&ramp, true, width);
            let table: Vec<&str> = page.lines().skip(1).take(3).collect();
            assert!(table.iter().all(|line| line.chars().count() <= width), "{width}: {page}");
            assert!(table[2].contains("2 Gb/s") && table[2].ends_with("sender's limit"), "{width}: {page}");
            assert_eq!(table[0].contains("datagrams"), width >= 80, "{width}: {page}");
        }
    }

    #[test]
    fn a_ramp_that_was_broken_off_says_so_and_no_more_than_it_knows() {
        let (passed, failed) = (step(64_000_000, Outcome::Passed), step(128_000_000, Outcome::Lost));
        let ramp = |highest: Option<u64>, onset: Option<u64>, steps: &[StepReport]| RampReport {
            highest: highest.map(BitRate),
            onset: onset.map(BitRate),
            steps: steps.to_vec(),
            ..RampReport::default()
        };
        let last = |ramp: &RampReport, whole| {
            let page = ramp_lines(ramp, whole, 80);
            page.split("\nramp ").last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let none = ramp(None, None, &[]);
        assert_eq!(last(&none, false), "broken off before its first step was done: nothing is known yet");
        assert!(last(&none, true).starts_with("datagrams were lost at every rate"));
        let low = ramp(Some(64_000_000), None, &[passed]);
        assert_eq!(
            last(&low, false),
            "broken off after 1 step: 64 Mb/s of payload passes, and no step above it was done"
        );
        let next = RampReport { begun: Some(BitRate(128_000_000)), ..low.clone() };
        assert!(
            last(&next, false)
                .ends_with("no step above it was done; 128 Mb/s had been begun, of which nothing is known")
        );
        assert_eq!(last(&low, true), "64 Mb/s of payload passes, the highest rate asked for");
        let between = ramp(Some(64_000_000), Some(128_000_000), &[passed, failed]);
        assert_eq!(
            last(&between, false),
            "broken off after 2 steps: 64 Mb/s of payload passes, 128 Mb/s does not, and between them the ramp was not done"
        );
        let high = ramp(None, Some(128_000_000), &[failed]);
        assert!(last(&high, false).ends_with("128 Mb/s of payload does not pass, and no step below it was done"));
    }
}
