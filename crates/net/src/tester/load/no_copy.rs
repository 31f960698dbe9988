//! The loops that copy nothing: the sender hands pages to the kernel, the receiver takes bytes off the queue unread.
//!
//! Out goes `sendfile` from a file in memory. On loopback and veth the pages themselves reach the receiver; `MSG_ZEROCOPY`
//! is copied there after all (the kernel orphans such fragments where a packet is delivered on the same host), and
//! `splice` through a pipe does the same work in two calls. Gb/s and CPU s/GB of both ends with `MSG_TRUNC` at the
//! receiver, records of 256 KiB on loopback, 2 CPUs, Linux 6.18: sendfile 37-39 and 0.29-0.30 (51-63 and 0.17-0.22 since a
//! call is one packet, see [`Pages`]), splice 22-26 and 0.31-0.47, MSG_ZEROCOPY 23-26 and 0.39-0.45, write 31-33 and
//! 0.31-0.32. In comes `recv` with `MSG_TRUNC`, which drops what it counts.

use std::io;

use lfn_sys::pages::Pages;
use lfn_sys::tcp;

use super::data::Records;
use super::{Counter, Seen, Shared};
use crate::session::{DataStream, Protection};

pub(super) fn send(mut stream: DataStream, shared: &Shared, counter: &Counter, seen: &mut Seen) -> io::Result<()> {
    clear(&stream)?;
    let pages = Pages::holding(Records::new(shared, stream.stream()).at(0, shared.record))?;
    super::send(&mut stream, shared, counter, seen, |stream, piece| {
        pages.send(stream.socket(), piece.offset, piece.most)
    })
}

pub(super) fn receive(mut stream: DataStream, shared: &Shared, counter: &Counter, seen: &mut Seen) -> io::Result<()> {
    clear(&stream)?;
    let mut unused = vec![0; shared.read];
    super::receive(&mut stream, shared, counter, seen, |stream, most, _| {
        tcp::discard(stream.socket(), &mut unused[..most])
    })
}

/// What is encrypted has to be touched.
fn clear(stream: &DataStream) -> io::Result<()> {
    match stream.protection() {
        Protection::Clear => Ok(()),
        Protection::Tls => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "an encrypted stream cannot be moved uncopied"))
        }
    }
}
