//! Bookkeeping of a copy, without files and sockets. Pure: `now` is an argument.
//!
//! [`lfn_session::wire::copy`] has the messages, and what they describe: blocks, entries, filters, options and digests.
//! The sender's [`schedule`] gives blocks to whichever stream is free. The receiver's [`file_assembly`] checks every
//! block header against the announced file and accepts each block once. [`zeros`] has the hashes of holes, [`streams`]
//! plans the data streams, [`stripe_health`] decides when a stripe is dialled, [`stripe_pairs`] selects pairs of addresses, and [`location`] parses the arguments of a
//! copy.
//!
//! A directory tree is a list of entries. [`linkable_files`] tracks hard links, [`pending_entries`] limits how far the
//! list runs ahead, a [`journal`] keeps finished blocks across an interruption, [`leftover`] recognises the files of an
//! interrupted copy, [`open_files`] counts the descriptors that a copy needs, and a [`manifest`] lists the received
//! files.

pub mod file_assembly;
pub mod journal;
pub mod leftover;
pub mod linkable_files;
pub mod location;
pub mod manifest;
pub mod open_files;
pub mod pending_entries;
pub mod rank_schedule;
pub mod schedule;
pub mod streams;
pub mod stripe_health;
pub mod stripe_pairs;
pub mod zeros;
