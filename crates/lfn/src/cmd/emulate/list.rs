//! `lfn emulate --list`: the profiles and traces built in, or one of them as a file to copy and change.

use std::io::{self, Write};

use lfn_core::link::EmulatedPath;
use lfn_core::link::profile::{BUILT_IN, Profile};
use lfn_core::link::settings::nearest_word;
use lfn_core::link::trace::{self, Trace};

use super::DEFAULT_MTU;
use crate::exit::{Exit, Failure};
use crate::print;

pub fn run(name: Option<&str>) -> Result<Exit, Failure> {
    let text = match name {
        None => print::profiles::list(&profiles()?),
        Some(name) => one(name)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}

fn profiles() -> Result<Vec<(Profile, EmulatedPath)>, Failure> {
    let read = |(name, text): &(&str, &str)| {
        let profile = Profile::parse(name, text)?;
        let mtu = profile.mtu.unwrap_or(DEFAULT_MTU);
        let path = EmulatedPath::new(std::slice::from_ref(&profile.settings), mtu)?;
        Ok((profile, path))
    };
    BUILT_IN.iter().map(read).collect()
}

/// A profile as it is written, a trace as CSV.
fn one(name: &str) -> Result<String, Failure> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    if let Some(trace) = Trace::built_in(name) {
        return Ok(trace.to_csv());
    }
    let names = || BUILT_IN.iter().map(|(name, _)| *name).chain(trace::BUILT_IN.iter().map(|trace| trace.name));
    Err(Failure::usage(format!("no profile or trace is called '{name}'")).hint(match nearest_word(name, names()) {
        Some(other) => format!("did you mean {other}?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    }))
}
