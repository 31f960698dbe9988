//! One printer per output format.

pub mod copy;
pub mod ledger;
pub mod plan;
pub mod test;
