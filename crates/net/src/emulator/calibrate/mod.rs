//! Measures this machine before the run: the latency that forwarding adds to the delay, and the cost of forwarding.
//!
//! The measurement uses its own path in its own namespaces, with the same forwarders as the real path. [`idle`] sends
//! probes, [`load`] sends at maximum speed. The idle latency is subtracted from the delay, so that a path of 20 ms has
//! 20 ms and not 20.1 ms. The shortest measured latency is used, so that a path is never shorter than requested. The
//! costs are processor times and not rates, because other programs may be running now. From the costs, [`feasible`]
//! decides if the settings can be carried accurately. If the measurement fails, the run continues without it.

mod feasible;
mod idle;
mod load;

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use lfn_core::link::{EmulatedPath, LinkConfig};
use lfn_core::path::PathProfile;
use lfn_core::units::{BitRate, Bytes};
use lfn_sys::namespace::NetNamespace;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use super::data_path::{ControlChannel, Forwarder};
use super::network::topology::{self, SideNetwork};
use super::{EmulateError, FarSide, Setup, spawn_scoped, system_error};

pub(super) use feasible::check_capacity;

/// Result of the calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calibration {
    /// Latency from interface to interface beyond the delay, on an idle path. Subtracted in each direction.
    #[serde(rename = "idle_latency_seconds")]
    pub idle_latency: f64,
    /// Not measured for rates that every machine can carry.
    pub costs: Option<ForwardingCosts>,
}

/// Processor time of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForwardingCosts {
    /// Cost of a single packet of 1,514 bytes.
    pub packet: CpuCost,
    /// Cost of a gigabyte in super-packets.
    pub gigabyte: CpuCost,
    /// Number of available processors.
    pub processors: u32,
}

impl ForwardingCosts {
    /// Returns the maximum number of single packets per second of one direction.
    pub fn packets_per_second(&self) -> f64 {
        1.0 / self.bottleneck_time(self.packet)
    }

    /// Returns the maximum rate of one direction with super-packets.
    pub fn bulk(&self) -> BitRate {
        BitRate((8e9 / self.bottleneck_time(self.gigabyte)) as u64)
    }

    /// Returns the seconds per unit: the time of the direction's thread, or the time of all threads on all processors,
    /// the larger one.
    fn bottleneck_time(&self, cost: CpuCost) -> f64 {
        cost.thread.max(cost.all / self.processor_count())
    }

    fn processor_count(&self) -> f64 {
        f64::from(self.processors.max(1))
    }
}

/// Processor time, by thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuCost {
    /// Time of the thread of one direction, at most one second per second.
    #[serde(rename = "thread_seconds")]
    pub thread: f64,
    /// Time of all threads that this traffic needs, including sender, receiver and the return direction. They share the
    /// processors.
    #[serde(rename = "all_seconds")]
    pub all: f64,
}

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
    let costs = match with_costs {
        true => {
            for channel in channels {
                let hop = channel.hops().into_iter().next().unwrap_or_default();
                channel.set(0, &LinkConfig { delay: Duration::ZERO.into(), ..hop })?;
            }
            Some(load::costs(sides, channels)?)
        }
        false => None,
    };
    Ok(Calibration { idle_latency: idle_latency.as_secs_f64(), costs })
}

/// Returns the settings of the measured path.
fn measurement_setup() -> Setup {
    let profile = PathProfile { queue: Some(QUEUE), ..PathProfile::new(RATE, 2 * DELAY) };
    Setup::new(EmulatedPath::symmetric(profile), 0, FarSide::Nothing)
}
