//! Whether a sender that runs loses segments to something else than a full queue, and so should go on under BBR.
//!
//! CUBIC and Reno take every loss for a full link: on a path that loses at random they stay far below what it carries, the
//! further the longer it is (Mathis et al. 1997: the rate goes with 1 / √loss). BBR goes by what is delivered. From outside
//! the two losses differ in what stands before them: a queue that fills up shows in the round-trip time, a bad link does not.
//! So this asks for segments sent again all along, and for a round trip that stays near its least.

use super::limit::{Limit, Look, classify};
use super::streams::interval;

/// The least share of segments sent again that counts, and the least number: fewer hardly slow a copy down, or are chance.
const LOSSES: (f64, u64) = (0.001, 8);

/// Below this round trip a loss is made good before it matters, and jitter of the hosts looks like a queue.
const LEAST_RTT: f64 = 0.01;

/// How much longer than its least a round trip may be without a queue: some of it, and what a delayed acknowledgement
/// makes of it. A queue worth a quarter of the path is where CUBIC keeps a link busy.
const NO_QUEUE: (f64, f64) = (1.25, 0.005);

/// So many intervals in a row: the first may have lost what a start-up sent too much of.
const IN_A_ROW: u32 = 2;

/// Looks at a sender all along, and finds once that its losses are random.
#[derive(Debug, Default)]
pub struct Judge {
    /// The look that the present interval began with.
    since: Look,
    /// The longest round trip of any stream seen in it.
    longest: f64,
    found: u32,
}

impl Judge {
    /// Takes the next look, at so many streams; whether it is time for BBR.
    pub fn look(&mut self, look: &Look, streams: u16) -> bool {
        let Some(sockets) = look.sockets else { return false };
        self.longest = self.longest.max(sockets.rtt_seconds);
        if look.at.saturating_sub(self.since.at) < interval(sockets.min_rtt_seconds) {
            return false;
        }
        let (since, longest) = (std::mem::replace(&mut self.since, *look), std::mem::take(&mut self.longest));
        let before = since.sockets.unwrap_or_default();
        let again = sockets.retransmits.saturating_sub(before.retransmits);
        let sent = sockets.segments_sent.saturating_sub(before.segments_sent);
        let loses = again >= LOSSES.1 && again as f64 >= LOSSES.0 * sent as f64 && sent > 0;
        let least = sockets.min_rtt_seconds;
        let no_queue = least >= LEAST_RTT && longest > 0.0 && longest <= NO_QUEUE.0 * least + NO_QUEUE.1;
        // Where disks or windows are the limit nothing is gained.
        let held_back = classify(&since, look, streams, None) == Limit::CongestionWindow;
        self.found = if loses && no_queue && held_back { self.found + 1 } else { 0 };
        self.found == IN_A_ROW
    }
}

/// Why it is BBR now, from all that was seen of a sender that was changed to it.
pub fn reason(look: &Look) -> String {
    let sockets = look.sockets.unwrap_or_default();
    let share = 100.0 * sockets.retransmits as f64 / sockets.segments_sent.max(1) as f64;
    format!("{share:.1} % of segments are sent again though no queue grows: losses that bbr does not slow down for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::limit::SocketEvidence;
    use crate::units::Bytes;
    use std::time::Duration;

    /// When a sender is told to change that has sent a thousand segments a second for two minutes, four of them lost;
    /// looked at five times a second.
    fn told(change: impl Fn(f64, &mut SocketEvidence)) -> Option<f64> {
        let mut judge = Judge::default();
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
            let look =
                Look { at, bytes: Bytes(sockets.segments_sent * 1400), sockets: Some(sockets), ..Look::default() };
            judge.look(&look, 4).then_some(seconds)
        })
    }

    #[test]
    fn losses_without_a_queue_are_found_after_two_intervals() {
        let found = told(|_, _| {}).unwrap();
        assert!((4.0..5.0).contains(&found), "{found}");
        // Over a satellite an interval is as long as twelve round trips.
        let far = told(|_, sockets| (sockets.min_rtt_seconds, sockets.rtt_seconds) = (0.539, 0.6)).unwrap();
        assert!((12.9..14.0).contains(&far), "{far}");
    }

    #[test]
    fn a_queue_before_the_losses_is_a_full_link() {
        // Every few seconds the queue is full, and everything lost then.
        let sawtooth =
            |seconds: f64, sockets: &mut SocketEvidence| sockets.rtt_seconds = 0.1 + 0.08 * (seconds % 3.0) / 3.0;
        assert_eq!(told(sawtooth), None);
        assert_eq!(told(|_, sockets| sockets.rtt_seconds = 0.131), None);
        assert!(told(|_, sockets| sockets.rtt_seconds = 0.129).is_some());
    }

    #[test]
    fn few_losses_and_those_of_a_start_up_and_other_limits_are_none() {
        assert_eq!(told(|_, sockets| sockets.retransmits = 0), None);
        assert_eq!(
            told(|seconds, sockets| sockets.retransmits = (seconds * 0.9) as u64),
            None,
            "below one in a thousand"
        );
        assert_eq!(told(|_, sockets| sockets.retransmits = 500), None, "all in the first interval");
        assert_eq!(told(|seconds, sockets| sockets.busy_seconds = seconds), None, "something else holds it back");
        assert_eq!(told(|_, sockets| (sockets.min_rtt_seconds, sockets.rtt_seconds) = (0.009, 0.009)), None, "near");
        assert_eq!(told(|_, sockets| sockets.rtt_seconds = 0.0), None, "a kernel that does not tell");
    }

    #[test]
    fn it_is_told_once_and_with_its_share() {
        let mut judge = Judge::default();
        let look = |second: u32| {
            let sockets = SocketEvidence {
                segments_sent: u64::from(second) * 1000,
                retransmits: u64::from(second) * 12,
                busy_seconds: 4.0 * f64::from(second),
                min_rtt_seconds: 0.1,
                rtt_seconds: 0.1,
                ..SocketEvidence::default()
            };
            let at = Duration::from_secs(second.into());
            Look { at, bytes: Bytes(u64::from(second) * 1_000_000), sockets: Some(sockets), ..Look::default() }
        };
        assert_eq!((1..100).filter(|second| judge.look(&look(*second), 4)).count(), 1);
        assert!(reason(&look(9)).starts_with("1.2 % of segments are sent again"), "{}", reason(&look(9)));
    }
}
