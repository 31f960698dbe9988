//! An emulation in this process.

use std::ffi::OsString;

use lfn_emulate::{EmulateError, LogFiles, Setup};

use crate::documents::{EmulateDocument, EmulateSchema};

/// Emulates in this process, which must have only one thread because it is cloned. The commands share its standard
/// input and output. An empty `command` starts a shell. The packet log of a failed run is deleted.
pub fn run_setup(setup: &Setup, command: &[OsString]) -> Result<EmulateDocument, EmulateError> {
    match lfn_emulate::run(setup, command) {
        Ok(outcome) => Ok(EmulateDocument { schema: EmulateSchema::Current, outcome }),
        Err(error) => {
            setup.watch.log.iter().for_each(LogFiles::discard);
            Err(error)
        }
    }
}

/// Returns the unusual settings of the paths, one sentence each. Parallel paths often have the same warnings, so none
/// is repeated.
pub fn warnings(setup: &Setup) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for warning in setup.paths.iter().flat_map(|path| path.warnings()) {
        let text = warning.to_string();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    warnings
}
