//! What is sent, by whom, and what is done: the bookkeeping of a copy, without a file or a socket.
//!
//! A file is cut into [`blocks`] of a power-of-two size. The sender's [`schedule`] deals them to whichever stream is
//! free; the receiver's [`intake`] checks every header against what was announced and takes each block once. Both
//! keep a [`digest::HashTree`], whose root is the BLAKE3 digest of the file in whatever order its blocks came.
//! [`location`] reads what was typed, [`content`] makes `random:` and `zero:`, [`limit`] says what holds a copy back.

pub mod blocks;
pub mod content;
pub mod digest;
pub mod intake;
pub mod limit;
pub mod location;
pub mod schedule;
