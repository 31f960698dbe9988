//! Pacing of sending streams, if many of them share a path of known capacity.

use std::io;
use std::os::fd::AsFd;

use lfn_base::units::BitRate;
use lfn_sys::tcp;

/// Sets the pacing rate of a stream, if there is one.
pub fn set(socket: impl AsFd, pace: Option<BitRate>) -> io::Result<()> {
    pace.map_or(Ok(()), |pace| tcp::set_pacing(socket, pace.0))
}
