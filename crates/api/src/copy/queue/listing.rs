//! Writes the manifest: lists the sources, and stores their entries in parts.

use std::sync::Arc;

use lfn_copy::{ListedSource, LocalSource, list_source};
use lfn_queue::proto::header::Header;
use lfn_queue::proto::part::{Part, PartBuilder, QueueEntry, QueueEntryKind};
use lfn_queue::proto::record::MAX_FAILURES;
use lfn_queue::{Queue, QueueError, QueueOptions};
use lfn_session::wire::copy::EntryFailure;
use lfn_session::wire::copy::entry::{Entry, EntryKind};

use super::super::error::CopyError;
use super::super::prepare::PreparedCopy;
use super::copy_settings;

/// Joins the queue. Writes its manifest if there is none.
pub(super) fn join(
    queue: &mut Queue,
    sources: &[LocalSource],
    prepared: &PreparedCopy,
    options: &QueueOptions,
) -> Result<Arc<Header>, CopyError> {
    let copy = copy_settings(prepared);
    if let Some(claim) = queue.wait_for_manifest()? {
        let header = Header { copy: copy.clone(), ..write(queue, sources, prepared, options)? };
        queue.publish_manifest(&header)?;
        drop(claim);
    }
    Ok(queue.join(&copy)?)
}

/// The manifest while it is written.
struct ManifestWriter<'a> {
    queue: &'a Queue,
    header: Header,
    entries: PartBuilder,
    directories: PartBuilder,
}

fn write(
    queue: &Queue,
    sources: &[LocalSource],
    prepared: &PreparedCopy,
    options: &QueueOptions,
) -> Result<Header, CopyError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| QueueError::Random(std::io::Error::other(error)))?;
    let header = Header {
        id: data_encoding::HEXLOWER.encode(&id),
        lease_milliseconds: u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX),
        ..Header::default()
    };
    let mut writer =
        ManifestWriter { queue, header, entries: PartBuilder::default(), directories: PartBuilder::default() };
    for (number, source) in sources.iter().enumerate() {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        let steps = list_source(source, &prepared.options.selection, &prepared.options.transfer_options);
        for step in steps.map_err(|error| CopyError::from_transfer(error, &prepared.places))? {
            if queue.is_interrupted() {
                return Err(CopyError::Interrupted);
            }
            writer.add(number, step)?;
        }
    }
    writer.finish()
}

impl ManifestWriter<'_> {
    fn add(&mut self, source: u16, step: ListedSource) -> Result<(), CopyError> {
        match step {
            ListedSource::Entry(entry) => self.add_entry(source, entry)?,
            ListedSource::Failed(failure) => self.add_failure(failure),
            ListedSource::SkippedLink => self.header.skipped_links += 1,
            ListedSource::SkippedSpecial => self.header.skipped_special += 1,
        }
        Ok(())
    }

    fn add_failure(&mut self, failure: EntryFailure) {
        self.header.unlisted += 1;
        if self.header.failures.len() < MAX_FAILURES {
            self.header.failures.push(failure);
        }
    }

    fn add_entry(&mut self, source: u16, entry: Entry) -> Result<(), CopyError> {
        let kind = match entry.kind {
            EntryKind::File { length } => QueueEntryKind::File { bytes: length, modified: entry.modified },
            EntryKind::Directory => QueueEntryKind::Directory,
            EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => QueueEntryKind::Link,
        };
        let entry = QueueEntry { name: entry.name, kind };
        self.header.entries += 1;
        self.header.bytes.0 = self.header.bytes.0.saturating_add(entry.bytes().0);
        if entry.kind == QueueEntryKind::Directory
            && let Some(part) = self.directories.add(source, entry.clone())
        {
            self.store_directories(&part)?;
        }
        if let Some(part) = self.entries.add(source, entry) {
            self.store_entries(&part)?;
        }
        Ok(())
    }

    fn store_entries(&mut self, part: &Part) -> Result<(), CopyError> {
        self.queue.store_part(&self.header.id, self.header.entry_parts, false, part)?;
        self.header.entry_parts += 1;
        Ok(())
    }

    fn store_directories(&mut self, part: &Part) -> Result<(), CopyError> {
        self.queue.store_part(&self.header.id, self.header.directory_parts, true, part)?;
        self.header.directory_parts += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<Header, CopyError> {
        if let Some(part) = self.entries.finish() {
            self.store_entries(&part)?;
        }
        if let Some(part) = self.directories.finish() {
            self.store_directories(&part)?;
        }
        Ok(self.header)
    }
}
