//! Counters of the path over a whole test: order, losses, acknowledgements and marks, of all streams together.

use lfn_base::tcp_info::TcpInfo;

use super::stream::covers_whole_stream;
use crate::evidence::Evidence;
use crate::measure::EndReport;

/// Counters of both ends' kernels over a whole test. Unknown counters are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PathCounters {
    /// Segments that the sender sent, with retransmissions.
    pub sent: u64,
    /// Segments that the sender retransmitted.
    pub retransmitted: u64,
    /// Retransmissions that the receiver did not need.
    pub duplicates: u64,
    /// Segments that arrived after later ones, as the sender found.
    pub reordered: u64,
    /// Retransmission timeouts of all streams (`TcpTotalRto`).
    pub timeouts: u64,
    /// Segments that the receiver confirmed.
    pub delivered: u64,
    /// Confirmed segments with a mark of congestion.
    pub marked: u64,
    /// Explicit congestion notification was negotiated for all streams.
    pub ecn: bool,
    /// Data segments that arrived at a receiver which saw no packet with an ECN codepoint; none if the receiver does not
    /// report this.
    pub without_ecn: Option<u64>,
    /// Segments that the receiver sent, and segments that arrived at the sender: almost all are acknowledgements.
    pub answers: Option<(u64, u64)>,
    /// Segments that the receiver had sent a round trip before the end of the test: those that arrive do so within the test.
    pub early_answers: Option<u64>,
    /// Times at which the sender began to repair losses, over all connections of its host.
    pub recoveries: Option<u64>,
    /// First slow-start threshold that a stream had without a loss, bytes.
    pub threshold_without_loss: Option<u64>,
    /// Ends of slow start by HyStart, over all connections of the sender's host.
    pub hystart_exits: Option<u64>,
    /// Window scales that each end announced do not match those that the other end received.
    pub scales_differ: bool,
}

/// Counters of HyStart, in `/proc/net/netstat`.
const HYSTART: [&str; 2] = ["TcpExt.TCPHystartTrainDetect", "TcpExt.TCPHystartDelayDetect"];

impl PathCounters {
    /// Sums up the counters of the streams of both ends.
    pub(super) fn of(evidence: &Evidence) -> PathCounters {
        let (sender, receiver) = (evidence.sender(), evidence.receiver());
        let infos = |end: &'_ EndReport| -> Vec<TcpInfo> {
            end.streams.iter().filter(|stream| covers_whole_stream(stream)).filter_map(|s| s.tcp_info.clone()).collect()
        };
        let (sent, received) = (infos(sender), infos(receiver));
        let sum = |figure: fn(&TcpInfo) -> Option<u64>| sent.iter().filter_map(figure).sum::<u64>();
        let counter = |name: &str| sender.host.as_ref().and_then(|host| host.counter(name));
        let known = |count: i64| u64::try_from(count).ok();
        let answered: Option<u64> = received.iter().map(|info| info.sent_segments.map(u64::from)).sum();
        let arrived: Option<u64> = sent.iter().map(|info| info.received_segments.map(u64::from)).sum();
        let is_complete = !sent.is_empty() && sent.len() == received.len();
        PathCounters {
            sent: sum(|info| info.sent_data_segments.map(u64::from)),
            retransmitted: sum(|info| Some(info.retransmitted_segments.into())),
            duplicates: sum(|info| info.duplicate_segments.map(u64::from)),
            reordered: sum(|info| info.reorderings.map(u64::from)),
            timeouts: sum(|info| info.timeouts.map(u64::from)),
            delivered: sum(|info| info.delivered_segments.map(u64::from)),
            marked: sum(|info| info.delivered_marked_segments.map(u64::from)),
            ecn: !sent.is_empty() && sent.iter().all(|info| info.ecn),
            without_ecn: unmarked_arrivals(&received),
            // The ends of a copy report at different times.
            answers: answered.zip(arrived).filter(|_| is_complete && evidence.copy.is_none()),
            early_answers: early_answers(evidence).filter(|_| is_complete),
            recoveries: counter("TcpExt.TCPSackRecovery").and_then(known),
            threshold_without_loss: threshold_without_loss(sender),
            hystart_exits: HYSTART.iter().map(|name| counter(name)).sum::<Option<i64>>().and_then(known),
            scales_differ: is_complete
                && sent.iter().zip(&received).any(|(sent, received)| {
                    (sent.snd_wscale, sent.rcv_wscale) != (received.rcv_wscale, received.snd_wscale)
                        || sent.window_scaling != received.window_scaling
                }),
        }
    }
}

/// Returns the segments that the receiver sent until its last sample before the last round trip of the sender.
fn early_answers(evidence: &Evidence) -> Option<u64> {
    let (_, end) = evidence.sender().intervals.last()?.placed();
    let last = end.checked_sub(evidence.base_rtt())?;
    let sample = evidence.receiver().intervals.iter().rfind(|interval| interval.placed().1 <= last)?;
    sample.streams.iter().map(|stream| Some(u64::from(stream.tcp_info.as_ref()?.sent_segments?))).sum()
}

/// Returns the data segments of the streams with ECN whose receiver saw no ECN codepoint; none if a stream has no ECN.
fn unmarked_arrivals(received: &[TcpInfo]) -> Option<u64> {
    if received.is_empty() || !received.iter().all(|info| info.ecn) {
        return None;
    }
    // A receiver of data sends almost no segments with payload, so the segments that it received are data.
    received.iter().map(|info| if info.ecn_seen { Some(0) } else { info.received_segments.map(u64::from) }).sum()
}

/// Returns the first slow-start threshold that a stream without losses had until then.
fn threshold_without_loss(sender: &EndReport) -> Option<u64> {
    let first = |stream: u16| {
        let samples = sender.intervals.iter().flat_map(|interval| &interval.streams);
        let info = samples
            .filter(|sample| sample.stream == stream)
            .filter_map(|sample| sample.tcp_info.as_ref())
            .find(|info| info.ssthresh_segments.is_some() || info.retransmitted_segments > 0)?;
        let threshold = info.ssthresh_segments.filter(|_| info.retransmitted_segments == 0)?;
        Some(u64::from(threshold) * u64::from(info.snd_mss_bytes))
    };
    sender.streams.iter().filter_map(|stream| first(stream.stream)).min()
}
