//! `lfn copy --clean`: lists and deletes the partial files of interrupted copies, on this host and on servers.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_api::copy::CopyError;
use lfn_api::copy::places::{CopyPlaceError, without_secrets, without_tilde};
use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::leftover::CleanRule;
use lfn_core::transfer::location::{Location, Resource};
use lfn_core::wire::clean::CleanRequest;
use lfn_net::transfer::{clean_local, clean_remote};

use super::args::CopyArgs;
use super::interrupt::{interrupt_flag, unless_interrupted};
use crate::exit::{Exit, Failure};
use crate::print::copy::clean::CleanReport;

/// Places on one host that one request covers.
struct HostPlaces {
    /// Host as typed; `None` for this host.
    host: Option<String>,
    paths: Vec<PathBuf>,
}

/// Runs `lfn copy --clean`.
pub(super) fn run(args: &CopyArgs) -> Result<Exit, Failure> {
    let typed = if args.places.is_empty() { &[OsString::from(".")][..] } else { &args.places };
    let groups = group_by_host(typed)?;
    // A dry run deletes nothing.
    let rule =
        CleanRule { min_age: args.clean.older_than, remove: args.overwrite.allowed().force && !args.overwrite.dry_run };
    let interrupted = interrupt_flag()?;
    let mut report = CleanReport::new(rule, args.output.open()?, typed.iter().map(|place| without_secrets(place)));
    let alone = groups.len() == 1;
    for group in groups {
        // An error on one host does not affect the other hosts.
        if let Err(failure) = clean_places(args, group, rule, &interrupted, &mut report) {
            if alone || interrupted.load(Ordering::Relaxed) {
                return Err(unless_interrupted(failure, &interrupted));
            }
            report.add_failure(&failure);
        }
    }
    report.finish()
}

/// Lists or deletes the partial files below the places of one group.
fn clean_places(
    args: &CopyArgs,
    HostPlaces { host, paths }: HostPlaces,
    rule: CleanRule,
    interrupted: &Arc<AtomicBool>,
    report: &mut CleanReport,
) -> Result<(), Failure> {
    let result = match host {
        None => clean_local(&paths, rule, interrupted, &mut |seen| report.add(None, seen)),
        Some(host) => {
            let over_ssh = args.resolver().is_over_ssh(&host)?;
            let raw = |path: PathBuf| {
                let path = ByteString(path.into_os_string().into_vec());
                if over_ssh { without_tilde(&path) } else { Ok(path) }
            };
            let places = paths.into_iter().map(raw).collect::<Result<_, CopyPlaceError>>()?;
            let far = args.resolver().find_or_start(&host, false, interrupted)?;
            let shown = without_secrets(host.as_ref());
            let mut seen = |seen| report.add(Some(&shown), seen);
            clean_remote(&far.target, CleanRequest { paths: places, rule }, interrupted, &mut seen)
        }
    };
    Ok(result.map_err(|error| CopyError::from_transfer(error, &args.places))?)
}

/// Groups the places by host, in the order typed. Only adjacent places on the same host share a group.
fn group_by_host(typed: &[OsString]) -> Result<Vec<HostPlaces>, Failure> {
    let mut groups: Vec<HostPlaces> = Vec::new();
    for text in typed {
        let read = Location::parse_bytes(text.as_bytes()).map_err(Failure::usage)?;
        let Location { host, resource: Resource::Path(path) } = read else {
            let what = format!("{}: --clean needs a directory", without_secrets(text));
            return Err(Failure::usage(what).hint("lfn copy --clean DIRECTORY, or lfn copy --clean NAME:DIRECTORY"));
        };
        match groups.last_mut().filter(|group| group.host == host) {
            Some(group) => group.paths.push(path),
            None => groups.push(HostPlaces { host, paths: vec![path] }),
        }
    }
    Ok(groups)
}
