//! What a test came to, beside what was predicted, and why.

use std::time::Duration;

use lfn_core::iperf3::Protocol;
use lfn_core::report::Finding;
use lfn_core::tcp_model::Limit;
use lfn_core::units::{BitRate, show_duration};

use super::ends::{end, server};
use super::host::hosts;
use super::layout::{paragraphs, round, wrapped};
use crate::print::terminal::breaks_at;
use crate::print::test::Run;

pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    // Of an iperf3 server's datagrams only the totals are known.
    if run.measurement.request.udp.is_some() && run.iperf3.is_none() {
        return super::udp::summary(run, sender, receiver);
    }
    let evidence = &run.evidence;
    let mut page = String::from("\n");
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    let whole = format!("{} over all {}", evidence.goodput, show_duration(evidence.elapsed));
    line("goodput", whole + &past_start_up(run));
    if let Some(predicted) = run.predicted {
        let measured = evidence.judged_goodput().as_f64() / predicted.goodput.as_f64().max(1.0);
        let limit = match predicted.limit {
            Limit::Capacity => "capacity",
            Limit::ReceiveWindow => "the receive window",
            Limit::SendBuffer => "the send buffer",
            Limit::Pacing => "pacing",
            Limit::Loss => "loss",
            Limit::Asked => "the rate asked",
        };
        let between = run.expected.as_ref().map(|all| format!(" ({} to {})", all.least, all.most)).unwrap_or_default();
        line(
            "predicted",
            format!("{}{between}, limited by {limit}; {:.1} % of it measured", predicted.goodput, measured * 100.0),
        );
    }
    let bdp = evidence.judged_goodput().times(evidence.base_rtt);
    line("in flight", format!("{bdp}: goodput x least RTT, {}", show_duration(evidence.base_rtt)));
    line("sender", end(sender, run.measurement.sender(), true));
    line("receiver", end(receiver, run.measurement.receiver(), false));
    if let Some(server) = server(&run.measurement.far) {
        line("server", server);
    }
    match &run.iperf3 {
        Some(iperf3) if iperf3.protocol == Protocol::Udp => {}
        _ => line("TCP", tcp(run)),
    }
    page += &super::load::load(run);
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    for (name, text) in run.iperf3.iter().flat_map(super::iperf3::lines) {
        line(name, text);
    }
    if let Some(path) = &run.measurement.path {
        page += &super::path::path(path);
    }
    page += &hosts(run);
    if let Some(latency) = &run.measurement.latency {
        page += &super::latency::lines(latency);
    }
    page.push('\n');
    page += &paragraphs(&verdict(run), breaks_at());
    page += &run.iperf3.as_ref().map(super::iperf3::printed).unwrap_or_default();
    page
}

fn past_start_up(run: &Run) -> String {
    match run.evidence.steady {
        Some(steady) if !steady.start.is_zero() => {
            format!(", {} past start-up ({})", steady.goodput, show_duration(round(steady.start)))
        }
        Some(_) => String::new(),
        None => ", no part past start-up".into(),
    }
}

/// More than this share of what is possible is not measurement error: the capacity given was wrong.
const TOO_GOOD: f64 = 1.05;

/// `goodput A of B possible: cause. Why.` and the cure; then any further findings.
fn verdict(run: &Run) -> String {
    let goodput = run.evidence.judged_goodput();
    let possible = run.evidence.possible().map(|possible| format!(" of {possible} possible")).unwrap_or_default();
    let Some((first, more)) = run.findings.split_first() else {
        let beyond = |most: BitRate| goodput.as_f64() > TOO_GOOD * most.as_f64();
        let capacity = run.evidence.path.map(|path| path.payload_capacity());
        if capacity.is_some_and(beyond) {
            return format!("goodput {goodput}{possible}: the path carries more than the capacity that was given\n");
        }
        if run.evidence.possible().is_some_and(beyond) {
            return format!("goodput {goodput}{possible}: more than the formulas allow a path of this loss\n");
        }
        return format!("goodput {goodput}{possible}: nothing found that holds it back\n");
    };
    let mut text = format!("goodput {goodput}{possible}: {}", because(first));
    for finding in more {
        text += &format!("also: {}", because(finding));
    }
    text
}

pub(super) fn because(finding: &Finding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.cure)
}

fn tcp(run: &Run) -> String {
    let resent = resent(run).map_or("unknown".into(), |resent| resent.to_string());
    if run.measurement.sender().streams.iter().all(|stream| stream.tcp_info.is_none()) {
        return format!("the sender's kernel is not known; {resent} segments resent");
    }
    let scale = run.window_scale().map_or("none".into(), |scale| scale.to_string());
    let sum = |figure: fn(&lfn_core::diagnose::Flow) -> Duration| -> f64 {
        run.evidence.flows.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let busy = sum(|flow| flow.busy).max(f64::MIN_POSITIVE);
    let share = |time: f64| format!("{:.0} %", (time / busy * 100.0).min(100.0));
    format!(
        "window scale {scale}, {resent} segments resent; stopped by rwnd {}, by send buffer {}",
        share(sum(|flow| flow.rwnd_limited)),
        share(sum(|flow| flow.sndbuf_limited)),
    )
}

/// Segments sent again in the whole test, if the sender tells.
pub fn resent(run: &Run) -> Option<u64> {
    let streams = &run.measurement.sender().streams;
    let told = streams.iter().filter_map(|stream| Some(u64::from(stream.tcp_info.as_ref()?.retransmitted_segments)));
    told.reduce(|a, b| a + b).or(run.iperf3.as_ref().and_then(|iperf3| iperf3.retransmits))
}
