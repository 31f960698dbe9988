//! Figures of a host over the steady window, and its limits.

use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};

use super::steady_window::{SteadyWindow, sample};
use super::stream::covers_whole_stream;
use crate::evidence::disk::DiskEvidence;
use crate::host::facts::HostFacts;
use crate::host::{HostReport, HostSample, Interface, QdiscCounters, SEGMENT_DROP_COUNTERS, combine_qdiscs};
use crate::measure::{EndReport, Interval, Kernel, Mode};

/// Figures of one end's host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFigures {
    /// Name of the host as the user typed it.
    pub name: String,
    /// Limits of the kernel; none if the host does not report them.
    pub kernel: Option<Kernel>,
    /// Interface of the load with its counters over the whole test, because single drops matter.
    pub interface: Option<Interface>,
    /// Kind of the queueing discipline, its counters over the whole test, and its maximum backlog.
    pub qdisc: Option<(String, QdiscCounters)>,
    /// CPU with the most soft interrupts, and their share of its time.
    pub softirq: Option<(u32, f64)>,
    /// Number of CPUs of the host.
    pub processors: Option<u32>,
    /// Idle CPU time, in CPUs.
    pub idle: Option<f64>,
    /// CPU time of programs, in CPUs, with lfn and without soft interrupts.
    pub busy_on_programs: Option<f64>,
    /// The host moves payload without copies (`--no-copy`).
    pub no_copy: bool,
    /// Packets that the host's sockets dropped over the whole test.
    pub sockets_dropped: Option<u64>,
    /// Times at which TCP of this host was short of memory (`TCPMemoryPressures`).
    pub memory_pressures: Option<u64>,
    /// Settings and limits that a load does not change, if they were read.
    pub facts: Option<HostFacts>,
    /// Disk of this end, if it was measured.
    pub disk: Option<DiskEvidence>,
    /// Other traffic of the interface in the direction of the data, and all of its traffic.
    pub other_traffic: Option<(BitRate, BitRate)>,
}

/// Maximum headers of a segment on the interface, in bytes: Ethernet with a tag, IPv6, TCP with options.
const HEADERS: u64 = 100;

/// Returns the evidence of a host that sends or receives.
pub(super) fn host_figures(name: &str, end: &EndReport, window: SteadyWindow, sends: bool) -> HostFigures {
    let samples: Vec<(&Interval, &HostSample)> = window
        .intervals_within(&end.intervals)
        .filter_map(|interval| Some((interval, interval.host.as_ref()?)))
        .collect();
    let time: Duration = samples.iter().map(|(_, sample)| sample.elapsed).sum();
    let report = end.host.as_ref();
    let carried = samples.iter().filter_map(|(_, sample)| sample.interface);
    let carried: u64 = carried.map(|c| if sends { c.sent_bytes } else { c.received_bytes }).sum();
    let interface = report.and_then(|report| report.interface.clone());
    let waited = samples.iter().filter_map(|(_, sample)| sample.qdiscs).map(|c| (c.backlog_bytes, c.backlog_packets));
    let (backlog_bytes, backlog_packets) = waited.max().unwrap_or_default();
    let queued = report.and_then(|report| combine_qdiscs(&report.qdiscs)).map(|counters| QdiscCounters {
        backlog_bytes,
        backlog_packets,
        ..counters
    });
    let kind = report.and_then(|report| report.qdiscs.iter().find(|qdisc| qdisc.parent == "root"));
    let let_go =
        |report: &HostReport| SEGMENT_DROP_COUNTERS.iter().map(|(name, _)| report.counter(name)).sum::<Option<i64>>();
    HostFigures {
        name: name.to_owned(),
        kernel: end.kernel.clone(),
        other_traffic: interface
            .as_ref()
            .and_then(|interface| other_traffic(end, window, time, carried, interface, sends)),
        interface,
        qdisc: kind.zip(queued).map(|(qdisc, counters)| (qdisc.kind.clone(), counters)),
        softirq: busiest_softirq(&samples, time),
        no_copy: end.mode == Some(Mode::NoCopy),
        processors: report.map(|report| report.processors.len() as u32).filter(|count| *count > 0),
        idle: report.and_then(HostReport::processors_idle),
        busy_on_programs: report.and_then(HostReport::processors_at_work).map(|(busy, packets)| busy - packets),
        memory_pressures: report
            .and_then(|report| report.counter("TcpExt.TCPMemoryPressures"))
            .and_then(|count| u64::try_from(count).ok()),
        facts: None,
        disk: None,
        sockets_dropped: report.and_then(let_go).and_then(|count| u64::try_from(count).ok()),
    }
}

/// Returns the CPU with the most soft interrupts; a sample has only CPUs with interrupts.
fn busiest_softirq(samples: &[(&Interval, &HostSample)], time: Duration) -> Option<(u32, f64)> {
    let mut sums: Vec<(u32, f64)> = Vec::new();
    for time in samples.iter().flat_map(|(_, sample)| &sample.processors) {
        match sums.iter_mut().find(|(processor, _)| *processor == time.processor) {
            Some((_, sum)) => *sum += time.softirq.as_secs_f64(),
            None => sums.push((time.processor, time.softirq.as_secs_f64())),
        }
    }
    let (processor, most) = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (!time.is_zero()).then(|| (processor, most / time.as_secs_f64()))
}

/// Returns the traffic of the interface beyond this test, in the direction of the data. Headers count with their
/// maximum size and retransmissions count twice, so that this test is never taken for other traffic. A receiver counts
/// only data in order as received, so each of its received segments counts as a full one: after a loss, the data behind
/// the gap is on the interface long before it is in order.
fn other_traffic(
    end: &EndReport,
    window: SteadyWindow,
    time: Duration,
    all: u64,
    interface: &Interface,
    sends: bool,
) -> Option<(BitRate, BitRate)> {
    if interface.loopback || time.is_zero() || !end.streams.iter().all(covers_whole_stream) {
        return None;
    }
    let mut own = 0u64;
    for stream in &end.streams {
        let grown = |figure: fn(&TcpInfo) -> Option<u64>| {
            // The interface was counted at each sample of the host.
            let looked = window.intervals_within(&end.intervals).filter(|interval| interval.host.is_some());
            let reported = |interval: &Interval| sample(interval, stream.stream)?.tcp_info.as_ref().and_then(figure);
            let last = looked.filter_map(reported).last()?;
            Some(window.growth(&end.intervals, stream.stream, last, figure))
        };
        let segments =
            grown(|info| info.sent_segments.map(u64::from))? + grown(|i| i.received_segments.map(u64::from))?;
        let payload = if sends { grown(|info| info.sent_bytes)? } else { grown(|info| info.received_bytes)? };
        let mss = stream.tcp_info.as_ref().map_or(0, |info| u64::from(info.snd_mss_bytes));
        let received = grown(|info| info.received_segments.map(u64::from))?.saturating_mul(mss);
        // Duplicate data is not in the received bytes.
        let payload = if sends { payload } else { payload.saturating_add(payload / 50).max(received) };
        let resent = grown(|info| info.retransmitted_bytes)?;
        own = [payload, resent, segments * HEADERS].into_iter().fold(own, u64::saturating_add);
    }
    (!end.streams.is_empty()).then(|| (Bytes(all.saturating_sub(own)).per(time), Bytes(all).per(time)))
}

#[cfg(test)]
mod tests {
    use super::super::steady_window::SteadyWindow;
    use super::*;
    use crate::host::InterfaceCounters;
    use crate::measure::{SocketReport, StreamReport, StreamSample};

    /// One second in which the kernel reported a tenth of the interface's traffic.
    fn end(mptcp_subflows: Option<u8>) -> EndReport {
        let second = Duration::from_secs(1);
        let tcp_info = TcpInfo {
            sent_bytes: Some(100_000),
            retransmitted_bytes: Some(0),
            sent_segments: Some(70),
            received_segments: Some(35),
            ..TcpInfo::default()
        };
        let counters = InterfaceCounters { sent_bytes: 1_000_000, ..InterfaceCounters::default() };
        let looked = HostSample { elapsed: second, interface: Some(counters), ..HostSample::default() };
        let sample = StreamSample { tcp_info: Some(tcp_info), ..StreamSample::default() };
        let interval = Interval { end: second, streams: vec![sample], host: Some(looked), ..Interval::default() };
        let socket = SocketReport { mptcp_subflows, ..SocketReport::default() };
        EndReport {
            streams: vec![StreamReport { socket: Some(socket), ..StreamReport::default() }],
            intervals: vec![interval],
            host: Some(HostReport { interface: Some(Interface::default()), ..HostReport::default() }),
            ..EndReport::default()
        }
    }

    #[test]
    fn other_subflows_are_not_other_traffic() {
        let others = |subflows| {
            let end = end(subflows);
            host_figures("near", &end, SteadyWindow::of(&end.intervals, None), true).other_traffic
        };
        let (others_carried, all) = others(None).unwrap();
        assert_eq!(all, BitRate(8_000_000));
        assert!(others_carried > BitRate(7_000_000), "{others_carried}");
        assert_eq!(others(Some(2)), None);
    }

    /// One second of a receiver after a loss: 690 full segments arrived, and only the data before the gap is in order.
    #[test]
    fn data_out_of_order_is_not_other_traffic() {
        let mut end = end(None);
        let tcp_info = TcpInfo {
            snd_mss_bytes: 1448,
            received_bytes: Some(100_000),
            retransmitted_bytes: Some(0),
            sent_segments: Some(345),
            received_segments: Some(690),
            ..TcpInfo::default()
        };
        let counters = InterfaceCounters { received_bytes: 690 * 1514, ..InterfaceCounters::default() };
        end.streams[0].tcp_info = Some(tcp_info.clone());
        end.intervals[0].streams[0].tcp_info = Some(tcp_info);
        end.intervals[0].host.as_mut().unwrap().interface = Some(counters);
        let others = |end: &EndReport| {
            host_figures("far", end, SteadyWindow::of(&end.intervals, None), false).other_traffic.unwrap().0
        };
        assert_eq!(others(&end), BitRate(0));
        // Twice as much on the interface is other traffic.
        end.intervals[0].host.as_mut().unwrap().interface =
            Some(InterfaceCounters { received_bytes: 2_089_320, ..counters });
        assert!(others(&end) > BitRate(7_000_000), "{}", others(&end));
    }
}
