//! Result of a test in the types of `lfn`'s own tests.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::Evidence;
use lfn_results::iperf3_report::{Iperf3Report, Iperf3Stream, LoadProtocol};
use lfn_results::measure::{
    Cpu, Dscp, EndReport, Interval, Mode, SocketReport, StreamReport, StreamSample, TestDirection, TestLoad,
    TestRequest, UdpRequest,
};
use lfn_sys::tcp;
use socket2::SockRef;

use crate::iperf3::figures::{IntervalFigures, IperfFigures, IperfStream};
use crate::proto::iperf3::results::CpuPercent;
use crate::proto::iperf3::{Parameters, Results, ServerOutput, StreamResult, TestEnd};
use crate::tester;

/// Result of a test in one direction, or in both directions at the same time.
#[derive(Debug, Clone)]
pub struct IperfOutcome {
    /// The forward run comes before the reverse run.
    pub runs: Vec<Evidence>,
    /// Output of the server, if requested and available.
    pub output: Option<ServerOutput>,
}

pub(super) fn outcome(
    parameters: &Parameters,
    rtt: Duration,
    figures: &IperfFigures,
    intervals: &[IntervalFigures],
    near: &Results,
    far: &Results,
) -> IperfOutcome {
    let runs = [true, false].into_iter().filter(|&sends| figures.streams().any(|flow| flow.sends == sends));
    let runs = runs.map(|sends| {
        let near_report = near_report(parameters, figures, intervals, near, sends);
        let far_report = far_report(parameters, figures, intervals, far, sends);
        let request = request(parameters, figures.interval(), sends);
        let iperf3 = Some(remarks(parameters, figures, near, far, sends));
        Evidence { iperf3, ..Evidence::of_test(request, rtt, near_report, far_report) }
    });
    IperfOutcome { runs: runs.collect(), output: far.output.clone() }
}

/// Returns the figures of this end's streams of one direction in an interval; `None` without streams.
pub(super) fn near_interval(
    figures: &IperfFigures,
    figures_of_interval: &IntervalFigures,
    sends: bool,
) -> Option<Interval> {
    let whole = &figures_of_interval.interval;
    let samples = figures.streams().zip(&whole.streams).filter(|(flow, _)| flow.sends == sends);
    // The streams of a direction are numbered from 0.
    let streams = (0..).zip(samples).map(|(stream, (_, sample))| StreamSample { stream, ..sample.clone() });
    let streams: Vec<StreamSample> = streams.collect();
    let bytes = streams.iter().map(|sample| sample.bytes).sum();
    (!streams.is_empty()).then(|| Interval {
        start: whole.start,
        end: whole.end,
        bytes,
        streams,
        ..Interval::default()
    })
}

/// Returns the test as a request of `lfn`'s own client.
pub fn request(parameters: &Parameters, interval: Duration, sends: bool) -> TestRequest {
    TestRequest {
        direction: if sends { TestDirection::Forward } else { TestDirection::Reverse },
        streams: parameters.streams,
        load: match parameters.end {
            TestEnd::Time(time) => TestLoad::TimeSeconds(time),
            TestEnd::Bytes(bytes) => TestLoad::Bytes(Bytes(bytes)),
            TestEnd::Blocks(blocks) => TestLoad::Records(blocks),
            TestEnd::Unlimited => TestLoad::TimeSeconds(Duration::ZERO),
        },
        record: parameters.length,
        interval,
        udp: (parameters.protocol == LoadProtocol::Udp).then(|| Box::new(datagrams(parameters))),
        ..TestRequest::default()
    }
}

fn datagrams(parameters: &Parameters) -> UdpRequest {
    let datagram_bytes = u32::try_from(parameters.length.0).ok();
    // Without a rate, datagrams are sent as fast as possible.
    UdpRequest { rate: parameters.rate.unwrap_or(BitRate(u64::MAX)), datagram_bytes, ..UdpRequest::default() }
}

fn near_report(
    parameters: &Parameters,
    figures: &IperfFigures,
    intervals: &[IntervalFigures],
    near: &Results,
    sends: bool,
) -> EndReport {
    let streams = streams(figures, near, sends).map(|(stream, flow, result)| StreamReport {
        stream,
        bytes: result.bytes,
        socket: socket_report(parameters, flow),
        tcp_info: flow.stream.handle.info(),
        ..StreamReport::default()
    });
    let streams: Vec<StreamReport> = streams.collect();
    let no_copy = if sends { parameters.zero_copy } else { parameters.skip_copy };
    let mode = if no_copy { Mode::NoCopy } else { Mode::Copying };
    EndReport {
        elapsed: sending_time(parameters, figures, sends).unwrap_or(figures.elapsed()),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        mode: (parameters.protocol == LoadProtocol::Tcp).then_some(mode),
        cpu: Some(figures.cpu_time(sends)),
        kernel: Some(tester::read_kernel()),
        streams,
        intervals: intervals
            .iter()
            .filter_map(|figures_of_interval| near_interval(figures, figures_of_interval, sends))
            .collect(),
        ..EndReport::default()
    }
}

/// Returns the time in which this end sent datagrams: each datagram takes its share of the time at the rate, also the
/// last one. `None` for TCP and for datagrams that the server sends.
fn sending_time(parameters: &Parameters, figures: &IperfFigures, sends: bool) -> Option<Duration> {
    if parameters.protocol == LoadProtocol::Tcp || !sends {
        return None;
    }
    let last = parameters.rate.map(|rate| rate.time_for(parameters.length)).unwrap_or_default();
    Some((figures.last(sends) + last).min(figures.elapsed())).filter(|time| !time.is_zero())
}

fn far_report(
    parameters: &Parameters,
    figures: &IperfFigures,
    intervals: &[IntervalFigures],
    far: &Results,
    sends: bool,
) -> EndReport {
    let reported = streams(figures, far, sends).map(|(stream, _, result)| StreamReport {
        stream,
        bytes: result.bytes,
        ..StreamReport::default()
    });
    let streams: Vec<StreamReport> = reported.collect();
    let time = far.streams.iter().filter_map(|stream| stream.time).max();
    // A server that has received everything counts time until the client ends the test.
    let counts_late = sends && figures.is_delivered();
    let reported = time.filter(|time| !time.is_zero() && !counts_late);
    // Datagrams arrive as they are sent; the rest of a receiver's time belongs to the protocol.
    let elapsed = sending_time(parameters, figures, sends).or(reported).unwrap_or(figures.elapsed());
    EndReport {
        elapsed,
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        cpu: Some(cpu(&far.cpu, elapsed)),
        streams,
        intervals: if sends { acknowledged(figures, intervals) } else { Vec::new() },
        ..EndReport::default()
    }
}

/// Returns the server's figures of an interval. For a server that receives TCP: the bytes that its kernel acknowledged.
pub(super) fn far_interval(
    figures: &IperfFigures,
    before: Option<&IntervalFigures>,
    figures_of_interval: &IntervalFigures,
    sends: bool,
) -> Option<Interval> {
    let IntervalFigures { interval: Interval { start, end, .. }, .. } = *figures_of_interval;
    let empty = Interval { start, end, ..Interval::default() };
    if !sends {
        return Some(empty);
    }
    let acked = |figures_of_interval: &IntervalFigures, at: usize| {
        figures_of_interval.interval.streams.get(at)?.tcp_info.as_ref()?.acked_bytes
    };
    let senders = figures.streams().enumerate().filter(|(_, stream)| stream.sends).map(|(at, _)| at);
    let streams: Option<Vec<StreamSample>> = (0..)
        .zip(senders)
        .map(|(stream, at)| {
            let earlier = before
                .map_or(Some(figures.acked_at_start(at)), |figures_of_interval| acked(figures_of_interval, at))?;
            let bytes = acked(figures_of_interval, at)?.saturating_sub(earlier);
            Some(StreamSample { stream, bytes, ..StreamSample::default() })
        })
        .collect();
    // Datagrams are not acknowledged, and kernels before 4.1 do not report acknowledged bytes.
    let streams = streams?;
    Some(Interval { bytes: streams.iter().map(|sample| sample.bytes).sum(), streams, ..empty })
}

fn acknowledged(figures: &IperfFigures, intervals: &[IntervalFigures]) -> Vec<Interval> {
    let before = std::iter::once(None).chain(intervals.iter().map(Some));
    let intervals = intervals
        .iter()
        .zip(before)
        .map(|(figures_of_interval, before)| far_interval(figures, before, figures_of_interval, true));
    intervals.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Converts the server's processor time, which it reports as a share of its elapsed time.
fn cpu(percent: &CpuPercent, elapsed: Duration) -> Cpu {
    let part = |percent: f64| {
        let seconds = elapsed.as_secs_f64() * percent / 100.0;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    };
    Cpu { user: part(percent.user), system: part(percent.system) }
}

fn remarks(
    parameters: &Parameters,
    figures: &IperfFigures,
    near: &Results,
    far: &Results,
    sends: bool,
) -> Iperf3Report {
    let udp = parameters.protocol == LoadProtocol::Udp;
    let (sender, receiver) = if sends { (near, far) } else { (far, near) };
    let pairs = streams(figures, sender, sends).zip(streams(figures, receiver, sends));
    let streams: Vec<Iperf3Stream> = pairs
        .map(|((_, _, sent), (_, _, received))| {
            let (lost_before, sent_before) = received.omitted.unwrap_or_default();
            Iperf3Stream {
                id: sent.id,
                sent_bytes: sent.bytes,
                received_bytes: received.bytes,
                datagrams: udp.then(|| sent.packets.saturating_sub(sent.omitted.map_or(sent_before, |(_, sent)| sent))),
                lost_datagrams: udp.then(|| received.errors.saturating_sub(lost_before)),
                jitter_seconds: Figure::new(received.jitter).filter(|_| udp),
            }
        })
        .collect();
    let retransmits = self::streams(figures, sender, sends).filter_map(|(_, _, stream)| stream.retransmits);
    Iperf3Report {
        protocol: parameters.protocol,
        far_congestion: far.congestion.clone(),
        retransmits: retransmits.reduce(|a, b| a.saturating_add(b)).filter(|_| !udp),
        streams,
        server_output: None,
    }
}

/// Returns the streams of one direction, numbered from 0, with one end's results.
fn streams<'a>(
    figures: &'a IperfFigures,
    results: &'a Results,
    sends: bool,
) -> impl Iterator<Item = (u16, IperfStream<'a>, &'a StreamResult)> {
    let flows = figures.streams().filter(move |flow| flow.sends == sends);
    (0..).zip(flows).filter_map(|(number, flow)| Some((number, flow, results.stream(flow.id())?)))
}

/// Returns the granted options; both ends got the same request.
fn socket_report(parameters: &Parameters, flow: IperfStream<'_>) -> Option<SocketReport> {
    if parameters.protocol == LoadProtocol::Udp {
        return None;
    }
    let handle = &flow.stream.handle;
    let socket = handle.socket()?;
    let options = SockRef::from(&socket);
    Some(SocketReport {
        sndbuf_requested_bytes: parameters.window,
        sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket).ok()?),
        rcvbuf_requested_bytes: parameters.window,
        rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket).ok()?),
        congestion_requested: parameters.congestion.clone(),
        congestion: tcp::congestion(socket).ok()?,
        pacing_requested: parameters.pacing,
        pacing_granted: tcp::pacing(socket).ok()?.map(BitRate),
        mss_requested_bytes: parameters.mss.map(|mss| Bytes(mss.into())),
        // After the end of a connection, `TCP_MAXSEG` returns the requested value.
        mss_granted_bytes: handle.info().map(|info| Bytes(info.snd_mss_bytes.into())),
        dscp_requested: parameters.tos.map(Dscp::of_tos),
        dscp_granted: tester::current_dscp(&options),
        mptcp_requested: parameters.mptcp,
        mptcp_subflows: tcp::mptcp_subflows(socket),
        local_address: handle.local_address().ok().map(|address| address.to_string()),
        ..SocketReport::default()
    })
}
