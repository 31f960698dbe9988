//! Reports of both ends of a copy, from samples of its counters: the rules of tests then examine a copy like a test.
//!
//! A copy sums up its streams, because it may have hundreds of them. Each stream of the reports has an equal part of the
//! sums.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::tcp_model::Congestion;
use lfn_base::units::Bytes;

use super::copy::{CopyHost, ProgressSample, SocketEvidence};
use crate::host::HostReport;
use crate::measure::{EndReport, Interval, Kernel, SocketReport, StreamReport, StreamSample};

/// Maximum streams of the reports. A peer may report any number.
const MAX_STREAMS: u16 = 1024;

/// Reports of both ends of a copy.
pub(super) struct CopyEnds {
    pub(super) sender: EndReport,
    pub(super) receiver: EndReport,
}

impl CopyEnds {
    /// Makes the reports from samples in the order of their times. The sockets of the last sample give the number of
    /// streams. Without sockets the reports are empty.
    pub(super) fn of(samples: &[ProgressSample]) -> CopyEnds {
        let last = samples.iter().rev().find_map(|sample| sample.sockets);
        let streams = last.map_or(0, |sockets| sockets.streams).min(MAX_STREAMS);
        if streams == 0 {
            return CopyEnds { sender: EndReport::default(), receiver: EndReport::default() };
        }
        let sender = end(samples, streams, |sample| sample.sockets, |sample| sample.sender_host);
        let receiver = end(samples, streams, |sample| sample.receiver_sockets, |sample| sample.receiver_host);
        CopyEnds { sender, receiver }
    }
}

fn end(
    samples: &[ProgressSample],
    streams: u16,
    sockets: fn(&ProgressSample) -> Option<SocketEvidence>,
    host: fn(&ProgressSample) -> Option<CopyHost>,
) -> EndReport {
    let mut intervals = Vec::with_capacity(samples.len());
    let (mut start, mut before) = (Duration::ZERO, 0);
    for sample in samples.iter().filter(|sample| !sample.at.is_zero()) {
        let bytes = sample.bytes.0.saturating_sub(before);
        let stream = |number: u16| StreamSample {
            stream: number,
            bytes: part(bytes, number, streams),
            tcp_info: sockets(sample).map(|sockets| stream_info(&sockets, number, streams)),
            ..StreamSample::default()
        };
        let streams = (0..streams).map(stream).collect();
        intervals.push(Interval { start, end: sample.at, bytes, streams, ..Interval::default() });
        (start, before) = (sample.at, sample.bytes.0);
    }
    let last = samples.iter().rev().find_map(sockets);
    let report = |number: u16| StreamReport {
        stream: number,
        bytes: part(before, number, streams),
        socket: last.map(|sockets| socket_report(&sockets)),
        tcp_info: last.map(|sockets| stream_info(&sockets, number, streams)),
        ..StreamReport::default()
    };
    let host = samples.iter().rev().find_map(host);
    EndReport {
        elapsed: start,
        bytes: before,
        kernel: host.map(|host| kernel(&host)),
        host: host.map(|host| HostReport { counters: Some(counters(&host)), ..HostReport::default() }),
        streams: (0..streams).map(report).collect(),
        intervals,
        ..EndReport::default()
    }
}

/// Returns the part of stream `number` of a sum over all streams.
fn part(sum: u64, number: u16, streams: u16) -> u64 {
    let streams = u64::from(streams.max(1));
    sum / streams + u64::from(u64::from(number) < sum % streams)
}

/// Returns the figures of one stream. Counters are divided by the streams at the end, windows by those at present.
fn stream_info(sockets: &SocketEvidence, number: u16, streams: u16) -> TcpInfo {
    let count = |sum: u64| u32::try_from(part(sum, number, streams)).unwrap_or(u32::MAX);
    let mean = |sum: u64| u32::try_from(sum / u64::from(sockets.streams.max(1))).unwrap_or(u32::MAX);
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds / f64::from(streams.max(1))).ok();
    let whole = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let segments = |bytes: u32| bytes / sockets.mss_bytes.max(1);
    TcpInfo {
        state: 1,
        window_scaling: number >= sockets.without_scaling,
        sack: true,
        timestamps: true,
        ecn: number < sockets.with_ecn,
        ecn_seen: number < sockets.ecn_seen,
        snd_mss_bytes: sockets.mss_bytes,
        pmtu_bytes: sockets.pmtu_bytes,
        rtt: whole(sockets.rtt_seconds),
        rttvar: whole(sockets.rtt_deviation_seconds),
        ssthresh_segments: sockets.threshold_bytes.map(|at| segments(u32::try_from(at).unwrap_or(u32::MAX))),
        cwnd_segments: segments(mean(sockets.congestion_window.0)),
        retransmitted_segments: count(sockets.retransmits),
        sent_segments: Some(count(sockets.segments_sent)),
        received_segments: Some(count(sockets.segments_received)),
        sent_data_segments: Some(count(sockets.data_segments_sent)),
        min_rtt: Some(whole(sockets.min_rtt_seconds)),
        busy: time(sockets.busy_seconds),
        rwnd_limited: time(sockets.rwnd_limited_seconds),
        sndbuf_limited: time(sockets.sndbuf_limited_seconds),
        delivered_segments: Some(count(sockets.delivered)),
        delivered_marked_segments: Some(count(sockets.marked)),
        sent_bytes: (sockets.sent_bytes > 0).then(|| part(sockets.sent_bytes, number, streams)),
        retransmitted_bytes: (sockets.sent_bytes > 0).then(|| part(sockets.retransmitted_bytes, number, streams)),
        duplicate_segments: Some(count(sockets.duplicates)),
        reorderings: Some(count(sockets.reorderings)),
        snd_wnd_bytes: Some(mean(sockets.receive_window.0)).filter(|window| *window > 0),
        timeouts: Some(u16::try_from(count(sockets.timeouts)).unwrap_or(u16::MAX)),
        ..TcpInfo::default()
    }
}

fn socket_report(sockets: &SocketEvidence) -> SocketReport {
    let congestion = match sockets.congestion {
        Some(Congestion::Reno) => "reno",
        Some(Congestion::Cubic) => "cubic",
        Some(Congestion::Bbr) => "bbr",
        None => "",
    };
    let sndbuf_granted_bytes = Bytes(sockets.send_buffer.0 / u64::from(sockets.streams.max(1)));
    SocketReport { congestion: congestion.to_owned(), sndbuf_granted_bytes, ..SocketReport::default() }
}

fn kernel(host: &CopyHost) -> Kernel {
    Kernel {
        tcp_rmem_bytes: host.tcp_rmem_bytes,
        tcp_wmem_bytes: host.tcp_wmem_bytes,
        moderate_rcvbuf: host.moderate_rcvbuf,
        window_scaling: host.window_scaling,
        ..Kernel::default()
    }
}

/// Returns the counters by their names in `/proc/net/netstat`. The table has only changed counters, and HyStart two.
fn counters(host: &CopyHost) -> BTreeMap<String, i64> {
    let known = [
        ("TcpExt.TCPSackRecovery", host.recoveries),
        ("TcpExt.TCPHystartTrainDetect", host.hystart_exits),
        ("TcpExt.TCPHystartDelayDetect", host.hystart_exits.map(|_| 0)),
    ];
    let known = known.into_iter().filter_map(|(name, count)| Some((name.to_owned(), i64::try_from(count?).ok()?)));
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;
    use crate::evidence::figures::Figures;
    use crate::measure::TestDirection;

    #[test]
    fn parts_of_a_sum_add_up_to_the_sum() {
        for (sum, streams) in [(0, 1), (3, 4), (10, 4), (u64::MAX, 7)] {
            assert_eq!((0..streams).map(|number| part(sum, number, streams)).sum::<u64>(), sum, "{sum} {streams}");
        }
    }

    #[test]
    fn samples_of_a_copy_have_the_figures_of_a_test() {
        let sample = |second: u64| {
            let sockets = SocketEvidence {
                receive_window: Bytes(4_000_000),
                congestion_window: Bytes(4 * 1448 * 100),
                busy_seconds: 4.0 * second as f64,
                retransmits: 3 * second,
                min_rtt_seconds: 0.05,
                rtt_seconds: 0.06,
                streams: 4,
                congestion: Some(Congestion::Cubic),
                sent_bytes: 10_000_000 * second,
                mss_bytes: 1448,
                ..SocketEvidence::default()
            };
            let host = CopyHost { recoveries: Some(second), window_scaling: true, ..CopyHost::default() };
            ProgressSample {
                at: Duration::from_secs(second),
                bytes: Bytes(10_000_000 * second),
                sockets: Some(sockets),
                sender_host: Some(host),
                ..ProgressSample::default()
            }
        };
        let samples: Vec<ProgressSample> = (1..=8).map(sample).collect();
        let copy = crate::evidence::CopyEvidence { end: samples[7], ..Default::default() };
        for direction in [TestDirection::Forward, TestDirection::Reverse] {
            let figures = Figures::of(&Evidence::of_copy(direction, copy, &samples));
            assert_eq!((figures.stream_count(), figures.streams[0].mss), (4, 1448));
            assert_eq!(figures.streams[3].snd_wnd.map(|window| window.median), Some(1_000_000));
            assert_eq!(figures.streams[3].cwnd, Bytes(144_800));
            assert_eq!(figures.streams[0].busy_share, Some(1.0));
            assert_eq!((figures.counters.retransmitted, figures.counters.recoveries), (24, Some(8)));
            assert_eq!(figures.course.intervals.len(), 8);
            assert_eq!(figures.course.intervals[5].retransmitted, 3);
            assert_eq!(figures.steady_goodput().0, 80_000_000);
            assert!(figures.sender.kernel.is_some_and(|kernel| kernel.window_scaling));
        }
    }

    #[test]
    fn samples_without_sockets_are_no_evidence() {
        let copy = crate::evidence::CopyEvidence::default();
        let figures = Figures::of(&Evidence::of_copy(TestDirection::Forward, copy, &[ProgressSample::default()]));
        assert_eq!((figures.streams.len(), figures.course.intervals.len()), (0, 0));
    }
}
