//! The blocks of a byte stream, in the mode of the load.

use std::io;
use std::sync::mpsc::Sender;

use lfn_results::measure::Mode;
use lfn_session::DataStream;

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
