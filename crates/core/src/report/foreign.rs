//! What iperf3 prints with `-J`, as far as it is compared: 3.12 to 3.21, client and server, TCP and UDP.
//!
//! Numbers are taken as floats, because that is what cJSON makes of them all; what a version does not tell is absent.

use std::time::Duration;

use serde::Deserialize;

use super::Figure;
use super::compare::{Mean, Source, Summary};
use super::document::PerEnd;
use crate::units::{BitRate, Bytes};
use crate::wire::test::Direction;

/// A result of iperf3.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Iperf3Output {
    start: Start,
    intervals: Vec<Slice>,
    end: End,
    /// Why it failed, if it did.
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Start {
    version: String,
    timestamp: Stamp,
    /// The client's, who dialled.
    connecting_to: Option<serde::de::IgnoredAny>,
    tcp_mss_default: Option<f64>,
    test_start: TestStart,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Stamp {
    timesecs: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct TestStart {
    protocol: String,
    num_streams: f64,
    blksize: f64,
    reverse: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Slice {
    streams: Vec<StreamSlice>,
    sum: Option<Sum>,
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StreamSlice {
    pmtu: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Sum {
    seconds: f64,
    bytes: f64,
    bits_per_second: f64,
    retransmits: Option<f64>,
    lost_percent: Option<f64>,
    jitter_ms: Option<f64>,
    omitted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct End {
    streams: Vec<StreamEnd>,
    sum: Option<Sum>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum_bidir_reverse: Option<Sum>,
    sum_sent_bidir_reverse: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
    cpu_utilization_percent: Processor,
    sender_tcp_congestion: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StreamEnd {
    sender: Option<StreamSum>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StreamSum {
    sender: bool,
    mean_rtt: Option<f64>,
    min_rtt: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Processor {
    host_total: Option<f64>,
    remote_total: Option<f64>,
}

/// A result told line by line (`--json-stream`, since 3.17).
#[derive(Default)]
pub(super) struct Lines(Iperf3Output);

#[derive(Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
enum Line {
    Start(Box<Start>),
    Interval(Box<Slice>),
    End(Box<End>),
    Error(String),
    #[serde(other)]
    Other,
}

impl Lines {
    pub(super) fn take(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        match serde_json::from_slice(line)? {
            Line::Start(start) => self.0.start = *start,
            Line::Interval(interval) => self.0.intervals.push(*interval),
            Line::End(end) => self.0.end = *end,
            Line::Error(error) => self.0.error = Some(error),
            Line::Other => {}
        }
        Ok(())
    }

    pub(super) fn result(self) -> Iperf3Output {
        self.0
    }
}

impl Iperf3Output {
    /// The figures that are compared, of each direction.
    pub(super) fn summaries(&self, file: &str) -> Vec<Summary> {
        let end = &self.end;
        let bidir = end.sum_sent_bidir_reverse.is_some() || end.sum_received_bidir_reverse.is_some();
        let mut summaries = vec![self.summary(file, 0, self.direction(false), self.first(), bidir)];
        if bidir {
            summaries.push(self.summary(file, 1, self.direction(true), self.second(), bidir));
        }
        summaries
    }

    /// Of a bidirectional test the first sum is that of what the printing side sends.
    fn direction(&self, second: bool) -> Direction {
        let end = &self.end;
        let bidir = end.sum_sent_bidir_reverse.is_some() || end.sum_received_bidir_reverse.is_some();
        let client_sends = if bidir { self.is_client() != second } else { self.start.test_start.reverse == 0.0 };
        if client_sends { Direction::Forward } else { Direction::Reverse }
    }

    fn is_client(&self) -> bool {
        self.start.connecting_to.is_some()
    }

    fn first(&self) -> Sums<'_> {
        let intervals = self.intervals.iter().filter_map(|slice| slice.sum.as_ref()).collect();
        let end = &self.end;
        Sums { sent: end.sum_sent.as_ref(), received: end.sum_received.as_ref(), all: end.sum.as_ref(), intervals }
    }

    fn second(&self) -> Sums<'_> {
        let end = &self.end;
        Sums {
            sent: end.sum_sent_bidir_reverse.as_ref(),
            received: end.sum_received_bidir_reverse.as_ref(),
            all: end.sum_bidir_reverse.as_ref(),
            intervals: self.intervals.iter().filter_map(|slice| slice.sum_bidir_reverse.as_ref()).collect(),
        }
    }

    fn summary(&self, file: &str, run: usize, direction: Direction, sums: Sums<'_>, bidir: bool) -> Summary {
        let test = &self.start.test_start;
        let udp = test.protocol.eq_ignore_ascii_case("udp");
        // What arrived, where this side knows it; a server that sends knows only what it sent.
        let got = [sums.received, sums.sent, sums.all].into_iter().flatten().find(|sum| sum.bytes > 0.0);
        let got = got.cloned().unwrap_or_default();
        let total = sums.all.or(sums.received);
        let rates = sums.intervals.iter().filter(|sum| !sum.omitted && sum.seconds > 0.0);
        let rates: Vec<f64> = rates.map(|sum| sum.bytes * 8.0 / sum.seconds).collect();
        let senders = || self.end.streams.iter().filter_map(|stream| stream.sender.as_ref()).filter(|end| end.sender);
        let micros = |value: f64| Duration::try_from_secs_f64(value / 1e6).ok().filter(|rtt| !rtt.is_zero());
        // Of both directions at once nobody can say which took the processor.
        let cpu = if bidir { PerEnd::default() } else { self.cpu(&got) };
        Summary {
            run,
            source: Source::Iperf3,
            version: self.start.version.clone(),
            started: Duration::try_from_secs_f64(self.start.timestamp.timesecs).ok().map(crate::date::rfc3339),
            direction,
            protocol: if udp { "udp" } else { "tcp" }.into(),
            time: Duration::try_from_secs_f64(got.seconds).unwrap_or_default(),
            streams: test.num_streams as u32,
            record: Some(Bytes(test.blksize as u64)),
            congestion: self.end.sender_tcp_congestion.clone(),
            mss: self.start.tcp_mss_default.filter(|&mss| mss > 0.0).map(|mss| mss as u32),
            mtu: self.intervals.iter().flat_map(|slice| &slice.streams).find_map(|stream| Some(stream.pmtu? as u32)),
            goodput: BitRate(got.bits_per_second as u64),
            retransmits: sums.sent.and_then(|sum| sum.retransmits).map(|count| count as u64),
            base_rtt: senders().filter_map(|end| micros(end.min_rtt?)).min(),
            rtt: senders().filter_map(|end| micros(end.mean_rtt?)).max(),
            loss_percent: if udp { total.and_then(|sum| Figure::new(sum.lost_percent?)) } else { None },
            jitter: if udp {
                total.and_then(|sum| Duration::try_from_secs_f64(sum.jitter_ms? / 1e3).ok())
            } else {
                None
            },
            cpu_seconds_per_gigabyte: cpu,
            ..Summary::new(file, Mean::of(&rates))
        }
    }

    fn cpu(&self, got: &Sum) -> PerEnd<Option<Figure>> {
        let processor = &self.end.cpu_utilization_percent;
        let per_gigabyte = |percent: Option<f64>| Figure::new(percent? / 100.0 * got.seconds / (got.bytes / 1e9));
        let (own, other) = (per_gigabyte(processor.host_total), per_gigabyte(processor.remote_total));
        if self.is_client() { PerEnd { near: own, far: other } } else { PerEnd { near: other, far: own } }
    }
}

/// The sums of one direction.
struct Sums<'a> {
    sent: Option<&'a Sum>,
    received: Option<&'a Sum>,
    all: Option<&'a Sum>,
    intervals: Vec<&'a Sum>,
}
