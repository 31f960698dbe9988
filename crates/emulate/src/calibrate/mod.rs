//! Measures this machine before the run: the latency that forwarding adds to the delay, and the cost of forwarding.
//!
//! The measurement uses its own path in its own namespaces, with the same forwarders as the real path. [`idle`] sends
//! probes, [`load`] sends at maximum speed. The idle latency is subtracted from the delay, so that a path of 20 ms has
//! 20 ms and not 20.1 ms. The shortest measured latency is used, so that a path is never shorter than requested. The
//! costs are processor times and not rates, because other programs may be running now. From the costs, [`feasible`]
//! decides if the settings can be carried accurately. If the measurement fails, the run continues without it.

mod feasible;
mod figures;
mod idle;
mod load;

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{EmulatedPath, LinkConfig};
use lfn_sys::namespace::NetNamespace;
use rustix::pipe::PipeFlags;

use super::data_path::{ControlChannel, Forwarder};
use super::error::{EmulateError, spawn_scoped, system_error};
use super::network::topology::{self, SideNetwork};
use super::setup::{FarSide, Setup};

pub(super) use feasible::check_capacity;
pub use figures::{Calibration, CpuCost, ForwardingCosts};

/// Delay of the measured path. Like other delays, long enough for a thread to fall asleep.
const DELAY: Duration = Duration::from_millis(2);
/// The measured path is fast, and its memory is allocated quickly.
const RATE: BitRate = BitRate(10_000_000_000);
const QUEUE: Bytes = Bytes(2_000_000);

/// Measures the latency, and the costs if these settings need them.
pub(super) fn calibrate(setup: &Setup) -> Result<Calibration, EmulateError> {
    let middle = NetNamespace::new().map_err(system_error("create a network namespace"))?;
    let measured = middle.run(|| measure(feasible::needs_costs(setup)));
    measured.map_err(system_error("enter a network namespace"))?
}

fn measure(with_costs: bool) -> Result<Calibration, EmulateError> {
    let setup = measurement_setup();
    let sides = topology::build(&setup, [None, None])?;
    let [near, far] = sides.each_ref().map(|side| &side.cables[0].socket);
    let path = &setup.paths[0];
    let forwarders = [Forwarder::new(&path.forward, near, far)?, Forwarder::new(&path.back, far, near)?];
    let channels = forwarders.each_ref().map(Forwarder::channel);
    let (stop, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system_error("create a pipe"))?;
    thread::scope(|scope| {
        // Dropped at every exit of this closure, which ends the threads. Their reports are not needed.
        let _running = running;
        for forwarder in forwarders {
            spawn_scoped(scope, || forwarder.run(stop.as_fd()))?;
        }
        probe_and_load(&sides, &channels, with_costs)
    })
}

fn probe_and_load(
    sides: &[SideNetwork; 2],
    channels: &[ControlChannel; 2],
    with_costs: bool,
) -> Result<Calibration, EmulateError> {
    let idle_latency = idle::min_idle_latency(sides, DELAY)?;
    let costs = if with_costs {
        for channel in channels {
            let hop = channel.hops().into_iter().next().unwrap_or_default();
            channel.set(0, &LinkConfig { delay: Duration::ZERO.into(), ..hop })?;
        }
        Some(load::costs(sides, channels)?)
    } else {
        None
    };
    Ok(Calibration { idle_latency: idle_latency.as_secs_f64(), costs })
}

/// Returns the settings of the measured path.
fn measurement_setup() -> Setup {
    let profile = PathProfile { queue: Some(QUEUE), ..PathProfile::new(RATE, 2 * DELAY) };
    Setup::new(EmulatedPath::symmetric(profile), 0, FarSide::Nothing)
}
