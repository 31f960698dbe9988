//! The flags of a copy, in groups: each makes of its text what both ends understand.

pub mod clean;
mod lists;
pub mod reach;
mod rules;
pub mod streams;
pub mod there;
pub mod tree;
pub mod whole;
