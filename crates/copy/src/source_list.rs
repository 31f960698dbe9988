//! Lists local sources before a copy: the same entries as the sender of an upload, in the same order.

use std::sync::Arc;

use lfn_session::wire::copy::Selection;
use lfn_session::wire::copy::entry::{Entry, Name};
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::{CopyEnd, EntryFailure};

use super::TransferError;
use super::base_dir::BaseDir;
use super::copy_options::LocalSource;
use super::sender::{Listing, Source, Walk, WalkStep};

/// One step through the sources.
#[derive(Debug)]
pub enum ListedSource {
    Entry(Entry),
    /// An entry that cannot be listed.
    Failed(EntryFailure),
    /// A symbolic link that is not copied.
    SkippedLink,
    /// A device, a FIFO or a socket.
    SkippedSpecial,
}

/// Lists one source, in the order of an ordinary copy.
///
/// # Errors
/// [`TransferError`] if the source cannot be read, or is generated.
pub fn list_source(
    source: &LocalSource,
    selection: &Selection,
    options: &TransferOptions,
) -> Result<impl Iterator<Item = ListedSource> + use<>, TransferError> {
    let listing = Listing::new(selection).with_options(options);
    let source = match source {
        LocalSource::File(path) => Source::new(Arc::new(BaseDir::Local), path.clone(), selection.names.as_ref()),
        LocalSource::Entries { directory, names } => {
            Source::Entries { base: Arc::new(BaseDir::Local), path: directory.clone(), names: names.clone() }
        }
        LocalSource::Random(bytes) => Source::Random { seed: 0, bytes: *bytes },
        LocalSource::Zero(bytes) => Source::Zero { bytes: *bytes },
    };
    let name = source.display_name();
    let walk = Walk::try_new(source, listing).map_err(|error| error.into_transfer_error(name))?;
    Ok(walk.filter_map(|step| match step {
        WalkStep::Entry(entry, _) => Some(ListedSource::Entry(entry)),
        WalkStep::Failed { name, reason } => Some(ListedSource::Failed(failure(name, reason))),
        WalkStep::SkippedLink(_) => Some(ListedSource::SkippedLink),
        WalkStep::SkippedSpecial(_) => Some(ListedSource::SkippedSpecial),
        WalkStep::Excluded => None,
    }))
}

fn failure(name: Name, reason: String) -> EntryFailure {
    EntryFailure { file: None, name, reason, disk_full: false, end: CopyEnd::Sender }
}
