//! `lfn couple` on this host.

mod plan;
mod run;
