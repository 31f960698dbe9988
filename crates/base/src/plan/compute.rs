//! Computation of a plan from a path.

use super::settings::DEFAULT_TCP_RMEM;
use super::{
    MAX_STREAMS, MAX_WINDOW, Plan, PlanError, PlanOptions, PlanPrediction, SCHEMA, compare_congestion, kernel_limit,
    linux_window_scale, minimal_window_scale, reasons, round_buffer,
};
use crate::path::PathProfile;
use crate::rfc6349;
use crate::tcp_model::{self, FlowParameters, Prediction, TransferPhases};
use crate::units::Bytes;

/// Plans for a path: settings of the hosts and the expected result.
pub fn plan(path: &PathProfile, options: &PlanOptions) -> Result<Plan, PlanError> {
    check_options(path, options)?;
    let bdp = path.bdp();
    let streams = choose_streams(bdp, options)?;
    let buffer = options.window.unwrap_or_else(|| stream_share(path, streams).min(largest_buffer(options)));
    let window_scale = options.window_scale.or_else(|| minimal_window_scale(buffer)).unwrap_or(14);
    let window = buffer.min(Bytes(65_535 << window_scale));
    let kernel_buffer = buffer.max(stream_share(path, streams).min(largest_buffer(options)));
    let kernel_max = Bytes(kernel_limit(kernel_buffer).0.min(options.max_buffer.0));
    let mut plan = Plan {
        schema: SCHEMA,
        rtt: path.base_rtt,
        capacity: path.capacity,
        payload_capacity: path.payload_capacity(),
        mss: path.mss(),
        bdp,
        streams,
        buffer,
        buffer_rounded: round_buffer(buffer).unwrap_or(MAX_WINDOW),
        kernel_buffer,
        memory_per_socket: kernel_max,
        window_scale,
        linux_window_scale: linux_window_scale(buffer),
        linux_autotuned_window_scale: linux_window_scale(kernel_max.max(Bytes(DEFAULT_TCP_RMEM[2]))),
        loss_budget: tcp_model::congestion_loss_budget(path, streams, options.congestion),
        congestion_controls: compare_congestion(path, streams),
        rfc6349_max_tcp: rfc6349::max_tcp_throughput(path),
        predicted: predicted(path, options, window, streams)?,
        reasons: Vec::new(),
        path: *path,
    };
    plan.reasons = reasons::reasons(&plan, options);
    Ok(plan)
}

/// Predicts the steady goodput of `streams` streams, each with this receive window (`None`: no limit), with Linux's
/// CUBIC.
pub fn predict_goodput(path: &PathProfile, window: Option<Bytes>, streams: u32) -> Prediction {
    tcp_model::predict_steady(path, &FlowParameters { window, streams, ..FlowParameters::default() })
}

fn check_options(path: &PathProfile, options: &PlanOptions) -> Result<(), PlanError> {
    if path.capacity.0 == 0 {
        return Err(PlanError::NoCapacity);
    }
    if path.base_rtt.is_zero() {
        return Err(PlanError::NoRtt);
    }
    if path.mss() == 0 {
        return Err(PlanError::HeadersFillMtu { mtu: path.mtu });
    }
    if path.loss.get() >= 1.0 {
        return Err(PlanError::TotalLoss);
    }
    for (wish, quantity) in [
        (options.size, "a transfer"),
        (options.window, "a receive window"),
        (Some(options.max_buffer), "a maximum buffer"),
        (options.streams.map(|n| Bytes(n.into())), "a stream count"),
        (Some(Bytes(options.initial_window.into())), "an initial window"),
    ] {
        if wish == Some(Bytes(0)) {
            return Err(PlanError::Zero { quantity });
        }
    }
    if let Some(scale) = options.window_scale.filter(|scale| *scale > 14) {
        return Err(PlanError::WindowScaleTooLarge { scale });
    }
    check_window(options)
}

fn check_window(options: &PlanOptions) -> Result<(), PlanError> {
    let Some(window) = options.window else { return Ok(()) };
    if window > MAX_WINDOW {
        return Err(PlanError::WindowUnreachable { window, streams: window.0.div_ceil(MAX_WINDOW.0) });
    }
    if window.0.saturating_mul(2) > options.max_buffer.0 {
        return Err(PlanError::WindowBeyondBuffer { window, max_buffer: options.max_buffer });
    }
    Ok(())
}

/// Returns the requested streams, or the smallest number that holds the BDP in maximum buffers.
fn choose_streams(bdp: Bytes, options: &PlanOptions) -> Result<u32, PlanError> {
    let buffer = largest_buffer(options);
    let needed = match (options.streams, options.window) {
        (Some(streams), _) => u64::from(streams),
        // A fixed receive window is a question about one stream, not a request to fill the path.
        (None, Some(_)) => 1,
        (None, None) => bdp.0.div_ceil(buffer.0).max(1),
    };
    match u32::try_from(needed) {
        Ok(streams) if streams <= MAX_STREAMS => Ok(streams),
        _ => Err(PlanError::TooManyStreams { bdp, streams: needed, buffer }),
    }
}

/// Returns the largest payload that a socket buffer may hold.
fn largest_buffer(options: &PlanOptions) -> Bytes {
    Bytes((options.max_buffer.0 / 2).max(1)).min(MAX_WINDOW)
}

/// Returns each stream's share of the BDP. The minimum is two segments, so that a delayed acknowledgement stops no
/// stream.
fn stream_share(path: &PathProfile, streams: u32) -> Bytes {
    Bytes(path.bdp().0.div_ceil(u64::from(streams)).max(u64::from(path.mss()) * 2))
}

fn predicted(
    path: &PathProfile,
    options: &PlanOptions,
    window: Bytes,
    streams: u32,
) -> Result<PlanPrediction, PlanError> {
    let PlanOptions { congestion, initial_window, delayed_ack, size, .. } = *options;
    let flow = FlowParameters {
        window: Some(window),
        streams,
        congestion,
        initial_window,
        delayed_ack,
        ..FlowParameters::default()
    };
    let steady = tcp_model::predict_steady(path, &flow);
    let endless = |size| PlanError::DurationTooLong { size, goodput: steady.goodput };
    let parts = match size {
        Some(size) => Some(tcp_model::transfer_time(path, &flow, size).ok_or_else(|| endless(size))?),
        None => None,
    };
    let time = parts.as_ref().map(TransferPhases::total);
    Ok(PlanPrediction {
        steady,
        window,
        congestion,
        time,
        slow_start: parts.map_or_else(|| tcp_model::slow_start_time(path, &flow), |parts| parts.slow_start),
        handshake: path.base_rtt,
        steady_time: parts.map(|parts| parts.steady),
        size,
        average_goodput: size.zip(time).map(|(size, time)| size.per(time)),
    })
}
