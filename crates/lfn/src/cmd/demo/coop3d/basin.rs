//! The basin of the demo, and the physics that all of its models share.
//!
//! The basin is a box of the size of Lake Erie. It has no bathymetry and no shore line of a real lake.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Length from west to east, m.
pub const LENGTH: f64 = 388_000.0;
/// Width from south to north, m.
pub const WIDTH: f64 = 92_000.0;
/// Depth of the water at rest, m.
pub const DEPTH: f64 = 19.0;

/// Number of cells of the exchanged grid from west to east. A cell is a square of 4 km.
pub const COLUMNS: usize = 97;
/// Number of cells of the exchanged grid from south to north.
pub const ROWS: usize = 23;
/// Number of cells of a field.
pub const CELLS: usize = COLUMNS * ROWS;
/// Side of a cell, m.
pub const CELL: f64 = LENGTH / COLUMNS as f64;

/// Time of one coupling step in the simulation.
pub const MODEL_STEP: Duration = Duration::from_secs(600);

/// Acceleration of gravity, m/s².
pub const GRAVITY: f64 = 9.81;
/// Density of the water, kg/m³.
pub const WATER_DENSITY: f64 = 1000.0;
/// Density of the air, kg/m³.
pub const AIR_DENSITY: f64 = 1.2;
/// Drag coefficient of the wind at a height of 10 m, the `eta_w` of ANUGA.
pub const DRAG: f64 = 3e-3;
/// Manning's coefficient of the bottom, s/m^(1/3).
pub const MANNING: f64 = 0.025;

/// Values of the cells of the exchanged grid: rows from south to north, in each row from west to east.
pub type Cells = Vec<f64>;

/// Returns the middle of a cell, in m from the south-western corner.
pub fn middle(row: usize, column: usize) -> [f64; 2] {
    [(column as f64 + 0.5) * CELL, (row as f64 + 0.5) * CELL]
}

/// Returns the stress of the wind on the water, in Pa eastwards and northwards. The wind is in m/s.
pub fn wind_stress(east: f64, north: f64) -> [f64; 2] {
    let factor = AIR_DENSITY * DRAG * east.hypot(north);
    [factor * east, factor * north]
}

/// Returns the difference in level between the two ends of the basin in a steady wind along it: τL / (ρgh), in m. The
/// stress is in Pa.
#[cfg(test)]
pub fn steady_set_up(stress: f64) -> f64 {
    stress * LENGTH / (WATER_DENSITY * GRAVITY * DEPTH)
}

/// Fields at the surface of the lake, which the lake and the atmosphere exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// Level above the level at rest, m.
    pub level: Cells,
    /// Velocity of the water, m/s.
    pub current_east: Cells,
    pub current_north: Cells,
    /// Wind at a height of 10 m, m/s.
    pub wind_east: Cells,
    pub wind_north: Cells,
}

impl Surface {
    /// Returns the surface of a lake at rest, without wind.
    pub fn at_rest() -> Self {
        let none = || vec![0.0; CELLS];
        Surface { level: none(), current_east: none(), current_north: none(), wind_east: none(), wind_north: none() }
    }

    /// Returns the field of a variable of the coupling file.
    pub fn field(&mut self, variable: &str) -> Option<&mut Cells> {
        match variable {
            "current_east" => Some(&mut self.current_east),
            "current_north" => Some(&mut self.current_north),
            "wind_east" => Some(&mut self.wind_east),
            "wind_north" => Some(&mut self.wind_north),
            _ => None,
        }
    }
}

/// One of the two coupled models.
pub trait Model {
    /// Returns the fields that the model computes and those that arrive from its partner.
    fn surface(&mut self) -> &mut Surface;

    /// Computes the fields one coupling step later.
    fn step(&mut self) -> anyhow::Result<()>;
}
