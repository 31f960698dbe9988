//! `lfn couple` on this host.

mod plan;
