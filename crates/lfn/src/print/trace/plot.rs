//! Pictures of an analysis (`--plot`).

use std::path::Path;

use lfn_api::trace::Traced;

use crate::exit::Failure;

/// Draws the pictures of the connections to a file, or to a directory if there are several.
pub fn draw(path: &Path, _traced: &Traced) -> Result<(), Failure> {
    Err(Failure::msg(format!("--plot {}: pictures of captures are not supported yet", path.display())))
}
