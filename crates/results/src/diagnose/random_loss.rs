//! Detects losses without congestion, for which the sender should change to BBR.
//!
//! CUBIC and Reno treat every loss as congestion. On a path with random loss their rate stays far below the capacity,
//! the more the longer the RTT (Mathis et al. 1997: the rate is proportional to 1 / √loss). BBR follows the delivery
//! rate instead. The RTT before the losses distinguishes both cases: a full queue increases the RTT, a bad link does not.
//! The detector therefore requires continuous retransmissions while the RTT stays near its minimum.

use lfn_base::plan::streams::min_interval;

use super::bottleneck::{CopyBottleneck, classify};
use crate::evidence::ProgressSample;

/// Minimum share of retransmitted segments. Fewer hardly slow a copy down.
const MIN_LOST_SHARE: f64 = 0.001;
/// Minimum number of retransmitted segments. Fewer are random.
const MIN_LOST_SEGMENTS: u64 = 8;

/// Minimum RTT in seconds. Below it, a loss is repaired before it matters, and host jitter looks like a queue.
const MIN_RTT: f64 = 0.01;

/// Maximum RTT without a queue, in minimum RTTs: a queue of a quarter of the BDP keeps a link busy under CUBIC.
const MAX_UNQUEUED_RTT_FACTOR: f64 = 1.25;
/// Seconds of a delayed acknowledgement, which are added to the maximum RTT.
const DELAYED_ACK: f64 = 0.005;

/// Consecutive intervals with losses. The first may contain the overshoot of slow start.
const REQUIRED_INTERVALS: u32 = 2;

/// Watches a sender continuously, and detects once that its losses are random.
#[derive(Debug, Default)]
pub struct RandomLossDetector {
    /// The sample at the start of the current interval.
    interval_start: ProgressSample,
    /// Maximum RTT of any stream in the current interval.
    max_rtt: f64,
    lossy_intervals: u32,
}

impl RandomLossDetector {
    /// Evaluates the next sample. Returns true once, when the sender should change to BBR.
    pub fn update(&mut self, sample: &ProgressSample, streams: u16) -> bool {
        let Some(sockets) = sample.sockets else { return false };
        self.max_rtt = self.max_rtt.max(sockets.rtt_seconds);
        if sample.at.saturating_sub(self.interval_start.at) < min_interval(sockets.min_rtt_seconds) {
            return false;
        }
        let (since, longest) =
            (std::mem::replace(&mut self.interval_start, *sample), std::mem::take(&mut self.max_rtt));
        let before = since.sockets.unwrap_or_default();
        let again = sockets.retransmits.saturating_sub(before.retransmits);
        let sent = sockets.segments_sent.saturating_sub(before.segments_sent);
        let loses = again >= MIN_LOST_SEGMENTS && again as f64 >= MIN_LOST_SHARE * sent as f64 && sent > 0;
        let least = sockets.min_rtt_seconds;
        let no_queue = least >= MIN_RTT && longest > 0.0 && longest <= MAX_UNQUEUED_RTT_FACTOR * least + DELAYED_ACK;
        // If disks or windows are the limit, BBR gains nothing.
        let network_limited = classify(&since, sample, streams, None) == CopyBottleneck::CongestionWindow;
        self.lossy_intervals = if loses && no_queue && network_limited { self.lossy_intervals + 1 } else { 0 };
        self.lossy_intervals == REQUIRED_INTERVALS
    }
}

/// Returns the reason for a change to BBR, from the sender's totals.
pub fn reason(sample: &ProgressSample) -> String {
    let sockets = sample.sockets.unwrap_or_default();
    let share = 100.0 * sockets.retransmits as f64 / sockets.segments_sent.max(1) as f64;
    format!(
        "{share:.1} % of segments are retransmitted although no queue grows: bbr does not slow down for such losses"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::Bytes;

    use super::*;
    use crate::evidence::SocketEvidence;

    /// Returns the time in seconds at which the detector reports random loss. The sender sends 1000 segments a second
    /// for two minutes and loses four of them; it is sampled five times a second.
    fn change_time(change: impl Fn(f64, &mut SocketEvidence)) -> Option<f64> {
        let mut detector = RandomLossDetector::default();
        (1..600).find_map(|fifth| {
            let seconds = f64::from(fifth) / 5.0;
            let mut sockets = SocketEvidence {
                congestion_window: Bytes(30_000),
                receive_window: Bytes(64 << 20),
                busy_seconds: 4.0 * seconds,
                segments_sent: (seconds * 1000.0) as u64,
                retransmits: (seconds * 4.0) as u64,
                min_rtt_seconds: 0.1,
                rtt_seconds: 0.104,
                ..SocketEvidence::default()
            };
            change(seconds, &mut sockets);
            let at = Duration::from_secs_f64(seconds);
            let sample = ProgressSample {
                at,
                bytes: Bytes(sockets.segments_sent * 1400),
                sockets: Some(sockets),
                ..ProgressSample::default()
            };
            detector.update(&sample, 4).then_some(seconds)
        })
    }

    #[test]
    fn losses_without_queue_are_detected_after_two_intervals() {
        let found = change_time(|_, _| {}).unwrap();
        assert!((4.0..5.0).contains(&found), "{found}");
        // On a satellite path an interval lasts twelve RTTs.
        let far = change_time(|_, sockets| (sockets.min_rtt_seconds, sockets.rtt_seconds) = (0.539, 0.6)).unwrap();
        assert!((12.9..14.0).contains(&far), "{far}");
    }

    #[test]
    fn losses_with_a_queue_are_congestion() {
        // Every few seconds the queue is full, and all losses happen then.
        let sawtooth =
            |seconds: f64, sockets: &mut SocketEvidence| sockets.rtt_seconds = 0.1 + 0.08 * (seconds % 3.0) / 3.0;
        assert_eq!(change_time(sawtooth), None);
        assert_eq!(change_time(|_, sockets| sockets.rtt_seconds = 0.131), None);
        assert!(change_time(|_, sockets| sockets.rtt_seconds = 0.129).is_some());
    }

    #[test]
    fn other_losses_are_not_random() {
        assert_eq!(change_time(|_, sockets| sockets.retransmits = 0), None);
        assert_eq!(
            change_time(|seconds, sockets| sockets.retransmits = (seconds * 0.9) as u64),
            None,
            "below one in a thousand"
        );
        assert_eq!(change_time(|_, sockets| sockets.retransmits = 500), None, "all in the first interval");
        assert_eq!(change_time(|seconds, sockets| sockets.busy_seconds = seconds), None, "another bottleneck");
        assert_eq!(
            change_time(|_, sockets| (sockets.min_rtt_seconds, sockets.rtt_seconds) = (0.009, 0.009)),
            None,
            "near"
        );
        assert_eq!(change_time(|_, sockets| sockets.rtt_seconds = 0.0), None, "the kernel reports no RTT");
    }

    #[test]
    fn loss_is_reported_once_with_its_share() {
        let mut detector = RandomLossDetector::default();
        let sample = |second: u32| {
            let sockets = SocketEvidence {
                segments_sent: u64::from(second) * 1000,
                retransmits: u64::from(second) * 12,
                busy_seconds: 4.0 * f64::from(second),
                min_rtt_seconds: 0.1,
                rtt_seconds: 0.1,
                ..SocketEvidence::default()
            };
            let at = Duration::from_secs(second.into());
            ProgressSample {
                at,
                bytes: Bytes(u64::from(second) * 1_000_000),
                sockets: Some(sockets),
                ..ProgressSample::default()
            }
        };
        assert_eq!((1..100).filter(|second| detector.update(&sample(*second), 4)).count(), 1);
        assert!(reason(&sample(9)).starts_with("1.2 % of segments are retransmitted"), "{}", reason(&sample(9)));
    }
}
