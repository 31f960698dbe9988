//! Reading the sites file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lfn_mesh::sites::Sites;
use lfn_mesh::sites::limits::MAX_FILE_BYTES;

use super::MeshError;

/// Reads the text of a sites file of bounded length.
pub fn read_sites(path: &Path) -> Result<String, MeshError> {
    let failed = |source| MeshError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(MeshError::TooLong { path: path.to_owned(), max: MAX_FILE_BYTES });
    }
    Ok(text)
}

/// Reads and parses a sites file.
pub fn load_sites(path: &Path) -> Result<Sites, MeshError> {
    let text = read_sites(path)?;
    Sites::parse(&text).map_err(|errors| MeshError::Sites { path: path.to_owned(), errors })
}
