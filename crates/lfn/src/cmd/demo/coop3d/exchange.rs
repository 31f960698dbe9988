//! The steps of a component, with any exchange of fields.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use lfn_couple::{Channel, Coupling};

use super::basin::Model;
use super::fields::{decode, encode};

/// One of the two processes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Near side: the synthetic atmosphere, which dials
    Atmosphere,
    /// Far side: the lake, which listens
    Lake,
}

impl Component {
    /// Returns the name in the coupling file.
    pub fn name(self) -> &'static str {
        match self {
            Component::Atmosphere => "atmosphere",
            Component::Lake => "lake",
        }
    }
}

/// Exchange of fields with the partner.
pub trait Exchange {
    /// Begins the next step; none after the last step.
    fn begin_step(&mut self) -> Result<Option<u64>>;

    /// Sends the field of a variable in this step.
    fn put(&mut self, variable: &str, values: &[f64]) -> Result<()>;

    /// Receives the partner's field of a variable for this step.
    fn get(&mut self, variable: &str, values: &mut [f64]) -> Result<()>;
}

impl Exchange for Channel {
    fn begin_step(&mut self) -> Result<Option<u64>> {
        Ok(Channel::begin_step(self)?)
    }

    fn put(&mut self, variable: &str, values: &[f64]) -> Result<()> {
        Ok(self.put_with(variable, |bytes| encode(values, bytes))?)
    }

    fn get(&mut self, variable: &str, values: &mut [f64]) -> Result<()> {
        let Some(field) = Channel::get(self, variable)? else { bail!("no field of {variable} arrived") };
        decode(&field.bytes, values);
        self.recycle(variable, field);
        Ok(())
    }
}

/// Variables of a component: true for those that it puts.
pub fn variables_of(coupling: &Coupling, component: &str) -> BTreeMap<String, bool> {
    coupling.variables.iter().map(|(name, variable)| (name.clone(), variable.from == component)).collect()
}

/// Runs all steps. A model that is faster than `min_step_time` waits for the rest of this time.
pub fn run_steps(
    exchange: &mut dyn Exchange,
    model: &mut dyn Model,
    variables: &BTreeMap<String, bool>,
    min_step_time: Duration,
    mut on_step: impl FnMut(u64),
) -> Result<()> {
    let missing = |variable: &str| anyhow!("the models of the demo have no {variable}");
    while let Some(step) = exchange.begin_step()? {
        on_step(step);
        for (variable, _) in variables.iter().filter(|(_, is_put)| **is_put) {
            exchange.put(variable, model.surface().field(variable).ok_or_else(|| missing(variable))?)?;
        }
        for (variable, _) in variables.iter().filter(|(_, is_put)| !**is_put) {
            exchange.get(variable, model.surface().field(variable).ok_or_else(|| missing(variable))?)?;
        }
        let start = Instant::now();
        model.step()?;
        thread::sleep(min_step_time.saturating_sub(start.elapsed()));
    }
    Ok(())
}
