//! The I/O of `lfn`: it drives the pure state of `lfn-core` with the system calls of `lfn-sys`.
//!
//! One thread a data stream with blocking sockets, because nothing is faster or simpler to reason about; every wait
//! has a deadline.
#![forbid(unsafe_code)]
