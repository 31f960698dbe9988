//! The flags of a copy, grouped by topic. Each group converts its values to the types of the protocol.

pub mod clean;
pub mod integrity;
mod lists;
pub mod overwrite;
pub mod progress;
pub mod queue;
pub mod ranks;
mod rules;
pub mod streams;
pub mod stripes;
pub mod tree;
