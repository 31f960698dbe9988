//! A test of datagrams for a person: the table's head and rows, and the lines of its summary.

use std::time::Duration;

use lfn_core::tcp_model::Limit;
use lfn_core::udp::figures::{Received, Sent, UdpSample};
use lfn_core::udp::ramp::{Outcome, RampReport};
use lfn_core::units::{BitRate, Bytes, Ratio, show_duration};
use lfn_core::wire::test::{EndReport, Interval, Load, StreamReport, TestRequest};

use super::layout::{paragraphs, wrapped};
use super::summary::because;
use crate::print::terminal::breaks_at;
use crate::print::test::Run;

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

pub(super) fn head() -> String {
    format!(
        "{:>15} {:>12} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "seconds", "goodput", "datagrams", "lost", "lost %", "late", "twice", "jitter"
    )
}

/// An interval of the receiver; a sender's says no more than what was asked.
pub(super) fn row(_sent: &Interval, got: &Interval) -> String {
    let samples: Vec<&UdpSample> = got.streams.iter().filter_map(|stream| stream.udp.as_ref()).collect();
    let sum = |figure: fn(&UdpSample) -> u64| samples.iter().map(|sample| figure(sample)).sum::<u64>();
    let (datagrams, lost) = (sum(|s| s.datagrams), sum(|s| s.lost));
    let jitter = samples.iter().filter_map(|sample| sample.jitter).max().unwrap_or_default();
    format!(
        "{:>15} {:>12} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        Bytes(got.bytes).per(got.end.saturating_sub(got.start)).to_string(),
        datagrams,
        lost,
        percent(lost, datagrams + lost),
        sum(|s| s.reordered),
        sum(|s| s.duplicates),
        show_duration(jitter),
    )
}

/// What it came to.
pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    let measurement = &run.measurement;
    let mut page = String::from("\n");
    let goodput = format!("{} over {}", run.evidence.goodput, show_duration(run.evidence.elapsed));
    page += &wrapped("goodput", &goodput);
    page += &predicted(run);
    for stream in &measurement.receiver().streams {
        if let Some(received) = stream.udp.as_ref().and_then(|udp| udp.received.as_ref()) {
            page += &received_lines(stream, received, measurement.receiver().streams.len() > 1);
        }
    }
    for stream in &measurement.sender().streams {
        if let Some(sent) = stream.udp.as_ref().and_then(|udp| udp.sent.as_ref()) {
            page += &wrapped(
                "sender",
                &format!("{sender}: {}", sent_line(sent, stream.udp.as_ref().is_some_and(|udp| udp.ramp.is_some()))),
            );
        }
    }
    page += &wrapped("receiver", &format!("{receiver}: {}", buffer(measurement.receiver())));
    if let Some(server) = super::ends::server(&measurement.far) {
        page += &wrapped("server", &server);
    }
    if let Some(latency) = &measurement.latency {
        page += &super::latency::lines(latency);
    }
    let ramps = measurement.sender().streams.iter().filter_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    ramps.for_each(|ramp| page += &ramp_lines(ramp));
    if let Some(path) = &measurement.path {
        page += &super::path::path(path);
    }
    page += &super::host::hosts(run);
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

fn received_lines(stream: &StreamReport, received: &Received, several: bool) -> String {
    let which = if several { format!("stream {}: ", stream.stream) } else { String::new() };
    let share = percent(received.lost, received.datagrams + received.lost);
    let mut page =
        wrapped("received", &format!("{which}{} datagrams, {} lost ({share} %)", received.datagrams, received.lost));
    if received.lost > 0 {
        let runs: Vec<String> = received
            .loss_bursts
            .iter()
            .take(6)
            .map(|run| {
                let length = if run.from == run.to { run.from.to_string() } else { format!("{}-{}", run.from, run.to) };
                format!("{} of {length}", run.count)
            })
            .collect();
        page += &wrapped(
            "loss",
            &format!("in bursts: {}; the longest {}{}", runs.join(", "), received.longest_burst, own(received)),
        );
    }
    if received.reordered + received.duplicates + received.too_late > 0 {
        page += &wrapped(
            "order",
            &format!(
                "{} came late, by {} at most ({} by three or more); {} came twice; {} too late to say",
                received.reordered,
                received.most_extent,
                received.reordered_by_three,
                received.duplicates,
                received.too_late
            ),
        );
    }
    let spread = received
        .variation
        .map(|v| {
            format!(
                "; from one to the next {} median, {} p99, {} most",
                show_duration(v.p50),
                show_duration(v.p99),
                show_duration(v.most)
            )
        })
        .unwrap_or_default();
    page += &wrapped("jitter", &format!("{} (RFC 3550){spread}", show_duration(received.jitter)));
    page
}

/// What of the loss is the receiver's own doing.
fn own(received: &Received) -> String {
    match (received.overflows, received.own_loss()) {
        (None, _) => "; whether the receiver's buffer overflowed is not known".into(),
        (Some(0), _) => "; none of it in the receiver's buffer".into(),
        (_, (least, most)) if least == most => format!("; {least} of it in the receiver's own buffer, not on the path"),
        (_, (least, most)) => format!("; {least} to {most} of it in the receiver's own buffer, not on the path"),
    }
}

fn sent_line(sent: &Sent, ramp: bool) -> String {
    /// Less than this share of what was asked is worth a word.
    const KEPT: f64 = 0.995;
    let limit = sent.limit.map(|limit| format!(", {limit} allowed by the server")).unwrap_or_default();
    let mut text = format!(
        "{} datagrams of {} B, {} asked{limit}, {} sent",
        sent.datagrams, sent.datagram_bytes, sent.asked, sent.achieved
    );
    if ramp {
        text = format!("{} datagrams of {} B{limit}", sent.datagrams, sent.datagram_bytes);
    } else if !sent.kept(KEPT) {
        text += ": it could not keep the rate";
    }
    if sent.behind_share > Ratio::NONE {
        text += &format!("; behind {:.1} % of the time", sent.behind_share.get() * 100.0);
    }
    if !sent.given_up.is_zero() {
        text += &format!(", {} given up", show_duration(sent.given_up));
    }
    let how = if sent.gso { " cut by the kernel (GSO)" } else { "" };
    text += &match sent.burst_datagrams {
        1 => "; one at a time".to_owned(),
        burst => format!("; bursts of {burst}{how}"),
    };
    if let Some(late) = sent.lateness {
        text += &format!(", late by {} median, {} p99", show_duration(late.p50), show_duration(late.p99));
    }
    if sent.queue_full > 0 {
        text += &format!("; {} times this host's own queue was full", sent.queue_full);
    }
    if sent.gso_refused {
        text += "; GSO refused by the device";
    }
    text + if sent.dont_fragment { "; DF set" } else { "; may be fragmented" }
}

fn buffer(report: &EndReport) -> String {
    let socket = report.streams.first().and_then(|stream| stream.socket.as_ref());
    let received = report.streams.first().and_then(|stream| stream.udp.as_ref()?.received.as_ref());
    let buffer = socket.map_or("buffer not known".into(), |socket| match socket.rcvbuf_asked_bytes {
        Some(asked) if asked > socket.rcvbuf_granted_bytes => {
            format!("receive buffer {asked} asked, {} granted", socket.rcvbuf_granted_bytes)
        }
        _ => format!("receive buffer {}", socket.rcvbuf_granted_bytes),
    });
    let merged = received.map(|received| received.merged).unwrap_or_default();
    let gro = if merged > 1 { format!("; up to {merged} datagrams merged (GRO)") } else { String::new() };
    let stamps = received.is_some_and(|received| received.kernel_stamps);
    format!("{buffer}{gro}; {}", if stamps { "times are the kernel's" } else { "times are the reading thread's" })
}

fn ramp_lines(ramp: &RampReport) -> String {
    let mut page = format!(
        "\n{:>4} {:>12} {:>12} {:>12} {:>10} {:>8} {:>10}  {}\n",
        "step", "asked", "sent", "received", "datagrams", "lost", "delay", "outcome"
    );
    for step in &ramp.steps {
        let outcome = match step.outcome {
            Outcome::Passed => "passed",
            Outcome::Lost => "lost",
            Outcome::Queued => "queue grew",
            Outcome::SenderLimit => "sender's limit",
        };
        let grown = Duration::try_from_secs_f64(step.delay_growth_seconds.get().max(0.0)).unwrap_or_default();
        page += &format!(
            "{:>4} {:>12} {:>12} {:>12} {:>10} {:>8} {:>10}  {outcome}\n",
            step.step,
            step.asked.to_string(),
            step.sent.to_string(),
            step.received.to_string(),
            step.datagrams,
            step.lost,
            format!("+{}", show_duration(grown)),
        );
    }
    let rate = |rate: BitRate| format!("{rate} of payload");
    page += "\n";
    page += &match (ramp.highest, ramp.onset, ramp.sender_limit) {
        (Some(highest), _, true) => {
            wrapped("ramp", &format!("at least {}: the sender could do no more", rate(highest)))
        }
        (Some(highest), Some(onset), _) => wrapped("ramp", &format!("{} passes, {onset} does not", rate(highest))),
        (Some(highest), None, _) => wrapped("ramp", &format!("{} passes, the highest rate asked for", rate(highest))),
        (None, onset, _) => {
            let least = onset.map(|onset| format!(" down to {onset}")).unwrap_or_default();
            wrapped(
                "ramp",
                &format!(
                    "datagrams were lost at every rate{least}: --loss-allowed takes loss that does not come of the rate"
                ),
            )
        }
    };
    page
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0".into() } else { format!("{:.3}", part as f64 / whole as f64 * 100.0) }
}
