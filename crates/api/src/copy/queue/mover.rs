//! The loop of a mover: takes a part, copies it, records it, until every part of the manifest is done.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_copy::{CopyObserver, CopyOutcome, ListedTotals, LocalSource, TransferError, upload};
use lfn_queue::proto::header::Header;
use lfn_queue::proto::part::Part;
use lfn_queue::proto::record::PartRecord;
use lfn_queue::{Lease, Queue, QueueOptions, QueueState};
use lfn_results::evidence::ProgressSample;
use lfn_session::dial::ServerConnection;
use lfn_session::wire::copy::{CopyTally, EntryFailure, RemoteDestination};

use super::super::error::CopyError;
use super::super::event::{CopyEvent, QueueProgress};
use super::super::places::Direction;
use super::super::prepare::PreparedCopy;
use super::listing::join;
use super::part_copy::{PartUpload, failure, is_locked};
use super::sum::CopySum;
use crate::documents::QueueReport;

/// Attempts of a part after which its failures are recorded.
const MAX_ATTEMPTS: u64 = 3;

/// Time until a part with failures, or a part that another copy holds, is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval of checks for an interrupt and for a lost lease.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Callback for events of the copy.
type Report<'a> = &'a dyn Fn(&CopyEvent<'_>);

/// Copies parts of the queue until the queue is complete or this mover can do nothing more.
pub(in super::super) fn copy_from_queue(
    prepared: &PreparedCopy,
    options: &QueueOptions,
    interrupted: &Arc<AtomicBool>,
    report: Report<'_>,
) -> Result<(CopyOutcome, QueueReport), CopyError> {
    let Direction::Upload(sources, _, to) = &prepared.direction else { return Err(CopyError::QueueDirection) };
    // A wrong address of the server is an error now. Later, the server may be restarting.
    ServerConnection::connect(&prepared.far.target)
        .map_err(|error| CopyError::from_transfer(error.into(), &prepared.places))?;
    let mut queue = Queue::open(options.clone(), interrupted)?;
    let header = join(&mut queue, sources, prepared, options)?;
    if queue.state().is_complete && queue.state().totals.failed > 0 {
        queue.retry_failures()?;
    }
    let sum = RefCell::new(CopySum::new());
    let mut mover = Mover {
        queue: &queue,
        header: &header,
        prepared,
        to,
        options,
        interrupted,
        report,
        sum,
        redeliveries: 0,
        lost_leases: 0,
        trouble_since: None,
        disk_full: false,
    };
    mover.run()?;
    Ok(mover.finish())
}

/// A mover and its results.
struct Mover<'a> {
    queue: &'a Queue,
    header: &'a Header,
    prepared: &'a PreparedCopy,
    to: &'a RemoteDestination,
    options: &'a QueueOptions,
    interrupted: &'a AtomicBool,
    report: Report<'a>,
    sum: RefCell<CopySum>,
    redeliveries: u64,
    lost_leases: u64,
    /// Time since which no session with the server of the copy succeeded. `None` after a success.
    trouble_since: Option<Instant>,
    /// The destination is full, so that further parts would fail too.
    disk_full: bool,
}

/// End of the copy of a part.
enum PartEnd {
    Copied(Box<CopyOutcome>),
    /// The copy failed before any entry did.
    Failed(TransferError),
    /// The lease belongs to another mover now.
    LeaseLost,
}

impl Mover<'_> {
    /// Runs until the queue is complete, or until nothing has changed for the patience of this mover.
    fn run(&mut self) -> Result<(), CopyError> {
        let (mut last_state, mut changed_at) = (QueueState::default(), Instant::now());
        loop {
            let state = self.queue.state();
            self.report_state(&state, true);
            if state.is_complete || self.disk_full {
                return Ok(());
            }
            if state != last_state {
                (last_state, changed_at) = (state, Instant::now());
            }
            match self.queue.next_lease()? {
                Some(lease) => {
                    self.process(lease)?;
                    changed_at = Instant::now();
                }
                None if changed_at.elapsed() >= self.options.patience => return Ok(()),
                None => {}
            }
        }
    }

    /// Copies and records the part of a lease.
    fn process(&mut self, lease: Lease) -> Result<(), CopyError> {
        let number = lease.part();
        let Some(part) = self.queue.part_to_copy(number)? else {
            // The mover before recorded the part and did not acknowledge it.
            lease.acknowledge();
            return Ok(());
        };
        self.redeliveries += u64::from(lease.deliveries() > 1);
        let Direction::Upload(sources, ..) = &self.prepared.direction else { return Err(CopyError::QueueDirection) };
        let upload = PartUpload::new(self.header, number, &part, sources, &self.prepared.options);
        let end = match &upload.source {
            None => PartEnd::Copied(Box::new(CopySum::new().finish(Vec::new(), 0))),
            Some(_) => self.copy_while_leased(&lease, &upload),
        };
        match end {
            PartEnd::Copied(outcome) => {
                self.trouble_since = None;
                self.record(lease, &part, &upload, *outcome)
            }
            PartEnd::LeaseLost => {
                self.lost_leases += 1;
                Ok(())
            }
            PartEnd::Failed(TransferError::Interrupted) => Err(CopyError::Interrupted),
            PartEnd::Failed(error) => self.handle_error(lease, &part, &upload, error),
        }
    }

    /// Copies the part. A lost session is followed by the next one as long as this mover has the lease.
    fn copy_while_leased(&self, lease: &Lease, upload: &PartUpload) -> PartEnd {
        let (watch, lost) = (lease.watch(), lease.watch().lost_flag());
        let (ends, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let watcher = thread::Builder::new().name("lease".into()).spawn_scoped(scope, || {
                while !is_done.load(Ordering::Relaxed) {
                    if lost.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed) {
                        ends.store(true, Ordering::Relaxed);
                    }
                    thread::park_timeout(POLL_INTERVAL);
                }
            });
            let end = loop {
                let result = self.upload(upload, &ends, &|| watch.on_alive());
                let is_over = ends.load(Ordering::Relaxed) || lost.load(Ordering::Relaxed);
                match result {
                    // A copy that ended after its lease may have been replaced by another. Its result does not count.
                    _ if lost.load(Ordering::Relaxed) => break PartEnd::LeaseLost,
                    Ok(outcome) => break PartEnd::Copied(Box::new(outcome)),
                    Err(_) if self.interrupted.load(Ordering::Relaxed) => {
                        break PartEnd::Failed(TransferError::Interrupted);
                    }
                    Err(error @ TransferError::Lost { .. }) if !is_over && !error.was_stopped() => {
                        thread::sleep(RETRY_DELAY / 2);
                    }
                    Err(error) => break PartEnd::Failed(error),
                }
            };
            is_done.store(true, Ordering::Relaxed);
            if let Ok(watcher) = watcher {
                watcher.thread().unpark();
            }
            end
        })
    }

    fn upload(
        &self,
        upload_plan: &PartUpload,
        ends: &AtomicBool,
        on_alive: &dyn Fn(),
    ) -> Result<CopyOutcome, TransferError> {
        let stripes = &self.prepared.options.stripes;
        let watch = CopyObserver {
            observer: &mut |totals, sample| {
                on_alive();
                stripes.take_events().iter().for_each(|event| (self.report)(&CopyEvent::Stripe(event)));
                self.report_progress(totals, sample);
            },
            change: &mut |change| (self.report)(&CopyEvent::Streams(change)),
            connection: &mut |_| {},
            interrupted: ends,
        };
        let sources = upload_plan.source.as_slice();
        upload(&self.prepared.far.target, sources, self.to.clone(), &upload_plan.options, watch)
    }

    /// Records a part whose copy ran to its end, or gives it back for another attempt.
    fn record(
        &mut self,
        lease: Lease,
        part: &Part,
        upload: &PartUpload,
        outcome: CopyOutcome,
    ) -> Result<(), CopyError> {
        let number = lease.part();
        let mut failures = upload.changed.clone();
        failures.extend(outcome.failures.iter().cloned());
        let vanished = (upload.entries + upload.parents).saturating_sub(outcome.tally.entries());
        if upload.source.is_some() && vanished > 0 {
            let first = part.entries.first().map(|entry| &entry.name);
            failures.extend(first.map(|name| failure(name, format!("{vanished} entries near it changed their kind"))));
        }
        let failed = (upload.changed.len() as u64 + outcome.tally.failed).max(failures.len() as u64);
        let disk_full = outcome.tally.disk_full || outcome.failures.iter().any(|failure| failure.disk_full);
        if disk_full {
            self.disk_full = true;
            self.sum.borrow_mut().add(outcome, upload.parents);
            lease.give_back(RETRY_DELAY);
            return Ok(());
        }
        let is_locked = outcome.failures.iter().any(is_locked);
        if is_locked || (failed > 0 && self.queue.count_attempt(number)? < MAX_ATTEMPTS) {
            lease.give_back(RETRY_DELAY);
            return Ok(());
        }
        let entries = (part.entries.len() as u64).saturating_sub(failed);
        let bytes = Bytes(outcome.tally.bytes.0.saturating_add(outcome.tally.skipped_bytes.0));
        let record = PartRecord { mover: self.options.mover.clone(), entries, bytes, failed, failures };
        let digests = std::mem::take(&mut *upload.digests.lock());
        self.queue.record(number, record, digests)?;
        lease.acknowledge();
        if number < self.header.entry_parts {
            let mut sum = self.sum.borrow_mut();
            sum.add(outcome, upload.parents);
            sum.entries += entries;
            sum.bytes.0 = sum.bytes.0.saturating_add(bytes.0);
        }
        Ok(())
    }

    /// Handles a copy that failed as a whole.
    fn handle_error(
        &mut self,
        lease: Lease,
        part: &Part,
        upload: &PartUpload,
        error: TransferError,
    ) -> Result<(), CopyError> {
        let is_of_file = matches!(&error, TransferError::Locked { .. }) || error.is_of_source_file();
        let is_file = matches!(upload.source, Some(LocalSource::File(_)));
        if let (true, [only]) = (is_file && is_of_file, part.entries.as_slice()) {
            let outcome = CopySum::new().finish(vec![failure(&only.name, error.to_string())], 1);
            let tally = CopyTally { failed: 1, ..outcome.tally };
            return self.record(lease, part, upload, CopyOutcome { tally, ..outcome });
        }
        let since = *self.trouble_since.get_or_insert_with(Instant::now);
        let may_recover = error.is_resumable() || error.is_retryable() || error.was_stopped();
        lease.give_back(RETRY_DELAY);
        if may_recover && since.elapsed() < self.prepared.options.retry_for {
            // The server of the copy may be restarting.
            thread::sleep(RETRY_DELAY);
            return Ok(());
        }
        Err(CopyError::from_transfer(error, &self.prepared.places))
    }

    fn report_progress(&self, totals: &ListedTotals, sample: &ProgressSample) {
        let state = self.queue.state();
        self.report_state(&state, false);
        let all = ListedTotals {
            bytes: self.header.bytes,
            entries: self.header.entries,
            complete: true,
            ..ListedTotals::default()
        };
        let done =
            ListedTotals { bytes: state.totals.bytes, finished: state.totals.entries, ..ListedTotals::default() };
        let sum = self.sum.borrow();
        let totals = sum.totals(all, done, totals);
        let stripes = self.prepared.options.stripes.report(Instant::now());
        (self.report)(&CopyEvent::Progress { totals: &totals, sample: &sum.sample(sample), stripes: &stripes });
    }

    fn report_state(&self, state: &QueueState, is_waiting: bool) {
        let progress = QueueProgress {
            name: self.options.address.name().to_owned(),
            entries: self.header.entries,
            done: state.totals.entries,
            failed: state.totals.failed,
            is_waiting,
        };
        (self.report)(&CopyEvent::Queue(&progress));
    }

    /// Returns the outcome of this mover and the state of the queue.
    fn finish(self) -> (CopyOutcome, QueueReport) {
        let state = self.queue.state();
        let sum = self.sum.into_inner();
        let mut failures: Vec<EntryFailure> = self.header.failures.clone();
        failures.extend(self.queue.failures());
        let failed = state.totals.failed.saturating_add(self.header.unlisted);
        let report = QueueReport {
            name: self.options.address.name().to_owned(),
            complete: state.is_complete,
            entries: self.header.entries,
            bytes: self.header.bytes,
            done_entries: state.totals.entries,
            done_bytes: state.totals.bytes,
            failed_entries: failed,
            own_entries: sum.entries,
            own_bytes: sum.bytes,
            redeliveries: self.redeliveries,
            lost_leases: self.lost_leases,
        };
        let mut outcome = sum.finish(failures, failed);
        outcome.skipped.links = self.header.skipped_links;
        outcome.skipped.special = self.header.skipped_special;
        (outcome, report)
    }
}
