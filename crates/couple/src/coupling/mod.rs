//! The coupling file: components, grids and variables, with the lag of each variable.
//!
//! Both sites have the same file. [`Coupling::parse`] checks one file, and [`differences`] compares the files of two sites.

mod difference;
mod error;
mod model;
mod parse;
#[cfg(test)]
mod tests;

pub use difference::{Difference, differences};
pub use error::{CouplingErrors, CouplingProblem};
pub use model::{Component, Coupling, DropPolicy, ElementType, Grid, PathSettings, Variable};
