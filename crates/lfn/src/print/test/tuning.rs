//! Result of `lfn test --compare` as text.

use std::io;

use lfn_api::pictures::of_tuning;
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::evidence::HostNames;
use lfn_results::measure::{SocketReport, TestLoad};
use lfn_results::report::{KernelSetting, Run, TunedSetting, TuningComparison, TuningDocument};

use super::text::{finding_text, paragraphs, wrapped};
use crate::exit::Failure;
use crate::print;
use crate::print::output::Output;
use crate::print::terminal::wrap_columns;

/// Width of the label column and of a test's column.
const LABEL: usize = 13;
const CELL: usize = 20;

/// Prints the comparison and writes it to the file.
pub(super) fn finish(document: &TuningDocument, mut output: Output) -> Result<(), Failure> {
    output.set_album(|| of_tuning(document));
    output.finish(document, || show(document))
}

/// Prints a stored comparison as it was printed after its tests.
pub fn show(document: &TuningDocument) -> io::Result<()> {
    let hosts = &document.origin.hosts;
    let pages: Vec<String> = document.comparisons.iter().map(|pair| page(pair, hosts)).collect();
    print::result(&pages.join("\n"))
}

/// Returns the comparison of one direction.
fn page(pair: &TuningComparison, hosts: &HostNames) -> String {
    let mut page = format!("{}\n{}\n{}\n", head(&pair.now, hosts), headline(pair), table(pair));
    let tests = [("now", Some(&pair.now)), ("tuned", pair.tuned.as_ref())];
    for (name, run) in tests.into_iter().filter_map(|(name, run)| Some((name, run?))) {
        let text = match run.diagnosis.findings.iter().find(|finding| finding.is_limit()) {
            Some(finding) => finding_text(finding),
            None => format!("{}\n", run.diagnosis.verdict.summary),
        };
        page += &paragraphs(&format!("{name}: {text}"), wrap_columns());
    }
    page + &configuration(pair) + &unchanged_text(pair)
}

fn head(now: &Run, hosts: &HostNames) -> String {
    let load = match now.evidence.request.load {
        TestLoad::TimeSeconds(time) => format!("{} each", show_duration(time)),
        TestLoad::Records(count) => format!("{count} records each"),
        TestLoad::Bytes(bytes) => format!("{bytes} each"),
    };
    let streams = if now.evidence.request.streams == 1 {
        "1 stream".into()
    } else {
        format!("{} streams", now.evidence.request.streams)
    };
    let path = now.evidence.path.map(|path| format!(", capacity {}, BDP {}", path.capacity, path.bdp().decimal()));
    let ends = format!("{} to {}: {load}, {streams}", hosts.name(now.sender), hosts.name(now.receiver));
    let path = format!("RTT {}{}", show_duration(now.base_rtt), path.unwrap_or_default());
    wrapped("test", &ends) + &wrapped("path", &path)
}

/// Returns the line that the reader remembers: both goodputs in one unit, and their factor.
fn headline(pair: &TuningComparison) -> String {
    let Some(tuned) = &pair.tuned else {
        return format!("now {}, tuned not measured\n", pair.now.steady_goodput);
    };
    let [now, planned] = BitRate::in_common_unit([pair.now.steady_goodput, tuned.steady_goodput]);
    // The unit is printed once.
    let now = now.rsplit_once(' ').map_or(now.as_str(), |(number, _)| number);
    let difference = match pair.goodput_factor.map(|factor| factor.get()) {
        _ if !pair.is_faster() && !pair.is_slower() => ": no difference".to_owned(),
        Some(factor) if factor >= 10.0 => format!(": {factor:.0} times as much"),
        Some(factor) if factor >= 2.0 => format!(": {factor:.1} times as much"),
        Some(factor) => format!(": {:+.0} %", (factor - 1.0) * 100.0),
        None => String::new(),
    };
    format!("now {now}, tuned {planned}{difference}\n")
}

fn table(pair: &TuningComparison) -> String {
    let tuned = pair.tuned.as_deref();
    let mut page = line("", "now", Some("tuned").filter(|_| tuned.is_some()));
    let mut add = |label: &str, figure: &dyn Fn(&Run) -> String| {
        page += &line(label, &figure(&pair.now), tuned.map(figure).as_deref());
    };
    let digits = |rate: BitRate| fixed(rate, pair.now.steady_goodput.max(rate));
    add("goodput", &|run| digits(run.steady_goodput));
    add("limited by", &|run| limit(run));
    add("congestion", &|run| sender_socket(run).map_or("unknown".into(), |socket| socket.congestion.clone()));
    add("send buffer", &|run| {
        let socket = sender_socket(run);
        socket.map_or("unknown".into(), |socket| buffer(socket.sndbuf_requested_bytes, socket.sndbuf_granted_bytes))
    });
    add("recv buffer", &|run| {
        let socket = receiver_socket(run);
        socket.map_or("unknown".into(), |socket| buffer(socket.rcvbuf_requested_bytes, socket.rcvbuf_granted_bytes))
    });
    if pair.changes.iter().any(|change| change.setting == TunedSetting::ReceiveWindow) {
        add("recv window", &|run| match receiver_socket(run).and_then(|socket| socket.window_limit_bytes) {
            Some(limit) => format!("max {}", limit.decimal()),
            None => "autotuned".into(),
        });
    }
    add("resent", &|run| run.retransmits.map_or("unknown".into(), |count| format!("{count} segments")));
    page
}

fn line(label: &str, now: &str, tuned: Option<&str>) -> String {
    // A long cell has a gap behind it too.
    let now = format!("{now}  ");
    format!("{}\n", format!("{label:<LABEL$}{now:<CELL$}{}", tuned.unwrap_or_default()).trim_end())
}

/// Formats both rates of a line in the unit of the larger one.
fn fixed(rate: BitRate, larger: BitRate) -> String {
    let [shown, _] = BitRate::in_common_unit([rate, larger]);
    shown
}

fn limit(run: &Run) -> String {
    let summary = run.diagnosis.verdict.summary.as_str();
    let short = summary.split(" (").next().unwrap_or(summary).trim_start_matches("limited by ");
    short.split(',').next().unwrap_or(short).to_owned()
}

fn buffer(requested: Option<Bytes>, granted: Bytes) -> String {
    match requested {
        Some(_) => format!("{} set", granted.decimal()),
        None => format!("{} autotuned", granted.decimal()),
    }
}

fn sender_socket(run: &Run) -> Option<&SocketReport> {
    run.evidence.end(run.sender).streams.first()?.socket.as_ref()
}

fn receiver_socket(run: &Run) -> Option<&SocketReport> {
    run.evidence.end(run.receiver).streams.first()?.socket.as_ref()
}

/// Returns the commands that make the difference permanent, and those that undo it.
fn configuration(pair: &TuningComparison) -> String {
    if pair.configuration.is_empty() {
        return String::new();
    }
    let command = |setting: &KernelSetting, value: &str| {
        let quote = if value.contains(' ') { "'" } else { "" };
        format!("  sysctl -w {}={quote}{value}{quote}   # on {}\n", setting.key, setting.host)
    };
    let lines = |value: fn(&KernelSetting) -> &str| -> String {
        pair.configuration.iter().map(|setting| command(setting, value(setting))).collect()
    };
    format!(
        "\nto use these settings until the next boot, as root; to keep them, write KEY = VALUE to /etc/sysctl.d/90-lfn.conf:\n{}undo:\n{}",
        lines(|setting| &setting.value),
        lines(|setting| &setting.current),
    )
}

/// Explains a comparison without configuration.
fn unchanged_text(pair: &TuningComparison) -> String {
    let text = match &pair.tuned {
        None => return String::new(),
        Some(_) if pair.is_slower() => "the host's own settings are faster than the plan: keep them",
        Some(_) if !pair.is_faster() => "this host needs no tuning for this path",
        Some(_) if pair.configuration.is_empty() => {
            "only the limit of the receive window makes the difference; no kernel setting has this effect"
        }
        Some(_) => return String::new(),
    };
    format!("\n{}", paragraphs(&format!("{text}\n"), wrap_columns()))
}
