//! Output of `iperf3 -J` as far as lfn compares it: versions 3.12 to 3.21, client and server, TCP and UDP.
//!
//! All numbers are read as floats, because cJSON writes all of them as floats. A value that a version does not report
//! is absent.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, Bytes};
use serde::Deserialize;

use super::run_summary::{MeanError, ResultSource, RunSummary};
use crate::evidence::PerEnd;
use crate::measure::TestDirection;

/// A result of iperf3.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Iperf3Output {
    start: StartJson,
    intervals: Vec<IntervalJson>,
    end: EndJson,
    /// Error message of iperf3, if it failed.
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StartJson {
    version: String,
    timestamp: TimestampJson,
    /// Present in the client's output only.
    connecting_to: Option<serde::de::IgnoredAny>,
    tcp_mss_default: Option<f64>,
    test_start: TestStart,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct TimestampJson {
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
struct IntervalJson {
    streams: Vec<StreamIntervalJson>,
    sum: Option<SumJson>,
    sum_bidir_reverse: Option<SumJson>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StreamIntervalJson {
    pmtu: Option<f64>,
    sender: Option<bool>,
    snd_cwnd: Option<f64>,
    rtt: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct SumJson {
    start: f64,
    end: f64,
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
struct EndJson {
    streams: Vec<StreamEnd>,
    sum: Option<SumJson>,
    sum_sent: Option<SumJson>,
    sum_received: Option<SumJson>,
    sum_bidir_reverse: Option<SumJson>,
    sum_sent_bidir_reverse: Option<SumJson>,
    sum_received_bidir_reverse: Option<SumJson>,
    cpu_utilization_percent: CpuJson,
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
struct CpuJson {
    host_total: Option<f64>,
    remote_total: Option<f64>,
}

/// Collects a result that iperf3 prints line by line (`--json-stream`, since 3.17).
#[derive(Default)]
pub(super) struct Iperf3Lines(Iperf3Output);

#[derive(Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
enum LineJson {
    Start(Box<StartJson>),
    Interval(Box<IntervalJson>),
    End(Box<EndJson>),
    Error(String),
    #[serde(other)]
    Other,
}

impl Iperf3Lines {
    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        match serde_json::from_slice(line)? {
            LineJson::Start(start) => self.0.start = *start,
            LineJson::Interval(interval) => self.0.intervals.push(*interval),
            LineJson::End(end) => self.0.end = *end,
            LineJson::Error(error) => self.0.error = Some(error),
            LineJson::Other => {}
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Iperf3Output {
        self.0
    }
}

impl Iperf3Output {
    /// Returns the compared figures of each direction.
    pub(super) fn summaries(&self, file: &str) -> Vec<RunSummary> {
        let end = &self.end;
        let bidir = end.sum_sent_bidir_reverse.is_some() || end.sum_received_bidir_reverse.is_some();
        let mut summaries = vec![self.summary(file, 0, self.direction(false), self.first_direction(), bidir)];
        if bidir {
            summaries.push(self.summary(file, 1, self.direction(true), self.second_direction(), bidir));
        }
        summaries
    }

    /// Returns the goodput over time of each direction, for pictures. A direction without intervals is skipped.
    pub fn courses(&self) -> Vec<Iperf3Course> {
        let summaries = self.summaries("");
        let of_sums: [fn(&IntervalJson) -> Option<&SumJson>; 2] =
            [|slice| slice.sum.as_ref(), |slice| slice.sum_bidir_reverse.as_ref()];
        let courses = summaries.iter().zip(of_sums).map(|(summary, sum_of)| {
            // A side knows the RTT and the window of the streams that it sends on.
            let is_sender = self.is_client() == (summary.direction == TestDirection::Forward);
            let interval = |slice: &IntervalJson| {
                let sum = sum_of(slice).filter(|sum| sum.end > sum.start)?;
                let streams = || slice.streams.iter().filter(|stream| is_sender && stream.sender != Some(false));
                let windows = || streams().filter_map(|stream| stream.snd_cwnd);
                Some(Iperf3Interval {
                    start_seconds: sum.start,
                    end_seconds: sum.end,
                    bits_per_second: sum.bits_per_second,
                    rtt_seconds: streams().filter_map(|stream| Some(stream.rtt? / 1e6)).reduce(f64::max),
                    cwnd_bytes: windows().next().map(|_| windows().sum()),
                })
            };
            let intervals = self.intervals.iter().filter_map(interval).collect();
            Iperf3Course { direction: summary.direction, goodput: summary.goodput, intervals }
        });
        courses.filter(|course| !course.intervals.is_empty()).collect()
    }

    /// Returns the direction of one of the two sums: in a bidirectional test, the first sum is the data that the
    /// printing side sends.
    fn direction(&self, second: bool) -> TestDirection {
        let end = &self.end;
        let bidir = end.sum_sent_bidir_reverse.is_some() || end.sum_received_bidir_reverse.is_some();
        let client_sends = if bidir { self.is_client() != second } else { self.start.test_start.reverse == 0.0 };
        if client_sends { TestDirection::Forward } else { TestDirection::Reverse }
    }

    fn is_client(&self) -> bool {
        self.start.connecting_to.is_some()
    }

    fn first_direction(&self) -> DirectionSums<'_> {
        let intervals = self.intervals.iter().filter_map(|slice| slice.sum.as_ref()).collect();
        let end = &self.end;
        DirectionSums {
            sent: end.sum_sent.as_ref(),
            received: end.sum_received.as_ref(),
            all: end.sum.as_ref(),
            intervals,
        }
    }

    fn second_direction(&self) -> DirectionSums<'_> {
        let end = &self.end;
        DirectionSums {
            sent: end.sum_sent_bidir_reverse.as_ref(),
            received: end.sum_received_bidir_reverse.as_ref(),
            all: end.sum_bidir_reverse.as_ref(),
            intervals: self.intervals.iter().filter_map(|slice| slice.sum_bidir_reverse.as_ref()).collect(),
        }
    }

    fn summary(
        &self,
        file: &str,
        run: usize,
        direction: TestDirection,
        sums: DirectionSums<'_>,
        bidir: bool,
    ) -> RunSummary {
        let test = &self.start.test_start;
        let udp = test.protocol.eq_ignore_ascii_case("udp");
        // Received data if this side knows it. A server that sends knows only the data that it sent.
        let total_received = [sums.received, sums.sent, sums.all].into_iter().flatten().find(|sum| sum.bytes > 0.0);
        let got = total_received.cloned().unwrap_or_default();
        let total = sums.all.or(sums.received);
        let rates = sums.intervals.iter().filter(|sum| !sum.omitted && sum.seconds > 0.0);
        let rates: Vec<f64> = rates.map(|sum| sum.bytes * 8.0 / sum.seconds).collect();
        let senders = || self.end.streams.iter().filter_map(|stream| stream.sender.as_ref()).filter(|end| end.sender);
        let micros = |value: f64| Duration::try_from_secs_f64(value / 1e6).ok().filter(|rtt| !rtt.is_zero());
        // In a bidirectional test, the CPU time of one direction is unknown.
        let cpu = if bidir { PerEnd::default() } else { self.cpu(&got) };
        RunSummary {
            run,
            source: ResultSource::Iperf3,
            version: self.start.version.clone(),
            started: Duration::try_from_secs_f64(self.start.timestamp.timesecs).ok().map(lfn_base::date::rfc3339),
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
            ..RunSummary::new(file, MeanError::of(&rates))
        }
    }

    fn cpu(&self, got: &SumJson) -> PerEnd<Option<Figure>> {
        let processor = &self.end.cpu_utilization_percent;
        let per_gigabyte = |percent: Option<f64>| Figure::new(percent? / 100.0 * got.seconds / (got.bytes / 1e9));
        let (own, other) = (per_gigabyte(processor.host_total), per_gigabyte(processor.remote_total));
        if self.is_client() { PerEnd { near: own, far: other } } else { PerEnd { near: other, far: own } }
    }
}

/// Goodput over time of one direction of an iperf3 test.
#[derive(Debug, Clone, PartialEq)]
pub struct Iperf3Course {
    pub direction: TestDirection,
    /// Goodput of the whole test.
    pub goodput: BitRate,
    pub intervals: Vec<Iperf3Interval>,
}

/// Figures of all streams in an interval of iperf3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iperf3Interval {
    pub start_seconds: f64,
    pub end_seconds: f64,
    pub bits_per_second: f64,
    /// Largest RTT of a stream; absent if this side does not send.
    pub rtt_seconds: Option<f64>,
    /// Sum of the congestion windows; absent if this side does not send.
    pub cwnd_bytes: Option<f64>,
}

/// Sums of one direction of a test.
struct DirectionSums<'a> {
    sent: Option<&'a SumJson>,
    received: Option<&'a SumJson>,
    all: Option<&'a SumJson>,
    intervals: Vec<&'a SumJson>,
}
