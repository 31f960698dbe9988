//! Lock-step: the receiver acknowledges each whole block with one byte, and the sender waits for this byte.
//!
//! The acknowledgement travels in the stream of the block, so that a packet capture of the stream shows the pauses. The
//! last block of a load may be shorter than the others. The receiver does not know its length, so this block is not
//! acknowledged.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use lfn_session::DataStream;
use lfn_session::transport::is_timeout;

use super::progress::AckProgress;
use super::state::LoadState;

/// Acknowledgement of a block: the control character ACK of ASCII.
pub(super) const ACKNOWLEDGEMENT: u8 = 0x06;

/// Interval at which a waiting sender checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Acknowledges a block that has arrived as a whole.
pub(super) fn acknowledge(stream: &mut DataStream) -> io::Result<()> {
    stream.write_all(&[ACKNOWLEDGEMENT])?;
    stream.flush()
}

/// Waits until the receiver acknowledges the block that was sent last, or until the stop.
///
/// The error is a time-out if nothing arrives within the read time-out of the load while the receiving kernel
/// acknowledges nothing either.
pub(super) fn wait_for_acknowledgement(
    stream: &mut DataStream,
    load: &LoadState,
    progress: &mut AckProgress,
) -> io::Result<()> {
    let timeout = load.options.read_timeout.unwrap_or(Duration::MAX);
    let mut waiting_since = load.now();
    stream.set_read_timeout(Some(POLL_INTERVAL.min(timeout)))?;
    let mut answer = [0];
    while !load.is_stopped() {
        match stream.read(&mut answer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) if answer == [ACKNOWLEDGEMENT] => return Ok(()),
            Ok(_) => return Err(io::Error::new(ErrorKind::InvalidData, "the receiver did not acknowledge the block")),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => {
                // A large block on a slow path is still in the send buffer.
                if load.now().saturating_sub(waiting_since) >= timeout {
                    if !progress.has_grown(&**stream.handle()) {
                        return Err(error);
                    }
                    waiting_since = load.now();
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    use lfn_session::limits::rate_limiter::RateLimiter;
    use lfn_session::transport::memory::{self, MemoryStream};

    use super::*;
    use crate::load::{LoadOptions, LoadState, PayloadKind, StreamCounter, StreamEvent, run_blocks};

    const BLOCK: usize = 10_000;

    fn options(sends: bool) -> LoadOptions {
        LoadOptions {
            sends,
            block_bytes: BLOCK,
            read_bytes: 1 << 16,
            payload: PayloadKind::Seeded,
            check: true,
            lockstep: true,
            ..LoadOptions::default()
        }
    }

    /// Starts a sender of `bytes`, and returns the other end of its stream.
    fn start_sender(
        bytes: u64,
        options: LoadOptions,
    ) -> (MemoryStream, thread::JoinHandle<StreamEvent>, Arc<LoadState>) {
        let (near, far) = memory::pair();
        let load = LoadState::new(options, Instant::now(), RateLimiter::unlimited());
        load.limit(bytes);
        let shared = load.clone();
        let sender = thread::spawn(move || {
            let (events, ended) = channel();
            run_blocks(DataStream::clear(0, Box::new(near)), &shared, &StreamCounter::default(), &events);
            ended.recv().unwrap()
        });
        (far, sender, load)
    }

    /// Returns the bytes that arrive before a pause, or before the end.
    fn read_until_pause(stream: &mut MemoryStream) -> usize {
        use lfn_session::transport::Stream;
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = [0; 4096];
        let mut total = 0;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            total += length;
        }
        total
    }

    #[test]
    fn next_block_waits_for_the_acknowledgement() {
        let (mut far, sender, _) = start_sender(3 * BLOCK as u64 - 1, options(true));
        let mut blocks = Vec::new();
        for _ in 0..3 {
            blocks.push(read_until_pause(&mut far));
            // The sender may have ended after the last block.
            let _ = far.write(&[ACKNOWLEDGEMENT]);
        }
        assert_eq!(blocks, [BLOCK, BLOCK, BLOCK - 1]);
        assert!(matches!(sender.join().unwrap(), StreamEvent::Ended { result: Ok(()), .. }));
    }

    #[test]
    fn receiver_acknowledges_each_whole_block() {
        // 12 whole blocks, and a shorter one.
        let bytes = 12 * BLOCK as u64 + 7;
        let (far, sender, _) = start_sender(bytes, options(true));
        let load = LoadState::new(options(false), Instant::now(), RateLimiter::unlimited());
        let (events, ended) = channel();
        run_blocks(DataStream::clear(0, Box::new(far)), &load, &StreamCounter::default(), &events);
        assert!(matches!(sender.join().unwrap(), StreamEvent::Ended { result: Ok(()), .. }));
        let StreamEvent::Ended { payload, result: Ok(()), .. } = ended.recv().unwrap() else { panic!("no end") };
        let check = payload.check.unwrap();
        assert_eq!((check.checked_bytes, check.wrong_bytes), (bytes, 0));
    }

    #[test]
    fn waiting_sender_ends_at_the_stop() {
        let (mut far, sender, load) = start_sender(2 * BLOCK as u64, options(true));
        assert_eq!(read_until_pause(&mut far), BLOCK);
        load.stop();
        assert!(matches!(sender.join().unwrap(), StreamEvent::Ended { result: Ok(()), .. }));
    }

    #[test]
    fn missing_or_wrong_acknowledgement_is_an_error() {
        let timeout = Some(Duration::from_millis(100));
        let (_far, sender, _) = start_sender(1 << 20, LoadOptions { read_timeout: timeout, ..options(true) });
        let StreamEvent::Ended { result: Err(silent), .. } = sender.join().unwrap() else { panic!("no error") };
        assert!(is_timeout(&silent), "{silent}");
        let (mut far, sender, _) = start_sender(1 << 20, options(true));
        far.write_all(b"?").unwrap();
        let StreamEvent::Ended { result: Err(wrong), .. } = sender.join().unwrap() else { panic!("no error") };
        assert_eq!(wrong.kind(), ErrorKind::InvalidData);
        let (far, sender, _) = start_sender(BLOCK as u64, options(true));
        thread::sleep(Duration::from_millis(20));
        drop(far);
        assert!(matches!(sender.join().unwrap(), StreamEvent::Ended { result: Err(_), .. }));
    }
}
