//! List of all findings (`--list-findings`): some lines for each cause, or one JSON object, schema `lfn.findings/1`.

use std::io::Write;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::diagnose::{BoundSide, FindingsDocument, ListedRule, ListedThreshold, list_findings};
use lfn_results::evidence::LoadKind;

use super::label_columns::Page;
use super::output::{Output, OutputFormat};
use crate::exit::Failure;

/// Prints the list of all findings.
pub fn print(output: Output) -> Result<(), Failure> {
    if !matches!(output.format(), OutputFormat::Text | OutputFormat::Json | OutputFormat::Ndjson) {
        let text = format!("--output {} cannot be used with --list-findings", output.format().name());
        return Err(Failure::usage(text).hint("use --output json"));
    }
    let document = list_findings();
    output.finish(&document, || super::out().write_all(page(&document).as_bytes()))
}

fn page(document: &FindingsDocument) -> String {
    let mut page = Page::default();
    for (number, finding) in document.findings.iter().enumerate() {
        if number > 0 {
            page.gap();
        }
        page.commands([format!("{}: {}", finding.name, finding.meaning)]);
        // A rule has a row for each kind of load.
        for rows in finding.rules.chunk_by(|a, b| (&a.thresholds, &a.source) == (&b.thresholds, &b.source)) {
            let Some(rule) = rows.first() else { continue };
            let loads: Vec<&str> = rows.iter().map(|row| load(row.load)).collect();
            page.row(&format!("  {}", loads.join(", ")), conditions(rule));
            if let Some(needs) = needs(rule) {
                page.row("    needs", needs);
            }
            if let Some(source) = &rule.source {
                page.row("    source", source);
            }
        }
    }
    page.text()
}

/// Returns the evidence without which the rule finds nothing.
fn needs(rule: &ListedRule) -> Option<String> {
    let one_of = (!rule.needs_one_of.is_empty()).then(|| format!("one of: {}", rule.needs_one_of.join(", ")));
    let needs: Vec<String> = rule.needs.iter().cloned().chain(one_of).collect();
    (!needs.is_empty()).then(|| needs.join("; "))
}

fn load(load: LoadKind) -> &'static str {
    match load {
        LoadKind::Tcp => "test",
        LoadKind::Datagrams => "UDP test",
        LoadKind::Copy => "copy",
        LoadKind::Capture => "captures",
        LoadKind::Couple => "coupled run",
    }
}

fn conditions(rule: &ListedRule) -> String {
    let texts: Vec<String> = rule.thresholds.iter().map(threshold).collect();
    texts.join("; ")
}

fn threshold(threshold: &ListedThreshold) -> String {
    let value = threshold.value.get();
    let value = match threshold.unit.as_str() {
        "share" => format!("{} %", trimmed(value * 100.0)),
        "factor" => trimmed(value),
        "seconds" => show_duration(Duration::try_from_secs_f64(value).unwrap_or_default()),
        "bits_per_second" => BitRate(value as u64).to_string(),
        "bytes" => Bytes(value as u64).decimal(),
        _ => format!("{value:.0}"),
    };
    let side = match threshold.bound {
        BoundSide::AtLeast => "at least",
        BoundSide::AtMost => "at most",
    };
    format!("{} {side} {value}", threshold.figure)
}

/// Formats a number with at most two places.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_printed_with_their_units() {
        let page = page(&list_findings());
        let words: Vec<&str> = page.split_whitespace().collect();
        let text = words.join(" ");
        for expected in [
            "receive window: the sender uses up the receive window",
            "goodput / (window / RTT under load) at least 85 %; change of the window / its median at most 10 %",
            "base RTT at least 1 ms",
            "or, with BBR: lost share at least 0.05 %",
            "other traffic at least 500 kb/s",
            "needs one of: interface counters of the sender, interface counters of the receiver",
            "source RFC 7323",
            "test, copy segments that arrived without an ECN codepoint",
        ] {
            assert!(text.contains(expected), "{expected}: {page}");
        }
    }
}
