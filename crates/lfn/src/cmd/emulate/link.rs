//! Links from the command line: profiles, traces, specifications and flags.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use lfn_link::profile::{BUILT_IN, Profile};
use lfn_link::settings::{HopSettings, SettingsError, SettingsHint, nearest_word};

use crate::exit::Failure;

/// Settings of one link, and the MTU from its profile.
#[derive(Debug, Default)]
pub struct Hop {
    pub settings: HopSettings,
    pub mtu: Option<u32>,
}

/// Maximum size of a profile, bytes.
const MAX_PROFILE_SIZE: u64 = 1 << 20;
/// Maximum size of a trace file, bytes. The parsed trace takes less memory.
const MAX_TRACE_SIZE: u64 = 256 << 20;

impl Hop {
    /// Reads a profile by name or from a file.
    pub fn from_profile(name: &str) -> Result<Self, Failure> {
        let is_file = name.contains('/') || name.ends_with(".toml");
        let (profile, base) = if is_file {
            let text = read_text(Path::new(name), MAX_PROFILE_SIZE).map_err(|error| profile_error(name, error))?;
            (Profile::parse(name, &text), Path::new(name).parent())
        } else {
            (Profile::built_in(name).ok_or_else(|| unknown_profile(name))?, None)
        };
        let Profile { mut settings, mtu, .. } = profile.map_err(|error| {
            Failure::usage(format!("profile {name}: {error}")).hint("for an example, run: lfn emulate --list acts")
        })?;
        // Trace files are relative to the directory of the profile.
        read_traces(&mut settings, base.unwrap_or(Path::new("")))
            .map_err(|error| Failure::usage(format!("profile {name}: {error}")).hint(error.hint()))?;
        Ok(Hop { settings, mtu })
    }

    /// Parses `[PROFILE,]KEY=VALUE,…`. `flag` is the name of the flag, for errors.
    pub fn from_spec(flag: &str, spec: &str) -> Result<Self, Failure> {
        let (mut hop, pairs) = match spec.split_once(',').unwrap_or((spec, "")) {
            (first, _) if first.contains('=') => (Hop::default(), spec),
            (first, rest) => (Hop::from_profile(first.trim())?, rest),
        };
        let overrides = pairs
            .split(',')
            .filter(|pair| !pair.trim().is_empty())
            .try_fold(HopSettings::default(), |mut settings, pair| settings.set_pair(pair.trim()).map(|()| settings));
        let overrides =
            overrides.and_then(|mut overrides| read_traces(&mut overrides, Path::new("")).map(|()| overrides));
        hop.settings.overlay(&overrides.map_err(|error| spec_error(flag, spec, error))?);
        Ok(hop)
    }
}

/// Reads the trace files, relative to a directory.
pub fn read_traces(settings: &mut HopSettings, base: &Path) -> Result<(), SettingsError> {
    settings.read_traces(&mut |name| read_trace(&base.join(name)).map_err(|error| error.to_string()))
}

/// Reads the text of a trace file.
pub fn read_trace(file: &Path) -> std::io::Result<String> {
    read_text(file, MAX_TRACE_SIZE)
}

/// Describes an error in a specification.
pub fn spec_error(flag: &str, spec: &str, error: SettingsError) -> Failure {
    let hint = match error.hint() {
        SettingsHint::Set { key, value } => format!("--{flag} …,{key}={value}"),
        SettingsHint::Text(text) => text,
    };
    Failure::usage(format!("--{flag} {spec}: {error}")).hint(hint)
}

fn unknown_profile(name: &str) -> Failure {
    let names = BUILT_IN.iter().map(|(name, _)| *name);
    Failure::usage(format!("unknown profile '{name}'")).hint(match nearest_word(name, names) {
        Some(other) => format!("did you mean {other}? For a file, write ./{name} or {name}.toml"),
        None => "lfn emulate --list shows all profiles; for a file, write ./NAME or NAME.toml".to_owned(),
    })
}

fn profile_error(name: &str, error: impl Display) -> Failure {
    Failure::usage(format!("profile {name}: {error}")).hint("lfn emulate --list shows the built-in profiles")
}

fn read_text(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut text = String::new();
    // A device or a pipe may never end.
    let read = File::open(path)?.take(max_bytes + 1).read_to_string(&mut text)?;
    if read as u64 > max_bytes {
        return Err(std::io::Error::other(format!("more than {} MiB", max_bytes >> 20)));
    }
    Ok(text)
}
