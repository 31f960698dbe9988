//! What a test found, in the types of our own tests.

use std::time::Duration;

use lfn_core::iperf3::results::CpuPercent;
use lfn_core::iperf3::{End, Output, Parameters, Protocol, Results, StreamResult};
use lfn_core::report::{Figure, Iperf3, Iperf3Stream};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{
    Cpu, Direction, Dscp, EndReport, Interval, Load, Mode, SocketReport, StreamReport, StreamSample, TestRequest,
    UdpRequest,
};
use lfn_sys::tcp;
use socket2::SockRef;

use crate::iperf3::figures::{Figures, Slice};
use crate::iperf3::flow::{Flow, Socket};
use crate::tester::{self, Measurement};

/// A test in either direction, or two at once.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Forward before reverse.
    pub runs: Vec<(Measurement, Iperf3)>,
    /// What the server would have printed, where it was asked for and has it.
    pub output: Option<Output>,
}

pub(super) fn outcome(
    parameters: &Parameters,
    rtt: Duration,
    figures: &Figures,
    slices: &[Slice],
    near: &Results,
    far: &Results,
) -> Outcome {
    let runs = [true, false].into_iter().filter(|&sends| figures.flows.iter().any(|flow| flow.sends == sends));
    let runs = runs.map(|sends| {
        let near_report = near_report(parameters, figures, slices, near, sends);
        let far_report = far_report(parameters, figures, slices, far, sends);
        let request = request(parameters, figures.interval(), sends);
        (Measurement::new(request, rtt, near_report, far_report), remarks(parameters, figures, near, far, sends))
    });
    Outcome { runs: runs.collect(), output: far.output.clone() }
}

/// What this end's streams of one direction did in a slice; nothing where there are none.
pub(super) fn interval(figures: &Figures, slice: &Slice, sends: bool) -> Option<Interval> {
    let flows = figures.flows.iter().zip(&slice.streams).filter(|(flow, _)| flow.sends == sends);
    let streams: Vec<StreamSample> = (0..)
        .zip(flows)
        .map(|(stream, (_, (bytes, info)))| StreamSample {
            stream,
            bytes: *bytes,
            tcp_info: info.clone(),
            ..StreamSample::default()
        })
        .collect();
    let bytes = streams.iter().map(|sample| sample.bytes).sum();
    (!streams.is_empty()).then(|| Interval {
        start: slice.start,
        end: slice.end,
        bytes,
        streams,
        ..Interval::default()
    })
}

/// The test as our own client would have asked for it.
pub fn request(parameters: &Parameters, interval: Duration, sends: bool) -> TestRequest {
    TestRequest {
        direction: if sends { Direction::Forward } else { Direction::Reverse },
        streams: parameters.streams,
        load: match parameters.end {
            End::Time(time) => Load::TimeSeconds(time),
            End::Bytes(bytes) => Load::Bytes(Bytes(bytes)),
            End::Blocks(blocks) => Load::Records(blocks),
            End::Open => Load::TimeSeconds(Duration::ZERO),
        },
        record: parameters.length,
        interval,
        udp: (parameters.protocol == Protocol::Udp).then(|| Box::new(datagrams(parameters))),
        ..TestRequest::default()
    }
}

fn datagrams(parameters: &Parameters) -> UdpRequest {
    let datagram_bytes = u32::try_from(parameters.length.0).ok();
    // Without a rate they are sent as fast as they can be.
    UdpRequest { rate: parameters.rate.unwrap_or(BitRate(u64::MAX)), datagram_bytes, ..UdpRequest::default() }
}

fn near_report(parameters: &Parameters, figures: &Figures, slices: &[Slice], near: &Results, sends: bool) -> EndReport {
    let streams = streams(figures, near, sends).map(|(stream, flow, result)| StreamReport {
        stream,
        bytes: result.bytes,
        socket: socket_report(parameters, flow),
        tcp_info: flow.socket.info(),
        ..StreamReport::default()
    });
    let streams: Vec<StreamReport> = streams.collect();
    let cpu = figures.cpu_time(sends);
    let uncopied = if sends { parameters.zero_copy } else { parameters.skip_copy };
    let mode = if uncopied { Mode::NoCopy } else { Mode::Copying };
    EndReport {
        elapsed: departed(parameters, figures, sends).unwrap_or(figures.elapsed()),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        mode: (parameters.protocol == Protocol::Tcp).then_some(mode),
        cpu: Some(Cpu { user: cpu.user, system: cpu.system }),
        kernel: Some(tester::kernel()),
        streams,
        intervals: slices.iter().filter_map(|slice| interval(figures, slice, sends)).collect(),
        ..EndReport::default()
    }
}

/// How long this end sent datagrams: each takes its part of the time at its rate, the last one too. Nothing of TCP, and
/// of those that the server sends.
fn departed(parameters: &Parameters, figures: &Figures, sends: bool) -> Option<Duration> {
    if parameters.protocol == Protocol::Tcp || !sends {
        return None;
    }
    let last = parameters.rate.map(|rate| rate.time_for(parameters.length)).unwrap_or_default();
    Some((figures.last(sends) + last).min(figures.elapsed())).filter(|time| !time.is_zero())
}

fn far_report(parameters: &Parameters, figures: &Figures, slices: &[Slice], far: &Results, sends: bool) -> EndReport {
    let told = streams(figures, far, sends).map(|(stream, _, result)| StreamReport {
        stream,
        bytes: result.bytes,
        ..StreamReport::default()
    });
    let streams: Vec<StreamReport> = told.collect();
    let time = far.streams.iter().filter_map(|stream| stream.time).max();
    // A server that received all there was counts on until it is told so.
    let counts_on = sends && figures.is_settled();
    let told = time.filter(|time| !time.is_zero() && !counts_on);
    // Datagrams wait for nobody: they arrive as they leave, and the rest of a receiver's time is the conversation's.
    let elapsed = departed(parameters, figures, sends).or(told).unwrap_or(figures.elapsed());
    EndReport {
        elapsed,
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        cpu: Some(cpu(&far.cpu, elapsed)),
        streams,
        intervals: if sends { acknowledged(figures, slices) } else { Vec::new() },
        ..EndReport::default()
    }
}

/// What is known of the server's end of a slice: of one that receives TCP, what its kernel acknowledged.
pub(super) fn far_interval(figures: &Figures, before: Option<&Slice>, slice: &Slice, sends: bool) -> Option<Interval> {
    let bare = Interval { start: slice.start, end: slice.end, ..Interval::default() };
    if !sends {
        return Some(bare);
    }
    let acked = |slice: &Slice, at: usize| slice.streams.get(at)?.1.as_ref()?.acked_bytes;
    let senders = (0..figures.flows.len()).filter(|&at| figures.flows[at].sends);
    let streams: Option<Vec<StreamSample>> = (0..)
        .zip(senders)
        .map(|(stream, at)| {
            let earlier = before.map_or(Some(figures.acked_before(at)), |slice| acked(slice, at))?;
            let bytes = acked(slice, at)?.saturating_sub(earlier);
            Some(StreamSample { stream, bytes, ..StreamSample::default() })
        })
        .collect();
    // Nobody acknowledges datagrams, and a kernel before 4.1 does not tell: then nothing is known.
    let streams = streams?;
    Some(Interval { bytes: streams.iter().map(|sample| sample.bytes).sum(), streams, ..bare })
}

fn acknowledged(figures: &Figures, slices: &[Slice]) -> Vec<Interval> {
    let before = std::iter::once(None).chain(slices.iter().map(Some));
    let intervals = slices.iter().zip(before).map(|(slice, before)| far_interval(figures, before, slice, true));
    intervals.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The server's processor time, which it tells as a share of its time.
fn cpu(percent: &CpuPercent, elapsed: Duration) -> Cpu {
    let part = |percent: f64| {
        let seconds = elapsed.as_secs_f64() * percent / 100.0;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    };
    Cpu { user: part(percent.user), system: part(percent.system) }
}

fn remarks(parameters: &Parameters, figures: &Figures, near: &Results, far: &Results, sends: bool) -> Iperf3 {
    let udp = parameters.protocol == Protocol::Udp;
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
    let resent = self::streams(figures, sender, sends).filter_map(|(_, _, stream)| stream.retransmits);
    Iperf3 {
        protocol: parameters.protocol,
        far_congestion: far.congestion.clone(),
        retransmits: resent.reduce(|a, b| a.saturating_add(b)).filter(|_| !udp),
        streams,
        server_output: None,
    }
}

/// The streams of one direction, numbered from 0, with what one end counted of them.
fn streams<'a>(
    figures: &'a Figures,
    results: &'a Results,
    sends: bool,
) -> impl Iterator<Item = (u16, &'a Flow, &'a StreamResult)> {
    let flows = figures.flows.iter().filter(move |flow| flow.sends == sends);
    (0..).zip(flows).filter_map(|(number, flow)| Some((number, flow, results.stream(flow.id)?)))
}

/// Buffers as granted; both ends were asked for the same.
fn socket_report(parameters: &Parameters, flow: &Flow) -> Option<SocketReport> {
    let Socket::Tcp(socket) = &*flow.socket else { return None };
    let options = SockRef::from(socket);
    Some(SocketReport {
        sndbuf_asked_bytes: parameters.window,
        sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket).ok()?),
        rcvbuf_asked_bytes: parameters.window,
        rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket).ok()?),
        congestion_asked: parameters.congestion.clone(),
        congestion: tcp::congestion(socket).ok()?,
        pacing_asked: parameters.pacing,
        pacing_granted: tcp::pacing(socket).ok()?.map(BitRate),
        mss_asked_bytes: parameters.mss.map(|mss| Bytes(mss.into())),
        // `TCP_MAXSEG` of a connection that is over by now says what was asked.
        mss_granted_bytes: flow.socket.info().map(|info| Bytes(info.snd_mss_bytes.into())),
        dscp_asked: parameters.tos.map(Dscp::of_tos),
        dscp_granted: tester::marked(&options),
        mptcp_asked: parameters.mptcp,
        mptcp_subflows: tcp::mptcp_subflows(socket),
        local_address: socket.local_addr().ok().map(|address| address.to_string()),
        ..SocketReport::default()
    })
}
