//! One stream of a load, from its begin to its end.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use lfn_results::measure::{Cpu, Mode};
use lfn_session::DataStream;
use lfn_sys::{process, tcp};

use super::{LoadState, PayloadResult, StreamCounter, StreamEvent, copying, nanos, no_copy};

/// Moves one stream's data in the calling thread, and sends the event of its end.
pub(crate) fn run(
    stream: DataStream,
    sends: bool,
    shared: &LoadState,
    counter: &StreamCounter,
    events: &Sender<StreamEvent>,
) {
    let number = stream.stream();
    counter.thread.store(process::thread_id(), Ordering::Relaxed);
    let before = tcp::thread_cpu();
    let mut payload = PayloadResult::default();
    let result = match (sends, shared.mode) {
        (true, Mode::Copying) => copying::send(stream, shared, counter, &mut payload),
        (true, Mode::NoCopy) => no_copy::send(stream, shared, counter, &mut payload),
        (false, Mode::Copying) => copying::receive(stream, shared, counter, &mut payload),
        (false, Mode::NoCopy) => no_copy::receive(stream, shared, counter, &mut payload),
    };
    counter.last.store(nanos(shared.now()), Ordering::Relaxed);
    let after = tcp::thread_cpu();
    let cpu = Cpu { user: after.user.saturating_sub(before.user), system: after.system.saturating_sub(before.system) };
    // The shutdown of a stopped stream's socket causes an error that means nothing.
    let result = if shared.stopped() { Ok(()) } else { result };
    // After a failure elsewhere the receiver is gone.
    let _ = events.send(StreamEvent::Ended { stream: number, cpu, payload: Box::new(payload), result });
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use lfn_base::units::Bytes;
    use lfn_results::measure::{Modes, PayloadData, TestLoad, TestRequest};
    use lfn_session::limits::rate_limiter::RateLimiter;
    use lfn_session::transport::{memory, tcp};

    use super::*;

    #[test]
    fn stream_ends_by_itself_at_its_time_limit() {
        let (near, mut far) = tcp::pair();
        let drained = thread::spawn(move || while far.read(&mut [0; 65_536]).unwrap_or(0) > 0 {});
        let max_bytes = Some(Duration::from_millis(200));
        let shared = LoadState::new(&TestRequest::default(), true, Instant::now(), RateLimiter::unlimited(), max_bytes);
        let (events, ended) = channel();
        let counter = StreamCounter::default();
        run(DataStream::clear(0, Box::new(near)), true, &shared, &counter, &events);
        assert!(matches!(ended.recv().unwrap(), StreamEvent::Ended { result: Ok(()), .. }));
        assert!(counter.last() >= 200_000_000 && counter.bytes.load(Ordering::Relaxed) > 0, "{counter:?}");
        drained.join().unwrap();
    }

    /// Moves a verified load through memory, and returns the result and the checked bytes of the receiver.
    fn load_in_memory(mode: Mode) -> (std::io::Result<()>, Option<u64>) {
        let request = TestRequest {
            load: TestLoad::Bytes(Bytes(10_000_000)),
            data: PayloadData::Random,
            check: true,
            modes: Modes { near: mode, far: mode },
            ..TestRequest::default()
        };
        let (near, far) = memory::pair();
        let (events, ended) = channel();
        let limit = Some(Duration::from_secs(20));
        thread::scope(|scope| {
            for (stream, sends) in [(near, true), (far, false)] {
                let (request, events) = (&request, events.clone());
                scope.spawn(move || {
                    let shared = LoadState::new(request, sends, Instant::now(), RateLimiter::unlimited(), limit);
                    let stream = DataStream::clear(0, Box::new(stream));
                    run(stream, sends, &shared, &StreamCounter::default(), &events);
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
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
    }
}
