//! The disks of an examination: the paths that the user gives, and their measurement after the loads of the path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_copy::disk::{self, DiskError};
use lfn_copy::proto::location::{Location, LocationError, Resource};
use lfn_results::evidence::disk::{DiskEvidence, DiskReport};
use lfn_results::evidence::{PerEnd, Side};
use lfn_results::report::Unseen;
use lfn_session::dial::Target;
use lfn_session::wire::copy::byte_string::ByteString;

use super::event::{DoctorEvent, DoctorPart};
use crate::copy::places::{CopyPlaceError, without_tilde};
use crate::error_text::error_chain;

/// Time of the reads, and time of the writes, of a quick examination.
const QUICK_TIME: Duration = Duration::from_secs(2);

/// Paths whose disks are measured, at most one for each end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskPaths {
    /// Directory or file of this host.
    pub near: Option<PathBuf>,
    /// Directory or file of the server, below its root.
    pub far: Option<ByteString>,
}

/// Reasons why the paths of disks are not valid.
#[derive(Debug, thiserror::Error)]
pub enum DiskPathError {
    #[error(transparent)]
    Location(#[from] LocationError),
    /// A far path starts at the home directory of another user.
    #[error(transparent)]
    Place(#[from] CopyPlaceError),
    #[error("{0} has no disk: give a path of a directory or a file")]
    NoPath(ByteString),
    #[error("{disk} is on another host than {server}")]
    OtherHost { disk: String, server: String },
    #[error("two paths on {0}: an examination measures one disk of each host")]
    TwoPaths(&'static str),
}

impl DiskPathError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            DiskPathError::OtherHost { server, .. } => Some(format!("--disk {server}:PATH")),
            DiskPathError::TwoPaths(_) => Some("give one --disk for each host".to_owned()),
            DiskPathError::Place(error) => error.hint(),
            DiskPathError::Location(_) | DiskPathError::NoPath(_) => Some("--disk /data".to_owned()),
        }
    }
}

impl DiskPaths {
    /// Parses the paths as typed, with the notation of a copy. A remote path must be on `server`.
    pub fn parse(typed: &[OsString], server: &str) -> Result<Self, DiskPathError> {
        let mut paths = DiskPaths::default();
        for text in typed {
            let Location { host, resource } = match path_on(server, text.as_bytes()) {
                Some(path) => Location { host: Some(server.to_owned()), resource: Resource::Path(path) },
                None => Location::parse_bytes(text.as_bytes())?,
            };
            let Resource::Path(path) = resource else {
                return Err(DiskPathError::NoPath(ByteString::from(text.as_bytes())));
            };
            let measured_twice = match host {
                None => paths.near.replace(path).map(|_| "this host"),
                Some(host) if is_same_server(&host, server) => {
                    paths.far.replace(ByteString::from(path.as_os_str().as_bytes())).map(|_| "the server")
                }
                Some(host) => return Err(DiskPathError::OtherHost { disk: shown(&host), server: shown(server) }),
            };
            if let Some(host) = measured_twice {
                return Err(DiskPathError::TwoPaths(host));
            }
        }
        Ok(paths)
    }

    /// Returns the paths for a server over ssh, where a far path starts at the home directory.
    pub(super) fn at_home(self, is_over_ssh: bool) -> Result<Self, DiskPathError> {
        match self.far {
            Some(far) if is_over_ssh => Ok(DiskPaths { far: Some(without_tilde(&far)?), ..self }),
            far => Ok(DiskPaths { far, ..self }),
        }
    }

    /// Returns the time of all measurements.
    pub(super) fn planned_time(&self, quick: bool) -> Duration {
        // Each disk is written and read.
        time(quick) * 2 * (u32::from(self.near.is_some()) + u32::from(self.far.is_some()))
    }

    /// Measures the disks one after the other. What was not measured is added to `missing`.
    pub(super) fn measure(
        &self,
        quick: bool,
        target: &Target,
        stop: &Arc<AtomicBool>,
        missing: &mut Vec<Unseen>,
        on_event: &mut dyn FnMut(&DoctorEvent<'_>),
    ) -> Option<Box<PerEnd<Option<DiskEvidence>>>> {
        let mut measure = |side, path: String, run: &dyn Fn() -> Result<DiskReport, DiskError>| {
            on_event(&DoctorEvent::Begin(DoctorPart::Disk(side)));
            let mut entries = Vec::new();
            let report = match stop.load(Ordering::Relaxed) {
                true => Err("interrupted".to_owned()),
                false => run().map_err(|error| error_chain(&error)),
            };
            match &report {
                Ok(report) => {
                    entries.extend(report.not_read.clone().map(|reason| unknown_rate("read", side, reason)));
                    entries.extend(report.not_written.clone().map(|reason| unknown_rate("write", side, reason)));
                }
                Err(reason) => entries.push(unseen(side, DoctorPart::Disk(side).name().to_owned(), reason.clone())),
            }
            entries.iter().for_each(|entry| on_event(&DoctorEvent::Unseen(entry)));
            missing.extend(entries);
            report.ok().map(|report| DiskEvidence { path, report })
        };
        let near = self.near.as_ref().and_then(|path| {
            let run = || disk::measure_local(path.clone(), time(quick), stop);
            measure(Side::Near, path.to_string_lossy().into_owned(), &run)
        });
        let far = self.far.as_ref().and_then(|path| {
            let run = || disk::measure_remote(target, path.clone(), time(quick), stop);
            measure(Side::Far, path.to_string(), &run)
        });
        (near.is_some() || far.is_some()).then(|| Box::new(PerEnd { near, far }))
    }
}

/// Returns the time of the reads, which is also that of the writes.
fn time(quick: bool) -> Duration {
    if quick { QUICK_TIME } else { disk::MEASURED_TIME }
}

fn unknown_rate(activity: &str, side: Side, reason: String) -> Unseen {
    unseen(side, format!("{activity} rate of the {}", DoctorPart::Disk(side).name()), reason)
}

fn unseen(side: Side, part: String, reason: String) -> Unseen {
    Unseen { part, reason, consequence: DoctorPart::Disk(side).consequence().to_owned() }
}

/// Returns the path of `SERVER:PATH`, where the server is as typed: it may have a port, unlike that of a copy.
fn path_on(server: &str, typed: &[u8]) -> Option<PathBuf> {
    let path = typed.strip_prefix(server.as_bytes())?.strip_prefix(b":")?;
    (!server.is_empty() && !server.starts_with("lfn://")).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns true if both names are the same as typed. A ticket may have a path, and a port need not be repeated.
fn is_same_server(host: &str, server: &str) -> bool {
    let ticket = |text: &str| match Location::parse(text) {
        Ok(Location { host: Some(host), .. }) if text.starts_with("lfn://") => host,
        _ => text.to_owned(),
    };
    let without_port = |name: &str| match name.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => name.to_owned(),
    };
    ticket(host) == ticket(server) || host == without_port(server)
}

/// Returns a server for a message, without the secret of a ticket.
fn shown(server: &str) -> String {
    if server.starts_with("lfn://") { "TICKET".to_owned() } else { server.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &[&str], server: &str) -> Result<DiskPaths, String> {
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        DiskPaths::parse(&typed, server).map_err(|error| error.to_string())
    }

    #[test]
    fn each_end_has_one_path() {
        let both = parse(&["/data", "far:b/c"], "far").unwrap();
        assert_eq!((both.near, both.far), (Some("/data".into()), Some(ByteString::from("b/c"))));
        assert_eq!(parse(&["me@there:"], "me@there").unwrap().far, Some(ByteString::from("")));
        assert_eq!(parse(&["@/run/t:a"], "@/run/t").unwrap().far, Some(ByteString::from("a")));
        for typed in ["10.0.0.1:7323:/data", "10.0.0.1:/data"] {
            assert_eq!(parse(&[typed], "10.0.0.1:7323").unwrap().far, Some(ByteString::from("/data")), "{typed}");
        }
        assert_eq!(parse(&["[::1]:7323:a"], "[::1]:7323").unwrap().far, Some(ByteString::from("a")));
        assert_eq!(parse(&[], "far"), Ok(DiskPaths::default()));
        assert!(parse(&["/a", "/b"], "far").unwrap_err().starts_with("two paths on this host"));
        assert!(parse(&["/a", "far:a", "far:b"], "far").unwrap_err().starts_with("two paths on the server"));
    }

    #[test]
    fn path_of_another_host_is_refused() {
        assert_eq!(parse(&["other:/data"], "far").unwrap_err(), "other is on another host than far");
        assert_eq!(
            parse(&["random:1GiB"], "far").unwrap_err(),
            "random:1GiB has no disk: give a path of a directory or a file"
        );
        let token = "AAAAAAAAAAAAAAAAAAAAAA";
        let ticket = format!("lfn://{token}@far:7323#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let with_path = ticket.replace('#', "/data#");
        assert_eq!(parse(&[&with_path], &ticket).unwrap().far, Some(ByteString::from("data")));
        assert!(!parse(&[&with_path], "far").unwrap_err().contains(token));
    }

    #[test]
    fn far_path_over_ssh_starts_at_home() {
        let paths = parse(&["me@there:~/data"], "me@there").unwrap();
        assert_eq!(paths.clone().at_home(true).unwrap().far, Some(ByteString::from("data")));
        assert_eq!(paths.clone().at_home(false).unwrap(), paths);
    }

    #[test]
    fn each_disk_is_read_and_written() {
        let planned = |typed: &[&str]| parse(typed, "far").unwrap().planned_time(false);
        assert_eq!(planned(&[]), Duration::ZERO);
        assert_eq!(planned(&["/a", "far:"]), 2 * planned(&["/a"]));
    }
}
