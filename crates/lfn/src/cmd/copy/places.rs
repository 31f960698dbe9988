//! Sources and destination as typed, turned into the two ends of a copy: what is here, and what is asked of the far one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lfn_core::transfer::glob::is_pattern;
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::location::{Location, LocationError, Place, own_name};
use lfn_core::transfer::raw::Raw;
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{From, Pick, To};
use lfn_net::transfer::{LocalDestination, LocalSource};

use crate::exit::Failure;

/// The far end of a copy that does not leave this host; nobody can type it.
pub(super) const HERE: &str = "";

/// Which way it goes, as seen from here; from one far end to another it does not come here at all.
pub(super) enum Direction {
    Up(Vec<LocalSource>, String, To),
    Down(String, Vec<From>, LocalDestination),
    Across { sender: String, from: Vec<From>, receiver: String, to: To },
}

impl Direction {
    /// How much it is, where that is known before it begins.
    pub(super) fn size(&self) -> Option<Bytes> {
        let Direction::Up(sources, ..) = self else { return None };
        let sizes = sources.iter().map(|source| match source {
            LocalSource::Random(bytes) | LocalSource::Zero(bytes) => Some(bytes.0),
            LocalSource::File(path) => {
                let facts = std::fs::metadata(path).ok()?;
                facts.is_file().then_some(facts.len())
            }
        });
        sizes.sum::<Option<u64>>().map(Bytes)
    }

    /// The far end, as it was typed; of two the one that sends.
    pub(super) fn host(&self) -> &str {
        let (Direction::Up(_, host, _) | Direction::Down(host, ..) | Direction::Across { sender: host, .. }) = self;
        host
    }

    /// Whether it does not leave this host.
    pub(super) fn is_here(&self) -> bool {
        self.host() == HERE
    }

    /// Whether two far ends are one and the same as they were typed.
    pub(super) fn is_on_one_host(&self) -> bool {
        self.other_host() == Some(self.host())
    }

    /// The other far end, if there are two.
    pub(super) fn other_host(&self) -> Option<&str> {
        let Direction::Across { receiver, .. } = self else { return None };
        Some(receiver)
    }

    /// Whether there is more than one source, or may be: nobody knows what a pattern stands for at a far end.
    pub(super) fn is_several(&self) -> bool {
        let several = |from: &From| matches!(from, From::File { path } if is_pattern(path.as_bytes()));
        match self {
            Direction::Up(sources, ..) => sources.len() > 1,
            Direction::Down(_, from, _) | Direction::Across { from, .. } => from.len() > 1 || from.iter().any(several),
        }
    }

    /// Whether what is called near in messages is what sends: here, or the source of two far ends.
    pub(super) fn near_sends(&self) -> bool {
        !matches!(self, Direction::Down(..))
    }

    /// Paths at a host reached by ssh start at the home directory there, which is also what `~` stands for.
    pub(super) fn start_at_home(&mut self, is_over_ssh: impl Fn(&str) -> Result<bool, Failure>) -> Result<(), Failure> {
        if let Direction::Up(_, host, to) | Direction::Across { receiver: host, to, .. } = self
            && let To::File { path, .. } = to
            && is_over_ssh(host)?
        {
            *path = without_tilde(path)?;
        }
        if let Direction::Down(host, from, _) | Direction::Across { sender: host, from, .. } = self
            && is_over_ssh(host)?
        {
            for source in from {
                if let From::File { path } = source {
                    *path = without_tilde(path)?;
                }
            }
        }
        Ok(())
    }
}

/// `~/a` is `a`, `~` the directory itself; only a shell knows the homes of others.
pub(super) fn without_tilde(path: &Raw) -> Result<Raw, Failure> {
    match path.as_bytes() {
        b"~" => Ok(Raw::default()),
        [b'~', b'/', rest @ ..] => {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            Ok(Raw::from(&rest[slashes..]))
        }
        [b'~', ..] => {
            Err(Failure::usage(format!("{path}: only ~/ is known, the home directory of the user ssh logs in as"))
                .hint("give the whole path, or ./~NAME for a file of that name"))
        }
        _ => Ok(path.clone()),
    }
}

/// Reads what was typed; the last place is the destination.
pub(super) fn direction(places: &[OsString], allowed: Allowed, pick: &Pick) -> Result<Direction, Failure> {
    let read = |text: &OsString| {
        Location::parse_bytes(text.as_bytes()).map_err(|error| {
            let hint = match &error {
                LocationError::Ticket(_) => TICKETS,
                LocationError::Size { .. } => "a size is 4096, 500MB or 1GiB",
                _ => PLACES,
            };
            Failure::usage(error).hint(hint)
        })
    };
    let mut places = places.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let Some(Location { host, place }) = places.pop() else {
        return Err(Failure::usage("nothing to copy").hint(PLACES));
    };
    // What is in a directory stands in one at the destination, were it but one file.
    let named = |place: &Place| !matches!(place, Place::Path(path) if own_name(path.as_os_str().as_bytes()).is_none());
    let single = pick.names.is_none() && matches!(places.as_slice(), [only] if named(&only.place));
    match host {
        Some(receiver) if places.iter().any(|source| source.host.is_some()) => {
            let (sender, places) = one_far_end(places)?;
            let from = places.into_iter().map(far_source).collect::<Result<_, _>>()?;
            let to = far_destination(place, allowed, single, pick.keep)?;
            Ok(Direction::Across { sender, from, receiver, to })
        }
        Some(host) => {
            let from = places.into_iter().map(|source| local_source(source.place)).collect::<Result<_, _>>()?;
            Ok(Direction::Up(from, host, far_destination(place, allowed, single, pick.keep)?))
        }
        None => {
            let (host, places) = one_far_end(places)?;
            if host == HERE && pick.names.is_none() && pick.rules.is_empty() {
                not_into_itself(&places, &place)?;
            }
            let from = places.into_iter().map(far_source).collect::<Result<_, _>>()?;
            Ok(Direction::Down(host, from, local_destination(place, allowed)?))
        }
    }
}

/// That nothing is meant but a directory into itself is said before anything is made. Where more is meant, or it hides
/// behind a pattern, whoever lists leaves that directory out.
fn not_into_itself(sources: &[Place], destination: &Place) -> Result<(), Failure> {
    let ([Place::Path(from)], Place::Path(to)) = (sources, destination) else { return Ok(()) };
    let known = |path: &Path| fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    // What is not there yet will be made below the first that is.
    let there = to.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::canonicalize(path).ok()
    });
    let above: Vec<_> = there.iter().flat_map(|there| there.ancestors()).filter_map(known).collect();
    if from.is_dir() && known(from).is_some_and(|source| above.contains(&source)) {
        let what = format!("{}: cannot be copied into itself, {}", from.display(), to.display());
        return Err(Failure::usage(what).hint("--exclude leaves out of it where the copy goes"));
    }
    Ok(())
}

/// The far end at which all sources are.
fn one_far_end(sources: Vec<Location>) -> Result<(String, Vec<Place>), Failure> {
    let mut hosts: Vec<_> = sources.iter().map(|source| source.host.clone()).collect();
    hosts.dedup();
    match hosts.as_slice() {
        [Some(host)] => Ok((host.clone(), sources.into_iter().map(|source| source.place).collect())),
        [None] => Ok((HERE.to_owned(), sources.into_iter().map(|source| source.place).collect())),
        _ => Err(Failure::usage("the sources are at several places").hint("one `lfn copy` for each of them")),
    }
}

const TICKETS: &str =
    "paste the ticket whole, in quotes; a path stands before the #: lfn://TOKEN@HOST:PORT/PATH#FINGERPRINT";

pub(super) const PLACES: &str = "lfn copy FILE NAME:PATH, or lfn copy NAME:PATH FILE; `lfn hosts list` shows the names";

fn local_source(place: Place) -> Result<LocalSource, Failure> {
    match place {
        Place::Path(path) => Ok(LocalSource::File(path)),
        Place::Random(bytes) => Ok(LocalSource::Random(bytes)),
        Place::Zero(bytes) => Ok(LocalSource::Zero(bytes)),
        Place::Null => Err(null_source()),
    }
}

fn far_source(place: Place) -> Result<From, Failure> {
    match place {
        Place::Path(path) => Ok(From::File { path: raw(path) }),
        Place::Random(bytes) => Ok(From::Random { bytes }),
        Place::Zero(bytes) => Ok(From::Zero { bytes }),
        Place::Null => Err(null_source()),
    }
}

fn local_destination(place: Place, allowed: Allowed) -> Result<LocalDestination, Failure> {
    match place {
        Place::Path(path) => Ok(LocalDestination::File { path, allowed }),
        Place::Null => Ok(LocalDestination::Null),
        Place::Random(_) | Place::Zero(_) => Err(made_destination()),
    }
}

fn far_destination(place: Place, allowed: Allowed, single: bool, keep: Keep) -> Result<To, Failure> {
    match place {
        Place::Path(path) => Ok(To::File { path: raw(path), allowed, single, keep }),
        Place::Null => Ok(To::Null),
        Place::Random(_) | Place::Zero(_) => Err(made_destination()),
    }
}

fn null_source() -> Failure {
    Failure::usage("null: can only be a destination").hint("as a source use zero:SIZE or random:SIZE")
}

fn made_destination() -> Failure {
    Failure::usage("random: and zero: can only be sources").hint("as a destination use null: or a path")
}

fn raw(path: PathBuf) -> Raw {
    Raw(path.into_os_string().into_vec())
}

/// A ticket holds a token, which belongs in no report.
pub(super) fn without_secrets(typed: &OsStr) -> String {
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
    fn a_tilde_is_the_home_directory() {
        for (path, meant) in
            [("~", ""), ("~/", ""), ("~/a/~", "a/~"), ("~//a", "a"), ("a", "a"), ("/a", "/a"), ("./~a", "./~a")]
        {
            assert_eq!(without_tilde(&path.into()).unwrap(), meant.into());
        }
        assert!(without_tilde(&"~you/a".into()).is_err());
    }
}
