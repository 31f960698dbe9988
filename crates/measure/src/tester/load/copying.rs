//! Loops with copies, as in most programs: write from a buffer, read into a buffer.

use std::io::{self, Read, Write};

use lfn_session::DataStream;

use super::data::{PayloadSource, PayloadVerifier};
use super::{LoadState, PayloadResult, StreamCounter};

pub(super) fn send(
    mut stream: DataStream,
    shared: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    let mut source = PayloadSource::new(shared, stream.stream());
    super::send(&mut stream, shared, counter, payload, |stream, part| {
        let record = source.at(part.at, part.length);
        stream.write(&record[part.offset..part.offset + part.max_bytes])
    })
}

pub(super) fn receive(
    mut stream: DataStream,
    shared: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut expected = PayloadVerifier::new(shared, stream.stream());
    let result = super::receive(&mut stream, shared, counter, payload, |stream, max_bytes, at| {
        if buffer.is_empty() {
            // An idle stream needs no buffer.
            stream.peek(&mut [0])?;
            buffer = vec![0; shared.read_bytes];
        }
        let length = stream.read(&mut buffer[..max_bytes])?;
        expected.verify(at, &buffer[..length]);
        Ok(length)
    });
    payload.check = expected.result();
    result
}
