//! Figures of UDP load: the results of a test and of a ramp, and their prediction.

pub mod figures;
mod predict;
pub mod ramp;

pub use predict::{payload_capacity, predict_datagrams};
