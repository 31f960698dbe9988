//! The log of a pair for a day, and the comparison of two days.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::date;
use lfn_mesh::archive::{Archive, ArchiveError, EntryFilter};
use lfn_mesh::compare::{DayLog, compare};
use lfn_mesh::entry::Entry;
use lfn_mesh::hub::saved_plan;
use lfn_mesh::sites::Sites;

use super::{MeshError, PLAN_FILE, load_sites};
use crate::documents::{LogDocument, LogSchema};
use crate::error_kind::ErrorKind;

/// Length of a day.
const DAY: Duration = Duration::from_secs(86_400);

/// Maximum number of names that an error lists.
const MAX_NAMES: usize = 8;

/// Options of the function [`log()`].
#[derive(Debug, Clone)]
pub struct LogOptions {
    pub archive: PathBuf,
    /// Sites file, for names of sites; `None` uses that of a hub with its state next to the archive.
    pub sites: Option<PathBuf>,
    /// First host, or its site.
    pub from: String,
    /// Second host, or its site.
    pub to: String,
    /// Time within the day (UTC); `None` for the newest day with entries.
    pub day: Option<Duration>,
    /// Time within the second day.
    pub against: Option<Duration>,
}

/// Reasons why a log cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the archive has no host '{name}'{}", if *.has_sites { ", and no host of a site with this name" } else { "" })]
    NoHost {
        name: String,
        /// A sites file was read too.
        has_sites: bool,
        /// Names of the archive, the most similar first.
        near: Vec<String>,
    },
    #[error("{from} and {to} have no entry{}", .day.as_ref().map(|day| format!(" on {day} (UTC)")).unwrap_or_default())]
    NoEntries { from: String, to: String, day: Option<String> },
    #[error("{0} and {0} are one host")]
    SameHost(String),
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl LogError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            LogError::NoHost { near, .. } if near.is_empty() => {
                Some("import results first: lfn mesh import FILE".to_owned())
            }
            LogError::NoHost { near, has_sites: true, .. } => Some(format!("use one of {}", near.join(", "))),
            LogError::NoHost { near, .. } => {
                Some(format!("use one of {}; names of sites need --sites FILE", near.join(", ")))
            }
            LogError::NoEntries { from, to, day: Some(_) } => {
                Some(format!("show the newest day: lfn mesh log {from} {to}"))
            }
            LogError::Mesh(error) => error.hint(),
            LogError::Archive(error) => error.hint(),
            LogError::NoEntries { .. } | LogError::SameHost(_) => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogError::NoHost { .. } | LogError::SameHost(_) => ErrorKind::Usage,
            LogError::Mesh(error) => error.kind(),
            LogError::NoEntries { .. } | LogError::Archive(_) => ErrorKind::Failed,
        }
    }
}

/// Reads one day of a pair, or compares two days.
pub fn log(options: &LogOptions) -> Result<LogDocument, LogError> {
    let mut archive = Archive::open_read_only(&options.archive)?;
    let known = archive.hosts()?;
    let sites = match &options.sites {
        Some(path) => Some(Arc::new(load_sites(path)?)),
        None => saved_plan(&options.archive.with_file_name(PLAN_FILE)).map(|plan| plan.sites),
    };
    let find = |name: &str| find_host(name, &known, sites.as_deref());
    let (from, to) = (find(&options.from)?, find(&options.to)?);
    if from == to {
        return Err(LogError::SameHost(from));
    }
    let day = match options.day {
        Some(day) => day,
        None => newest(&mut archive, &from, &to)?.ok_or_else(|| LogError::NoEntries {
            from: from.clone(),
            to: to.clone(),
            day: None,
        })?,
    };
    let first = day_log(&mut archive, &from, &to, day)?;
    let against = options.against.map(|day| day_log(&mut archive, &from, &to, day)).transpose()?;
    let comparison = against.as_ref().map(|second| compare(&first, second));
    Ok(LogDocument { schema: LogSchema::Current, first: from, second: to, log: first, against, comparison })
}

/// Returns the host of a name: a host of the archive, or a host of a site that the archive has.
fn find_host(name: &str, known: &[String], sites: Option<&Sites>) -> Result<String, LogError> {
    let is_known = |host: &&str| known.iter().any(|other| other == host);
    if let Some(host) = Some(name).filter(is_known) {
        return Ok(host.to_owned());
    }
    let of_site = sites.and_then(|sites| sites.sites.iter().find(|site| &*site.name == name));
    let host = of_site.and_then(|site| site.hosts.iter().map(|host| &*host.name).find(is_known));
    host.map(str::to_owned).ok_or_else(|| {
        let mut near: Vec<String> = known.to_vec();
        near.sort_by_key(|host| letters_apart(name, host));
        near.truncate(MAX_NAMES);
        LogError::NoHost { name: name.chars().take(64).collect(), has_sites: sites.is_some(), near }
    })
}

/// Returns a distance of two names: the letters that only one of them has at its start and at its end.
fn letters_apart(one: &str, other: &str) -> usize {
    let start = one.bytes().zip(other.bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    let end = one.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    one.len().max(other.len()).saturating_sub(start + end)
}

/// Returns the time of the newest entry of a pair in either direction.
fn newest(archive: &mut Archive, from: &str, to: &str) -> Result<Option<Duration>, ArchiveError> {
    let mut newest = None;
    for (from, to) in [(from, to), (to, from)] {
        let filter = EntryFilter { from: Some(from), to: Some(to), limit: Some(1), ..EntryFilter::default() };
        newest = newest.max(archive.entries(filter)?.first().map(|entry| entry.time));
    }
    Ok(newest)
}

fn day_log(archive: &mut Archive, from: &str, to: &str, time: Duration) -> Result<DayLog, LogError> {
    let day = DayLog::day_of(time);
    let mut entries: Vec<Entry> = Vec::new();
    for (from, to) in [(from, to), (to, from)] {
        let (since, until) = (Some(day), Some(day.saturating_add(DAY)));
        let filter =
            EntryFilter { from: Some(from), to: Some(to), since, until, texts: true, ..EntryFilter::default() };
        entries.extend(archive.entries(filter)?);
    }
    if entries.is_empty() {
        let day = date::rfc3339(day).chars().take(10).collect();
        return Err(LogError::NoEntries { from: from.to_owned(), to: to.to_owned(), day: Some(day) });
    }
    Ok(DayLog::of(&entries, from, to, day))
}
