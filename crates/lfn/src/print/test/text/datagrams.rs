//! Figures of both ends of a test of datagrams, for all streams together: totals, or the minimum and the maximum. With
//! several streams, a table below has the figures of each stream.

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use lfn_results::measure::EndReport;
use lfn_results::udp::figures::{Quantiles, RunCount, UdpReceived, UdpSent};

use super::layout::{Grid, wrapped};

/// Columns: stream, sent, datagrams, lost, lost per cent, reordered, duplicates, jitter.
const STREAMS: Grid<8> =
    Grid { wide: [6, 12, 10, 8, 8, 9, 10, 10], min: [6, 10, 9, 8, 7, 9, 10, 8], dropped: &[6, 5, 2, 3, 7] };

/// Maximum number of burst lengths that are listed.
const MAX_LENGTHS: usize = 6;

/// Returns the figures of the receiver; empty if it does not report them.
pub(super) fn received(report: &EndReport) -> String {
    let all: Vec<&UdpReceived> =
        report.streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref()).collect();
    if all.is_empty() {
        return String::new();
    }
    let sum =
        |figure: fn(&UdpReceived) -> u64| all.iter().map(|received| figure(received)).fold(0, u64::saturating_add);
    let (datagrams, lost) = (sum(|r| r.datagrams), sum(|r| r.lost));
    let share = percent(lost, datagrams.saturating_add(lost));
    let mut page = wrapped("received", &format!("{datagrams} datagrams, {lost} lost ({share} %)"));
    if lost > 0 {
        let max_burst = all.iter().map(|received| received.max_loss_burst).max().unwrap_or(0);
        page += &wrapped("loss", &format!("in bursts: {}; maximum {max_burst}{}", bursts(&all), receiver_drops(&all)));
    }
    let (reordered, duplicates, too_late) = (sum(|r| r.reordered), sum(|r| r.duplicates), sum(|r| r.too_late));
    if reordered.saturating_add(duplicates).saturating_add(too_late) > 0 {
        let extent = all.iter().map(|received| received.max_reordering_extent).max().unwrap_or(0);
        let by_three = sum(|r| r.reordered_by_three);
        let order = format!("{reordered} out of order, maximum extent {extent} ({by_three} by three or more)");
        page += &wrapped("order", &format!("{order}; {duplicates} duplicates; {too_late} too late to classify"));
    }
    page + &wrapped("jitter", &jitter(&all))
}

/// Returns the number of bursts of each length, the shortest first.
fn bursts(all: &[&UdpReceived]) -> String {
    let mut merged: Vec<RunCount> = Vec::new();
    for run in all.iter().flat_map(|received| &received.loss_bursts) {
        match merged.iter_mut().find(|known| (known.from, known.to) == (run.from, run.to)) {
            Some(known) => known.count = known.count.saturating_add(run.count),
            None => merged.push(*run),
        }
    }
    merged.sort_by_key(|run| run.from);
    let texts: Vec<String> = merged
        .iter()
        .take(MAX_LENGTHS)
        .map(|run| {
            if run.from == run.to {
                format!("{} of {}", run.count, run.from)
            } else {
                format!("{} of {}-{}", run.count, run.from, run.to)
            }
        })
        .collect();
    texts.join(", ")
}

fn jitter(all: &[&UdpReceived]) -> String {
    let variations: Vec<Quantiles> = all.iter().filter_map(|received| received.delay_variation).collect();
    let of = |figure: fn(&Quantiles) -> Duration| span(variations.iter().map(figure));
    let variation_text = if variations.is_empty() {
        String::new()
    } else {
        format!(
            "; from one datagram to the next {} median, {} p99, {} max",
            of(|v| v.p50),
            of(|v| v.p99),
            show_duration(variations.iter().map(|v| v.max).max().unwrap_or_default())
        )
    };
    format!("{} (RFC 3550){variation_text}", span(all.iter().map(|received| received.jitter)))
}

/// Returns the part of the loss in the receiver's own buffer.
fn receiver_drops(all: &[&UdpReceived]) -> String {
    let overflows: Option<u64> =
        all.iter().map(|received| received.overflows).try_fold(0u64, |sum, one| Some(sum.saturating_add(one?)));
    let (min, max) = all
        .iter()
        .map(|received| received.own_loss())
        .fold((0u64, 0u64), |sum, drops| (sum.0.saturating_add(drops.0), sum.1.saturating_add(drops.1)));
    match overflows {
        None => "; unknown if the receiver's buffer overflowed".into(),
        Some(0) => "; none of it in the receiver's buffer".into(),
        Some(_) if min == max => format!("; {min} of it in the receiver's own buffer, not on the path"),
        Some(_) => format!("; {min} to {max} of it in the receiver's own buffer, not on the path"),
    }
}

/// Returns the figures of the sender; none if it does not report them.
pub(super) fn sent(report: &EndReport) -> Option<String> {
    let streams = || report.streams.iter().filter_map(|stream| stream.udp.as_ref());
    let all: Vec<&UdpSent> = streams().filter_map(|udp| udp.sent.as_ref()).collect();
    let first = all.first()?;
    let mut text = rates(&all, first, streams().any(|udp| udp.ramp.is_some()));
    let behind_schedule = all.iter().map(|sent| sent.behind_schedule_share.get()).fold(0.0, f64::max);
    if behind_schedule > 0.0 {
        text += &format!("; behind schedule {}{:.1} % of the time", up_to(&all), behind_schedule * 100.0);
    }
    let skipped = all.iter().map(|sent| sent.skipped).max().unwrap_or_default();
    if !skipped.is_zero() {
        text += &format!(", {}{} of the schedule skipped", up_to(&all), show_duration(skipped));
    }
    let how = if all.iter().all(|sent| sent.gso) { " segmented by the kernel (GSO)" } else { "" };
    text += &match all.iter().map(|sent| sent.burst_datagrams).max() {
        Some(1) | None => "; one at a time".to_owned(),
        Some(burst) => format!("; bursts of {}{burst}{how}", up_to_if(&all, |sent| sent.burst_datagrams)),
    };
    let lateness: Vec<Quantiles> = all.iter().filter_map(|sent| sent.lateness).collect();
    if !lateness.is_empty() {
        let of = |figure: fn(&Quantiles) -> Duration| span(lateness.iter().map(figure));
        text += &format!(", lateness {} median, {} p99", of(|late| late.p50), of(|late| late.p99));
    }
    let queue_full = all.iter().map(|sent| sent.queue_full).fold(0, u64::saturating_add);
    if queue_full > 0 {
        text += &format!("; this host's own queue was full {queue_full} times");
    }
    if all.iter().any(|sent| sent.gso_refused) {
        text += "; GSO refused by the device";
    }
    Some(text + if all.iter().all(|sent| sent.dont_fragment) { "; DF set" } else { "; may be fragmented" })
}

/// Returns the number of datagrams and the requested and achieved rates.
fn rates(all: &[&UdpSent], first: &UdpSent, ramp: bool) -> String {
    /// Minimum achieved share of the requested rate, without a remark.
    const MIN_RATE_SHARE: f64 = 0.995;
    let datagrams = all.iter().map(|sent| sent.datagrams).fold(0, u64::saturating_add);
    let sum = |rate: fn(&UdpSent) -> BitRate| BitRate(all.iter().map(|sent| rate(sent).0).fold(0, u64::saturating_add));
    let (requested, achieved) = (sum(|sent| sent.requested), sum(|sent| sent.achieved));
    let limit = all.iter().any(|sent| sent.limit.is_some()).then(|| sum(|sent| sent.limit.unwrap_or(sent.requested)));
    let [requested, achieved, allowed] = BitRate::in_common_unit([requested, achieved, limit.unwrap_or(requested)]);
    let limit = limit.map(|_| format!(", {allowed} allowed by the server")).unwrap_or_default();
    let streams = if all.len() > 1 { format!(" over {} streams", all.len()) } else { String::new() };
    let sent_text = format!("{datagrams} datagrams of {} B{streams}", first.datagram_bytes);
    if ramp {
        return sent_text + &limit;
    }
    let slow = all.iter().filter(|sent| !sent.reached(MIN_RATE_SHARE)).count();
    let slow = match (slow, all.len()) {
        (0, _) => String::new(),
        (_, 1) => ": the sender could not keep the rate".into(),
        (slow, all) => format!(": {slow} of {all} streams could not keep the rate"),
    };
    format!("{sent_text}, {requested} requested{limit}, {achieved} sent{slow}")
}

/// Returns a table of the streams if there are several, with figures of both ends.
pub(super) fn streams(sender: &EndReport, receiver: &EndReport, columns: usize) -> String {
    if receiver.streams.len() < 2 {
        return String::new();
    }
    let heads = ["stream", "sent", "datagrams", "lost", "lost %", "reordered", "duplicates", "jitter"];
    let mut page = format!("\n{}", STREAMS.line(heads, columns));
    for stream in &receiver.streams {
        let Some(received) = stream.udp.as_ref().and_then(|udp| udp.received.as_ref()) else { continue };
        let sent = sender.streams.iter().find(|sent| sent.stream == stream.stream);
        let sent = sent.and_then(|sent| sent.udp.as_ref()?.sent.as_ref());
        let cells = [
            stream.stream.to_string(),
            sent.map_or("-".into(), |sent| sent.achieved.to_string()),
            received.datagrams.to_string(),
            received.lost.to_string(),
            percent(received.lost, received.datagrams.saturating_add(received.lost)),
            received.reordered.to_string(),
            received.duplicates.to_string(),
            show_duration(received.jitter),
        ];
        page += &STREAMS.line(cells.each_ref().map(String::as_str), columns);
    }
    page
}

/// Returns the minimum and the maximum, or one value if they are equal.
fn span(times: impl Iterator<Item = Duration> + Clone) -> String {
    let (min, max) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
    let (min, max) = (show_duration(min), show_duration(max));
    if min == max { max } else { format!("{min} to {max}") }
}

/// Returns a prefix for the worst figure of several streams.
fn up_to(all: &[&UdpSent]) -> &'static str {
    if all.len() > 1 { "up to " } else { "" }
}

/// Returns the prefix unless all streams have the same figure.
fn up_to_if(all: &[&UdpSent], figure: fn(&UdpSent) -> u32) -> &'static str {
    if all.iter().all(|sent| figure(sent) == figure(all[0])) { "" } else { "up to " }
}

/// Returns a share in per cent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0".into() } else { format!("{:.3}", part as f64 / whole as f64 * 100.0) }
}

#[cfg(test)]
mod tests {
    use lfn_results::measure::StreamReport;
    use lfn_results::udp::figures::UdpFigures;

    use super::*;

    /// Reports of streams with these received and lost datagrams and this jitter in microseconds.
    fn ends(of: &[(u64, u64, u64)]) -> (EndReport, EndReport) {
        let report = |udp: fn(&(u64, u64, u64)) -> UdpFigures| EndReport {
            streams: (0..)
                .zip(of)
                .map(|(stream, figures)| StreamReport {
                    stream,
                    udp: Some(Box::new(udp(figures))),
                    ..StreamReport::default()
                })
                .collect(),
            ..EndReport::default()
        };
        let sender = report(|&(received, lost, _)| {
            let requested = BitRate(1_000_000);
            let achieved = BitRate(if lost > 0 { 900_000 } else { 999_990 });
            let (datagrams, datagram_bytes) = (received + lost, 1448);
            UdpFigures {
                sent: Some(UdpSent { datagrams, datagram_bytes, requested, achieved, ..UdpSent::default() }),
                ..UdpFigures::default()
            }
        });
        let receiver = report(|&(datagrams, lost, jitter)| {
            let loss_bursts = if lost > 0 { vec![RunCount { from: 1, to: 1, count: lost }] } else { vec![] };
            let jitter = Duration::from_micros(jitter);
            let received =
                UdpReceived { datagrams, lost, jitter, loss_bursts, overflows: Some(0), ..UdpReceived::default() };
            UdpFigures { received: Some(received), ..UdpFigures::default() }
        });
        (sender, receiver)
    }

    #[test]
    fn one_stream_is_printed_without_a_table() {
        let (sender, receiver) = ends(&[(1000, 0, 12)]);
        assert_eq!(received(&receiver), "received    1000 datagrams, 0 lost (0.000 %)\njitter      12 µs (RFC 3550)\n");
        assert_eq!(
            sent(&sender).unwrap(),
            "1000 datagrams of 1448 B, 1 Mb/s requested, 1 Mb/s sent; bursts of 0; may be fragmented"
        );
        assert_eq!(streams(&sender, &receiver, 80), "");
    }

    #[test]
    fn several_streams_are_printed_together_and_in_a_table() {
        let (sender, receiver) = ends(&[(1000, 0, 12), (990, 10, 40), (995, 5, 12)]);
        let printed = received(&receiver);
        assert_eq!(printed.matches("received").count(), 1, "{printed}");
        assert!(printed.contains("2985 datagrams, 15 lost (0.500 %)"), "{printed}");
        assert!(printed.contains("in bursts: 15 of 1;"), "{printed}");
        assert!(printed.contains("12 µs to 40 µs (RFC 3550)"), "{printed}");
        let printed = sent(&sender).unwrap();
        let begins = "3000 datagrams of 1448 B over 3 streams, 3 Mb/s requested, 2.8 Mb/s sent: 2 of 3 streams could not keep the rate";
        assert!(printed.starts_with(begins), "{printed}");
        for columns in [40, 60, 80, 120] {
            let table = streams(&sender, &receiver, columns);
            assert_eq!(table.lines().count(), 5, "{table}");
            assert!(table.lines().all(|line| line.chars().count() <= columns), "{columns}: {table}");
            assert!(table.contains("0.9 Mb/s") || table.contains("900 kb/s"), "{table}");
            assert!(table.lines().nth(3).is_some_and(|line| line.contains(" 1 ") && line.contains("1.000")), "{table}");
        }
    }
}
