//! The log of a pair for a day, and the comparison of two days.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lfn_base::date;
use lfn_mesh::archive::{Archive, ArchiveError, EntryFilter};
use lfn_mesh::compare::{DayLog, compare};
use lfn_mesh::entry::Entry;
use lfn_mesh::hub::saved_plan;
use lfn_mesh::sites::Sites;

use super::{MeshError, PLAN_FILE, load_sites};
use crate::command_line;
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

/// Search of a name among the sites of a sites file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteNames {
    /// No site has this name, or none of its hosts has an entry.
    Searched,
    /// There was no sites file.
    NoSites,
    /// The command takes names of hosts only.
    Unused,
}

/// Reasons why a log cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the archive has no host '{name}'{}", if *.site_names == SiteNames::Searched { ", and no host of a site with this name" } else { "" })]
    NoHost {
        name: String,
        site_names: SiteNames,
        /// Names of the archive, the most similar first.
        near: Vec<String>,
    },
    #[error("{from} and {to} have no entry{}", .day.as_ref().map(|day| format!(" on {day} (UTC)")).unwrap_or_default())]
    NoEntries {
        from: String,
        to: String,
        day: Option<String>,
        /// Command that shows the newest day.
        command: String,
    },
    #[error("both days are {0}")]
    SameDay(String),
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
            LogError::NoHost { near, site_names: SiteNames::Searched | SiteNames::Unused, .. } => {
                Some(format!("use one of {}", near.join(", ")))
            }
            LogError::NoHost { near, site_names: SiteNames::NoSites, .. } => {
                Some(format!("use one of {}; names of sites need --sites FILE", near.join(", ")))
            }
            LogError::NoEntries { day: Some(_), command, .. } => Some(format!("show the newest day: {command}")),
            LogError::SameDay(_) => Some("give two days: --day YYYY-MM-DD --against YYYY-MM-DD".to_owned()),
            LogError::Mesh(error) => error.hint(),
            LogError::Archive(error) => error.hint(),
            LogError::NoEntries { .. } | LogError::SameHost(_) => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogError::NoHost { .. } | LogError::SameHost(_) | LogError::SameDay(_) => ErrorKind::Usage,
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
            command: String::new(),
        })?,
    };
    if options.against.is_some_and(|against| DayLog::day_of(against) == DayLog::day_of(day)) {
        return Err(LogError::SameDay(show_day(day)));
    }
    let mut read = |day| {
        day_log(&mut archive, &from, &to, day)?.ok_or_else(|| LogError::NoEntries {
            from: from.clone(),
            to: to.clone(),
            day: Some(show_day(day)),
            command: newest_day_command(options),
        })
    };
    let first = read(day)?;
    let against = options.against.map(read).transpose()?;
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
        let site_names = if sites.is_some() { SiteNames::Searched } else { SiteNames::NoSites };
        unknown_host(name, known, site_names)
    })
}

fn unknown_host(name: &str, known: &[String], site_names: SiteNames) -> LogError {
    let mut near: Vec<String> = known.to_vec();
    near.sort_by_key(|host| letters_apart(name, host));
    near.truncate(MAX_NAMES);
    LogError::NoHost { name: name.chars().take(64).collect(), site_names, near }
}

/// Checks that the archive has entries of all these hosts.
pub fn check_hosts<'a>(archive: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<(), LogError> {
    let known = Archive::open_read_only(archive)?.hosts()?;
    let unknown = names.into_iter().find(|name| !known.iter().any(|host| host == name));
    unknown.map_or(Ok(()), |name| Err(unknown_host(name, &known, SiteNames::Unused)))
}

/// Returns the command for the newest day, with the archive and the sites file of the options.
fn newest_day_command(options: &LogOptions) -> String {
    let mut words = ["lfn", "mesh", "log", &*options.from, &*options.to].map(OsString::from).to_vec();
    let is_default = super::archive_file().is_ok_and(|archive| archive == options.archive);
    let archive = (!is_default).then_some(&options.archive);
    for (flag, file) in [("--archive", archive), ("--sites", options.sites.as_ref())] {
        words.extend(file.into_iter().flat_map(|file| [flag.into(), file.into()]));
    }
    command_line::join(words)
}

fn show_day(time: Duration) -> String {
    date::rfc3339(time).chars().take(10).collect()
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

/// Returns the log of a day; `None` without an entry.
fn day_log(archive: &mut Archive, from: &str, to: &str, time: Duration) -> Result<Option<DayLog>, ArchiveError> {
    let day = DayLog::day_of(time);
    let mut entries: Vec<Entry> = Vec::new();
    for (from, to) in [(from, to), (to, from)] {
        let (since, until) = (Some(day), Some(day.saturating_add(DAY)));
        let filter =
            EntryFilter { from: Some(from), to: Some(to), since, until, texts: true, ..EntryFilter::default() };
        entries.extend(archive.entries(filter)?);
    }
    Ok((!entries.is_empty()).then(|| DayLog::of(&entries, from, to, day)))
}
