//! `lfn emulate --list`: lists the built-in profiles and traces, or prints one of them as a file to copy and change.

use std::io::Write;

use lfn_api::emulate::DEFAULT_MTU;
use lfn_link::EmulatedPath;
use lfn_link::profile::{BUILT_IN, Profile};
use lfn_link::settings::nearest_word;
use lfn_link::trace::{self, BuiltInTrace, LinkTrace};

use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::Output;

/// Prints all built-in profiles and traces, or the one called `name`.
pub fn run(name: Option<&str>, output: Output) -> Result<Exit, Failure> {
    let (selected, traces) = (profiles(name)?, traces(name));
    let text = match name {
        None => print::emulate::profiles::list(&selected, &traces),
        Some(name) => profile_or_trace(name)?,
    };
    let document = print::emulate::profiles::document(&selected, &traces);
    output.finish(&document, || print::out().write_all(text.as_bytes()))?;
    Ok(Exit::Ok)
}

/// Returns all profiles, or the one with this name.
fn profiles(selected: Option<&str>) -> Result<Vec<(Profile, EmulatedPath)>, Failure> {
    let read = |(name, text): &(&str, &str)| {
        let profile = Profile::parse(name, text)?;
        let mtu = profile.mtu.unwrap_or(DEFAULT_MTU);
        let path = EmulatedPath::new(std::slice::from_ref(&profile.settings), mtu)?;
        Ok((profile, path))
    };
    BUILT_IN.iter().filter(|(name, _)| selected.is_none_or(|selected| selected == *name)).map(read).collect()
}

/// Returns all traces, or the one with this name.
fn traces(selected: Option<&str>) -> Vec<&'static BuiltInTrace> {
    trace::BUILT_IN.iter().filter(|trace| selected.is_none_or(|selected| selected == trace.name)).collect()
}

/// Returns a profile as TOML, or a trace as CSV.
fn profile_or_trace(name: &str) -> Result<String, Failure> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    LinkTrace::built_in(name).map(|trace| trace.to_csv()).ok_or_else(|| unknown_name(name))
}

fn unknown_name(name: &str) -> Failure {
    let names = || BUILT_IN.iter().map(|(name, _)| *name).chain(trace::BUILT_IN.iter().map(|trace| trace.name));
    Failure::usage(format!("unknown profile or trace '{name}'")).hint(match nearest_word(name, names()) {
        Some(other) => format!("did you mean {other}?"),
        None => format!("available: {}", names().collect::<Vec<_>>().join(", ")),
    })
}
