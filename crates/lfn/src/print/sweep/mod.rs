//! Printers of `lfn sweep`: its progress on stderr, its events as JSON lines, and its result as text.

mod comparison;
mod progress;
mod text;

pub use comparison::comparison_page;
pub use progress::SweepPrinter;
pub use text::page;
