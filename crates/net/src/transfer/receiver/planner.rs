//! The planner of a copy: compares each listed entry with the existing one at the destination, and decides about it.
//!
//! The planner follows the order of the list, so a directory exists before its contents. Directories get their times
//! and modes last, after the last write in them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use lfn_core::transfer::overwrite::{
    Conflict, Existing, OverwriteDecision, OverwritePolicy, SkipReason, decide, decide_write_only,
};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{EntryAction, ReceiverMessage};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, symlinkat, utimensat};
use rustix::io::Errno;

use super::super::base_dir::{Inode, check_regular, has_rebooted_since, inode, inode_of};
use super::super::stream_set::lock;
use super::super::{ForbiddenReason, TransferError};
use super::attributes::AttributeTarget;
use super::delete::Deletions;
use super::digest_queue::DigestJob;
use super::directories::{PendingDirectories, PendingDirectory, is_below};
use super::dry_run::DryRunState;
use super::entry::{DigestComparison, EntryOutcome, LinkTarget, NeededFile, NextEntry};
use super::partial_file::{PartialFile, entry_times};
use super::single_block_file::{SingleBlockFile, take_partial_name_soon};
use super::source_names::{EarlierEntry, SourceNames};
use super::tree::{DestinationTree, EntryLocation, existing_from, link_open_file};
use super::{Destination, FsyncPolicy, Receiver};

/// Maximum wait without any progress for memory to hold one more unfinished directory. Nested directories wait for
/// their contents.
const DIRECTORIES_TIMEOUT: Duration = Duration::from_secs(20);

/// State of the planner between entries.
pub(super) struct PlanState {
    pub(super) overwrite: OverwritePolicy,
    directories: PendingDirectories,
    pub(super) dry_run: DryRunState,
    pub(super) sources: SourceNames,
    /// The entries to delete, with `--delete`.
    deletions: Deletions,
    /// The directory that failed last. Entries below this directory fail with it.
    failed_directory: Option<Name>,
}

impl Receiver {
    /// Runs the planner thread until every entry is settled.
    pub(super) fn run_planner(&self, destination: Destination) {
        if let Err(error) = self.plan_entries(destination) {
            self.streams.fail(error);
        }
    }

    fn plan_entries(&self, destination: Destination) -> Result<(), TransferError> {
        let dry_run = self.options.dry_run;
        let (mut tree, overwrite) = match destination {
            Destination::Null => (None, OverwritePolicy::default()),
            Destination::Path { base, path, overwrite, single, .. } => {
                if let Some(written) = base.written_files() {
                    // Only this thread sets the field.
                    let _ = self.written_files.set(written);
                }
                (Some(DestinationTree::open(&base, &path, single, dry_run)?), overwrite)
            }
        };
        // With a quota, the sender must not pay for blocks of a file that the quota refuses. So the sender waits for
        // the plan.
        let on_request =
            self.quota.is_enabled() || tree.as_ref().is_some_and(|tree| dry_run || !tree.has_no_conflicts());
        self.must_request_blocks.store(on_request, Ordering::SeqCst);
        let path = tree.as_ref().map(|tree| tree.display_path().to_owned());
        // Write-only clients must not learn modification times.
        let since = tree.as_ref().is_none_or(|tree| tree.write_only().is_none()).then_some(self.started_at);
        let destination_id = tree
            .as_ref()
            .filter(|tree| self.options.same_host && tree.write_only().is_none())
            .and_then(DestinationTree::destination_id);
        self.table.queue_message(ReceiverMessage::Ready {
            path,
            on_request,
            started_at: since,
            destination: destination_id,
        });
        if tree.as_ref().is_some_and(DestinationTree::has_single_name)
            && !self.table.is_one_file(|| self.is_stopped())
            && !self.is_stopped()
        {
            tree = tree.map(|tree| tree.into_directory(dry_run)).transpose()?;
        }
        // The descriptor must be open before the first write, so that `syncfs` reports every error (syncfs(2)).
        if let Some(top) = tree.as_ref().filter(|_| !dry_run).and_then(|tree| tree.open_readable().ok()) {
            let _ = self.file_systems.add(&top.into());
        }
        // Only this thread sets the field.
        let _ = self.tree.set(tree);
        let (directories, dry_run_state, sources) =
            (PendingDirectories::default(), DryRunState::default(), SourceNames::new(self.options.multiple_sources));
        let mut plan = PlanState {
            overwrite,
            directories,
            dry_run: dry_run_state,
            sources,
            deletions: Deletions::default(),
            failed_directory: None,
        };
        while let Some(next) = self.table.next_entry(|| self.is_stopped()) {
            // Hard links and compared files come a second time.
            if next.is_first {
                plan.directories.advance_to(next.number, &next.entry.name);
                if let Some(tree) = self.tree().filter(|_| self.options.delete) {
                    plan.deletions.advance(self, tree, &next.entry);
                }
            }
            self.plan_entry(next, &mut plan);
            let through = self.table.with_unsettled_check(|unsettled| plan.directories.take_finished(unsettled));
            // Deletions in a directory come before the directory gets its final attributes.
            self.deferred_close.close(self);
            self.apply_directory_attributes(through);
        }
        // The next copy must be able to open the partial files as soon as this copy reports its end.
        self.deferred_close.close(self);
        if self.is_stopped() { Ok(()) } else { self.finish(plan.directories, plan.deletions) }
    }

    fn plan_entry(&self, next: NextEntry, plan: &mut PlanState) {
        let (number, name) = (next.number, next.entry.name.clone());
        let (first, is_directory) = (next.is_first, next.entry.kind == EntryKind::Directory);
        if first && plan.failed_directory.as_ref().is_some_and(|failed| is_below(&name, failed)) {
            return self.table.settle(number, &name, EntryOutcome::ParentFailed);
        }
        let before = if first { plan.sources.add(number, &next.entry) } else { EarlierEntry::Free };
        let result = match (self.tree(), before.refusal(plan.overwrite)) {
            (Some(tree), Some(reason)) => {
                if self.options.dry_run {
                    self.report_entry(&next.entry, EntryAction::Refuse);
                }
                Err(TransferError::Forbidden { path: tree.display_name(&name), reason })
            }
            (Some(_), None) if before == EarlierEntry::Same => Ok(Some(skipped_outcome(&next.entry))),
            (Some(tree), None) if self.options.dry_run => self.dry_run_entry(tree, next, plan),
            (Some(tree), None) => self.place_entry(tree, next, plan),
            (None, _) => self.plan_discarded(number, next.entry),
        };
        match result {
            Ok(Some(done)) => self.table.settle(number, &name, done),
            Ok(None) => {}
            Err(error) => {
                if is_directory && !name.is_root() {
                    plan.failed_directory = Some(name.clone());
                }
                self.table.settle(number, &name, EntryOutcome::Failed(error));
            }
        }
    }

    /// Plans an entry for `null:`, which needs every file and nothing else.
    fn plan_discarded(&self, number: u32, entry: Entry) -> Result<Option<EntryOutcome>, TransferError> {
        match entry.kind {
            EntryKind::File { length } => self.request_file(None, number, entry, length, false),
            EntryKind::Directory => Ok(Some(EntryOutcome::Directory)),
            EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => Ok(Some(EntryOutcome::Link)),
        }
    }

    fn place_entry(
        &self,
        tree: &DestinationTree,
        next: NextEntry,
        plan: &mut PlanState,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let NextEntry { number, entry, compared, .. } = next;
        if entry.kind == EntryKind::Directory {
            self.wait_for_directory_memory(tree, &entry, &mut plan.directories)?;
        }
        if entry.name.is_root() {
            let is_new = tree.is_created();
            if !tree.is_served_root() && (is_new || tree.write_only().is_none()) {
                let previous_mode = self.make_directory_writable(tree, &entry);
                plan.directories.push(PendingDirectory { number, entry, is_new, previous_mode });
            }
            return Ok(Some(if is_new { EntryOutcome::Directory } else { EntryOutcome::Skipped(Bytes(0)) }));
        }
        let location = tree.locate(&entry.name)?;
        let Some((entry, file, is_separate)) = self.resolve_hard_link(number, entry, tree, &location)? else {
            return Ok(None);
        };
        let stat = location.stat()?;
        let existing = existing_from(stat.as_ref());
        self.exclude_from_deletion(&entry.name, stat.as_ref(), plan);
        let equal = compared
            .map(|compared| compared.is_equal)
            .or_else(|| equals_existing(&entry, &location, file.as_ref().and_then(inode_of)));
        let own = self.is_own_write_only(tree, stat.as_ref());
        let verdict = match tree.write_only() {
            // A write-only client may learn about its own files. No digest is computed for them.
            Some(_) if own => decide(&entry, existing, equal, OverwritePolicy { checksum: false, ..plan.overwrite }),
            Some(_) => decide_write_only(&entry, existing, plan.overwrite),
            None if is_separate => decide_separate_file(&entry, &location, existing, plan.overwrite)?,
            None => decide(&entry, existing, equal, plan.overwrite),
        };
        let is_replaced =
            matches!(verdict, OverwriteDecision::Replace | OverwriteDecision::Refuse(Conflict::Directory));
        if is_replaced && plan.sources.may_overlap() && location.is_newer(self.started_at) {
            return Err(TransferError::Forbidden {
                path: location.display_path,
                reason: ForbiddenReason::WrittenByOtherSource,
            });
        }
        let verdict = if self.may_lack_data(&location, verdict) { OverwriteDecision::Replace } else { verdict };
        if let (OverwriteDecision::Skip(_), Some(stat)) = (verdict, &stat) {
            self.note_existing(number, &entry, &location, stat);
        }
        if verdict == OverwriteDecision::Skip(SkipReason::Newer) && tree.write_only().is_none() {
            self.note_newer_kept(number, &entry);
        }
        let replace = match verdict {
            OverwriteDecision::Create => false,
            OverwriteDecision::Skip(_) if tree.write_only().is_some() => {
                return Ok(Some(existing_write_only(&entry, own)));
            }
            OverwriteDecision::Skip(reason) => return self.skip_entry(number, entry, location, reason, compared, plan),
            // An empty directory holds no data to lose.
            OverwriteDecision::Refuse(Conflict::Directory)
                if self.clear_directory(&location, &entry.name, false)? =>
            {
                false
            }
            OverwriteDecision::Refuse(conflict) => {
                return Err(TransferError::Conflict { path: location.display_path, obstacle: conflict });
            }
            OverwriteDecision::Replace if existing == Existing::Directory => {
                if !self.clear_directory(&location, &entry.name, !plan.sources.may_overlap())? {
                    return Err(directory_conflict(location.display_path));
                }
                false
            }
            OverwriteDecision::CompareDigests if self.options.verify.detects_changes() => {
                return self.compare_digests(number, entry);
            }
            OverwriteDecision::Replace | OverwriteDecision::CompareDigests => true,
        };
        if compared.is_some() {
            // The sender waits for this answer, even if the compared file is gone now.
            self.table.mark_differing(number);
        }
        let directory = Some((entry.name.clone(), location.clone())).filter(|_| entry.kind == EntryKind::Directory);
        // A file is reported when it is complete.
        let created =
            (!matches!(entry.kind, EntryKind::File { .. }) && self.options.report_entries).then(|| entry.clone());
        let done = self.create_entry(number, entry, location, file, replace, &mut plan.directories)?;
        if let Some(created) = created {
            self.report_written(&created, replace);
        }
        if let Some((name, location)) = directory {
            self.exclude_from_deletion(&name, location.stat()?.as_ref(), plan);
        }
        Ok(done)
    }

    /// Resolves a hard link: returns the entry itself if the entry is no hard link. For a hard link, returns the entry
    /// with an open descriptor of its target. If a newer file stays in the place of the target, returns the entry as a
    /// separate file (`true`). Returns `None` while the target is not known.
    fn resolve_hard_link(
        &self,
        number: u32,
        entry: Entry,
        tree: &DestinationTree,
        location: &EntryLocation,
    ) -> Result<Option<(Entry, Option<OwnedFd>, bool)>, TransferError> {
        let EntryKind::HardLink { to } = entry.kind else { return Ok(Some((entry, None, false))) };
        match self.link_target(number, to, entry) {
            LinkTarget::Existing(name, entry) => {
                Ok(Some((entry, Some(self.open_link_target(to, tree.locate(&name)?)?), false)))
            }
            LinkTarget::Separate(entry) => Ok(Some((entry, None, true))),
            LinkTarget::Pending => Ok(None),
            LinkTarget::Missing => Err(TransferError::Forbidden {
                path: location.display_path.clone(),
                reason: ForbiddenReason::LinkTargetMissing,
            }),
        }
    }

    /// Protects the existing entry of this name from `--delete`, whatever spelling the file system gives the name.
    pub(super) fn exclude_from_deletion(&self, name: &Name, stat: Option<&Stat>, plan: &mut PlanState) {
        if let Some(stat) = stat.filter(|_| self.options.delete) {
            plan.deletions.exclude(name, stat);
        }
    }

    /// Returns whether a file with the right size and time may contain zeros instead of data. This happens if this copy
    /// gave the file its name before a sync, and the host was restarted since.
    fn may_lack_data(&self, location: &EntryLocation, verdict: OverwriteDecision) -> bool {
        let same = verdict == OverwriteDecision::Skip(SkipReason::UpToDate) && self.options.fsync != FsyncPolicy::File;
        same && self.is_from_earlier_session(location) && has_rebooted_since(self.started_at)
    }

    /// Opens the file that a hard link names. Fails if the name does not lead to the file that this copy left there.
    fn open_link_target(&self, number: u32, location: EntryLocation) -> Result<OwnedFd, TransferError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&location.directory, &location.name, flags, Mode::empty());
        let file = opened.map_err(|e| location.error("open", e))?;
        if inode_of(&file).is_none_or(|existing| self.table.link_info(number).inode != Some(existing)) {
            let reason = ForbiddenReason::LinkTargetReplaced;
            return Err(TransferError::Forbidden { path: location.display_path, reason });
        }
        Ok(file)
    }

    /// Returns the target of a hard link. If a newer file stays in the place of the target, the link becomes a separate
    /// file.
    pub(super) fn link_target(&self, number: u32, to: u32, entry: Entry) -> LinkTarget {
        match (self.table.resolve_link(number, to, entry), self.table.link_info(to).newer_kept) {
            (LinkTarget::Existing(_, entry), Some(length)) => {
                LinkTarget::Separate(Entry { kind: EntryKind::File { length }, ..entry })
            }
            (leads, _) => leads,
        }
    }

    /// Remembers, for later hard links to this file, that a newer file stays in its place.
    pub(super) fn note_newer_kept(&self, number: u32, entry: &Entry) {
        if let (EntryKind::File { length }, true) = (&entry.kind, entry.linked) {
            self.table.update_link_info(number, |info| info.newer_kept = Some(*length));
        }
    }

    /// Remembers the inode of an existing file for later hard links. Registers the file system for the final sync.
    fn note_existing(&self, number: u32, entry: &Entry, location: &EntryLocation, stat: &Stat) {
        if entry.linked {
            self.table.update_link_info(number, |info| info.inode = Some(inode(stat)));
        }
        if entry.kind != EntryKind::Directory && self.options.fsync != FsyncPolicy::None {
            self.file_systems.add_existing(stat.st_dev, || location.open_readable());
        }
    }

    /// Waits until there is memory for one more unfinished directory. Directories finish when all their contents have
    /// arrived.
    fn wait_for_directory_memory(
        &self,
        tree: &DestinationTree,
        entry: &Entry,
        directories: &mut PendingDirectories,
    ) -> Result<(), TransferError> {
        let received = || self.streams.progress().bytes;
        let (mut bytes, mut deadline) = (received(), Instant::now() + DIRECTORIES_TIMEOUT);
        while !directories.has_room_for(entry) && !self.is_stopped() {
            if received() != bytes {
                (bytes, deadline) = (received(), Instant::now() + DIRECTORIES_TIMEOUT);
            }
            if Instant::now() >= deadline {
                let reason = ForbiddenReason::TooManyDirectories;
                return Err(TransferError::Forbidden { path: tree.display_name(&entry.name), reason });
            }
            let through = self.table.with_unsettled_check(|unsettled| directories.take_finished_now(unsettled));
            if through.is_empty() {
                self.while_blocked_on_disk(|| thread::sleep(Duration::from_millis(10)));
            }
            self.deferred_close.close(self);
            self.apply_directory_attributes(through);
        }
        Ok(())
    }

    /// Leaves the existing entry in place. A file with equal content gets the source's time, so that the next copy need
    /// not compare.
    fn skip_entry(
        &self,
        number: u32,
        entry: Entry,
        location: EntryLocation,
        reason: SkipReason,
        compared: Option<DigestComparison>,
        plan: &mut PlanState,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let is_own = self.is_from_earlier_session(&location);
        if !is_own {
            self.report_unchanged(
                &entry,
                match reason {
                    SkipReason::UpToDate => EntryAction::UpToDate,
                    SkipReason::Newer => EntryAction::Newer,
                },
            );
        }
        let EntryKind::File { length } = entry.kind else {
            let done = |written| if is_own { written } else { EntryOutcome::Skipped(Bytes(0)) };
            if entry.kind == EntryKind::Directory {
                location.remove_replaced();
                let previous_mode = self.tree().and_then(|tree| self.make_directory_writable(tree, &entry));
                plan.directories.push(PendingDirectory { number, entry, is_new: is_own, previous_mode });
                return Ok(Some(done(EntryOutcome::Directory)));
            }
            if reason == SkipReason::Newer {
                return Ok(Some(skipped_outcome(&entry)));
            }
            if matches!(entry.kind, EntryKind::Symlink { .. }) {
                self.attributes.apply_to_symlink(&location, &entry);
            }
            return self.report_hard_link(number, entry, location, EntryAction::UpToDate, done(EntryOutcome::Link));
        };
        if length > self.block_size && !PartialFile::exists(&location)? {
            // A copy was killed after it had renamed the file and before it removed the journal.
            location.remove_journal();
        }
        // As in rsync, a newer file keeps its attributes.
        if reason == SkipReason::UpToDate && self.attributes.preserves_metadata() {
            self.update_attributes(&location, &entry)?;
        }
        if reason == SkipReason::UpToDate && compared.is_some() {
            let set = utimensat(&location.directory, &location.name, &entry_times(&entry), AtFlags::SYMLINK_NOFOLLOW);
            // For a file of another user, accept the error if the time is correct already.
            let right = || {
                Ok::<_, TransferError>(
                    existing_from(location.stat()?.as_ref()) == Existing::File { length, modified: entry.modified },
                )
            };
            match set {
                Err(Errno::PERM | Errno::ACCESS) if right()? => {}
                set => set.map_err(|e| location.error("set the times of", e))?,
            }
        }
        let done = if is_own { EntryOutcome::WrittenEarlier(length) } else { EntryOutcome::Skipped(length) };
        match compared.and_then(|compared| compared.existing) {
            _ if !self.options.report_digests || reason == SkipReason::Newer => {}
            Some(digest) => self.report_existing(number, &entry, EntryAction::UpToDate, digest),
            None => {
                let layout = Layout::new(length, self.block_size)?;
                self.digest_queue.push(DigestJob {
                    number,
                    name: entry.name.clone(),
                    layout,
                    existing: Some((entry, done)),
                });
                return Ok(None);
            }
        }
        Ok(Some(done))
    }

    /// Asks both ends to compute the digest of a file.
    pub(super) fn compare_digests(&self, number: u32, entry: Entry) -> Result<Option<EntryOutcome>, TransferError> {
        let EntryKind::File { length } = entry.kind else { return Ok(Some(skipped_outcome(&entry))) };
        let (layout, name) = (Layout::new(length, self.block_size)?, entry.name.clone());
        self.table.request_digest(number, entry);
        if layout.blocks() == 0 {
            self.table.set_source_digest(number, Digest(*blake3::hash(&[]).as_bytes()));
        }
        self.digest_queue.push(DigestJob { number, name, layout, existing: None });
        Ok(None)
    }

    /// Creates a directory or a link, or requests a file. `file` is the target of a hard link.
    fn create_entry(
        &self,
        number: u32,
        entry: Entry,
        location: EntryLocation,
        file: Option<OwnedFd>,
        replace: bool,
        directories: &mut PendingDirectories,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        match &entry.kind {
            EntryKind::Directory => create_directory(&location, &entry, replace).map(|()| {
                directories.push(PendingDirectory { number, entry, is_new: true, previous_mode: None });
                Some(EntryOutcome::Directory)
            }),
            EntryKind::Symlink { target } => {
                let link = |name: &OsStr| symlinkat(target.as_bytes(), &location.directory, name);
                create_link(&location, replace, link)?;
                self.attributes.apply_to_symlink(&location, &entry);
                self.note_written_file(&entry.name);
                Ok(Some(EntryOutcome::Link))
            }
            EntryKind::HardLink { .. } => {
                let Some(file) = file else { return Err(TransferError::Incomplete) };
                create_link(&location, replace, |name| link_open_file(&file, &location.directory, name))?;
                // The new link changes the ctime of the file.
                self.note_written_file(&entry.name);
                let action = if replace { EntryAction::Replace } else { EntryAction::New };
                self.report_hard_link(number, entry, location, action, EntryOutcome::Link)
            }
            &EntryKind::File { length } => self.request_file(Some(location), number, entry, length, replace),
        }
    }

    /// Requests the blocks of a file that an earlier copy did not leave here. Creates an empty file at once.
    fn request_file(
        &self,
        location: Option<EntryLocation>,
        number: u32,
        entry: Entry,
        length: Bytes,
        replace: bool,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let layout = Layout::new(length, self.block_size)?;
        let needed = Arc::new(NeededFile::new(number, entry, layout, replace, self.tracked_blocks.clone()));
        match location {
            Some(location) if layout.blocks() == 0 => {
                self.complete_single_block(
                    &needed,
                    SingleBlockFile::write(location, &needed.entry, &[], &self.attributes)?,
                );
            }
            None if layout.blocks() == 0 => self.settle_file(&needed, Ok(())),
            Some(location) if layout.blocks() > 1 && PartialFile::exists(&location)? => {
                let mut messages = Vec::new();
                if let Some(tree) = self.tree() {
                    // The files before this one are marked as needed already, so they can finish.
                    self.wait_for_free_partial(Duration::MAX);
                    let mut state = lock(&needed.state);
                    let blocks =
                        self.open_partial(tree, &needed, &mut state).inspect_err(|_| self.release_quota(&needed))?;
                    if !blocks.is_empty() {
                        messages.push(ReceiverMessage::Have { file: number, blocks });
                    }
                }
                self.table.mark_needed(needed.clone(), messages);
                self.try_complete(&needed, true);
            }
            _ => {
                self.reserve_quota(&needed, length)?;
                self.table.mark_needed(needed, Vec::new());
            }
        }
        Ok(None)
    }

    /// Updates the preserved attributes of an existing file, as rsync does.
    fn update_attributes(&self, location: &EntryLocation, entry: &Entry) -> Result<(), TransferError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&location.directory, &location.name, flags, Mode::empty());
        let existing = opened.map_err(|e| location.error("open", e))?;
        check_regular(&fstat(&existing).map_err(|e| location.error("open", e))?, &location.display_path)?;
        self.attributes
            .apply(AttributeTarget::ExistingFile(&existing), entry)
            .map_err(|(doing, e)| location.error(doing, e))
    }
}

/// Returns the error for a directory in the place of another kind of entry.
pub(super) fn directory_conflict(path: String) -> TransferError {
    TransferError::Forbidden { path, reason: ForbiddenReason::DirectoryNotEmpty }
}

/// Returns the outcome of an existing entry that a write-only client may know.
fn existing_write_only(entry: &Entry, own: bool) -> EntryOutcome {
    match entry.kind {
        EntryKind::File { length } if own => EntryOutcome::WrittenEarlier(length),
        EntryKind::Symlink { .. } | EntryKind::HardLink { .. } if own => EntryOutcome::Link,
        _ => skipped_outcome(entry),
    }
}

/// Returns the outcome of an existing entry that stays.
pub(super) fn skipped_outcome(entry: &Entry) -> EntryOutcome {
    match entry.kind {
        EntryKind::File { length } => EntryOutcome::Skipped(length),
        _ => EntryOutcome::Skipped(Bytes(0)),
    }
}

/// Returns whether the existing entry equals the listed one. `None` if that needs the content of files.
pub(super) fn equals_existing(entry: &Entry, location: &EntryLocation, file: Option<Inode>) -> Option<bool> {
    match &entry.kind {
        EntryKind::Symlink { target } => {
            let existing = readlinkat(&location.directory, &location.name, Vec::new()).ok()?;
            Some(existing.to_bytes() == target.as_bytes())
        }
        EntryKind::HardLink { .. } => {
            let existing = location.stat().ok()??;
            Some(inode(&existing) == file?)
        }
        EntryKind::File { .. } | EntryKind::Directory => None,
    }
}

/// Creates a link. Removes the stale partial file that an interrupted copy left under this name.
fn create_link(
    location: &EntryLocation,
    replace: bool,
    link: impl Fn(&OsStr) -> Result<(), Errno>,
) -> Result<(), TransferError> {
    let stale = replace.then(|| take_partial_name_soon(location)).transpose()?;
    let created = location.create(replace, link);
    drop(stale);
    created
}

/// Decides about a hard link if its target keeps a newer file. The link cannot be a name of that newer file, and the
/// source sends the content only once. An existing file that matches the entry is accepted.
pub(super) fn decide_separate_file(
    entry: &Entry,
    location: &EntryLocation,
    existing: Existing,
    allowed: OverwritePolicy,
) -> Result<OverwriteDecision, TransferError> {
    match decide(entry, existing, None, OverwritePolicy { checksum: false, ..allowed }) {
        skip @ OverwriteDecision::Skip(_) => Ok(skip),
        _ => Err(TransferError::Forbidden {
            path: location.display_path.clone(),
            reason: ForbiddenReason::LinkTargetNewer,
        }),
    }
}

fn create_directory(location: &EntryLocation, entry: &Entry, replace: bool) -> Result<(), TransferError> {
    // The owner must be able to write into the directory before the directory gets its own mode.
    let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o700);
    let make = |name: &OsStr| mkdirat(&location.directory, name, mode);
    if !replace {
        return make(&location.name).map_err(|e| location.error("create", e));
    }
    // Remove the stale partial file that an interrupted copy left under this name.
    let stale = take_partial_name_soon(location)?;
    let created = location.replace_with_directory(mode);
    drop(stale);
    created
}
