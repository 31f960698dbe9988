//! The two coupling files of the demo: lock-step, and with the lag that the plan shows.

use std::time::Duration;

use anyhow::{Context, Result};
use lfn_base::path::PathProfile;
use lfn_couple::Coupling;
use lfn_couple::plan::{PlannedRun, predict};

use super::basin::{CELL, COLUMNS, MODEL_STEP, ROWS};

/// Number of coupling steps: eight hours.
pub const STEPS: u64 = 48;

/// Time of one step of a synthetic model. The model waits for the rest of this time, as if it computed longer.
pub const SYNTHETIC_STEP: Duration = Duration::from_millis(100);

/// A coupling with its file and its prediction.
#[derive(Debug)]
pub struct PlannedCoupling {
    /// Name of the run: `lock-step` or `lagged`.
    pub name: &'static str,
    pub text: String,
    pub coupling: Coupling,
    pub predicted: PlannedRun,
}

impl PlannedCoupling {
    fn new(name: &'static str, text: String, path: &PathProfile) -> Result<Self> {
        let coupling = Coupling::parse(&text).context("the coupling file of the demo is invalid")?;
        let predicted = predict(&coupling, path).context("the demo has no prediction")?;
        Ok(PlannedCoupling { name, text, coupling, predicted })
    }

    /// Returns the largest lag.
    pub fn lag(&self) -> u64 {
        self.coupling.variables.values().map(|variable| variable.lag).max().unwrap_or(0)
    }
}

/// Returns the couplings of both runs. `lake_step` is the time that the lake computes in one step.
pub fn couplings(steps: u64, lake_step: Duration, path: &PathProfile) -> Result<[PlannedCoupling; 2]> {
    let text = |lag: &dyn Fn(&str) -> u64| coupling_file(steps, lake_step, path, lag);
    let lock_step = PlannedCoupling::new("lock-step", text(&|_| 0), path)?;
    let needed = |name: &str| {
        let variable = lock_step.predicted.variables.iter().find(|variable| variable.name == name);
        variable.and_then(|variable| variable.needed_lag).unwrap_or(0).min(steps.saturating_sub(1))
    };
    let lagged = PlannedCoupling::new("lagged", text(&needed), path)?;
    Ok([lock_step, lagged])
}

/// Variables, each with the component that puts the field and the component that gets the field.
const VARIABLES: [[&str; 3]; 4] = [
    ["wind_east", "atmosphere", "lake"],
    ["wind_north", "atmosphere", "lake"],
    ["current_east", "lake", "atmosphere"],
    ["current_north", "lake", "atmosphere"],
];

fn coupling_file(steps: u64, lake_step: Duration, path: &PathProfile, lag: &dyn Fn(&str) -> u64) -> String {
    let (rate, rtt, model_step) = (path.capacity.0, path.base_rtt.as_micros(), MODEL_STEP.as_secs());
    let computes = [("atmosphere", SYNTHETIC_STEP), ("lake", lake_step)];
    let mut text = format!(
        "[coupling]\nname = \"coop3d\"\nsteps = {steps}\nmodel_step = \"{model_step}s\"\n\n\
         [path]\nrate = \"{rate}bit\"\nrtt = \"{rtt}us\"\nmtu = {}\n\n",
        path.mtu
    );
    for (component, compute) in computes {
        text += &format!("[component.{component}]\ncompute = \"{}us\"\n\n", compute.as_micros());
    }
    let half = CELL / 2.0;
    text += &format!(
        "[grid.surface]\nshape = [{ROWS}, {COLUMNS}]\nspacing = [{CELL:.1}, {CELL:.1}]\norigin = [{half:.1}, {half:.1}]\n"
    );
    for [name, from, to] in VARIABLES {
        text += &format!(
            "\n[variable.{name}]\nfrom = \"{from}\"\nto = \"{to}\"\ngrid = \"surface\"\ntype = \"float64\"\n\
             units = \"m s-1\"\nlag = {}\ninitial = 0.0\n",
            lag(name)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_campaign::published;

    use super::*;

    #[test]
    fn planned_lag_hides_the_path() {
        let [lock_step, lagged] = couplings(STEPS, SYNTHETIC_STEP, &published::path()).unwrap();
        assert_eq!((lock_step.lag(), lagged.lag()), (0, 3));
        assert_eq!(lagged.predicted.run, lagged.predicted.run_without_waits);
        assert!(lock_step.predicted.run > 3 * lagged.predicted.run, "{:?}", lock_step.predicted);
        assert_eq!(lagged.coupling.path.unwrap().rate, published::path().capacity);
    }

    #[test]
    fn few_steps_have_a_smaller_lag() {
        let [_, lagged] = couplings(3, SYNTHETIC_STEP, &published::path()).unwrap();
        assert_eq!(lagged.lag(), 2);
    }
}
