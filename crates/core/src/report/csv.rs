//! A stored result as a table for spreadsheets: a row for each interval and stream of a run.
//!
//! A row joins both ends: what the receiver got by its own clock, and what the sender's kernel said at the end of the
//! same interval. Counters that grow (`retransmitted_segments`, `busy_seconds` and its parts) are told as what they grew
//! in the interval. What is not known is empty. Lines end as RFC 4180 has it, with carriage return and line feed.

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
    sent: Option<&'a StreamSample>,
    /// The sender's figures an interval before.
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
    ("sent_bytes", |row| Some(row.sent?.bytes.to_string())),
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

/// Both ends' intervals beside each other: the n-th of one is the n-th of the other.
fn rows(number: usize, run: &Run) -> Vec<Row<'_>> {
    let (sender, receiver) = (&run.end(run.sender).intervals, &run.end(run.receiver).intervals);
    let mut rows = Vec::new();
    for index in 0..sender.len().max(receiver.len()) {
        let (sent, received) = (sender.get(index), receiver.get(index));
        let Some(times) = received.or(sent) else { continue };
        let before = index.checked_sub(1).and_then(|index| sender.get(index));
        for stream in streams(received, sent) {
            rows.push(Row {
                run: number,
                direction: run.direction,
                stream,
                start: times.start,
                end: times.end,
                steady: run.steady.is_some_and(|steady| times.start >= steady.start && times.end <= steady.end),
                received: sample(received, stream),
                sent: sample(sent, stream),
                before: sample(before, stream).and_then(|sample| sample.tcp_info.as_ref()),
            });
        }
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

    #[test]
    fn fields_that_could_be_mistaken_are_quoted() {
        let mut table = String::new();
        line(&mut table, ["plain", "a,b", "say \"x\"", "two\r\nlines", ""].into_iter().map(String::from));
        assert_eq!(table, "plain,\"a,b\",\"say \"\"x\"\"\",\"two\r\nlines\",\r\n");
    }
}
