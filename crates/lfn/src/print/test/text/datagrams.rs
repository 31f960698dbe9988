//! What both ends of a test of datagrams did, in lines of all streams together: totals of what can be added, and the
//! least and the most of what cannot. What each stream came to is a table below, where there are several.

use std::time::Duration;

use lfn_core::udp::figures::{Quantiles, Received, Sent};
use lfn_core::udp::runs::RunCount;
use lfn_core::units::{BitRate, show_duration};
use lfn_core::wire::test::EndReport;

use super::layout::{Grid, wrapped};

/// Stream, sent, datagrams, lost, lost per cent, reordered, duplicates, jitter.
const STREAMS: Grid<8> =
    Grid { wide: [6, 12, 10, 8, 8, 9, 10, 10], least: [6, 10, 9, 8, 7, 9, 10, 8], spared: &[6, 5, 2, 3, 7] };

/// Lengths of loss bursts that are told.
const MOST_LENGTHS: usize = 6;

/// What the receiver saw; nothing of one that does not tell.
pub(super) fn received(report: &EndReport) -> String {
    let all: Vec<&Received> =
        report.streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref()).collect();
    if all.is_empty() {
        return String::new();
    }
    let sum = |figure: fn(&Received) -> u64| all.iter().map(|received| figure(received)).fold(0, u64::saturating_add);
    let (datagrams, lost) = (sum(|r| r.datagrams), sum(|r| r.lost));
    let share = percent(lost, datagrams.saturating_add(lost));
    let mut page = wrapped("received", &format!("{datagrams} datagrams, {lost} lost ({share} %)"));
    if lost > 0 {
        let longest = all.iter().map(|received| received.longest_burst).max().unwrap_or(0);
        page += &wrapped("loss", &format!("in bursts: {}; the longest {longest}{}", bursts(&all), own(&all)));
    }
    let (reordered, duplicates, too_late) = (sum(|r| r.reordered), sum(|r| r.duplicates), sum(|r| r.too_late));
    if reordered.saturating_add(duplicates).saturating_add(too_late) > 0 {
        let extent = all.iter().map(|received| received.most_extent).max().unwrap_or(0);
        let by_three = sum(|r| r.reordered_by_three);
        let order = format!("{reordered} reordered, by {extent} at most ({by_three} by three or more)");
        page += &wrapped("order", &format!("{order}; {duplicates} duplicates; {too_late} too late to say"));
    }
    page + &wrapped("jitter", &jitter(&all))
}

/// How many were of which length, the shortest first.
fn bursts(all: &[&Received]) -> String {
    let mut together: Vec<RunCount> = Vec::new();
    for run in all.iter().flat_map(|received| &received.loss_bursts) {
        match together.iter_mut().find(|known| (known.from, known.to) == (run.from, run.to)) {
            Some(known) => known.count = known.count.saturating_add(run.count),
            None => together.push(*run),
        }
    }
    together.sort_by_key(|run| run.from);
    let told: Vec<String> = together
        .iter()
        .take(MOST_LENGTHS)
        .map(|run| match run.from == run.to {
            true => format!("{} of {}", run.count, run.from),
            false => format!("{} of {}-{}", run.count, run.from, run.to),
        })
        .collect();
    told.join(", ")
}

fn jitter(all: &[&Received]) -> String {
    let variations: Vec<Quantiles> = all.iter().filter_map(|received| received.variation).collect();
    let of = |figure: fn(&Quantiles) -> Duration| span(variations.iter().map(figure));
    let variation = match variations.is_empty() {
        true => String::new(),
        false => format!(
            "; from one to the next {} median, {} p99, {} most",
            of(|v| v.p50),
            of(|v| v.p99),
            show_duration(variations.iter().map(|v| v.most).max().unwrap_or_default())
        ),
    };
    format!("{} (RFC 3550){variation}", span(all.iter().map(|received| received.jitter)))
}

/// What of the loss is the receiver's own doing.
fn own(all: &[&Received]) -> String {
    let overflows: Option<u64> =
        all.iter().map(|received| received.overflows).try_fold(0u64, |sum, one| Some(sum.saturating_add(one?)));
    let (least, most) = all
        .iter()
        .map(|received| received.own_loss())
        .fold((0u64, 0u64), |sum, own| (sum.0.saturating_add(own.0), sum.1.saturating_add(own.1)));
    match overflows {
        None => "; whether the receiver's buffer overflowed is not known".into(),
        Some(0) => "; none of it in the receiver's buffer".into(),
        Some(_) if least == most => format!("; {least} of it in the receiver's own buffer, not on the path"),
        Some(_) => format!("; {least} to {most} of it in the receiver's own buffer, not on the path"),
    }
}

/// What the sender did; nothing of one that does not tell.
pub(super) fn sent(report: &EndReport) -> Option<String> {
    let streams = || report.streams.iter().filter_map(|stream| stream.udp.as_ref());
    let all: Vec<&Sent> = streams().filter_map(|udp| udp.sent.as_ref()).collect();
    let first = all.first()?;
    let mut text = rates(&all, first, streams().any(|udp| udp.ramp.is_some()));
    let behind = all.iter().map(|sent| sent.behind_share.get()).fold(0.0, f64::max);
    if behind > 0.0 {
        text += &format!("; behind {}{:.1} % of the time", up_to(&all), behind * 100.0);
    }
    let given_up = all.iter().map(|sent| sent.given_up).max().unwrap_or_default();
    if !given_up.is_zero() {
        text += &format!(", {}{} given up", up_to(&all), show_duration(given_up));
    }
    let how = if all.iter().all(|sent| sent.gso) { " cut by the kernel (GSO)" } else { "" };
    text += &match all.iter().map(|sent| sent.burst_datagrams).max() {
        Some(1) | None => "; one at a time".to_owned(),
        Some(burst) => format!("; bursts of {}{burst}{how}", up_to_if(&all, |sent| sent.burst_datagrams)),
    };
    let lateness: Vec<Quantiles> = all.iter().filter_map(|sent| sent.lateness).collect();
    if !lateness.is_empty() {
        let of = |figure: fn(&Quantiles) -> Duration| span(lateness.iter().map(figure));
        text += &format!(", late by {} median, {} p99", of(|late| late.p50), of(|late| late.p99));
    }
    let queue_full = all.iter().map(|sent| sent.queue_full).fold(0, u64::saturating_add);
    if queue_full > 0 {
        text += &format!("; {queue_full} times this host's own queue was full");
    }
    if all.iter().any(|sent| sent.gso_refused) {
        text += "; GSO refused by the device";
    }
    Some(text + if all.iter().all(|sent| sent.dont_fragment) { "; DF set" } else { "; may be fragmented" })
}

/// How many were to be sent at which rate, and were.
fn rates(all: &[&Sent], first: &Sent, ramp: bool) -> String {
    /// Less than this share of what was asked is worth a word.
    const KEPT: f64 = 0.995;
    let datagrams = all.iter().map(|sent| sent.datagrams).fold(0, u64::saturating_add);
    let sum = |rate: fn(&Sent) -> BitRate| BitRate(all.iter().map(|sent| rate(sent).0).fold(0, u64::saturating_add));
    let (asked, achieved) = (sum(|sent| sent.asked), sum(|sent| sent.achieved));
    let limit = all.iter().any(|sent| sent.limit.is_some()).then(|| sum(|sent| sent.limit.unwrap_or(sent.asked)));
    let [asked, achieved, allowed] = BitRate::alike([asked, achieved, limit.unwrap_or(asked)]);
    let limit = limit.map(|_| format!(", {allowed} allowed by the server")).unwrap_or_default();
    let streams = if all.len() > 1 { format!(" over {} streams", all.len()) } else { String::new() };
    let what = format!("{datagrams} datagrams of {} B{streams}", first.datagram_bytes);
    if ramp {
        return what + &limit;
    }
    let slow = all.iter().filter(|sent| !sent.kept(KEPT)).count();
    let slow = match (slow, all.len()) {
        (0, _) => String::new(),
        (_, 1) => ": it could not keep the rate".into(),
        (slow, all) => format!(": {slow} of {all} could not keep the rate"),
    };
    format!("{what}, {asked} asked{limit}, {achieved} sent{slow}")
}

/// Each stream, where there are several; as the sender and the receiver tell it.
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

/// The least and the most, or the one that all are.
fn span(times: impl Iterator<Item = Duration> + Clone) -> String {
    let (least, most) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
    let (least, most) = (show_duration(least), show_duration(most));
    if least == most { most } else { format!("{least} to {most}") }
}

/// Before a figure of the worst of several streams.
fn up_to(all: &[&Sent]) -> &'static str {
    if all.len() > 1 { "up to " } else { "" }
}

/// The same where all may have one figure.
fn up_to_if(all: &[&Sent], figure: fn(&Sent) -> u32) -> &'static str {
    if all.iter().all(|sent| figure(sent) == figure(all[0])) { "" } else { "up to " }
}

/// Of how many in a hundred.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0".into() } else { format!("{:.3}", part as f64 / whole as f64 * 100.0) }
}

#[cfg(test)]
mod tests {
    use lfn_core::udp::figures::UdpFigures;
    use lfn_core::wire::test::StreamReport;

    use super::*;

    /// Streams that sent and received so many, lost so many, and had that jitter in microseconds.
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
            let asked = BitRate(1_000_000);
            let achieved = BitRate(if lost > 0 { 900_000 } else { 999_990 });
            let (datagrams, datagram_bytes) = (received + lost, 1448);
            UdpFigures {
                sent: Some(Sent { datagrams, datagram_bytes, asked, achieved, ..Sent::default() }),
                ..UdpFigures::default()
            }
        });
        let receiver = report(|&(datagrams, lost, jitter)| {
            let loss_bursts = if lost > 0 { vec![RunCount { from: 1, to: 1, count: lost }] } else { vec![] };
            let jitter = Duration::from_micros(jitter);
            let received = Received { datagrams, lost, jitter, loss_bursts, overflows: Some(0), ..Received::default() };
            UdpFigures { received: Some(received), ..UdpFigures::default() }
        });
        (sender, receiver)
    }

    #[test]
    fn one_stream_is_told_without_a_table() {
        let (sender, receiver) = ends(&[(1000, 0, 12)]);
        assert_eq!(received(&receiver), "received    1000 datagrams, 0 lost (0.000 %)\njitter      12 µs (RFC 3550)\n");
        assert_eq!(
            sent(&sender).unwrap(),
            "1000 datagrams of 1448 B, 1 Mb/s asked, 1 Mb/s sent; bursts of 0; may be fragmented"
        );
        assert_eq!(streams(&sender, &receiver, 80), "");
    }

    #[test]
    fn several_streams_are_told_once_and_each_in_a_table() {
        let (sender, receiver) = ends(&[(1000, 0, 12), (990, 10, 40), (995, 5, 12)]);
        let told = received(&receiver);
        assert_eq!(told.matches("received").count(), 1, "{told}");
        assert!(told.contains("2985 datagrams, 15 lost (0.500 %)"), "{told}");
        assert!(told.contains("in bursts: 15 of 1;"), "{told}");
        assert!(told.contains("12 µs to 40 µs (RFC 3550)"), "{told}");
        let told = sent(&sender).unwrap();
        let begins =
            "3000 datagrams of 1448 B over 3 streams, 3 Mb/s asked, 2.8 Mb/s sent: 2 of 3 could not keep the rate";
        assert!(told.starts_with(begins), "{told}");
        for columns in [40, 60, 80, 120] {
            let table = streams(&sender, &receiver, columns);
            assert_eq!(table.lines().count(), 5, "{table}");
            assert!(table.lines().all(|line| line.chars().count() <= columns), "{columns}: {table}");
            assert!(table.contains("0.9 Mb/s") || table.contains("900 kb/s"), "{table}");
            assert!(table.lines().nth(3).is_some_and(|line| line.contains(" 1 ") && line.contains("1.000")), "{table}");
        }
    }
}
