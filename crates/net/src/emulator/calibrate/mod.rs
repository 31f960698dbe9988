//! What this machine can do, measured before the run: how long a packet takes beyond the delay, and what forwarding costs.
//!
//! It is measured on a path of its own in namespaces of its own, with the forwarders of the real one: [`idle`] sends
//! probes across, [`load`] as much as it can. The idle time is taken off the delay, so that a path of 20 ms has 20 ms
//! and not 20.1; it is the shortest that was seen, so that no path is ever shorter than asked for. The costs are
//! processor time and not rates, because other programs may be running now; [`feasible`] judges by them whether the
//! settings can be carried faithfully. Where it cannot be measured the run goes on as it would without.

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

use super::data_path::{Forwarder, Mailbox};
use super::place::topology::{self, SideNet};
use super::{EmulateError, FarSide, Setup, start, system};

pub(super) use feasible::judge;

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// What a packet takes from interface to interface beyond the delay, on an idle path; taken off each direction.
    #[serde(rename = "idle_seconds")]
    pub idle: f64,
    /// What forwarding costs; not measured for rates that every machine carries.
    pub costs: Option<Costs>,
}

/// What forwarding costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// A single packet of 1,514 bytes.
    pub packet: Cost,
    /// A gigabyte in super-packets.
    pub gigabyte: Cost,
    /// Processors that there are.
    pub processors: u32,
}

impl Costs {
    /// The most single packets a second that one direction can forward.
    pub fn packets_per_second(&self) -> f64 {
        1.0 / self.longest(self.packet)
    }

    /// The most that one direction can forward in super-packets.
    pub fn bulk(&self) -> BitRate {
        BitRate((8e9 / self.longest(self.gigabyte)) as u64)
    }

    /// A direction is done when its thread is, and when all threads are on the processors there are.
    fn longest(&self, cost: Cost) -> f64 {
        cost.thread.max(cost.all / self.share())
    }

    fn share(&self) -> f64 {
        f64::from(self.processors.max(1))
    }
}

/// Processor time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Of the thread of one direction, which can work a second a second.
    #[serde(rename = "thread_seconds")]
    pub thread: f64,
    /// Of all threads that such traffic keeps busy, sender, receiver and the way back among them, which share the
    /// processors.
    #[serde(rename = "all_seconds")]
    pub all: f64,
}

/// The delay that probes are measured against: as other delays, long enough for a thread to go to sleep.
const DELAY: Duration = Duration::from_millis(2);
/// The path that is measured carries all there is in memory that is soon had.
const RATE: BitRate = BitRate(10_000_000_000);
const QUEUE: Bytes = Bytes(2_000_000);

/// Measures what matters for these settings.
pub(super) fn calibrate(setup: &Setup) -> Result<Calibration, EmulateError> {
    let middle = NetNamespace::new().map_err(system("make a network namespace"))?;
    let measured = middle.run(|| measure(feasible::needs_costs(setup)));
    measured.map_err(system("enter a network namespace"))?
}

fn measure(with_costs: bool) -> Result<Calibration, EmulateError> {
    let setup = scratch();
    let sides = topology::build(&setup, [None, None])?;
    let [near, far] = sides.each_ref().map(|side| &side.cables[0].socket);
    let path = &setup.paths[0];
    let forwarders = [Forwarder::new(&path.forward, near, far)?, Forwarder::new(&path.back, far, near)?];
    let mailboxes = forwarders.each_ref().map(Forwarder::mailbox);
    let (stop, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("make a pipe"))?;
    thread::scope(|scope| {
        // Closed on every way out of here, which ends the threads. What became of the packets is nobody's business.
        let _running = running;
        for forwarder in forwarders {
            start(scope, || forwarder.run(stop.as_fd()))?;
        }
        probe_and_load(&sides, &mailboxes, with_costs)
    })
}

fn probe_and_load(
    sides: &[SideNet; 2],
    mailboxes: &[Mailbox; 2],
    with_costs: bool,
) -> Result<Calibration, EmulateError> {
    let idle = idle::shortest(sides, DELAY)?;
    let costs = match with_costs {
        true => {
            for mailbox in mailboxes {
                let hop = mailbox.hops().into_iter().next().unwrap_or_default();
                mailbox.set(0, &LinkConfig { delay: Duration::ZERO.into(), ..hop })?;
            }
            Some(load::costs(sides, mailboxes)?)
        }
        false => None,
    };
    Ok(Calibration { idle: idle.as_secs_f64(), costs })
}

/// A path for nobody but this module.
fn scratch() -> Setup {
    let profile = PathProfile { queue: Some(QUEUE), ..PathProfile::new(RATE, 2 * DELAY) };
    Setup::new(EmulatedPath::symmetric(profile), 0, FarSide::Nothing)
}
