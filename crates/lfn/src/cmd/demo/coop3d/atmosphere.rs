//! The synthetic atmosphere: a storm that crosses the basin, and a wind that follows the current of the water a little.
//!
//! The wind is a formula and no weather model. It exists so that both directions of the coupling have an effect.

use super::basin::{COLUMNS, MODEL_STEP, Model, ROWS, Surface, WIDTH, middle};

/// Maximum wind of the storm, m/s.
const MAX_WIND: f64 = 18.0;
/// Distance of the maximum wind from the centre, m.
const RADIUS: f64 = 150_000.0;
/// Path of the centre: it starts west of the basin and moves eastwards, north of the middle of the basin, m and m/s.
const START: f64 = -150_000.0;
const NORTHWARDS: f64 = WIDTH / 2.0 + 90_000.0;
const PACE: f64 = 14.0;
/// Share of the current by which the wind above it changes. A surface that moves with the wind slows the wind less.
const RESPONSE: f64 = 0.3;

/// The synthetic atmosphere above the basin.
#[derive(Debug)]
pub struct Atmosphere {
    steps: u32,
    surface: Surface,
}

impl Atmosphere {
    /// Creates the atmosphere at the start of the simulation.
    pub fn new() -> Self {
        let mut atmosphere = Atmosphere { steps: 0, surface: Surface::at_rest() };
        atmosphere.blow();
        atmosphere
    }

    fn blow(&mut self) {
        let time = (MODEL_STEP * self.steps).as_secs_f64();
        let surface = &mut self.surface;
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let cell = row * COLUMNS + column;
                let [east, north] = storm(middle(row, column), time);
                surface.wind_east[cell] = east + RESPONSE * surface.current_east[cell];
                surface.wind_north[cell] = north + RESPONSE * surface.current_north[cell];
            }
        }
    }
}

impl Model for Atmosphere {
    fn surface(&mut self) -> &mut Surface {
        &mut self.surface
    }

    fn step(&mut self) -> anyhow::Result<()> {
        self.steps += 1;
        self.blow();
        Ok(())
    }
}

/// Returns the wind of the storm at a place and a time in seconds: a vortex that turns as storms of the northern
/// hemisphere do.
fn storm([x, y]: [f64; 2], time: f64) -> [f64; 2] {
    let [dx, dy] = [x - (START + PACE * time), y - NORTHWARDS].map(|distance| distance / RADIUS);
    let factor = MAX_WIND * (0.5 * (1.0 - dx * dx - dy * dy)).exp();
    [-dy * factor, dx * factor]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::basin::CELLS;
    use super::*;

    #[test]
    fn wind_south_of_the_centre_blows_eastwards() {
        let [east, north] = storm([START, 0.0], 0.0);
        assert!(east > 10.0 && north.abs() < 1e-9, "{east} {north}");
        let strongest = storm([START, NORTHWARDS - RADIUS], 0.0);
        assert!((strongest[0] - MAX_WIND).abs() < 1e-9, "{strongest:?}");
    }

    #[test]
    fn wind_follows_the_current_of_the_lake() {
        let mut still = Atmosphere::new();
        let mut flowing = Atmosphere::new();
        flowing.surface.current_east.fill(1.0);
        still.step().unwrap();
        flowing.step().unwrap();
        let difference = flowing.surface.wind_east[CELLS / 2] - still.surface.wind_east[CELLS / 2];
        assert!((difference - RESPONSE).abs() < 1e-12, "{difference}");
        assert_eq!(flowing.surface.wind_north, still.surface.wind_north);
    }
}
