//! Dry run: decides about each entry as a copy does, reports the decision, and writes nothing.
//!
//! Entries below a directory that a copy would create count as new. All other entries are compared with the existing
//! ones. Errors that only a write can find (a full disk, a directory without write access) stay unknown, and so does
//! the content of the source's files.

use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use lfn_core::transfer::overwrite::{Conflict, Existing, OverwriteDecision, SkipReason, decide};
use lfn_core::wire::copy::{EntryAction, EntryEvent, ReportedKind};

use super::super::TransferError;
use super::super::base_dir::inode;
use super::Receiver;
use super::entry::{EntryOutcome, LinkTarget, NextEntry};
use super::planner::{PlanState, decide_separate_file, equals_existing, skipped_outcome};
use super::tree::{DestinationTree, existing_from};

/// State of a dry run between entries.
#[derive(Debug, Default)]
pub(super) struct DryRunState {
    /// The topmost new directory above the current entry.
    new_directory: Option<Name>,
}

impl DryRunState {
    fn contains(&self, name: &Name) -> bool {
        let is_inside =
            |top: &Name| name.as_bytes().strip_prefix(top.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
        self.new_directory.as_ref().is_some_and(is_inside)
    }
}

impl Receiver {
    /// Reports the action that a copy would take for an entry.
    pub(super) fn dry_run_entry(
        &self,
        tree: &DestinationTree,
        next: NextEntry,
        plan: &mut PlanState,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let NextEntry { number, entry, compared, .. } = next;
        tree.check_name(&entry.name)?;
        if tree.is_missing() || plan.dry_run.contains(&entry.name) {
            self.report_entry(&entry, EntryAction::New);
            return Ok(Some(planned_outcome(&entry)));
        }
        if entry.name.is_root() {
            return Ok(Some(skipped_outcome(&entry)));
        }
        let location = tree.locate(&entry.name)?;
        let (entry, file, is_separate) = match entry.kind {
            EntryKind::HardLink { to } => match self.link_target(number, to, entry) {
                LinkTarget::Existing(name, entry) => {
                    (entry, tree.locate(&name).and_then(|location| location.stat()).ok().flatten(), false)
                }
                LinkTarget::Separate(entry) => (entry, None, true),
                LinkTarget::Pending => return Ok(None),
                LinkTarget::Missing => return Ok(Some(EntryOutcome::Link)),
            },
            _ => (entry, None, false),
        };
        let stat = location.stat()?;
        self.exclude_from_deletion(&entry.name, stat.as_ref(), plan);
        let existing = existing_from(stat.as_ref());
        let equal = compared
            .map(|compared| compared.is_equal)
            .or_else(|| equals_existing(&entry, &location, file.as_ref().map(inode)));
        let decided = match is_separate {
            true => decide_separate_file(&entry, &location, existing, plan.overwrite)
                .inspect_err(|_| self.report_entry(&entry, EntryAction::Refuse))?,
            false => decide(&entry, existing, equal, plan.overwrite),
        };
        let action = match decided {
            OverwriteDecision::Create => EntryAction::New,
            OverwriteDecision::Skip(SkipReason::UpToDate) => {
                self.report_unchanged(&entry, EntryAction::UpToDate);
                return Ok(Some(skipped_outcome(&entry)));
            }
            OverwriteDecision::Skip(SkipReason::Newer) => {
                self.note_newer_kept(number, &entry);
                self.report_entry(&entry, EntryAction::Newer);
                return Ok(Some(skipped_outcome(&entry)));
            }
            OverwriteDecision::CompareDigests if self.options.verify.detects_changes() => {
                return self.compare_digests(number, entry);
            }
            OverwriteDecision::Refuse(Conflict::Directory)
                if self.clear_directory(&location, &entry.name, false)? =>
            {
                EntryAction::Replace
            }
            OverwriteDecision::Refuse(conflict) => {
                self.report_entry(&entry, EntryAction::Refuse);
                return Err(TransferError::Conflict { path: location.display_path, obstacle: conflict });
            }
            OverwriteDecision::Replace
                if existing == Existing::Directory
                    && self.clear_directory(&location, &entry.name, !plan.sources.may_overlap())? =>
            {
                EntryAction::Replace
            }
            OverwriteDecision::Replace if existing == Existing::Directory => {
                self.report_entry(&entry, EntryAction::Refuse);
                return Err(super::planner::directory_conflict(location.display_path));
            }
            OverwriteDecision::Replace | OverwriteDecision::CompareDigests => EntryAction::Replace,
        };
        self.report_entry(&entry, action);
        if entry.kind == EntryKind::Directory {
            plan.dry_run.new_directory = Some(entry.name.clone());
        }
        Ok(Some(planned_outcome(&entry)))
    }

    /// Reports an entry that is not copied, if the options ask for such entries.
    pub(super) fn report_unchanged(&self, entry: &Entry, action: EntryAction) {
        if self.options.report_unchanged {
            self.report_entry(entry, action);
        }
    }

    /// Reports an entry, if the options ask for reports.
    pub(super) fn report_entry(&self, entry: &Entry, action: EntryAction) {
        if !self.options.report_entries {
            return;
        }
        let (kind, bytes) = match entry.kind {
            EntryKind::Directory => (ReportedKind::Directory, None),
            EntryKind::File { length } => (ReportedKind::File, Some(length)),
            EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => (ReportedKind::Link, None),
        };
        self.report_event(EntryEvent {
            name: self.name_at_destination(&entry.name),
            kind,
            action,
            bytes,
            digest: None,
        });
    }
}

fn planned_outcome(entry: &Entry) -> EntryOutcome {
    match entry.kind {
        EntryKind::File { length } => EntryOutcome::Planned(length),
        EntryKind::Directory => EntryOutcome::Directory,
        EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => EntryOutcome::Link,
    }
}
