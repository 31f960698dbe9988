//! The sending side of a copy: lists its sources, and sends their blocks at the same time.
//!
//! One thread walks the sources and fills the list ([`lister`], [`walk`]). The list may run ahead of the receiver only
//! as far as [`pending_entries`] allows. Each stream takes the next blocks from the [`BlockScheduler`], reads and
//! hashes them, and sends them ([`block_sender`]). A file that cannot be read fails alone, and the copy continues.
//!
//! # Locks
//! All threads share [`State`] under one lock. A thread that holds it may take the locks of the streams
//! ([`StreamSet`]) and of the destination, never the other way round, and neither reads nor writes a file or a socket.
//! (To end a stream, it may shut down its socket, which does not wait.) The locks of the open files and of the storages
//! are never held together with the state.
//!
//! [`pending_entries`]: crate::proto::pending_entries
//! [`BlockScheduler`]: crate::proto::schedule::BlockScheduler
//! [`State`]: state::State

mod block_sender;
mod destination_slot;
mod file_version;
mod files_from;
mod glob;
mod hard_links;
mod link;
mod list_entry;
mod lister;
mod listing;
mod open_files;
mod rank_share;
mod read_error;
mod self_copy;
mod shared;
mod source;
mod source_file;
mod stall_detector;
mod state;
mod stream_maintenance;
mod walk;
mod walk_step;

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::{ReceiverMessage, SenderMessage};

pub(crate) use self::glob::{Expansion, ExpansionBudget, expand};
pub(crate) use self::link::{ReceiverLink, SharedFile};
pub(crate) use self::listing::Listing;
use self::self_copy::TypedSource;
use self::shared::Shared;
pub(crate) use self::source::Source;
use self::state::SourceTotals;
pub(crate) use self::walk::Walk;
pub(crate) use self::walk_step::WalkStep;
use super::TransferError;
use super::entry_listener::EntryListener;
use super::role::{CopyResult, ListedTotals, Role, StreamWorker};
use super::stream_set::StreamSet;
use super::threads::spawn;

/// Maximum number of messages that are sent before the messages of the peer are read.
const MESSAGES_PER_BATCH: usize = 256;

/// The sending end of a copy.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    running: Arc<StopOnDrop>,
}

/// Stops all threads of the sender when the sender and the work of all its streams are dropped.
#[derive(Debug)]
struct StopOnDrop(Arc<Shared>);

impl Sender {
    /// Starts to list the sources.
    ///
    /// # Errors
    /// [`TransferError`] if the block size is not valid, if the only source cannot be read, or if the thread cannot be
    /// started.
    pub(crate) fn start(
        sources: Vec<Source>,
        listing: Listing,
        block_size: Bytes,
        streams: StreamSet,
    ) -> Result<Sender, TransferError> {
        Layout::new(Bytes(0), block_size)?;
        let typed: Vec<_> =
            sources.iter().filter(|_| listing.same_host).map(|source| TypedSource::new(source, &listing)).collect();
        let walks: Box<dyn Iterator<Item = Walk> + Send> = match <[Source; 1]>::try_from(sources) {
            Ok([only]) => {
                let name = only.display_name();
                Box::new(iter::once(
                    Walk::try_new(only, listing.clone()).map_err(|error| error.into_transfer_error(name))?,
                ))
            }
            Err(sources) => {
                let listing = listing.clone();
                Box::new(sources.into_iter().map(move |source| Walk::new(source, listing.clone())))
            }
        };
        let shared = Arc::new(Shared::new(block_size, &listing, streams));
        let lister = shared.clone();
        spawn("list", move || {
            if let Some(walks) = lister.without_destination(walks, &typed, &listing) {
                lister.list(walks);
            }
        })?;
        let running = Arc::new(StopOnDrop(shared.clone()));
        Ok(Sender { shared, running })
    }

    /// Returns the start time of the copy by the clock of the receiver, if the receiver has reported it.
    pub(crate) fn started_at(&self) -> Option<Modified> {
        self.shared.state.lock().started_at
    }

    /// Returns the digest of the file, if the copy is one file and that file was read to its end.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let state = self.shared.state.lock();
        state
            .digest
            .filter(|_| state.totals.is_complete && state.totals.entries == 1 && self.shared.verify.has_digest())
    }

    /// Sends the events that the receiver reports to `listener`.
    pub(crate) fn set_listener(&self, listener: EntryListener) {
        // A second listener is ignored.
        let _ = self.shared.listener.set(listener);
    }
}

impl Role for Sender {
    type Outgoing = SenderMessage;
    type Incoming = ReceiverMessage;

    fn streams(&self) -> &StreamSet {
        &self.shared.streams
    }

    fn listed(&self) -> ListedTotals {
        let state = self.shared.state.lock();
        let SourceTotals { entries, bytes, is_complete, .. } = state.totals;
        let finished = u64::from(entries).saturating_sub(state.scheduler.pending_entries() as u64);
        let not_needed = Bytes(state.scheduler.not_needed().0.saturating_add(self.shared.streams.not_needed().0));
        ListedTotals { bytes, not_needed, entries: entries.into(), finished, complete: is_complete }
    }

    fn take_messages(&mut self, now: Instant) -> Vec<SenderMessage> {
        self.shared.maintain_streams(now);
        let mut state = self.shared.state.lock();
        // Send one list at a time: a long list takes a while on a slow path.
        let list = state
            .outbox
            .iter()
            .take(MESSAGES_PER_BATCH)
            .position(|message| matches!(message, SenderMessage::List { .. }));
        let count = list.map_or(state.outbox.len().min(MESSAGES_PER_BATCH), |list| list + 1);
        let messages = state.outbox.drain(..count).collect();
        drop(state);
        if count > 0 {
            self.shared.room_in_list.notify_all();
        }
        messages
    }

    fn on_message(&mut self, message: ReceiverMessage, now: Instant) -> Result<(), TransferError> {
        let message = match (message, self.shared.listener.get()) {
            (ReceiverMessage::Events { entries }, Some(listener)) => {
                entries.iter().for_each(|event| listener.notify(event));
                return Ok(());
            }
            (message, _) => message,
        };
        if let ReceiverMessage::Ready { destination, .. } = &message {
            self.shared.destination.set(destination.clone());
        }
        self.shared.on_stream_message(&message, now);
        let mut state = self.shared.state.lock();
        state.apply(message)?;
        let must_hash = state.scheduler.has_blocks_to_hash() && !std::mem::replace(&mut state.is_hashing, true);
        drop(state);
        if must_hash {
            // The files at the receiver are hashed in parallel to the streams.
            let shared = self.shared.clone();
            spawn("hash", move || shared.hash_requested())?;
        }
        self.shared.work_available.notify_all();
        self.shared.room_in_list.notify_all();
        Ok(())
    }

    fn stream_worker(&self) -> StreamWorker {
        let running = self.running.clone();
        Arc::new(move |stream| running.0.run(stream))
    }

    fn needs_streams(&self) -> bool {
        let state = self.shared.state.lock();
        state.final_tally.is_none() && !state.scheduler.is_finished()
    }

    fn should_be_moving(&mut self) -> bool {
        let state = self.shared.state.lock();
        state.busy_streams > 0 || state.scheduler.has_blocks_to_send()
    }

    fn result(&self) -> Option<CopyResult> {
        let state = self.shared.state.lock();
        let tally = state.final_tally?;
        let is_single_file = state.totals.entries == 1 && self.shared.verify.has_digest();
        let digest = state.digest.filter(|_| is_single_file);
        let (path, failures) = (state.destination_path.clone(), state.failures.clone());
        let SourceTotals { bytes, skipped, .. } = state.totals;
        Some(CopyResult { tally, digest, path, bytes, failures, skipped })
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.streams.shut_down();
        self.0.work_available.notify_all();
        self.0.room_in_list.notify_all();
    }
}

#[cfg(test)]
mod tests;
