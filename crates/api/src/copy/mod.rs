//! The verb `copy`: an upload, a download, a local or a third-party copy with its prediction and its findings.
//!
//! [`copy()`] does all. A program that shows the prediction before the copy calls its parts: [`find_direction`], then
//! [`prepare()`], then [`PreparedCopy::run`].

pub mod ends;
mod error;
mod evidence;
pub mod places;
mod prepare;
mod result;
mod source_size;
mod streams;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_core::evidence::ProgressSample;
use lfn_core::transfer::streams::StreamChange;
use lfn_core::wire::copy::EntryEvent;
use lfn_net::transfer::{ConnectionEvent, CopyObserver, EntryListener, ListedTotals};

use crate::resolve::ServerResolver;

pub use error::CopyError;
pub use prepare::{CopyRequest, PreparedCopy, find_direction, prepare};
pub use result::CopyResult;
pub use streams::StreamOptions;

/// Event of a running copy. Several threads report events.
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// Progress, several times a second.
    Progress { totals: &'a ListedTotals, sample: &'a ProgressSample },
    /// Change of the number of streams, with its reason.
    Streams(&'a StreamChange),
    /// Connection that was lost or restored.
    Connection(&'a ConnectionEvent<'a>),
    /// Result of an entry, if the options request results.
    Entry(&'a EntryEvent),
    /// All results of entries are discarded: a new session reports them again.
    EntriesReset,
}

/// Copies, and returns the result. A set `interrupted` ends the copy; the same call resumes it.
pub fn copy(
    request: &CopyRequest,
    resolver: &ServerResolver,
    interrupted: &Arc<AtomicBool>,
    on_event: impl Fn(&CopyEvent<'_>) + Send + Sync + 'static,
) -> Result<CopyResult, CopyError> {
    let direction = find_direction(request, resolver)?;
    let mut prepared = prepare(direction, request, resolver, interrupted)?;
    let on_event = Arc::new(on_event);
    let (entry, reset) = (Arc::clone(&on_event), Arc::clone(&on_event));
    prepared.options.listener = EntryListener::new(
        move |event| entry(&CopyEvent::Entry(event)),
        move || reset(&CopyEvent::EntriesReset),
        |_| {},
    );
    prepared.run(CopyObserver {
        observer: &mut |totals, sample| on_event(&CopyEvent::Progress { totals, sample }),
        change: &mut |change| on_event(&CopyEvent::Streams(change)),
        connection: &mut |connection| on_event(&CopyEvent::Connection(connection)),
        interrupted,
    })
}
