//! Both ends of a copy session.
//!
//! [`upload`] and [`download`] are the client, [`serve()`] is the server. Each side is either a sender or a receiver.
//! One thread per data stream moves blocks, and one loop over the control connection decides how the copy ends.
//! [`crate::proto`] decides about entries and blocks; the other modules have the threads, the sockets and the files.

#![forbid(unsafe_code)]

mod accounts;
mod base_dir;
mod clean;
mod client;
mod control_loop;
mod copy_options;
pub mod disk;
mod entry_listener;
mod error;
mod host_counters;
mod part_course;
pub mod proto;
mod rank_board;
mod rank_group;
mod receiver;
mod resumable_copy;
mod role;
mod sample_course;
mod sender;
mod serve;
mod source_list;
mod stall;
mod storage;
mod stream_auth;
mod stream_pool;
mod stream_set;
mod stream_state;
mod stripe_addresses;
mod stripe_dial;
mod stripe_error;
mod stripe_set;
pub mod third_party;
mod this_host;
mod threads;
mod waiting_rank;
mod work_meter;
mod write_only;

pub use clean::{CleanEvent, clean_local};
pub use client::{download, upload};
pub use copy_options::{
    ConnectionEvent, CopyObserver, CopyOptions, CopyOutcome, LocalDestination, LocalSource, RankOptions,
};
pub use entry_listener::EntryListener;
pub use error::{
    DeniedAction, ExpansionLimit, FileKind, ForbiddenReason, LOCKED_REASON, SenderViolation, Stall, TransferError,
    UnrequestedKind,
};
pub use lfn_session::wire::copy::CopyEnd;
pub use part_course::{PartCourse, PartSample};
pub use rank_board::RankBoard;
pub use rank_group::RankGroups;
pub use role::ListedTotals;
pub use serve::serve;
pub use source_list::{ListedSource, list_source};
pub use stall::StallTimeouts;
pub use stripe_addresses::{FoundStripes, find_stripes, serve_addresses};
pub use stripe_set::{Stripe, StripeEvent, StripeReport, StripeSet, TransportUse};
pub use third_party::third_party_copy;
