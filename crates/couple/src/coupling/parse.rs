//! Reading and checking of a coupling file.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::{BitRate, parse_unit_duration};
use serde::{Deserialize, Deserializer};

use super::error::{CouplingErrors, CouplingProblem};
use super::model::{Component, Coupling, DropPolicy, ElementType, Grid, PathSettings, Variable};

/// Maximum size of a coupling file.
const MAX_TEXT: usize = 1024 * 1024;
/// Maximum length of a name.
const MAX_NAME: usize = 64;
/// Maximum size of a field: 64 GiB.
const MAX_FIELD: u64 = 64 << 30;
/// Maximum number of steps.
const MAX_STEPS: u64 = 1_000_000_000;
/// Maximum number of dimensions of a grid.
const MAX_DIMENSIONS: usize = 8;
/// Maximum number of variables.
const MAX_VARIABLES: usize = 1000;
/// MTU of a path without `mtu`.
const ETHERNET_MTU: u32 = 1500;
/// MTUs that a path may have: IPv4 hosts accept at least 576 bytes, and a packet has at most 65,535.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;
/// Maximum number of different characters of three, in names that are taken for a misspelt name.
const MISSPELT: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    coupling: CouplingTable,
    path: Option<PathTable>,
    component: BTreeMap<String, ComponentTable>,
    #[serde(default)]
    grid: BTreeMap<String, GridTable>,
    #[serde(default)]
    variable: BTreeMap<String, VariableTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CouplingTable {
    name: String,
    steps: u64,
    #[serde(default, deserialize_with = "optional_duration")]
    model_step: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathTable {
    #[serde(deserialize_with = "rate")]
    rate: BitRate,
    #[serde(deserialize_with = "duration")]
    rtt: Duration,
    mtu: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentTable {
    #[serde(default, deserialize_with = "optional_duration")]
    compute: Option<Duration>,
    #[serde(default)]
    checkpoints: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridTable {
    shape: Vec<u64>,
    #[serde(default)]
    spacing: Vec<f64>,
    #[serde(default)]
    origin: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariableTable {
    from: String,
    to: String,
    grid: String,
    #[serde(rename = "type")]
    element: ElementType,
    units: String,
    #[serde(default)]
    lag: u64,
    initial: Option<f64>,
    #[serde(default)]
    drop: DropPolicy,
}

impl Coupling {
    /// Parses and checks a coupling file. The error lists every problem.
    pub fn parse(text: &str) -> Result<Self, CouplingErrors> {
        if text.len() > MAX_TEXT {
            return Err(CouplingErrors(vec![CouplingProblem::TooLarge { max: MAX_TEXT }]));
        }
        let file: File = toml::from_str(text)
            .map_err(|error| CouplingErrors(vec![CouplingProblem::Toml(toml_problem(text, &error))]))?;
        let coupling = file.into_coupling();
        let problems = coupling.problems();
        if problems.is_empty() { Ok(coupling) } else { Err(CouplingErrors(problems)) }
    }

    /// Returns every problem of the contents.
    pub fn problems(&self) -> Vec<CouplingProblem> {
        let mut problems = Vec::new();
        self.check_names(&mut problems);
        if self.components.len() != 2 {
            problems.push(CouplingProblem::ComponentCount { found: self.components.len() });
        }
        if self.variables.is_empty() {
            problems.push(CouplingProblem::NoVariable);
        }
        if self.variables.len() > MAX_VARIABLES {
            problems.push(CouplingProblem::VariableCount { found: self.variables.len(), max: MAX_VARIABLES });
        }
        self.check_values(&mut problems);
        self.check_variables(&mut problems);
        problems
    }

    fn check_values(&self, problems: &mut Vec<CouplingProblem>) {
        let mut check = |ok: bool, table: String, key, value: String, expected| {
            if !ok {
                problems.push(CouplingProblem::Value { table, key, value, expected });
            }
        };
        let steps = (1..=MAX_STEPS).contains(&self.steps);
        check(steps, "coupling".into(), "steps", self.steps.to_string(), "expected 1 to 1,000,000,000");
        if let Some(path) = self.path {
            check(MTUS.contains(&path.mtu), "path".into(), "mtu", path.mtu.to_string(), "expected 576 to 65,535 bytes");
            check(path.rate.0 > 0, "path".into(), "rate", format!("\"{}\"", path.rate), "expected a rate above 0");
        }
        for (name, component) in &self.components {
            let is_zero = component.compute == Some(Duration::ZERO);
            check(!is_zero, format!("component.{name}"), "compute", "\"0s\"".into(), "expected a time above 0");
        }
        for (name, grid) in &self.grids {
            let (shape, table) = (&grid.shape, || format!("grid.{name}"));
            let ok = (1..=MAX_DIMENSIONS).contains(&shape.len()) && shape.iter().all(|length| *length > 0);
            check(ok, table(), "shape", format!("{shape:?}"), "expected 1 to 8 lengths above 0");
            let fits = |values: &[f64]| {
                values.is_empty() || (values.len() == shape.len() && values.iter().all(|value| value.is_finite()))
            };
            let expected = "expected one number for each dimension";
            check(fits(&grid.spacing), table(), "spacing", format!("{:?}", grid.spacing), expected);
            check(fits(&grid.origin), table(), "origin", format!("{:?}", grid.origin), expected);
        }
        for (name, variable) in &self.variables {
            let Variable { lag, units, element, initial, .. } = variable;
            let table = || format!("variable.{name}");
            check(*lag < self.steps, table(), "lag", lag.to_string(), "expected less than the number of steps");
            let is_printable = units.len() <= MAX_NAME && !units.chars().any(char::is_control);
            let expected = "expected at most 64 bytes without control characters";
            check(is_printable, table(), "units", format!("{units:?}"), expected);
            if let Some(value) = *initial {
                let expected = "expected a finite number that the type can have";
                check(element.can_have(value), table(), "initial", value.to_string(), expected);
            }
        }
    }

    fn check_names(&self, problems: &mut Vec<CouplingProblem>) {
        let valid = |name: &str| {
            let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            (1..=MAX_NAME).contains(&name.len()) && characters
        };
        let names = [("coupling", vec![&self.name]), ("component", self.components.keys().collect())].into_iter();
        let names = names.chain([("grid", self.grids.keys().collect()), ("variable", self.variables.keys().collect())]);
        for (table, names) in names {
            let wrong = names.into_iter().filter(|name| !valid(name)).take(10);
            problems.extend(wrong.map(|name| CouplingProblem::Name { table, name: name.chars().take(80).collect() }));
        }
    }

    fn check_variables(&self, problems: &mut Vec<CouplingProblem>) {
        for (name, variable) in &self.variables {
            let references = [
                ("from", &variable.from, "component", self.components.contains_key(&variable.from)),
                ("to", &variable.to, "component", self.components.contains_key(&variable.to)),
                ("grid", &variable.grid, "grid", self.grids.contains_key(&variable.grid)),
            ];
            for (key, value, what, exists) in references {
                if !exists {
                    let known: Vec<&String> =
                        if what == "grid" { self.grids.keys().collect() } else { self.components.keys().collect() };
                    let distance = |known: &String| strsim::osa_distance(known, value);
                    let similar = known.into_iter().min_by_key(|known| distance(known));
                    let similar = similar.filter(|known| distance(known) * MISSPELT <= known.len()).cloned();
                    let (variable, value) = (name.clone(), value.clone());
                    problems.push(CouplingProblem::Unknown { variable, key, value, what, similar });
                }
            }
            if variable.from == variable.to {
                let component = variable.from.clone();
                problems.push(CouplingProblem::ToItself { variable: name.clone(), component });
            }
            if variable.lag > 0 && variable.initial.is_none() && variable.drop == DropPolicy::Never {
                problems.push(CouplingProblem::NoInitial { variable: name.clone(), lag: variable.lag });
            }
            let bytes = self.field_bytes(variable).0;
            if bytes > MAX_FIELD {
                problems.push(CouplingProblem::FieldSize { variable: name.clone(), bytes, max: MAX_FIELD });
            }
        }
    }
}

impl File {
    fn into_coupling(self) -> Coupling {
        let component = |(name, table): (String, ComponentTable)| {
            (name, Component { compute: table.compute, checkpoints: table.checkpoints })
        };
        let grid = |(name, table): (String, GridTable)| {
            (name, Grid { shape: table.shape, spacing: table.spacing, origin: table.origin })
        };
        let variable = |(name, table): (String, VariableTable)| {
            let VariableTable { from, to, grid, element, units, lag, initial, drop } = table;
            (name, Variable { from, to, grid, element, units, lag, initial, drop })
        };
        Coupling {
            name: self.coupling.name,
            steps: self.coupling.steps,
            model_step: self.coupling.model_step,
            path: self.path.map(|path| PathSettings {
                rate: path.rate,
                rtt: path.rtt,
                mtu: path.mtu.unwrap_or(ETHERNET_MTU),
            }),
            components: self.component.into_iter().map(component).collect(),
            grids: self.grid.into_iter().map(grid).collect(),
            variables: self.variable.into_iter().map(variable).collect(),
        }
    }
}

/// Returns an error of the TOML parser in one line, with its place.
fn toml_problem(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {message}")
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_unit_duration(&text).map_err(serde::de::Error::custom)
}

fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BitRate, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
