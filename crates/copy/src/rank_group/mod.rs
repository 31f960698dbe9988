//! Server of a copy that several ranks send: joins their sessions into one receiver.
//!
//! ```text
//! session of rank 0 ── list, lost streams ──▶┐                       ┌──▶ receiver: plan, files, the one journal
//! session of rank 1 ── list, lost streams ──▶├─ group: common list, ─┤
//! session of rank n ── list, lost streams ──▶┘  assignment of blocks └──◀ settled entries, damaged blocks, the end
//!      │  ▲
//!      │  └── assigned blocks, settled entries, figures of all ranks
//!      └──── blocks, on the data streams of the rank ──▶ files of the receiver
//! ```
//!
//! One thread owns the [`group`]: the receiver, the common list and the assignment. The thread of each session exchanges
//! messages with its rank ([`session`]) and owns nothing else. The receiver is the one of every copy ([`crate::receiver`]).
//! The group is its only sender: it merges the lists of the ranks into one, and translates entry numbers.
//!
//! [`RankGroups`] finds the group of a session. A group ends when its copy is complete, when it cannot become complete,
//! or when all its ranks are gone. The next ranks then resume from the journal.

mod common_list;
mod error;
mod event;
mod group;
mod mailbox;
mod member;
mod pieces;
mod registry;
mod session;
mod settings;

pub use self::registry::RankGroups;
pub(crate) use self::session::serve_rank;
