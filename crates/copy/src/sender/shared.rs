//! Everything that the threads of a sender share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::options::Verify;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::destination_slot::DestinationSlot;
use super::listing::Listing;
use super::open_files::OpenFiles;
use super::rank_share::RankShare;
use super::stall_detector::StallDetector;
use super::state::State;
use crate::entry_listener::EntryListener;
use crate::stream_set::StreamSet;

/// Maximum time until a waiting thread notices that the copy was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Everything that the threads of a sender share. Each [`ReceiverLink`](super::link::ReceiverLink) has a clone with
/// streams of its own.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) streams: Arc<StreamSet>,
    pub(super) block_size: Bytes,
    pub(super) sparse: bool,
    pub(super) verify: Verify,
    /// This is one of several ranks.
    pub(super) is_rank: bool,
    pub(super) destination: DestinationSlot,
    pub(super) open_files: Arc<OpenFiles>,
    /// Receives the events that the receiver reports.
    pub(super) listener: Arc<OnceLock<EntryListener>>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) stall_detector: Arc<Mutex<StallDetector>>,
    /// Restricts the blocks of these streams. `None` if there is one receiver.
    pub(super) share: Option<Arc<RankShare>>,
    /// Signalled when there are blocks to send, or when there will be none any more.
    pub(super) work_available: Arc<Condvar>,
    /// Signalled when the list may grow.
    pub(super) room_in_list: Arc<Condvar>,
}

impl Shared {
    pub(super) fn new(block_size: Bytes, listing: &Listing, streams: StreamSet) -> Self {
        let (work_available, room_in_list) = Default::default();
        let (sparse, open_files, listener) = (listing.preserve.sparse, Arc::<OpenFiles>::default(), Arc::default());
        let (verify, destination) = (listing.verify, listing.destination.clone());
        Shared {
            streams: Arc::new(streams),
            block_size,
            sparse,
            verify,
            is_rank: listing.rank_board.is_some(),
            destination,
            open_files,
            listener,
            state: Arc::new(Mutex::new(State::new(block_size, listing))),
            stall_detector: Arc::default(),
            share: None,
            work_available,
            room_in_list,
        }
    }
}

/// Waits until the state may have changed, for at most [`POLL_INTERVAL`].
pub(super) fn wait(condition: &Condvar, state: &mut MutexGuard<'_, State>) {
    condition.wait_for(state, POLL_INTERVAL);
}
