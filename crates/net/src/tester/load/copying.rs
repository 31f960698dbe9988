//! The copying loops, which do what most programs do: write from a buffer, read into one.

use std::io::{self, Read, Write};

use super::data::{Expected, Records};
use super::{Counter, Seen, Shared};
use crate::session::{DataStream, Protection};

pub(super) fn send(mut stream: DataStream, shared: &Shared, counter: &Counter, seen: &mut Seen) -> io::Result<()> {
    let mut records = Records::new(shared, stream.stream());
    super::send(&mut stream, shared, counter, seen, |stream, piece| {
        let record = records.at(piece.at, piece.length);
        stream.write(&record[piece.offset..piece.offset + piece.most])
    })
}

pub(super) fn receive(mut stream: DataStream, shared: &Shared, counter: &Counter, seen: &mut Seen) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut expected = Expected::new(shared, stream.stream());
    let result = super::receive(&mut stream, shared, counter, seen, |stream, most, at| {
        if buffer.is_empty() {
            await_first(stream)?;
            buffer = vec![0; shared.read];
        }
        let length = stream.read(&mut buffer[..most])?;
        expected.look(at, &buffer[..length]);
        Ok(length)
    });
    seen.check = expected.found();
    result
}

/// Waits until there is something to read, so that a stream on which nothing comes holds no buffer.
fn await_first(stream: &DataStream) -> io::Result<()> {
    // Inside TLS the first bytes may have been read with the hello.
    if stream.protection() == Protection::Clear {
        stream.socket().peek(&mut [0])?;
    }
    Ok(())
}
