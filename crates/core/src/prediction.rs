//! How far from a prediction a measurement may lie and still agree with it: an interval, and why it is that wide.
//!
//! [`crate::tcp_model`] gives one figure; a path that is as described, a sender that has what it needs and a test of some
//! length give figures around it. How far around is worked out here from what is known to move them: what a congestion
//! control leaves unused while it probes or recovers, the accuracy of the loss formulas, the bursts at both ends of the
//! time that was measured, and what of start-up is left in it. A figure outside means that the path is not as described,
//! or that something holds the test back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnose::Evidence;
use crate::path::PathProfile;
use crate::tcp_model::{self, Congestion, Flow, Limit, Prediction};
use crate::units::{BitRate, Bytes};

/// What a measured goodput may be and agree with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Expected {
    /// The least.
    #[serde(rename = "least_bits_per_second")]
    pub least: BitRate,
    /// The most.
    #[serde(rename = "most_bits_per_second")]
    pub most: BitRate,
    /// What makes it that wide, widest first.
    pub reasons: Vec<String>,
}

/// Headers, options and clocks: what a full path was measured to be off by at most, on emulated paths.
const FRAMING: f64 = 0.01;
/// A first interval at 90 % of the later ones counts as steady ([`crate::stats::steady_from`]); how much of that time
/// may have been growth, in round trips.
const GROWTH: f64 = 1.0;
/// CUBIC's window after a loss (RFC 9438 §4.6).
const CUBIC_KEEPS: f64 = 0.7;
/// Reno's (RFC 5681 §3.1).
const RENO_KEEPS: f64 = 0.5;
/// Measured against the formulas: CUBIC 117 %, Reno 100 % (`bench/emulate`), and what single runs scatter.
const LOSS_MODEL: (f64, f64) = (0.6, 1.5);
/// BBR empties the path for 200 ms and a round trip about every ten seconds (PROBE_RTT), and then refills it.
const PROBE: (f64, f64) = (0.2, 10.0);
/// What BBR's cycle of probing leaves of a full path.
const BBR_CYCLE: f64 = 0.04;
/// How long an ordinary host may leave a thread without a processor, a timer tick of 4 ms (`CONFIG_HZ=250`), and what a
/// path whose queue runs empty at once loses by such pauses: measured with a queue of 1 ms 8 to 25 % (`bench/healthy`).
const PAUSE: (Duration, f64) = (Duration::from_millis(4), 0.4);
/// A held window is rounded to its scale, and acknowledgements are delayed.
const WINDOW: f64 = 0.06;
/// The kernel lets twice what it calls granted into a send buffer, its own bookkeeping among it, and wakes the sender
/// when a third of that is free (`sk_stream_min_wspace`): between 4/3 and 2 of it are in flight.
const IN_FLIGHT: f64 = 5.0 / 3.0;
/// How far from that: the two ends of it, and what the bookkeeping takes of small segments.
const SEND_BUFFER: (f64, f64) = (0.3, 0.2);
/// Headers are paced too where `fq` does it, and not where TCP does.
const PACE: (f64, f64) = (0.06, 0.02);
/// Headers of IPv4 and TCP, which an MSS is given without.
const MSS_HEADERS: u32 = 40;

/// The steady goodput to expect of a test, and the interval around it, if the capacity of its path is known.
///
/// It is that of the path with what was asked of the streams: the least of the congestion control's own, a receive
/// window or buffer, a send buffer, a pace, the server's limit and an MSS. What the plan asked for counts like what was
/// typed.
pub fn of_test(evidence: &Evidence) -> Option<(Prediction, Expected)> {
    let (path, stream) = (evidence.path?, evidence.flows.first()?);
    let (sending, receiving) = (&stream.sending, &stream.receiving);
    // What window a receive buffer makes is the kernel's secret (its ratio of payload to buffer moves): it is the one
    // that was offered.
    let offered = stream.snd_wnd.map_or(receiving.rcvbuf_granted_bytes, |window| Bytes(window.median));
    let in_flight = |granted: Bytes| Bytes((granted.0 as f64 * IN_FLIGHT) as u64);
    // A server's limit is of all streams together.
    let allowed = evidence.rate_limit.map(|limit| BitRate(limit.0 / u64::from(evidence.streams().max(1))));
    let flow = Flow {
        window: receiving.window_asked_bytes.or(receiving.rcvbuf_asked_bytes.map(|_| offered)),
        send_buffer: sending.sndbuf_asked_bytes.map(|_| in_flight(sending.sndbuf_granted_bytes)),
        pace: [sending.pacing_asked, allowed].into_iter().flatten().min(),
        streams: evidence.streams(),
        congestion: sending.congestion.parse().unwrap_or_default(),
        ..Flow::default()
    };
    let mss = [sending, receiving].into_iter().filter_map(|socket| u32::try_from(socket.mss_asked_bytes?.0).ok()).min();
    let mtu = mss.map_or(path.mtu, |mss| path.mtu.min(mss.saturating_add(MSS_HEADERS)));
    let path = PathProfile { mtu, ..path };
    let time = evidence.steady.map_or(evidence.elapsed, |steady| steady.end.saturating_sub(steady.start));
    let prediction = tcp_model::steady(&path, &flow);
    Some((prediction, expected(&path, &flow, &prediction, time)))
}

/// Around `prediction`, for `steady` of measured time.
pub fn expected(path: &PathProfile, flow: &Flow, prediction: &Prediction, steady: Duration) -> Expected {
    let rtt = path.base_rtt.as_secs_f64();
    let mut below: Vec<(f64, String)> = vec![(FRAMING, "headers and clocks".into())];
    let mut above: Vec<(f64, String)> = vec![(FRAMING, "headers and clocks".into())];
    // What a receiver held behind a hole when the time began counts all in it: a path and its queue full.
    let held = rtt + path.queue.map_or(0.0, |queue| queue.0 as f64 * 8.0 / path.capacity.as_f64().max(1.0));
    let edges = (held / steady.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
    if !steady.is_zero() {
        let edge = GROWTH * rtt / steady.as_secs_f64();
        below.push((edge.min(1.0), "round trips at the edges of the time measured".into()));
        above.push((edges, "round trips at the edges of the time measured".into()));
    }
    match prediction.limit {
        Limit::Capacity => {
            below.extend(unused(path, flow));
            below.push((lost_in_pauses(path), "pauses of the hosts, which the queue does not outlast".into()));
        }
        Limit::ReceiveWindow => {
            below.push((WINDOW, "the window's rounding and delayed acknowledgements".into()));
            above.push((WINDOW, "the window's rounding and delayed acknowledgements".into()));
        }
        Limit::SendBuffer => {
            below.push((SEND_BUFFER.0, "how full a send buffer is kept".into()));
            above.push((SEND_BUFFER.1, "how full a send buffer is kept".into()));
        }
        Limit::Pacing => {
            below.push((PACE.0, "headers under pacing".into()));
            above.push((PACE.1, "headers under pacing".into()));
        }
        Limit::Asked => {}
        Limit::Loss => {
            below.push((1.0 - LOSS_MODEL.0, "the accuracy of the loss formula".into()));
            above.push((LOSS_MODEL.1 - 1.0, "the accuracy of the loss formula".into()));
            let (scatter, start) = few_losses(path, flow, prediction, steady);
            below.push((scatter.min(1.0), "losses too few to average".into()));
            above.push((scatter + start, "losses too few to average".into()));
        }
    }
    let goodput = prediction.goodput.as_f64();
    let full = path.payload_capacity().as_f64() * (1.0 + FRAMING);
    let down: f64 = below.iter().map(|(share, _)| 1.0 - share).product();
    let up: f64 = above.iter().map(|(share, _)| 1.0 + share).product();
    Expected {
        least: BitRate((goodput * down.max(0.0)) as u64),
        // However it is measured, no more arrives than the path carries and its queue held before.
        most: BitRate((goodput * up).min(full.max(goodput) * (1.0 + edges)) as u64),
        reasons: reasons(below.into_iter().chain(above)),
    }
}

/// What a congestion control leaves of a path it could fill.
fn unused(path: &PathProfile, flow: &Flow) -> Vec<(f64, String)> {
    let rtt = path.base_rtt.as_secs_f64();
    match flow.congestion {
        Congestion::Bbr => {
            let (idle, every) = PROBE;
            let probe = ((idle + 2.0 * rtt) / (every + rtt)).min(0.5);
            vec![(BBR_CYCLE, "BBR's probing".into()), (probe, "BBR's probe of the RTT".into())]
        }
        Congestion::Cubic => vec![sawtooth(path, CUBIC_KEEPS, "CUBIC")],
        Congestion::Reno => vec![sawtooth(path, RENO_KEEPS, "Reno")],
    }
}

/// The dip below full after a loss: none where the queue is deep enough to feed the line meanwhile. Half of the deepest
/// dip, because the window grows back; CUBIC faster than in a straight line, which is left as margin.
fn sawtooth(path: &PathProfile, keeps: f64, name: &str) -> (f64, String) {
    let bdp = path.bdp().0.max(1) as f64;
    // A queue of unknown room is taken for half a BDP.
    let queue = path.queue.map_or(0.5 * bdp, |queue| queue.0 as f64);
    let dip = (1.0 - keeps * (bdp + queue) / bdp).max(0.0);
    // A loss and its recovery are seldom free: a round trip at the reduced rate each.
    (dip / 2.0 + 0.02, format!("{name} after a loss"))
}

/// How far the losses of so short a time are from their average, as shares of the goodput: how much their number scatters,
/// and what was sent before there were enough of them. A sender begins far above the window that a loss leaves it in the
/// long run: slow start goes on to the first loss, some 1/p segments on, and each of the next 1/p segments ends with a
/// window `keeps` times as large.
fn few_losses(path: &PathProfile, flow: &Flow, prediction: &Prediction, time: Duration) -> (f64, f64) {
    let (loss, mss) = (path.loss.get(), f64::from(path.mss()) * 8.0);
    let rate = prediction.goodput.as_f64() / mss;
    let segments = rate * time.as_secs_f64();
    if loss <= 0.0 || segments <= 0.0 {
        return (0.0, 0.0);
    }
    let streams = f64::from(flow.streams.max(1));
    let keeps = if flow.congestion == Congestion::Reno { RENO_KEEPS } else { CUBIC_KEEPS };
    let first = (0.5 / loss).min((path.bdp().0 as f64 * 8.0 / mss) / streams);
    let window = rate * path.base_rtt.as_secs_f64() / streams;
    let losses = ((first / window.max(1.0)).ln() / -f64::ln(keeps)).max(0.0);
    (1.0 / (segments * loss).sqrt(), losses * streams / loss / segments)
}

/// What pauses of the hosts may cost: while one of them pauses the queue runs empty, and what is sent after it comes in a
/// burst that the queue has no room for. None where the queue lasts longer, or nothing is known of it.
pub(crate) fn lost_in_pauses(path: &PathProfile) -> f64 {
    let Some(queue) = path.queue else { return 0.0 };
    let lasts = queue.0 as f64 * 8.0 / path.capacity.as_f64().max(1.0);
    PAUSE.1 * (1.0 - lasts / PAUSE.0.as_secs_f64()).max(0.0)
}

/// Each reason once, the widest first; what makes no difference is not said.
fn reasons(shares: impl Iterator<Item = (f64, String)>) -> Vec<String> {
    let mut shares: Vec<(f64, String)> = shares.filter(|(share, _)| *share >= 0.001).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut said: Vec<(f64, String)> = Vec::new();
    for (share, reason) in shares {
        if !said.iter().any(|(_, old)| *old == reason) {
            said.push((share, reason));
        }
    }
    said.into_iter().map(|(share, reason)| format!("{reason} ({:.1} %)", share * 100.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::half_window;
    use crate::tcp_model::steady;
    use crate::units::Ratio;
    use crate::wire::test::SocketReport;

    fn acts() -> PathProfile {
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        PathProfile { queue: Some(path.bdp()), ..path }
    }

    fn around(path: &PathProfile, flow: &Flow, seconds: u64) -> (f64, f64, Expected) {
        let prediction = steady(path, flow);
        let expected = expected(path, flow, &prediction, Duration::from_secs(seconds));
        let share = |rate: BitRate| rate.as_f64() / prediction.goodput.as_f64();
        (share(expected.least), share(expected.most), expected)
    }

    #[test]
    fn what_was_measured_on_emulated_paths_lies_within() {
        // bench/emulate: CUBIC with a bounded window fills the ACTS path, BBR leaves a tenth of it.
        let (least, most, _) = around(&acts(), &Flow::default(), 20);
        assert!(least < 0.95 && (1.0..1.08).contains(&most), "{least} {most}");
        let bbr = Flow { congestion: Congestion::Bbr, ..Flow::default() };
        let (least, _, expected) = around(&acts(), &bbr, 60);
        assert!((0.75..0.905).contains(&least), "{least}");
        assert_eq!(expected.reasons[0], "BBR's probe of the RTT (12.1 %)");
        // Measured: a window of 4,547,840 gave 67.4 of 67.5 Mb/s.
        let held = Flow { window: Some(Bytes(4_547_813)), ..Flow::default() };
        let (least, most, _) = around(&acts(), &held, 30);
        assert!(least < 67.4 / 67.5 && most > 1.0, "{least} {most}");
        assert!(least > 0.85, "{least}");
    }

    /// A test of the ACTS path in which this was asked of the sender's and the receiver's socket.
    fn asked(change: fn(&mut SocketReport, &mut SocketReport)) -> (Prediction, Expected) {
        let mut evidence = half_window();
        let flow = &mut evidence.flows[0];
        (flow.sending, flow.receiving) = (SocketReport::default(), SocketReport::default());
        change(&mut flow.sending, &mut flow.receiving);
        of_test(&evidence).unwrap()
    }

    #[test]
    fn the_least_of_what_was_asked_of_either_end_is_predicted() {
        let full = acts().payload_capacity();
        let (prediction, expected) = asked(|_, _| {});
        assert_eq!((prediction.limit, prediction.goodput), (Limit::Capacity, full));
        assert!(expected.most.as_f64() < 1.05 * full.as_f64() && expected.least.as_f64() > 0.9 * full.as_f64());
        // A held window.
        let (prediction, _) = asked(|_, receiving| receiving.window_asked_bytes = Some(Bytes(2_000_000)));
        assert_eq!((prediction.limit, prediction.goodput), (Limit::ReceiveWindow, BitRate(29_684_601)));
        // A receive buffer: the window it made.
        let (prediction, _) = asked(|_, receiving| receiving.rcvbuf_asked_bytes = Some(Bytes(64 << 20)));
        assert_eq!((prediction.limit, prediction.goodput), (Limit::ReceiveWindow, BitRate(67_500_408)));
        // A send buffer: what was granted of it, and the kernel's doubling.
        let small = |sending: &mut SocketReport| {
            (sending.sndbuf_asked_bytes, sending.sndbuf_granted_bytes) = (Some(Bytes(62 << 20)), Bytes(1 << 20));
        };
        let (prediction, expected) = asked(|sending, _| {
            (sending.sndbuf_asked_bytes, sending.sndbuf_granted_bytes) = (Some(Bytes(62 << 20)), Bytes(1 << 20));
        });
        assert_eq!((prediction.limit, prediction.goodput), (Limit::SendBuffer, BitRate(25_938_790)));
        let per_granted = Bytes(1 << 20).per(acts().base_rtt).as_f64();
        assert!(
            expected.least.as_f64() < 1.3 * per_granted && expected.most.as_f64() > 1.9 * per_granted,
            "{expected:?}"
        );
        // The least of them, whichever end it is of.
        let mut evidence = half_window();
        small(&mut evidence.flows[0].sending);
        evidence.flows[0].receiving.window_asked_bytes = Some(Bytes(1_000_000));
        assert_eq!(of_test(&evidence).unwrap().0.limit, Limit::ReceiveWindow);
        evidence.flows[0].receiving.window_asked_bytes = Some(Bytes(2_000_000));
        assert_eq!(of_test(&evidence).unwrap().0.limit, Limit::SendBuffer);
        evidence.path = None;
        assert_eq!(of_test(&evidence), None, "no capacity, no prediction");
    }

    #[test]
    fn a_pace_and_an_mss_are_predicted_too() {
        let (prediction, expected) = asked(|sending, _| sending.pacing_asked = Some(BitRate(50_000_000)));
        assert_eq!((prediction.limit, prediction.goodput), (Limit::Pacing, BitRate(50_000_000)));
        // Segments of 1448 B of packets of 1514 B.
        assert!(expected.least.as_f64() < 50e6 * 1448.0 / 1514.0 && expected.most.as_f64() < 55e6, "{expected:?}");
        // The server's limit is a pace too, of all streams together.
        let mut evidence = half_window();
        evidence.flows[0].receiving = SocketReport::default();
        evidence.flows.push(evidence.flows[0].clone());
        evidence.rate_limit = Some(BitRate(20_000_000));
        let (prediction, _) = of_test(&evidence).unwrap();
        assert_eq!((prediction.limit, prediction.goodput), (Limit::Pacing, BitRate(20_000_000)));
        let (prediction, _) = asked(|_, receiving| receiving.mss_asked_bytes = Some(Bytes(500)));
        assert_eq!((prediction.limit, prediction.goodput), (Limit::Capacity, BitRate(118_916_967)));
    }

    #[test]
    fn an_interval_is_as_wide_as_what_is_not_known() {
        let long = around(&acts(), &Flow::default(), 600).0;
        let short = around(&acts(), &Flow::default(), 5).0;
        assert!(short < long && long > 0.96, "{short} {long}");
        // Half a BDP of queue feeds CUBIC after a loss, a tenth does not, and Reno wants a whole one.
        let shallow = PathProfile { queue: Some(Bytes(acts().bdp().0 / 10)), ..acts() };
        assert!(around(&shallow, &Flow::default(), 600).0 < long - 0.05);
        let reno = Flow { congestion: Congestion::Reno, ..Flow::default() };
        assert!(around(&shallow, &reno, 600).0 < around(&shallow, &Flow::default(), 600).0);
        let lossy = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..acts() };
        let (least, most, expected) = around(&lossy, &Flow::default(), 600);
        assert!(least < 0.6 && most > 1.5, "{least} {most}");
        assert!(expected.reasons[0].starts_with("the accuracy of the loss formula"), "{:?}", expected.reasons);
    }

    #[test]
    fn few_losses_tell_little_of_their_average() {
        // Measured with CUBIC at 100 ms, one in 1,000 lost: 10.8 and 12.3 Mb/s in 20 s, 7.9 Mb/s in 60 s, falling from
        // 41 to between 3 and 9 Mb/s.
        let path = PathProfile::new(BitRate(100_000_000), Duration::from_millis(100));
        let path = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..path };
        let most = |seconds| around(&path, &Flow::default(), seconds).2.most.as_f64() / 1e6;
        assert!((12.4..20.0).contains(&most(20)), "{}", most(20));
        assert!((8.0..11.5).contains(&most(60)), "{}", most(60));
        assert!(most(6000) < 7.3, "{}", most(6000));
        let (short, long) = (around(&path, &Flow::default(), 20).0, around(&path, &Flow::default(), 6000).0);
        assert!(short < 0.5 && long > 0.55, "{short} {long}");
    }

    #[test]
    fn a_queue_that_runs_empty_while_a_host_pauses_leaves_room_below() {
        let path = PathProfile::new(BitRate(1_000_000_000), Duration::from_millis(1));
        let of = |queue: Option<Bytes>| around(&PathProfile { queue, ..path }, &Flow::default(), 10);
        let (least, most, expected) = of(Some(path.bdp()));
        assert!((0.65..0.75).contains(&least) && most < 1.02, "{least} {most}");
        assert_eq!(expected.reasons[0], "pauses of the hosts, which the queue does not outlast (30.0 %)");
        // 4 ms of queue outlast them.
        assert!(of(Some(Bytes(500_000))).0 > 0.95);
        assert_eq!(of(None).0, of(Some(Bytes(500_000))).0, "of a queue that is not known nothing is said");
    }

    #[test]
    fn nothing_measured_and_nothing_known_divide_by_nothing() {
        for path in [PathProfile::new(BitRate(0), Duration::ZERO), PathProfile::new(BitRate(1), Duration::ZERO)] {
            let (_, _, expected) = around(&path, &Flow::default(), 0);
            assert!(expected.least <= expected.most, "{expected:?}");
        }
        // Even a millisecond of a path of half a second says no more than the path and its queue can deliver.
        let prediction = steady(&acts(), &Flow::default());
        let brief = expected(&acts(), &Flow::default(), &prediction, Duration::from_millis(1));
        assert_eq!(brief.least, BitRate(0));
        assert!(brief.most.as_f64() <= 2.1 * prediction.goodput.as_f64());
    }
}
