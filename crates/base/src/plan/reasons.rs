//! Reasons for the figures of a plan, as sentences with their numbers.
//!
//! A reader can check the plan with these numbers. Each function gives one reason, or none if the reason does not
//! apply. The reasons change no figure: the plan is complete without them.

use super::{Plan, PlanOptions, minimal_window_scale};
use crate::tcp_model::{self, Congestion, GoodputLimit};
use crate::units::{Bytes, Ratio, show_duration};

/// Loss above which timeouts, which the formulas do not include, limit TCP (Padhye et al., 1998).
const RARE_LOSS: f64 = 0.05;

/// Returns all reasons that apply, the most important first.
pub fn reasons(plan: &Plan, options: &PlanOptions) -> Vec<String> {
    [
        receive_window(plan),
        loss_window(plan, options),
        start_up(plan),
        queue_overflow(plan),
        stream_count(plan, options),
        window_scale(plan, options),
        frequent_loss(plan),
        doubled_buffers(plan),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Explains a receive window that is too small, and how many streams fill the path.
fn receive_window(plan: &Plan) -> Option<String> {
    if plan.predicted.steady.limit != GoodputLimit::ReceiveWindow {
        return None;
    }
    let window = plan.predicted.window;
    let together = Bytes(window.0.saturating_mul(plan.streams.into()));
    let idle = plan.predicted.steady.idle_share.get() * 100.0;
    let remedy = streams_that_fill(plan.bdp.0 as f64 / window.0 as f64);
    Some(format!(
        "receive window: {} per RTT of {}, but {} fill the path: the path is idle {idle:.1} % of the time{remedy}",
        together.exact(),
        show_duration(plan.rtt),
        plan.bdp.exact(),
    ))
}

/// Explains the congestion window under loss.
fn loss_window(plan: &Plan, options: &PlanOptions) -> Option<String> {
    if plan.predicted.steady.limit != GoodputLimit::Loss {
        return None;
    }
    let (name, window) = match plan.predicted.congestion {
        Congestion::Reno => {
            ("reno (Mathis)", tcp_model::reno_window(plan.path.loss, 1 + u32::from(options.delayed_ack)))
        }
        _ => ("cubic (RFC 9438)", tcp_model::cubic_window(plan.path.loss, plan.rtt)),
    };
    let full = plan.payload_capacity.times(plan.rtt).0 as f64 / f64::from(plan.mss);
    let remedy = streams_that_fill(full / window);
    Some(format!(
        "loss: with {} loss, {name} keeps {window:.0} segments per stream in flight, but {full:.0} fill the path{remedy}",
        per_cent(plan.path.loss),
    ))
}

/// Names the number of streams that fill the path together, if the number is realistic.
fn streams_that_fill(wanted: f64) -> String {
    const MAX_USEFUL: f64 = 1000.0;
    if wanted <= MAX_USEFUL { format!("; {:.0} streams fill it", wanted.ceil()) } else { String::new() }
}

/// Explains the share of start-up in a transfer, where the share is large.
fn start_up(plan: &Plan) -> Option<String> {
    let (time, goodput) = (plan.predicted.time?, plan.predicted.average_goodput?);
    let before = plan.predicted.slow_start.saturating_add(plan.predicted.handshake);
    let share = before.as_secs_f64() / time.as_secs_f64();
    (share >= 0.1).then(|| {
        format!(
            "start-up: handshake and slow start take {:.0} % of the time, so the average goodput is {goodput}",
            share * 100.0
        )
    })
}

/// Warns of a window larger than path and queue together.
fn queue_overflow(plan: &Plan) -> Option<String> {
    let queue = plan.path.queue?;
    let window = plan.predicted.window.0.saturating_mul(plan.streams.into());
    let room = plan.bdp.0.saturating_add(queue.0);
    (window > room).then(|| {
        format!(
            "queue: the window exceeds BDP plus queue by {}: expect loss at the queue and less goodput than predicted",
            Bytes(window - room).exact()
        )
    })
}

fn stream_count(plan: &Plan, options: &PlanOptions) -> Option<String> {
    if options.streams.is_some() || plan.streams == 1 {
        return None;
    }
    let limit = if options.max_buffer.0 / 2 <= super::MAX_WINDOW.0 {
        format!("half of the maximum buffer of {}", options.max_buffer)
    } else {
        format!("the maximum window of {} (65,535 << 14)", super::MAX_WINDOW.exact())
    };
    Some(format!("streams: {}, because {limit} is smaller than the {} in flight", plan.streams, plan.bdp.exact()))
}

/// Explains the window scale: the next smaller scale is not enough.
fn window_scale(plan: &Plan, options: &PlanOptions) -> Option<String> {
    let (scale, buffer) = (plan.window_scale, plan.buffer);
    let offers = |scale: u8| Bytes(65_535 << scale).exact();
    if options.window_scale.is_some() {
        let sufficient = minimal_window_scale(buffer).filter(|needed| *needed > scale)?;
        return Some(format!(
            "window scale: {scale} offers at most {}, less than {}; {sufficient} is enough",
            offers(scale),
            buffer.exact()
        ));
    }
    let less = scale.checked_sub(1)?;
    Some(format!("window scale: 65,535 << {less} is {}, less than {}", offers(less), buffer.exact()))
}

/// Explains the factor of two between the BDP and the kernel's limits.
fn doubled_buffers(plan: &Plan) -> Option<String> {
    Some(format!(
        "memory: Linux counts its own data in a socket buffer, so about half of the memory holds payload. The maximum \
of tcp_rmem and tcp_wmem is therefore twice {}. rmem_max and wmem_max limit the size that a program requests, which \
Linux doubles",
        plan.kernel_buffer.exact()
    ))
}

fn frequent_loss(plan: &Plan) -> Option<String> {
    (plan.path.loss.get() > RARE_LOSS).then(|| {
        let rare = RARE_LOSS * 100.0;
        format!(
            "timeouts: above {rare} % loss, timeouts limit TCP. The formulas do not include them: expect less goodput"
        )
    })
}

/// Formats per cent with three significant digits, because a loss or a loss budget is a very small number.
pub fn per_cent(ratio: Ratio) -> String {
    let value = ratio.get() * 100.0;
    if value >= 1e-3 {
        let decimals = (2.0 - value.log10().floor()).clamp(0.0, 6.0) as usize;
        let text = format!("{value:.decimals$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        format!("{text} %")
    } else {
        format!("{value:.2e} %")
    }
}
