//! Loops without copies: the sender passes pages to the kernel, the receiver discards bytes unread.
//!
//! The sender uses `sendfile` from a file in memory. On loopback and veth the pages themselves reach the receiver.
//! `MSG_ZEROCOPY` copies there after all, because the kernel orphans these fragments if a packet is delivered on the
//! same host; `splice` through a pipe does the same work in two calls. Gb/s and CPU s/GB of both ends with `MSG_TRUNC`
//! at the receiver, records of 256 KiB on loopback, 2 CPUs, Linux 6.18: sendfile 37-39 and 0.29-0.30 (51-63 and
//! 0.17-0.22 since a call is one packet, see [`Pages`]), splice 22-26 and 0.31-0.47, MSG_ZEROCOPY 23-26 and 0.39-0.45,
//! write 31-33 and 0.31-0.32. The receiver uses `recv` with `MSG_TRUNC`, which counts and discards.

use std::io;
use std::os::fd::BorrowedFd;

use lfn_session::DataStream;
use lfn_sys::pages::Pages;
use lfn_sys::tcp;

use super::block_loop;
use super::counter::StreamCounter;
use super::engine::PayloadResult;
use super::payload::PayloadSource;
use super::state::LoadState;

pub(super) fn send(
    mut stream: DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    payload_socket(&stream)?;
    let pages = Pages::new(PayloadSource::new(load, stream.stream())?.at(0, load.options.block_bytes))?;
    block_loop::send(&mut stream, load, counter, payload, |stream, part| {
        pages.send(payload_socket(stream)?, part.offset, part.max_bytes)
    })
}

pub(super) fn receive(
    mut stream: DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    payload_socket(&stream)?;
    let mut scratch = vec![0; load.options.read_bytes];
    block_loop::receive(&mut stream, load, counter, payload, |stream, max_bytes, _| {
        tcp::discard(payload_socket(stream)?, &mut scratch[..max_bytes])
    })
}

/// Returns the socket of the payload. Refuses encrypted streams: encryption must touch every byte.
fn payload_socket(stream: &DataStream) -> io::Result<BorrowedFd<'_>> {
    let refused = || io::Error::new(io::ErrorKind::Unsupported, "an encrypted stream needs copying mode");
    stream.payload_socket().ok_or_else(refused)
}
