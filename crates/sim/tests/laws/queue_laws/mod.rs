//! Properties of the rate stage (a queue with its discipline and the line behind it) in virtual time, for all settings
//! and arrivals, against simple references.

mod change;
mod codel;
mod every_discipline;
mod fq_codel;
mod line;
mod red;
mod reference;
mod scenario;
