//! The data streams of a copy: their number, block size, pacing, congestion control, and changes during the copy.
//!
//! [`plan_streams`] decides before the first byte from the known figures of the path, with the model that also predicts
//! the duration. [`StreamTuner`] decides during the copy from measurements. It adds streams only while the bottleneck
//! is one that more streams relieve, and only while they help. Every choice comes with a reason in words. Values that
//! the user requested are never changed.

use std::fmt;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::plan::select_congestion;
use lfn_base::plan::streams::{DEFAULT_MSS, DEFAULT_STREAMS, MAX_AUTO_STREAMS, min_interval, usable_streams};
use lfn_base::tcp_model::{Congestion, FlowParameters, transfer_time};
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::diagnose::bottleneck::{CopyBottleneck, classify};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::blocks::DEFAULT_BLOCK;
use lfn_session::wire::copy::progress::ListedTotals;
use lfn_session::wire::copy::stream_change::StreamChange;

/// Maximum streams on an unknown path, if they help.
const MAX_UNKNOWN_PATH_STREAMS: u16 = 8 * DEFAULT_STREAMS;

/// Maximum streams at the start of a copy of unknown size over a known path. More follow when the list shows their use.
const UNKNOWN_SIZE_STREAMS: u16 = 2 * DEFAULT_STREAMS;

/// Maximum streams of such a copy if its total rate is limited: the share of each stream then cannot change.
const UNKNOWN_SIZE_LIMITED_STREAMS: u16 = 4 * DEFAULT_STREAMS;

/// Minimum block size that is chosen: its header is 0.3 % of the block.
const MIN_AUTO_BLOCK: Bytes = Bytes(16 << 10);

/// Maximum time for one block at a stream's share of the path. A copy ends with the slowest last block.
const MAX_BLOCK_TIME: Duration = Duration::from_millis(250);

/// Minimum share of time that more streams must save.
const MIN_TIME_SAVING: f64 = 0.03;

/// Values that the user requested. They are used unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestedStreams {
    pub streams: Option<u16>,
    pub block: Option<Bytes>,
    /// Congestion control, if the model knows it.
    pub congestion: Option<Congestion>,
    /// The copy limits its total rate, so that its number of streams stays.
    pub limits_rate: bool,
    /// Maximum bytes in flight of one sender socket, if its system limits them (`tcp_wmem[2]`).
    pub send_buffer: Option<Bytes>,
}

/// Setup of a copy's streams, with reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPlan {
    /// Streams at the start.
    pub streams: u16,
    /// Maximum streams during the copy.
    pub max_streams: u16,
    pub block: Bytes,
    /// Buffer that each stream needs, if the path is known. No buffer is set, because a buffer that is set does not
    /// grow.
    pub buffer: Option<Bytes>,
    /// Pacing rate of each stream, if the capacity is known and there are many streams. Together they fill the path,
    /// and a common burst does not overflow its queue.
    pub pace: Option<BitRate>,
    /// `None` is the host's default.
    pub congestion: Option<Congestion>,
    pub streams_reason: CountReason,
    pub block_reason: String,
    pub buffer_reason: String,
    pub congestion_reason: String,
}

/// Reason for the number of streams at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountReason {
    Requested,
    UnknownPath,
    /// More streams would not save time.
    NoGain,
    /// The predicted time is shorter than with fewer streams.
    Faster,
    /// More streams would be faster, but the size fills no more ([`usable_streams`]).
    Size(Bytes),
    /// The size is unknown. The list decides about more streams.
    UnknownSize,
}

impl fmt::Display for CountReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CountReason::Requested => f.write_str("as requested"),
            CountReason::UnknownPath => f.write_str(
                "default: between near hosts more streams are not faster, and a loss slows only one of four",
            ),
            CountReason::NoGain => f.write_str("more would not help"),
            CountReason::Faster => f.write_str("faster than fewer"),
            CountReason::Size(size) => write!(f, "the maximum for {}", size.decimal()),
            CountReason::UnknownSize => f.write_str("the size is not known in advance"),
        }
    }
}

/// Plans the streams for a path and a size, as far as both are known.
pub fn plan_streams(path: Option<&PathProfile>, size: Option<Bytes>, requested: &RequestedStreams) -> StreamPlan {
    let Some(path) = path.filter(|path| path.capacity.0 > 0) else { return plan_for_unknown_path(size, requested) };
    let (streams, streams_reason) = match requested.streams {
        Some(streams) => (streams, CountReason::Requested),
        None => choose_stream_count(path, size, requested),
    };
    let max_streams = match streams_reason {
        CountReason::UnknownSize if requested.limits_rate => streams.min(UNKNOWN_SIZE_LIMITED_STREAMS),
        _ => streams,
    };
    let streams = match streams_reason {
        CountReason::UnknownSize if !requested.limits_rate => streams.min(UNKNOWN_SIZE_STREAMS),
        _ => max_streams,
    };
    let (congestion, congestion_reason) = match requested.congestion {
        Some(congestion) => (congestion, "as requested".to_owned()),
        None => choose_congestion(path, max_streams),
    };
    let share = BitRate(path.payload_capacity().0 / u64::from(max_streams.max(1)));
    let (block, block_reason) = match requested.block {
        Some(block) => (block, "as requested".to_owned()),
        None => choose_block(share),
    };
    let pace =
        (streams > DEFAULT_STREAMS && !path.base_rtt.is_zero()).then(|| BitRate(path.capacity.0 / u64::from(streams)));
    let buffer = Bytes(path.bdp().0.div_ceil(u64::from(streams.max(1))));
    StreamPlan {
        streams,
        max_streams,
        block,
        buffer: Some(buffer),
        pace,
        congestion: Some(congestion),
        streams_reason,
        block_reason,
        buffer_reason: describe_buffers(path, buffer, requested),
        congestion_reason,
    }
}

fn plan_for_unknown_path(size: Option<Bytes>, requested: &RequestedStreams) -> StreamPlan {
    let block = requested.block.unwrap_or(DEFAULT_BLOCK);
    // A stream without a block is a handshake for nothing.
    let blocks = size.map(|size| u16::try_from(size.0.div_ceil(block.0.max(1)).max(1)).unwrap_or(u16::MAX));
    let describe = |requested: bool, else_: &str| if requested { "as requested".to_owned() } else { else_.to_owned() };
    let streams = requested.streams.unwrap_or(DEFAULT_STREAMS.min(blocks.unwrap_or(DEFAULT_STREAMS)));
    let max_streams = match requested.streams {
        None if !requested.limits_rate => MAX_UNKNOWN_PATH_STREAMS.min(blocks.unwrap_or(u16::MAX)).max(streams),
        _ => streams,
    };
    StreamPlan {
        streams,
        max_streams,
        block,
        buffer: None,
        pace: None,
        congestion: requested.congestion,
        streams_reason: if requested.streams.is_some() { CountReason::Requested } else { CountReason::UnknownPath },
        block_reason: describe(requested.block.is_some(), "default"),
        buffer_reason: "the kernel grows the buffers with the windows".to_owned(),
        congestion_reason: describe(requested.congestion.is_some(), "the host's default: the path is unknown"),
    }
}

/// Returns the smallest stream count within [`MIN_TIME_SAVING`] of the minimum time, as far as the size can use it. If
/// the size is unknown, the count is for one minute of data: long enough that slow start is only a part of it.
fn choose_stream_count(path: &PathProfile, size: Option<Bytes>, requested: &RequestedStreams) -> (u16, CountReason) {
    let planned_size = size.unwrap_or_else(|| Bytes(path.payload_capacity().0.saturating_mul(60) / 8));
    let time = |streams: u16| {
        let congestion = requested.congestion.unwrap_or_else(|| select_congestion(path, streams.into()));
        let flow = FlowParameters {
            streams: streams.into(),
            congestion,
            send_buffer: requested.send_buffer,
            ..FlowParameters::default()
        };
        transfer_time(path, &flow, planned_size).map_or(f64::INFINITY, |time| time.total().as_secs_f64())
    };
    let usable = usable_streams(planned_size, path.mss());
    let first = DEFAULT_STREAMS.min(usable);
    let candidates =
        |max: u16| (0..).map(|doubling| DEFAULT_STREAMS << doubling).take_while(move |streams| *streams <= max);
    let fastest = |max: u16| {
        let least = candidates(max).map(time).fold(f64::INFINITY, f64::min);
        candidates(max).find(|streams| time(*streams) <= least * (1.0 + MIN_TIME_SAVING)).unwrap_or(first)
    };
    let (chosen, unlimited) = (fastest(MAX_AUTO_STREAMS.min(usable)), fastest(MAX_AUTO_STREAMS));
    let reason = match size {
        Some(size) if time(chosen) > time(unlimited) * (1.0 + MIN_TIME_SAVING) => CountReason::Size(size),
        _ if chosen <= DEFAULT_STREAMS => CountReason::NoGain,
        Some(_) => CountReason::Faster,
        None => CountReason::UnknownSize,
    };
    (chosen, reason)
}

fn choose_congestion(path: &PathProfile, streams: u16) -> (Congestion, String) {
    let congestion = select_congestion(path, streams.into());
    let why = match congestion {
        Congestion::Bbr => "the plan of the path: its losses would limit cubic and reno",
        _ => "the plan of the path: its losses are too rare to matter",
    };
    (congestion, why.to_owned())
}

/// Returns the largest block that takes at most [`MAX_BLOCK_TIME`] at a stream's share of the path.
fn choose_block(share: BitRate) -> (Bytes, String) {
    let fits = |block: &Bytes| share.time_for(*block) <= MAX_BLOCK_TIME;
    let sizes = (0..).map(|halving| Bytes(DEFAULT_BLOCK.0 >> halving)).take_while(|block| *block >= MIN_AUTO_BLOCK);
    let block = sizes.into_iter().find(fits).unwrap_or(MIN_AUTO_BLOCK);
    let took = show_duration(share.time_for(block));
    (block, format!("one block takes {took} at a stream's share of {share}"))
}

/// Describes whether autotuning reaches the buffer that a stream needs. Setting a buffer would disable autotuning
/// (socket(7)), and its cap is lower.
fn describe_buffers(path: &PathProfile, needed: Bytes, requested: &RequestedStreams) -> String {
    let share = format!("a stream's share of the path's BDP, {}", path.bdp());
    match requested.send_buffer {
        Some(most) if most < needed => {
            format!("{share}; the sender's buffers grow only to {most}: raise net.ipv4.tcp_wmem, or use more --streams")
        }
        _ => format!("{share}; the kernel grows the buffers to this size"),
    }
}

/// Decides during a copy whether more streams are worth a try.
#[derive(Debug)]
pub struct StreamTuner {
    streams: u16,
    max_streams: u16,
    predicted: Option<BitRate>,
    /// The sample at the start of the current interval.
    interval_start: ProgressSample,
    /// Goodput and stream count before the last increase.
    last_increase: Option<(BitRate, u16)>,
    is_final: bool,
    /// The list decides about more streams.
    grows_with_list: bool,
}

/// Minimum gain in goodput from an increase to try another increase.
const MIN_GAIN: f64 = 1.1;

impl StreamTuner {
    /// Creates the tuner of a copy that starts with `streams` and may have `max_streams`. It changes nothing if both
    /// are equal.
    pub fn new(streams: u16, max_streams: u16, predicted: Option<BitRate>) -> Self {
        let is_final = max_streams <= streams;
        StreamTuner {
            streams,
            max_streams,
            predicted,
            interval_start: ProgressSample::default(),
            last_increase: None,
            is_final,
            grows_with_list: false,
        }
    }

    /// Creates the tuner of a copy of unknown size over a known path. It adds streams up to `max_streams` when the list
    /// has enough bytes for them ([`usable_streams`]).
    pub fn for_unknown_size(streams: u16, max_streams: u16) -> Self {
        let grows_with_list = max_streams > streams;
        StreamTuner { grows_with_list, is_final: true, ..StreamTuner::new(streams, max_streams, None) }
    }

    /// Evaluates the list. Returns a change of the streams, if the list has enough bytes for twice as many.
    pub fn on_list(&mut self, listed: &ListedTotals, at: Duration) -> Option<StreamChange> {
        let bytes = Bytes(listed.bytes.0.saturating_sub(listed.not_needed.0));
        let usable = usable_streams(bytes, DEFAULT_MSS).min(self.max_streams);
        let wanted =
            (0..).map(|doubling| self.streams.saturating_mul(1 << doubling)).take_while(|n| *n <= usable).last();
        let wanted = wanted.filter(|wanted| self.grows_with_list && *wanted > self.streams)?;
        self.streams = wanted;
        self.grows_with_list = wanted < self.max_streams;
        let reason = format!("{} to copy", bytes.decimal());
        Some(StreamChange { at, streams: wanted, congestion: None, reason })
    }

    /// Evaluates the next sample. Returns a change of the streams, if one is due.
    pub fn update(&mut self, sample: &ProgressSample) -> Option<StreamChange> {
        let elapsed = sample.at.saturating_sub(self.interval_start.at);
        let rtt = sample.sockets.map_or(0.0, |sockets| sockets.min_rtt_seconds);
        if self.is_final || elapsed < min_interval(rtt) {
            return None;
        }
        let goodput = Bytes(sample.bytes.0.saturating_sub(self.interval_start.bytes.0)).per(elapsed);
        let limit = classify(&self.interval_start, sample, self.streams, self.predicted);
        self.interval_start = *sample;
        if let Some((before, fewer)) = self.last_increase
            && goodput.as_f64() < MIN_GAIN * before.as_f64()
        {
            self.is_final = true;
            let streams = self.streams;
            let reason = format!("{streams} streams carry {goodput}, {fewer} carried {before}: no further increase");
            return Some(StreamChange { at: sample.at, streams, congestion: None, reason });
        }
        // More streams do not help against slow disks or processors. Slow start and a full link need no more streams.
        if !matches!(
            limit,
            CopyBottleneck::CongestionWindow | CopyBottleneck::ReceiveWindow | CopyBottleneck::SendBuffer
        ) || goodput.0 == 0
        {
            self.last_increase = None;
            return None;
        }
        self.last_increase = Some((goodput, self.streams));
        let fewer = self.streams;
        self.streams = self.streams.saturating_mul(2).min(self.max_streams);
        self.is_final = self.streams == fewer;
        let reason = format!("{limit}: {fewer} streams carry {goodput}");
        (!self.is_final).then_some(StreamChange { at: sample.at, streams: self.streams, congestion: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::plan::streams::MIN_STREAM_BYTES;
    use lfn_base::units::Ratio;
    use lfn_results::evidence::SocketEvidence;

    use super::*;

    fn satellite() -> PathProfile {
        PathProfile::new(BitRate(135_000_000), Duration::from_millis(539))
    }

    #[test]
    fn short_copy_on_long_path_uses_many_streams() {
        let short = plan_streams(Some(&satellite()), Some(Bytes(100_000_000)), &RequestedStreams::default());
        assert!(short.streams >= 128, "{short:?}");
        assert_eq!(short.block, Bytes(16 << 10));
        assert_eq!(short.pace, Some(BitRate(135_000_000 / u64::from(short.streams))));
        assert_eq!(short.streams_reason, CountReason::Faster);
        let long = plan_streams(Some(&satellite()), Some(Bytes(10_000_000_000)), &RequestedStreams::default());
        assert!(long.streams < short.streams && long.block > short.block, "{long:?}");
        // Without distance, more streams gain nothing.
        let near = PathProfile::new(BitRate(10_000_000_000), Duration::from_micros(50));
        let near = plan_streams(Some(&near), Some(Bytes(1 << 32)), &RequestedStreams::default());
        assert_eq!((near.streams, near.block, near.pace), (DEFAULT_STREAMS, DEFAULT_BLOCK, None));
    }

    #[test]
    fn small_copies_use_few_streams() {
        let streams = |path: &PathProfile, bytes| {
            let plan = plan_streams(Some(path), Some(Bytes(bytes)), &RequestedStreams::default());
            (plan.streams, plan.streams_reason)
        };
        let size = |bytes| CountReason::Size(Bytes(bytes));
        assert_eq!(streams(&satellite(), 3_000_000), (16, size(3_000_000)));
        assert_eq!(streams(&satellite(), 300_000), (4, size(300_000)));
        assert_eq!(streams(&satellite(), 5_000), (1, CountReason::NoGain));
        let jumbo = PathProfile { mtu: 9180, ..satellite() };
        assert_eq!(streams(&jumbo, 3_000_000), (16, size(3_000_000)));
        // Every stream carries the bytes that it was opened for.
        for bytes in (1..60).map(|n| n * 1_000_000) {
            let (count, _) = streams(&satellite(), bytes);
            assert!(count <= 4 || bytes / u64::from(count) >= MIN_STREAM_BYTES, "{bytes}: {count}");
        }
        let unknown_path = |bytes| plan_streams(None, Some(Bytes(bytes)), &RequestedStreams::default()).streams;
        assert_eq!([0, 1000, 1 << 20, 2_000_000, 1 << 30].map(unknown_path), [1, 1, 1, 2, 4]);
    }

    #[test]
    fn list_adds_streams_to_a_copy_of_unknown_size() {
        let listed = |bytes, not_needed| ListedTotals {
            bytes: Bytes(bytes),
            not_needed: Bytes(not_needed),
            ..ListedTotals::default()
        };
        let mut tuner = StreamTuner::for_unknown_size(8, 64);
        let mut streams = |bytes, not_needed| {
            tuner.on_list(&listed(bytes, not_needed), Duration::ZERO).map(|change| (change.streams, change.reason))
        };
        assert_eq!(streams(1_000_000, 0), None);
        assert_eq!(streams(1_000_000_000, 999_000_000), None, "almost all is up to date");
        assert_eq!(streams(2_000_000, 0), Some((16, "2 MB to copy".to_owned())));
        assert_eq!(streams(2_100_000, 0), None);
        assert_eq!(streams(100_000_000, 0), Some((64, "100 MB to copy".to_owned())));
        assert_eq!(streams(1 << 40, 0), None);
        assert_eq!(StreamTuner::for_unknown_size(8, 8).on_list(&listed(1 << 40, 0), Duration::ZERO), None);
    }

    #[test]
    fn loss_selects_congestion_control() {
        let congestion = |loss| {
            let path = PathProfile { loss: Ratio::new(loss).unwrap(), ..satellite() };
            plan_streams(
                Some(&path),
                Some(Bytes(1 << 30)),
                &RequestedStreams { streams: Some(4), ..RequestedStreams::default() },
            )
            .congestion
        };
        assert_eq!((congestion(0.0), congestion(0.01)), (Some(Congestion::Cubic), Some(Congestion::Bbr)));
    }

    #[test]
    fn requested_values_are_unchanged() {
        let requested = RequestedStreams {
            streams: Some(1),
            block: Some(Bytes(1024)),
            congestion: Some(Congestion::Reno),
            ..RequestedStreams::default()
        };
        for path in [None, Some(satellite())] {
            let choice = plan_streams(path.as_ref(), Some(Bytes(1 << 30)), &requested);
            assert_eq!((choice.streams, choice.block, choice.congestion), (1, Bytes(1024), Some(Congestion::Reno)));
            assert_eq!(choice.streams_reason, CountReason::Requested);
            for reason in [choice.block_reason, choice.congestion_reason] {
                assert_eq!(reason, "as requested");
            }
        }
    }

    #[test]
    fn small_buffers_need_more_streams() {
        let with = |send_buffer| {
            let requested = RequestedStreams { send_buffer: Some(Bytes(send_buffer)), ..RequestedStreams::default() };
            plan_streams(Some(&satellite()), Some(Bytes(100_000_000_000)), &requested).streams
        };
        assert!(with(256 << 10) >= 32 && with(64 << 20) <= 8, "{} {}", with(256 << 10), with(64 << 20));
    }

    #[test]
    fn needed_buffer_is_reported() {
        let with = |send_buffer| {
            let requested = RequestedStreams { streams: Some(2), send_buffer, ..RequestedStreams::default() };
            plan_streams(Some(&satellite()), None, &requested)
        };
        let (large, small) = (with(None), with(Some(Bytes(1 << 20))));
        // Half of 9,095,625 bytes, the BDP of the ACTS path.
        assert_eq!((large.buffer, small.buffer), (Some(Bytes(4_547_813)), Some(Bytes(4_547_813))));
        assert!(large.buffer_reason.ends_with("the kernel grows the buffers to this size"), "{large:?}");
        assert!(small.buffer_reason.contains("grow only to 1 MiB"), "{small:?}");
        assert_eq!(plan_streams(None, None, &RequestedStreams::default()).buffer, None);
    }

    /// Simulates a path with a goodput of `per_stream` for each stream up to `all`, sampled every second.
    fn run(
        tuner: &mut StreamTuner,
        per_stream: u64,
        all: u64,
        change: impl Fn(&mut SocketEvidence),
    ) -> Vec<StreamChange> {
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
            let sample =
                ProgressSample { at, bytes: Bytes(bytes), sockets: Some(sockets), ..ProgressSample::default() };
            let changed = tuner.update(&sample);
            if let Some(change) = changed {
                streams = change.streams;
                changes.push(change);
            }
        }
        changes
    }

    #[test]
    fn streams_are_added_while_it_helps() {
        let mut tuner = StreamTuner::new(4, 256, None);
        let changes = run(&mut tuner, 10_000_000, 150_000_000, |_| {});
        let streams: Vec<u16> = changes.iter().map(|change| change.streams).collect();
        // Goodput of 40, 80, 150 and 150 Mb/s.
        assert_eq!(streams, [8_u16, 16, 32, 32], "{changes:?}");
        assert!(changes[0].reason.starts_with("congestion window: 4 streams carry 40"), "{changes:?}");
        assert!(changes[3].reason.ends_with("no further increase"), "{changes:?}");
    }

    #[test]
    fn limit_full_link_and_slow_start_add_no_streams() {
        let streams = |most, predicted, change: fn(&mut SocketEvidence)| {
            let mut tuner = StreamTuner::new(4, most, predicted);
            run(&mut tuner, 10_000_000, 1_000_000_000, change).iter().map(|change| change.streams).collect::<Vec<_>>()
        };
        assert_eq!(streams(4, None, |_| {}).len(), 0);
        assert_eq!(streams(6, None, |_| {}), [6_u16]);
        assert_eq!(streams(256, Some(BitRate(40_000_000)), |_| {}).len(), 0);
        assert_eq!(streams(256, None, |sockets| sockets.in_slow_start = 1).len(), 0);
        assert_eq!(streams(256, None, |sockets| sockets.min_rtt_seconds = 1e-5).len(), 0);
    }
}
