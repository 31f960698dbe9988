//! Settings that are the same for all ranks of a group.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::server::metrics::RankCounters;
use lfn_session::wire::copy::RemoteDestination;
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::ranks::RankRequest;

/// Settings of a group, from the request of its first rank.
#[derive(Clone, Debug)]
pub(super) struct GroupSettings {
    pub(super) request: RankRequest,
    pub(super) block: Bytes,
    pub(super) options: CommonOptions,
    /// Counters of the server.
    pub(super) counters: Arc<RankCounters>,
}

/// Options that must be the same for all ranks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommonOptions {
    pub(super) transfer: TransferOptions,
    pub(super) to: RemoteDestination,
}
