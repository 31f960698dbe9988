//! `lfn emulate --dry-run`: the flags, the progress and the result of [`lfn_api::dry_run()`].

use std::time::{Duration, Instant};

use lfn_api::dry_run::{self, DryRunOptions};
use lfn_base::tcp_model::Congestion;
use lfn_base::units::{Bytes, show_duration};
use lfn_link::EmulatedPath;
use lfn_sim::tcp::SendFailure;
use lfn_sim::transfer::{Transfer, TransferOutcome};

use crate::exit::{Exit, Failure};
use crate::print::emulate::dry_run::print as print_report;
use crate::print::output::Output;
use crate::print::progress::{Figures, Progress, ProgressPrinter, bar};
use crate::print::settings::is_quiet;
use crate::print::terminal::use_unicode;

/// Flags that control a dry run.
#[derive(clap::Args, Debug, Clone)]
pub struct DryRun {
    /// Simulate a transfer over this link with modelled TCP senders, instead of running it
    #[arg(long = "dry-run", help_heading = "Dry run")]
    #[arg(conflicts_with_all = ["parallel", "far_command", "far_root", "no_iperf3", "attach_near", "attach_far", "bridge"])]
    #[arg(conflicts_with_all = ["no_calibration", "force", "live", "log", "plot", "command"])]
    enabled: bool,
    /// Transfer this much data [default: as much as the path carries in a minute]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Dry run")]
    size: Option<Bytes>,
    /// Set the congestion control of the senders: cubic, reno or bbr [default: cubic]
    #[arg(long, value_name = "NAME", help_heading = "Dry run")]
    congestion: Option<Congestion>,
    /// Set the receive window of each stream [default: the maximum of TCP, 1.07 GB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Dry run")]
    window: Option<Bytes>,
    /// Use N TCP streams in parallel [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Dry run")]
    streams: Option<u32>,
}

/// Shorter runs show no progress.
const PROGRESS_DELAY: Duration = Duration::from_secs(2);

impl DryRun {
    /// Reports whether --dry-run is set. Fails if another flag of a dry run is set without --dry-run. (clap does not
    /// report a missing flag that would conflict with another one.)
    pub fn is_requested(&self) -> Result<bool, Failure> {
        let given = [
            ("--size", self.size.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--window", self.window.is_some()),
            ("--streams", self.streams.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given && !self.enabled) {
            Some((flag, _)) => Err(Failure::usage(format!("{flag} needs --dry-run"))
                .hint("lfn emulate --rtt 539ms --rate 135mbit --dry-run --size 10GB")),
            None => Ok(self.enabled),
        }
    }

    /// Simulates the transfer over `path` and prints the result.
    pub fn run(&self, path: &EmulatedPath, seed: u64, output: Output) -> Result<Exit, Failure> {
        let DryRun { size, congestion, window, streams, .. } = *self;
        let options = DryRunOptions { size, congestion, window, streams };
        let printer = if is_quiet() { ProgressPrinter::Hidden } else { ProgressPrinter::stderr() };
        let (progress, started) = (Progress::new(Simulation::default(), printer), Instant::now());
        let report = dry_run::dry_run(path, seed, &options, &mut |transfer| {
            if started.elapsed() > PROGRESS_DELAY {
                progress.update(|simulation| *simulation = Simulation::of(transfer));
                progress.show();
            }
        });
        progress.finish();
        let report = report?;
        output.finish(&report.document(), || print_report(&report))?;
        match report.transfer.outcome {
            Some(TransferOutcome::Complete) => Ok(Exit::Ok),
            outcome => Err(unfinished_error(outcome)),
        }
    }
}

/// Progress of a simulation.
#[derive(Default)]
struct Simulation {
    size: Bytes,
    arrived: Bytes,
    /// Virtual time since the start.
    time: Duration,
}

impl Simulation {
    fn of(transfer: &Transfer) -> Self {
        Simulation { size: transfer.size(), arrived: transfer.arrived(), time: transfer.report().time }
    }
}

impl Figures for Simulation {
    fn lines(&mut self, _now: Duration, columns: usize, _rows: usize) -> Vec<String> {
        let Simulation { size, arrived, time } = *self;
        let share = arrived.0 as f64 / size.0.max(1) as f64;
        let (bar, percent, time) = (bar(share, 16, use_unicode()), 100.0 * share, show_duration(time));
        let line = format!("{bar} {percent:>3.0} % {arrived} of {size} after {time} of virtual time");
        vec![line.chars().take(columns).collect()]
    }
}

fn unfinished_error(outcome: Option<TransferOutcome>) -> Failure {
    match outcome {
        Some(TransferOutcome::GaveUp(SendFailure::NoAnswer)) => {
            Failure::msg("the transfer did not start: no answer to seven SYNs in 127 s")
                .hint("see the drops in the report above")
        }
        Some(TransferOutcome::GaveUp(SendFailure::TimedOut)) => {
            Failure::msg("the transfer did not finish: a stream gave up after 15 consecutive timeouts")
                .hint("see the drops in the report above")
        }
        _ => Failure::msg("the transfer does not finish within ten years").hint("check the units: --rate 135mbit"),
    }
}
