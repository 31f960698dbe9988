//! A stored result as a table for spreadsheets: one row for each interval and stream of a run.
//!
//! A row joins both ends: the data that the receiver read by its own clock, and the figures of the sender's kernel. If
//! the two clocks were compared, the sender's figures are from the end of the sender's interval that contains the
//! middle of the receiver's interval, as in the text output. Otherwise row n joins interval n of both ends. Bytes that
//! the sender gave to its kernel, and growing counters (`retransmitted_segments`, `busy_seconds` and its parts) are
//! counted since the previous row, so each column adds up to the total. Unknown values are empty. Lines end with
//! carriage return and line feed (RFC 4180).

use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::Bytes;

use super::document::TestDocument;
use super::run::Run;
use crate::measure::{Interval, StreamSample, TestDirection};

/// One interval of one stream, from both ends.
struct Row<'a> {
    run: usize,
    direction: TestDirection,
    stream: u16,
    start: Duration,
    end: Duration,
    steady: bool,
    received: Option<&'a StreamSample>,
    /// Latest sample of the sender.
    sent: Option<&'a StreamSample>,
    /// Bytes that the sender gave to its kernel since the previous row.
    sent_bytes: Option<u64>,
    /// State of the sender's kernel at the previous row.
    before: Option<&'a TcpInfo>,
}

type Column = (&'static str, fn(&Row<'_>) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("run", |row| Some(row.run.to_string())),
    ("direction", |row| Some(if row.direction == TestDirection::Forward { "forward" } else { "reverse" }.into())),
    ("stream", |row| Some(row.stream.to_string())),
    ("start_seconds", |row| Some(seconds(row.start))),
    ("end_seconds", |row| Some(seconds(row.end))),
    ("steady", |row| Some(row.steady.to_string())),
    ("received_bytes", |row| Some(row.received?.bytes.to_string())),
    ("goodput_bits_per_second", |row| Some(rate(row.received?.bytes, row))),
    ("sent_bytes", |row| Some(row.sent_bytes?.to_string())),
    ("retransmitted_segments", |row| {
        counter_growth(row, |info| Some(info.retransmitted_segments.into())).map(|n| n.to_string())
    }),
    ("cwnd_bytes", |row| Some(row.tcp()?.cwnd().0.to_string())),
    ("snd_wnd_bytes", |row| Some(row.tcp()?.snd_wnd_bytes?.to_string())),
    ("rtt_seconds", |row| Some(seconds(row.tcp()?.rtt))),
    ("rttvar_seconds", |row| Some(seconds(row.tcp()?.rttvar))),
    ("min_rtt_seconds", |row| Some(seconds(row.tcp()?.min_rtt?))),
    ("delivery_rate_bits_per_second", |row| Some(row.tcp()?.delivery_rate?.0.to_string())),
    ("busy_seconds", |row| time_growth(row, |info| info.busy)),
    ("rwnd_limited_seconds", |row| time_growth(row, |info| info.rwnd_limited)),
    ("sndbuf_limited_seconds", |row| time_growth(row, |info| info.sndbuf_limited)),
    ("notsent_bytes", |row| Some(row.tcp()?.notsent_bytes?.to_string())),
    ("unread_bytes", |row| Some(row.received?.unread_bytes?.to_string())),
    ("received_datagrams", |row| Some(row.received?.udp.as_ref()?.datagrams.to_string())),
    ("lost_datagrams", |row| Some(row.received?.udp.as_ref()?.lost.to_string())),
    ("reordered_datagrams", |row| Some(row.received?.udp.as_ref()?.reordered.to_string())),
    ("duplicate_datagrams", |row| Some(row.received?.udp.as_ref()?.duplicates.to_string())),
    ("jitter_seconds", |row| Some(seconds(row.received?.udp.as_ref()?.jitter?))),
];

/// Returns the table of a stored result with its heading.
pub fn interval_csv(document: &TestDocument) -> String {
    let mut table = String::new();
    push_record(&mut table, COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    for (number, run) in document.runs.iter().enumerate() {
        for row in interval_rows(number, run) {
            push_record(&mut table, COLUMNS.iter().map(|(_, cell)| cell(&row).unwrap_or_default()));
        }
    }
    table
}

/// Appends one record; a field with a special character is quoted (RFC 4180 section 2).
pub(super) fn push_record(table: &mut String, fields: impl Iterator<Item = String>) {
    for (number, field) in fields.enumerate() {
        if number > 0 {
            table.push(',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            *table += &format!("\"{}\"", field.replace('"', "\"\""));
        } else {
            *table += &field;
        }
    }
    *table += "\r\n";
}

/// Returns the rows of a run: the intervals of both ends, stream by stream.
fn interval_rows(number: usize, run: &Run) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for row in align_intervals(&run.evidence.end(run.sender).intervals, &run.evidence.end(run.receiver).intervals) {
        let AlignedRow { received, start, end, new_sent, sent, before } = row;
        for stream in streams(received, sent) {
            rows.push(Row {
                run: number,
                direction: run.direction,
                stream,
                start,
                end,
                steady: run.steady.is_some_and(|steady| start >= steady.start && end <= steady.end),
                received: sample(received, stream),
                sent: sample(sent, stream),
                sent_bytes: sample(sent, stream).map(|_| sent_bytes(new_sent, stream)),
                before: sample(before, stream).and_then(|sample| sample.tcp_info.as_ref()),
            });
        }
    }
    rows
}

/// Returns the bytes that the sender of a stream gave to its kernel in these intervals.
fn sent_bytes(news: &[Interval], stream: u16) -> u64 {
    let samples = news.iter().filter_map(|interval| sample(Some(interval), stream));
    samples.map(|sample| sample.bytes).fold(0, u64::saturating_add)
}

/// An interval of the receiver with the sender's intervals of the same time, or a later interval of the sender. The
/// times are the receiver's.
struct AlignedRow<'a> {
    received: Option<&'a Interval>,
    start: Duration,
    end: Duration,
    /// Sender's intervals since the previous row.
    new_sent: &'a [Interval],
    /// Last of these intervals, or the previous interval if it still runs; none if the sender has no more.
    sent: Option<&'a Interval>,
    /// Sender's last interval of the previous row.
    before: Option<&'a Interval>,
}

fn align_intervals<'a>(sender: &'a [Interval], receiver: &'a [Interval]) -> Vec<AlignedRow<'a>> {
    let compared = sender.iter().chain(receiver).any(|interval| interval.near_start.is_some());
    let mut rows = Vec::with_capacity(sender.len().max(receiver.len()));
    let mut used = 0;
    for (index, interval) in receiver.iter().enumerate() {
        let middle = interval.middle();
        let until = match compared {
            true => sender.partition_point(|sent| sent.placed().0 <= middle),
            false => (index + 1).min(sender.len()),
        };
        let (range, before) = (used..until.max(used), sender[..used].last());
        used = range.end;
        let new_sent = &sender[range];
        let sent = new_sent.last().or(before.filter(|before| compared && before.placed().1 > middle));
        rows.push(AlignedRow {
            received: Some(interval),
            start: interval.start,
            end: interval.end,
            new_sent,
            sent,
            before,
        });
    }
    // Start of the receiver's clock on the near clock.
    let origin = receiver.first().map_or(Duration::ZERO, |first| first.placed().0.saturating_sub(first.start));
    for (index, interval) in sender.iter().enumerate().skip(used) {
        let (start, end) = if compared { interval.placed() } else { (interval.start, interval.end) };
        rows.push(AlignedRow {
            received: None,
            start: start.saturating_sub(origin),
            end: end.saturating_sub(origin),
            new_sent: &sender[index..=index],
            sent: Some(interval),
            before: sender[..index].last(),
        });
    }
    rows
}

/// Returns the numbers of all streams of either end, in order.
fn streams(received: Option<&Interval>, sent: Option<&Interval>) -> Vec<u16> {
    let mut numbers: Vec<u16> =
        [received, sent].into_iter().flatten().flat_map(|interval| interval.streams.iter().map(|s| s.stream)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn sample(interval: Option<&Interval>, stream: u16) -> Option<&StreamSample> {
    interval?.streams.iter().find(|sample| sample.stream == stream)
}

impl Row<'_> {
    /// Returns the sample of the sender's kernel.
    fn tcp(&self) -> Option<&TcpInfo> {
        self.sent?.tcp_info.as_ref()
    }
}

fn rate(bytes: u64, row: &Row<'_>) -> String {
    Bytes(bytes).per(row.end.saturating_sub(row.start)).0.to_string()
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// Returns the growth of a sender's counter in this row.
fn counter_growth(row: &Row<'_>, counter: fn(&TcpInfo) -> Option<u64>) -> Option<u64> {
    Some(counter(row.tcp()?)?.saturating_sub(row.before.and_then(counter).unwrap_or(0)))
}

fn time_growth(row: &Row<'_>, counter: fn(&TcpInfo) -> Option<Duration>) -> Option<String> {
    let now = counter(row.tcp()?)?;
    Some(seconds(now.saturating_sub(row.before.and_then(counter).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Intervals of one second by their own clock, which starts at `later` on the near clock.
    fn intervals(count: u32, later: Option<Duration>) -> Vec<Interval> {
        let interval = |n: u32| {
            let (start, end) = (SECOND * n, SECOND * (n + 1));
            let near = |time| later.map(|later| time + later);
            Interval { start, end, near_start: near(start), near_end: near(end), ..Interval::default() }
        };
        (0..count).map(interval).collect()
    }

    /// Returns for each row: if the receiver has a part in it, the number of new intervals of the sender, and the start
    /// of the sender's sample by its clock.
    fn aligned(sender: &[Interval], receiver: &[Interval]) -> Vec<(bool, usize, Option<u64>)> {
        let row =
            |row: AlignedRow| (row.received.is_some(), row.new_sent.len(), row.sent.map(|sent| sent.start.as_secs()));
        align_intervals(sender, receiver).into_iter().map(row).collect()
    }

    #[test]
    fn intervals_are_aligned_by_the_clock() {
        let later = Some(Duration::from_millis(1700));
        // The receiver's first interval is at the same time as the sender's third. At its end the sender has no
        // more.
        let rows = aligned(&intervals(4, None), &intervals(3, later));
        assert_eq!(rows, [(true, 3, Some(2)), (true, 1, Some(3)), (true, 0, None)]);
        // A sender's interval of double length is used for two rows.
        let mut long = intervals(3, None);
        long.remove(0);
        long[0].start = Duration::ZERO;
        let rows = aligned(&long, &intervals(3, Some(Duration::from_millis(100))));
        assert_eq!(rows, [(true, 1, Some(0)), (true, 0, Some(0)), (true, 1, Some(2))]);
    }

    #[test]
    fn later_sender_intervals_have_rows_on_the_receivers_clock() {
        let (sender, receiver) = (intervals(3, Some(Duration::from_millis(200))), intervals(2, None));
        assert_eq!(aligned(&sender, &receiver), [(true, 1, Some(0)), (true, 1, Some(1)), (false, 1, Some(2))]);
        let times = |sender: &[Interval], receiver: &[Interval]| {
            align_intervals(sender, receiver).pop().map(|row| (row.start.as_millis(), row.end.as_millis()))
        };
        assert_eq!(times(&sender, &receiver), Some((2200, 3200)));
        let receiver = intervals(2, Some(Duration::from_millis(200)));
        assert_eq!(times(&intervals(3, None), &receiver), Some((1800, 2800)));
    }

    #[test]
    fn every_sent_byte_is_in_one_row() {
        let mut sender = intervals(5, None);
        for (number, interval) in sender.iter_mut().enumerate() {
            interval.streams = vec![StreamSample { bytes: 10u64.pow(number as u32), ..StreamSample::default() }];
        }
        let receiver = intervals(3, Some(Duration::from_millis(1700)));
        let sent: Vec<u64> =
            align_intervals(&sender, &receiver).iter().map(|row| sent_bytes(row.new_sent, 0)).collect();
        assert_eq!(sent, [111, 1000, 10_000]);
        assert_eq!(sent_bytes(&sender, 1), 0, "of another stream");
    }

    #[test]
    fn intervals_without_clocks_are_aligned_by_number() {
        let rows = aligned(&intervals(3, None), &intervals(2, None));
        assert_eq!(rows, [(true, 1, Some(0)), (true, 1, Some(1)), (false, 1, Some(2))]);
        assert_eq!(aligned(&intervals(1, None), &intervals(2, None)), [(true, 1, Some(0)), (true, 0, None)]);
    }

    #[test]
    fn fields_with_special_characters_are_quoted() {
        let mut table = String::new();
        push_record(&mut table, ["plain", "a,b", "say \"x\"", "two\r\nlines", ""].into_iter().map(String::from));
        assert_eq!(table, "plain,\"a,b\",\"say \"\"x\"\"\",\"two\r\nlines\",\r\n");
    }
}
