//! The range around a prediction in which a measurement agrees with it, and the reasons for its width.
//!
//! [`lfn_base::tcp_model`] gives one figure. Tests on a path that matches its description scatter around this figure. The
//! known causes of the scatter set the range: the capacity that a congestion control leaves unused while it probes or
//! recovers, the accuracy of the loss formulas, the bursts at both ends of the measured time, and the rest of start-up
//! in it. A figure outside the range means that the path does not match its description, or that something else limits
//! the test.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{self, Congestion, FlowParameters, GoodputLimit, Prediction};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::evidence::figures::Figures;

/// The range of goodput that agrees with a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExpectedRange {
    #[serde(rename = "min_bits_per_second")]
    pub min: BitRate,
    #[serde(rename = "max_bits_per_second")]
    pub max: BitRate,
    /// Causes of the width, largest first.
    pub reasons: Vec<String>,
}

/// Maximum error from headers and clocks that was measured on full emulated paths.
const FRAMING_ERROR: f64 = 0.01;
/// Growth that the steady part may still contain, in round trips: a first interval at 90 % of the later ones counts as
/// steady ([`lfn_base::stats::find_steady_start`]).
const GROWTH_ROUND_TRIPS: f64 = 1.0;
/// CUBIC's window after a loss, as a share (RFC 9438 §4.6).
const CUBIC_BETA: f64 = 0.7;
/// Reno's window after a loss, as a share (RFC 5681 §3.1).
const RENO_BETA: f64 = 0.5;
/// Factors of the loss formula's range. Measured against the formulas: CUBIC 117 %, Reno 100 % (`bench/emulate`); the
/// rest is the scatter of single runs.
const LOSS_MODEL_MIN: f64 = 0.6;
const LOSS_MODEL_MAX: f64 = 1.5;
/// Seconds for which BBR empties the path, plus a round trip, about every ten seconds (PROBE_RTT). Afterwards it fills
/// the path again.
const PROBE_RTT_SECONDS: f64 = 0.2;
/// Seconds between two such probes.
const PROBE_RTT_INTERVAL_SECONDS: f64 = 10.0;
/// Share of a full path that BBR's bandwidth probing leaves unused.
const BBR_BANDWIDTH_PROBES: f64 = 0.04;
/// Longest pause of a thread on an ordinary host: a timer tick of 4 ms (`CONFIG_HZ=250`).
const MAX_PAUSE: Duration = Duration::from_millis(4);
/// Share that a path with an almost empty queue loses by these pauses: 8 to 25 % were measured with a queue of 1 ms
/// (`bench/healthy`).
const PAUSE_COST: f64 = 0.4;
/// Error of a fixed receive window: the window is rounded to its scale, and acknowledgements are delayed.
const WINDOW_ERROR: f64 = 0.06;
/// Largest burst of a window-limited sender: a third of the window (`tcp_tso_win_divisor`), and at most one offloaded
/// packet.
const WINDOW_BURSTS: f64 = 3.0;
const MAX_BURST: f64 = 65_536.0;
/// Bytes in flight per granted byte of send buffer. The kernel allows twice the granted size, with its own bookkeeping,
/// and wakes the sender when a third of that is free (`sk_stream_min_wspace`): 4/3 to 2 of the granted size are in
/// flight.
const IN_FLIGHT_PER_GRANTED: f64 = 5.0 / 3.0;
/// Range around this value: its two ends, and the share of bookkeeping for small segments.
const SEND_BUFFER_BELOW: f64 = 0.3;
const SEND_BUFFER_ABOVE: f64 = 0.2;
/// `fq` counts headers in the pacing rate; TCP's own pacing does not.
const PACE_BELOW: f64 = 0.06;
const PACE_ABOVE: f64 = 0.02;
/// Time that the threads of both ends take per block in lock-step: four wake-ups.
const LOCKSTEP_WAKE_UPS: Duration = Duration::from_millis(1);
/// Range of BBR in lock-step. Measured: 87 % to 112 % of the prediction.
const BBR_LOCKSTEP_BELOW: f64 = 0.15;
const BBR_LOCKSTEP_ABOVE: f64 = 0.2;
/// Headers of IPv4 and TCP, bytes, which an MSS does not include.
pub const MSS_HEADERS: u32 = 40;

/// Predicts the steady goodput of a test and the range around it; `None` if the capacity of its path is unknown.
///
/// The prediction uses the path and the requested settings of the streams: the minimum of congestion control, receive
/// window or buffer, send buffer, pace, the server's rate limit and MSS. A setting that the plan requested counts like
/// one that the user typed.
pub fn predict_test(figures: &Figures) -> Option<(Prediction, ExpectedRange)> {
    let (path, stream) = (figures.path?, figures.streams.first()?);
    let (sending, receiving) = (&stream.sender_socket, &stream.receiver_socket);
    // The window of a receive buffer is the offered window: the kernel's ratio of payload to buffer changes, so
    // it cannot be computed.
    let offered = stream.snd_wnd.map_or(receiving.rcvbuf_granted_bytes, |window| Bytes(window.median));
    // A server's rate limit is for all streams together.
    let allowed = figures.rate_limit.map(|limit| BitRate(limit.0 / u64::from(figures.stream_count().max(1))));
    let flow = FlowParameters {
        window: receiving.window_requested_bytes.or(receiving.rcvbuf_requested_bytes.map(|_| offered)),
        send_buffer: sending.sndbuf_requested_bytes.map(|_| in_flight(sending.sndbuf_granted_bytes)),
        pace: [sending.pacing_requested, allowed].into_iter().flatten().min(),
        lockstep: figures.lockstep,
        streams: figures.stream_count(),
        congestion: sending.congestion.parse().unwrap_or_default(),
        ..FlowParameters::default()
    };
    let mss =
        [sending, receiving].into_iter().filter_map(|socket| u32::try_from(socket.mss_requested_bytes?.0).ok()).min();
    let mtu = mss.map_or(path.mtu, |mss| path.mtu.min(mss.saturating_add(MSS_HEADERS)));
    let path = PathProfile { mtu, ..path };
    let time = figures.steady.map_or(figures.elapsed, |steady| steady.end.saturating_sub(steady.start));
    let prediction = tcp_model::predict_steady(&path, &flow);
    Some((prediction, expected_range(&path, &flow, &prediction, time)))
}

/// Returns the bytes in flight that a granted send buffer allows.
pub fn in_flight(granted: Bytes) -> Bytes {
    Bytes((granted.0 as f64 * IN_FLIGHT_PER_GRANTED) as u64)
}

/// Computes the range around `prediction` for a measured steady time of `steady`.
pub fn expected_range(
    path: &PathProfile,
    flow: &FlowParameters,
    prediction: &Prediction,
    steady: Duration,
) -> ExpectedRange {
    let rtt = path.base_rtt.as_secs_f64();
    let mut below: Vec<(f64, String)> = vec![(FRAMING_ERROR, "headers and clocks".into())];
    let mut above: Vec<(f64, String)> = vec![(FRAMING_ERROR, "headers and clocks".into())];
    // At the start of the measured time, a receiver may hold data behind a hole: at most a full path and its queue. All
    // of it counts as received in this time.
    let full_path = rtt + path.queue.map_or(0.0, |queue| queue.0 as f64 * 8.0 / path.capacity.as_f64().max(1.0));
    let edges = (full_path / steady.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
    if !steady.is_zero() {
        let edge = GROWTH_ROUND_TRIPS * rtt / steady.as_secs_f64();
        below.push((edge.min(1.0), "round trips at the start and end of the measurement".into()));
        above.push((edges, "round trips at the start and end of the measurement".into()));
    }
    match prediction.limit {
        GoodputLimit::Capacity => {
            below.extend(unused_capacity(path, flow));
            below.push((loss_by_pauses(path), "host pauses longer than the queue".into()));
        }
        GoodputLimit::ReceiveWindow => {
            below.push((WINDOW_ERROR, "window rounding and delayed acknowledgements".into()));
            below.push((wait_for_bursts(path, flow), "bursts, each acknowledged at its end".into()));
            below.extend((flow.congestion == Congestion::Bbr).then(|| rtt_probes(path)));
            above.push((WINDOW_ERROR, "window rounding and delayed acknowledgements".into()));
        }
        GoodputLimit::SendBuffer => {
            below.push((SEND_BUFFER_BELOW, "varying fill level of the send buffer".into()));
            above.push((SEND_BUFFER_ABOVE, "varying fill level of the send buffer".into()));
        }
        GoodputLimit::Pacing => {
            below.push((PACE_BELOW, "headers in the pacing rate".into()));
            above.push((PACE_ABOVE, "headers in the pacing rate".into()));
        }
        GoodputLimit::Lockstep => {
            let (waits, turns) = lockstep_waits(path, flow, prediction);
            below.push((waits, "wake-ups of both ends for each block".into()));
            below.push((turns, "blocks of several streams that arrive together".into()));
            if flow.congestion == Congestion::Bbr {
                below.push((BBR_LOCKSTEP_BELOW, "BBR's pacing of a block".into()));
                above.push((BBR_LOCKSTEP_ABOVE, "BBR's pacing of a block".into()));
            }
        }
        GoodputLimit::RequestedRate => {}
        GoodputLimit::Loss => {
            below.push((1.0 - LOSS_MODEL_MIN, "accuracy of the loss formula".into()));
            above.push((LOSS_MODEL_MAX - 1.0, "accuracy of the loss formula".into()));
            let (scatter, start) = loss_scatter(path, flow, prediction, steady);
            below.push((scatter.min(1.0), "too few losses for an average".into()));
            above.push((scatter + start, "too few losses for an average".into()));
        }
    }
    let goodput = prediction.goodput.as_f64();
    let full = path.payload_capacity().as_f64() * (1.0 + FRAMING_ERROR);
    let down: f64 = below.iter().map(|(share, _)| 1.0 - share).product();
    let up: f64 = above.iter().map(|(share, _)| 1.0 + share).product();
    ExpectedRange {
        min: BitRate((goodput * down.max(0.0)) as u64),
        // In any measurement, no more arrives than the path carries plus the content of its queue before.
        max: BitRate((goodput * up).min(full.max(goodput) * (1.0 + edges)) as u64),
        reasons: reasons(below.into_iter().chain(above)),
    }
}

/// Returns the shares of the path that a congestion control leaves unused although it could fill the path.
fn unused_capacity(path: &PathProfile, flow: &FlowParameters) -> Vec<(f64, String)> {
    match flow.congestion {
        Congestion::Bbr => vec![(BBR_BANDWIDTH_PROBES, "BBR's bandwidth probes".into()), rtt_probes(path)],
        Congestion::Cubic => vec![sawtooth(path, CUBIC_BETA, "CUBIC")],
        Congestion::Reno => vec![sawtooth(path, RENO_BETA, "Reno")],
    }
}

/// Returns the share of the time in which BBR empties the path to measure its RTT.
fn rtt_probes(path: &PathProfile) -> (f64, String) {
    let rtt = path.base_rtt.as_secs_f64();
    let share = (PROBE_RTT_SECONDS + 2.0 * rtt) / (PROBE_RTT_INTERVAL_SECONDS + rtt);
    (share.min(0.5), "BBR's RTT probes".into())
}

/// Returns the share that a window-limited sender loses because it sends bursts. The receiver acknowledges a burst when
/// its end has arrived, so each round trip is longer by the time of a burst on the link. Measured on 135 Mb/s and 6 ms:
/// CUBIC 8, 12 and 14 % below window / RTT with windows of 16, 37 and 65 kB; BBR 12 %.
fn wait_for_bursts(path: &PathProfile, flow: &FlowParameters) -> f64 {
    let window = flow.window.map_or(0.0, |window| window.0 as f64);
    let burst = (window / WINDOW_BURSTS).min(MAX_BURST) * 8.0 / path.capacity.as_f64().max(1.0);
    burst / (path.base_rtt.as_secs_f64() + burst).max(f64::MIN_POSITIVE)
}

/// Returns the shares that a lock-step loses by late threads, and by streams that send at the same time.
fn lockstep_waits(path: &PathProfile, flow: &FlowParameters, prediction: &Prediction) -> (f64, f64) {
    let streams = f64::from(flow.streams.max(1));
    let block = flow.lockstep.unwrap_or_default().0 as f64 * 8.0;
    let time = block * streams / prediction.goodput.as_f64().max(1.0);
    // In the worst case every block waits for those of all other streams.
    let queue = block * (streams - 1.0) / path.payload_capacity().as_f64().max(1.0);
    let share = |late: f64| late / (time + late).max(f64::MIN_POSITIVE);
    (share(LOCKSTEP_WAKE_UPS.as_secs_f64()), share(queue))
}

/// Returns the share that is unused after a loss. It is zero where the queue is deep enough to feed the link meanwhile.
/// Half of the deepest dip counts, because the window grows back. CUBIC grows faster than a straight line; the
/// difference is left as margin.
fn sawtooth(path: &PathProfile, beta: f64, name: &str) -> (f64, String) {
    let bdp = path.bdp().0.max(1) as f64;
    // An unknown queue counts as half a BDP.
    let queue = path.queue.map_or(0.5 * bdp, |queue| queue.0 as f64);
    let dip = (1.0 - beta * (bdp + queue) / bdp).max(0.0);
    // A loss and its recovery usually cost something: a round trip each at the reduced rate.
    (dip / 2.0 + 0.02, format!("{name}'s recovery after a loss"))
}

/// Returns how far the losses of a short time are from their average, as shares of the goodput: the scatter of their
/// number, and the data sent before enough losses happened. A sender starts far above the window that losses leave in
/// the long run. Slow start continues to the first loss, after about 1/p segments. Each of the next 1/p segments ends
/// with a window `beta` times as large.
fn loss_scatter(path: &PathProfile, flow: &FlowParameters, prediction: &Prediction, time: Duration) -> (f64, f64) {
    let (loss, mss) = (path.loss.get(), f64::from(path.mss()) * 8.0);
    let rate = prediction.goodput.as_f64() / mss;
    let segments = rate * time.as_secs_f64();
    if loss <= 0.0 || segments <= 0.0 {
        return (0.0, 0.0);
    }
    let streams = f64::from(flow.streams.max(1));
    let beta = if flow.congestion == Congestion::Reno { RENO_BETA } else { CUBIC_BETA };
    let first = (0.5 / loss).min((path.bdp().0 as f64 * 8.0 / mss) / streams);
    let window = rate * path.base_rtt.as_secs_f64() / streams;
    let losses = ((first / window.max(1.0)).ln() / -f64::ln(beta)).max(0.0);
    (1.0 / (segments * loss).sqrt(), losses * streams / loss / segments)
}

/// Returns the share that pauses of the hosts may cost. During a pause the queue runs empty; afterwards a burst arrives
/// that the queue has no room for. Zero where the queue lasts longer than a pause, or where its size is unknown.
pub(crate) fn loss_by_pauses(path: &PathProfile) -> f64 {
    let Some(queue) = path.queue else { return 0.0 };
    let lasts = queue.0 as f64 * 8.0 / path.capacity.as_f64().max(1.0);
    PAUSE_COST * (1.0 - lasts / MAX_PAUSE.as_secs_f64()).max(0.0)
}

/// Formats each reason once, the largest first, without reasons that make no difference.
fn reasons(shares: impl Iterator<Item = (f64, String)>) -> Vec<String> {
    let mut shares: Vec<(f64, String)> = shares.filter(|(share, _)| *share >= 0.001).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut merged: Vec<(f64, String)> = Vec::new();
    for (share, reason) in shares {
        if !merged.iter().any(|(_, old)| *old == reason) {
            merged.push((share, reason));
        }
    }
    merged.into_iter().map(|(share, reason)| format!("{reason} ({:.1} %)", share * 100.0)).collect()
}

#[cfg(test)]
mod tests {
    use lfn_base::tcp_model::predict_steady;
    use lfn_base::units::Ratio;

    use super::*;
    use crate::diagnose::half_bdp_window;
    use crate::measure::SocketReport;

    fn acts() -> PathProfile {
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        PathProfile { queue: Some(path.bdp()), ..path }
    }

    fn around(path: &PathProfile, flow: &FlowParameters, seconds: u64) -> (f64, f64, ExpectedRange) {
        let prediction = predict_steady(path, flow);
        let expected = expected_range(path, flow, &prediction, Duration::from_secs(seconds));
        let share = |rate: BitRate| rate.as_f64() / prediction.goodput.as_f64();
        (share(expected.min), share(expected.max), expected)
    }

    #[test]
    fn emulated_measurements_lie_in_the_range() {
        // bench/emulate: CUBIC with a bounded window fills the ACTS path; BBR leaves a tenth of it unused.
        let (low, high, _) = around(&acts(), &FlowParameters::default(), 20);
        assert!(low < 0.95 && (1.0..1.08).contains(&high), "{low} {high}");
        let bbr = FlowParameters { congestion: Congestion::Bbr, ..FlowParameters::default() };
        let (low, _, expected) = around(&acts(), &bbr, 60);
        assert!((0.75..0.905).contains(&low), "{low}");
        assert_eq!(expected.reasons[0], "BBR's RTT probes (12.1 %)");
        // Measured: a window of 4,547,840 gave 67.4 of 67.5 Mb/s.
        let full_path = FlowParameters { window: Some(Bytes(4_547_813)), ..FlowParameters::default() };
        let (low, high, _) = around(&acts(), &full_path, 30);
        assert!(low < 67.4 / 67.5 && high > 1.0, "{low} {high}");
        assert!(low > 0.85, "{low}");
        // BBR empties the path for its RTT once in the 15 steady seconds of a test of 20 s.
        let bbr = FlowParameters { congestion: Congestion::Bbr, ..full_path };
        assert!((0.75..0.92).contains(&around(&acts(), &bbr, 15).0));
    }

    #[test]
    fn bursts_of_a_small_window_widen_the_range() {
        // The path of Figure 21. Measured with CUBIC.
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(6));
        for (window, measured) in [(16_384, 20.02 / 21.7), (37_500, 43.52 / 49.63), (65_535, 74.54 / 86.6)] {
            let flow = FlowParameters { window: Some(Bytes(window)), ..FlowParameters::default() };
            let (low, _, expected) = around(&path, &flow, 4);
            assert!(low < measured && low > measured - 0.12, "{window}: {low} {measured} {:?}", expected.reasons);
        }
    }

    /// Predicts a test of the ACTS path with these requests at the sender's and the receiver's socket.
    fn predict_with(change: fn(&mut SocketReport, &mut SocketReport)) -> (Prediction, ExpectedRange) {
        let mut evidence = half_bdp_window();
        let flow = &mut evidence.streams[0];
        (flow.sender_socket, flow.receiver_socket) = (SocketReport::default(), SocketReport::default());
        change(&mut flow.sender_socket, &mut flow.receiver_socket);
        predict_test(&evidence).unwrap()
    }

    #[test]
    fn smallest_limit_of_both_ends_is_predicted() {
        let full = acts().payload_capacity();
        let (prediction, expected) = predict_with(|_, _| {});
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::Capacity, full));
        assert!(expected.max.as_f64() < 1.05 * full.as_f64() && expected.min.as_f64() > 0.9 * full.as_f64());
        // A fixed receive window.
        let (prediction, _) = predict_with(|_, receiving| receiving.window_requested_bytes = Some(Bytes(2_000_000)));
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::ReceiveWindow, BitRate(29_684_601)));
        // A receive buffer counts as the window that it produced.
        let (prediction, _) = predict_with(|_, receiving| receiving.rcvbuf_requested_bytes = Some(Bytes(64 << 20)));
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::ReceiveWindow, BitRate(67_500_408)));
        // A send buffer counts as the granted size and the kernel's doubling.
        let small = |sending: &mut SocketReport| {
            (sending.sndbuf_requested_bytes, sending.sndbuf_granted_bytes) = (Some(Bytes(62 << 20)), Bytes(1 << 20));
        };
        let (prediction, expected) = predict_with(|sending, _| {
            (sending.sndbuf_requested_bytes, sending.sndbuf_granted_bytes) = (Some(Bytes(62 << 20)), Bytes(1 << 20));
        });
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::SendBuffer, BitRate(25_938_790)));
        let per_granted = Bytes(1 << 20).per(acts().base_rtt).as_f64();
        assert!(expected.min.as_f64() < 1.3 * per_granted && expected.max.as_f64() > 1.9 * per_granted, "{expected:?}");
        // The smallest limit of either end decides.
        let mut evidence = half_bdp_window();
        small(&mut evidence.streams[0].sender_socket);
        evidence.streams[0].receiver_socket.window_requested_bytes = Some(Bytes(1_000_000));
        assert_eq!(predict_test(&evidence).unwrap().0.limit, GoodputLimit::ReceiveWindow);
        evidence.streams[0].receiver_socket.window_requested_bytes = Some(Bytes(2_000_000));
        assert_eq!(predict_test(&evidence).unwrap().0.limit, GoodputLimit::SendBuffer);
        evidence.path = None;
        assert_eq!(predict_test(&evidence), None, "no capacity, no prediction");
    }

    #[test]
    fn pace_and_mss_are_predicted() {
        let (prediction, expected) = predict_with(|sending, _| sending.pacing_requested = Some(BitRate(50_000_000)));
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::Pacing, BitRate(50_000_000)));
        // Segments of 1448 B of packets of 1514 B.
        assert!(expected.min.as_f64() < 50e6 * 1448.0 / 1514.0 && expected.max.as_f64() < 55e6, "{expected:?}");
        // The server's rate limit counts as a pace of all streams together.
        let mut evidence = half_bdp_window();
        evidence.streams[0].receiver_socket = SocketReport::default();
        evidence.streams.push(evidence.streams[0].clone());
        evidence.rate_limit = Some(BitRate(20_000_000));
        let (prediction, _) = predict_test(&evidence).unwrap();
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::Pacing, BitRate(20_000_000)));
        let (prediction, _) = predict_with(|_, receiving| receiving.mss_requested_bytes = Some(Bytes(500)));
        assert_eq!((prediction.limit, prediction.goodput), (GoodputLimit::Capacity, BitRate(118_916_967)));
    }

    #[test]
    fn lockstep_is_predicted_from_its_block() {
        let mut evidence = half_bdp_window();
        evidence.streams[0].receiver_socket = SocketReport::default();
        evidence.lockstep = Some(Bytes(64 << 10));
        let (prediction, expected) = predict_test(&evidence).unwrap();
        // 64 KiB in 539 ms and 4 ms.
        assert_eq!((prediction.limit, prediction.goodput.0 / 1000), (GoodputLimit::Lockstep, 965));
        assert!(expected.min.as_f64() > 0.9 * 965e3 && expected.max.as_f64() < 1.05 * 965e3, "{expected:?}");
        // Several streams may wait for each other.
        evidence.streams = vec![evidence.streams[0].clone(); 8];
        let (prediction, expected) = predict_test(&evidence).unwrap();
        assert_eq!(prediction.goodput.0 / 1000, 7723);
        assert!(expected.min.as_f64() < 0.93 * 7.72e6, "{expected:?}");
        assert!(expected.reasons[0].starts_with("blocks of several streams"), "{:?}", expected.reasons);
    }

    #[test]
    fn unknown_figures_widen_the_range() {
        let long = around(&acts(), &FlowParameters::default(), 600).0;
        let short = around(&acts(), &FlowParameters::default(), 5).0;
        assert!(short < long && long > 0.96, "{short} {long}");
        // Half a BDP of queue feeds CUBIC after a loss, a tenth does not, and Reno needs a whole BDP.
        let shallow = PathProfile { queue: Some(Bytes(acts().bdp().0 / 10)), ..acts() };
        assert!(around(&shallow, &FlowParameters::default(), 600).0 < long - 0.05);
        let reno = FlowParameters { congestion: Congestion::Reno, ..FlowParameters::default() };
        assert!(around(&shallow, &reno, 600).0 < around(&shallow, &FlowParameters::default(), 600).0);
        let lossy = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..acts() };
        let (low, high, expected) = around(&lossy, &FlowParameters::default(), 600);
        assert!(low < 0.6 && high > 1.5, "{low} {high}");
        assert!(expected.reasons[0].starts_with("accuracy of the loss formula"), "{:?}", expected.reasons);
    }

    #[test]
    fn few_losses_widen_the_range() {
        // Measured with CUBIC at 100 ms, one in 1,000 lost: 10.8 and 12.3 Mb/s in 20 s, 7.9 Mb/s in 60 s, falling from
        // 41 to between 3 and 9 Mb/s.
        let path = PathProfile::new(BitRate(100_000_000), Duration::from_millis(100));
        let path = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..path };
        let high = |seconds| around(&path, &FlowParameters::default(), seconds).2.max.as_f64() / 1e6;
        assert!((12.4..20.0).contains(&high(20)), "{}", high(20));
        assert!((8.0..11.5).contains(&high(60)), "{}", high(60));
        assert!(high(6000) < 7.3, "{}", high(6000));
        let (short, long) =
            (around(&path, &FlowParameters::default(), 20).0, around(&path, &FlowParameters::default(), 6000).0);
        assert!(short < 0.5 && long > 0.55, "{short} {long}");
    }

    #[test]
    fn small_queue_widens_the_range_for_pauses() {
        let path = PathProfile::new(BitRate(1_000_000_000), Duration::from_millis(1));
        let of = |queue: Option<Bytes>| around(&PathProfile { queue, ..path }, &FlowParameters::default(), 10);
        let (low, high, expected) = of(Some(path.bdp()));
        assert!((0.65..0.75).contains(&low) && high < 1.02, "{low} {high}");
        assert_eq!(expected.reasons[0], "host pauses longer than the queue (30.0 %)");
        // A queue of 4 ms outlasts the pauses.
        assert!(of(Some(Bytes(500_000))).0 > 0.95);
        assert_eq!(of(None).0, of(Some(Bytes(500_000))).0, "an unknown queue adds no cost");
    }

    #[test]
    fn zero_figures_do_not_divide_by_zero() {
        for path in [PathProfile::new(BitRate(0), Duration::ZERO), PathProfile::new(BitRate(1), Duration::ZERO)] {
            let (_, _, expected) = around(&path, &FlowParameters::default(), 0);
            assert!(expected.min <= expected.max, "{expected:?}");
        }
        // Even for a millisecond on a path of half a second, the maximum is the content of the path and its queue.
        let prediction = predict_steady(&acts(), &FlowParameters::default());
        let brief = expected_range(&acts(), &FlowParameters::default(), &prediction, Duration::from_millis(1));
        assert_eq!(brief.min, BitRate(0));
        assert!(brief.max.as_f64() <= 2.1 * prediction.goodput.as_f64());
    }
}
