//! `lfn copy --clean`: what copies that were cut left at places here and there, and its removal.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_core::transfer::leftover::Rule;
use lfn_core::transfer::location::{Location, Place};
use lfn_core::transfer::raw::Raw;
use lfn_core::wire::clean::CleanRequest;
use lfn_net::transfer::{clean_here, clean_there};

use super::places::{without_secrets, without_tilde};
use super::{Args, failure, stop_flag, unless_interrupted};
use crate::exit::{Exit, Failure};
use crate::print::copy::clean::Report;

/// Places that one walk, or one server, looks below.
struct Group {
    /// As typed; none for this host.
    host: Option<String>,
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let typed = if args.places.is_empty() { &[OsString::from(".")][..] } else { &args.places };
    let groups = groups(typed)?;
    // What is only to be tried writes nothing.
    let rule = Rule { older: args.clean.older, remove: args.there.allowed().force && !args.there.dry_run };
    let interrupted = stop_flag()?;
    let mut report = Report::new(rule, args.json || args.ndjson, typed.iter().map(|place| without_secrets(place)));
    let alone = groups.len() == 1;
    for group in groups {
        // What is wrong at one host says nothing of the others.
        if let Err(failure) = look(args, group, rule, &interrupted, &mut report) {
            if alone || interrupted.load(Ordering::Relaxed) {
                return Err(unless_interrupted(failure, &interrupted));
            }
            report.fail(&failure);
        }
    }
    report.end()
}

/// Looks below the places of one group.
fn look(
    args: &Args,
    Group { host, paths }: Group,
    rule: Rule,
    interrupted: &Arc<AtomicBool>,
    report: &mut Report,
) -> Result<(), Failure> {
    let result = match host {
        None => clean_here(&paths, rule, interrupted, &mut |seen| report.see(None, seen)),
        Some(host) => {
            let over_ssh = args.reach.is_over_ssh(&host, &args.trust)?;
            let raw = |path: PathBuf| {
                let path = Raw(path.into_os_string().into_vec());
                if over_ssh { without_tilde(&path) } else { Ok(path) }
            };
            let places = paths.into_iter().map(raw).collect::<Result<_, _>>()?;
            let far = args.reach.reach((&host, false), &args.trust, &args.waiting, interrupted)?;
            let shown = without_secrets(host.as_ref());
            let mut seen = |seen| report.see(Some(&shown), seen);
            clean_there(&far.target, CleanRequest { places, rule }, interrupted, &mut seen)
        }
    };
    result.map_err(|error| failure(error, &args.places))
}

/// The places in the order in which they were typed, those beside each other at one host together.
fn groups(typed: &[OsString]) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    for text in typed {
        let read = Location::parse_bytes(text.as_bytes()).map_err(Failure::usage)?;
        let Location { host, place: Place::Path(path) } = read else {
            let what = format!("{}: only below a directory can anything be left", without_secrets(text));
            return Err(Failure::usage(what).hint("lfn copy --clean DIRECTORY, or NAME:DIRECTORY"));
        };
        match groups.last_mut().filter(|group| group.host == host) {
            Some(group) => group.paths.push(path),
            None => groups.push(Group { host, paths: vec![path] }),
        }
    }
    Ok(groups)
}
