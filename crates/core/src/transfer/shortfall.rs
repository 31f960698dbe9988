//! Explains in one sentence why a copy was slower than predicted, and gives a remedy.
//!
//! The evidence is the time that the copy's threads spent and the counters of the sender's kernel. It names the
//! bottleneck, but not always the cause: `lfn test` analyses deeper ([`crate::diagnose`]).

use std::time::Duration;

use serde::Serialize;

use super::bottleneck::{CopyBottleneck, ProgressSample, SocketEvidence};
use super::streams::{DEFAULT_MSS, MAX_AUTO_STREAMS, usable_streams};
use crate::units::{BitRate, Bytes, show_duration};

/// Minimum share of the predicted goodput that needs no explanation.
const NEAR_PREDICTED: f64 = 0.9;

/// Minimum share of the copy's time for a standstill to be the main cause. A shorter one explains less than the losses
/// around it.
const MIN_STANDSTILL_SHARE: f64 = 0.2;

/// Minimum share of the missing goodput that an outage must explain to be the main cause.
const MIN_OUTAGE_SHARE: f64 = 0.5;

/// Minimum duration. A shorter copy measures the start and end of the hosts, not the path.
const MIN_DURATION: Duration = Duration::from_secs(1);

/// A copy that was slower than predicted, with the cause and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    pub finding: String,
    pub remedy: String,
}

/// The figures of a finished copy.
#[derive(Debug, Clone, Copy)]
pub struct FinishedCopy<'a> {
    /// Payload size divided by time.
    pub goodput: BitRate,
    pub predicted: BitRate,
    pub bottleneck: CopyBottleneck,
    /// Counters of both sides at the end.
    pub sample: &'a ProgressSample,
    pub streams: u16,
    /// This host sent the data.
    pub near_sends: bool,
    /// Total time without a connection.
    pub outage: Duration,
    /// Total time with a connection in which nothing arrived.
    pub standstill: Duration,
}

/// Explains why the copy was slower than predicted. Returns `None` if it was not.
pub fn shortfall(finished: &FinishedCopy<'_>) -> Option<Shortfall> {
    let FinishedCopy { goodput, predicted, bottleneck, sample, streams, near_sends, outage, standstill } = *finished;
    if predicted.0 == 0 || sample.at < MIN_DURATION || goodput.as_f64() >= NEAR_PREDICTED * predicted.as_f64() {
        return None;
    }
    let sockets = sample.sockets.unwrap_or_default();
    let thread_time = sample.at.as_secs_f64() * f64::from(streams.max(1));
    let share = |seconds: f64| if thread_time > 0.0 { 100.0 * seconds / thread_time } else { 0.0 };
    let (source, destination) = if near_sends { ("near", "far") } else { ("far", "near") };
    let connected = sample.at.saturating_sub(outage).as_secs_f64() / sample.at.as_secs_f64();
    let missing = 1.0 - goodput.as_f64() / predicted.as_f64();
    let is_path_limited = matches!(
        bottleneck,
        CopyBottleneck::CongestionWindow
            | CopyBottleneck::StartUp
            | CopyBottleneck::LinkFull { .. }
            | CopyBottleneck::Outage
            | CopyBottleneck::Unknown
    );
    let was_fast_while_connected = goodput.as_f64() >= NEAR_PREDICTED * predicted.as_f64() * connected;
    let (why, remedy) = match bottleneck {
        _ if was_fast_while_connected
            || (is_path_limited || bottleneck == CopyBottleneck::Cpu)
                && 1.0 - connected >= MIN_OUTAGE_SHARE * missing =>
        {
            (
                format!("the connection, which was lost for {} of {}", show_duration(outage), show_duration(sample.at)),
                match was_fast_while_connected {
                    true => "find out why the connection dropped; apart from that, the copy was as fast as predicted"
                        .to_owned(),
                    false => "find out why the connection dropped; after each reconnect the streams start slowly again"
                        .to_owned(),
                },
            )
        }
        _ if is_path_limited && standstill.as_secs_f64() >= MIN_STANDSTILL_SHARE * sample.at.as_secs_f64() => (
            format!("a standstill: nothing arrived for {} of {}", show_duration(standstill), show_duration(sample.at)),
            "find out what interrupted the path; the connection survived".to_owned(),
        ),
        CopyBottleneck::SourceDisk => (
            format!("the {source} disk: reading took {:.0} % of the sending threads' time", share(sample.sender.disk)),
            "copy random:1GiB instead of the files to measure the path without the disk".to_owned(),
        ),
        CopyBottleneck::DestinationDisk => (
            format!(
                "the {destination} disk: writing took {:.0} % of the receiving threads' time",
                share(sample.receiver.disk)
            ),
            "copy to null: to measure the path without the disk".to_owned(),
        ),
        CopyBottleneck::Cpu => (
            format!(
                "the processors: hashing took {} on the {source} host and {} on the {destination} host, and the network waited",
                seconds(sample.sender.hash),
                seconds(sample.receiver.hash)
            ),
            "use --verify xxh3, or on a private circuit --clear-data, to use less CPU time".to_owned(),
        ),
        CopyBottleneck::ServerRateLimit => (
            format!("the server's rate limit: streams waited {} for it", time_rate_limited(sample)),
            "ask the administrator of the server for a higher --max-rate, --client-rate, or --rate of the token"
                .to_owned(),
        ),
        CopyBottleneck::ReceiveWindow => (
            format!(
                "the receive window: {} in total, but the BDP is {}",
                sockets.receive_window,
                path_bdp(predicted, &sockets)
            ),
            format!(
                "raise net.ipv4.tcp_rmem on the {destination} host to the value of `lfn plan`, or use more --streams"
            ),
        ),
        CopyBottleneck::SendBuffer => (
            format!("the send buffer: streams waited {} for it", seconds(sockets.sndbuf_limited_seconds)),
            format!("raise net.ipv4.tcp_wmem on the {source} host to the value of `lfn plan`, or use more --streams"),
        ),
        CopyBottleneck::CongestionWindow
            if sockets.congestion_window >= path_bdp(predicted, &sockets) && sockets.retransmits == 0 =>
        {
            (
                "a cause that the counters do not show: no segment was retransmitted, and the congestion windows are \
             larger than the BDP"
                    .to_owned(),
                "run `lfn test` to the same host for a deeper analysis".to_owned(),
            )
        }
        CopyBottleneck::CongestionWindow if sockets.congestion_window >= path_bdp(predicted, &sockets) => (
            format!(
                "loss: {} segments were retransmitted, although the total congestion window of {} was larger than the BDP of {}",
                sockets.retransmits,
                sockets.congestion_window,
                path_bdp(predicted, &sockets)
            ),
            "run `lfn test` to the same host: it distinguishes loss on the path from an overflowing queue".to_owned(),
        ),
        CopyBottleneck::CongestionWindow => (
            format!(
                "the congestion window: {} in total, but the BDP is {}; {} segments were retransmitted",
                sockets.congestion_window,
                path_bdp(predicted, &sockets),
                sockets.retransmits
            ),
            "use --congestion bbr if the path has random loss, otherwise more --streams".to_owned(),
        ),
        CopyBottleneck::StartUp => (
            format!("start-up: {} of {streams} streams were still in slow start at the end", sockets.in_slow_start),
            match streams.saturating_mul(2) {
                more if more <= MAX_AUTO_STREAMS.min(usable_streams(sample.bytes, DEFAULT_MSS)) => {
                    format!("use more streams for a faster start: --streams {more}")
                }
                _ => "this cost is paid once per copy; larger copies are affected less".to_owned(),
            },
        ),
        CopyBottleneck::LinkFull { .. } | CopyBottleneck::Outage | CopyBottleneck::Unknown => (
            "a cause that the counters do not show".to_owned(),
            "run `lfn test` to the same host for a deeper analysis".to_owned(),
        ),
    };
    let percent = 100.0 * goodput.as_f64() / predicted.as_f64();
    Some(Shortfall { finding: format!("{percent:.0} % of the predicted {predicted}; limited by {why}"), remedy })
}

fn time_rate_limited(sample: &ProgressSample) -> String {
    seconds(sample.sender.rate_limited + sample.receiver.rate_limited)
}

fn seconds(seconds: f64) -> String {
    show_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Returns the bandwidth-delay product of the path.
fn path_bdp(rate: BitRate, sockets: &SocketEvidence) -> Bytes {
    Bytes((rate.as_f64() / 8.0 * sockets.min_rtt_seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::bottleneck::StreamTime;

    fn finished(sample: &ProgressSample, limit: CopyBottleneck, goodput: u64) -> Option<Shortfall> {
        let (goodput, predicted) = (BitRate(goodput), BitRate(100_000_000));
        shortfall(&FinishedCopy {
            goodput,
            predicted,
            bottleneck: limit,
            sample,
            streams: 4,
            near_sends: true,
            outage: Duration::ZERO,
            standstill: Duration::ZERO,
        })
    }

    #[test]
    fn near_predicted_has_no_shortfall() {
        let sample = ProgressSample { at: Duration::from_secs(5), ..ProgressSample::default() };
        assert_eq!(finished(&ProgressSample::default(), CopyBottleneck::Unknown, 10_000_000), None, "too short");
        assert_eq!(finished(&sample, CopyBottleneck::SourceDisk, 95_000_000), None);
        assert_eq!(finished(&sample, CopyBottleneck::Unknown, 200_000_000), None);
        assert!(finished(&sample, CopyBottleneck::Unknown, 10_000_000).is_some());
        let cut = |seconds| FinishedCopy {
            goodput: BitRate(50_000_000),
            predicted: BitRate(100_000_000),
            bottleneck: CopyBottleneck::StartUp,
            sample: &sample,
            streams: 4,
            near_sends: true,
            outage: Duration::from_secs(seconds),
            standstill: Duration::ZERO,
        };
        let lost = |seconds| shortfall(&cut(seconds)).unwrap().finding.contains("the connection, which was lost for");
        // More than half of the missing goodput.
        assert_eq!([1, 2, 3].map(lost), [false, true, true]);
        // An outage that does not break the connection looks like loss.
        let stood = |limit| {
            let finished = FinishedCopy { bottleneck: limit, standstill: Duration::from_secs(2), ..cut(0) };
            shortfall(&finished).unwrap().finding.contains("nothing arrived for 2 s of 5 s")
        };
        assert!(
            stood(CopyBottleneck::CongestionWindow)
                && stood(CopyBottleneck::Unknown)
                && !stood(CopyBottleneck::SourceDisk)
        );
    }

    /// A congestion window above the BDP is not the limit; loss is.
    #[test]
    fn congestion_window_above_bdp_means_loss() {
        let sockets = SocketEvidence {
            congestion_window: Bytes(7_000_000),
            retransmits: 77,
            min_rtt_seconds: 0.5,
            ..SocketEvidence::default()
        };
        let sample = ProgressSample {
            at: Duration::from_secs(10),
            bytes: Bytes(1),
            sockets: Some(sockets),
            ..ProgressSample::default()
        };
        let Shortfall { finding, remedy } = finished(&sample, CopyBottleneck::CongestionWindow, 10_000_000).unwrap();
        assert!(
            finding.contains("loss: 77 segments") && finding.contains("larger than the BDP of 6.25 MB"),
            "{finding}"
        );
        assert!(remedy.contains("lfn test"), "{remedy}");
    }

    #[test]
    fn each_bottleneck_has_figures_and_remedy() {
        let sockets = SocketEvidence {
            receive_window: Bytes(1_000_000),
            congestion_window: Bytes(2_000_000),
            retransmits: 77,
            min_rtt_seconds: 0.5,
            sndbuf_limited_seconds: 3.0,
            in_slow_start: 3,
            ..SocketEvidence::default()
        };
        let shares = |disk, hash| StreamTime { disk, hash, network: 0.0, rate_limited: 2.0 };
        let (sender, receiver) = (shares(20.0, 1.0), shares(30.0, 2.0));
        let sample = ProgressSample {
            at: Duration::from_secs(10),
            bytes: Bytes(9_000_000),
            sender,
            receiver,
            sockets: Some(sockets),
        };
        for (limit, number, remedy) in [
            (CopyBottleneck::SourceDisk, "near disk: reading took 50 %", "random:"),
            (CopyBottleneck::DestinationDisk, "far disk: writing took 75 %", "null:"),
            (CopyBottleneck::Cpu, "hashing took 1 s on the near host and 2 s", "xxh3"),
            (CopyBottleneck::ServerRateLimit, "streams waited 4 s for it", "--max-rate"),
            (CopyBottleneck::ReceiveWindow, "1 MB in total, but the BDP is 6.25 MB", "tcp_rmem on the far host"),
            (CopyBottleneck::SendBuffer, "waited 3 s", "tcp_wmem on the near host"),
            (CopyBottleneck::CongestionWindow, "77 segments", "bbr"),
            (CopyBottleneck::StartUp, "3 of 4", "--streams"),
            (CopyBottleneck::Unknown, "do not show", "lfn test"),
        ] {
            let Shortfall { finding, remedy: text } = finished(&sample, limit, 10_000_000).unwrap();
            assert!(finding.starts_with("10 % of the predicted 100 Mb/s; ") && finding.contains(number), "{finding}");
            assert!(text.contains(remedy), "{text}");
        }
    }
}
