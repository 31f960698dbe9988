//! What a sending stream is held to where many of them share a path whose capacity is known.

use std::io;
use std::os::fd::AsFd;

use lfn_core::units::BitRate;
use lfn_sys::tcp;

/// Paces a stream.
pub(super) fn set(socket: impl AsFd, pace: Option<BitRate>) -> io::Result<()> {
    pace.map_or(Ok(()), |pace| tcp::set_pacing(socket, pace.0))
}
