//! Loops with copies, as in most programs: write from a buffer, read into a buffer.

use std::io::{self, Read, Write};

use lfn_session::DataStream;

use super::block_loop;
use super::counter::StreamCounter;
use super::engine::PayloadResult;
use super::payload::{PayloadSource, PayloadVerifier};
use super::state::LoadState;

pub(super) fn send(
    mut stream: DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    let mut source = PayloadSource::new(load, stream.stream())?;
    block_loop::send(&mut stream, load, counter, payload, |stream, part| {
        let block = source.at(part.at, part.length);
        stream.write(&block[part.offset..part.offset + part.max_bytes])
    })
}

pub(super) fn receive(
    mut stream: DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut expected = PayloadVerifier::new(load, stream.stream());
    let result = block_loop::receive(&mut stream, load, counter, payload, |stream, max_bytes, at| {
        if buffer.is_empty() {
            // An idle stream needs no buffer.
            stream.peek(&mut [0])?;
            buffer = vec![0; load.options.read_bytes];
        }
        let length = stream.read(&mut buffer[..max_bytes])?;
        expected.verify(at, &buffer[..length]);
        Ok(length)
    });
    payload.check = expected.result();
    result
}
