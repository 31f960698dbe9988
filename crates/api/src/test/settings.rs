//! The settings of one test, made from the options of the call.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::plan::recommend_congestion;
use lfn_base::tcp_model::Congestion;
use lfn_base::units::Ratio;
use lfn_measure::tester::{self, Test};
use lfn_results::measure::TestDirection;

use super::options::TestOptions;
use super::path::KnownPaths;

/// Returns the test in this direction.
pub(super) fn settings(
    options: &TestOptions,
    paths: KnownPaths,
    direction: TestDirection,
    stop: &Arc<AtomicBool>,
) -> Test {
    with_loss(options, paths, direction, None, stop)
}

/// Returns the test in this direction. If a loss was measured, the plan is for a path with at least this loss.
pub(super) fn with_loss(
    options: &TestOptions,
    paths: KnownPaths,
    direction: TestDirection,
    measured_loss: Option<Ratio>,
    stop: &Arc<AtomicBool>,
) -> Test {
    let mut request = options.request(direction);
    let mut near_socket = options.near_socket.clone();
    let path = paths.get(direction);
    if let (true, Some(mut planned_path)) = (options.tuned && near_socket.congestion.is_empty(), path) {
        if let Some(loss) = measured_loss.filter(|loss| *loss > planned_path.loss) {
            planned_path.loss = loss;
        }
        // The host keeps its own congestion control unless the plan gives a better one for the loss of the path.
        let own = tester::read_kernel().congestion.parse().ok();
        let planned = recommend_congestion(&planned_path, request.streams.into(), &Congestion::ALL, own);
        let planned: Vec<_> = planned.iter().map(|planned| CongestionRequest::Planned(planned.to_string())).collect();
        request.socket.congestion.clone_from(&planned);
        near_socket.congestion = planned;
    }
    Test {
        request,
        near_socket,
        // The prediction is for the path as it was given.
        path,
        tuned: options.tuned,
        round_to_rtt: options.round_to_rtt,
        target_precision: options.target_precision,
        omit: options.omit,
        stop: Arc::clone(stop),
    }
}
