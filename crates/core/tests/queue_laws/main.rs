//! Laws of the bottleneck, the queue with its disciplines and the line behind it, in virtual time: whatever the settings
//! and the arrivals, and against references that are as simple as can be.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod change;
mod codel;
mod every_discipline;
mod fq_codel;
mod line;
mod red;
mod reference;
mod scenario;
#[path = "../support/mod.rs"]
mod support;
