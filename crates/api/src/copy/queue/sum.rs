//! The sum of the copies of all parts that a mover has copied: one outcome for the report.

use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_copy::{CopyOutcome, ListedTotals};
use lfn_results::evidence::{ProgressSample, StreamTime};
use lfn_session::wire::copy::preserve::{SkippedEntries, Unpreserved};
use lfn_session::wire::copy::{CopyTally, EntryFailure};

/// The sum of the copies of a mover.
pub(super) struct CopySum {
    start: Instant,
    pub(super) outcome: CopyOutcome,
    /// Entries and bytes of the parts that this mover completed.
    pub(super) entries: u64,
    pub(super) bytes: Bytes,
}

impl CopySum {
    pub(super) fn new() -> Self {
        let outcome = CopyOutcome {
            bytes: Bytes(0),
            digest: None,
            elapsed: Duration::ZERO,
            path: None,
            tally: CopyTally::default(),
            skipped: SkippedEntries::default(),
            failures: Vec::new(),
            sample: ProgressSample::default(),
            samples: Vec::new(),
            reconnects: 0,
            outage_time: Duration::ZERO,
            standstill_time: Duration::ZERO,
            replaced: 0,
            changes: Vec::new(),
            stripes: Vec::new(),
        };
        CopySum { start: Instant::now(), outcome, entries: 0, bytes: Bytes(0) }
    }

    /// Returns the counters of a running copy together with all copies before.
    pub(super) fn sample(&self, running: &ProgressSample) -> ProgressSample {
        let before = &self.outcome.sample;
        ProgressSample {
            at: self.start.elapsed(),
            bytes: plus(before.bytes, running.bytes),
            sender: add_times(before.sender, running.sender),
            receiver: add_times(before.receiver, running.receiver),
            ..*running
        }
    }

    /// Returns the totals of the whole queue: `done` are the bytes and entries that all movers have recorded.
    pub(super) fn totals(&self, all: ListedTotals, done: ListedTotals, running: &ListedTotals) -> ListedTotals {
        // The sample has the bytes that this mover has sent.
        let skipped = plus(done.bytes, running.not_needed).0.saturating_sub(self.outcome.sample.bytes.0);
        ListedTotals { not_needed: Bytes(skipped), finished: done.finished, ..all }
    }

    /// Adds the copy of a part. The parent directories of its entries are not counted again.
    pub(super) fn add(&mut self, part: CopyOutcome, parents: u64) {
        let CopySum { outcome, start, .. } = self;
        outcome.sample = ProgressSample {
            bytes: plus(outcome.sample.bytes, part.sample.bytes),
            sender: add_times(outcome.sample.sender, part.sample.sender),
            receiver: add_times(outcome.sample.receiver, part.sample.receiver),
            at: start.elapsed(),
            ..part.sample
        };
        outcome.bytes = plus(outcome.bytes, part.bytes);
        outcome.path = outcome.path.take().or(part.path);
        outcome.tally = add_tallies(&outcome.tally, &part.tally);
        outcome.tally.skipped = outcome.tally.skipped.saturating_sub(parents);
        outcome.reconnects += part.reconnects;
        outcome.outage_time += part.outage_time;
        outcome.standstill_time += part.standstill_time;
        outcome.replaced += part.replaced;
    }

    /// Returns the outcome. `failures` are those of all movers.
    pub(super) fn finish(mut self, failures: Vec<EntryFailure>, failed: u64) -> CopyOutcome {
        self.outcome.elapsed = self.start.elapsed();
        self.outcome.failures = failures;
        self.outcome.tally.failed = failed;
        self.outcome
    }
}

fn add_tallies(a: &CopyTally, b: &CopyTally) -> CopyTally {
    CopyTally {
        files: a.files.saturating_add(b.files),
        directories: a.directories.saturating_add(b.directories),
        links: a.links.saturating_add(b.links),
        skipped: a.skipped.saturating_add(b.skipped),
        skipped_bytes: plus(a.skipped_bytes, b.skipped_bytes),
        failed: a.failed.saturating_add(b.failed),
        disk_full: a.disk_full || b.disk_full,
        bytes: plus(a.bytes, b.bytes),
        deleted: a.deleted.saturating_add(b.deleted),
        deletion_skipped: a.deletion_skipped || b.deletion_skipped,
        resumed_bytes: plus(a.resumed_bytes, b.resumed_bytes),
        resent_blocks: a.resent_blocks.saturating_add(b.resent_blocks),
        not_preserved: Unpreserved {
            owners: a.not_preserved.owners.saturating_add(b.not_preserved.owners),
            xattrs: a.not_preserved.xattrs.saturating_add(b.not_preserved.xattrs),
            acls: a.not_preserved.acls.saturating_add(b.not_preserved.acls),
        },
    }
}

fn add_times(a: StreamTime, b: StreamTime) -> StreamTime {
    StreamTime {
        disk: a.disk + b.disk,
        hash: a.hash + b.hash,
        network: a.network + b.network,
        rate_limited: a.rate_limited + b.rate_limited,
    }
}

fn plus(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_add(b.0))
}
