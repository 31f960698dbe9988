//! `lfn trace`: converts the flags to the options of `lfn_api::trace`, and prints its result.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_api::pictures::{Album, TimeRange, of_trace};
use lfn_api::trace::{ConnectionFilter, LiveOptions, LiveProgress, TraceInput, TraceOptions, Traced, trace};
use lfn_base::units::{Bytes, parse_duration, show_duration};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrLines};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::OutputFormat;
use crate::print::trace::{FlaggedPacketPrinter, TracePrinter};

/// Points of each curve of a picture.
const SERIES_POINTS: usize = 2000;

/// Find the cause that limited each connection of a packet capture
///
/// Reads captures of tcpdump, dumpcap and Wireshark (pcap and pcapng, also .gz and .zst). Prints for each TCP connection
/// the limit with its periods, evidence, confidence and remedy. Several files are parts of one capture. Capture 128
/// bytes of each packet: tcpdump -i eth0 -s 128 -w capture.pcap tcp
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// Files of one capture, in any order; - reads standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["near", "far", "live", "list_findings"])]
    #[arg(conflicts_with_all = ["near", "far", "live", "list_findings"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// List all findings with their thresholds, evidence and sources, and exit
    #[arg(long)]
    list_findings: bool,
    #[command(flatten)]
    plot: PlotArgs,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    output: OutputArgs<TextOrLines>,
}

/// Flags for other sources than files of one capture.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Source")]
struct SourceArgs {
    /// Compare with --far: the capture of the same packets near you
    ///
    /// The comparison shows where packets were lost, and the delays of each direction. The near capture is analysed.
    #[arg(long, value_name = "FILE", requires = "far", conflicts_with = "live")]
    near: Option<PathBuf>,
    /// Compare with --near: the capture of the same packets at the other end
    #[arg(long, value_name = "FILE", requires = "near", conflicts_with = "live")]
    far: Option<PathBuf>,
    /// Capture on this interface, until --time or Ctrl-C; needs root or CAP_NET_RAW
    #[arg(long, value_name = "IFACE")]
    live: Option<String>,
    /// Set the time of a live capture [default: until Ctrl-C]
    #[arg(short, long, value_name = "DURATION", requires = "live", allow_hyphen_values = true)]
    time: Option<String>,
}

/// Flags for the time that the pictures show.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
struct RangeArgs {
    /// Draw from this time since the first packet of a connection [default: 0s]
    #[arg(long, value_name = "DURATION", requires = "plot", allow_hyphen_values = true)]
    from: Option<String>,
    /// Draw to this time since the first packet of a connection [default: its end]
    #[arg(long, value_name = "DURATION", requires = "plot", allow_hyphen_values = true)]
    to: Option<String>,
}

/// Flags for the connections and packets of the result.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Selection")]
struct SelectionArgs {
    /// Analyse only connections of this host: a name or an address
    #[arg(long, value_name = "HOST")]
    filter: Option<String>,
    /// Analyse only connections with this port
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// Print this many connections, the largest first; JSON has up to 1,000
    #[arg(long, value_name = "N", default_value_t = 10)]
    connections: usize,
    /// Print each packet that has a flag of Wireshark (tcp.analysis)
    #[arg(long)]
    flags: bool,
}

const EXAMPLES: &str = "Examples:
  tcpdump -i eth0 -s 128 -w slow.pcap tcp     captures until Ctrl-C
  lfn trace slow.pcap
  lfn trace slow.pcap.gz --json
  lfn trace slow.pcap --flags --connections 1
  lfn trace slow.pcap --plot pictures
  lfn trace slow.pcap --plot slow.svg --from 2s --to 3s
  ssh far.example tcpdump -i eth0 -s 128 -w - tcp | lfn trace -
  lfn trace --live eth0 --filter far.example --time 30s
  lfn trace --near near.pcap --far far.pcap

Exit codes: 0 analysed, with or without findings; 1 a file cannot be read, or is not a capture; 2 usage; 4 analysed, but \
not reliable: a capture is damaged or cut off; 130 interrupted.";

/// Runs `lfn trace` and returns its exit code.
pub fn run(args: TraceArgs) -> Result<Exit, Failure> {
    let mut output = args.output.open()?;
    if args.list_findings {
        return print::findings::print(output).map(|()| Exit::Ok);
    }
    let options = args.options()?;
    if args.selection.flags && output.format() == OutputFormat::Json {
        let text = "--flags cannot be used with --output json";
        return Err(Failure::usage(text).hint("use --output ndjson: one line for each packet"));
    }
    let range = args.range()?;
    let pictures = args.plot.create()?;
    let stop = listen()?;
    let mut flagged = FlaggedPacketPrinter::new(args.selection.flags, output.format());
    let traced = trace(&options, &stop, &mut |packet| {
        if !flagged.print(packet) {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    if args.source.live.is_some() && print::terminal::stderr_is_terminal() {
        print::draw_stderr("\n");
    }
    let has_flags = flagged.finish()?;
    let albums = if pictures.is_some() || output.has_page() { albums(&traced, range) } else { Vec::new() };
    output.set_album(|| joined(&albums));
    let exit = args.exit(&traced, stop.load(Ordering::Relaxed));
    for file in &traced.document.files {
        if let Some(damage) = &file.damage {
            let (name, packets) = (&file.name, file.packets);
            print::error(format_args!("lfn: {name}: {damage}; the result has the {packets} packets before\n"));
        }
    }
    TracePrinter { connections: args.selection.connections, has_flags }.print(traced.document, output)?;
    if let Some(pictures) = pictures {
        pictures.write(&albums, &no_picture(range))?;
    }
    Ok(exit)
}

/// Returns the charts of the largest connections. The names of their files have the number of the connection.
fn albums(traced: &Traced, range: Option<TimeRange>) -> Vec<(String, Album)> {
    let connections = of_trace(traced, range).into_iter();
    connections.map(|connection| (format!("connection-{}-", connection.number), connection.album)).collect()
}

/// Returns the charts of all connections in one album.
fn joined(albums: &[(String, Album)]) -> Album {
    let charts = albums.iter().flat_map(|(prefix, album)| {
        let connection = prefix.trim_end_matches('-').replace('-', " ");
        album.charts.iter().cloned().map(move |mut chart| {
            chart.panel.name = format!("{} ({connection})", chart.panel.name);
            chart
        })
    });
    Album { charts: charts.collect(), ..Album::default() }
}

/// Returns the reason why there is no picture.
fn no_picture(range: Option<TimeRange>) -> String {
    let from = range.map_or(Duration::ZERO, |range| range.from);
    let after = if from.is_zero() { String::new() } else { format!(" after {}", show_duration(from)) };
    format!("the capture has no TCP connection with data{after}")
}

impl TraceArgs {
    /// Returns the options of the analysis.
    fn options(&self) -> Result<TraceOptions, Failure> {
        let source = &self.source;
        self.check_combinations()?;
        let input = match (&source.near, &source.far, &source.live) {
            (Some(near), Some(far), _) => TraceInput::Pair { near: near.clone(), far: far.clone() },
            (_, _, Some(interface)) => {
                let (interface, time) = (interface.clone(), self.time()?);
                TraceInput::Live(LiveOptions { interface, time, on_progress: print_progress })
            }
            _ => TraceInput::Files(self.files.clone()),
        };
        let mut options = TraceOptions::new(input);
        options.filter = ConnectionFilter::new(self.selection.filter.as_deref(), self.selection.port)?;
        if self.plot.plot.is_some() {
            options.analysis.series_points = SERIES_POINTS;
        }
        if let Some(range) = self.range()? {
            options.analysis.series_from = range.from;
            options.analysis.series_to = range.to;
        }
        Ok(options)
    }

    /// Returns an error for flags that need another one. clap permits them if a file is also given.
    fn check_combinations(&self) -> Result<(), Failure> {
        let source = &self.source;
        if source.time.is_some() && source.live.is_none() {
            let failure = Failure::usage("--time is the time of a live capture, and needs --live");
            return Err(failure.hint("lfn trace --live eth0 --time 30s; for the pictures of a file: --from 2s --to 3s"));
        }
        Ok(())
    }

    /// Returns the time that the pictures show; none for the whole connection.
    fn range(&self) -> Result<Option<TimeRange>, Failure> {
        let parse = |flag: &str, text: &Option<String>| {
            let time = text.as_deref().map(parse_duration).transpose();
            time.map_err(|error| Failure::usage(format!("{flag}: {error}")).hint("--from 2s --to 3s"))
        };
        let (from, to) = (parse("--from", &self.range.from)?, parse("--to", &self.range.to)?);
        if from.is_none() && to.is_none() {
            return Ok(None);
        }
        let range = TimeRange { from: from.unwrap_or_default(), to: to.unwrap_or(Duration::MAX) };
        if range.to <= range.from {
            return Err(Failure::usage("--to must be later than --from").hint("--from 2s --to 3s"));
        }
        Ok(Some(range))
    }

    fn time(&self) -> Result<Option<Duration>, Failure> {
        let Some(text) = &self.source.time else { return Ok(None) };
        let failure = |error: String| Failure::usage(format!("--time: {error}")).hint("--time 30s");
        let time = parse_duration(text).map_err(|error| failure(error.to_string()))?;
        if time.is_zero() {
            return Err(failure(format!("'{text}': the time must be above zero")));
        }
        Ok(Some(time))
    }

    /// Returns the exit code. Ctrl-C is the usual end of a live capture without `--time`.
    fn exit(&self, traced: &Traced, is_stopped: bool) -> Exit {
        let ends_by_signal = self.source.live.is_some() && self.source.time.is_none();
        match (is_stopped && !ends_by_signal, traced.is_incomplete()) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Unreliable,
            (false, false) => Exit::Ok,
        }
    }
}

/// Prints the progress of a live capture in one line of a terminal.
fn print_progress(progress: &LiveProgress) {
    if print::terminal::stderr_is_terminal() {
        let (elapsed, packets, bytes) = (progress.elapsed.as_secs(), progress.packets, Bytes(progress.bytes));
        let dropped = if progress.dropped > 0 { format!(", {} dropped", progress.dropped) } else { String::new() };
        print::draw_stderr(format_args!("\r{elapsed} s: {packets} packets, {}{dropped}\x1b[K", bytes.decimal()));
    }
}

/// Returns the flag that the first signal sets. The second signal ends the process.
fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
