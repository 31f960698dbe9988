//! Sources and destination as typed, converted to the two ends of a copy.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lfn_base::units::Bytes;
use lfn_copy::proto::location::{Location, LocationError, Resource};
use lfn_copy::{LocalDestination, LocalSource};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::final_name;
use lfn_session::wire::copy::glob::is_pattern;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{RemoteDestination, RemoteSource, Selection};

use super::source_size::total_size;
use crate::emulator_env::EmulatorEnvironment;
use crate::error_kind::ErrorKind;
use crate::hosts::{HostError, SavedHosts};
use crate::resolve::LOCAL;

/// Reasons why the places of a copy are not valid.
#[derive(Debug, thiserror::Error)]
pub enum CopyPlaceError {
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("nothing to copy")]
    NoPlaces,
    #[error("{0}: ~USER is not supported; ~/ is the home directory of the ssh user")]
    OtherHome(ByteString),
    #[error("{}: cannot be copied into itself, {}", .source_dir.display(), .destination.display())]
    IntoItself { source_dir: PathBuf, destination: PathBuf },
    #[error("the sources are on several hosts")]
    SeveralHosts,
    #[error("null: can only be a destination")]
    NullSource,
    #[error("random: and zero: can only be sources")]
    GeneratedDestination,
    /// The destination is the name of a host without its colon. The copy would create a file of this name.
    #[error("'{0}' names a host for ssh, but without a colon it is a local file")]
    SshHostWithoutColon(String),
    #[error("'{0}' is a saved name, not a local file or directory")]
    SavedNameWithoutColon(String),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl CopyPlaceError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            CopyPlaceError::Location(LocationError::Ticket(_)) => TICKET_HINT,
            CopyPlaceError::Location(LocationError::Size { .. }) => "write a size as 4096, 500MB or 1GiB",
            CopyPlaceError::Location(_) | CopyPlaceError::NoPlaces => PLACES_HINT,
            CopyPlaceError::OtherHome(_) => "give the full path, or ./~NAME for a file of that name",
            CopyPlaceError::IntoItself { .. } => "exclude the destination directory: --exclude PATTERN",
            CopyPlaceError::SeveralHosts => "run `lfn copy` once for each host",
            CopyPlaceError::NullSource => "as a source use zero:SIZE or random:SIZE",
            CopyPlaceError::GeneratedDestination => "as a destination use null: or a path",
            CopyPlaceError::SshHostWithoutColon(name) | CopyPlaceError::SavedNameWithoutColon(name) => {
                return Some(format!("did you mean {name}:? To create a local file of that name, write ./{name}"));
            }
            CopyPlaceError::Host(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CopyPlaceError::Host(error) => error.kind(),
            _ => ErrorKind::Usage,
        }
    }
}

/// Direction of a copy as seen from this host. A third-party copy goes from one server to another, not through this
/// host.
#[derive(Debug, Clone)]
pub enum Direction {
    Upload(Vec<LocalSource>, String, RemoteDestination),
    Download(String, Vec<RemoteSource>, LocalDestination),
    ThirdParty { sender: String, from: Vec<RemoteSource>, receiver: String, to: RemoteDestination },
}

impl Direction {
    /// Returns the total size, if it is known before the copy. Files that are up to date at the destination count too.
    pub fn size(&self) -> Option<Bytes> {
        let generated: Option<u64> = match self {
            Direction::Upload(sources, ..) => sources
                .iter()
                .map(|source| match source {
                    LocalSource::Random(bytes) | LocalSource::Zero(bytes) => Some(bytes.0),
                    LocalSource::Entries { .. } => None,
                    LocalSource::File(path) => total_size([path.as_path()].into_iter()).map(|bytes| bytes.0),
                })
                .sum(),
            Direction::Download(_, sources, _) => sources
                .iter()
                .map(|source| match source {
                    RemoteSource::Random { bytes } | RemoteSource::Zero { bytes } => Some(bytes.0),
                    RemoteSource::File { .. } => None,
                })
                .sum(),
            Direction::ThirdParty { .. } => None,
        };
        generated.map(Bytes)
    }

    /// Returns the server as typed; of two servers the sender.
    pub fn host(&self) -> &str {
        let (Direction::Upload(_, host, _)
        | Direction::Download(host, ..)
        | Direction::ThirdParty { sender: host, .. }) = self;
        host
    }

    /// Reports whether the copy stays on this host.
    pub fn is_local(&self) -> bool {
        self.host() == LOCAL
    }

    /// Reports whether both servers have the same name as typed.
    pub fn is_on_one_host(&self) -> bool {
        self.other_host() == Some(self.host())
    }

    /// Returns the receiving server of a third-party copy.
    pub fn other_host(&self) -> Option<&str> {
        let Direction::ThirdParty { receiver, .. } = self else { return None };
        Some(receiver)
    }

    /// Reports whether there may be several sources. A pattern on a server may match any number.
    pub fn has_several_sources(&self) -> bool {
        let several = |from: &RemoteSource| matches!(from, RemoteSource::File { path } if is_pattern(path.as_bytes()));
        match self {
            Direction::Upload(sources, ..) => sources.len() > 1,
            Direction::Download(_, from, _) | Direction::ThirdParty { from, .. } => {
                from.len() > 1 || from.iter().any(several)
            }
        }
    }

    /// Reports whether the near end sends. In messages, near is this host, or the source of a third-party copy.
    pub fn near_sends(&self) -> bool {
        !matches!(self, Direction::Download(..))
    }

    /// Makes paths on ssh hosts relative to the home directory, so that a leading `~/` is removed.
    pub fn start_at_home(
        &mut self,
        is_over_ssh: impl Fn(&str) -> Result<bool, HostError>,
    ) -> Result<(), CopyPlaceError> {
        if let Direction::Upload(_, host, to) | Direction::ThirdParty { receiver: host, to, .. } = self
            && let RemoteDestination::File { path, .. } = to
            && is_over_ssh(host)?
        {
            *path = without_tilde(path)?;
        }
        if let Direction::Download(host, from, _) | Direction::ThirdParty { sender: host, from, .. } = self
            && is_over_ssh(host)?
        {
            for source in from {
                if let RemoteSource::File { path } = source {
                    *path = without_tilde(path)?;
                }
            }
        }
        Ok(())
    }
}

/// Removes a leading `~/`. `~USER` is refused, since only a shell knows other home directories.
pub fn without_tilde(path: &ByteString) -> Result<ByteString, CopyPlaceError> {
    match path.as_bytes() {
        b"~" => Ok(ByteString::default()),
        [b'~', b'/', rest @ ..] => {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            Ok(ByteString::from(&rest[slashes..]))
        }
        [b'~', ..] => Err(CopyPlaceError::OtherHome(path.clone())),
        _ => Ok(path.clone()),
    }
}

/// Parses the places as typed. The last place is the destination.
pub fn direction(
    places: &[OsString],
    allowed: OverwritePolicy,
    selection: &Selection,
) -> Result<Direction, CopyPlaceError> {
    let read = |text: &OsString| Location::parse_bytes(text.as_bytes());
    let mut places = places.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let Some(Location { host, resource: place }) = places.pop() else { return Err(CopyPlaceError::NoPlaces) };
    // The contents of a directory are copied into a directory, even if there is only one file.
    let has_own_name =
        |place: &Resource| !matches!(place, Resource::Path(path) if final_name(path.as_os_str().as_bytes()).is_none());
    let single = selection.names.is_none() && matches!(places.as_slice(), [only] if has_own_name(&only.resource));
    match host {
        Some(receiver) if places.iter().any(|source| source.host.is_some()) => {
            let (sender, places) = single_source_host(places)?;
            let from = places.into_iter().map(far_source).collect::<Result<_, _>>()?;
            let to = far_destination(place, allowed, single, selection.preserve)?;
            Ok(Direction::ThirdParty { sender, from, receiver, to })
        }
        Some(host) => {
            let from = places.into_iter().map(|source| local_source(source.resource)).collect::<Result<_, _>>()?;
            Ok(Direction::Upload(from, host, far_destination(place, allowed, single, selection.preserve)?))
        }
        None => {
            let (host, places) = single_source_host(places)?;
            if host == LOCAL && selection.names.is_none() && selection.rules.is_empty() {
                refuse_copy_into_itself(&places, &place)?;
            }
            let from = places.into_iter().map(far_source).collect::<Result<_, _>>()?;
            Ok(Direction::Download(host, from, local_destination(place, allowed)?))
        }
    }
}

/// Refuses a destination that is a saved name, or USER@HOST, without its colon. The copy would create a file of this
/// name.
pub fn refuse_missing_colon(places: &[OsString], emulator: &EmulatorEnvironment) -> Result<(), CopyPlaceError> {
    let Some(name) = places.last().and_then(|place| place.to_str()) else { return Ok(()) };
    if Path::new(name).symlink_metadata().is_ok() {
        return Ok(());
    }
    let is_for_ssh = |name: &str| name.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    if !name.contains([':', '/']) && is_for_ssh(name) {
        return Err(CopyPlaceError::SshHostWithoutColon(name.to_owned()));
    }
    if emulator.far_ticket(name)?.is_some() || SavedHosts::load()?.contains(name) {
        return Err(CopyPlaceError::SavedNameWithoutColon(name.to_owned()));
    }
    Ok(())
}

/// Refuses a copy of one directory into itself before anything is created. With several sources or patterns, the lister
/// skips the destination directory.
fn refuse_copy_into_itself(sources: &[Resource], destination: &Resource) -> Result<(), CopyPlaceError> {
    let ([Resource::Path(from)], Resource::Path(to)) = (sources, destination) else { return Ok(()) };
    let file_id = |path: &Path| fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    // A missing directory is created below its first existing parent.
    let existing_parent = to.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::canonicalize(path).ok()
    });
    let above: Vec<_> =
        existing_parent.iter().flat_map(|existing_parent| existing_parent.ancestors()).filter_map(file_id).collect();
    if from.is_dir() && file_id(from).is_some_and(|source| above.contains(&source)) {
        return Err(CopyPlaceError::IntoItself { source_dir: from.clone(), destination: to.clone() });
    }
    Ok(())
}

/// Returns the single host of all sources.
fn single_source_host(sources: Vec<Location>) -> Result<(String, Vec<Resource>), CopyPlaceError> {
    let mut hosts: Vec<_> = sources.iter().map(|source| source.host.clone()).collect();
    hosts.dedup();
    match hosts.as_slice() {
        [Some(host)] => Ok((host.clone(), sources.into_iter().map(|source| source.resource).collect())),
        [None] => Ok((LOCAL.to_owned(), sources.into_iter().map(|source| source.resource).collect())),
        _ => Err(CopyPlaceError::SeveralHosts),
    }
}

const TICKET_HINT: &str =
    "paste the complete ticket, in quotes; the path goes before the #: lfn://TOKEN@HOST:PORT/PATH#FINGERPRINT";

/// Example of a copy, for hints.
pub const PLACES_HINT: &str = "lfn copy FILE NAME:PATH, or lfn copy NAME:PATH FILE; `lfn hosts list` shows the names";

fn local_source(place: Resource) -> Result<LocalSource, CopyPlaceError> {
    match place {
        Resource::Path(path) => Ok(LocalSource::File(path)),
        Resource::Random(bytes) => Ok(LocalSource::Random(bytes)),
        Resource::Zero(bytes) => Ok(LocalSource::Zero(bytes)),
        Resource::Null => Err(CopyPlaceError::NullSource),
    }
}

fn far_source(place: Resource) -> Result<RemoteSource, CopyPlaceError> {
    match place {
        Resource::Path(path) => Ok(RemoteSource::File { path: raw(path) }),
        Resource::Random(bytes) => Ok(RemoteSource::Random { bytes }),
        Resource::Zero(bytes) => Ok(RemoteSource::Zero { bytes }),
        Resource::Null => Err(CopyPlaceError::NullSource),
    }
}

fn local_destination(place: Resource, allowed: OverwritePolicy) -> Result<LocalDestination, CopyPlaceError> {
    match place {
        Resource::Path(path) => Ok(LocalDestination::File { path, allowed }),
        Resource::Null => Ok(LocalDestination::Null),
        Resource::Random(_) | Resource::Zero(_) => Err(CopyPlaceError::GeneratedDestination),
    }
}

fn far_destination(
    place: Resource,
    allowed: OverwritePolicy,
    single: bool,
    preserve: Preserve,
) -> Result<RemoteDestination, CopyPlaceError> {
    match place {
        Resource::Path(path) => Ok(RemoteDestination::File { path: raw(path), allowed, single, preserve }),
        Resource::Null => Ok(RemoteDestination::Null),
        Resource::Random(_) | Resource::Zero(_) => Err(CopyPlaceError::GeneratedDestination),
    }
}

fn raw(path: PathBuf) -> ByteString {
    ByteString(path.into_os_string().into_vec())
}

/// Removes the token of a ticket from a place, for messages and reports.
pub fn without_secrets(typed: &OsStr) -> String {
    let text = typed.to_string_lossy();
    let Some((_, rest)) = text.strip_prefix("lfn://").and_then(|rest| rest.split_once('@')) else {
        return text.into_owned();
    };
    format!("lfn://{}", rest.rsplit_once('#').map_or(rest, |(place, _)| place))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn tilde_is_the_home_directory() {
        for (path, expected) in
            [("~", ""), ("~/", ""), ("~/a/~", "a/~"), ("~//a", "a"), ("a", "a"), ("/a", "/a"), ("./~a", "./~a")]
        {
            assert_eq!(without_tilde(&path.into()).unwrap(), expected.into());
        }
        assert!(without_tilde(&"~you/a".into()).is_err());
    }
}
