//! Loops that move the blocks of a byte stream.

use std::io::{self, ErrorKind};
use std::sync::mpsc::Sender;

use lfn_base::time::Instant;
use lfn_results::block_timing::BlockTimes;
use lfn_results::measure::Mode;
use lfn_session::DataStream;
use lfn_session::transport::{Handle, is_timeout};
use lfn_sys::clock::monotonic_nanos;

use super::counter::StreamCounter;
use super::engine::{PayloadResult, StreamEvent, run_stream};
use super::state::LoadState;
use super::{copying, no_copy};

/// Moves the blocks of one stream in the calling thread, and sends the event of its end.
pub(crate) fn run_blocks(stream: DataStream, load: &LoadState, counter: &StreamCounter, events: &Sender<StreamEvent>) {
    run_stream(stream.stream(), load, counter, events, |payload| move_blocks(stream, load, counter, payload));
}

/// Moves the blocks of one stream until its end.
pub(crate) fn move_blocks(
    stream: DataStream,
    load: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
) -> io::Result<()> {
    match (load.options.sends, load.options.mode) {
        (true, Mode::Copying) => copying::send(stream, load, counter, payload),
        (true, Mode::NoCopy) => no_copy::send(stream, load, counter, payload),
        (false, Mode::Copying) => copying::receive(stream, load, counter, payload),
        (false, Mode::NoCopy) => no_copy::receive(stream, load, counter, payload),
    }
}

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
    let (mut acked, mut sent) = (0, 0);
    let mut times = load.options.with_block_times.then(BlockTimes::default);
    let mut pacer = load.pacer();
    loop {
        let length = load.take(load.options.block_bytes as u64) as usize;
        if length == 0 {
            break;
        }
        if let Some(pacer) = &pacer {
            load.wait_for_burst(pacer);
            if load.is_stopped() {
                return Ok(());
            }
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
                Err(error) if is_timeout(&error) && has_progress(&**stream.handle(), &mut acked) => {}
                Err(error) => return Err(error),
            }
            if load.is_stopped() {
                payload.blocks = times;
                return Ok(());
            }
        }
        sent += length as u64;
        if let Some(pacer) = &mut pacer {
            pacer.record_sent(1, Instant::from_nanos(monotonic_nanos()));
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
        // With block times, no read crosses the end of a block.
        let room = if load.options.with_block_times {
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
        load.count_and_wait(length as u64)?;
        if load.is_stopped() {
            return Ok(());
        }
    }
}

/// Returns whether more bytes were acknowledged than `acked`, and updates `acked`.
fn has_progress(stream: &dyn Handle, acked: &mut u64) -> bool {
    let now = stream.info().and_then(|info| info.acked_bytes);
    let before = std::mem::replace(acked, now.unwrap_or(0));
    *acked > before
}
#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{self, Duration};

    use lfn_session::limits::rate_limiter::RateLimiter;
    use lfn_session::transport::{memory, tcp};

    use super::*;
    use crate::load::{LoadOptions, PayloadKind};

    #[test]
    fn stream_ends_by_itself_at_its_time_limit() {
        let (near, mut far) = tcp::pair();
        let drained = thread::spawn(move || while far.read(&mut [0; 65_536]).unwrap_or(0) > 0 {});
        let end_after = Duration::from_millis(200);
        let options = LoadOptions { block_bytes: 1 << 17, end_after, ..LoadOptions::default() };
        let load = LoadState::new(options, time::Instant::now(), RateLimiter::unlimited());
        let (events, ended) = channel();
        let counter = StreamCounter::default();
        run_blocks(DataStream::clear(0, Box::new(near)), &load, &counter, &events);
        assert!(matches!(ended.recv().unwrap(), StreamEvent::Ended { result: Ok(()), .. }));
        assert!(counter.last() >= end_after && counter.bytes() > 0, "{counter:?}");
        drained.join().unwrap();
    }

    /// Moves a verified load through memory, and returns the result and the checked bytes of the receiver.
    fn load_in_memory(mode: Mode) -> (io::Result<()>, Option<u64>) {
        let (near, far) = memory::pair();
        let (events, ended) = channel();
        thread::scope(|scope| {
            for (stream, sends) in [(near, true), (far, false)] {
                let events = events.clone();
                scope.spawn(move || {
                    let options = LoadOptions {
                        sends,
                        block_bytes: 1 << 17,
                        read_bytes: 1 << 16,
                        mode,
                        payload: PayloadKind::Seeded,
                        check: true,
                        end_after: Duration::from_secs(20),
                        ..LoadOptions::default()
                    };
                    let load = LoadState::new(options, time::Instant::now(), RateLimiter::unlimited());
                    load.limit(10_000_000);
                    run_blocks(DataStream::clear(0, Box::new(stream)), &load, &StreamCounter::default(), &events);
                });
            }
        });
        let mut outcome = (Ok(()), None);
        for event in ended.try_iter() {
            let StreamEvent::Ended { payload, result, .. } = event else { panic!("{event:?}") };
            outcome.0 = outcome.0.and(result);
            outcome.1 = outcome.1.or(payload.check.map(|check| check.checked_bytes));
        }
        outcome
    }

    #[test]
    fn load_needs_no_socket() {
        let (result, checked) = load_in_memory(Mode::Copying);
        assert!(matches!((&result, checked), (Ok(()), Some(10_000_000))), "{result:?} {checked:?}");
        let (result, _) = load_in_memory(Mode::NoCopy);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
