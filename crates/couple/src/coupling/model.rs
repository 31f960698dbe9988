//! The contents of a coupling file.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::{PathProfile, optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// Two components, and the fields that they exchange in each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Coupling {
    /// Name of the simulation.
    pub name: String,
    /// Number of coupling steps.
    pub steps: u64,
    /// Time of one step in the simulation, seconds; null if the file has none.
    #[serde(rename = "model_step_seconds", default, with = "optional_seconds")]
    pub model_step: Option<Duration>,
    /// Path between the sites, for the plan.
    #[serde(default)]
    pub path: Option<PathSettings>,
    /// Components by their name.
    pub components: BTreeMap<String, Component>,
    /// Grids by their name.
    pub grids: BTreeMap<String, Grid>,
    /// Variables by their name.
    pub variables: BTreeMap<String, Variable>,
}

/// Rate and RTT of the path between the sites.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PathSettings {
    /// Capacity of the bottleneck, counted with the headers of the link.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: BitRate,
    /// RTT without queueing, seconds.
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub rtt: Duration,
    /// IP MTU of the narrowest link, bytes.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
}

/// One model of the coupled run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Component {
    /// Time that the model computes in one step, seconds; null if unknown.
    #[serde(rename = "compute_seconds", default, with = "optional_seconds")]
    pub compute: Option<Duration>,
    /// The model writes checkpoints. Its partner keeps the fields since the last one.
    #[serde(default)]
    pub checkpoints: bool,
}

/// A grid on which fields are exchanged. The channel compares grids; it does not convert between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Grid {
    /// Number of points of each dimension, the slowest one first, as in C and NumPy.
    pub shape: Vec<u64>,
    /// Distance of the points of each dimension, in the units of the models; empty if the file has none.
    #[serde(default)]
    pub spacing: Vec<f64>,
    /// Position of the first point of each dimension; empty if the file has none.
    #[serde(default)]
    pub origin: Vec<f64>,
}

/// A field that one component gives to the other in each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Variable {
    /// Component that puts the field.
    pub from: String,
    /// Component that gets the field.
    pub to: String,
    /// Name of the grid.
    pub grid: String,
    /// Type of an element.
    #[serde(rename = "type")]
    pub element: ElementType,
    /// Units in the notation of UDUNITS, for example `m s-1`.
    pub units: String,
    /// Step n uses the partner's field of step n − lag.
    pub lag: u64,
    /// Value of every element in the first `lag` steps, before the partner's first field; null with lag 0.
    #[serde(default)]
    pub initial: Option<f64>,
    /// Fields that may be dropped.
    #[serde(default)]
    pub drop: DropPolicy,
}

/// Type of the elements of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    Float32,
    Float64,
    Int32,
    Int64,
}

/// Fields of a variable that may be dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DropPolicy {
    /// No field is dropped: the sender waits.
    #[default]
    Never,
    /// A newer field replaces older fields that wait, for viewers.
    Oldest,
}

impl ElementType {
    /// Returns the name in the coupling file, which NumPy has too.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Float32 => "float32",
            ElementType::Float64 => "float64",
            ElementType::Int32 => "int32",
            ElementType::Int64 => "int64",
        }
    }

    /// Returns the size of an element.
    pub fn size(self) -> usize {
        match self {
            ElementType::Float32 | ElementType::Int32 => 4,
            ElementType::Float64 | ElementType::Int64 => 8,
        }
    }

    /// Reports whether an element can have this value: a finite number in the range of the type, and a whole one for integers.
    /// The range of `int64` is that in which float64 has every whole number.
    pub fn can_have(self, value: f64) -> bool {
        let max = match self {
            ElementType::Float32 => f64::from(f32::MAX),
            ElementType::Float64 => f64::MAX,
            ElementType::Int32 => f64::from(i32::MAX),
            ElementType::Int64 => (1_u64 << 53) as f64,
        };
        let is_integer = matches!(self, ElementType::Int32 | ElementType::Int64);
        value.abs() <= max && (!is_integer || value.fract() == 0.0)
    }

    /// Returns the bytes of an element with this value, little-endian.
    pub fn encode(self, value: f64) -> Vec<u8> {
        match self {
            ElementType::Float32 => (value as f32).to_le_bytes().to_vec(),
            ElementType::Float64 => value.to_le_bytes().to_vec(),
            ElementType::Int32 => (value as i32).to_le_bytes().to_vec(),
            ElementType::Int64 => (value as i64).to_le_bytes().to_vec(),
        }
    }

    /// Counts the elements that are not a number, in whole elements of little-endian bytes.
    pub fn count_nan(self, bytes: &[u8]) -> u64 {
        let count = match self {
            ElementType::Float32 => {
                let elements = bytes.as_chunks::<4>().0.iter();
                elements.filter(|element| f32::from_le_bytes(**element).is_nan()).count()
            }
            ElementType::Float64 => {
                let elements = bytes.as_chunks::<8>().0.iter();
                elements.filter(|element| f64::from_le_bytes(**element).is_nan()).count()
            }
            ElementType::Int32 | ElementType::Int64 => 0,
        };
        count as u64
    }
}

impl Coupling {
    /// Returns the partner of a component, with its settings.
    pub fn partner_of(&self, component: &str) -> Option<(&String, &Component)> {
        self.components.iter().find(|(name, _)| *name != component)
    }

    /// Returns the size of a field.
    pub fn field_bytes(&self, variable: &Variable) -> Bytes {
        let points = self.grids.get(&variable.grid).map_or(0, Grid::points);
        Bytes(points.saturating_mul(variable.element.size() as u64))
    }

    /// Returns the variables that a component puts.
    pub fn sent_by<'a>(&'a self, component: &'a str) -> impl Iterator<Item = (&'a String, &'a Variable)> {
        self.variables.iter().filter(move |(_, variable)| variable.from == component)
    }

    /// Returns the variables that a component gets.
    pub fn received_by<'a>(&'a self, component: &'a str) -> impl Iterator<Item = (&'a String, &'a Variable)> {
        self.variables.iter().filter(move |(_, variable)| variable.to == component)
    }

    /// Returns the bytes of the fields that a component puts in one step.
    pub fn step_bytes(&self, component: &str) -> Bytes {
        Bytes(self.sent_by(component).map(|(_, variable)| self.field_bytes(variable).0).fold(0, u64::saturating_add))
    }
}

impl Grid {
    /// Returns the number of points; saturates.
    pub fn points(&self) -> u64 {
        self.shape.iter().fold(1, |points, length| points.saturating_mul(*length))
    }
}

impl PathSettings {
    /// Returns the figures of the path for predictions.
    pub fn profile(&self) -> PathProfile {
        PathProfile { mtu: self.mtu, ..PathProfile::new(self.rate, self.rtt) }
    }
}
