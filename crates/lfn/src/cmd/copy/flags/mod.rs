//! The flags of a copy, grouped by topic. Each group converts its values to the types of the protocol.

pub mod clean;
mod lists;
pub mod ssh;
mod rules;
pub mod streams;
pub mod overwrite;
pub mod tree;
pub mod integrity;
