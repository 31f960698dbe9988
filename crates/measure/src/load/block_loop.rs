//! Loops of a sender and of a receiver of blocks: positions, counters, limits and the end.

use std::io::{self, ErrorKind};

use lfn_base::time::Instant;
use lfn_results::block_timing::BlockTimes;
use lfn_session::DataStream;
use lfn_session::transport::is_timeout;
use lfn_sys::clock::monotonic_nanos;

use super::counter::StreamCounter;
use super::engine::PayloadResult;
use super::lockstep;
use super::progress::AckProgress;
use super::state::LoadState;

/// Part of a block that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPart {
    /// Position of the block in its stream.
    pub(super) at: u64,
    /// Position of the part in the block.
    pub(super) offset: usize,
    pub(super) length: usize,
    /// Maximum bytes to send now.
    pub(super) max_bytes: usize,
}

/// Sends blocks until all are sent. `write` sends a part of a block and returns its length.
pub(super) fn send(
    stream: &mut DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
    mut write: impl FnMut(&mut DataStream, BlockPart) -> io::Result<usize>,
) -> io::Result<()> {
    counter.begin(load.now());
    let (mut progress, mut sent) = (AckProgress::default(), 0);
    let mut times = load.options.with_block_times.then(BlockTimes::default);
    let mut pacer = load.pacer();
    loop {
        let length = load.take(load.options.block_bytes as u64) as usize;
        if length == 0 {
            break;
        }
        if let Some(pacer) = &mut pacer {
            load.wait_for_burst(pacer);
            if load.is_stopped() {
                return Ok(());
            }
            // Before the block is sent: the waits of the server's limits do not make the block late.
            pacer.record_sent(1, Instant::from_nanos(monotonic_nanos()));
        }
        let begun = times.map(|_| load.now());
        let mut offset = 0;
        while offset < length {
            let part = BlockPart { at: sent, offset, length, max_bytes: load.chunk_size(length - offset) };
            match write(stream, part) {
                Ok(moved) => {
                    counter.count(moved, load);
                    offset += moved;
                    load.count_and_wait(moved as u64)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A full send buffer on a slow path does not mean a dead peer, as long as acknowledgements arrive.
                Err(error) if is_timeout(&error) && progress.has_grown(&**stream.handle()) => {}
                Err(error) => return Err(error),
            }
            if load.is_stopped() {
                payload.blocks = times;
                return Ok(());
            }
        }
        sent += length as u64;
        if load.options.lockstep && length == load.options.block_bytes {
            lockstep::wait_for_acknowledgement(stream, load, &mut progress)?;
        }
        if let (Some(times), Some(begun)) = (&mut times, begun) {
            times.record(begun, load.now(), length as u64);
        }
    }
    payload.blocks = times;
    if load.options.finish_sending { stream.finish() } else { Ok(()) }
}

/// Receives until the peer has finished. `read` gets the maximum length and the position in the stream.
pub(super) fn receive(
    stream: &mut DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
    mut read: impl FnMut(&mut DataStream, usize, u64) -> io::Result<usize>,
) -> io::Result<()> {
    stream.set_read_timeout(load.options.read_timeout)?;
    let mut received = 0;
    let block = load.options.block_bytes as u64;
    loop {
        // No read crosses the end of a block that is timed or acknowledged.
        let room = if load.options.with_block_times || load.options.lockstep {
            load.options.read_bytes.min((block - received % block) as usize)
        } else {
            load.options.read_bytes
        };
        let length = match read(stream, load.chunk_size(room), received) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if counter.count(length, load) == 0 {
            counter.begin(load.now());
        }
        received += length as u64;
        if load.options.with_block_times && received % block == 0 {
            payload.blocks.get_or_insert_default().record_received(load.now(), block);
        }
        if load.options.lockstep && received % block == 0 {
            lockstep::acknowledge(stream)?;
        }
        load.count_and_wait(length as u64)?;
        if load.is_stopped() {
            return Ok(());
        }
    }
}
