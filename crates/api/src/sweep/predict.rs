//! The prediction of a point: its goodput and the time of one run.

use std::time::Duration;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{FlowParameters, predict_steady, transfer_time};
use lfn_base::units::{BitRate, Bytes};
use lfn_campaign::summary::PlannedPoint;
use lfn_measure::tester;
use lfn_results::measure::{SocketRequest, TestDirection, TestLoad};
use lfn_results::prediction::{MSS_HEADERS, in_flight};

use crate::test::TestOptions;

/// Round trips of a run next to its load: the control connection, the streams, and the report of the server.
const ROUND_TRIPS: u32 = 4;

/// Returns the direction of the test of a point.
pub(super) fn direction(options: &TestOptions) -> TestDirection {
    options.directions.first().copied().unwrap_or(TestDirection::Forward)
}

/// Predicts a point. The time of a counted test needs the capacity and the RTT of the path.
pub(super) fn plan_point(options: &TestOptions, path: Option<PathProfile>) -> PlannedPoint {
    let path = path.filter(|path| !path.base_rtt.is_zero()).map(|path| with_mss(options, path));
    let round_trips = path.map_or(Duration::ZERO, |path| path.base_rtt.saturating_mul(ROUND_TRIPS));
    let flow = flow(options);
    let steady = path.map(|path| predict_steady(&path, &flow));
    let (predicted, load) = match options.request.load {
        TestLoad::TimeSeconds(time) => (steady.map(|steady| steady.goodput), Some(time)),
        counted => counted_load(&with_records(options, flow, path), path, counted.bytes(options.request.record)),
    };
    PlannedPoint {
        predicted,
        limit: steady.map(|steady| steady.limit),
        time: load.map(|load| load.saturating_add(round_trips)),
    }
}

/// Predicts the goodput of a whole counted test from the figures of its path; `None` for a timed test.
pub(super) fn predict_counted(options: &TestOptions, path: Option<PathProfile>) -> Option<BitRate> {
    let path = path.filter(|path| !path.base_rtt.is_zero()).map(|path| with_mss(options, path));
    let bytes = options.request.load.bytes(options.request.record)?;
    counted_load(&with_records(options, flow(options), path), path, Some(bytes)).0
}

/// Limits the first flight to its records. Each record below the MSS leaves as a segment of its own, and later records are
/// joined while they wait for an acknowledgement.
fn with_records(options: &TestOptions, flow: FlowParameters, path: Option<PathProfile>) -> FlowParameters {
    let Some(mss) = path.map(|path| u64::from(path.mss().max(1))) else { return flow };
    let record = options.request.record.0.min(mss);
    let initial = u64::from(flow.initial_window) * record / mss;
    FlowParameters { initial_window: u32::try_from(initial.max(1)).unwrap_or(flow.initial_window), ..flow }
}

fn counted_load(
    flow: &FlowParameters,
    path: Option<PathProfile>,
    bytes: Option<u64>,
) -> (Option<BitRate>, Option<Duration>) {
    let predicted = bytes.zip(path).and_then(|(bytes, path)| {
        let phases = transfer_time(&path, flow, Bytes(bytes))?;
        // The receiver counts from the first data to the last.
        let load = phases.slow_start.saturating_add(phases.steady);
        Some((Bytes(bytes).per(load), load))
    });
    predicted.unzip()
}

fn with_mss(options: &TestOptions, path: PathProfile) -> PathProfile {
    let mss = options.near_socket.mss.and_then(|mss| u32::try_from(mss.0).ok());
    PathProfile { mtu: mss.map_or(path.mtu, |mss| path.mtu.min(mss.saturating_add(MSS_HEADERS))), ..path }
}

fn flow(options: &TestOptions) -> FlowParameters {
    let (near, far) = (&options.near_socket, &options.request.socket);
    let (sender, receiver): (&SocketRequest, &SocketRequest) = match direction(options) {
        TestDirection::Forward => (near, far),
        TestDirection::Reverse => (far, near),
    };
    let requested = sender.congestion_of(0).map(CongestionRequest::name).map(str::to_owned);
    // The congestion control of the server is not known before the test.
    let own = || (direction(options) == TestDirection::Forward).then(|| tester::read_kernel().congestion);
    FlowParameters {
        window: receiver.window.or(receiver.rcvbuf),
        send_buffer: sender.sndbuf.map(in_flight),
        pace: sender.pacing_of(0),
        streams: options.request.streams.into(),
        congestion: requested.or_else(own).and_then(|name| name.parse().ok()).unwrap_or_default(),
        ..FlowParameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(record: u64, count: u64) -> f64 {
        let mut options = TestOptions::new("far");
        options.request.record = Bytes(record);
        options.request.load = TestLoad::Records(count);
        let path = PathProfile::new(BitRate(50_000_000), Duration::from_millis(40));
        plan_point(&options, Some(path)).predicted.unwrap().as_f64()
    }

    #[test]
    fn small_records_need_more_flights() {
        // Measured with 20 records: 0.362 Mb/s with 100 B. Ten records leave at first, the others after a round trip.
        assert!((0.2e6..0.6e6).contains(&predicted(100, 20)), "{}", predicted(100, 20));
        // Ten records are one flight, at the rate of the link.
        assert!(predicted(1448, 10) > 40e6, "{}", predicted(1448, 10));
        // Records above the MSS fill their segments.
        assert_eq!(predicted(1_000_000, 20), predicted(4_000_000, 5));
    }
}
