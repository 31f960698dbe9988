//! Reading the coupling file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lfn_couple::Coupling;

use super::CoupleError;

/// Maximum size of a coupling file that is read; the parser refuses the same size.
const MAX_FILE: u64 = 1024 * 1024;

/// Reads and checks a coupling file. The error lists every problem of the file.
pub fn read_coupling(path: &Path) -> Result<Coupling, CoupleError> {
    let failed = |source| CoupleError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    // One byte more than permitted, so that the parser reports a file that is too large.
    File::open(path).map_err(failed)?.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    Coupling::parse(&text).map_err(|errors| CoupleError::File { path: path.to_owned(), errors })
}
