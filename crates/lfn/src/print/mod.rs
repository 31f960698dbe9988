//! One printer per output format.

use std::fmt::Display;
use std::io::{self, Write};

pub mod copy;
pub mod emulate;
pub mod page;
pub mod plan;
pub mod show;
pub mod stamp;
pub mod terminal;
pub mod test;

/// Says something to the user, on stderr. Whoever closed it does not want to hear: that changes no exit status.
pub fn talk(text: impl Display) {
    let _ = write!(io::stderr(), "{text}");
}
