//! Decides about one entry, and creates directories and links.

use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};
use lfn_session::wire::copy::options::FsyncPolicy;
use lfn_session::wire::copy::overwrite::{Conflict, OverwriteDecision, OverwritePolicy, SkipReason, decide};
use lfn_session::wire::copy::{EntryAction, ReceiverMessage};

use super::Planner;
use super::directories::PendingDirectory;
use super::entries::{DigestComparison, EntryState, ExistingDigest, NextEntry};
use super::links::LinkTarget;
use crate::base_dir::has_rebooted_since;
use crate::receiver::file::NeededFile;
use crate::receiver::outcome::EntryOutcome;
use crate::storage::{Existing, FileId};
use crate::{ForbiddenReason, TransferError};

/// Maximum number of attempts to create an entry whose name another process creates and removes meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// The target of a hard link: its name, and the object that this copy left there.
#[derive(Debug)]
pub(super) struct HardLinkTarget {
    pub(super) name: Name,
    pub(super) id: Option<FileId>,
}

/// An entry whose hard link, if it is one, is resolved.
#[derive(Debug)]
pub(super) struct ResolvedEntry {
    pub(super) number: u32,
    pub(super) entry: Entry,
    pub(super) compared: Option<DigestComparison>,
    pub(super) link_target: Option<HardLinkTarget>,
    /// A hard link that becomes a separate file, because a newer file stays in the place of its target.
    pub(super) is_separate: bool,
}

impl Planner {
    /// Decides about an entry and carries the decision out. Returns `None` while the outcome is open.
    pub(super) fn place_entry(&mut self, next: NextEntry) -> Result<Option<EntryOutcome>, TransferError> {
        if next.entry.kind == EntryKind::Directory {
            self.wait_for_directory_memory(&next.entry)?;
        }
        if next.entry.name.is_root() {
            return Ok(Some(self.place_top(next)));
        }
        self.storage().check_name(&next.entry.name)?;
        let Some(resolved) = self.resolve_hard_link(next)? else { return Ok(None) };
        for _ in 1..MAX_ATTEMPTS {
            match self.place_resolved(&resolved) {
                // Another copy has created the entry after this one looked for it.
                Err(TransferError::Exists { .. }) => {}
                result => return result,
            }
        }
        self.place_resolved(&resolved)
    }

    /// Handles the entry of the top directory.
    fn place_top(&mut self, next: NextEntry) -> EntryOutcome {
        let NextEntry { number, entry, .. } = next;
        let top = self.storage().top();
        if !top.is_shared {
            let previous_mode = self.storage().make_directory_writable(&entry);
            self.directories.push(PendingDirectory { number, entry, is_new: top.is_new, previous_mode });
        }
        if top.is_new { EntryOutcome::Directory } else { EntryOutcome::Skipped(Bytes(0)) }
    }

    fn place_resolved(&mut self, resolved: &ResolvedEntry) -> Result<Option<EntryOutcome>, TransferError> {
        let ResolvedEntry { number, entry, compared, .. } = resolved;
        let existing = self.storage().stat(&entry.name)?;
        self.exclude_from_deletion(&entry.name, existing);
        let decision = self.decide(resolved, existing)?;
        let is_replaced =
            matches!(decision, OverwriteDecision::Replace | OverwriteDecision::Refuse(Conflict::Directory));
        if is_replaced && self.sources.may_overlap() && self.was_created_by_copy(&entry.name) {
            let reason = ForbiddenReason::WrittenByOtherSource;
            return Err(TransferError::Forbidden { path: self.storage().display_name(&entry.name), reason });
        }
        let decision = if self.may_lack_data(entry, decision) { OverwriteDecision::Replace } else { decision };
        let replace = match decision {
            OverwriteDecision::Create => false,
            OverwriteDecision::Skip(reason) => return self.skip_entry(resolved, existing, reason),
            // An empty directory holds no data to lose.
            OverwriteDecision::Refuse(Conflict::Directory) if self.clear_directory(&entry.name, false)? => false,
            OverwriteDecision::Refuse(obstacle) => {
                return Err(TransferError::Conflict { path: self.storage().display_name(&entry.name), obstacle });
            }
            OverwriteDecision::Replace if existing.is_directory() => {
                if !self.clear_directory(&entry.name, !self.sources.may_overlap())? {
                    return Err(directory_conflict(self.storage().display_name(&entry.name)));
                }
                false
            }
            OverwriteDecision::CompareDigests if self.setup.options.verify.detects_changes() => {
                return self.compare_digests(*number, entry);
            }
            OverwriteDecision::Replace | OverwriteDecision::CompareDigests => true,
        };
        if compared.is_some() {
            // The sender waits for this answer, even if the compared file is gone now.
            self.report(super::Report::Differs(*number));
        }
        self.create_entry(resolved, replace)
    }

    /// Decides about an entry from the existing object. Write-only clients decide without the content of files.
    fn decide(&self, resolved: &ResolvedEntry, existing: Existing) -> Result<OverwriteDecision, TransferError> {
        let entry = &resolved.entry;
        if resolved.is_separate {
            return self.decide_separate_file(entry, existing);
        }
        let equal = resolved.compared.map(|compared| compared.is_equal);
        let equal = equal.or_else(|| self.equals_existing(resolved, existing));
        let policy = self.target.overwrite;
        let checksum = policy.checksum && self.storage().capabilities().reveals_existing;
        Ok(decide(entry, existing.for_decision(), equal, OverwritePolicy { checksum, ..policy }))
    }

    /// Returns whether the existing object equals the listed one. `None` if that needs the content of files.
    pub(super) fn equals_existing(&self, resolved: &ResolvedEntry, existing: Existing) -> Option<bool> {
        match &resolved.entry.kind {
            EntryKind::Symlink { target } => {
                Some(self.storage().read_link(&resolved.entry.name).ok()?.as_bytes() == target.as_bytes())
            }
            EntryKind::HardLink { .. } => {
                let Existing::Object(metadata) = existing else { return None };
                Some(metadata.id == resolved.link_target.as_ref()?.id?)
            }
            EntryKind::File { .. } | EntryKind::Directory => None,
        }
    }

    /// Decides about a hard link if its target keeps a newer file. The link cannot be a name of that newer file, and
    /// the source sends the content only once. An existing file that matches the entry is accepted.
    pub(super) fn decide_separate_file(
        &self,
        entry: &Entry,
        existing: Existing,
    ) -> Result<OverwriteDecision, TransferError> {
        let policy = OverwritePolicy { checksum: false, ..self.target.overwrite };
        match decide(entry, existing.for_decision(), None, policy) {
            skip @ OverwriteDecision::Skip(_) => Ok(skip),
            _ => Err(TransferError::Forbidden {
                path: self.storage().display_name(&entry.name),
                reason: ForbiddenReason::LinkTargetNewer,
            }),
        }
    }

    /// Resolves a hard link. Returns `None` while its target has no outcome.
    pub(super) fn resolve_hard_link(&mut self, next: NextEntry) -> Result<Option<ResolvedEntry>, TransferError> {
        let NextEntry { number, entry, compared, .. } = next;
        let resolved =
            |entry, link_target, is_separate| ResolvedEntry { number, entry, compared, link_target, is_separate };
        let EntryKind::HardLink { to } = entry.kind else { return Ok(Some(resolved(entry, None, false))) };
        let is_pending = self.entries.get(to).is_some();
        match (self.links.resolve(number, to, is_pending), self.links.info(to)) {
            (LinkTarget::Existing(_), info) if info.newer_kept.is_some() => {
                let length = info.newer_kept.unwrap_or_default();
                Ok(Some(resolved(Entry { kind: EntryKind::File { length }, ..entry }, None, true)))
            }
            (LinkTarget::Existing(name), info) => {
                Ok(Some(resolved(entry, Some(HardLinkTarget { name, id: info.id }), false)))
            }
            (LinkTarget::Pending, _) => {
                self.entries.set(number, EntryState::WaitingLink(Box::new(entry)));
                Ok(None)
            }
            (LinkTarget::Missing, _) if self.setup.options.dry_run => Ok(Some(resolved(entry, None, false))),
            (LinkTarget::Missing, _) => Err(TransferError::Forbidden {
                path: self.storage().display_name(&entry.name),
                reason: ForbiddenReason::LinkTargetMissing,
            }),
        }
    }

    /// Returns whether a file with the right size and time may contain zeros instead of data. This happens if this copy
    /// gave the file its name before a sync, and the host was restarted since.
    fn may_lack_data(&self, entry: &Entry, decision: OverwriteDecision) -> bool {
        let is_same = decision == OverwriteDecision::Skip(SkipReason::UpToDate);
        is_same
            && self.setup.options.fsync != FsyncPolicy::File
            && self.is_from_earlier_session(&entry.name)
            && has_rebooted_since(self.setup.started_at)
    }

    /// Returns whether an earlier session of this copy wrote the existing entry.
    fn is_from_earlier_session(&self, name: &Name) -> bool {
        self.setup.is_resumed && self.was_created_by_copy(name)
    }

    fn was_created_by_copy(&self, name: &Name) -> bool {
        self.storage().was_created_since(name, self.setup.started_at)
    }

    /// Remembers, for later hard links to this file, that a newer file stays in its place.
    pub(super) fn note_newer_kept(&mut self, number: u32, entry: &Entry) {
        if let (EntryKind::File { length }, true) = (&entry.kind, entry.linked) {
            self.links.update(number, |info| info.newer_kept = Some(*length));
        }
    }

    /// Remembers an existing file for later hard links, and for the final sync.
    fn note_existing(&mut self, number: u32, entry: &Entry, existing: Existing) {
        if let (Existing::Object(metadata), true) = (existing, entry.linked) {
            self.links.update(number, |info| info.id = Some(metadata.id));
        }
        if entry.kind != EntryKind::Directory && self.setup.options.fsync != FsyncPolicy::None {
            self.storage().note_up_to_date(&entry.name);
        }
    }

    /// Leaves the existing entry in place. A file with equal content gets the source's time, so that the next copy need
    /// not compare.
    fn skip_entry(
        &mut self,
        resolved: &ResolvedEntry,
        existing: Existing,
        reason: SkipReason,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let ResolvedEntry { number, entry, compared, .. } = resolved;
        self.note_existing(*number, entry, existing);
        if !self.storage().capabilities().reveals_existing {
            if entry.kind == EntryKind::Directory && matches!(existing, Existing::Hidden) {
                self.storage().check_directory(&entry.name)?;
            }
            return Ok(Some(existing_write_only(entry, existing)));
        }
        let is_own = self.is_from_earlier_session(&entry.name);
        if !is_own {
            let action = if reason == SkipReason::Newer { EntryAction::Newer } else { EntryAction::UpToDate };
            self.target.reports.unchanged(entry, action);
        }
        match (&entry.kind, reason) {
            (EntryKind::Directory, _) => Ok(Some(self.skip_directory(*number, entry, is_own))),
            (EntryKind::File { .. }, SkipReason::Newer) => {
                self.note_newer_kept(*number, entry);
                Ok(Some(file_outcome(entry, is_own)))
            }
            (EntryKind::File { length }, SkipReason::UpToDate) => {
                self.skip_file(*number, entry, *length, *compared, is_own)
            }
            (_, SkipReason::Newer) => Ok(Some(EntryOutcome::skipped(entry))),
            (EntryKind::Symlink { .. } | EntryKind::HardLink { .. }, SkipReason::UpToDate) => {
                if matches!(entry.kind, EntryKind::Symlink { .. }) {
                    self.storage().update_attributes(entry)?;
                }
                let outcome = if is_own { EntryOutcome::Link } else { EntryOutcome::Skipped(Bytes(0)) };
                self.report_hard_link(*number, entry, EntryAction::UpToDate, outcome)
            }
        }
    }

    fn skip_directory(&mut self, number: u32, entry: &Entry, is_own: bool) -> EntryOutcome {
        self.storage().remove_leftovers(&entry.name);
        let previous_mode = self.storage().make_directory_writable(entry);
        self.directories.push(PendingDirectory { number, entry: entry.clone(), is_new: is_own, previous_mode });
        if is_own { EntryOutcome::Directory } else { EntryOutcome::Skipped(Bytes(0)) }
    }

    fn skip_file(
        &mut self,
        number: u32,
        entry: &Entry,
        length: Bytes,
        compared: Option<DigestComparison>,
        is_own: bool,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let storage = self.target.storage.clone();
        if length > self.setup.block_size && !storage.has_partial(&entry.name)? {
            // A copy was killed after it had renamed the file and before it removed the journal.
            storage.remove_leftovers(&entry.name);
        }
        if self.preserves_metadata() {
            storage.update_attributes(entry)?;
        }
        if compared.is_some() {
            storage.set_modified(entry)?;
        }
        let outcome = file_outcome(entry, is_own);
        if !self.setup.options.report_digests {
            return Ok(Some(outcome));
        }
        match compared.and_then(|compared| compared.existing) {
            Some(digest) => {
                self.report_digest(number, entry, EntryAction::UpToDate, digest);
                Ok(Some(outcome))
            }
            None => self.hash_up_to_date(number, entry, length, outcome),
        }
    }

    /// Queues an existing file that is up to date, so that its digest can be reported.
    fn hash_up_to_date(
        &mut self,
        number: u32,
        entry: &Entry,
        length: Bytes,
        outcome: EntryOutcome,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let layout = Layout::new(length, self.setup.block_size)?;
        self.entries.set(number, EntryState::Hashing { entry: Box::new(entry.clone()), outcome });
        self.hash_existing(number, entry.name.clone(), layout);
        Ok(None)
    }

    /// Ends an existing or new hard link. If digests are reported, the report carries the digest of its file. If that
    /// digest is not remembered, the file is queued for reading.
    fn report_hard_link(
        &mut self,
        number: u32,
        entry: &Entry,
        action: EntryAction,
        outcome: EntryOutcome,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let EntryKind::HardLink { to } = entry.kind else { return Ok(Some(outcome)) };
        if !self.setup.options.report_digests {
            return Ok(Some(outcome));
        }
        if let Some(digest) = self.links.info(to).digest {
            self.report_digest(number, entry, action, digest);
            return Ok(Some(outcome));
        }
        let length = match self.storage().stat(&entry.name)? {
            Existing::Object(metadata) => metadata.length,
            Existing::Nothing | Existing::Hidden => Bytes(0),
        };
        self.hash_up_to_date(number, entry, length, outcome)
    }

    /// Asks both ends to compute the digest of a file.
    pub(super) fn compare_digests(
        &mut self,
        number: u32,
        entry: &Entry,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let EntryKind::File { length } = entry.kind else { return Ok(Some(EntryOutcome::skipped(entry))) };
        let layout = Layout::new(length, self.setup.block_size)?;
        let (compared, existing) = (Box::new(entry.clone()), ExistingDigest::Pending);
        self.entries.set(number, EntryState::Comparing { entry: compared, existing, source: None });
        self.report(super::Report::DigestRequested(number));
        if layout.blocks() == 0 {
            let empty = lfn_session::wire::copy::digest::Digest(*blake3::hash(&[]).as_bytes());
            self.entries.set_compared_source(number, empty);
        }
        self.hash_existing(number, entry.name.clone(), layout);
        Ok(None)
    }

    /// Creates a directory or a link, or requests a file.
    fn create_entry(&mut self, resolved: &ResolvedEntry, replace: bool) -> Result<Option<EntryOutcome>, TransferError> {
        let ResolvedEntry { number, entry, link_target, .. } = resolved;
        let (storage, number) = (self.target.storage.clone(), *number);
        match &entry.kind {
            EntryKind::Directory => {
                storage.create_directory(entry, replace)?;
                self.target.reports.written(entry, replace);
                let entry = entry.clone();
                self.exclude_from_deletion(&entry.name, storage.stat(&entry.name)?);
                self.directories.push(PendingDirectory { number, entry, is_new: true, previous_mode: None });
                Ok(Some(EntryOutcome::Directory))
            }
            EntryKind::Symlink { target } => {
                storage.create_symlink(entry, target, replace)?;
                self.target.reports.written(entry, replace);
                Ok(Some(EntryOutcome::Link))
            }
            EntryKind::HardLink { .. } => {
                let Some(HardLinkTarget { name, id }) = link_target else { return Err(TransferError::Incomplete) };
                storage.create_hard_link(entry, name, *id, replace)?;
                self.target.reports.written(entry, replace);
                let action = if replace { EntryAction::Replace } else { EntryAction::New };
                self.report_hard_link(number, entry, action, EntryOutcome::Link)
            }
            EntryKind::File { length } => self.request_file(number, entry, *length, replace),
        }
    }

    /// Requests the blocks of a file that an earlier copy did not leave here. Creates an empty file at once.
    fn request_file(
        &mut self,
        number: u32,
        entry: &Entry,
        length: Bytes,
        replace: bool,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let layout = Layout::new(length, self.setup.block_size)?;
        let assembler = self.setup.assembler.clone();
        let (target, tracked) = (self.target.clone(), assembler.tracked());
        let needed = Arc::new(NeededFile::new(number, entry.clone(), layout, replace, target, tracked));
        if layout.blocks() == 0 {
            let file = self.storage().write_file(entry, &[])?;
            self.need_file(number, needed.clone());
            assembler.complete_single_block(&needed, file);
        } else if layout.blocks() > 1 && self.storage().has_partial(&entry.name)? {
            // The files before this one are decided already, so they can finish.
            assembler.wait_for_free_partial(Duration::MAX, || self.wait_for_events(Duration::from_millis(2)));
            let blocks = assembler.resume(&needed)?;
            if !blocks.is_empty() {
                // The sender must get this message before it learns that the file is needed.
                self.target.reports.reports.message(ReceiverMessage::Have { file: number, blocks });
            }
            self.need_file(number, needed.clone());
            assembler.try_complete(&needed);
        } else {
            assembler.quota.reserve(&needed.reservation, &entry.name, length, &self.setup.streams)?;
            self.need_file(number, needed);
        }
        Ok(None)
    }

    fn preserves_metadata(&self) -> bool {
        let preserve = self.setup.preserve;
        preserve.modes || preserve.owners || preserve.xattrs || preserve.acls
    }
}

/// Returns the outcome of an existing file that stays.
fn file_outcome(entry: &Entry, is_own: bool) -> EntryOutcome {
    match entry.kind {
        EntryKind::File { length } if is_own => EntryOutcome::WrittenEarlier(length),
        _ => EntryOutcome::skipped(entry),
    }
}

/// Returns the outcome of an existing entry for a client that may know only what it wrote itself.
fn existing_write_only(entry: &Entry, existing: Existing) -> EntryOutcome {
    let is_own = matches!(existing, Existing::Object(_));
    match entry.kind {
        EntryKind::Symlink { .. } | EntryKind::HardLink { .. } if is_own => EntryOutcome::Link,
        _ => file_outcome(entry, is_own),
    }
}

/// Returns the error for a directory in the place of another kind of entry.
pub(super) fn directory_conflict(path: String) -> TransferError {
    TransferError::Forbidden { path, reason: ForbiddenReason::DirectoryNotEmpty }
}
