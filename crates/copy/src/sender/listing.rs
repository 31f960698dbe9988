//! Options for listing and reading the sources of a copy.

use std::sync::Arc;

use lfn_session::wire::copy::Selection;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::filter::FilterRules;
use lfn_session::wire::copy::options::{TransferOptions, Verify};
use lfn_session::wire::copy::preserve::Preserve;

use super::destination_slot::DestinationSlot;
use crate::accounts::Accounts;
use crate::rank_board::RankBoard;
use crate::storage::local::OpenDirectories;

/// Options for listing and reading the sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    pub(crate) preserve: Preserve,
    pub(crate) rules: Arc<FilterRules>,
    /// Send no block before the receiver has reported whether it requests blocks.
    pub(crate) wait_for_ready: bool,
    pub(crate) verify: Verify,
    /// The receiver deletes unlisted entries, so it must learn which names were skipped.
    pub(crate) delete: bool,
    /// Both ends may run on one host: list no entry before the receiver has reported its destination.
    pub(super) same_host: bool,
    /// Present if this is one of several ranks. The receiver then assigns each block.
    pub(crate) rank_board: Option<RankBoard>,
    pub(super) has_several_sources: bool,
    /// The destination of the receiver on this host.
    pub(super) destination: DestinationSlot,
    pub(super) accounts: Arc<Accounts>,
    /// The open directories of all local sources.
    pub(super) directories: Arc<OpenDirectories>,
    /// Modification time of generated files. The current time if `None`.
    pub(super) generated_at: Option<Modified>,
}

impl Listing {
    /// Creates the options from the user's selection.
    pub(crate) fn new(selection: &Selection) -> Self {
        Listing { preserve: selection.preserve, rules: Arc::new(selection.rules.clone()), ..Listing::default() }
    }

    /// Sets the modification time of generated files.
    pub(crate) fn with_generated_time(self, generated_at: Option<Modified>) -> Self {
        Listing { generated_at, ..self }
    }

    /// Adds the settings from the transfer options.
    pub(crate) fn with_options(self, options: &TransferOptions) -> Self {
        let TransferOptions { verify, delete, same_host, multiple_sources: has_several_sources, .. } = *options;
        let wait_for_ready = options.wait_for_ready || options.dry_run;
        Listing { wait_for_ready, verify, delete, same_host, has_several_sources, ..self }
    }
}
