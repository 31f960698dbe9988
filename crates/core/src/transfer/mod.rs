//! What is sent, by whom, and what is done: the bookkeeping of a copy, without a file or a socket.
//!
//! A file is cut into [`blocks`] of a power-of-two size. The sender's [`schedule`] deals them to whichever stream is
//! free; the receiver's [`intake`] checks every header against what was announced and takes each block once. Both
//! keep a [`digest::HashTree`], whose root is the BLAKE3 digest of the file in whatever order its blocks came.
//! [`location`] reads what was typed, [`content`] makes `random:` and `zero:`, [`limit`] says what holds a copy back,
//! [`random_loss`] whether its losses do without reason.
//!
//! A tree is a list of things ([`entry`]), sent in batches ([`batch`]), their names as [`raw`] bytes; [`filter`] and
//! [`glob`] say what of it is meant, [`asked`] what a list may hold, [`keep`] what is kept of it, [`linked`] which names
//! may be one file, [`unsettled`] how far ahead it may be, [`verdict`] decides about what is there already. A [`blockset`]
//! says what is there of a file, a [`journal`] keeps that over a stop, [`leftover`] knows it again when nobody went on
//! with it, and a [`manifest`] lists what came. The [`manner`] of a copy says how all of it is checked and kept.

pub mod asked;
pub mod batch;
pub mod blocks;
pub mod blockset;
pub mod content;
pub mod digest;
pub mod entry;
pub mod filter;
pub mod glob;
pub mod intake;
pub mod journal;
pub mod keep;
pub mod leftover;
pub mod limit;
pub mod linked;
pub mod location;
pub mod manifest;
pub mod manner;
pub mod random_loss;
pub mod raw;
pub mod schedule;
pub mod shortfall;
pub mod streams;
pub mod unsettled;
pub mod verdict;
mod wildcard;
