//! Why a plan is as it is, in sentences with the numbers they rest on.
//!
//! A plan that only gives numbers has to be believed; these let a reader check them. One function a reason, each silent
//! where it has nothing to say. They decide nothing: the plan is complete without them.

use super::{Plan, Wishes, minimal_window_scale};
use crate::tcp_model::{self, Congestion, Limit};
use crate::units::{Bytes, Ratio, show_duration};

/// Loss above which timeouts, not in the formulas, hold TCP back (Padhye et al., 1998).
const RARE_LOSS: f64 = 0.05;

/// All that is worth saying, the most telling first.
pub fn reasons(plan: &Plan, wishes: &Wishes) -> Vec<String> {
    [
        held_window(plan),
        loss(plan, wishes),
        start_up(plan),
        overflow(plan),
        streams(plan, wishes),
        scale(plan, wishes),
        frequent_loss(plan),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A window that is too small, and what would serve.
fn held_window(plan: &Plan) -> Option<String> {
    if plan.predicted.steady.limit != Limit::ReceiveWindow {
        return None;
    }
    let window = plan.predicted.window;
    let together = Bytes(window.0.saturating_mul(plan.streams.into()));
    let idle = plan.predicted.steady.idle_share.get() * 100.0;
    let cure = enough_streams(plan.bdp.0 as f64 / window.0 as f64);
    Some(format!(
        "receive window: {} in each RTT of {}, where {} fill the path: it idles {idle:.1} % of the time{cure}",
        together.exact(),
        show_duration(plan.rtt),
        plan.bdp.exact(),
    ))
}

/// What loss leaves of the congestion window.
fn loss(plan: &Plan, wishes: &Wishes) -> Option<String> {
    if plan.predicted.steady.limit != Limit::Loss {
        return None;
    }
    let (name, window) = match plan.predicted.congestion {
        Congestion::Reno => {
            ("reno (Mathis)", tcp_model::reno_window(plan.path.loss, 1 + u32::from(wishes.delayed_ack)))
        }
        _ => ("cubic (RFC 9438)", tcp_model::cubic_window(plan.path.loss, plan.rtt)),
    };
    let full = plan.payload_capacity.times(plan.rtt).0 as f64 / f64::from(plan.mss);
    let cure = enough_streams(full / window);
    Some(format!(
        "loss: at {} {name} keeps {window:.0} segments of each stream in flight, where {full:.0} fill the path{cure}",
        per_cent(plan.path.loss),
    ))
}

/// The streams that would fill the path together, if that is a number anyone would try.
fn enough_streams(wanted: f64) -> String {
    const MOST: f64 = 1000.0;
    if wanted <= MOST { format!("; {:.0} such streams would", wanted.ceil()) } else { String::new() }
}

/// The share of a transfer that start-up takes, where it takes much: cold case 1.
fn start_up(plan: &Plan) -> Option<String> {
    let (time, goodput) = (plan.predicted.time?, plan.predicted.average_goodput?);
    let before = plan.predicted.slow_start.saturating_add(plan.predicted.handshake);
    let share = before.as_secs_f64() / time.as_secs_f64();
    (share >= 0.1).then(|| {
        format!(
            "start-up: handshake and slow start are {:.0} % of the time, so this size averages {goodput}",
            share * 100.0
        )
    })
}

/// A window larger than path and queue together: cold case 3.
fn overflow(plan: &Plan) -> Option<String> {
    let queue = plan.path.queue?;
    let window = plan.predicted.window.0.saturating_mul(plan.streams.into());
    let room = plan.bdp.0.saturating_add(queue.0);
    (window > room).then(|| {
        format!(
            "queue: the window exceeds BDP and queue together by {}: expect loss at the queue, and less than predicted",
            Bytes(window - room).exact()
        )
    })
}

fn streams(plan: &Plan, wishes: &Wishes) -> Option<String> {
    if wishes.streams.is_some() || plan.streams == 1 {
        return None;
    }
    let why = if wishes.max_buffer <= super::MAX_WINDOW {
        format!("the largest buffer of {}", wishes.max_buffer)
    } else {
        format!("the largest window of {} (65,535 << 14)", super::MAX_WINDOW.exact())
    };
    Some(format!("streams: {}, since {why} is short of the {} in flight", plan.streams, plan.bdp.exact()))
}

/// Why this window scale and not one less.
fn scale(plan: &Plan, wishes: &Wishes) -> Option<String> {
    let (scale, buffer) = (plan.window_scale, plan.buffer);
    let offers = |scale: u8| Bytes(65_535 << scale).exact();
    if wishes.window_scale.is_some() {
        let serves = minimal_window_scale(buffer).filter(|least| *least > scale)?;
        return Some(format!(
            "window scale: {scale} offers at most {}, short of {}; {serves} would serve",
            offers(scale),
            buffer.exact()
        ));
    }
    let less = scale.checked_sub(1)?;
    Some(format!("window scale: 65,535 << {less} is {}, short of {}", offers(less), buffer.exact()))
}

fn frequent_loss(plan: &Plan) -> Option<String> {
    (plan.path.loss.get() > RARE_LOSS).then(|| {
        let rare = RARE_LOSS * 100.0;
        format!("timeouts: above {rare} % loss they hold TCP back, which no formula here counts: expect less")
    })
}

/// Per cent with three significant digits: a loss or its budget is a very small number.
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
