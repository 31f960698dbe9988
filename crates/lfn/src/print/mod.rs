//! One printer per output format.

pub mod ledger;
pub mod plan;
