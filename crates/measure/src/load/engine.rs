//! Threads of the streams of one end and one direction: their start, their events, their end.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use lfn_results::block_timing::BlockTimes;
use lfn_results::measure::{Cpu, PayloadCheck, SocketReport};
use lfn_session::SessionError;
use lfn_session::transport::Handle;
use lfn_sys::tcp;

use super::counter::StreamCounter;
use super::state::LoadState;

/// Stack of a stream's thread, which touches 8 KiB of it. glibc reuses the stacks of ended threads, with their resident
/// memory, for any thread that requests at least a quarter of their size. The stacks of connections are larger than
/// four times this size.
pub(crate) const STACK_SIZE: usize = 96 << 10;

/// Maximum time in which streams must end after the stop flag is set.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams of one end and one direction. Dropping the engine ends the streams.
#[derive(Debug)]
pub(crate) struct LoadEngine {
    load: Arc<LoadState>,
    /// Sender of events, for new threads.
    sender: Sender<StreamEvent>,
    events: Receiver<StreamEvent>,
    /// Open streams, in the order of their numbers.
    streams: Vec<LoadStream>,
    /// Threads that have been started.
    started: usize,
    ended: usize,
    cpu: Cpu,
    /// Results of streams that ended.
    payload_results: Vec<(u16, PayloadResult)>,
}

/// Events of the streams for the control thread.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// The stream is open and moves data.
    Opened(Box<LoadStream>),
    Ended {
        stream: u16,
        /// Processor time of the thread since the end of the warm-up.
        cpu: Cpu,
        payload: Box<PayloadResult>,
        result: io::Result<()>,
    },
    /// The stream could not be opened.
    Failed(Box<SessionError>),
}

/// A stream, as the control thread sees it.
#[derive(Debug)]
pub(crate) struct LoadStream {
    pub(crate) number: u16,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) counter: Arc<StreamCounter>,
    /// Time at which the hello was sent or received.
    pub(crate) opened: Instant,
    /// Options granted when the stream was opened; `None` if the stream has no socket.
    pub(crate) granted: Option<SocketReport>,
}

/// Results about the payload of a stream, if requested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PayloadResult {
    pub(crate) check: Option<PayloadCheck>,
    pub(crate) blocks: Option<BlockTimes>,
}

/// Failure of one stream, which ends the load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("data stream {stream}: {source}")]
    Stream { stream: u16, source: io::Error },
    /// The stream could not be opened.
    #[error(transparent)]
    Open(Box<SessionError>),
}

impl LoadEngine {
    pub(crate) fn new(load: Arc<LoadState>) -> Self {
        let (sender, events) = channel();
        LoadEngine {
            load,
            sender,
            events,
            streams: Vec::new(),
            started: 0,
            ended: 0,
            cpu: Cpu::default(),
            payload_results: Vec::new(),
        }
    }

    pub(crate) fn load(&self) -> &Arc<LoadState> {
        &self.load
    }

    /// Returns whether the streams of this end send.
    pub(crate) fn sends(&self) -> bool {
        self.load.options.sends
    }

    /// Returns the open streams, in the order of their numbers.
    pub(crate) fn streams(&self) -> &[LoadStream] {
        &self.streams
    }

    /// Returns the channel for the events of threads that the front end starts.
    pub(crate) fn sender(&self) -> Sender<StreamEvent> {
        self.sender.clone()
    }

    /// Adds an open stream, and returns its index.
    pub(crate) fn add(&mut self, stream: LoadStream) -> usize {
        // Sorted by number, because every list of streams has this order.
        let index = self.streams.partition_point(|other| other.number < stream.number);
        self.streams.insert(index, stream);
        index
    }

    /// Starts the thread of a stream. `work` moves its data.
    pub(crate) fn start(
        &mut self,
        number: u16,
        counter: Arc<StreamCounter>,
        work: impl FnOnce(&LoadState, &StreamCounter, &mut PayloadResult) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (load, sender) = (self.load.clone(), self.sender());
        let work = move || {
            run_stream(number, &load, &counter, &sender, |payload| work(&load, &counter, payload));
        };
        thread::Builder::new().name(format!("stream {number}")).spawn(work)?;
        self.started += 1;
        Ok(())
    }

    /// Handles the events of the streams. `opened` gets each new stream and its index.
    pub(crate) fn collect(&mut self, mut opened: impl FnMut(&LoadStream, usize)) -> Result<(), LoadError> {
        while let Ok(event) = self.events.try_recv() {
            self.handle_event(event, &mut opened)?;
        }
        Ok(())
    }

    /// Returns the number of streams that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    /// Returns the processor time of the threads that have ended, without the warm-up.
    pub(crate) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Returns the bytes that all streams have moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.counter.bytes()).sum()
    }

    /// Returns the result about the payload of a stream that has ended.
    pub(crate) fn payload_result(&self, stream: u16) -> PayloadResult {
        let result = self.payload_results.iter().find(|(number, _)| *number == stream);
        result.map(|(_, result)| *result).unwrap_or_default()
    }

    /// Shuts the streams down and waits for their threads.
    pub(crate) fn stop(&mut self) -> Result<(), LoadError> {
        self.load.stop();
        // A shutdown of the read side wakes a reader without any effect on the peer; a writer needs a shutdown of the
        // write side.
        self.shut_down(if self.load.options.sends { Shutdown::Write } else { Shutdown::Read });
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut result = Ok(());
        while self.ended < self.started {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => result = result.and(self.handle_event(event, &mut |_, _| ())),
                // The stream's processor time is then missing. Its own deadlines end it.
                Err(_timeout) => break,
            }
        }
        result
    }

    /// Ends the streams without the data in flight.
    pub(crate) fn abort(&self) {
        self.load.stop();
        self.streams.iter().for_each(|stream| stream.handle.abort());
    }

    fn shut_down(&self, side: Shutdown) {
        for stream in &self.streams {
            // The peer may have closed the stream.
            let _ = stream.handle.shut_down(side);
        }
    }

    fn handle_event(
        &mut self,
        event: StreamEvent,
        opened: &mut dyn FnMut(&LoadStream, usize),
    ) -> Result<(), LoadError> {
        match event {
            StreamEvent::Opened(stream) => {
                self.started += 1;
                let index = self.add(*stream);
                opened(&self.streams[index], index);
            }
            StreamEvent::Ended { stream, cpu, payload, result } => {
                self.ended += 1;
                self.payload_results.push((stream, *payload));
                self.cpu.user += cpu.user;
                self.cpu.system += cpu.system;
                result.map_err(|source| LoadError::Stream { stream, source })?;
            }
            StreamEvent::Failed(error) => return Err(LoadError::Open(error)),
        }
        Ok(())
    }
}

impl Drop for LoadEngine {
    fn drop(&mut self) {
        // Threads must also end after an error.
        self.load.stop();
        self.shut_down(Shutdown::Both);
    }
}

/// Moves one stream's data with `work` in the calling thread, and sends the event of its end.
pub(super) fn run_stream(
    number: u16,
    load: &LoadState,
    counter: &StreamCounter,
    events: &Sender<StreamEvent>,
    work: impl FnOnce(&mut PayloadResult) -> io::Result<()>,
) {
    counter.set_thread();
    let before = tcp::thread_cpu();
    let mut payload = PayloadResult::default();
    let result = work(&mut payload);
    if !load.options.with_last_byte {
        counter.set_last(load.now());
    }
    let after = tcp::thread_cpu();
    let since = if load.is_warm_up_over() { counter.cpu_at_warm_up_end(after) } else { before };
    let cpu = Cpu { user: after.user.saturating_sub(since.user), system: after.system.saturating_sub(since.system) };
    // The shutdown of a stopped stream's socket causes an error that means nothing.
    let result = if load.is_stopped() { Ok(()) } else { result };
    // After a failure elsewhere the receiver is gone.
    let _ = events.send(StreamEvent::Ended { stream: number, cpu, payload: Box::new(payload), result });
}
