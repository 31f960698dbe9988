//! Dry run of `emulate`: simulates a transfer over the link with modelled TCP senders, in virtual time.
//!
//! A dry run creates and sends nothing. So it needs no namespaces, and works for links that are too fast for this
//! machine. The cost is limited in steps of the model, which are the same on every machine. A transfer that would take
//! more steps is refused. A transfer that exceeds the limit is aborted.

mod error;
mod report;

use std::time::{Duration, Instant};

use lfn_base::path::PathProfile;
use lfn_base::plan::MAX_WINDOW;
use lfn_base::tcp_model::{self, Congestion, FlowParameters};
use lfn_base::units::Bytes;
use lfn_link::{EmulatedPath, LinkConfig, LinkJitter, PathMtu};
use lfn_sim::tcp::TcpSettings;
use lfn_sim::transfer::{MAX_STREAMS, Transfer, TransferLoad, choose_range_segments};

pub use error::DryRunError;
pub use report::DryRunReport;

/// Options of a simulated transfer.
#[derive(Debug, Clone, Copy, Default)]
pub struct DryRunOptions {
    /// Payload of the transfer; `None` uses as much as the path carries in a minute.
    pub size: Option<Bytes>,
    /// Congestion control of the senders; `None` uses CUBIC.
    pub congestion: Option<Congestion>,
    /// Receive window of each stream; `None` uses the maximum of TCP.
    pub window: Option<Bytes>,
    /// Number of parallel streams; `None` uses one.
    pub streams: Option<u32>,
}

/// Maximum cost of a dry run, in steps of the model (some minutes).
const MAX_STEPS: u64 = 200_000_000;
/// Approximate steps for one range of segments: there and back, and the sender's timer.
const STEPS_PER_RANGE: u64 = 3;
/// Maximum number of packets in stages that treat each packet separately: one to two gigabytes of memory.
const MAX_JITTERED_PACKETS: u64 = 10_000_000;
/// Steps between two reports of progress.
const STEPS_PER_UPDATE: u64 = 100_000;

/// Simulates a transfer over `path`, and reports its progress.
pub fn dry_run(
    path: &EmulatedPath,
    seed: u64,
    options: &DryRunOptions,
    on_progress: &mut dyn FnMut(&Transfer),
) -> Result<DryRunReport, DryRunError> {
    let profile = known_path(path);
    let load = options.load(path, &profile)?;
    check_cost(path, &profile, &load)?;
    let [forward, back] = path.seeded_hops(0, seed);
    let mut transfer = Transfer::new(load, profile.base_rtt, &forward, &back)?;
    let started = Instant::now();
    run_to_end(&mut transfer, on_progress)?;
    let flow = options.flow(load.settings.window);
    Ok(DryRunReport {
        path: profile,
        seed,
        load,
        predicted: tcp_model::predict_steady(&profile, &flow),
        predicted_time: tcp_model::transfer_time(&profile, &flow, load.size),
        transfer: transfer.report(),
        computed_in: started.elapsed(),
    })
}

impl DryRunOptions {
    fn load(&self, path: &EmulatedPath, profile: &PathProfile) -> Result<TransferLoad, DryRunError> {
        let size = self.size.unwrap_or_else(|| profile.payload_capacity().times(Duration::from_secs(60)).max(Bytes(1)));
        if size.0 == 0 {
            return Err(DryRunError::NoSize);
        }
        let flow = self.flow(self.window(profile)?);
        if !(1..=MAX_STREAMS).contains(&flow.streams) {
            return Err(DryRunError::Streams(flow.streams));
        }
        let settings = TcpSettings {
            congestion: flow.congestion,
            window: flow.window.unwrap_or(MAX_WINDOW),
            ecn: path.forward.iter().any(|hop| hop.ecn),
            range_segments: choose_range_segments(profile, &flow, size),
            ..TcpSettings::for_path(profile)
        };
        if settings.mss == 0 {
            return Err(DryRunError::Mtu(profile.mtu));
        }
        Ok(TransferLoad { size, streams: flow.streams, settings })
    }

    fn window(&self, profile: &PathProfile) -> Result<Bytes, DryRunError> {
        let window = self.window.unwrap_or(MAX_WINDOW);
        let min_window = Bytes(profile.mss().into());
        if window > MAX_WINDOW {
            return Err(DryRunError::WindowTooLarge { window });
        }
        if window < min_window {
            let bdp = profile.bdp().max(min_window);
            return Err(DryRunError::WindowTooSmall { window, min_window, bdp });
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
fn check_cost(path: &EmulatedPath, profile: &PathProfile, load: &TransferLoad) -> Result<(), DryRunError> {
    let TcpSettings { mss, range_segments, .. } = load.settings;
    let segments = load.size.0.div_ceil(u64::from(mss));
    let ranges = segments.div_ceil(u64::from(range_segments));
    if ranges > MAX_STEPS / STEPS_PER_RANGE {
        let enough = Bytes(MAX_STEPS / STEPS_PER_RANGE / 2 * u64::from(range_segments) * u64::from(mss));
        return Err(DryRunError::TooLarge { size: load.size, segments, range_segments, enough });
    }
    let hops = || path.forward.iter().chain(&path.back);
    let has_jitter = hops().any(|hop| hop.jitter != LinkJitter::default());
    let held_packets = hops().map(max_bytes_held).fold(0, u64::saturating_add) / u64::from(profile.mtu);
    if has_jitter && held_packets > MAX_JITTERED_PACKETS {
        return Err(DryRunError::JitteredPackets { held: held_packets, max: MAX_JITTERED_PACKETS });
    }
    Ok(())
}

/// Returns the maximum number of bytes in a hop.
fn max_bytes_held(hop: &LinkConfig) -> u64 {
    let line = hop.max_rate().times(hop.max_delay()).0;
    line.saturating_add(hop.queue.max_bytes(hop.largest_packet).0)
}

/// Runs the simulation to its end.
fn run_to_end(transfer: &mut Transfer, on_progress: &mut dyn FnMut(&Transfer)) -> Result<(), DryRunError> {
    for _ in 0..MAX_STEPS / STEPS_PER_UPDATE {
        if transfer.advance(STEPS_PER_UPDATE).is_some() {
            return Ok(());
        }
        on_progress(transfer);
    }
    let (time, arrived) = (transfer.report().time, transfer.arrived());
    Err(DryRunError::TooManySteps { steps: MAX_STEPS, time, arrived, size: transfer.size() })
}
