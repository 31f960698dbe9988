//! Moving a file: both ends of a copy session, whichever of them dialled.
//!
//! [`upload`] and [`download`] are the client, [`serve()`] is the server. Each side is either a sender or a receiver:
//! one thread a data stream that moves blocks, and one conversation over the control connection that decides how the
//! copy ends. What is sent by whom, and what may come, is decided in [`lfn_core::transfer`]; here are the
//! threads, the sockets and the files.

mod accounts;
pub(crate) mod clean;
mod client;
mod course;
mod error;
mod flow;
mod guest;
mod line;
mod pacing;
mod place;
mod serve;
mod side;
mod receiver;
mod sender;
mod supply;
mod talk;
mod teller;
pub(crate) mod third;

pub use clean::{Seen, clean_here, clean_there};
pub use client::{Connection, LocalDestination, LocalSource, Options, Outcome, PATIENCE, Watch, download, upload};
pub use error::TransferError;
pub use lfn_core::wire::third::CarriedEnd;
pub(crate) use serve::serve;
pub use side::Extent;
pub use teller::Teller;
pub use third::across;
