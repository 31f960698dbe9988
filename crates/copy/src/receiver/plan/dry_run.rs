//! Dry run: decides about each entry as a copy does, reports the decision, and writes nothing.
//!
//! Entries below a directory that a copy would create count as new. All other entries are compared with the existing
//! ones. Errors that only a write can find (a full disk, a directory without write access) stay unknown, and so does
//! the content of the source's files.

use lfn_session::wire::copy::EntryAction;
use lfn_session::wire::copy::entry::EntryKind;
use lfn_session::wire::copy::overwrite::{Conflict, OverwriteDecision, SkipReason, decide};

use super::Planner;
use super::directories::is_below;
use super::entries::NextEntry;
use super::place::{ResolvedEntry, directory_conflict};
use crate::TransferError;
use crate::receiver::outcome::EntryOutcome;
use crate::storage::Existing;

impl Planner {
    /// Reports the action that a copy would take for an entry.
    pub(super) fn dry_run_entry(&mut self, next: NextEntry) -> Result<Option<EntryOutcome>, TransferError> {
        self.storage().check_name(&next.entry.name)?;
        let is_inside_new = self.new_directory.as_ref().is_some_and(|top| is_below(&next.entry.name, top));
        if is_inside_new || self.storage().top().is_missing {
            self.target.reports.entry(&next.entry, EntryAction::New);
            return Ok(Some(EntryOutcome::planned(&next.entry)));
        }
        if next.entry.name.is_root() {
            return Ok(Some(EntryOutcome::skipped(&next.entry)));
        }
        let Some(mut resolved) = self.resolve_hard_link(next)? else { return Ok(None) };
        if matches!(resolved.entry.kind, EntryKind::HardLink { .. }) {
            let Some(target) = &mut resolved.link_target else { return Ok(Some(EntryOutcome::Link)) };
            target.id = match self.target.storage.stat(&target.name) {
                Ok(Existing::Object(metadata)) => Some(metadata.id),
                _ => None,
            };
        }
        self.dry_run_resolved(&resolved)
    }

    fn dry_run_resolved(&mut self, resolved: &ResolvedEntry) -> Result<Option<EntryOutcome>, TransferError> {
        let ResolvedEntry { number, entry, .. } = resolved;
        let existing = self.storage().stat(&entry.name)?;
        self.exclude_from_deletion(&entry.name, existing);
        let action = match self.dry_run_decision(resolved, existing)? {
            OverwriteDecision::Create => EntryAction::New,
            OverwriteDecision::Skip(SkipReason::UpToDate) => {
                self.target.reports.unchanged(entry, EntryAction::UpToDate);
                return Ok(Some(EntryOutcome::skipped(entry)));
            }
            OverwriteDecision::Skip(SkipReason::Newer) => {
                self.note_newer_kept(*number, entry);
                self.target.reports.entry(entry, EntryAction::Newer);
                return Ok(Some(EntryOutcome::skipped(entry)));
            }
            OverwriteDecision::CompareDigests if self.setup.options.verify.detects_changes() => {
                return self.compare_digests(*number, entry);
            }
            OverwriteDecision::Refuse(Conflict::Directory) if self.clear_directory(&entry.name, false)? => {
                EntryAction::Replace
            }
            OverwriteDecision::Refuse(obstacle) => {
                self.target.reports.entry(entry, EntryAction::Refuse);
                return Err(TransferError::Conflict { path: self.storage().display_name(&entry.name), obstacle });
            }
            OverwriteDecision::Replace if existing.is_directory() => {
                if !self.clear_directory(&entry.name, !self.sources.may_overlap())? {
                    self.target.reports.entry(entry, EntryAction::Refuse);
                    return Err(directory_conflict(self.storage().display_name(&entry.name)));
                }
                EntryAction::Replace
            }
            OverwriteDecision::Replace | OverwriteDecision::CompareDigests => EntryAction::Replace,
        };
        self.target.reports.entry(entry, action);
        if entry.kind == EntryKind::Directory {
            self.new_directory = Some(entry.name.clone());
        }
        Ok(Some(EntryOutcome::planned(entry)))
    }

    fn dry_run_decision(
        &self,
        resolved: &ResolvedEntry,
        existing: Existing,
    ) -> Result<OverwriteDecision, TransferError> {
        let entry = &resolved.entry;
        if resolved.is_separate {
            return self
                .decide_separate_file(entry, existing)
                .inspect_err(|_| self.target.reports.entry(entry, EntryAction::Refuse));
        }
        let equal = resolved.compared.map(|compared| compared.is_equal);
        let equal = equal.or_else(|| self.equals_existing(resolved, existing));
        Ok(decide(entry, existing.for_decision(), equal, self.target.overwrite))
    }
}
