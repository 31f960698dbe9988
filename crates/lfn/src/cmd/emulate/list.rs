//! `lfn emulate --list`: the profiles and traces built in, or one of them as a file to copy and change.

use std::io::Write;

use lfn_core::link::EmulatedPath;
use lfn_core::link::profile::{BUILT_IN, Profile};
use lfn_core::link::settings::nearest_word;
use lfn_core::link::trace::{self, BuiltIn, Trace};

use super::DEFAULT_MTU;
use crate::exit::{Exit, Failure};
use crate::print;

pub fn run(name: Option<&str>, json: bool) -> Result<Exit, Failure> {
    let text = match name {
        _ if json => as_json(name)?,
        None => print::emulate::profiles::list(&profiles(None)?, &traces(None)),
        Some(name) => one(name)?,
    };
    if json { print::json() } else { print::out() }.write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}

fn as_json(name: Option<&str>) -> Result<String, Failure> {
    let (profiles, traces) = (profiles(name)?, traces(name));
    match name {
        Some(name) if profiles.is_empty() && traces.is_empty() => Err(unknown(name)),
        _ => Ok(print::emulate::profiles::json(&profiles, &traces)? + "\n"),
    }
}

/// The profiles, or the one of that name.
fn profiles(wanted: Option<&str>) -> Result<Vec<(Profile, EmulatedPath)>, Failure> {
    let read = |(name, text): &(&str, &str)| {
        let profile = Profile::parse(name, text)?;
        let mtu = profile.mtu.unwrap_or(DEFAULT_MTU);
        let path = EmulatedPath::new(std::slice::from_ref(&profile.settings), mtu)?;
        Ok((profile, path))
    };
    BUILT_IN.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).map(read).collect()
}

/// The traces, or the one of that name.
fn traces(wanted: Option<&str>) -> Vec<&'static BuiltIn> {
    trace::BUILT_IN.iter().filter(|trace| wanted.is_none_or(|wanted| wanted == trace.name)).collect()
}

/// A profile as it is written, a trace as CSV.
fn one(name: &str) -> Result<String, Failure> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    Trace::built_in(name).map(|trace| trace.to_csv()).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    let names = || BUILT_IN.iter().map(|(name, _)| *name).chain(trace::BUILT_IN.iter().map(|trace| trace.name));
    Failure::usage(format!("no profile or trace is called '{name}'")).hint(match nearest_word(name, names()) {
        Some(other) => format!("did you mean {other}?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    })
}
