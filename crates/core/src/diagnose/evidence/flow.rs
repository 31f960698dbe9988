//! A stream over the judged part: what its sender's kernel says of it, and what its receiver got.

use std::time::Duration;

use super::judged::{Judged, length, sample};
use super::{Flow, Moved, Spread, Worker};
use crate::host::ThreadTime;
use crate::stats::median;
use crate::tcp_info::TcpInfo;
use crate::units::Bytes;
use crate::wire::test::{EndReport, Interval, StreamReport, StreamSample};

/// One that `sender` told of.
pub(super) fn flow(stream: &StreamReport, sender: &EndReport, receiver: &EndReport, judged: Judged) -> Flow {
    let number = stream.stream;
    let is_whole = is_whole(stream);
    let sent: Vec<&TcpInfo> = judged
        .within(&sender.intervals)
        .filter_map(|i| sample(i, number)?.tcp_info.as_ref())
        .filter(|_| is_whole)
        .collect();
    let got: Vec<&StreamSample> = judged.within(&receiver.intervals).filter_map(|i| sample(i, number)).collect();
    let time = judged.within(&receiver.intervals).map(length).sum();
    let last = sent.last().copied();
    let grown = |last: Option<&TcpInfo>, figure: fn(&TcpInfo) -> Option<u64>| {
        Some(judged.grown(&sender.intervals, number, figure(last?)?, figure))
    };
    // A test without a single interval has its end's figures.
    let at_end = last.or(stream.tcp_info.as_ref().filter(|_| is_whole));
    let spent = |figure| Duration::from_nanos(grown(at_end, figure).unwrap_or_default());
    let busy = spent(|info| nanos(info.busy));
    let told_time: Duration = judged.within(&sender.intervals).map(length).sum();
    let middling = |figure: fn(&TcpInfo) -> f64| {
        median(&sent.iter().map(|info| figure(info)).collect::<Vec<_>>()).unwrap_or_default()
    };
    let of_receiver = |figure: &dyn Fn(&StreamSample) -> Option<u64>| {
        let told: Option<Vec<f64>> = got.iter().map(|sample| figure(sample).map(|bytes| bytes as f64)).collect();
        told.and_then(|all| median(&all)).map(|bytes| bytes as u64)
    };
    let offered = |sample: &StreamSample| sample.tcp_info.as_ref().filter(|_| is_whole)?.rcv_wnd_bytes.map(u64::from);
    let windows: Vec<f64> = sent.iter().filter_map(|info| info.snd_wnd_bytes).map(f64::from).collect();
    let receiving = receiver.streams.iter().find(|stream| stream.stream == number);
    Flow {
        goodput: Bytes(got.iter().map(|sample| sample.bytes).sum()).per(time),
        snd_wnd: Spread::of(&windows),
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
        moved: moved(|figure| grown(last, figure)),
        unread: of_receiver(&|sample| sample.unread_bytes),
        rcv_wnd: of_receiver(&offered),
        sending_worker: worker(&sender.intervals, number, judged),
        receiving_worker: worker(&receiver.intervals, number, judged),
        sending: stream.socket.clone().unwrap_or_default(),
        receiving: receiving.and_then(|stream| stream.socket.clone()).unwrap_or_default(),
    }
}

/// Whether the kernel's figures are of all the stream. Of Multipath TCP it tells those of the first subflow alone
/// (`mptcp_getsockopt_first_sf_only`): whether they are of much or of little of the stream is not known, and so they are
/// no evidence.
pub(super) fn is_whole(stream: &StreamReport) -> bool {
    stream.socket.as_ref().is_none_or(|socket| socket.mptcp_subflows.is_none())
}

/// What was sent, where the kernel tells all of it.
fn moved(grown: impl Fn(fn(&TcpInfo) -> Option<u64>) -> Option<u64>) -> Option<Moved> {
    Some(Moved {
        sent_bytes: grown(|info| info.sent_bytes)?,
        resent_bytes: grown(|info| info.retransmitted_bytes)?,
        duplicates: grown(|info| info.duplicate_segments.map(u64::from))?,
    })
}

/// How a stream's thread spent the judged part; none where an end does not tell.
fn worker(intervals: &[Interval], stream: u16, judged: Judged) -> Option<Worker> {
    let told: Vec<(Duration, &ThreadTime)> = judged
        .within(intervals)
        .filter_map(|interval| Some((length(interval), sample(interval, stream)?.thread.as_ref()?)))
        .collect();
    let time: f64 = told.iter().map(|(time, _)| time.as_secs_f64()).sum();
    let share = |figure: fn(&ThreadTime) -> Duration| {
        told.iter().map(|(_, thread)| figure(thread).as_secs_f64()).sum::<f64>() / time
    };
    (time > 0.0).then(|| Worker {
        ran: share(ThreadTime::ran),
        waited: share(|thread| thread.waited.unwrap_or_default()),
        processor: told.last().map_or(0, |(_, thread)| thread.processor),
    })
}

fn nanos(time: Option<Duration>) -> Option<u64> {
    u64::try_from(time?.as_nanos()).ok()
}
