//! Published figures of the ACTS satellite path, 1995.
//!
//! Each figure names its report. Report 000 is "High-performance TCP over the ACTS satellite" (NCAR and OSC). Report 004
//! is its companion about window scales. Goodput figures are nettest's `write` lines, in 10⁶ bit/s. `windows` has the
//! figures of the demo, `figures` the sweeps of the report with Figures 16 to 21.

mod figures;
mod windows;

pub use figures::{
    FIGURE_16, FIGURE_17, FIGURE_18, FIGURE_19, FIGURE_21, MAX_TERRESTRIAL_RTT, PublishedRun, published_runs,
    satellite_design, terrestrial_design,
};
pub use windows::{GEOMETRIC_RTT, PING_RTT, RAW_HIPPI, RAW_HIPPI_BEST, TRANSFER, TRANSFER_TIME, WINDOWS, Window, path};
