//! Known answers and properties of paths and plans.

mod known_answers;
mod plan_properties;
