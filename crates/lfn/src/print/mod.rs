//! One printer per output format.

pub mod ledger;
