//! The result of `lfn test --stamp`: lines for a person, or one JSON object, schema `lfn.stamp/2`.

use std::io::Write;
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::show_duration;
use lfn_measure::proto::stamp::report::{DelayDistribution, ReflectorNumbering, StampDocument, StampReport};

use super::label_columns::Page;
use super::output::Output;
use crate::exit::Failure;

/// Prints the report of a STAMP session as text or JSON.
pub fn print(document: &StampDocument, output: Output) -> Result<(), Failure> {
    output.finish(document, || super::out().write_all(page(&document.report).as_bytes()))
}

fn page(report: &StampReport) -> String {
    let mut page = Page::default();
    let key = if report.authenticated { ", authenticated" } else { "" };
    page.row(
        "STAMP",
        format!(
            "{}: {} packets of {} B, one every {}{key}",
            report.reflector,
            report.sent,
            report.packet_bytes,
            show_duration(report.interval)
        ),
    );
    page.row("loss", loss(report));
    page.row("order", format!("{} duplicates, {}", report.duplicates, order(report)));
    if let Some(rtt) = report.rtt {
        page.row("RTT", distribution(&rtt));
    }
    for (label, variation, delay) in [
        ("forward", report.forward_variation, report.one_way.map(|one_way| one_way.forward)),
        ("back", report.back_variation, report.one_way.map(|one_way| one_way.back)),
    ] {
        if let Some(delay) = delay {
            page.row(label, format!("one-way delay {}", distribution(&delay)));
        }
        if let Some(variation) = variation {
            page.row(
                if delay.is_some() { "" } else { label },
                format!("above the minimum: {}", percentiles(&variation)),
            );
        }
    }
    match report.one_way {
        Some(one_way) => page.row("clocks", format!("maximum error of both together {}", show(one_way.error_seconds))),
        None => page.row("clocks", "not both synchronised: one-way delays are unknown, only their variation is"),
    }
    page.row("reflector", reflector(report));
    page.text()
}

fn loss(report: &StampReport) -> String {
    let share = report.lost as f64 / (report.sent.max(1)) as f64 * 100.0;
    let directions = match (report.lost, report.lost_forward, report.lost_back) {
        (0, ..) => String::new(),
        (_, Some(forward), Some(back)) => format!(": {forward} forward, {back} back"),
        _ => ", direction unknown".into(),
    };
    format!("{share:.2} %, {} of {}{directions}", report.lost, report.sent)
}

fn order(report: &StampReport) -> String {
    let directions = match (report.reordered, report.reordered_forward, report.reordered_back) {
        (0, ..) => String::new(),
        (_, Some(forward), Some(back)) => format!(": {forward} forward, {back} back"),
        _ => String::new(),
    };
    format!("{} reordered{directions}", report.reordered)
}

fn reflector(report: &StampReport) -> String {
    let numbers = match report.sequence_numbers {
        ReflectorNumbering::Counted => "numbers its packets",
        ReflectorNumbering::Copied => "copies the numbers of the packets",
        ReflectorNumbering::Unknown => "numbering unknown",
    };
    let delay = report
        .reflector_delay
        .map(|delay| format!(", delay in the reflector {}", show(delay.p50_seconds)))
        .unwrap_or_default();
    let hops = report.forward_hops.map(|hops| format!(", {hops} routers on the forward path")).unwrap_or_default();
    let unmatched = match report.unmatched {
        0 => String::new(),
        count => format!("; {count} datagrams matched no packet"),
    };
    format!("{numbers}{delay}{hops}{unmatched}")
}

fn distribution(delay: &DelayDistribution) -> String {
    format!("min {}, {}", show(delay.min_seconds), percentiles(delay))
}

fn percentiles(delay: &DelayDistribution) -> String {
    let DelayDistribution { p50_seconds, p95_seconds, p99_seconds, max_seconds, .. } = *delay;
    format!(
        "median {}, 95 % {}, 99 % {}, max {}",
        show(p50_seconds),
        show(p95_seconds),
        show(p99_seconds),
        show(max_seconds)
    )
}

/// Formats a delay. A one-way delay may be negative, up to the error of the clocks.
fn show(seconds: Figure) -> String {
    let seconds = seconds.get();
    let text = show_duration(Duration::try_from_secs_f64(seconds.abs()).unwrap_or_default());
    if seconds < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_figures_are_not_printed() {
        let rtt = DelayDistribution { min_seconds: Figure::new(-0.001).unwrap(), ..DelayDistribution::default() };
        let mut report = StampReport {
            reflector: "192.0.2.1:862".parse().unwrap(),
            packet_bytes: 44,
            interval: Duration::from_millis(10),
            authenticated: false,
            sent: 200,
            answered: 197,
            lost: 3,
            lost_forward: Some(1),
            lost_back: Some(2),
            sequence_numbers: ReflectorNumbering::Counted,
            duplicates: 0,
            reordered: 0,
            reordered_forward: None,
            reordered_back: None,
            unmatched: 0,
            rtt: Some(rtt),
            reflector_delay: None,
            forward_variation: None,
            back_variation: None,
            one_way: None,
            forward_hops: Some(2),
        };
        let text = page(&report);
        assert!(text.contains("1.50 %, 3 of 200: 1 forward, 2 back"), "{text}");
        assert!(text.contains("min -1 ms") && text.contains("2 routers on the forward path"), "{text}");
        assert!(text.contains("not both synchronised") && !text.contains("forward  "), "{text}");
        report.lost_forward = None;
        report.lost_back = None;
        assert!(page(&report).contains("3 of 200, direction unknown"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
