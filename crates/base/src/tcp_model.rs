//! A model of TCP on a path: steady goodput with a window and with loss, and the time of a transfer.
//!
//! These are closed formulas, not a simulation. Goodput is the minimum of the limits of capacity, window and loss, and
//! start-up is whole round trips of growth. There is no queue and no competing traffic; the emulated link models them.
//! So a window beyond the BDP changes nothing here, although it lengthens a real queue. The loss formulas are valid
//! while losses are rare: above some per cent, retransmission timeouts lower the real goodput below the formula.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::PathProfile;
use crate::units::{BitRate, Bytes, Ratio};

/// The congestion controls that the model distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 5681. The window after loss follows Mathis, Semke, Mahdavi and Ott, 1997.
    Reno,
    /// RFC 9438, Linux's default.
    #[default]
    Cubic,
    /// BBR ignores random loss, up to the 15 to 20 % at which its first version collapses.
    Bbr,
}

/// Random loss up to which BBR reaches the capacity times the delivered share. Above, BBR is only close to this rate,
/// and its first version collapses at 15 to 20 % (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM
/// Queue 14(5), 2016, figure 8: 100 Mb/s × 100 ms).
pub const BBR_LOSS_BUDGET: f64 = 0.05;

/// Parameters of the streams that share a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowParameters {
    /// Receive window of each stream; `None`: no limit.
    pub window: Option<Bytes>,
    /// Bytes that each stream's send buffer allows in flight; `None`: no limit.
    pub send_buffer: Option<Bytes>,
    /// Pacing rate of each stream; `None`: no pacing except by the congestion control.
    pub pace: Option<BitRate>,
    /// Block that each stream sends before it waits for the receiver's answer; `None`: no such waits.
    pub lockstep: Option<Bytes>,
    /// Streams that share the path evenly; 0 counts as 1.
    pub streams: u32,
    pub congestion: Congestion,
    /// First flight of each stream, segments: 10 (RFC 6928).
    pub initial_window: u32,
    /// True if only every second segment is acknowledged and the sender counts acknowledgements (RFC 5681): slow start
    /// then grows by half in each round trip. Linux counts bytes (RFC 3465) and doubles.
    pub delayed_ack: bool,
}

/// The bottleneck of a steady flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum GoodputLimit {
    Capacity,
    /// The sender fills the receive window before the first acknowledgement returns.
    #[serde(rename = "receive window")]
    ReceiveWindow,
    /// The sender fills the send buffer before the first acknowledgement returns.
    #[serde(rename = "send buffer")]
    SendBuffer,
    Pacing,
    Loss,
    /// The sender waits for the answer to each block.
    #[serde(rename = "lock-step")]
    Lockstep,
    /// The requested rate of datagrams, which limits the goodput by itself.
    #[serde(rename = "requested rate")]
    RequestedRate,
}

/// A prediction of the steady goodput, after start-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Payload of all streams together.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Bottleneck: a change here gives more goodput.
    #[serde(rename = "limited_by")]
    pub limit: GoodputLimit,
    /// Unused share of the capacity: 1 − payload in flight / BDP where window or loss limits, else 0.
    pub idle_share: Ratio,
}

/// The phases of a transfer, from the first SYN to the arrival of the last byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferPhases {
    /// One round trip, before any data.
    pub handshake: Duration,
    /// From the first data to the steady rate: whole round trips, unless the data ends first.
    pub slow_start: Duration,
    /// The rest of the data at the steady rate.
    pub steady: Duration,
    /// Half a round trip, until the last byte arrives.
    pub last_byte: Duration,
}

/// Predicts the steady goodput of streams over a path.
pub fn predict_steady(path: &PathProfile, flow: &FlowParameters) -> Prediction {
    let rtt = path.base_rtt.as_secs_f64();
    let streams = f64::from(flow.streams.max(1));
    let full = path.payload_capacity().as_f64();
    let (mut rate, mut limit) = (full, GoodputLimit::Capacity);
    let mut at_most = |candidate: f64, by: GoodputLimit| {
        if candidate < rate {
            (rate, limit) = (candidate, by);
        }
    };
    if let Some(pace) = flow.pace {
        at_most(pace.as_f64() * streams, GoodputLimit::Pacing);
    }
    if rtt > 0.0 {
        if let Some(buffer) = flow.send_buffer {
            at_most(buffer.0 as f64 * 8.0 * streams / rtt, GoodputLimit::SendBuffer);
        }
        if let Some(window) = flow.window {
            at_most(window.0 as f64 * 8.0 * streams / rtt, GoodputLimit::ReceiveWindow);
        }
        if let Some(segments) = loss_window(path, flow) {
            at_most(segments * f64::from(path.mss()) * 8.0 * streams / rtt, GoodputLimit::Loss);
        }
    }
    if let Some(block) = flow.lockstep {
        at_most(lockstep_rate(path, flow, block).as_f64() * streams, GoodputLimit::Lockstep);
    }
    let idle = if limit == GoodputLimit::Capacity { 0.0 } else { 1.0 - rate / path.capacity.as_f64().max(1.0) };
    // Lost data is sent again, so the loss also reduces the goodput under any other limit.
    let goodput = BitRate((rate * (1.0 - path.loss.get())).round() as u64);
    Prediction { goodput, limit, idle_share: Ratio::new(idle).unwrap_or_default() }
}

/// Returns the rate of one stream that sends a block, waits for the receiver's answer, and sends the next one: the block
/// in each `RTT + block / rate`.
///
/// A block above the window needs more round trips, one for each whole window before its last part. The streams do not
/// queue behind each other: their blocks take turns. BBR paces a block over a part of the round trip
/// ([`bbr_lockstep_pacing`]).
pub fn lockstep_rate(path: &PathProfile, flow: &FlowParameters, block: Bytes) -> BitRate {
    let (rtt, bytes) = (path.base_rtt.as_secs_f64(), block.0 as f64);
    let line = path.payload_capacity().as_f64().min(flow.pace.map_or(f64::INFINITY, BitRate::as_f64));
    let loss = loss_window(path, flow).map(|segments| segments * f64::from(path.mss()));
    let windows = [flow.window, flow.send_buffer].into_iter().flatten().map(|bytes| bytes.0 as f64).chain(loss);
    let window = windows.fold(f64::INFINITY, f64::min).max(1.0);
    let more_rounds = ((bytes / window).ceil() - 1.0).max(0.0);
    let rest = if more_rounds > 0.0 { bytes - more_rounds * window } else { bytes };
    let is_paced = flow.congestion == Congestion::Bbr && bytes > f64::from(flow.initial_window * path.mss());
    let pacing = if is_paced { bbr_lockstep_pacing() * rtt } else { 0.0 };
    let seconds = (1.0 + more_rounds) * rtt + (rest * 8.0 / line.max(1.0)).max(pacing);
    BitRate((bytes * 8.0 / seconds.max(f64::MIN_POSITIVE)) as u64)
}

/// Returns the time over which BBR paces a block in lock-step, in round trips: about 0.53.
///
/// A sender that waits never leaves the start-up of BBR, whose pacing gain g is 2/ln 2 (`bbr_high_gain`). BBR measures
/// the rate b = block / (RTT + t), and paces the next block at g · b, so t = block / (g · b) = RTT / (g − 1). Measured
/// on emulated paths of 10 and 50 ms with blocks of 64 KiB to 1 MiB: 0.37 to 0.54.
pub fn bbr_lockstep_pacing() -> f64 {
    const GAIN: f64 = 2.0 / std::f64::consts::LN_2;
    1.0 / (GAIN - 1.0)
}

/// Predicts the time to move `size`; `None` if it is longer than 584 years.
pub fn transfer_time(path: &PathProfile, flow: &FlowParameters, size: Bytes) -> Option<TransferPhases> {
    let rtt = path.base_rtt.as_secs_f64();
    let line = path.payload_capacity().as_f64() / 8.0;
    let steady = predict_steady(path, flow);
    let rate = steady.goodput.as_f64() / 8.0;
    let start = slow_start(path, flow, Some(size));
    let rest = (size.0 as f64 - start.sent).max(0.0);
    let after = match (start.reached_steady_rate, steady.limit) {
        // The data ended within a flight, which leaves at the link rate.
        (false, _) => 0.0,
        // One window per round trip, the last of them at the link rate.
        (true, GoodputLimit::ReceiveWindow | GoodputLimit::SendBuffer) => {
            let per_round = rate * rtt;
            let whole = (rest / per_round).ceil() - 1.0;
            whole.max(0.0) * rtt + (rest - whole.max(0.0) * per_round) / line
        }
        (true, _) => rest / rate,
    };
    let tail = if start.reached_steady_rate { 0.0 } else { rest / line };
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok().filter(|d| d.as_nanos() <= u64::MAX.into());
    Some(TransferPhases {
        handshake: path.base_rtt,
        slow_start: seconds(start.rounds * rtt + tail)?,
        steady: seconds(after)?,
        last_byte: path.base_rtt / 2,
    })
}

/// Returns the time from the first data until the streams reach their steady goodput, if there is enough data.
pub fn slow_start_time(path: &PathProfile, flow: &FlowParameters) -> Duration {
    let start = slow_start(path, flow, None);
    Duration::try_from_secs_f64(start.rounds * path.base_rtt.as_secs_f64()).unwrap_or(Duration::MAX)
}

/// Returns the random loss at which one stream with this MSS can still fill `rate`: (0.7 · MSS · 8 / (rate · RTT))²,
/// the model of pathdiag (Mathis, PSC, 2005); at most 1.
pub fn loss_budget(mss: u32, rate: BitRate, rtt: Duration) -> Ratio {
    let flight = rate.as_f64() * rtt.as_secs_f64();
    let budget = (0.7 * f64::from(mss) * 8.0 / flight).powi(2);
    Ratio::new(budget.min(1.0)).unwrap_or_default()
}

/// Returns the random loss up to which `streams` streams with this congestion control fill the path; at most 1.
///
/// Each stream must fill its share. Reno: [`loss_budget`] at the capacity, which is below the loss of
/// [`reno_window`] by pathdiag's margin of three. CUBIC: the loss at which [`cubic_window`] is the window that carries
/// the payload capacity. BBR: [`BBR_LOSS_BUDGET`].
pub fn congestion_loss_budget(path: &PathProfile, streams: u32, congestion: Congestion) -> Ratio {
    let streams = streams.max(1);
    match congestion {
        Congestion::Reno => loss_budget(path.mss(), BitRate(path.capacity.0 / u64::from(streams)), path.base_rtt),
        Congestion::Cubic => {
            let rtt = path.base_rtt.as_secs_f64();
            let segments = path.payload_capacity().as_f64() * rtt / (f64::from(path.mss()) * 8.0 * f64::from(streams));
            let own = rtt * (cubic_factor() / segments).powf(4.0 / 3.0);
            let as_reno = 1.5 / segments.powi(2);
            Ratio::new(own.max(as_reno).min(1.0)).unwrap_or_default()
        }
        Congestion::Bbr => Ratio::new(BBR_LOSS_BUDGET).unwrap_or_default(),
    }
}

/// Returns the average window of Reno with this loss, in segments: √(3/2)/√p (Mathis et al., 1997, section 2), or
/// √(3/4)/√p with `segments_per_ack` of 2. Infinite at a loss of zero.
pub fn reno_window(loss: Ratio, segments_per_ack: u32) -> f64 {
    (1.5 / (f64::from(segments_per_ack.max(1)) * loss.get())).sqrt()
}

/// Returns the average window of CUBIC with this loss and RTT, in segments: the larger of its own and Reno's, which it
/// follows where its own is smaller (RFC 9438, sections 4.3 and 5.1, with C = 0.4 and β = 0.7). Infinite at a loss of
/// zero.
pub fn cubic_window(loss: Ratio, rtt: Duration) -> f64 {
    let own = cubic_factor() * (rtt.as_secs_f64() / loss.get()).powf(0.75);
    own.max(reno_window(loss, 1))
}

/// Returns the constant of CUBIC's average window (RFC 9438, section 5.1), with C = 0.4 and β = 0.7: about 1.054.
fn cubic_factor() -> f64 {
    const C: f64 = 0.4;
    const BETA: f64 = 0.7;
    (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25)
}

impl Congestion {
    /// All congestion controls of the model.
    pub const ALL: [Congestion; 3] = [Congestion::Reno, Congestion::Cubic, Congestion::Bbr];
}

impl Default for FlowParameters {
    fn default() -> Self {
        FlowParameters {
            window: None,
            send_buffer: None,
            pace: None,
            lockstep: None,
            streams: 1,
            congestion: Congestion::default(),
            initial_window: 10,
            delayed_ack: false,
        }
    }
}

impl TransferPhases {
    /// Returns the sum of all phases; saturates.
    pub fn total(&self) -> Duration {
        [self.slow_start, self.steady, self.last_byte]
            .iter()
            .fold(self.handshake, |sum, part| sum.saturating_add(*part))
    }
}

/// Returns the congestion window of each stream under loss, in segments; `None` where loss does not limit it.
fn loss_window(path: &PathProfile, flow: &FlowParameters) -> Option<f64> {
    if path.loss.get() <= 0.0 {
        return None;
    }
    match flow.congestion {
        Congestion::Reno => Some(reno_window(path.loss, if flow.delayed_ack { 2 } else { 1 })),
        Congestion::Cubic => Some(cubic_window(path.loss, path.base_rtt)),
        Congestion::Bbr => None,
    }
}

/// Progress of slow start.
struct SlowStart {
    /// Complete round trips in slow start.
    rounds: f64,
    /// Bytes sent in these round trips.
    sent: f64,
    /// False if the data ended first.
    reached_steady_rate: bool,
}

/// Grows all streams' windows one round trip at a time until they reach the steady rate, or `size` is sent.
fn slow_start(path: &PathProfile, flow: &FlowParameters, size: Option<Bytes>) -> SlowStart {
    let growth = if flow.delayed_ack { 1.5 } else { 2.0 };
    let first = f64::from(flow.initial_window.max(1)) * f64::from(path.mss()) * f64::from(flow.streams.max(1));
    let enough = predict_steady(path, flow).goodput.as_f64() / 8.0 * path.base_rtt.as_secs_f64();
    let size = size.map_or(f64::INFINITY, |size| size.0 as f64);
    let mut state = SlowStart { rounds: 0.0, sent: 0.0, reached_steady_rate: true };
    let mut flight = first;
    // Without room for payload, no flight grows.
    while flight > 0.0 && flight < enough {
        if state.sent + flight >= size {
            return SlowStart { reached_steady_rate: false, ..state };
        }
        state.sent += flight;
        state.rounds += 1.0;
        flight *= growth;
    }
    state
}

/// Error: a congestion control that the model does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a congestion control of the model: expected reno, cubic or bbr")]
pub struct UnknownCongestion {
    pub name: String,
}

impl FromStr for Congestion {
    type Err = UnknownCongestion;

    fn from_str(text: &str) -> Result<Self, UnknownCongestion> {
        match text.trim().to_ascii_lowercase().as_str() {
            "reno" => Ok(Congestion::Reno),
            "cubic" => Ok(Congestion::Cubic),
            "bbr" => Ok(Congestion::Bbr),
            _ => Err(UnknownCongestion { name: text.to_owned() }),
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Congestion::Reno => "reno",
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        })
    }
}

impl fmt::Display for GoodputLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GoodputLimit::Capacity => "capacity",
            GoodputLimit::ReceiveWindow => "receive window",
            GoodputLimit::SendBuffer => "send buffer",
            GoodputLimit::Pacing => "pacing",
            GoodputLimit::Loss => "loss",
            GoodputLimit::Lockstep => "lock-step",
            GoodputLimit::RequestedRate => "requested rate",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts() -> PathProfile {
        PathProfile::new(BitRate(135_000_000), Duration::from_millis(539))
    }

    #[test]
    fn smallest_of_capacity_window_and_loss_limits() {
        let with_window = |window| FlowParameters { window: Some(Bytes(window)), ..FlowParameters::default() };
        let half = predict_steady(&acts(), &with_window(4_547_813));
        assert_eq!((half.goodput, half.limit), (BitRate(67_500_007), GoodputLimit::ReceiveWindow));
        let more = predict_steady(&acts(), &with_window(13_643_438));
        assert_eq!((more.goodput, more.limit), (acts().payload_capacity(), GoodputLimit::Capacity));
        let lossy = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..acts() };
        assert_eq!(predict_steady(&lossy, &FlowParameters::default()).limit, GoodputLimit::Loss);
        let bbr = predict_steady(&lossy, &FlowParameters { congestion: Congestion::Bbr, ..FlowParameters::default() });
        assert_eq!((bbr.limit, bbr.goodput), (GoodputLimit::Capacity, BitRate(128_985_812)));
    }

    #[test]
    fn windows_match_the_cubic_rfc() {
        // RFC 9438, the tables of section 5.1 for RTT 100 ms and 10 ms: Reno, then CUBIC with C = 0.4.
        let table = [
            (1e-2, 0.1, 12.0, 12.0),
            (1e-4, 0.1, 120.0, 187.0),
            (1e-8, 0.1, 12_000.0, 187_000.0),
            (1e-2, 0.01, 12.0, 12.0),
            (1e-8, 0.01, 12_000.0, 33_300.0),
        ];
        for (loss, rtt, reno, cubic) in table {
            let loss = Ratio::new(loss).unwrap();
            let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.03;
            assert!(near(reno_window(loss, 1), reno), "{loss} {}", reno_window(loss, 1));
            let window = cubic_window(loss, Duration::from_secs_f64(rtt));
            assert!(near(window, cubic), "{loss} {rtt} {window}");
        }
    }

    #[test]
    fn cold_linux_stream_over_the_acts_path() {
        // On the emulated path, one stream took 11.5 s for 100 MB at 135 Mb/s × 539 ms.
        let time = transfer_time(&acts(), &FlowParameters::default(), Bytes(100_000_000)).unwrap();
        assert!((time.total().as_secs_f64() - 11.5).abs() < 0.1, "{time:?}");
        assert_eq!(time.slow_start, slow_start_time(&acts(), &FlowParameters::default()));
    }

    #[test]
    fn first_flight_takes_a_round_trip_and_a_half() {
        let time = transfer_time(&acts(), &FlowParameters::default(), Bytes(1448)).unwrap().total().as_secs_f64();
        assert!((0.8085..0.8087).contains(&time), "{time}");
    }

    #[test]
    fn nothing_arrives_where_everything_is_lost() {
        let dead = PathProfile { loss: Ratio::new(1.0).unwrap(), ..acts() };
        assert_eq!(predict_steady(&dead, &FlowParameters::default()).goodput, BitRate(0));
        assert_eq!(transfer_time(&dead, &FlowParameters::default(), Bytes(1 << 20)), None);
    }
}
