//! What TCP makes of a path: steady goodput under a window and under loss, and the time of a transfer.
//!
//! Closed formulas, not a simulation: goodput is the least of what capacity, window and loss allow, and start-up is
//! whole round trips of growth. No queue and no competing traffic: that is the work of the emulated link. A window
//! beyond the BDP therefore changes nothing here, it only lengthens the queue. The loss formulas hold while losses are
//! rare; above some per cent, retransmission timeouts make the truth worse than the formula.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::PathProfile;
use crate::units::{BitRate, Bytes, Ratio};

/// Congestion control, as far as the model tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 5681: the window after loss follows Mathis, Semke, Mahdavi and Ott, 1997.
    Reno,
    /// RFC 9438, Linux's default.
    #[default]
    Cubic,
    /// BBR: not moved by random loss, up to the 15 to 20 % where its first version gives way.
    Bbr,
}

/// How a sender behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Receive window each stream holds; none: never in the way.
    pub window: Option<Bytes>,
    /// What each stream's send buffer lets into flight; none: never in the way.
    pub send_buffer: Option<Bytes>,
    /// What each stream is paced to; none: by nothing but its congestion control.
    pub pace: Option<BitRate>,
    /// Streams that share the path evenly; 0 counts as 1.
    pub streams: u32,
    /// Congestion control of each.
    pub congestion: Congestion,
    /// First flight of each stream, segments: 10 (RFC 6928).
    pub initial_window: u32,
    /// True if only every second segment is acknowledged and the sender counts acknowledgements (RFC 5681), so that
    /// slow start grows by half each round trip. Linux counts bytes (RFC 3465) and doubles.
    pub delayed_ack: bool,
}

/// What holds a steady flow back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The path is full.
    Capacity,
    /// The receive window is spent before the first acknowledgement returns.
    #[serde(rename = "receive window")]
    ReceiveWindow,
    /// The send buffer is full before the first acknowledgement returns.
    #[serde(rename = "send buffer")]
    SendBuffer,
    /// The sender is paced.
    Pacing,
    /// Loss keeps the congestion window small.
    Loss,
    /// No more was asked for: of datagrams, whose rate is set.
    #[serde(rename = "asked rate")]
    Asked,
}

/// Steady goodput, once past start-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Payload of all streams together.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// What would have to change for more.
    #[serde(rename = "limited_by")]
    pub limit: Limit,
    /// Share of the capacity left unused: 1 − payload in flight / BDP where window or loss binds, else 0.
    pub idle_share: Ratio,
}

/// Where the time of a transfer goes. All of it: from the first SYN to the last byte's arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferTime {
    /// One round trip, before any data.
    pub handshake: Duration,
    /// From the first data to the steady rate; whole round trips, unless the data ends first.
    pub slow_start: Duration,
    /// The rest of the data at the steady rate.
    pub steady: Duration,
    /// Half a round trip, for the last byte to arrive.
    pub last_byte: Duration,
}

/// The steady goodput of a flow over a path.
pub fn steady(path: &PathProfile, flow: &Flow) -> Prediction {
    let rtt = path.base_rtt.as_secs_f64();
    let streams = f64::from(flow.streams.max(1));
    let full = path.payload_capacity().as_f64();
    let (mut rate, mut limit) = (full, Limit::Capacity);
    let mut at_most = |candidate: f64, by: Limit| {
        if candidate < rate {
            (rate, limit) = (candidate, by);
        }
    };
    if let Some(pace) = flow.pace {
        at_most(pace.as_f64() * streams, Limit::Pacing);
    }
    if rtt > 0.0 {
        if let Some(buffer) = flow.send_buffer {
            at_most(buffer.0 as f64 * 8.0 * streams / rtt, Limit::SendBuffer);
        }
        if let Some(window) = flow.window {
            at_most(window.0 as f64 * 8.0 * streams / rtt, Limit::ReceiveWindow);
        }
        if let Some(segments) = loss_window(path, flow) {
            at_most(segments * f64::from(path.mss()) * 8.0 * streams / rtt, Limit::Loss);
        }
    }
    let idle = if limit == Limit::Capacity { 0.0 } else { 1.0 - rate / path.capacity.as_f64().max(1.0) };
    // What is lost is sent again, so it takes its share of whatever limit holds.
    let goodput = BitRate((rate * (1.0 - path.loss.get())).round() as u64);
    Prediction { goodput, limit, idle_share: Ratio::new(idle).unwrap_or_default() }
}

/// The time to move `size`; `None` if it never ends, or only after 584 years.
pub fn transfer_time(path: &PathProfile, flow: &Flow, size: Bytes) -> Option<TransferTime> {
    let rtt = path.base_rtt.as_secs_f64();
    let line = path.payload_capacity().as_f64() / 8.0;
    let steady = steady(path, flow);
    let rate = steady.goodput.as_f64() / 8.0;
    let start = slow_start(path, flow, Some(size));
    let rest = (size.0 as f64 - start.sent).max(0.0);
    let after = match (start.complete, steady.limit) {
        // The data ended within a flight, which leaves at the rate of the line.
        (false, _) => 0.0,
        // A window at a time, the last of them at the rate of the line.
        (true, Limit::ReceiveWindow | Limit::SendBuffer) => {
            let per_round = rate * rtt;
            let whole = (rest / per_round).ceil() - 1.0;
            whole.max(0.0) * rtt + (rest - whole.max(0.0) * per_round) / line
        }
        (true, _) => rest / rate,
    };
    let tail = if start.complete { 0.0 } else { rest / line };
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok().filter(|d| d.as_nanos() <= u64::MAX.into());
    Some(TransferTime {
        handshake: path.base_rtt,
        slow_start: seconds(start.rounds * rtt + tail)?,
        steady: seconds(after)?,
        last_byte: path.base_rtt / 2,
    })
}

/// Time from the first data until a flow is at its steady goodput, if there is data enough.
pub fn slow_start_time(path: &PathProfile, flow: &Flow) -> Duration {
    let start = slow_start(path, flow, None);
    Duration::try_from_secs_f64(start.rounds * path.base_rtt.as_secs_f64()).unwrap_or(Duration::MAX)
}

/// The random loss at which one stream of these segments can still fill `rate`: (0.7 · MSS · 8 / (rate · RTT))², the
/// model of pathdiag (Mathis, PSC, 2005), at most 1.
pub fn loss_budget(mss: u32, rate: BitRate, rtt: Duration) -> Ratio {
    let flight = rate.as_f64() * rtt.as_secs_f64();
    let budget = (0.7 * f64::from(mss) * 8.0 / flight).powi(2);
    Ratio::new(budget.min(1.0)).unwrap_or_default()
}

/// Average window of Reno at this loss, segments: √(3/2)/√p (Mathis et al., 1997, section 2), with `segments_per_ack`
/// of 2 √(3/4)/√p. Infinite at a loss of zero.
pub fn reno_window(loss: Ratio, segments_per_ack: u32) -> f64 {
    (1.5 / (f64::from(segments_per_ack.max(1)) * loss.get())).sqrt()
}

/// Average window of CUBIC at this loss and RTT, segments: the larger of its own and of Reno's, which it follows where
/// its own is smaller (RFC 9438, sections 4.3 and 5.1, with C = 0.4 and β = 0.7). Infinite at a loss of zero.
pub fn cubic_window(loss: Ratio, rtt: Duration) -> f64 {
    const C: f64 = 0.4;
    const BETA: f64 = 0.7;
    let factor = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    let own = factor * (rtt.as_secs_f64() / loss.get()).powf(0.75);
    own.max(reno_window(loss, 1))
}

impl Default for Flow {
    fn default() -> Self {
        Flow {
            window: None,
            send_buffer: None,
            pace: None,
            streams: 1,
            congestion: Congestion::default(),
            initial_window: 10,
            delayed_ack: false,
        }
    }
}

impl TransferTime {
    /// The sum; saturates.
    pub fn total(&self) -> Duration {
        [self.slow_start, self.steady, self.last_byte]
            .iter()
            .fold(self.handshake, |sum, part| sum.saturating_add(*part))
    }
}

/// The congestion window loss allows each stream, segments; `None` where loss does not limit it.
fn loss_window(path: &PathProfile, flow: &Flow) -> Option<f64> {
    if path.loss.get() <= 0.0 {
        return None;
    }
    match flow.congestion {
        Congestion::Reno => Some(reno_window(path.loss, if flow.delayed_ack { 2 } else { 1 })),
        Congestion::Cubic => Some(cubic_window(path.loss, path.base_rtt)),
        Congestion::Bbr => None,
    }
}

/// How far slow start went.
struct SlowStart {
    /// Round trips begun and ended in it.
    rounds: f64,
    /// Bytes sent in those.
    sent: f64,
    /// True if it ended at the steady rate, false if the data ended first.
    complete: bool,
}

/// Grows all streams' windows a round trip at a time until one of them sends for all of it, or `size` is sent.
fn slow_start(path: &PathProfile, flow: &Flow, size: Option<Bytes>) -> SlowStart {
    let growth = if flow.delayed_ack { 1.5 } else { 2.0 };
    let first = f64::from(flow.initial_window.max(1)) * f64::from(path.mss()) * f64::from(flow.streams.max(1));
    let enough = steady(path, flow).goodput.as_f64() / 8.0 * path.base_rtt.as_secs_f64();
    let size = size.map_or(f64::INFINITY, |size| size.0 as f64);
    let mut state = SlowStart { rounds: 0.0, sent: 0.0, complete: true };
    let mut flight = first;
    // No room for payload: no flight ever grows.
    while flight > 0.0 && flight < enough {
        if state.sent + flight >= size {
            return SlowStart { complete: false, ..state };
        }
        state.sent += flight;
        state.rounds += 1.0;
        flight *= growth;
    }
    state
}

/// A congestion control the model does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a congestion control the model knows: expected reno, cubic or bbr")]
pub struct UnknownCongestion {
    /// What was typed.
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

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Limit::Capacity => "capacity",
            Limit::ReceiveWindow => "receive window",
            Limit::SendBuffer => "send buffer",
            Limit::Pacing => "pacing",
            Limit::Loss => "loss",
            Limit::Asked => "asked rate",
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
    fn the_least_of_capacity_window_and_loss_limits() {
        let held = |window| Flow { window: Some(Bytes(window)), ..Flow::default() };
        let half = steady(&acts(), &held(4_547_813));
        assert_eq!((half.goodput, half.limit), (BitRate(67_500_007), Limit::ReceiveWindow));
        let more = steady(&acts(), &held(13_643_438));
        assert_eq!((more.goodput, more.limit), (acts().payload_capacity(), Limit::Capacity));
        let lossy = PathProfile { loss: Ratio::new(1e-3).unwrap(), ..acts() };
        assert_eq!(steady(&lossy, &Flow::default()).limit, Limit::Loss);
        let bbr = steady(&lossy, &Flow { congestion: Congestion::Bbr, ..Flow::default() });
        assert_eq!((bbr.limit, bbr.goodput), (Limit::Capacity, BitRate(128_985_812)));
    }

    #[test]
    fn the_windows_of_the_cubic_rfc() {
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
    fn a_cold_stream_of_linux_over_the_acts_path() {
        // 100 MB over 135 Mb/s × 539 ms took one stream 11.5 s on the emulated path.
        let time = transfer_time(&acts(), &Flow::default(), Bytes(100_000_000)).unwrap();
        assert!((time.total().as_secs_f64() - 11.5).abs() < 0.1, "{time:?}");
        assert_eq!(time.slow_start, slow_start_time(&acts(), &Flow::default()));
    }

    #[test]
    fn data_that_fits_the_first_flight_needs_a_round_trip_and_a_half() {
        let time = transfer_time(&acts(), &Flow::default(), Bytes(1448)).unwrap().total().as_secs_f64();
        assert!((0.8085..0.8087).contains(&time), "{time}");
    }

    #[test]
    fn nothing_arrives_where_everything_is_lost() {
        let dead = PathProfile { loss: Ratio::new(1.0).unwrap(), ..acts() };
        assert_eq!(steady(&dead, &Flow::default()).goodput, BitRate(0));
        assert_eq!(transfer_time(&dead, &Flow::default(), Bytes(1 << 20)), None);
    }
}
