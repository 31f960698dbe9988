//! A stored result as a table for spreadsheets: a row for each interval and stream of a run.
//!
//! A row joins both ends: what the receiver got by its own clock, and what the sender's kernel said beside it. Where
//! the two clocks were compared, that is at the end of the sender's interval in which the middle of the receiver's
//! lies, as in the text of a test; otherwise the n-th of one is beside the n-th of the other. What the sender gave and
//! what its counters grew (`retransmitted_segments`, `busy_seconds` and its parts) is told since the row before, so
//! that each column adds up to the whole. What is not known is empty. Lines end as RFC 4180 has it, with carriage
//! return and line feed.

use std::time::Duration;

use super::document::{Document, Run};
use crate::tcp_info::TcpInfo;
use crate::units::Bytes;
use crate::wire::test::{Direction, Interval, StreamSample};

/// One interval of one stream, from both ends.
struct Row<'a> {
    run: usize,
    direction: Direction,
    stream: u16,
    start: Duration,
    end: Duration,
    steady: bool,
    received: Option<&'a StreamSample>,
    /// What the sender said last.
    sent: Option<&'a StreamSample>,
    /// What it gave to its kernel since the row before.
    sent_bytes: Option<u64>,
    /// What its kernel had said by then.
    before: Option<&'a TcpInfo>,
}

type Column = (&'static str, fn(&Row<'_>) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("run", |row| Some(row.run.to_string())),
    ("direction", |row| Some(if row.direction == Direction::Forward { "forward" } else { "reverse" }.into())),
    ("stream", |row| Some(row.stream.to_string())),
    ("start_seconds", |row| Some(seconds(row.start))),
    ("end_seconds", |row| Some(seconds(row.end))),
    ("steady", |row| Some(row.steady.to_string())),
    ("received_bytes", |row| Some(row.received?.bytes.to_string())),
    ("goodput_bits_per_second", |row| Some(rate(row.received?.bytes, row))),
    ("sent_bytes", |row| Some(row.sent_bytes?.to_string())),
    ("retransmitted_segments", |row| {
        grown(row, |info| Some(info.retransmitted_segments.into())).map(|n| n.to_string())
    }),
    ("cwnd_bytes", |row| Some(row.tcp()?.cwnd().0.to_string())),
    ("snd_wnd_bytes", |row| Some(row.tcp()?.snd_wnd_bytes?.to_string())),
    ("rtt_seconds", |row| Some(seconds(row.tcp()?.rtt))),
    ("rttvar_seconds", |row| Some(seconds(row.tcp()?.rttvar))),
    ("min_rtt_seconds", |row| Some(seconds(row.tcp()?.min_rtt?))),
    ("delivery_rate_bits_per_second", |row| Some(row.tcp()?.delivery_rate?.0.to_string())),
    ("busy_seconds", |row| time_grown(row, |info| info.busy)),
    ("rwnd_limited_seconds", |row| time_grown(row, |info| info.rwnd_limited)),
    ("sndbuf_limited_seconds", |row| time_grown(row, |info| info.sndbuf_limited)),
    ("notsent_bytes", |row| Some(row.tcp()?.notsent_bytes?.to_string())),
    ("unread_bytes", |row| Some(row.received?.unread_bytes?.to_string())),
    ("received_datagrams", |row| Some(row.received?.udp.as_ref()?.datagrams.to_string())),
    ("lost_datagrams", |row| Some(row.received?.udp.as_ref()?.lost.to_string())),
    ("reordered_datagrams", |row| Some(row.received?.udp.as_ref()?.reordered.to_string())),
    ("duplicate_datagrams", |row| Some(row.received?.udp.as_ref()?.duplicates.to_string())),
    ("jitter_seconds", |row| Some(seconds(row.received?.udp.as_ref()?.jitter?))),
];

/// The table with its heading.
pub fn csv(document: &Document) -> String {
    let mut table = String::new();
    line(&mut table, COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    for (number, run) in document.runs.iter().enumerate() {
        for row in rows(number, run) {
            line(&mut table, COLUMNS.iter().map(|(_, cell)| cell(&row).unwrap_or_default()));
        }
    }
    table
}

/// One record; a field that could be mistaken is quoted (RFC 4180 §2).
pub(super) fn line(table: &mut String, fields: impl Iterator<Item = String>) {
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

/// Both ends' intervals beside each other, stream by stream.
fn rows(number: usize, run: &Run) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for beside in beside(&run.end(run.sender).intervals, &run.end(run.receiver).intervals) {
        let Beside { received, start, end, news, sent, before } = beside;
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
                sent_bytes: sample(sent, stream).map(|_| given(news, stream)),
                before: sample(before, stream).and_then(|sample| sample.tcp_info.as_ref()),
            });
        }
    }
    rows
}

/// What a stream's sender gave to its kernel in these intervals.
fn given(news: &[Interval], stream: u16) -> u64 {
    let samples = news.iter().filter_map(|interval| sample(Some(interval), stream));
    samples.map(|sample| sample.bytes).fold(0, u64::saturating_add)
}

/// An interval of the receiver with what the sender said beside it, or one of the sender's that came after all of
/// those. Times are the receiver's.
struct Beside<'a> {
    received: Option<&'a Interval>,
    start: Duration,
    end: Duration,
    /// The sender's intervals since the row before.
    news: &'a [Interval],
    /// The last of them or, while it still goes on, the one before; nothing where the sender said no more.
    sent: Option<&'a Interval>,
    /// The last one of the row before.
    before: Option<&'a Interval>,
}

fn beside<'a>(sender: &'a [Interval], receiver: &'a [Interval]) -> Vec<Beside<'a>> {
    let compared = sender.iter().chain(receiver).any(|interval| interval.near_start.is_some());
    let mut rows = Vec::with_capacity(sender.len().max(receiver.len()));
    let mut told = 0;
    for (index, interval) in receiver.iter().enumerate() {
        let middle = interval.middle();
        let until = match compared {
            true => sender.partition_point(|sent| sent.placed().0 <= middle),
            false => (index + 1).min(sender.len()),
        };
        let (said, before) = (told..until.max(told), sender[..told].last());
        told = said.end;
        let news = &sender[said];
        let sent = news.last().or(before.filter(|before| compared && before.placed().1 > middle));
        rows.push(Beside { received: Some(interval), start: interval.start, end: interval.end, news, sent, before });
    }
    // Where the receiver's clock begins on the near one.
    let origin = receiver.first().map_or(Duration::ZERO, |first| first.placed().0.saturating_sub(first.start));
    for (index, interval) in sender.iter().enumerate().skip(told) {
        let (start, end) = if compared { interval.placed() } else { (interval.start, interval.end) };
        rows.push(Beside {
            received: None,
            start: start.saturating_sub(origin),
            end: end.saturating_sub(origin),
            news: &sender[index..=index],
            sent: Some(interval),
            before: sender[..index].last(),
        });
    }
    rows
}

/// The numbers of all streams either end told of, in order.
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
    /// What the sender's kernel said.
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

/// What a counter of the sender grew in the interval.
fn grown(row: &Row<'_>, counter: fn(&TcpInfo) -> Option<u64>) -> Option<u64> {
    Some(counter(row.tcp()?)?.saturating_sub(row.before.and_then(counter).unwrap_or(0)))
}

fn time_grown(row: &Row<'_>, counter: fn(&TcpInfo) -> Option<Duration>) -> Option<String> {
    let now = counter(row.tcp()?)?;
    Some(seconds(now.saturating_sub(row.before.and_then(counter).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Of one second each by their own clock, which began `later` on the near one's.
    fn intervals(count: u32, later: Option<Duration>) -> Vec<Interval> {
        let interval = |n: u32| {
            let (start, end) = (SECOND * n, SECOND * (n + 1));
            let near = |time| later.map(|later| time + later);
            Interval { start, end, near_start: near(start), near_end: near(end), ..Interval::default() }
        };
        (0..count).map(interval).collect()
    }

    /// Of each row: whether the receiver has a part in it, how much of the sender's is new, and when what is shown of
    /// it began by its clock.
    fn told(sender: &[Interval], receiver: &[Interval]) -> Vec<(bool, usize, Option<u64>)> {
        let told = |row: Beside| (row.received.is_some(), row.news.len(), row.sent.map(|sent| sent.start.as_secs()));
        beside(sender, receiver).into_iter().map(told).collect()
    }

    #[test]
    fn intervals_lie_beside_each_other_by_the_clock() {
        let later = Some(Duration::from_millis(1700));
        // What the receiver counted first was while the sender was two further; at its end the sender said no more.
        let rows = told(&intervals(4, None), &intervals(3, later));
        assert_eq!(rows, [(true, 3, Some(2)), (true, 1, Some(3)), (true, 0, None)]);
        // An interval of the sender twice as long lies beside two.
        let mut long = intervals(3, None);
        long.remove(0);
        long[0].start = Duration::ZERO;
        let rows = told(&long, &intervals(3, Some(Duration::from_millis(100))));
        assert_eq!(rows, [(true, 1, Some(0)), (true, 0, Some(0)), (true, 1, Some(2))]);
    }

    #[test]
    fn what_the_sender_did_afterwards_has_rows_by_the_receivers_clock() {
        let (sender, receiver) = (intervals(3, Some(Duration::from_millis(200))), intervals(2, None));
        assert_eq!(told(&sender, &receiver), [(true, 1, Some(0)), (true, 1, Some(1)), (false, 1, Some(2))]);
        let times = |sender: &[Interval], receiver: &[Interval]| {
            beside(sender, receiver).pop().map(|row| (row.start.as_millis(), row.end.as_millis()))
        };
        assert_eq!(times(&sender, &receiver), Some((2200, 3200)));
        let receiver = intervals(2, Some(Duration::from_millis(200)));
        assert_eq!(times(&intervals(3, None), &receiver), Some((1800, 2800)));
    }

    #[test]
    fn every_byte_given_stands_in_one_row() {
        let mut sender = intervals(5, None);
        for (number, interval) in sender.iter_mut().enumerate() {
            interval.streams = vec![StreamSample { bytes: 10u64.pow(number as u32), ..StreamSample::default() }];
        }
        let receiver = intervals(3, Some(Duration::from_millis(1700)));
        let told: Vec<u64> = beside(&sender, &receiver).iter().map(|row| given(row.news, 0)).collect();
        assert_eq!(told, [111, 1000, 10_000]);
        assert_eq!(given(&sender, 1), 0, "of another stream");
    }

    #[test]
    fn clocks_that_were_not_compared_leave_the_number() {
        let rows = told(&intervals(3, None), &intervals(2, None));
        assert_eq!(rows, [(true, 1, Some(0)), (true, 1, Some(1)), (false, 1, Some(2))]);
        assert_eq!(told(&intervals(1, None), &intervals(2, None)), [(true, 1, Some(0)), (true, 0, None)]);
    }

    #[test]
    fn fields_that_could_be_mistaken_are_quoted() {
        let mut table = String::new();
        line(&mut table, ["plain", "a,b", "say \"x\"", "two\r\nlines", ""].into_iter().map(String::from));
        assert_eq!(table, "plain,\"a,b\",\"say \"\"x\"\"\",\"two\r\nlines\",\r\n");
    }
}
