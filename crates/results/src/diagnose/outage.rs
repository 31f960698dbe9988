//! An outage: nothing arrived for a part of a test, and the connection survived.
//!
//! The data that was in flight is lost, so an outage looks like loss. If most other intervals have losses too, a
//! sender that waits for a time-out is a consequence of these losses.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::json;

use super::network::dips;
use super::pacing::requested_pacing;
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;

/// Minimum time without arrivals. A shorter one can be a single time-out of the sender (RFC 6298 section 2.4).
pub(super) const MIN_TIME: Duration = Duration::from_secs(1);
/// Minimum round trips without arrivals.
pub(super) const MIN_ROUND_TRIPS: u32 = 5;
/// Maximum share of the other intervals with retransmissions. Random loss has retransmissions in almost every interval;
/// a full queue, such as after slow start, in a few.
pub(super) const MAX_LOSSY_SHARE: f64 = 0.5;

/// Data that a sender with a requested pacing may send at once: 16 segments of Ethernet.
const MAX_PACED_BURST: Bytes = Bytes(16 * 1500);

/// Finds a time without arrivals that losses do not explain.
pub(super) fn outage(figures: &Figures) -> Option<Finding> {
    // Several outages are one finding.
    if dips::outages(figures).is_some() || dips::searches_mtu(figures) {
        return None;
    }
    let outage = figures.outage?;
    // A slow sender pauses between its packets.
    let segments = requested_pacing(figures).map(|pace| pace.time_for(MAX_PACED_BURST)).unwrap_or_default();
    let min_time = MIN_TIME.max(figures.base_rtt.saturating_mul(MIN_ROUND_TRIPS)).max(segments);
    let lossy_share = outage.lossy_intervals as f64 / outage.other_intervals.max(1) as f64;
    if outage.time < min_time || lossy_share > MAX_LOSSY_SHARE {
        return None;
    }
    let (time, elapsed) = (outage.time, figures.elapsed);
    let summary = format!(
        "nothing arrived for {} of {}, although {} had data in flight; the connection survived",
        show_duration(time),
        show_duration(elapsed),
        figures.sender.name
    );
    let share = time.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let without = BitRate((figures.goodput.as_f64() / (1.0 - share).max(0.01)) as u64);
    let predicted = figures.possible_goodput().map_or(without, |possible| possible.min(without));
    // The times of the answers show when the path is interrupted.
    let remedy = Remedy { command: format!("ping -D {}", figures.far_network_name()), host: None };
    let mut finding = finding(figures, Cause::Outage, summary, remedy, Some(predicted));
    // The gain is over the whole test: the steady part may not contain the outage.
    finding.gain = Some(BitRate(predicted.0.saturating_sub(figures.goodput.0)));
    finding.evidence = figures_map([
        ("outage_seconds", json!(time.as_secs_f64())),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("lossy_intervals", json!(outage.lossy_intervals)),
        ("other_intervals", json!(outage.other_intervals)),
    ]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use lfn_base::tcp_info::TcpInfo;

    use super::*;
    use crate::diagnose::diagnose;
    use crate::evidence::Evidence;
    use crate::measure::{EndReport, Interval, StreamReport, StreamSample, TestRequest};

    const SECOND: Duration = Duration::from_secs(1);

    /// A test with one interval a second. `bytes` arrived in each, `resent` segments were retransmitted in each, and the
    /// sender was busy for `busy` seconds of each.
    fn evidence(bytes: &[u64], resent: &[u32], busy: &[f64]) -> Evidence {
        let end = |sends: bool| {
            let interval = |number: usize| {
                let total: u32 = resent[..=number].iter().sum();
                let sent: u64 = bytes[..=number].iter().sum::<u64>() + u64::from(total) * 1448;
                let tcp_info = TcpInfo {
                    rtt: SECOND / 20,
                    min_rtt: Some(SECOND / 20),
                    snd_mss_bytes: 1448,
                    cwnd_segments: 500,
                    retransmitted_segments: total,
                    busy: Some(Duration::from_secs_f64(busy[..=number].iter().sum())),
                    rwnd_limited: Some(Duration::ZERO),
                    sndbuf_limited: Some(Duration::ZERO),
                    sent_bytes: Some(sent),
                    retransmitted_bytes: Some(u64::from(total) * 1448),
                    duplicate_segments: Some(0),
                    window_scaling: true,
                    ..TcpInfo::default()
                };
                let tcp_info = sends.then_some(tcp_info);
                Interval {
                    start: SECOND * number as u32,
                    end: SECOND * (number as u32 + 1),
                    bytes: bytes[number],
                    streams: vec![StreamSample { bytes: bytes[number], tcp_info, ..StreamSample::default() }],
                    ..Interval::default()
                }
            };
            let intervals: Vec<Interval> = (0..bytes.len()).map(interval).collect();
            let tcp_info = intervals.last().and_then(|last| last.streams[0].tcp_info.clone());
            EndReport {
                elapsed: SECOND * bytes.len() as u32,
                bytes: bytes.iter().sum(),
                streams: vec![StreamReport { tcp_info, ..StreamReport::default() }],
                intervals,
                ..EndReport::default()
            }
        };
        Evidence::of_test(TestRequest::default(), SECOND / 20, end(true), end(false))
    }

    fn names(evidence: &Evidence) -> Vec<String> {
        diagnose(evidence).findings.into_iter().map(|finding| finding.name).collect()
    }

    /// Two seconds without arrivals in ten, and 300 segments that were in flight.
    const BYTES: [u64; 10] =
        [5_000_000, 5_000_000, 5_000_000, 5_000_000, 0, 0, 3_000_000, 5_000_000, 5_000_000, 5_000_000];
    const RESENT: [u32; 10] = [0, 0, 0, 0, 1, 1, 300, 0, 0, 0];
    const BUSY: [f64; 10] = [1.0; 10];

    #[test]
    fn an_outage_is_not_loss() {
        let diagnosis = diagnose(&evidence(&BYTES, &RESENT, &BUSY));
        let finding = &diagnosis.findings[0];
        assert_eq!(finding.cause(), Some(Cause::Outage));
        assert!(finding.summary.starts_with("nothing arrived for 2 s of 10 s"), "{finding:?}");
        assert!(!diagnosis.findings.iter().any(|finding| finding.cause() == Some(Cause::Loss)), "{diagnosis:?}");
    }

    #[test]
    fn other_pauses_are_no_outage() {
        let found = |evidence: &Evidence| names(evidence).contains(&"outage".to_owned());
        // Losses before the pause: the sender waits for time-outs.
        assert!(!found(&evidence(&BYTES, &[40, 40, 40, 40, 1, 1, 300, 40, 0, 0], &BUSY)));
        // A sender without data.
        let mut busy = BUSY;
        (busy[4], busy[5]) = (0.0, 0.0);
        assert!(!found(&evidence(&BYTES, &RESENT, &busy)));
        // A path of 539 ms needs more than two seconds.
        let mut far = evidence(&BYTES, &RESENT, &BUSY);
        far.handshake_rtt = Duration::from_millis(539);
        let samples = far.near.intervals.iter_mut().flat_map(|interval| &mut interval.streams);
        samples.filter_map(|sample| sample.tcp_info.as_mut()).for_each(|info| info.min_rtt = None);
        far.near.streams[0].tcp_info.as_mut().unwrap().min_rtt = None;
        assert!(!found(&far));
        // Data in every interval.
        assert!(!found(&evidence(&[5_000_000; 10], &RESENT, &BUSY)));
    }
}
