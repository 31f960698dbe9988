//! A test for a person: a line an interval as it happens, then what it came to beside what was predicted, then why.
//!
//! A line needs both ends: goodput is the receiver's, the windows and round trips are the sender's.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use lfn_core::diagnose::Finding;
use lfn_core::path::PathProfile;
use lfn_core::tcp_model::Limit;
use lfn_core::units::{Bytes, show_duration};
use lfn_core::wire::test::{Direction, EndReport, Interval, Kernel, Load, SocketReport};
use lfn_net::tester::{Progress, Test};

use super::Run;

/// Columns of a terminal nobody has widened.
const WIDTH: usize = 80;
/// Columns of the labels.
const LABEL: usize = 12;

/// The table of one test as it grows.
#[derive(Default)]
pub struct Table {
    direction: Option<Direction>,
    near_name: String,
    far_name: String,
    intro: String,
    path: Option<PathProfile>,
    near: VecDeque<Interval>,
    far: VecDeque<Interval>,
    resent: u64,
    failed: Option<io::Error>,
}

impl Table {
    /// For a test that is to begin; `first` of one or two.
    pub fn new(test: &Test, near: &str, far: &str, first: bool) -> Self {
        let request = &test.request;
        let (from, to) = if request.direction == Direction::Forward { (near, far) } else { (far, near) };
        let load = match request.load {
            Load::TimeSeconds(time) => format!("{} of records of {}", show_duration(time), request.record),
            Load::Records(count) => format!("{count} records of {}", request.record),
        };
        let streams = if request.streams == 1 { "1 stream".into() } else { format!("{} streams", request.streams) };
        let gap = if first { "" } else { "\n" };
        Table {
            direction: Some(request.direction),
            near_name: near.into(),
            far_name: far.into(),
            intro: format!("{gap}{}", wrapped("test", &format!("{from} to {to}: {load}, {streams}"))),
            path: test.path,
            ..Table::default()
        }
    }

    /// Prints what can be printed by now. An error of the output waits for [`Table::finish`]: the test goes on.
    pub fn progress(&mut self, progress: &Progress<'_>) {
        let printed = match progress {
            Progress::Connected(rtt, kernel) => self.head(*rtt, kernel),
            Progress::Near(interval) => {
                self.near.push_back((*interval).clone());
                self.rows()
            }
            Progress::Far(interval) => {
                self.far.push_back((*interval).clone());
                self.rows()
            }
        };
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }

    /// Prints the summary and the findings.
    pub fn finish(&mut self, run: &Run) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (sender, receiver) = self.names();
        io::stdout().lock().write_all(summary(run, sender, receiver).as_bytes())
    }

    /// Sender and receiver.
    fn names(&self) -> (&str, &str) {
        match self.direction {
            Some(Direction::Reverse) => (&self.far_name, &self.near_name),
            _ => (&self.near_name, &self.far_name),
        }
    }

    fn head(&self, rtt: Duration, _far: &Kernel) -> io::Result<()> {
        let path = match self.path.map(|path| PathProfile { base_rtt: rtt, ..path }) {
            Some(path) => {
                format!("RTT {}, capacity {}, BDP {}", show_duration(rtt), path.capacity, path.bdp())
            }
            None => format!("RTT {}, capacity not known (--rate tells it): BDP after the run", show_duration(rtt)),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{}{}", self.intro, wrapped("path", &path))?;
        writeln!(
            out,
            "{:>15} {:>12} {:>7} {:>10} {:>10} {:>10}",
            "seconds", "goodput", "resent", "cwnd", "rwnd", "RTT"
        )?;
        out.flush()
    }

    /// The lines both ends have figures for.
    fn rows(&mut self) -> io::Result<()> {
        while let (Some(near), Some(far)) = (self.near.front(), self.far.front()) {
            let (sent, got) = if self.direction == Some(Direction::Forward) { (near, far) } else { (far, near) };
            let resent = sent.streams.iter().map(|s| u64::from(s.tcp_info.retransmitted_segments)).sum();
            let line = row(sent, got, resent - self.resent.min(resent));
            self.resent = resent;
            self.near.pop_front();
            self.far.pop_front();
            let mut out = io::stdout().lock();
            out.write_all(line.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

fn row(sent: &Interval, got: &Interval, resent: u64) -> String {
    let time = got.end.saturating_sub(got.start);
    let cwnd: u64 = sent.streams.iter().map(|stream| stream.tcp_info.cwnd().0).sum();
    let rwnd: Option<u64> = sent.streams.iter().map(|stream| stream.tcp_info.snd_wnd_bytes.map(u64::from)).sum();
    let rtts: Duration = sent.streams.iter().map(|stream| stream.tcp_info.rtt).sum();
    let rtt = rtts / u32::try_from(sent.streams.len()).unwrap_or(1).max(1);
    format!(
        "{:>15} {:>12} {resent:>7} {:>10} {:>10} {:>10}\n",
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        Bytes(got.bytes).per(time).to_string(),
        decimal(cwnd),
        rwnd.map_or("-".into(), decimal),
        show_duration(rtt),
    )
}

fn summary(run: &Run, sender: &str, receiver: &str) -> String {
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
            Limit::Loss => "loss",
        };
        line(
            "predicted",
            format!("{}, limited by {limit}; {:.1} % of it measured", predicted.goodput, measured * 100.0),
        );
    }
    let bdp = evidence.judged_goodput().times(evidence.base_rtt);
    line("in flight", format!("{bdp}: goodput x least RTT, {}", show_duration(evidence.base_rtt)));
    line("sender", end(sender, run.measurement.sender(), true));
    line("receiver", end(receiver, run.measurement.receiver(), false));
    line("TCP", tcp(run));
    page.push('\n');
    page += &verdict(run);
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
        if run.evidence.possible().is_some_and(|possible| goodput.as_f64() > TOO_GOOD * possible.as_f64()) {
            return format!("goodput {goodput}{possible}: the path carries more than the capacity that was given\n");
        }
        return format!("goodput {goodput}{possible}: nothing found that holds it back\n");
    };
    let mut text = format!("goodput {goodput}{possible}: {}", because(first));
    for finding in more {
        text += &format!("also: {}", because(finding));
    }
    text
}

fn because(finding: &Finding) -> String {
    format!("{}. {}\nhint: {}\n", finding.cause.name(), finding.summary, finding.cure)
}

/// One end: processor time, and the buffers with what was asked and granted.
fn end(name: &str, report: &EndReport, sends: bool) -> String {
    let cpu = report.cpu.user + report.cpu.system;
    let busy = if report.elapsed.is_zero() { 0.0 } else { cpu.as_secs_f64() / report.elapsed.as_secs_f64() * 100.0 };
    let buffer = report.streams.first().map(|stream| buffer(&stream.socket, &report.kernel, sends)).unwrap_or_default();
    format!("{name}: {buffer}; CPU {busy:.0} %")
}

fn buffer(socket: &SocketReport, kernel: &Kernel, sends: bool) -> String {
    let (which, asked, granted, sysctl, cap) = if sends {
        ("send", socket.sndbuf_asked_bytes, socket.sndbuf_granted_bytes, "wmem_max", kernel.wmem_max_bytes)
    } else {
        ("receive", socket.rcvbuf_asked_bytes, socket.rcvbuf_granted_bytes, "rmem_max", kernel.rmem_max_bytes)
    };
    let buffer = match asked {
        None => format!("{which} buffer autotuned to {granted}"),
        Some(asked) if granted < asked => {
            format!("{which} buffer {asked} asked, {granted} granted (net.core.{sysctl} is {cap})")
        }
        // No socket has less than the kernel's own minimum.
        Some(asked) if granted > asked => format!("{which} buffer {asked} asked, {granted} granted"),
        Some(asked) => format!("{which} buffer {asked} asked and granted"),
    };
    let window = match (socket.window_asked_bytes, socket.window_bound_bytes) {
        (Some(window), _) if !sends => format!("window held at {} B, ", window.0),
        (None, Some(bound)) if !sends => format!("window bounded at {bound} by the plan, "),
        _ => String::new(),
    };
    let congestion = match &socket.congestion_asked {
        Some(asked) if *asked != socket.congestion => format!(", {} ({asked} asked)", socket.congestion),
        None if socket.congestion_planned.as_ref() == Some(&socket.congestion) => {
            format!(", {} by the plan", socket.congestion)
        }
        _ => format!(", {}", socket.congestion),
    };
    format!("{window}{buffer}{}", if sends { congestion } else { String::new() })
}

fn tcp(run: &Run) -> String {
    let sender = run.measurement.sender();
    let scale = run.window_scale().map_or("none".into(), |scale| scale.to_string());
    let sum = |figure: fn(&lfn_core::diagnose::Flow) -> Duration| -> f64 {
        run.evidence.flows.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let busy = sum(|flow| flow.busy).max(f64::MIN_POSITIVE);
    let share = |time: f64| format!("{:.0} %", (time / busy * 100.0).min(100.0));
    format!(
        "window scale {scale}, {} segments resent; stopped by rwnd {}, by send buffer {}",
        resent(sender),
        share(sum(|flow| flow.rwnd_limited)),
        share(sum(|flow| flow.sndbuf_limited)),
    )
}

/// Segments sent again in the whole test.
pub fn resent(sender: &EndReport) -> u64 {
    sender.streams.iter().map(|stream| u64::from(stream.tcp_info.retransmitted_segments)).sum()
}

fn label(name: &str) -> String {
    format!("{name:<LABEL$}")
}

/// A labelled line, broken between words where it would be too long.
fn wrapped(name: &str, text: &str) -> String {
    let mut page = label(name);
    let mut column = LABEL;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column + width > WIDTH && column > LABEL {
            page = format!("{}\n{}", page.trim_end(), label(""));
            column = LABEL;
        }
        page += &format!("{word} ");
        column += width + 1;
    }
    format!("{}\n", page.trim_end())
}

/// In SI alone, so that a column can be compared.
fn decimal(bytes: u64) -> String {
    // An odd number is never printed as a multiple of 1024.
    let text = Bytes(bytes | 1).to_string();
    if bytes < 1000 { format!("{bytes} B") } else { text }
}

/// To a tenth of a second, or as it is below one.
fn round(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100) }
}
