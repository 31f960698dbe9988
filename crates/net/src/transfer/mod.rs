//! Moving a file: both ends of a copy session, whichever of them dialled.
//!
//! [`upload`] and [`download`] are the client, [`serve()`] is the server. Each side is either a sender or a receiver:
//! one thread a data stream that moves blocks, and one conversation over the control connection that decides how the
//! copy ends. What is sent by whom, and what may come, is decided in [`lfn_core::transfer`]; here are the
//! threads, the sockets and the files.

mod client;
mod error;
mod flow;
mod place;
mod receiver;
mod sender;
mod serve;
mod talk;

pub use client::{LocalDestination, LocalSource, Options, Outcome, Watch, download, upload};
pub use error::TransferError;
pub(crate) use serve::serve;
