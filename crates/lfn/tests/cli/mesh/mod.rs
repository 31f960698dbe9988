//! Tests of `lfn mesh`.

mod hub;
mod plan;
