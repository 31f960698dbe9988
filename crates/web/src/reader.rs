//! Reading the archive for a view: few queries, on connections of the page.

use std::path::PathBuf;
use std::time::Duration;

use lfn_mesh::archive::{Archive, ArchiveCounts, ArchiveError, EntryFilter};
use lfn_mesh::entry::point::Point;
use lfn_mesh::entry::{Entry, EntryKind};
use parking_lot::Mutex;

use crate::view::newest_change;

/// Newest entries of each kind on the page of a pair.
const MAX_NEWEST: usize = 8;
/// Newest paths in which a change is looked for.
const MAX_PATHS: usize = 200;
/// Maximum points of a line. They are the newest ones: one sample a minute for 90 days.
const MAX_POINTS: usize = 130_000;

/// Maximum entries of one direction and day.
const MAX_DAY: usize = 10_000;

/// Connections to the archive that are not in use.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    idle: Mutex<Vec<Archive>>,
}

/// Everything of a pair that its page needs, each list in the order of time.
#[derive(Debug, Default)]
pub(crate) struct PairEntries {
    pub loads: Vec<Point>,
    pub latencies: Vec<Point>,
    /// The loads before and after the newest change of their conditions.
    pub change: Option<[Entry; 2]>,
    pub newest: Vec<Entry>,
    pub paths: Vec<Entry>,
    pub reverse_paths: Vec<Entry>,
}

impl Reader {
    pub fn new(path: PathBuf) -> Self {
        Reader { path, idle: Mutex::default() }
    }

    /// Calls `read` with a connection. A connection that failed is closed.
    fn with<T>(&self, read: impl FnOnce(&mut Archive) -> Result<T, ArchiveError>) -> Result<T, ArchiveError> {
        let idle = self.idle.lock().pop();
        let mut archive = match idle {
            Some(archive) => archive,
            None => Archive::open_read_only(&self.path)?,
        };
        let result = read(&mut archive)?;
        self.idle.lock().push(archive);
        Ok(result)
    }

    /// Returns the newest entry of each pair and kind, and the names of all hosts of the archive.
    pub fn latest(&self) -> Result<(Vec<Entry>, Vec<String>), ArchiveError> {
        self.with(|archive| Ok((archive.latest()?, archive.hosts()?)))
    }

    /// Returns the newest entry of each pair and kind, and the size of the archive.
    pub fn metrics(&self) -> Result<(Vec<Entry>, ArchiveCounts), ArchiveError> {
        self.with(|archive| Ok((archive.latest()?, archive.counts()?)))
    }

    /// Returns the names of all hosts of the archive.
    pub fn hosts(&self) -> Result<Vec<String>, ArchiveError> {
        self.with(|archive| archive.hosts())
    }

    /// Returns the entries of a pair since a time, and the newest ones.
    pub fn pair(&self, from: &str, to: &str, since: Duration) -> Result<PairEntries, ArchiveError> {
        self.with(|archive| {
            let pair = EntryFilter { from: Some(from), to: Some(to), ..EntryFilter::default() };
            let reverse = EntryFilter { from: Some(to), to: Some(from), ..EntryFilter::default() };
            let paths = |pair| EntryFilter { kind: Some(EntryKind::Path), limit: Some(MAX_PATHS), ..pair };
            let mut newest = Vec::new();
            for kind in [EntryKind::Load, EntryKind::Latency, EntryKind::Path] {
                let filter = EntryFilter { kind: Some(kind), limit: Some(MAX_NEWEST), texts: true, ..pair };
                newest.extend(archive.entries(filter)?);
            }
            let loads = archive.series(from, to, EntryKind::Load, since, MAX_POINTS)?;
            let mut load_at = |time: Duration| {
                let until = Some(time + Duration::from_millis(1));
                let load = EntryFilter { kind: Some(EntryKind::Load), since: Some(time), until, ..pair };
                Ok::<_, ArchiveError>(archive.entries(load)?.pop())
            };
            let change = match newest_change(&loads) {
                Some([before, after]) => load_at(before)?.zip(load_at(after)?),
                None => None,
            };
            Ok(PairEntries {
                loads,
                latencies: archive.series(from, to, EntryKind::Latency, since, MAX_POINTS)?,
                change: change.map(|(before, after)| [before, after]),
                newest,
                paths: archive.entries(paths(pair))?,
                reverse_paths: archive.entries(paths(reverse))?,
            })
        })
    }

    /// Returns the entries of both directions of a pair on a day, with texts.
    pub fn day(&self, from: &str, to: &str, day: Duration) -> Result<Vec<Entry>, ArchiveError> {
        self.with(|archive| {
            let until = Some(day + Duration::from_secs(86_400));
            let mut entries = Vec::new();
            for (from, to) in [(from, to), (to, from)] {
                let filter = EntryFilter {
                    from: Some(from),
                    to: Some(to),
                    since: Some(day),
                    until,
                    limit: Some(MAX_DAY),
                    texts: true,
                    ..EntryFilter::default()
                };
                entries.extend(archive.entries(filter)?);
            }
            Ok(entries)
        })
    }
}
