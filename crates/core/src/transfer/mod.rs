//! Bookkeeping of a copy, without files and sockets.
//!
//! A file is split into [`blocks`] of a power-of-two size. The sender's [`schedule`] gives blocks to whichever stream
//! is free. The receiver's [`file_assembly`] checks every block header against the announced file and accepts each
//! block once. Both ends keep a [`digest::HashTree`]. Its root is the BLAKE3 digest of the file, in whatever order the
//! blocks arrive. [`zeros`] has the hashes of holes. [`location`] parses the arguments of a copy, [`content`] generates `random:` data, and
//! [`progress`] has the totals of a copy. [`crate::diagnose`] names the bottleneck of a copy.
//!
//! A directory tree is a list of entries ([`entry`]), sent in batches ([`batch`]), with names as [`byte_string`]s.
//! [`filter`] and [`glob`] select entries, [`requested_entries`] checks a peer's list against the request, [`preserve`]
//! lists the attributes to preserve, [`linkable_files`] tracks hard links, [`pending_entries`] limits how far the list
//! runs ahead, and [`overwrite`] decides about existing files. A [`blockset`] holds the block numbers of a
//! file, a [`journal`] keeps them across an interruption, [`leftover`] recognises the files of an interrupted copy, and
//! a [`manifest`] lists the received files. The [`options`] of a copy are known to both ends.

pub mod batch;
pub mod blocks;
pub mod blockset;
pub mod byte_string;
pub mod content;
pub mod digest;
pub mod entry;
pub mod file_assembly;
pub mod filter;
pub mod glob;
pub mod journal;
pub mod leftover;
pub mod linkable_files;
pub mod location;
pub mod manifest;
pub mod open_files;
pub mod options;
pub mod overwrite;
pub mod pending_entries;
pub mod preserve;
pub mod progress;
pub mod requested_entries;
pub mod schedule;
pub mod streams;
mod wildcard;
pub mod zeros;
