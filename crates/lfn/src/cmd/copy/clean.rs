//! `lfn copy --clean`: lists and deletes the partial files of interrupted copies on this host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lfn_api::copy::CopyError;
use lfn_api::copy::places::without_secrets;
use lfn_copy::clean_local;
use lfn_copy::proto::leftover::CleanRule;
use lfn_copy::proto::location::{Location, Resource};

use super::args::CopyArgs;
use super::interrupt::{interrupt_flag, unless_interrupted};
use crate::exit::{Exit, Failure};
use crate::print::copy::clean::CleanReport;

/// Runs `lfn copy --clean`.
pub(super) fn run(args: &CopyArgs) -> Result<Exit, Failure> {
    let typed = if args.places.is_empty() { &[OsString::from(".")][..] } else { &args.places };
    let paths = typed.iter().map(|place| local_directory(args, place)).collect::<Result<Vec<_>, _>>()?;
    // A dry run deletes nothing.
    let rule =
        CleanRule { min_age: args.clean.older_than, remove: args.overwrite.allowed().force && !args.overwrite.dry_run };
    let interrupted = interrupt_flag()?;
    let places = typed.iter().map(|place| place.to_string_lossy().into_owned());
    let mut report = CleanReport::new(rule, args.output.open()?, places);
    clean_local(&paths, rule, &interrupted, &mut |event| report.add(event))
        .map_err(|error| unless_interrupted(CopyError::from_transfer(error, &args.places).into(), &interrupted))?;
    report.finish()
}

/// Parses a place, which must be a directory of this host.
fn local_directory(args: &CopyArgs, typed: &OsStr) -> Result<PathBuf, Failure> {
    let location = Location::parse_bytes(typed.as_bytes()).map_err(Failure::usage)?;
    match location {
        Location { host: None, resource: Resource::Path(path) } => Ok(path),
        Location { host: Some(host), resource: Resource::Path(path) } => {
            let problem = format!("{}: --clean works on this host only", without_secrets(typed));
            Err(Failure::usage(problem).hint(remote_command(args, &host, &path)?))
        }
        _ => Err(Failure::usage(format!("{}: --clean needs a directory", without_secrets(typed)))
            .hint("lfn copy --clean DIRECTORY")),
    }
}

/// Returns the command that lists the partial files on another host. Paths of a saved name or of a ticket start in a
/// directory that only its server knows.
fn remote_command(args: &CopyArgs, host: &str, path: &Path) -> Result<String, Failure> {
    let resolver = args.resolver();
    if !resolver.is_over_ssh(host)? {
        return Ok("run lfn copy --clean on the host of the server, in the directory that it serves".to_owned());
    }
    // The remote shell starts in the home directory, and does not expand a quoted tilde.
    let path = path.strip_prefix("~").unwrap_or(path);
    let directory = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let words = [OsStr::new("copy"), OsStr::new("--clean"), directory.as_os_str()];
    Ok(resolver.ssh_settings()?.remote_command_line(host, &words)?)
}
