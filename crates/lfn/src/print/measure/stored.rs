//! Conversion of a finished test to its stored form and back.
//!
//! The measurement is destructured without `..`, so a new figure that is not stored does not compile.

use std::time::Duration;

use lfn_core::diagnose::{Evidence, NamedReport};
use lfn_core::report::{self, Figure, GoodputInterval, PerEnd, Side};
use lfn_core::units::Ratio;
use lfn_core::wire::measure::{EndReport, SocketRequest};
use lfn_net::tester::Measurement;

use super::{TestRun, text};

/// Returns the stored form of a test. `near_socket` has the options requested at this end, `omit` the start-up time set
/// by the user.
pub fn store(run: TestRun, near_socket: SocketRequest, omit: Option<Duration>) -> report::Run {
    let (retransmits, window_scale) = (text::resent(&run), run.window_scale());
    let TestRun { measurement, evidence, verdict, findings, predicted, expected, iperf3 } = run;
    let (bytes, elapsed) = (measurement.receiver().bytes, evidence.elapsed);
    let steady = evidence.steady;
    let intervals = measurement.receiver().intervals.iter().map(|i| GoodputInterval::new(i, steady.as_ref())).collect();
    let Measurement {
        request,
        rtt,
        near,
        far,
        clock,
        path: path_report,
        blocks,
        latency,
        estimate,
        ended,
        bidirectional: at_once,
    } = measurement;
    let (sender, receiver) = Side::sender_and_receiver(request.direction);
    report::Run {
        direction: request.direction,
        sender,
        receiver,
        goodput: evidence.goodput,
        steady_goodput: evidence.steady_goodput(),
        bytes,
        elapsed,
        steady,
        start_up_share: steady.and_then(|steady| share(steady.start, elapsed)),
        omit,
        base_rtt: evidence.base_rtt,
        handshake_rtt: rtt,
        bdp: evidence.path.map(|path| path.bdp()),
        measured_bdp: evidence.steady_goodput().times(evidence.base_rtt),
        path: evidence.path,
        predicted,
        expected,
        // The possible goodput of TCP does not apply to datagrams.
        possible_goodput: evidence.possible_goodput().filter(|_| request.udp.is_none()),
        window_scale,
        retransmits,
        cpu_seconds_per_gigabyte: PerEnd { near: per_gigabyte(&near), far: per_gigabyte(&far) },
        request,
        near_socket,
        verdict,
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
        bidirectional: at_once,
    }
}

/// Returns the test with its stored findings.
pub fn restore(stored: report::Run, hosts: &report::HostNames) -> TestRun {
    let (sender, receiver) = (hosts.name(stored.sender).to_owned(), hosts.name(stored.receiver).to_owned());
    let report::Run { request, handshake_rtt: rtt, near, far, clock, path_report, blocks, latency, .. } = stored;
    let report::Run {
        path,
        omit,
        verdict,
        findings,
        predicted,
        expected,
        iperf3,
        estimate,
        ended,
        bidirectional: at_once,
        ..
    } = stored;
    let measurement = Measurement {
        path: path_report,
        clock,
        blocks,
        latency,
        estimate,
        ended,
        bidirectional: at_once,
        ..Measurement::new(request, rtt, near, far)
    };
    // The figures of an iperf3 server's test start after the warm-up.
    let start_up = omit.map(|omit| if iperf3.is_some() { Duration::ZERO } else { omit });
    let mut evidence = Evidence::new(
        path,
        measurement.rtt,
        start_up,
        NamedReport::new(&sender, measurement.sender()),
        NamedReport::new(&receiver, measurement.receiver()),
        &hosts.far,
    );
    evidence.bidirectional = at_once;
    TestRun { measurement, evidence, verdict, findings, predicted, expected, iperf3 }
}

fn per_gigabyte(report: &EndReport) -> Option<Figure> {
    let cpu = report.cpu.map(|cpu| (cpu.user + cpu.system).as_secs_f64())?;
    Figure::new(cpu / (report.bytes as f64 / 1e9))
}

fn share(part: Duration, whole: Duration) -> Option<Ratio> {
    Ratio::new((part.as_secs_f64() / whole.as_secs_f64()).min(1.0))
}
