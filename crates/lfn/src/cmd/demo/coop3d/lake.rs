//! The synthetic lake: linear shallow water in the box of [`basin`](super::basin), with wind stress and bottom friction.
//!
//! The level is in the middle of each cell, and the flow is at the sides of the cells (Arakawa C-grid). The walls let nothing
//! through, so that the volume of the water is constant.

use super::basin::{
    CELL, COLUMNS, DEPTH, GRAVITY, MANNING, MODEL_STEP, Model, ROWS, Surface, WATER_DENSITY, wind_stress,
};

/// Time steps of the lake in a coupling step: 100 s. Waves of √(gh) need less than 207 s in cells of 4 km.
const SUBSTEPS: u32 = 6;

/// State of the synthetic lake.
#[derive(Debug)]
pub struct Lake {
    surface: Surface,
    /// Velocity eastwards at the western side of each cell, m/s; one column more for the eastern wall.
    east: Vec<f64>,
    /// Velocity northwards at the southern side of each cell, m/s; one row more for the northern wall.
    north: Vec<f64>,
}

impl Lake {
    /// Creates a lake at rest.
    pub fn new() -> Self {
        Lake {
            surface: Surface::at_rest(),
            east: vec![0.0; (COLUMNS + 1) * ROWS],
            north: vec![0.0; COLUMNS * (ROWS + 1)],
        }
    }

    /// Computes the current in the middle of each cell.
    fn update_current(&mut self) {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let (cell, side) = (row * COLUMNS + column, row * (COLUMNS + 1) + column);
                self.surface.current_east[cell] = (self.east[side] + self.east[side + 1]) / 2.0;
                self.surface.current_north[cell] = (self.north[cell] + self.north[cell + COLUMNS]) / 2.0;
            }
        }
    }

    /// Applies the slope of the surface, the wind and the friction of the bottom to the flow. The walls have none.
    fn accelerate(&mut self, stress: &[[f64; 2]], dt: f64) {
        for row in 0..ROWS {
            for column in 1..COLUMNS {
                let (here, west) = (row * COLUMNS + column, row * COLUMNS + column - 1);
                let slope = (self.surface.level[here] - self.surface.level[west]) / CELL;
                let wind = (stress[here][0] + stress[west][0]) / 2.0;
                let velocity = &mut self.east[row * (COLUMNS + 1) + column];
                *velocity = accelerated(*velocity, slope, wind, dt);
            }
        }
        for row in 1..ROWS {
            for column in 0..COLUMNS {
                let (here, south) = (row * COLUMNS + column, (row - 1) * COLUMNS + column);
                let slope = (self.surface.level[here] - self.surface.level[south]) / CELL;
                let wind = (stress[here][1] + stress[south][1]) / 2.0;
                self.north[here] = accelerated(self.north[here], slope, wind, dt);
            }
        }
    }

    /// Moves the water: the level rises where more water flows in than out.
    fn flow(&mut self, dt: f64) {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let (cell, side) = (row * COLUMNS + column, row * (COLUMNS + 1) + column);
                let inflow = self.east[side] - self.east[side + 1] + self.north[cell] - self.north[cell + COLUMNS];
                self.surface.level[cell] += dt * DEPTH * inflow / CELL;
            }
        }
    }
}

impl Model for Lake {
    fn surface(&mut self) -> &mut Surface {
        &mut self.surface
    }

    fn step(&mut self) -> anyhow::Result<()> {
        let dt = MODEL_STEP.as_secs_f64() / f64::from(SUBSTEPS);
        let wind = self.surface.wind_east.iter().zip(&self.surface.wind_north);
        let stress: Vec<[f64; 2]> = wind.map(|(east, north)| wind_stress(*east, *north)).collect();
        for _ in 0..SUBSTEPS {
            self.accelerate(&stress, dt);
            self.flow(dt);
        }
        self.update_current();
        Ok(())
    }
}

/// Returns a velocity after a time step. The friction is implicit, so that it never reverses the flow.
fn accelerated(velocity: f64, slope: f64, stress: f64, dt: f64) -> f64 {
    let pushed = velocity + dt * (stress / (WATER_DENSITY * DEPTH) - GRAVITY * slope);
    let friction = GRAVITY * MANNING * MANNING / DEPTH.powf(4.0 / 3.0);
    pushed / (1.0 + dt * friction * pushed.abs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::basin::{CELLS, LENGTH, steady_set_up};
    use super::*;

    /// Returns the difference in level between the eastern and the western end, m.
    fn set_up(lake: &Lake) -> f64 {
        // The level rises evenly, so that the ends of the basin are half a cell outside of the middle of the last cells.
        let mean =
            |column: usize| (0..ROWS).map(|row| lake.surface.level[row * COLUMNS + column]).sum::<f64>() / ROWS as f64;
        (mean(COLUMNS - 1) - mean(0)) * COLUMNS as f64 / (COLUMNS - 1) as f64
    }

    /// In a wind that starts suddenly, the level swings around the steady set-up. Its mean over a period is the set-up.
    #[test]
    fn mean_set_up_is_the_analytic_one() {
        let mut lake = Lake::new();
        lake.surface.wind_east.fill(8.0);
        let period = 2.0 * LENGTH / (GRAVITY * DEPTH).sqrt();
        let steps = (period / MODEL_STEP.as_secs_f64()).round() as usize;
        let mut sum = 0.0;
        for _ in 0..steps {
            lake.step().unwrap();
            sum += set_up(&lake);
        }
        let (mean, expected) = (sum / steps as f64, steady_set_up(wind_stress(8.0, 0.0)[0]));
        assert!((mean / expected - 1.0).abs() < 0.03, "{mean} m, expected {expected} m");
    }

    #[test]
    fn volume_of_the_water_is_constant() {
        let mut lake = Lake::new();
        for (cell, wind) in lake.surface.wind_east.iter_mut().enumerate() {
            *wind = 20.0 * (cell as f64 * 0.37).sin();
        }
        lake.surface.wind_north.fill(-9.0);
        for _ in 0..100 {
            lake.step().unwrap();
        }
        let rise = lake.surface.level.iter().sum::<f64>() / CELLS as f64;
        assert!(rise.abs() < 1e-9, "the mean level rose by {rise} m");
        assert!(lake.surface.level.iter().any(|level| level.abs() > 0.1));
    }

    #[test]
    fn lake_without_wind_stays_at_rest() {
        let mut lake = Lake::new();
        lake.step().unwrap();
        assert!(lake.surface.level.iter().all(|level| *level == 0.0));
        assert!(lake.surface.current_east.iter().all(|velocity| *velocity == 0.0));
    }
}
