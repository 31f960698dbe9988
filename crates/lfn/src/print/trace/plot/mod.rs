//! Pictures of a connection of a capture: goodput with the limits, time-sequence, bytes in flight and window, RTT.
//!
//! Each picture is a panel below a header. The overview has all panels of a connection with the same axis of time.
//! Colours are those that colour-blind readers can distinguish. Limits differ by their hatching, lines by their width
//! and dashes, and marks by their shape, so that a black-and-white print has the same information.

mod axes;
mod bands;
mod files;
mod goodput;
mod header;
mod in_flight;
mod layout;
mod legend;
mod picture;
mod rtt;
mod sequence;
mod steps;
#[cfg(test)]
mod tests;
mod view;

pub use self::files::PictureFiles;
pub use self::view::TimeRange;
