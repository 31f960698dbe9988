//! `lfn emulate --dry-run`: a transfer over the link by modelled senders, in virtual time.
//!
//! Nothing is made and nothing is sent, so it needs no namespaces and answers for links that this machine could never
//! carry. What it may cost is bounded in steps of the model, the same on every machine: a transfer that would take more
//! is refused before it starts, and one that turns out to is given up.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lfn_core::link::{EmulatedPath, Jitter, LinkConfig, PathMtu};
use lfn_core::path::PathProfile;
use lfn_core::sim::tcp::{Ended, MOST_WINDOW, Settings};
use lfn_core::sim::transfer::{Load, MOST_STREAMS, Outcome, Transfer, grain};
use lfn_core::tcp_model::{self, Congestion, Flow};
use lfn_core::units::{Bytes, show_duration};

use crate::exit::{Exit, Failure};
use crate::print::emulate::dry_run::DryRunReport;

/// What is typed beside --dry-run.
#[derive(clap::Args, Debug, Clone)]
pub struct DryRun {
    /// Run nothing: say from virtual time how a transfer over this link goes, with modelled TCP senders
    #[arg(long = "dry-run", help_heading = "Dry run")]
    #[arg(conflicts_with_all = ["parallel", "far", "far_root", "attach_near", "attach_far", "bridge"])]
    #[arg(conflicts_with_all = ["no_calibration", "force", "live", "log", "report", "command"])]
    wanted: bool,
    /// Data to move, such as 10GB [default: what the path carries in a minute]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Dry run")]
    size: Option<Bytes>,
    /// Congestion control of the senders: cubic, reno or bbr [default: cubic]
    #[arg(long, value_name = "NAME", help_heading = "Dry run")]
    congestion: Option<Congestion>,
    /// Receive window each stream holds [default: the largest that TCP can offer, 1.07 GB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Dry run")]
    window: Option<Bytes>,
    /// TCP streams side by side [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Dry run")]
    streams: Option<u32>,
}

/// Most that a dry run may take, in steps of the model: minutes.
const MOST_STEPS: u64 = 200_000_000;
/// Steps that one range costs, about: there and back, and what wakes the sender.
const STEPS_PER_RANGE: u64 = 3;
/// Packets that a stage which treats each of them alone may hold: a gigabyte or two of memory.
const MOST_ALONE: u64 = 10_000_000;
/// How many steps are taken between two looks at the clock.
const STEPS: u64 = 100_000;
/// Shorter runs show no progress.
const SILENCE: Duration = Duration::from_secs(2);

impl DryRun {
    /// Whether that is what is to be done; fails if it is not and something was said about it. (Clap does not tell where
    /// the flag that is missing would contradict another.)
    pub fn is_wanted(&self) -> Result<bool, Failure> {
        let said = [
            ("--size", self.size.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--window", self.window.is_some()),
            ("--streams", self.streams.is_some()),
        ];
        match said.iter().find(|(_, is_said)| *is_said && !self.wanted) {
            Some((flag, _)) => Err(Failure::usage(format!("{flag} is of a --dry-run"))
                .hint("lfn emulate --rtt 539ms --rate 135mbit --dry-run --size 10GB")),
            None => Ok(self.wanted),
        }
    }

    /// Models the transfer over `path` and prints how it went, as text or as JSON.
    pub fn run(&self, path: &EmulatedPath, seed: u64, json: bool) -> Result<Exit, Failure> {
        let profile = told(path);
        let load = self.load(path, &profile)?;
        affordable(path, &profile, &load)?;
        let [forward, back] = path.numbered(0, seed);
        let mut transfer = Transfer::new(load, profile.base_rtt, &forward, &back).map_err(Failure::usage)?;
        let began = Instant::now();
        finish(&mut transfer, load.size, began)?;
        let flow = self.flow(load.settings.window);
        let report = DryRunReport {
            path: profile,
            seed,
            load,
            predicted: tcp_model::steady(&profile, &flow),
            predicted_time: tcp_model::transfer_time(&profile, &flow, load.size),
            transfer: transfer.report(),
            computed_in: began.elapsed(),
        };
        if json {
            report.json()?
        } else {
            report.text()?
        }
        match report.transfer.outcome {
            Some(Outcome::Complete) => Ok(Exit::Ok),
            outcome => Err(unfinished(outcome)),
        }
    }

    fn load(&self, path: &EmulatedPath, profile: &PathProfile) -> Result<Load, Failure> {
        let size = self.size.unwrap_or_else(|| profile.payload_capacity().times(Duration::from_secs(60)).max(Bytes(1)));
        if size.0 == 0 {
            return Err(Failure::usage("--size 0 B takes no time").hint("--size 10GB"));
        }
        let flow = self.flow(self.window(profile)?);
        if !(1..=MOST_STREAMS).contains(&flow.streams) {
            return Err(Failure::usage(format!("--streams {}: 1 to {MOST_STREAMS}", flow.streams)).hint("--streams 8"));
        }
        let settings = Settings {
            congestion: flow.congestion,
            window: flow.window.unwrap_or(MOST_WINDOW),
            ecn: path.forward.iter().any(|hop| hop.ecn),
            grain: grain(profile, &flow, size),
            ..Settings::of(profile)
        };
        if settings.mss == 0 {
            return Err(
                Failure::usage(format!("an MTU of {} leaves no room for payload", profile.mtu)).hint("--mtu 1500")
            );
        }
        Ok(Load { size, streams: flow.streams, settings })
    }

    fn window(&self, profile: &PathProfile) -> Result<Bytes, Failure> {
        let window = self.window.unwrap_or(MOST_WINDOW);
        let least = Bytes(profile.mss().into());
        if window > MOST_WINDOW {
            let needed = window.0.div_ceil(MOST_WINDOW.0);
            return Err(Failure::usage(format!(
                "--window {window} is more than TCP can offer: {}",
                MOST_WINDOW.exact()
            ))
            .hint(format!("--streams {needed}, each with a window of its own")));
        }
        if window < least {
            return Err(Failure::usage(format!("--window {window} is less than one segment of {least}"))
                .hint(format!("--window {}", profile.bdp().max(least))));
        }
        Ok(window)
    }

    fn flow(&self, window: Bytes) -> Flow {
        let Flow { streams, congestion, .. } = Flow::default();
        Flow {
            window: Some(window),
            streams: self.streams.unwrap_or(streams),
            congestion: self.congestion.unwrap_or(congestion),
            ..Flow::default()
        }
    }
}

/// The path as senders know it: where they are told that a packet was too long for a link, they send shorter ones.
fn told(path: &EmulatedPath) -> PathProfile {
    let limits = path.forward.iter().filter_map(|hop| hop.path_mtu);
    let told = limits.filter(|limit| !limit.black_hole).map(|PathMtu { mtu, .. }| u32::from(mtu));
    PathProfile { mtu: told.chain([path.profile.mtu]).min().unwrap_or(path.profile.mtu), ..path.profile }
}

/// Refuses by name what would take too long or too much memory.
fn affordable(path: &EmulatedPath, profile: &PathProfile, load: &Load) -> Result<(), Failure> {
    let Settings { mss, grain, .. } = load.settings;
    let segments = load.size.0.div_ceil(u64::from(mss));
    let ranges = segments.div_ceil(u64::from(grain));
    if ranges > MOST_STEPS / STEPS_PER_RANGE {
        let enough = Bytes(MOST_STEPS / STEPS_PER_RANGE / 2 * u64::from(grain) * u64::from(mss));
        return Err(Failure::usage(format!(
            "--size {} is {segments} packets, of which {grain} can be treated as one on this path: \
             more than a dry run takes on",
            load.size
        ))
        .hint(format!("--size {enough}: past start-up every byte takes as long as the one before")));
    }
    let hops = || path.forward.iter().chain(&path.back);
    let alone = hops().any(|hop| hop.jitter != Jitter::default());
    let held = hops().map(held).fold(0, u64::saturating_add) / u64::from(profile.mtu);
    if alone && held > MOST_ALONE {
        return Err(Failure::usage(format!(
            "jitter treats every packet alone, and this path holds {held} of them: more than the {MOST_ALONE} that a \
             dry run keeps in memory"
        ))
        .hint("leave --jitter out, or try a lower --rate"));
    }
    Ok(())
}

/// Bytes that a hop may hold.
fn held(hop: &LinkConfig) -> u64 {
    let line = hop.highest_rate().times(hop.longest_delay()).0;
    line.saturating_add(hop.queue.most_bytes(hop.largest_packet).0)
}

/// Goes on until the transfer has ended, showing how far it is if that takes long enough to wonder.
fn finish(transfer: &mut Transfer, size: Bytes, began: Instant) -> Result<(), Failure> {
    let bar = ProgressBar::with_draw_target(Some(size.0), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{bar:16} {percent:>3} % {wide_msg}") {
        bar.set_style(style);
    }
    let mut steps = 0;
    let mut ended = None;
    while ended.is_none() && steps < MOST_STEPS {
        ended = transfer.advance(STEPS);
        steps += STEPS;
        if began.elapsed() > SILENCE {
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
    Err(Failure::msg(format!("given up after {MOST_STEPS} steps, {at} of virtual time and {arrived} of {size}"))
        .hint(format!("--size {}: past start-up every byte takes as long as the one before", Bytes(arrived.0 / 2))))
}

fn unfinished(outcome: Option<Outcome>) -> Failure {
    match outcome {
        Some(Outcome::GaveUp(Ended::NoAnswer)) => {
            Failure::msg("the transfer does not begin: nobody answers seven SYNs in 127 s")
                .hint("what drops them is in the account above")
        }
        Some(Outcome::GaveUp(Ended::TimedOut)) => {
            Failure::msg("the transfer does not end: a stream gave up after 15 timeouts in a row")
                .hint("what dropped its packets is in the account above")
        }
        _ => Failure::msg("the transfer does not end within ten years").hint("check the units: --rate 135mbit"),
    }
}
