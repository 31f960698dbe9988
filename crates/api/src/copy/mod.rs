//! The verb `copy`: an upload, a download, a local or a third-party copy with its prediction and its findings.
//!
//! [`copy()`] does all. A program that shows the prediction before the copy calls its parts: [`find_direction`], then
//! [`prepare()`], then [`PreparedCopy::run`].

pub mod ends;
mod error;
mod event;
mod evidence;
mod open_files;
pub mod places;
mod prepare;
mod queue;
mod queue_sources;
mod result;
mod source_size;
mod streams;
mod stripes;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::resolve::ServerResolver;

pub use error::CopyError;
pub use event::{CopyEvent, QueueProgress};
pub use lfn_queue::QueueOptions;
pub use prepare::{CopyRequest, PreparedCopy, find_direction, prepare};
pub use result::CopyResult;
pub use streams::{StreamOptions, Transport};
pub use stripes::StripeError;

/// Copies, and returns the result. A set `interrupted` ends the copy; the same call resumes it.
pub fn copy(
    request: &CopyRequest,
    resolver: &ServerResolver,
    interrupted: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&CopyEvent<'_>),
) -> Result<CopyResult, CopyError> {
    let direction = find_direction(request, resolver)?;
    prepare(direction, request, resolver, interrupted)?.run(interrupted, on_event)
}
