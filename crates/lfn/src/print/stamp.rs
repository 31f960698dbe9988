//! The result of `lfn test --stamp`: lines for a person, or one JSON object, schema `lfn.stamp/1`.

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::figure::Figure;
use lfn_core::stamp::report::{Distribution, Numbers, StampDocument, StampReport, StampSchema};
use lfn_core::units::show_duration;

use super::page::Page;
use super::test::Format;

pub fn print(report: StampReport, format: Format) -> io::Result<()> {
    if format == Format::Json {
        let mut out = super::json();
        serde_json::to_writer_pretty(&mut out, &StampDocument { schema: StampSchema::One, report })?;
        return writeln!(out);
    }
    super::out().write_all(page(&report).as_bytes())
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
        ("there", report.forward_variation, report.one_way.map(|one_way| one_way.forward)),
        ("back", report.back_variation, report.one_way.map(|one_way| one_way.back)),
    ] {
        if let Some(delay) = delay {
            page.row(label, format!("one-way delay {}", distribution(&delay)));
        }
        if let Some(variation) = variation {
            page.row(if delay.is_some() { "" } else { label }, format!("above its least: {}", above(&variation)));
        }
    }
    match report.one_way {
        Some(one_way) => page.row("clocks", format!("together wrong by at most {}", show(one_way.error_seconds))),
        None => page.row("clocks", "not both synchronised: no one-way delays, only their variation"),
    }
    page.row("reflector", reflector(report));
    page.text()
}

fn loss(report: &StampReport) -> String {
    let share = report.lost as f64 / (report.sent.max(1)) as f64 * 100.0;
    let ways = match (report.lost, report.lost_forward, report.lost_back) {
        (0, ..) => String::new(),
        (_, Some(forward), Some(back)) => format!(": {forward} there, {back} back"),
        _ => ", in which direction is not known".into(),
    };
    format!("{share:.2} %, {} of {}{ways}", report.lost, report.sent)
}

fn order(report: &StampReport) -> String {
    let ways = match (report.reordered, report.reordered_forward, report.reordered_back) {
        (0, ..) => String::new(),
        (_, Some(forward), Some(back)) => format!(": {forward} there, {back} back"),
        _ => String::new(),
    };
    format!("{} reordered{ways}", report.reordered)
}

fn reflector(report: &StampReport) -> String {
    let numbers = match report.numbers {
        Numbers::Counted => "counts what it reflects",
        Numbers::Copied => "does not count what it reflects",
        Numbers::Unknown => "was not asked whether it counts",
    };
    let held = report.held.map(|held| format!(", held packets for {}", show(held.p50_seconds))).unwrap_or_default();
    let hops = report.forward_hops.map(|hops| format!(", {hops} routers away")).unwrap_or_default();
    let nonsense = match report.nonsense {
        0 => String::new(),
        count => format!("; {count} datagrams were no answer to anything"),
    };
    format!("{numbers}{held}{hops}{nonsense}")
}

fn distribution(delay: &Distribution) -> String {
    format!("least {}, {}", show(delay.min_seconds), above(delay))
}

fn above(delay: &Distribution) -> String {
    let Distribution { p50_seconds, p95_seconds, p99_seconds, max_seconds, .. } = *delay;
    format!(
        "median {}, 95 % {}, 99 % {}, most {}",
        show(p50_seconds),
        show(p95_seconds),
        show(p99_seconds),
        show(max_seconds)
    )
}

/// One-way delays may come out negative, by as much as the clocks are apart.
fn show(seconds: Figure) -> String {
    let seconds = seconds.get();
    let text = show_duration(Duration::try_from_secs_f64(seconds.abs()).unwrap_or_default());
    if seconds < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_said() {
        let rtt = Distribution { min_seconds: Figure::new(-0.001).unwrap(), ..Distribution::default() };
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
            numbers: Numbers::Counted,
            duplicates: 0,
            reordered: 0,
            reordered_forward: None,
            reordered_back: None,
            nonsense: 0,
            rtt: Some(rtt),
            held: None,
            forward_variation: None,
            back_variation: None,
            one_way: None,
            forward_hops: Some(2),
        };
        let text = page(&report);
        assert!(text.contains("1.50 %, 3 of 200: 1 there, 2 back"), "{text}");
        assert!(text.contains("least -1 ms") && text.contains("2 routers away"), "{text}");
        assert!(text.contains("not both synchronised") && !text.contains("there  "), "{text}");
        (report.lost_forward, report.lost_back) = (None, None);
        assert!(page(&report).contains("3 of 200, in which direction is not known"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
