//! `lfn emulate --dry-run`: simulates a transfer over the link with modelled TCP senders, in virtual time.
//!
//! A dry run creates and sends nothing. So it needs no namespaces, and works for links that are too fast for this
//! machine. The cost is limited in steps of the model, which are the same on every machine. A transfer that would take
//! more steps is refused. A transfer that exceeds the limit is aborted.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lfn_core::link::{EmulatedPath, LinkConfig, LinkJitter, PathMtu};
use lfn_core::path::PathProfile;
use lfn_core::sim::tcp::{MAX_WINDOW, SendFailure, TcpSettings};
use lfn_core::sim::transfer::{MAX_STREAMS, Transfer, TransferLoad, TransferOutcome, choose_range_segments};
use lfn_core::tcp_model::{self, Congestion, FlowParameters};
use lfn_core::units::{Bytes, show_duration};

use crate::exit::{Exit, Failure};
use crate::print::emulate::dry_run::DryRunReport;
use crate::print::output::Output;
use crate::print::settings::is_quiet;

/// Flags that control a dry run.
#[derive(clap::Args, Debug, Clone)]
pub struct DryRun {
    /// Simulate a transfer over this link with modelled TCP senders, instead of running it
    #[arg(long = "dry-run", help_heading = "Dry run")]
    #[arg(conflicts_with_all = ["parallel", "far_command", "far_root", "no_iperf3", "attach_near", "attach_far", "bridge"])]
    #[arg(conflicts_with_all = ["no_calibration", "force", "live", "log", "command"])]
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

/// Maximum cost of a dry run, in steps of the model (some minutes).
const MAX_STEPS: u64 = 200_000_000;
/// Approximate steps for one range of segments: there and back, and the sender's timer.
const STEPS_PER_RANGE: u64 = 3;
/// Maximum number of packets in stages that treat each packet separately: one to two gigabytes of memory.
const MAX_JITTERED_PACKETS: u64 = 10_000_000;
/// Steps between two updates of the progress bar.
const STEPS_PER_UPDATE: u64 = 100_000;
/// Shorter runs show no progress bar.
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
        let profile = known_path(path);
        let load = self.load(path, &profile)?;
        check_cost(path, &profile, &load)?;
        let [forward, back] = path.seeded_hops(0, seed);
        let mut transfer = Transfer::new(load, profile.base_rtt, &forward, &back).map_err(Failure::usage)?;
        let started = Instant::now();
        run_to_end(&mut transfer, load.size, started)?;
        let flow = self.flow(load.settings.window);
        let report = DryRunReport {
            path: profile,
            seed,
            load,
            predicted: tcp_model::predict_steady(&profile, &flow),
            predicted_time: tcp_model::transfer_time(&profile, &flow, load.size),
            transfer: transfer.report(),
            computed_in: started.elapsed(),
        };
        output.finish(&report.document(), || report.text())?;
        match report.transfer.outcome {
            Some(TransferOutcome::Complete) => Ok(Exit::Ok),
            outcome => Err(unfinished_error(outcome)),
        }
    }

    fn load(&self, path: &EmulatedPath, profile: &PathProfile) -> Result<TransferLoad, Failure> {
        let size = self.size.unwrap_or_else(|| profile.payload_capacity().times(Duration::from_secs(60)).max(Bytes(1)));
        if size.0 == 0 {
            return Err(Failure::usage("--size must be at least 1 B").hint("--size 10GB"));
        }
        let flow = self.flow(self.window(profile)?);
        if !(1..=MAX_STREAMS).contains(&flow.streams) {
            return Err(Failure::usage(format!("--streams {}: 1 to {MAX_STREAMS}", flow.streams)).hint("--streams 8"));
        }
        let settings = TcpSettings {
            congestion: flow.congestion,
            window: flow.window.unwrap_or(MAX_WINDOW),
            ecn: path.forward.iter().any(|hop| hop.ecn),
            range_segments: choose_range_segments(profile, &flow, size),
            ..TcpSettings::for_path(profile)
        };
        if settings.mss == 0 {
            return Err(
                Failure::usage(format!("an MTU of {} leaves no room for payload", profile.mtu)).hint("--mtu 1500")
            );
        }
        Ok(TransferLoad { size, streams: flow.streams, settings })
    }

    fn window(&self, profile: &PathProfile) -> Result<Bytes, Failure> {
        let window = self.window.unwrap_or(MAX_WINDOW);
        let min_window = Bytes(profile.mss().into());
        if window > MAX_WINDOW {
            let needed = window.0.div_ceil(MAX_WINDOW.0);
            return Err(Failure::usage(format!(
                "--window {window} is too large; the maximum of TCP is {}",
                MAX_WINDOW.exact()
            ))
            .hint(format!("use several streams, each with its own window: --streams {needed}")));
        }
        if window < min_window {
            return Err(Failure::usage(format!("--window {window} is smaller than one segment ({min_window})"))
                .hint(format!("--window {}", profile.bdp().max(min_window))));
        }
        Ok(window)
    }

    fn flow(&self, window: Bytes) -> FlowParameters {
        let FlowParameters { streams, congestion, .. } = FlowParameters::default();
        FlowParameters {
            window: Some(window),
            streams: self.streams.unwrap_or(streams),
            congestion: self.congestion.unwrap_or(congestion),
            ..FlowParameters::default()
        }
    }
}

/// Returns the path as the senders know it: they send shorter packets if the path reports that a packet is too large.
fn known_path(path: &EmulatedPath) -> PathProfile {
    let limits = path.forward.iter().filter_map(|hop| hop.path_mtu);
    let reported_mtus = limits.filter(|limit| !limit.is_black_hole).map(|PathMtu { mtu, .. }| u32::from(mtu));
    PathProfile { mtu: reported_mtus.chain([path.profile.mtu]).min().unwrap_or(path.profile.mtu), ..path.profile }
}

/// Refuses a transfer that needs too much time or memory.
fn check_cost(path: &EmulatedPath, profile: &PathProfile, load: &TransferLoad) -> Result<(), Failure> {
    let TcpSettings { mss, range_segments, .. } = load.settings;
    let segments = load.size.0.div_ceil(u64::from(mss));
    let ranges = segments.div_ceil(u64::from(range_segments));
    if ranges > MAX_STEPS / STEPS_PER_RANGE {
        let enough = Bytes(MAX_STEPS / STEPS_PER_RANGE / 2 * u64::from(range_segments) * u64::from(mss));
        return Err(Failure::usage(format!(
            "--size {} is too large for a dry run: {segments} packets, of which the model can combine \
             {range_segments} on this path",
            load.size
        ))
        .hint(format!("use --size {enough}: the throughput is constant after slow start")));
    }
    let hops = || path.forward.iter().chain(&path.back);
    let has_jitter = hops().any(|hop| hop.jitter != LinkJitter::default());
    let held_packets = hops().map(max_bytes_held).fold(0, u64::saturating_add) / u64::from(profile.mtu);
    if has_jitter && held_packets > MAX_JITTERED_PACKETS {
        return Err(Failure::usage(format!(
            "this path holds {held_packets} packets; a dry run with jitter can keep {MAX_JITTERED_PACKETS} in \
             memory"
        ))
        .hint("remove --jitter, or lower --rate"));
    }
    Ok(())
}

/// Returns the maximum number of bytes in a hop.
fn max_bytes_held(hop: &LinkConfig) -> u64 {
    let line = hop.max_rate().times(hop.max_delay()).0;
    line.saturating_add(hop.queue.max_bytes(hop.largest_packet).0)
}

/// Runs the simulation to its end. Shows a progress bar after [`PROGRESS_DELAY`].
fn run_to_end(transfer: &mut Transfer, size: Bytes, started: Instant) -> Result<(), Failure> {
    let bar = ProgressBar::with_draw_target(Some(size.0), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{bar:16} {percent:>3} % {wide_msg}") {
        bar.set_style(style);
    }
    let mut steps = 0;
    let mut ended = None;
    while ended.is_none() && steps < MAX_STEPS {
        ended = transfer.advance(STEPS_PER_UPDATE);
        steps += STEPS_PER_UPDATE;
        if started.elapsed() > PROGRESS_DELAY && !is_quiet() {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            let at = transfer.report().time;
            bar.set_position(transfer.arrived().0);
            bar.set_message(format!("{} of {size} after {} of virtual time", transfer.arrived(), show_duration(at)));
        }
    }
    bar.finish_and_clear();
    if ended.is_some() {
        return Ok(());
    }
    let (arrived, at) = (transfer.arrived(), show_duration(transfer.report().time));
    Err(Failure::msg(format!(
        "gave up after {MAX_STEPS} steps ({at} of virtual time, {arrived} of {size} transferred)"
    ))
    .hint(format!("use --size {}: the throughput is constant after slow start", Bytes(arrived.0 / 2))))
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
