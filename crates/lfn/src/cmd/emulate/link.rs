//! From what was typed to the links themselves: profiles and traces by name or file, specifications, flags.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use lfn_core::link::profile::{BUILT_IN, Profile};
use lfn_core::link::settings::{Hint, HopSettings, SettingsError, nearest_word};

use crate::exit::Failure;

/// One link, and the MTU its profile gives the interfaces.
#[derive(Debug, Default)]
pub struct Hop {
    pub settings: HopSettings,
    pub mtu: Option<u32>,
}

/// Longest profile.
const MOST_PROFILE: u64 = 1 << 20;
/// Longest trace, as text. It is read once, and takes less memory afterwards.
const MOST_TRACE: u64 = 256 << 20;

impl Hop {
    /// What a profile says, by its name or file.
    pub fn of_profile(name: &str) -> Result<Self, Failure> {
        let is_file = name.contains('/') || name.ends_with(".toml");
        let (profile, base) = if is_file {
            let text = read_text(Path::new(name), MOST_PROFILE).map_err(|error| unreadable(name, error))?;
            (Profile::parse(name, &text), Path::new(name).parent())
        } else {
            (Profile::built_in(name).ok_or_else(|| unknown(name))?, None)
        };
        let Profile { mut settings, mtu, .. } = profile.map_err(|error| {
            Failure::usage(format!("profile {name}: {error}")).hint("lfn emulate --list acts prints one to copy")
        })?;
        // Files that a profile names lie beside it.
        read_traces(&mut settings, base.unwrap_or(Path::new("")))
            .map_err(|error| Failure::usage(format!("profile {name}: {error}")).hint(error.hint()))?;
        Ok(Hop { settings, mtu })
    }

    /// A link as `[PROFILE,]KEY=VALUE,…`, after the flag that has it.
    pub fn of_spec(flag: &str, spec: &str) -> Result<Self, Failure> {
        let (mut hop, pairs) = match spec.split_once(',').unwrap_or((spec, "")) {
            (first, _) if first.contains('=') => (Hop::default(), spec),
            (first, rest) => (Hop::of_profile(first.trim())?, rest),
        };
        let over = pairs
            .split(',')
            .filter(|pair| !pair.trim().is_empty())
            .try_fold(HopSettings::default(), |mut settings, pair| settings.set_pair(pair.trim()).map(|()| settings));
        let over = over.and_then(|mut over| read_traces(&mut over, Path::new("")).map(|()| over));
        hop.settings.overlay(&over.map_err(|error| in_spec(flag, spec, error))?);
        Ok(hop)
    }
}

/// Reads the traces that are files, relative to a directory.
pub fn read_traces(settings: &mut HopSettings, base: &Path) -> Result<(), SettingsError> {
    settings.read_traces(&mut |name| read_trace(&base.join(name)).map_err(|error| error.to_string()))
}

/// The text of a trace.
pub fn read_trace(file: &Path) -> std::io::Result<String> {
    read_text(file, MOST_TRACE)
}

/// Settings that make no link, in terms of a specification.
pub fn in_spec(flag: &str, spec: &str, error: SettingsError) -> Failure {
    let hint = match error.hint() {
        Hint::Set { key, value } => format!("--{flag} …,{key}={value}"),
        Hint::Say(text) => text,
    };
    Failure::usage(format!("--{flag} {spec}: {error}")).hint(hint)
}

fn unknown(name: &str) -> Failure {
    let names = BUILT_IN.iter().map(|(name, _)| *name);
    Failure::usage(format!("no profile is called '{name}'")).hint(match nearest_word(name, names) {
        Some(other) => format!("did you mean {other}? A file is called ./{name} or {name}.toml"),
        None => "lfn emulate --list shows them; a file is called ./NAME or NAME.toml".to_owned(),
    })
}

fn unreadable(name: &str, error: impl Display) -> Failure {
    Failure::usage(format!("profile {name}: {error}")).hint("lfn emulate --list shows those built in")
}

fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    let mut text = String::new();
    // A device or a pipe may never end.
    let read = File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(std::io::Error::other(format!("more than {} MiB", most >> 20)));
    }
    Ok(text)
}
