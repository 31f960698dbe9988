//! The verb `couple`: exchanges fields between two models, and plans and runs the exchange.

pub mod run;
