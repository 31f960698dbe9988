//! The data streams of a copy: how many, with what blocks, paced to what and controlled how, and when to change that.
//!
//! [`choose`] decides before the first byte from what is known of the path, by the same model that predicts the copy's
//! time; [`Adapter`] decides while it runs from what was seen, and asks for more streams only where a thing that more
//! streams help against holds the copy back, and only as long as they did help. Every choice has its reason in words. What
//! the user asked for is never changed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::blocks::DEFAULT_BLOCK;
use super::limit::{Limit, Look, classify};
use super::random_loss;
use crate::path::PathProfile;
use crate::plan::congestion_for;
use crate::tcp_model::{Congestion, Flow, transfer_time};
use crate::units::{BitRate, Bytes, show_duration};
use crate::wire::bounded;

/// Streams of a path of which nothing is known, and the least of any: as fast as more between near hosts, and a loss
/// slows one of four.
pub const FEW: u16 = 4;

/// Most streams that are chosen unasked: with 256 a path of 135 Mb/s × 539 ms is full within a second, and each costs both
/// hosts buffers and a handshake.
pub const MANY: u16 = 256;

/// The smallest block that is chosen: its header is 0.3 % of it.
const SMALL_BLOCK: Bytes = Bytes(16 << 10);

/// How long a stream's share of the path may take for one block. A copy ends with the slowest last block.
const BLOCK_TIME: Duration = Duration::from_millis(250);

/// What the time of more streams must save to be worth them.
const WORTH: f64 = 0.03;

/// What was asked for; nothing of it is chosen then.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Asked {
    /// How many streams.
    pub streams: Option<u16>,
    /// Size of a block.
    pub block: Option<Bytes>,
    /// Congestion control, where the model knows it.
    pub congestion: Option<Congestion>,
    /// What one socket of the sender can hold in flight, where its system limits that (`tcp_wmem[2]`).
    pub send_buffer: Option<Bytes>,
}

/// How a copy's streams are set up, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// How many there are at first.
    pub streams: u16,
    /// Size of a block.
    pub block: Bytes,
    /// What each stream's buffers have to hold, where the path is known. None is set: a buffer that is set grows no more.
    pub buffer: Option<Bytes>,
    /// What each stream is paced to, where the path's capacity is known and streams are many: together they fill it,
    /// and a burst of all of them does not overflow its queue.
    pub pace: Option<BitRate>,
    /// Congestion control; the host's own if nothing is known.
    pub congestion: Option<Congestion>,
    /// Why so many streams.
    pub streams_reason: String,
    /// Why such blocks.
    pub block_reason: String,
    /// Where such buffers come from.
    pub buffer_reason: String,
    /// Why that congestion control.
    pub congestion_reason: String,
}

/// Chooses for a path, as far as it is known, and a size, where that is known.
pub fn choose(path: Option<&PathProfile>, size: Option<Bytes>, asked: &Asked) -> Choice {
    let Some(path) = path.filter(|path| path.capacity.0 > 0) else { return unknown(asked) };
    let (streams, streams_reason) = match asked.streams {
        Some(streams) => (streams, "as asked".to_owned()),
        None => streams_for(path, size, asked),
    };
    let (congestion, congestion_reason) = match asked.congestion {
        Some(congestion) => (congestion, "as asked".to_owned()),
        None => congestion_by_path(path, streams),
    };
    let share = BitRate(path.payload_capacity().0 / u64::from(streams.max(1)));
    let (block, block_reason) = match asked.block {
        Some(block) => (block, "as asked".to_owned()),
        None => block_for(share),
    };
    let pace = (streams > FEW && !path.base_rtt.is_zero()).then(|| BitRate(path.capacity.0 / u64::from(streams)));
    let buffer = Bytes(path.bdp().0.div_ceil(u64::from(streams.max(1))));
    Choice {
        streams,
        block,
        buffer: Some(buffer),
        pace,
        congestion: Some(congestion),
        streams_reason,
        block_reason,
        buffer_reason: buffers_for(path, buffer, asked),
        congestion_reason,
    }
}

fn unknown(asked: &Asked) -> Choice {
    let said = |asked: bool, else_: &str| if asked { "as asked".to_owned() } else { else_.to_owned() };
    Choice {
        streams: asked.streams.unwrap_or(FEW),
        block: asked.block.unwrap_or(DEFAULT_BLOCK),
        buffer: None,
        pace: None,
        congestion: asked.congestion,
        streams_reason: said(
            asked.streams.is_some(),
            "default: as fast as more between near hosts, and a loss slows one of four",
        ),
        block_reason: said(asked.block.is_some(), "default"),
        buffer_reason: "the kernel grows them with the windows".to_owned(),
        congestion_reason: said(asked.congestion.is_some(), "the host's own: nothing is known of the path"),
    }
}

/// As few as come within [`WORTH`] of the least time.
fn streams_for(path: &PathProfile, size: Option<Bytes>, asked: &Asked) -> (u16, String) {
    // Of a size that is not known yet a minute's worth: long enough that start-up is no more than a part of it.
    let size = size.unwrap_or_else(|| Bytes(path.payload_capacity().0.saturating_mul(60) / 8));
    let time = |streams: u16| {
        let congestion = asked.congestion.unwrap_or_else(|| congestion_for(path, streams.into()));
        let flow = Flow { streams: streams.into(), congestion, send_buffer: asked.send_buffer, ..Flow::default() };
        transfer_time(path, &flow, size).map_or(f64::INFINITY, |time| time.total().as_secs_f64())
    };
    let candidates = || (0..).map(|doubling| FEW << doubling).take_while(|streams| *streams <= MANY);
    let least = candidates().map(time).fold(f64::INFINITY, f64::min);
    let chosen = candidates().find(|streams| time(*streams) <= least * (1.0 + WORTH)).unwrap_or(FEW);
    let said = |seconds: f64| show_duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    if chosen == FEW {
        return (chosen, "the plan of the path: more would not be faster".to_owned());
    }
    let reason = format!("the plan of the path: {} instead of {} with {FEW}", said(time(chosen)), said(time(FEW)));
    (chosen, reason)
}

fn congestion_by_path(path: &PathProfile, streams: u16) -> (Congestion, String) {
    let congestion = congestion_for(path, streams.into());
    let why = match congestion {
        Congestion::Bbr => "the plan of the path: its losses would hold others back",
        _ => "the plan of the path: it loses too little to matter",
    };
    (congestion, why.to_owned())
}

/// The largest that takes no longer than [`BLOCK_TIME`] at a stream's share of the path.
fn block_for(share: BitRate) -> (Bytes, String) {
    let fits = |block: &Bytes| share.time_for(*block) <= BLOCK_TIME;
    let sizes = (0..).map(|halving| Bytes(DEFAULT_BLOCK.0 >> halving)).take_while(|block| *block >= SMALL_BLOCK);
    let block = sizes.into_iter().find(fits).unwrap_or(SMALL_BLOCK);
    let took = show_duration(share.time_for(block));
    (block, format!("a stream's share, {share}, carries one in {took}"))
}

/// Whether autotuning comes to what a stream needs. Setting a buffer would end it (socket(7)), and is capped lower.
fn buffers_for(path: &PathProfile, needed: Bytes, asked: &Asked) -> String {
    let share = format!("a stream's share of the path's BDP, {}", path.bdp());
    match asked.send_buffer {
        Some(most) if most < needed => {
            format!("{share}; the sender's grow to {most} alone: raise net.ipv4.tcp_wmem, or more --streams")
        }
        _ => format!("{share}; the kernel grows them that far"),
    }
}

/// A change to a copy that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When, since the copy began.
    #[serde(rename = "seconds", with = "crate::units::seconds")]
    pub at: Duration,
    /// How many streams it is to have now.
    pub streams: u16,
    /// The congestion control the sender has now, where it is that which changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Why.
    #[serde(deserialize_with = "bounded::words")]
    pub reason: String,
}

impl Change {
    /// The sender has changed to BBR, as this look at it says.
    pub fn to_bbr(look: &Look, streams: u16) -> Change {
        Change { at: look.at, streams, congestion: Some("bbr".to_owned()), reason: random_loss::reason(look) }
    }
}

/// Decides while a copy runs whether more streams are worth a trial.
#[derive(Debug)]
pub struct Adapter {
    streams: u16,
    most: u16,
    predicted: Option<BitRate>,
    /// The look that the present interval began with.
    since: Look,
    /// Goodput with fewer streams, and how many those were.
    before: Option<(BitRate, u16)>,
    settled: bool,
}

/// An interval is at least this long, and at least this many round trips: new streams need some to start up.
const INTERVAL: (Duration, u32) = (Duration::from_secs(2), 12);

/// How long a sender is looked at before it is judged, on a path of that RTT in seconds.
pub(super) fn interval(rtt: f64) -> Duration {
    let round_trips = Duration::try_from_secs_f64(rtt * f64::from(INTERVAL.1)).unwrap_or_default();
    INTERVAL.0.max(round_trips)
}

/// What more streams must gain to try still more.
const GAIN: f64 = 1.1;

impl Adapter {
    /// For a copy that starts with so many streams and may have `most`; nothing is ever changed if that is no more.
    pub fn new(streams: u16, most: u16, predicted: Option<BitRate>) -> Self {
        let settled = most <= streams;
        Adapter { streams, most, predicted, since: Look::default(), before: None, settled }
    }

    /// Takes the next look; says what is to change, if something is.
    pub fn look(&mut self, look: &Look) -> Option<Change> {
        let elapsed = look.at.saturating_sub(self.since.at);
        let rtt = look.sockets.map_or(0.0, |sockets| sockets.min_rtt_seconds);
        if self.settled || elapsed < interval(rtt) {
            return None;
        }
        let goodput = Bytes(look.bytes.0.saturating_sub(self.since.bytes.0)).per(elapsed);
        let limit = classify(&self.since, look, self.streams, self.predicted);
        self.since = *look;
        if let Some((before, fewer)) = self.before
            && goodput.as_f64() < GAIN * before.as_f64()
        {
            self.settled = true;
            let streams = self.streams;
            let reason = format!("{streams} streams carry {goodput}, {fewer} carried {before}: no more are tried");
            return Some(Change { at: look.at, streams, congestion: None, reason });
        }
        // Disks and processors are not helped by more streams, and what is starting up or full needs none.
        if !matches!(limit, Limit::CongestionWindow | Limit::ReceiveWindow | Limit::SendBuffer) || goodput.0 == 0 {
            self.before = None;
            return None;
        }
        self.before = Some((goodput, self.streams));
        let fewer = self.streams;
        self.streams = self.streams.saturating_mul(2).min(self.most);
        self.settled = self.streams == fewer;
        let reason = format!("{limit}: {fewer} streams carry {goodput}");
        (!self.settled).then_some(Change { at: look.at, streams: self.streams, congestion: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::limit::SocketEvidence;
    use crate::units::Ratio;

    fn satellite() -> PathProfile {
        PathProfile::new(BitRate(135_000_000), Duration::from_millis(539))
    }

    #[test]
    fn short_copies_over_long_paths_have_many_streams_with_small_blocks() {
        let short = choose(Some(&satellite()), Some(Bytes(100_000_000)), &Asked::default());
        assert!(short.streams >= 128, "{short:?}");
        assert_eq!(short.block, Bytes(16 << 10));
        assert_eq!(short.pace, Some(BitRate(135_000_000 / u64::from(short.streams))));
        assert!(short.streams_reason.contains("instead of"), "{short:?}");
        let long = choose(Some(&satellite()), Some(Bytes(10_000_000_000)), &Asked::default());
        assert!(long.streams < short.streams && long.block > short.block, "{long:?}");
        // Nothing is gained by more where there is no distance.
        let near = PathProfile::new(BitRate(10_000_000_000), Duration::from_micros(50));
        let near = choose(Some(&near), Some(Bytes(1 << 32)), &Asked::default());
        assert_eq!((near.streams, near.block, near.pace), (FEW, DEFAULT_BLOCK, None));
    }

    #[test]
    fn loss_chooses_the_congestion_control() {
        let congestion = |loss| {
            let path = PathProfile { loss: Ratio::new(loss).unwrap(), ..satellite() };
            choose(Some(&path), Some(Bytes(1 << 30)), &Asked { streams: Some(4), ..Asked::default() }).congestion
        };
        assert_eq!((congestion(0.0), congestion(0.01)), (Some(Congestion::Cubic), Some(Congestion::Bbr)));
    }

    #[test]
    fn what_was_asked_for_is_kept() {
        let asked =
            Asked { streams: Some(1), block: Some(Bytes(1024)), congestion: Some(Congestion::Reno), send_buffer: None };
        for path in [None, Some(satellite())] {
            let choice = choose(path.as_ref(), Some(Bytes(1 << 30)), &asked);
            assert_eq!((choice.streams, choice.block, choice.congestion), (1, Bytes(1024), Some(Congestion::Reno)));
            for reason in [choice.streams_reason, choice.block_reason, choice.congestion_reason] {
                assert_eq!(reason, "as asked");
            }
        }
    }

    #[test]
    fn small_buffers_need_more_streams() {
        let with = |send_buffer| {
            let asked = Asked { send_buffer: Some(Bytes(send_buffer)), ..Asked::default() };
            choose(Some(&satellite()), Some(Bytes(100_000_000_000)), &asked).streams
        };
        assert!(with(256 << 10) >= 32 && with(64 << 20) <= 8, "{} {}", with(256 << 10), with(64 << 20));
    }

    #[test]
    fn what_buffers_have_to_hold_is_told_and_whether_they_will() {
        let with = |send_buffer| {
            let asked = Asked { streams: Some(2), send_buffer, ..Asked::default() };
            choose(Some(&satellite()), None, &asked)
        };
        let (large, small) = (with(None), with(Some(Bytes(1 << 20))));
        // Half of 9,095,625 bytes, the BDP of the ACTS path.
        assert_eq!((large.buffer, small.buffer), (Some(Bytes(4_547_813)), Some(Bytes(4_547_813))));
        assert!(large.buffer_reason.ends_with("the kernel grows them that far"), "{large:?}");
        assert!(small.buffer_reason.contains("grow to 1 MiB alone"), "{small:?}");
        assert_eq!(choose(None, None, &Asked::default()).buffer, None);
    }

    /// A path whose goodput is `per_stream` for each stream up to `all`, looked at every second.
    fn run(adapter: &mut Adapter, per_stream: u64, all: u64, change: impl Fn(&mut SocketEvidence)) -> Vec<Change> {
        let (mut bytes, mut streams, mut changes) = (0, 4_u16, Vec::new());
        for second in 1..100_u32 {
            bytes += (per_stream * u64::from(streams)).min(all) / 8;
            let mut sockets = SocketEvidence {
                receive_window: Bytes(64 << 20),
                congestion_window: Bytes(1 << 20),
                busy_seconds: f64::from(second) * f64::from(streams),
                min_rtt_seconds: 0.1,
                ..SocketEvidence::default()
            };
            change(&mut sockets);
            let at = Duration::from_secs(second.into());
            let look = Look { at, bytes: Bytes(bytes), sockets: Some(sockets), ..Look::default() };
            let changed = adapter.look(&look);
            if let Some(change) = changed {
                streams = change.streams;
                changes.push(change);
            }
        }
        changes
    }

    #[test]
    fn streams_are_added_as_long_as_that_helps() {
        let mut adapter = Adapter::new(4, 256, None);
        let changes = run(&mut adapter, 10_000_000, 150_000_000, |_| {});
        let streams: Vec<u16> = changes.iter().map(|change| change.streams).collect();
        // 40, 80, 150 and 150 Mb/s.
        assert_eq!(streams, [8_u16, 16, 32, 32], "{changes:?}");
        assert!(changes[0].reason.starts_with("congestion window: 4 streams carry 40"), "{changes:?}");
        assert!(changes[3].reason.ends_with("no more are tried"), "{changes:?}");
    }

    #[test]
    fn a_bound_and_a_full_link_and_a_start_up_end_it() {
        let streams = |most, predicted, change: fn(&mut SocketEvidence)| {
            let mut adapter = Adapter::new(4, most, predicted);
            run(&mut adapter, 10_000_000, 1_000_000_000, change).iter().map(|change| change.streams).collect::<Vec<_>>()
        };
        assert_eq!(streams(4, None, |_| {}).len(), 0);
        assert_eq!(streams(6, None, |_| {}), [6_u16]);
        assert_eq!(streams(256, Some(BitRate(40_000_000)), |_| {}).len(), 0);
        assert_eq!(streams(256, None, |sockets| sockets.in_slow_start = 1).len(), 0);
        assert_eq!(streams(256, None, |sockets| sockets.min_rtt_seconds = 1e-5).len(), 0);
    }
}
