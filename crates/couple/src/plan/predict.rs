//! The run of two components in virtual time.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};

use super::{PlanError, PlannedDirection, PlannedRun, PlannedVariable};
use crate::coupling::{Component, Coupling, DropPolicy, Variable};

/// Maximum number of simulated steps. The mean time of the later steps stands for the rest of a longer run.
const MAX_SIMULATED: u64 = 20_000;
/// Maximum number of simulated fields. A coupling with many variables has fewer simulated steps.
const MAX_FIELDS: u64 = 4_000_000;

/// Share that is added to the delay and the transfer, for jitter of the path.
const DELAY_MARGIN: f64 = 0.05;
/// Time for scheduling at both ends.
const SCHEDULING: Duration = Duration::from_millis(2);

/// Predicts a run over a path.
pub fn predict(coupling: &Coupling, path: &PathProfile) -> Result<PlannedRun, PlanError> {
    let rate = path.payload_capacity();
    if rate.0 == 0 {
        return Err(PlanError::NoRate);
    }
    let models = models(coupling)?;
    let delay = path.base_rtt / 2;
    let transfer = |bytes: Bytes| transfer_time(bytes, rate);
    let fields = coupling.variables.len() as u64;
    let simulated = coupling.steps.min(MAX_SIMULATED).min(MAX_FIELDS / fields.max(1)).max(1);
    let mut run = Simulation::new(coupling, &models, delay, rate, simulated);
    let lags = coupling.variables.values().map(|variable| variable.lag).max().unwrap_or(0);
    let settled = lags.min(simulated.saturating_sub(1));
    let mut settled_at = Duration::ZERO;
    for step in 0..simulated {
        if step == settled {
            settled_at = run.end();
            run.waits.iter_mut().for_each(|wait| *wait = Duration::ZERO);
        }
        run.step(step);
    }
    let counted = u32::try_from(simulated - settled).unwrap_or(u32::MAX).max(1);
    let step_time = run.end().saturating_sub(settled_at) / counted;
    let rest = times(step_time, coupling.steps - simulated);
    let compute = models.iter().map(|model| model.compute).max().unwrap_or_default();
    let serialisation = |name: &str| transfer(coupling.step_bytes(name));
    let direction = |from: &Model<'_>, to: &Model<'_>| PlannedDirection {
        from: from.name.to_owned(),
        to: to.name.to_owned(),
        bytes_per_step: coupling.step_bytes(from.name),
        serialisation: serialisation(from.name),
        utilisation: serialisation(from.name).as_secs_f64() / compute.as_secs_f64().max(1e-9),
    };
    let variables = coupling.variables.iter().zip(&run.waits).map(|((name, variable), wait)| PlannedVariable {
        name: name.clone(),
        from: variable.from.clone(),
        to: variable.to.clone(),
        bytes: coupling.field_bytes(variable),
        lag: variable.lag,
        needed_lag: needed_lag(coupling, variable, delay, compute, serialisation(&variable.from)),
        wait: *wait / counted,
    });
    Ok(PlannedRun {
        steps: coupling.steps,
        one_way_delay: delay,
        compute,
        step: step_time,
        run: run.end() + rest,
        run_without_waits: times(compute, coupling.steps),
        directions: vec![direction(&models[0], &models[1]), direction(&models[1], &models[0])],
        variables: variables.collect(),
    })
}

/// Returns the minimum lag that hides the delay and the transfer of one step's fields behind the computation.
fn needed_lag(
    coupling: &Coupling,
    variable: &Variable,
    delay: Duration,
    compute: Duration,
    transfer: Duration,
) -> Option<u64> {
    let waits = |variable: &Variable| variable.drop == DropPolicy::Never;
    if !waits(variable) {
        return Some(0);
    }
    if transfer > compute {
        return None;
    }
    if !coupling.received_by(&variable.from).any(|(_, in_return)| waits(in_return)) {
        // The component waits for nothing in return, and is ahead by the delay after the first step.
        return Some(0);
    }
    let hidden = (delay + transfer).mul_f64(1.0 + DELAY_MARGIN) + SCHEDULING;
    // The compute time is above zero here, because the hidden time is finite.
    let steps = hidden.as_secs_f64() / compute.as_secs_f64().max(1e-9);
    Some(steps.ceil() as u64)
}

fn transfer_time(bytes: Bytes, rate: BitRate) -> Duration {
    Duration::from_secs_f64(bytes.0 as f64 * 8.0 / rate.0.max(1) as f64)
}

fn times(duration: Duration, count: u64) -> Duration {
    Duration::from_secs_f64((duration.as_secs_f64() * count as f64).min(1e15))
}

struct Model<'a> {
    name: &'a str,
    compute: Duration,
}

fn models(coupling: &Coupling) -> Result<[Model<'_>; 2], PlanError> {
    let names: Vec<&String> = coupling.components.keys().collect();
    let [first, second] = names[..] else { return Err(PlanError::Components { found: names.len() }) };
    let model = |name: &'_ String| {
        let compute = coupling.components.get(name).and_then(|component: &Component| component.compute);
        compute.ok_or_else(|| PlanError::NoComputeTime { component: name.clone() })
    };
    Ok([Model { name: first, compute: model(first)? }, Model { name: second, compute: model(second)? }])
}

/// State of both components and of the path in both directions.
struct Simulation<'a> {
    variables: Vec<Flow<'a>>,
    models: [Side; 2],
    delay: Duration,
    /// Sum of the waits for each variable.
    waits: Vec<Duration>,
}

struct Side {
    compute: Duration,
    /// End of the last step.
    now: Duration,
    /// Time at which the path has sent the fields of the component.
    free: Duration,
}

/// A variable with the arrivals of its last fields.
struct Flow<'a> {
    variable: &'a Variable,
    from: usize,
    transfer: Duration,
    /// Arrival of the field of step n at n modulo the length.
    arrivals: Vec<Duration>,
}

impl<'a> Simulation<'a> {
    fn new(coupling: &'a Coupling, models: &[Model<'_>; 2], delay: Duration, rate: BitRate, steps: u64) -> Self {
        let side = |model: &Model<'_>| Side { compute: model.compute, now: Duration::ZERO, free: Duration::ZERO };
        let variables = coupling.variables.values().map(|variable| {
            let length = usize::try_from(variable.lag.min(steps) + 1).unwrap_or(1);
            Flow {
                variable,
                from: usize::from(variable.from != models[0].name),
                transfer: transfer_time(coupling.field_bytes(variable), rate),
                arrivals: vec![Duration::ZERO; length],
            }
        });
        let variables: Vec<Flow<'_>> = variables.collect();
        let waits = vec![Duration::ZERO; variables.len()];
        Simulation { variables, models: [side(&models[0]), side(&models[1])], delay, waits }
    }

    fn end(&self) -> Duration {
        self.models[0].now.max(self.models[1].now)
    }

    /// Runs one step of both components: both put, then both get and compute.
    fn step(&mut self, step: u64) {
        let place = |flow: &Flow<'_>, step: u64| (step % flow.arrivals.len() as u64) as usize;
        for flow in &mut self.variables {
            let side = &mut self.models[flow.from];
            side.free = side.free.max(side.now) + flow.transfer;
            let at = place(flow, step);
            flow.arrivals[at] = side.free + self.delay;
        }
        for receiver in [0, 1] {
            let start = self.models[receiver].now;
            let mut last: Option<(usize, Duration)> = None;
            for (number, flow) in self.variables.iter().enumerate() {
                let waits = flow.from != receiver && flow.variable.drop == DropPolicy::Never;
                let Some(used) = step.checked_sub(flow.variable.lag).filter(|_| waits) else { continue };
                let arrival = flow.arrivals[place(flow, used)];
                if arrival > start && last.is_none_or(|(_, latest)| arrival > latest) {
                    last = Some((number, arrival));
                }
            }
            // A step waits for the field that arrives last.
            let ready = last.map_or(start, |(number, arrival)| {
                self.waits[number] += arrival - start;
                arrival
            });
            self.models[receiver].now = ready + self.models[receiver].compute;
        }
    }
}
