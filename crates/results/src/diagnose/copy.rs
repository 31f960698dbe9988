//! Rules of copies: why a copy was slower than predicted.
//!
//! The evidence is the time that the copy's threads spent and the counters of the sender's kernel, both summed over the
//! streams ([`super::bottleneck`]). They name the limit, but not always its cause: a test of the same path analyses
//! deeper. A copy as fast as predicted, or without a prediction, has no finding.

use std::time::Duration;

use lfn_base::plan::streams::{DEFAULT_MSS, MAX_AUTO_STREAMS, usable_streams};
use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::{Value, json};

use super::bottleneck::{CopyBottleneck, NEAR_PREDICTED, classify};
use super::host::slow_disk;
use super::limit::server_limits;
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::evidence::{CopyEvidence, ProgressSample, SocketEvidence};

/// Minimum share of the copy's time without arrivals for an outage to be the main cause. A shorter outage explains less than
/// the losses around it.
pub(super) const MIN_STALLED_SHARE: f64 = 0.2;
/// Minimum retransmitted segments for a loss that limits a copy.
pub(super) const MIN_RETRANSMITS: u64 = 1;
/// Minimum share of the missing goodput that a lost connection must explain to be the main cause.
pub(super) const MIN_DISCONNECTED_SHARE: f64 = 0.5;
/// Minimum duration. A shorter copy measures the start and end of the hosts, not the path.
pub(super) const MIN_DURATION: Duration = Duration::from_secs(1);

/// Returns the bottleneck of a copy: the activity or the resource that limits the whole time.
pub(super) fn bottleneck(copy: &CopyEvidence) -> CopyBottleneck {
    // Time without a connection has its own cause.
    let connected = ProgressSample { at: copy.end.at.saturating_sub(copy.disconnected), ..copy.end };
    let limit = classify(&copy.start, &connected, copy.streams, copy.predicted);
    // A link that was full only while there was a connection does not limit the whole copy.
    let is_slow = copy.predicted.is_some_and(|predicted| copy.goodput().as_f64() < NEAR_PREDICTED * predicted.as_f64());
    if matches!(limit, CopyBottleneck::LinkFull { .. }) && is_slow { CopyBottleneck::LostConnection } else { limit }
}

/// Returns true if the copy is slower than predicted.
pub(super) fn is_slow(figures: &Figures) -> bool {
    Shortfall::of(figures).is_some()
}

/// Returns true for the limits that the path, the sockets or the kernels set: the rules of tests examine them.
pub(super) fn is_of_path(finding: &Finding) -> bool {
    finding.cause().is_some_and(|cause| {
        [
            Cause::ReceiveWindow,
            Cause::SendBuffer,
            Cause::StartUp,
            Cause::Loss,
            Cause::CongestionWindow,
            Cause::Outage,
            Cause::Unexplained,
        ]
        .contains(&cause)
    })
}

/// Finds this cause of a goodput below the prediction.
pub(super) fn shortfall(figures: &Figures, cause: Cause) -> Option<Finding> {
    let shortfall = Shortfall::of(figures)?;
    let explanation = shortfall.explain();
    if explanation.cause != cause {
        return None;
    }
    let percent = 100.0 * shortfall.goodput.as_f64() / shortfall.predicted.as_f64();
    let summary = format!("{percent:.0} % of the predicted {}; limited by {}", shortfall.predicted, explanation.why);
    let mut finding = finding(figures, cause, summary, explanation.remedy, Some(shortfall.predicted));
    finding.gain = Some(BitRate(shortfall.predicted.0.saturating_sub(shortfall.goodput.0)));
    finding.evidence = figures_map([
        ("goodput_bits_per_second", json!(shortfall.goodput.0)),
        ("predicted_goodput_bits_per_second", json!(shortfall.predicted.0)),
    ]);
    finding.evidence.extend(figures_map(explanation.figures));
    Some(finding)
}

/// A copy that was slower than predicted.
struct Shortfall<'a> {
    figures: &'a Figures,
    copy: &'a CopyEvidence,
    /// Counters at the end, over the whole time.
    sample: ProgressSample,
    sockets: SocketEvidence,
    goodput: BitRate,
    predicted: BitRate,
}

/// The cause of a shortfall in words, with its figures and its remedy.
struct Explanation {
    cause: Cause,
    why: String,
    remedy: Remedy,
    figures: Vec<(&'static str, Value)>,
}

impl<'a> Shortfall<'a> {
    /// Returns none for a copy that is short, as fast as predicted, or without a prediction.
    fn of(figures: &'a Figures) -> Option<Self> {
        let copy = figures.copy.as_ref()?;
        let predicted = copy.predicted.filter(|predicted| predicted.0 > 0)?;
        let (sample, goodput) = (copy.end, copy.goodput());
        if sample.at < MIN_DURATION || goodput.as_f64() >= NEAR_PREDICTED * predicted.as_f64() {
            return None;
        }
        Some(Shortfall { figures, copy, sample, sockets: sample.sockets.unwrap_or_default(), goodput, predicted })
    }

    fn explain(&self) -> Explanation {
        let bottleneck = bottleneck(self.copy);
        self.interruption(bottleneck).unwrap_or_else(|| match bottleneck {
            CopyBottleneck::SourceDisk | CopyBottleneck::DestinationDisk | CopyBottleneck::Cpu => self.host(bottleneck),
            CopyBottleneck::ServerRateLimit => self.server_limit(),
            CopyBottleneck::ReceiveWindow => self.receive_window(),
            CopyBottleneck::SendBuffer => self.send_buffer(),
            CopyBottleneck::CongestionWindow => self.congestion_window(),
            CopyBottleneck::StartUp => self.start_up(),
            CopyBottleneck::LinkFull { .. } | CopyBottleneck::LostConnection | CopyBottleneck::Unknown => {
                self.unexplained("a cause that the counters do not show")
            }
        })
    }

    /// Explains a lost connection, or a connection on which nothing arrived.
    fn interruption(&self, bottleneck: CopyBottleneck) -> Option<Explanation> {
        let (total, disconnected, stalled) = (self.sample.at, self.copy.disconnected, self.copy.stalled);
        let connected = total.saturating_sub(disconnected).as_secs_f64() / total.as_secs_f64();
        let missing = 1.0 - self.goodput.as_f64() / self.predicted.as_f64();
        let is_path_limited = matches!(
            bottleneck,
            CopyBottleneck::CongestionWindow
                | CopyBottleneck::StartUp
                | CopyBottleneck::LinkFull { .. }
                | CopyBottleneck::LostConnection
                | CopyBottleneck::Unknown
        );
        let was_fast_while_connected = self.goodput.as_f64() >= NEAR_PREDICTED * self.predicted.as_f64() * connected;
        let explains_most = (is_path_limited || bottleneck == CopyBottleneck::Cpu)
            && 1.0 - connected >= MIN_DISCONNECTED_SHARE * missing;
        // The times of the answers show when the path is interrupted.
        let remedy = Remedy { command: format!("ping -D {}", self.figures.far_network_name()), host: None };
        if was_fast_while_connected || explains_most {
            let rest = match was_fast_while_connected {
                true => "apart from that, the copy was as fast as predicted",
                false => "after each reconnect the streams start slowly again",
            };
            let (lost, all) = (show_duration(disconnected), show_duration(total));
            return Some(Explanation {
                cause: Cause::LostConnection,
                why: format!("the connection, which was lost for {lost} of {all}; {rest}"),
                remedy,
                figures: vec![("disconnected_seconds", json!(disconnected.as_secs_f64()))],
            });
        }
        let is_long = stalled.as_secs_f64() >= MIN_STALLED_SHARE * total.as_secs_f64();
        (is_path_limited && is_long).then(|| Explanation {
            cause: Cause::Outage,
            why: format!(
                "an outage: nothing arrived for {} of {}; the connection survived",
                show_duration(stalled),
                show_duration(total)
            ),
            remedy,
            figures: vec![("outage_seconds", json!(stalled.as_secs_f64()))],
        })
    }

    /// Explains a limit of a disk or of the processors.
    fn host(&self, bottleneck: CopyBottleneck) -> Explanation {
        let thread_time = self.sample.at.as_secs_f64() * f64::from(self.copy.streams.max(1));
        let share = |seconds: f64| if thread_time > 0.0 { seconds / thread_time } else { 0.0 };
        let (source, destination) = self.figures.ends_in_words();
        let (sending, receiving) = (&self.sample.sender, &self.sample.receiver);
        match bottleneck {
            CopyBottleneck::SourceDisk => Explanation {
                cause: Cause::SourceDisk,
                why: format!(
                    "the {source} disk: reading took {:.0} % of the sending threads' time",
                    100.0 * share(sending.disk)
                ),
                remedy: slow_disk(&self.figures.sender.name),
                figures: vec![("disk_share", json!(share(sending.disk)))],
            },
            CopyBottleneck::DestinationDisk => Explanation {
                cause: Cause::DestinationDisk,
                why: format!(
                    "the {destination} disk: writing took {:.0} % of the receiving threads' time",
                    100.0 * share(receiving.disk)
                ),
                remedy: slow_disk(&self.figures.receiver.name),
                figures: vec![("disk_share", json!(share(receiving.disk)))],
            },
            _ => Explanation {
                cause: Cause::Processor,
                why: format!(
                    "the processors: hashing took {} on the {source} host and {} on the {destination} host, and the \
                     network waited",
                    seconds(sending.hash),
                    seconds(receiving.hash)
                ),
                remedy: self.figures.repeat_command("--verify xxh3"),
                figures: vec![
                    ("sender_hash_seconds", json!(sending.hash)),
                    ("receiver_hash_seconds", json!(receiving.hash)),
                ],
            },
        }
    }

    fn server_limit(&self) -> Explanation {
        let waited = self.sample.sender.rate_limited + self.sample.receiver.rate_limited;
        Explanation {
            cause: Cause::ServerLimit,
            why: format!(
                "the server's rate limit (--max-rate, --client-rate, or the rate of the token): streams waited {} for it",
                seconds(waited)
            ),
            remedy: server_limits(self.figures, self.figures.path.map_or(self.predicted, |path| path.capacity)),
            figures: vec![("rate_limited_seconds", json!(waited))],
        }
    }

    fn receive_window(&self) -> Explanation {
        let (window, bdp) = (self.sockets.receive_window, self.bdp());
        // The window of a stream is limited, so that more streams have a larger window together.
        let factor = bdp.0.div_ceil(window.0.max(1)).max(2);
        Explanation {
            cause: Cause::ReceiveWindow,
            why: format!("the receive window: {window} in total, but the BDP is {bdp}"),
            remedy: self.more_streams(factor),
            figures: vec![("receive_window_bytes", json!(window.0)), ("bdp_bytes", json!(bdp.0))],
        }
    }

    fn send_buffer(&self) -> Explanation {
        let waited = self.sockets.sndbuf_limited_seconds;
        Explanation {
            cause: Cause::SendBuffer,
            why: format!("the send buffer: streams waited {} for it", seconds(waited)),
            remedy: self.more_streams(2),
            figures: vec![("sndbuf_limited_seconds", json!(waited))],
        }
    }

    /// Explains a congestion window that limits the streams: it is below the BDP, or losses reduce the goodput anyway.
    fn congestion_window(&self) -> Explanation {
        let (window, retransmits, bdp) = (self.sockets.congestion_window, self.sockets.retransmits, self.bdp());
        if window >= bdp && retransmits < MIN_RETRANSMITS {
            return self.unexplained(
                "a cause that the counters do not show: no segment was retransmitted, and the congestion windows are \
                 larger than the BDP",
            );
        }
        let (cause, why, remedy) = if window >= bdp {
            let why = format!(
                "loss: {retransmits} segments were retransmitted, although the total congestion window of {window} was \
                 larger than the BDP of {bdp}"
            );
            // A test distinguishes loss on the path from an overflowing queue.
            (Cause::Loss, why, self.figures.test_of_path(""))
        } else {
            let why = format!(
                "the congestion window: {window} in total, but the BDP is {bdp}; {retransmits} segments were \
                 retransmitted"
            );
            let remedy = match self.sockets.switched_to_bbr {
                true => self.more_streams(2),
                false => self.figures.repeat_command("--congestion bbr"),
            };
            (Cause::CongestionWindow, why, remedy)
        };
        let figures = vec![
            ("congestion_window_bytes", json!(window.0)),
            ("bdp_bytes", json!(bdp.0)),
            ("retransmitted_segments", json!(retransmits)),
        ];
        Explanation { cause, why, remedy, figures }
    }

    fn start_up(&self) -> Explanation {
        let (slow, streams) = (self.sockets.in_slow_start, self.copy.streams);
        let more = streams.saturating_mul(2);
        let is_useful = more <= MAX_AUTO_STREAMS.min(usable_streams(self.sample.bytes, DEFAULT_MSS));
        let cost = if is_useful { "" } else { "; this cost is paid once for each copy" };
        Explanation {
            cause: Cause::StartUp,
            why: format!("start-up: {slow} of {streams} streams were still in slow start at the end{cost}"),
            remedy: if is_useful { self.more_streams(2) } else { self.figures.test_of_path("") },
            figures: vec![("streams_in_slow_start", json!(slow)), ("streams", json!(streams))],
        }
    }

    fn unexplained(&self, why: &str) -> Explanation {
        Explanation {
            cause: Cause::Unexplained,
            why: why.to_owned(),
            remedy: self.figures.test_of_path(""),
            figures: vec![("retransmitted_segments", json!(self.sockets.retransmits))],
        }
    }

    /// Returns the command that repeats the copy with `factor` times as many streams, or a test if the copy has the
    /// maximum already.
    fn more_streams(&self, factor: u64) -> Remedy {
        let streams = u64::from(self.copy.streams.max(1));
        let more = streams.saturating_mul(factor).min(MAX_AUTO_STREAMS.into());
        if more <= streams {
            return self.figures.test_of_path("");
        }
        self.figures.repeat_command(&format!("--streams {more}"))
    }

    /// Returns the bandwidth-delay product of the path.
    fn bdp(&self) -> Bytes {
        Bytes((self.predicted.as_f64() / 8.0 * self.sockets.min_rtt_seconds) as u64)
    }
}

fn seconds(seconds: f64) -> String {
    show_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::diagnose;
    use crate::evidence::{Evidence, HostNames, StreamTime};
    use crate::measure::TestDirection;

    /// A copy of ten seconds over four streams, of 12.5 MB: a tenth of the predicted 100 Mb/s.
    fn slow_copy() -> CopyEvidence {
        let sockets = SocketEvidence {
            receive_window: Bytes(64 << 20),
            congestion_window: Bytes(2_000_000),
            busy_seconds: 40.0,
            retransmits: 77,
            min_rtt_seconds: 0.5,
            ..SocketEvidence::default()
        };
        let end = ProgressSample {
            at: Duration::from_secs(10),
            bytes: Bytes(12_500_000),
            sockets: Some(sockets),
            ..ProgressSample::default()
        };
        CopyEvidence { end, streams: 4, predicted: Some(BitRate(100_000_000)), ..CopyEvidence::default() }
    }

    /// Returns the only finding of a copy after a change.
    fn found(change: impl FnOnce(&mut CopyEvidence, &mut SocketEvidence)) -> Option<Finding> {
        let mut copy = slow_copy();
        let mut sockets = copy.end.sockets.unwrap();
        change(&mut copy, &mut sockets);
        copy.end.sockets = copy.end.sockets.map(|_| sockets);
        let hosts = HostNames { near: "near".into(), far: "far".into() };
        let mut findings =
            diagnose(&Evidence { hosts, ..Evidence::of_copy(TestDirection::Forward, copy, &[]) }).findings;
        assert!(findings.len() <= 1, "{findings:?}");
        findings.pop()
    }

    #[test]
    fn near_predicted_has_no_finding() {
        assert_eq!(found(|copy, _| copy.end.bytes = Bytes(118_000_000)), None, "94 % of the prediction");
        assert_eq!(found(|copy, _| copy.end.bytes = Bytes(250_000_000)), None, "above the prediction");
        assert_eq!(found(|copy, _| copy.predicted = None), None, "no prediction");
        let short = |copy: &mut CopyEvidence, _: &mut SocketEvidence| copy.end.at = Duration::from_millis(900);
        assert_eq!(found(short), None, "too short");
        assert!(found(|_, _| {}).is_some());
    }

    #[test]
    fn each_bottleneck_has_figures_and_remedy() {
        let time = |disk, hash| StreamTime { disk, hash, network: 0.0, rate_limited: 0.0 };
        type Change = Box<dyn FnOnce(&mut CopyEvidence, &mut SocketEvidence)>;
        let cases: Vec<(Cause, &str, &str, Change)> = vec![
            (
                Cause::SourceDisk,
                "near disk: reading took 75 %",
                "iostat -x 1 5; pidstat -d 1 5   # on near",
                Box::new(move |copy, _| copy.end.sender = time(30.0, 1.0)),
            ),
            (
                Cause::DestinationDisk,
                "far disk: writing took 75 %",
                "iostat -x 1 5; pidstat -d 1 5   # on far",
                Box::new(move |copy, _| copy.end.receiver = time(30.0, 2.0)),
            ),
            (
                Cause::Processor,
                "hashing took 11 s on the near host and 2 s",
                "lfn copy far --verify xxh3",
                Box::new(move |copy, sockets| {
                    (copy.end.sender, copy.end.receiver, sockets.busy_seconds) = (time(0.0, 11.0), time(0.0, 2.0), 4.0);
                }),
            ),
            (
                Cause::ServerLimit,
                "streams waited 24 s for it",
                "lfn serve --max-rate 100mbit --client-rate 100mbit   # if a token limits the rate: lfn token add NAME \
                 --rate 100mbit   # on far",
                Box::new(|copy, _| {
                    copy.end.receiver = StreamTime { network: 30.0, rate_limited: 24.0, ..StreamTime::default() };
                }),
            ),
            (
                Cause::ReceiveWindow,
                "the receive window: 500 kB in total, but the BDP is 6.25 MB",
                "lfn copy far --streams 52",
                Box::new(|_, sockets| sockets.receive_window = Bytes(500_000)),
            ),
            (
                Cause::SendBuffer,
                "the send buffer: streams waited 25 s",
                "lfn copy far --streams 8",
                Box::new(|_, sockets| sockets.sndbuf_limited_seconds = 25.0),
            ),
            (
                Cause::CongestionWindow,
                "2 MB in total, but the BDP is 6.25 MB; 77 segments",
                "lfn copy far --congestion bbr",
                Box::new(|_, _| {}),
            ),
            // A congestion window above the BDP is not the limit; loss is.
            (
                Cause::Loss,
                "loss: 77 segments were retransmitted, although the total congestion window of 7 MB was larger",
                "lfn test far",
                Box::new(|_, sockets| sockets.congestion_window = Bytes(7_000_000)),
            ),
            (
                Cause::StartUp,
                "3 of 4 streams were still in slow start",
                "lfn copy far --streams 8",
                Box::new(|_, sockets| (sockets.in_slow_start, sockets.retransmits) = (3, 0)),
            ),
            (
                Cause::Unexplained,
                "a cause that the counters do not show",
                "lfn test far",
                Box::new(|_, sockets| sockets.busy_seconds = 1.0),
            ),
        ];
        for (cause, text, remedy, change) in cases {
            let finding = found(change).unwrap();
            assert_eq!(finding.cause(), Some(cause), "{finding:?}");
            assert!(finding.summary.starts_with("10 % of the predicted 100 Mb/s; limited by "), "{finding:?}");
            assert!(finding.summary.contains(text), "{finding:?}");
            assert_eq!(finding.remedy.to_string(), remedy);
            assert_eq!(finding.gain, Some(BitRate(90_000_000)));
        }
    }

    #[test]
    fn a_lost_connection_explains_half_of_the_missing_goodput() {
        // Half of the predicted goodput.
        let cause = |seconds: u64| {
            let cut = |copy: &mut CopyEvidence, _: &mut SocketEvidence| {
                (copy.end.bytes, copy.disconnected) = (Bytes(62_500_000), Duration::from_secs(seconds));
            };
            found(cut).unwrap().cause()
        };
        assert_eq!(
            [1, 3, 5].map(cause),
            [Some(Cause::CongestionWindow), Some(Cause::LostConnection), Some(Cause::LostConnection)]
        );
        let only = found(|copy, _| (copy.end.bytes, copy.disconnected) = (Bytes(62_500_000), Duration::from_secs(5)));
        assert!(
            only.unwrap().summary.ends_with("lost for 5 s of 10 s; apart from that, the copy was as fast as predicted")
        );
    }

    #[test]
    fn an_outage_looks_like_loss() {
        let stood = |copy: &mut CopyEvidence, _: &mut SocketEvidence| copy.stalled = Duration::from_secs(4);
        let finding = found(stood).unwrap();
        assert_eq!(finding.cause(), Some(Cause::Outage));
        assert!(finding.summary.contains("nothing arrived for 4 s of 10 s"), "{finding:?}");
        // A disk that stood still is the cause itself.
        let disk = found(|copy, sockets| {
            stood(copy, sockets);
            copy.end.sender.disk = 30.0;
        });
        assert_eq!(disk.unwrap().cause(), Some(Cause::SourceDisk));
    }

    #[test]
    fn more_streams_stop_at_the_maximum() {
        let more = found(|copy, sockets| (copy.streams, sockets.receive_window) = (100, Bytes(500_000))).unwrap();
        assert_eq!(more.remedy.command, "lfn copy far --streams 256");
        let most = found(|copy, sockets| (copy.streams, sockets.receive_window) = (256, Bytes(500_000))).unwrap();
        assert_eq!(most.remedy.command, "lfn test far");
    }
}
