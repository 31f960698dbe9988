//! Tests of `lfn mesh`.

mod plan;
