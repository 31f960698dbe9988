//! Figures of a stream over the steady window: those of the sender's kernel, and the data that the receiver read.

use std::time::Duration;

use lfn_base::stats::median;
use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};

use super::steady_window::{SteadyWindow, length, sample};
use crate::host::ThreadTime;
use crate::measure::{EndReport, Interval, SocketReport, StreamReport, StreamSample};

/// CPU time of a data thread over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerTime {
    /// Share of the time in which the thread ran.
    pub running: f64,
    /// Share of the time in which the thread waited for a CPU; zero if the kernel does not report it.
    pub waiting: f64,
    /// CPU that the thread used last.
    pub processor: u32,
}

impl WorkerTime {
    /// Share of the time in which the thread could run.
    pub fn demand(&self) -> f64 {
        self.running + self.waiting
    }
}

/// Totals of a sender over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendTotals {
    /// Payload bytes sent, with retransmissions.
    pub sent_bytes: u64,
    /// Payload bytes of the retransmissions.
    pub resent_bytes: u64,
    /// Segments that the receiver already had.
    pub duplicates: u64,
}

/// Figures of one stream over the steady window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamFigures {
    /// Goodput of the stream at the receiver.
    pub goodput: BitRate,
    /// Receive window in bytes as the sender saw it; none on a kernel before 5.4.
    pub snd_wnd: Option<Spread>,
    /// Maximum of the same window after its first announcements.
    pub later_max_wnd: Option<u64>,
    /// Median congestion window in bytes.
    pub cwnd: Bytes,
    /// Median of the smoothed RTT.
    pub rtt: Duration,
    /// Time in which the sender had data to send.
    pub busy: Duration,
    /// Part of the busy time limited by the receive window.
    pub rwnd_limited: Duration,
    /// Part of the busy time limited by the send buffer.
    pub sndbuf_limited: Duration,
    /// True if window scaling was negotiated.
    pub window_scaling: bool,
    /// Share of the time with data to send; none if the kernel does not report it.
    pub busy_share: Option<f64>,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Path MTU in bytes; zero if unknown.
    pub pmtu: u32,
    /// Sent and retransmitted bytes; none on a kernel before 4.19.
    pub sent: Option<SendTotals>,
    /// The same in the second half of the steady window, after all losses of slow start; none with few intervals.
    pub sent_later: Option<SendTotals>,
    /// Median of the unread bytes at the receiver.
    pub unread_bytes: Option<u64>,
    /// Median of the window that the receiver advertised, in bytes.
    pub rcv_wnd: Option<u64>,
    /// CPU time of the sender's thread.
    pub sender_thread: Option<WorkerTime>,
    /// CPU time of the receiver's thread.
    pub receiver_thread: Option<WorkerTime>,
    /// Socket options of the sender.
    pub sender_socket: SocketReport,
    /// Socket options of the receiver.
    pub receiver_socket: SocketReport,
}

/// Minimum, median and maximum of a figure over the steady window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub min: u64,
    pub median: u64,
    pub max: u64,
}

/// Returns the evidence of one stream of the sender.
pub(super) fn stream_figures(
    stream: &StreamReport,
    sender: &EndReport,
    receiver: &EndReport,
    window: SteadyWindow,
) -> StreamFigures {
    let number = stream.stream;
    let is_whole = covers_whole_stream(stream);
    let sent: Vec<&TcpInfo> = window
        .intervals_within(&sender.intervals)
        .filter_map(|i| sample(i, number)?.tcp_info.as_ref())
        .filter(|_| is_whole)
        .collect();
    let got: Vec<&StreamSample> =
        window.intervals_within(&receiver.intervals).filter_map(|i| sample(i, number)).collect();
    let time = window.intervals_within(&receiver.intervals).map(length).sum();
    let last = sent.last().copied();
    let grown = |last: Option<&TcpInfo>, figure: fn(&TcpInfo) -> Option<u64>| {
        Some(window.growth(&sender.intervals, number, figure(last?)?, figure))
    };
    // A test without intervals has the figures of its end.
    let at_end = last.or(stream.tcp_info.as_ref().filter(|_| is_whole));
    let spent = |figure| Duration::from_nanos(grown(at_end, figure).unwrap_or_default());
    let busy = spent(|info| nanos(info.busy));
    let told_time: Duration = window.intervals_within(&sender.intervals).map(length).sum();
    let middling = |figure: fn(&TcpInfo) -> f64| {
        median(&sent.iter().map(|info| figure(info)).collect::<Vec<_>>()).unwrap_or_default()
    };
    let of_receiver = |figure: &dyn Fn(&StreamSample) -> Option<u64>| {
        let reported: Option<Vec<f64>> = got.iter().map(|sample| figure(sample).map(|bytes| bytes as f64)).collect();
        reported.and_then(|all| median(&all)).map(|bytes| bytes as u64)
    };
    let offered = |sample: &StreamSample| sample.tcp_info.as_ref().filter(|_| is_whole)?.rcv_wnd_bytes.map(u64::from);
    let windows: Vec<f64> = sent.iter().filter_map(|info| info.snd_wnd_bytes).map(f64::from).collect();
    let receiving = receiver.streams.iter().find(|stream| stream.stream == number);
    StreamFigures {
        goodput: Bytes(got.iter().map(|sample| sample.bytes).sum()).per(time),
        snd_wnd: Spread::of(&windows),
        later_max_wnd: Spread::of(without_first(&windows)).map(|later| later.max),
        cwnd: Bytes(middling(|info| info.cwnd().0 as f64) as u64),
        rtt: Duration::from_secs_f64(middling(|info| info.rtt.as_secs_f64())),
        busy,
        rwnd_limited: spent(|info| nanos(info.rwnd_limited)),
        sndbuf_limited: spent(|info| nanos(info.sndbuf_limited)),
        window_scaling: stream.tcp_info.as_ref().is_none_or(|info| info.window_scaling),
        busy_share: (last.is_some_and(|info| info.busy.is_some()) && !told_time.is_zero())
            .then(|| (busy.as_secs_f64() / told_time.as_secs_f64()).min(1.0)),
        mss: last.map_or(0, |info| info.snd_mss_bytes),
        pmtu: last.map_or(0, |info| info.pmtu_bytes),
        sent: send_totals(|figure| grown(last, figure)),
        sent_later: later_totals(&sent),
        unread_bytes: of_receiver(&|sample| sample.unread_bytes),
        rcv_wnd: of_receiver(&offered),
        sender_thread: worker_time(&sender.intervals, number, window),
        receiver_thread: worker_time(&receiver.intervals, number, window),
        sender_socket: stream.socket.clone().unwrap_or_default(),
        receiver_socket: receiving.and_then(|stream| stream.socket.clone()).unwrap_or_default(),
    }
}

/// Returns true if the kernel's figures cover the whole stream. With Multipath TCP the kernel reports only the first
/// subflow (`mptcp_getsockopt_first_sf_only`), which may be a small part, so its figures are not evidence.
pub(super) fn covers_whole_stream(stream: &StreamReport) -> bool {
    stream.socket.as_ref().is_none_or(|socket| socket.mptcp_subflows.is_none())
}

/// Returns the totals of the sender if the kernel reports all of them.
fn send_totals(grown: impl Fn(fn(&TcpInfo) -> Option<u64>) -> Option<u64>) -> Option<SendTotals> {
    Some(SendTotals {
        sent_bytes: grown(|info| info.sent_bytes)?,
        resent_bytes: grown(|info| info.retransmitted_bytes)?,
        duplicates: grown(|info| info.duplicate_segments.map(u64::from))?,
    })
}

/// Maximum part of the steady window whose receive windows may be first announcements: a quarter.
const MAX_FIRST_WINDOWS: usize = 4;

/// Returns the windows without larger ones at the start. A receiver that limits its window after the handshake takes back
/// no byte that it announced before (RFC 9293 §3.8.6), so the larger window lasts until the sender has used it up.
fn without_first(windows: &[f64]) -> &[f64] {
    let is_larger = |at: &usize| windows[*at + 1..].iter().all(|later| *later < windows[*at]);
    let first = (0..windows.len() / MAX_FIRST_WINDOWS).take_while(is_larger).count();
    &windows[first..]
}

/// Minimum samples of a steady window whose second half is examined.
const MIN_SAMPLES: usize = 4;

/// Returns the totals from the middle sample to the last one.
fn later_totals(sent: &[&TcpInfo]) -> Option<SendTotals> {
    let (middle, last) = (sent.get(sent.len() / 2)?, sent.last()?);
    let grown = |figure: fn(&TcpInfo) -> Option<u64>| Some(figure(last)?.saturating_sub(figure(middle)?));
    (sent.len() >= MIN_SAMPLES).then(|| send_totals(grown)).flatten()
}

/// Returns the CPU time of a stream's thread over the steady window; none if the end does not report it.
fn worker_time(intervals: &[Interval], stream: u16, window: SteadyWindow) -> Option<WorkerTime> {
    let reported: Vec<(Duration, &ThreadTime)> = window
        .intervals_within(intervals)
        .filter_map(|interval| Some((length(interval), sample(interval, stream)?.thread.as_ref()?)))
        .collect();
    let time: f64 = reported.iter().map(|(time, _)| time.as_secs_f64()).sum();
    let share = |figure: fn(&ThreadTime) -> Duration| {
        reported.iter().map(|(_, thread)| figure(thread).as_secs_f64()).sum::<f64>() / time
    };
    (time > 0.0).then(|| WorkerTime {
        running: share(ThreadTime::ran),
        waiting: share(|thread| thread.waited.unwrap_or_default()),
        processor: reported.last().map_or(0, |(_, thread)| thread.processor),
    })
}

fn nanos(time: Option<Duration>) -> Option<u64> {
    u64::try_from(time?.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_larger_windows_at_the_start_are_left_out() {
        let rest = [49_232.0; 8];
        let with = |first: &[f64]| [first, &rest].concat();
        assert_eq!(without_first(&with(&[65_535.0])), rest);
        assert_eq!(without_first(&with(&[65_535.0, 57_000.0])), rest);
        assert_eq!(without_first(&with(&[40_000.0])), with(&[40_000.0]), "a window that grows");
        let falling: Vec<f64> = (0..20).map(|n| 60_000.0 - 1000.0 * f64::from(n)).collect();
        assert_eq!(without_first(&falling).len(), 15, "a window that never settles");
        assert_eq!((without_first(&[]).len(), without_first(&[1.0, 0.0]).len()), (0, 2));
    }
}
