//! Printers of `lfn trace`.

#[cfg_attr(not(test), expect(dead_code, reason = "lfn trace draws these pictures"))]
pub mod plot;
