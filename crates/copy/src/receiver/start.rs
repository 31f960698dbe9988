//! Starts a receiver: opens the destination and connects the stages.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::ReceiverMessage;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::entry::{EntryKind, Modified, Name};
use lfn_session::wire::copy::options::{TransferOptions, Verify};
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;

use super::assemble::{Assembler, AssemblySettings};
use super::commit::CommitStage;
use super::file::FileTarget;
use super::inbox::POLL_INTERVAL;
use super::lead_rank::LeadRank;
use super::plan::{Planner, PlannerSetup};
use super::plan_event::{PlanEvent, PlanInbox};
use super::receive::{BlockReceiver, BlockSettings};
use super::recovery::StreamRecovery;
use super::report::{EntryReports, Reporter, Reports};
use super::timeouts::ReceiverTimeouts;
use super::{ListChecks, Receiver, RunningThreads, UnlistedNames, existing_digest};
use crate::TransferError;
use crate::base_dir::{BaseDir, current_time};
use crate::entry_listener::EntryListener;
use crate::rank_board::RankBoard;
use crate::storage::Storage;
use crate::storage::local::{DestinationOptions, LocalStorage};
use crate::storage::null::NullStorage;
use crate::storage::write_only::{WriteOnly, WriteOnlyAccess, hide_destination};
use crate::stream_set::StreamSet;
use crate::threads::spawn;

/// The destination of a copy.
#[derive(Debug)]
pub(crate) enum Destination {
    Null,
    Path {
        base: BaseDir,
        path: PathBuf,
        overwrite: OverwritePolicy,
        /// There is one source. If that source is a file, the file may take the name of `path` itself.
        single: bool,
        preserve: Preserve,
        /// Set if the client must not learn about existing entries.
        write_only: Option<WriteOnlyAccess>,
    },
    /// A storage that is open already.
    #[cfg(test)]
    Opened {
        storage: Box<dyn Storage>,
        overwrite: OverwritePolicy,
        preserve: Preserve,
    },
}

/// Options of a receiver.
#[derive(Debug)]
pub(crate) struct ReceiverOptions {
    pub(crate) transfer: TransferOptions,
    /// Gets the events of entries. Without a callback, the events go to the sender.
    pub(crate) listener: EntryListener,
    /// Start of the copy, if an earlier session began it.
    pub(crate) since: Option<Modified>,
    pub(crate) block_size: Bytes,
    pub(crate) timeouts: ReceiverTimeouts,
    pub(crate) ranks: ReceiverRanks,
}

/// The part of ranks in a copy, as its receiver sees it.
#[derive(Clone, Debug)]
pub(crate) enum ReceiverRanks {
    /// There is one sender and one receiver.
    None,
    /// Several ranks send, over streams of their own ([`Receiver::link`]).
    Sending,
    /// This is the lead of several ranks that receive. The board shows the figures of all ranks.
    Receiving(RankBoard),
}

impl Destination {
    /// Returns whether the destination keeps what is written.
    fn keeps_data(&self) -> bool {
        !matches!(self, Destination::Null)
    }

    /// Returns the attributes to preserve. `None` if the destination stores none.
    fn preserve(&self) -> Option<Preserve> {
        match self {
            Destination::Null => None,
            Destination::Path { preserve, .. } => Some(*preserve),
            #[cfg(test)]
            Destination::Opened { preserve, .. } => Some(*preserve),
        }
    }

    fn overwrite(&self) -> OverwritePolicy {
        match self {
            Destination::Null => OverwritePolicy::default(),
            Destination::Path { overwrite, .. } => *overwrite,
            #[cfg(test)]
            Destination::Opened { overwrite, .. } => *overwrite,
        }
    }

    /// Returns the same destination of this host, for a rank that only writes into existing files.
    pub(super) fn for_existing_files(&self) -> Self {
        match self {
            Destination::Path { path, overwrite, single, preserve, .. } => Destination::Path {
                base: BaseDir::Local,
                path: path.clone(),
                overwrite: *overwrite,
                single: *single,
                preserve: *preserve,
                write_only: None,
            },
            _ => Destination::Null,
        }
    }

    /// Opens the destination, which may wait for a disk.
    pub(super) fn open(self, dry_run: bool, has_other_writers: bool) -> Result<Box<dyn Storage>, TransferError> {
        let Destination::Path { base, path, single, preserve, write_only, .. } = self else {
            return match self {
                #[cfg(test)]
                Destination::Opened { storage, .. } => Ok(storage),
                _ => Ok(Box::new(NullStorage)),
            };
        };
        let options = DestinationOptions {
            single,
            dry_run,
            preserve,
            partial_owner: write_only.as_ref().map(|access| access.partial_owner),
            discards_partial_files: write_only.as_ref().is_some_and(|access| access.discards_partial_files),
            has_other_writers,
        };
        let local = LocalStorage::open_destination(&base, &path, options);
        let local = local.map_err(|error| match write_only {
            Some(_) => hide_destination(&path, error),
            None => error,
        })?;
        Ok(match write_only {
            Some(access) => Box::new(WriteOnly::new(local, access.visible)),
            None => Box::new(local),
        })
    }
}

impl Receiver {
    /// Starts the receiver of a new copy, or of a copy that an earlier session began.
    ///
    /// # Errors
    /// [`TransferError`] if the peer's block size is not valid, or if a thread cannot be started.
    pub(crate) fn start(
        destination: Destination,
        options: ReceiverOptions,
        streams: StreamSet,
    ) -> Result<Receiver, TransferError> {
        let ReceiverOptions { transfer, listener, since, block_size, timeouts, ranks } = options;
        let has_ranks = !matches!(ranks, ReceiverRanks::None);
        let has_sending_ranks = matches!(ranks, ReceiverRanks::Sending);
        // The peer chose the block size. This check is the only one: every later layout uses the same size.
        Layout::new(Bytes(0), block_size)?;
        let streams = Arc::new(streams);
        let started_at = since.unwrap_or_else(|| subtract_clock_lag(current_time()));
        let preserve = destination.preserve();
        let settings = BlockSettings {
            block_size,
            verify: transfer.verify,
            discards_payload: !destination.keeps_data() && transfer.verify == Verify::Off,
            // A hole and zeros are the same where nothing is written.
            accepts_holes: preserve.is_none_or(|preserve| preserve.sparse),
        };
        let reports = Reports::new(streams.meter().clone());
        let planner = PlanInbox::default();
        let commits = CommitStage::new(&transfer, reports.clone(), planner.clone(), streams.meter().clone());
        let commits = Arc::new(commits);
        let assembly = AssemblySettings {
            verify: transfer.verify,
            started_at,
            is_resumed: since.is_some(),
            timeouts,
            needs_source_digest: !has_sending_ranks,
        };
        let assembler = Arc::new(Assembler::new(assembly, commits.clone(), reports.clone(), streams.clone()));
        let setup = PlannerSetup {
            inbox: planner.clone(),
            assembler: assembler.clone(),
            streams: streams.clone(),
            options: transfer.clone(),
            preserve: preserve.unwrap_or_default(),
            block_size,
            started_at,
            is_resumed: since.is_some(),
            timeouts,
            has_ranks,
            has_sending_ranks,
        };
        let (running, threads) = mpsc::sync_channel(1);
        let (commit_thread, commit_running) = (commits.clone(), running.clone());
        spawn("commit", move || {
            commit_thread.run();
            drop(commit_running);
        })?;
        let start = PlannerStart { destination, listener: listener.clone(), reports: reports.clone(), running };
        let commit_end = commits.clone();
        spawn("planner", move || {
            let streams = setup.streams.clone();
            if let Err(error) = start.run(setup) {
                streams.fail(error);
            }
            commit_end.close();
        })?;
        let lead = match ranks {
            ReceiverRanks::Receiving(board) => {
                Some(LeadRank::start(board, assembler.clone(), reports.clone(), streams.clone())?)
            }
            ReceiverRanks::None | ReceiverRanks::Sending => None,
        };
        Ok(Receiver {
            lead,
            recovery: StreamRecovery::new(streams.clone(), assembler.clone(), timeouts),
            blocks: BlockReceiver {
                streams: streams.clone(),
                assembler: assembler.clone(),
                reports: reports.clone(),
                listener,
                settings,
                list: None,
                borders: Arc::default(),
                read_blocks: Arc::default(),
            },
            reporter: Reporter::new(&reports, transfer.verify.has_digest()),
            streams,
            assembler,
            commits,
            planner,
            threads: RunningThreads(threads),
            checks: ListChecks { requested: None, preserve },
            unlisted: UnlistedNames::default(),
            started_at,
            is_done_sent: false,
            last_steps: 0,
            close_timeout: timeouts.close,
        })
    }
}

/// The planner's thread, before the destination is open.
struct PlannerStart {
    destination: Destination,
    listener: EntryListener,
    reports: Reports,
    running: SyncSender<Arc<dyn Storage>>,
}

impl PlannerStart {
    /// Opens the destination, reports it to the sender, and plans all entries.
    fn run(self, setup: PlannerSetup) -> Result<(), TransferError> {
        let dry_run = setup.options.dry_run;
        let overwrite = self.destination.overwrite();
        let has_other_writers = setup.has_ranks && !setup.has_sending_ranks;
        let mut storage = self.destination.open(dry_run, has_other_writers)?;
        let top = storage.top();
        // With a quota, the sender must not pay for blocks of a file that the quota refuses. So the sender waits for
        // the plan.
        // The ranks send what the group assigns, and the group hears the plan without a round trip.
        let on_request =
            setup.has_sending_ranks || setup.assembler.quota.is_enabled() || dry_run || !top.has_no_conflicts;
        setup.assembler.set_requests_blocks(on_request);
        setup.assembler.set_takes_single_name(top.single_name.is_some());
        let reveals_existing = storage.capabilities().reveals_existing;
        self.reports.message(ReceiverMessage::Ready {
            path: top.display_path.clone(),
            on_request,
            started_at: reveals_existing.then_some(setup.started_at),
            destination: top.id.filter(|_| setup.options.same_host && reveals_existing),
        });
        let mut early = Vec::new();
        let mut single_name = top.single_name;
        if single_name.is_some() && !wait_for_one_file(&setup, &mut early)? {
            storage.make_top_directory()?;
            single_name = None;
        }
        let storage: Arc<dyn Storage> = storage.into();
        // The channel is empty before, and this side waits for its end only.
        let _ = self.running.try_send(storage.clone());
        let reports = EntryReports {
            reports: self.reports,
            listener: self.listener,
            single_name: single_name.and_then(|name| Name::new(name.as_bytes()).ok()),
            reports_entries: setup.options.report_entries,
            reports_unchanged: setup.options.report_unchanged,
            reveals_existing,
        };
        let (jobs, waiting_jobs) = mpsc::sync_channel(1);
        let (planner, meter, verify) = (setup.inbox.clone(), setup.streams.meter().clone(), setup.options.verify);
        let digest_storage = storage.clone();
        spawn("digests", move || {
            existing_digest::run(&waiting_jobs, &digest_storage, verify, &planner, &meter);
            drop(self.running);
        })?;
        Planner::new(setup, Arc::new(FileTarget { storage, reports, overwrite }), jobs).run(early)
    }
}

/// Returns whether the list is one file and nothing else. Waits until the answer is known, or until the copy is
/// stopped. Keeps the events in `early`.
fn wait_for_one_file(setup: &PlannerSetup, early: &mut Vec<PlanEvent>) -> Result<bool, TransferError> {
    loop {
        if let Some(is_one_file) = is_one_file(early) {
            return Ok(is_one_file);
        }
        if setup.streams.is_stopped() {
            return Err(TransferError::Interrupted);
        }
        early.extend(setup.inbox.take(1, POLL_INTERVAL));
    }
}

/// Returns whether the list that begins with these events is one file and nothing else. `None` while that is not known.
fn is_one_file(events: &[PlanEvent]) -> Option<bool> {
    let mut listed = events.iter().filter_map(|event| match event {
        PlanEvent::Listed(entries) => Some(entries),
        _ => None,
    });
    let first = listed.next().and_then(|entries| entries.first());
    let count: usize = events.iter().map(PlanEvent::listed).sum();
    let is_complete = events.iter().any(|event| matches!(event, PlanEvent::ListComplete(_)));
    match first {
        Some(first) if first.kind == EntryKind::Directory => Some(false),
        _ if count > 1 => Some(false),
        // An empty list creates no directory.
        _ => is_complete.then_some(true),
    }
}

/// Subtracts 50 ms: a file system's clock lags behind the host's clock by some milliseconds.
pub(crate) fn subtract_clock_lag(now: Modified) -> Modified {
    const CLOCK_LAG: u32 = 50_000_000;
    match now.nanoseconds().checked_sub(CLOCK_LAG) {
        Some(nanoseconds) => Modified::new(now.seconds(), nanoseconds),
        None => Modified::new(now.seconds() - 1, now.nanoseconds() + 1_000_000_000 - CLOCK_LAG),
    }
    .unwrap_or(now)
}
