//! Carries out `--delete`: gives the list to the search for unlisted entries, and deletes what the search found.

use lfn_session::wire::copy::entry::{Entry, Name};
use lfn_session::wire::copy::filter::{Decision, FilterRules};
use lfn_session::wire::copy::{EntryAction, EntryEvent, ReportedKind};

use super::Planner;
use super::deletions::{DeletionSearch, FoundDeletions};
use super::path_spool::PathSpool;
use crate::TransferError;
use crate::receiver::report::{EntryReports, Report};
use crate::storage::{Existing, ObjectKind, Removal, RemovalVisitor};

impl Planner {
    /// Takes the next new entry of the list.
    pub(super) fn advance_deletions(&mut self, entry: &Entry) {
        let (target, options) = (self.target.clone(), &self.setup.options);
        let search = DeletionSearch {
            storage: target.storage.as_ref(),
            reports: &target.reports,
            protect: &options.protect,
            dry_run: options.dry_run,
        };
        self.setup.streams.meter().while_blocked(|| self.deletions.advance(&search, entry));
    }

    /// Protects the existing entry of this name from `--delete`, whatever spelling the storage gives the name.
    pub(super) fn exclude_from_deletion(&mut self, name: &Name, existing: Existing) {
        if let (Existing::Object(metadata), true) = (existing, self.setup.options.delete) {
            self.deletions.exclude(name, &metadata);
        }
    }

    /// Deletes the entries that were found, or reports why nothing is deleted. Every entry of the list has its outcome
    /// now.
    pub(super) fn run_deletions(&mut self) {
        let deletions = std::mem::take(&mut self.deletions);
        let target = self.target.clone();
        let search = DeletionSearch {
            storage: target.storage.as_ref(),
            reports: &target.reports,
            protect: &self.setup.options.protect,
            dry_run: self.setup.options.dry_run,
        };
        match deletions.finish(&search) {
            FoundDeletions::Aborted(name, error) => {
                self.report(Report::Failed { name, error });
                self.report(Report::DeletionSkipped);
            }
            FoundDeletions::SourceIncomplete => self.report(Report::DeletionSkipped),
            FoundDeletions::Paths(_) if self.is_stopped() => {}
            FoundDeletions::Paths(paths) => self.delete_paths(paths),
        }
    }

    fn delete_paths(&mut self, paths: PathSpool) {
        let meter = self.setup.streams.meter().clone();
        let deleted = meter.while_blocked(|| paths.for_each(|path| self.delete_path(path)));
        if let Err(source) = deleted {
            let path = self.storage().top().display_path.unwrap_or_default();
            let doing = "read the list of files to delete in";
            self.setup.streams.fail(TransferError::File { doing, path, source });
        }
    }

    /// Deletes an entry with its contents. Reports a failure and continues.
    fn delete_path(&mut self, path: &[u8]) {
        let Ok(name) = Name::new(path) else { return };
        if let Err(error) = self.remove_tree(&name, None) {
            self.report(Report::Failed { name, error });
        }
    }

    /// Removes a directory that another kind of entry replaces. With `all`, its contents are deleted too, as with
    /// rsync's `--delete`; otherwise only an empty directory is removed. Returns false if an entry in it stays.
    pub(super) fn clear_directory(&mut self, name: &Name, all: bool) -> Result<bool, TransferError> {
        if !all {
            return self.storage().remove_directory(name, self.setup.options.dry_run);
        }
        let meter = self.setup.streams.meter().clone();
        meter.while_blocked(|| self.remove_tree(name, Some(name)))
    }

    /// Removes an entry with its contents, and counts what is removed except `replaced`.
    fn remove_tree(&mut self, name: &Name, replaced: Option<&Name>) -> Result<bool, TransferError> {
        let (target, streams) = (self.target.clone(), self.setup.streams.clone());
        let mut visitor =
            Deleter { reports: &target.reports, protect: &self.setup.options.protect, top: name, replaced, deleted: 0 };
        let removal = Removal { dry_run: self.setup.options.dry_run, meter: streams.meter() };
        let removed = target.storage.remove_tree(name, removal, &mut visitor);
        self.totals.deleted += visitor.deleted;
        removed
    }
}

/// Decides about the entries of a tree that is deleted, and reports them.
struct Deleter<'a> {
    reports: &'a EntryReports,
    protect: &'a FilterRules,
    top: &'a Name,
    /// An entry that another one replaces. It does not count as deleted.
    replaced: Option<&'a Name>,
    deleted: u64,
}

impl RemovalVisitor for Deleter<'_> {
    fn may_remove(&mut self, path: &[u8], kind: ObjectKind) -> bool {
        // The search has decided about the top already.
        path == self.top.as_bytes()
            || self.protect.is_empty()
            || self.protect.decide(path, kind == ObjectKind::Directory) != Decision::Exclude
    }

    fn removed(&mut self, path: &[u8], kind: ObjectKind) {
        if self.replaced.is_some_and(|replaced| replaced.as_bytes() == path) {
            return;
        }
        self.deleted += 1;
        self.reports.reports.send(Report::Deleted(1));
        let kind = match kind {
            ObjectKind::File => ReportedKind::File,
            ObjectKind::Directory => ReportedKind::Directory,
            ObjectKind::Symlink => ReportedKind::Link,
            ObjectKind::Other(_) => ReportedKind::Other,
        };
        if let Ok(name) = Name::new(path) {
            self.reports.event(EntryEvent { name, kind, action: EntryAction::Delete, bytes: None, digest: None });
        }
    }
}
