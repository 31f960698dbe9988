//! Tests of `lfn couple`.

mod run;
