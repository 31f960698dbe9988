//! The settings file of a sweep (`--file`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lfn_campaign::settings_file::{MAX_SETTINGS_BYTES, SettingsFile, parse_settings};

use crate::exit::Failure;

/// Reads a settings file.
pub(super) fn read_settings(path: &Path) -> Result<SettingsFile, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("--file {}: {error}", path.display())).hint("--file sweep.toml")
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(MAX_SETTINGS_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > MAX_SETTINGS_BYTES {
        return Err(failed(&"longer than 1 MiB"));
    }
    parse_settings(&text)
        .map_err(|error| Failure::usage(format!("--file {}: {error}", path.display())).hint(error.hint()))
}
