//! From a test that is over to what is stored of it, and back.
//!
//! The measurement is taken apart without `..`: a figure that is measured and not stored does not compile.

use std::time::Duration;

use lfn_core::diagnose::Evidence;
use lfn_core::report::{self, Figure, PerEnd, Side, Slice};
use lfn_core::units::Ratio;
use lfn_core::wire::test::{EndReport, SocketWish};
use lfn_net::tester::Measurement;

use super::{Run, text};

/// What is stored of a test that is over. `near` is what was asked of this end's sockets, `omit` what was to be taken
/// for start-up.
pub fn store(run: Run, near_socket: SocketWish, omit: Option<Duration>) -> report::Run {
    let (retransmits, window_scale) = (text::resent(&run), run.window_scale());
    let Run { measurement, evidence, findings, predicted, expected, iperf3 } = run;
    let (bytes, elapsed) = (measurement.receiver().bytes, evidence.elapsed);
    let steady = evidence.steady;
    let intervals = measurement.receiver().intervals.iter().map(|i| Slice::new(i, steady.as_ref())).collect();
    let Measurement { request, rtt, near, far, clock, path: path_report, blocks, latency, estimate, ended, at_once } =
        measurement;
    let (sender, receiver) = Side::of(request.direction);
    report::Run {
        direction: request.direction,
        sender,
        receiver,
        goodput: evidence.goodput,
        steady_goodput: evidence.judged_goodput(),
        bytes,
        elapsed,
        steady,
        start_up_share: steady.and_then(|steady| share(steady.start, elapsed)),
        omit,
        base_rtt: evidence.base_rtt,
        handshake_rtt: rtt,
        bdp: evidence.path.map(|path| path.bdp()),
        measured_bdp: evidence.judged_goodput().times(evidence.base_rtt),
        path: evidence.path,
        predicted,
        expected,
        // What TCP could do says nothing of datagrams.
        possible_goodput: evidence.possible().filter(|_| request.udp.is_none()),
        window_scale,
        retransmits,
        cpu_seconds_per_gigabyte: PerEnd { near: per_gigabyte(&near), far: per_gigabyte(&far) },
        request,
        near_socket,
        findings,
        intervals,
        near,
        far,
        clock,
        path_report,
        blocks,
        latency,
        iperf3,
        estimate,
        ended,
        at_once,
    }
}

/// The test again, as it was judged when it was stored.
pub fn restore(stored: report::Run, hosts: &report::Hosts) -> Run {
    let (sender, receiver) = (hosts.name(stored.sender).to_owned(), hosts.name(stored.receiver).to_owned());
    let report::Run { request, handshake_rtt: rtt, near, far, clock, path_report, blocks, latency, .. } = stored;
    let report::Run { path, omit, findings, predicted, expected, iperf3, estimate, ended, at_once, .. } = stored;
    let measurement = Measurement {
        path: path_report,
        clock,
        blocks,
        latency,
        estimate,
        ended,
        at_once,
        ..Measurement::new(request, rtt, near, far)
    };
    // Of an iperf3 server's test the figures begin where the warm-up ended.
    let start_up = omit.map(|omit| if iperf3.is_some() { Duration::ZERO } else { omit });
    let mut evidence = Evidence::new(
        path,
        measurement.rtt,
        start_up,
        (&sender, measurement.sender()),
        (&receiver, measurement.receiver()),
        &hosts.far,
    );
    evidence.at_once = at_once;
    Run { measurement, evidence, findings, predicted, expected, iperf3 }
}

fn per_gigabyte(report: &EndReport) -> Option<Figure> {
    let cpu = report.cpu.map(|cpu| (cpu.user + cpu.system).as_secs_f64())?;
    Figure::new(cpu / (report.bytes as f64 / 1e9))
}

fn share(part: Duration, whole: Duration) -> Option<Ratio> {
    Ratio::new((part.as_secs_f64() / whole.as_secs_f64()).min(1.0))
}
