//! All data streams of one side: stop flag, first error, and totals.
//!
//! A broken stream does not fail the copy: the stream ends, and this side reports it to the other side. The copy only
//! fails if streams break repeatedly and nothing arrives in between.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read, Write};
use std::ops::Add;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::Bytes;
use lfn_results::diagnose::random_loss::RandomLossDetector;
use lfn_results::evidence::{CopyHost, ProgressSample, SocketEvidence};
use lfn_session::limits::Denial;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::{DEAD_PEER_TIMEOUT, is_timeout};
use lfn_session::wire::copy::Progress;
use lfn_session::wire::copy::progress::StallCause;
use lfn_session::{DataStream, SessionError};
use lfn_sys::pages::MAX_SEND;
use lfn_sys::tcp;
use parking_lot::Mutex;
use rustix::fs::sendfile;

use super::host_counters::HostCounters;
use super::stall::{SERVER_EXTRA_TIMEOUT, StallTimeouts};
use super::stream_state::{ClosedStream, StreamState};
use super::stripe_set::StripeSet;
use super::work_meter::{Activity, WorkMeter};
use super::{Stall, TransferError};

/// Maximum stream failures without progress: so many per stream that was open at once, plus so many in addition.
const FAILURES_PER_STREAM: (u32, u32) = (3, 5);

/// Additional failures that a server accepts, so that the client, which dials the streams, reports the error.
const SERVER_EXTRA_FAILURES: u32 = 8;

/// Name for `TCP_CONGESTION`. BBR does not slow down for losses without a queue.
const BBR: &str = "bbr";

/// The data streams of one side.
#[derive(Debug, Default)]
pub(crate) struct StreamSet {
    meter: Arc<WorkMeter>,
    failure: Mutex<Option<TransferError>>,
    table: Mutex<StreamTable>,
    bytes: AtomicU64,
    not_needed: AtomicU64,
    /// Count of blocks that arrived.
    arrived: AtomicU64,
    stall_timeouts: StallTimeouts,
    /// Stripes of the streams, known at the client.
    stripes: StripeSet,
    /// Rate limiter of a server.
    rate_limiter: Option<Arc<RateLimiter>>,
    /// Decides whether a sender changes to BBR. `None` if this is not permitted.
    loss_detector: Mutex<Option<RandomLossDetector>>,
    /// The streams were changed to BBR.
    uses_bbr: AtomicBool,
    /// Counters of this host at the first stream.
    host_counters: OnceLock<HostCounters>,
}

/// The table of active and ended streams.
#[derive(Debug, Default)]
struct StreamTable {
    active: BTreeMap<u16, Arc<StreamState>>,
    closed: Vec<ClosedStream>,
    /// Numbers of streams that are rejected if they still arrive.
    rejected: HashSet<u16>,
    /// Maximum of concurrent streams.
    max_active: u32,
    /// Kernel counters of the ended streams.
    closed_totals: Option<SocketEvidence>,
    /// Failed streams in total, and since the last progress.
    failed: u32,
    failures_without_progress: u32,
    /// Value of `arrived` at the last failure.
    arrived_at_failure: u64,
    /// Time at which the first stream since the last progress was found stalled.
    stalled_since: Option<Instant>,
    /// Reason of a failure as reported by the other side.
    peer_error: Option<String>,
}

impl StreamTable {
    /// Resets the failure count if data has arrived since the last failure.
    fn note_progress(&mut self, arrived: u64) {
        if std::mem::replace(&mut self.arrived_at_failure, arrived) != arrived {
            self.failures_without_progress = 0;
            self.stalled_since = None;
        }
    }
}

impl StreamSet {
    /// Creates the streams of a server with a rate limiter.
    pub(crate) fn rate_limited_by(limiter: Arc<RateLimiter>) -> Self {
        StreamSet { rate_limiter: Some(limiter), ..StreamSet::default() }
    }

    pub(crate) fn with_stall_timeouts(self, stall_timeouts: StallTimeouts) -> Self {
        StreamSet { stall_timeouts, ..self }
    }

    /// Counts the streams of each stripe.
    pub(crate) fn with_stripes(self, stripes: &StripeSet) -> Self {
        StreamSet { stripes: stripes.clone(), ..self }
    }

    pub(crate) fn stall_timeouts(&self) -> StallTimeouts {
        self.stall_timeouts
    }

    /// Permits a change of the congestion control during the copy, unless the user named one.
    pub(crate) fn with_congestion(self, congestion: Option<&CongestionRequest>) -> Self {
        let free = congestion.is_none_or(|congestion| congestion.requested().is_none());
        StreamSet { loss_detector: Mutex::new(free.then(RandomLossDetector::default)), ..self }
    }

    /// Checks whether the sender's streams should change to BBR, and changes them.
    pub(crate) fn update_congestion(&self, sample: &ProgressSample) {
        let mut detector = self.loss_detector.lock();
        let live = self.active();
        let streams = u16::try_from(live.len()).unwrap_or(u16::MAX);
        if !detector.as_mut().is_some_and(|detector| detector.update(sample, streams)) {
            return;
        }
        // The change is tried only once.
        *detector = None;
        let has_it = |state: &Arc<StreamState>| {
            let name = state.handle.require_socket().and_then(tcp::congestion);
            name.is_ok_and(|name| name.starts_with(BBR))
        };
        let set_it = |state: &StreamState| {
            let socket = state.handle.require_socket();
            socket.and_then(|socket| tcp::set_congestion(socket, BBR))
        };
        if live.iter().any(has_it) {
            return;
        }
        // If the kernel does not have BBR, or not for this user, the first stream already fails.
        let set = live.iter().take_while(|state| set_it(state).is_ok()).count();
        self.uses_bbr.store(set > 0, Ordering::SeqCst);
    }

    /// Runs the work of one stream on this thread. If the stream breaks, the others continue. Any other error ends all
    /// streams.
    pub(crate) fn run_stream(
        &self,
        mut stream: DataStream,
        work: impl FnOnce(&mut DataStream, &StreamState) -> Result<(), TransferError>,
    ) {
        let number = stream.stream();
        let state = match self.register(&mut stream) {
            Ok(Some(state)) => state,
            Ok(None) => return,
            Err(source) => return self.fail(TransferError::Stream { stream: number, source }),
        };
        let result = work(&mut stream, &state);
        let broken = result.as_ref().is_err_and(|error| state.is_shut_down() || error.is_stream_error());
        self.remove(&state, broken);
        let failure = result.as_ref().err().filter(|_| !self.is_stopped());
        self.stripes.remove(&state, failure, Instant::now());
        match result {
            Err(error) if !broken => self.fail(error),
            result => self.table.lock().closed.push(ClosedStream { stream: state, error: result.err() }),
        }
    }

    /// Adds a stream to the table, so that it can be shut down. Returns `None` if the stream is no longer needed.
    fn register(&self, stream: &mut DataStream) -> io::Result<Option<Arc<StreamState>>> {
        // After this timeout, the thread only checks whether to continue. Dead peers are detected elsewhere.
        stream.set_read_timeout(Some(DEAD_PEER_TIMEOUT))?;
        stream.set_write_timeout(Some(DEAD_PEER_TIMEOUT))?;
        let state = Arc::new(StreamState::new(stream));
        self.host_counters.get_or_init(HostCounters::start);
        let mut table = self.table.lock();
        let number = state.number();
        if self.is_stopped() || table.rejected.contains(&number) || table.active.contains_key(&number) {
            return Ok(None);
        }
        if self.uses_bbr.load(Ordering::SeqCst) {
            // BBR was available for the other streams. Without it, this stream is only slower.
            let _ = state.handle.require_socket().and_then(|socket| tcp::set_congestion(socket, BBR));
        }
        table.active.insert(number, state.clone());
        table.max_active = table.max_active.max(table.active.len() as u32);
        drop(table);
        self.stripes.add(&state, Instant::now());
        Ok(Some(state))
    }

    /// Removes a stream from the active streams, and keeps its kernel counters.
    fn remove(&self, state: &StreamState, broken: bool) {
        let mut evidence = read_socket(state);
        if let Some(evidence) = evidence.as_mut().filter(|_| broken) {
            evidence.streams = 0;
            evidence.send_buffer = Bytes(0);
            evidence.receive_window = Bytes(0);
            evidence.congestion_window = Bytes(0);
            evidence.in_slow_start = 0;
            evidence.rtt_seconds = 0.0;
        }
        let mut table = self.table.lock();
        table.closed_totals = [table.closed_totals, evidence].into_iter().flatten().reduce(Add::add);
        table.rejected.insert(state.number());
        table.active.remove(&state.number());
    }

    /// Returns the active streams.
    pub(crate) fn active(&self) -> Vec<Arc<StreamState>> {
        self.table.lock().active.values().cloned().collect()
    }

    /// Returns the count of active streams.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().active.len()
    }

    /// Reports whether a stream carries blocks that the receiver has not read.
    pub(crate) fn has_unacked_blocks(&self) -> bool {
        self.active().iter().any(|state| state.has_unacked_blocks())
    }

    /// Returns an active stream.
    pub(crate) fn get(&self, number: u16) -> Option<Arc<StreamState>> {
        self.table.lock().active.get(&number).cloned()
    }

    /// Returns the streams that ended since the last call.
    pub(crate) fn take_closed(&self) -> Vec<ClosedStream> {
        std::mem::take(&mut self.table.lock().closed)
    }

    /// Shuts a stream down, or rejects it if it arrives later.
    pub(crate) fn reject_stream(&self, number: u16) {
        let mut table = self.table.lock();
        table.rejected.insert(number);
        if let Some(state) = table.active.get(&number) {
            state.shut_down();
        }
    }

    /// Counts blocks that arrived.
    pub(crate) fn add_arrived_blocks(&self, blocks: u64) {
        self.arrived.fetch_add(blocks, Ordering::SeqCst);
    }

    /// Records that a stream was shut down as stalled, at this end or at the other end.
    pub(crate) fn record_stall(&self, now: Instant) {
        let arrived = self.arrived.load(Ordering::SeqCst);
        let mut table = self.table.lock();
        table.note_progress(arrived);
        table.stalled_since.get_or_insert(now);
    }

    /// Records that a stream broke or could not be opened. Too many failures without progress end the copy.
    pub(crate) fn record_failure(&self, why: TransferError) {
        self.record_failure_at(why, Instant::now());
    }

    fn record_failure_at(&self, why: TransferError, now: Instant) {
        let arrived = self.arrived.load(Ordering::SeqCst);
        let mut table = self.table.lock();
        table.note_progress(arrived);
        table.failed += 1;
        table.failures_without_progress += 1;
        let (times, far, stalled) = (table.failures_without_progress, table.peer_error.clone(), table.stalled_since);
        let (more, longer) = if self.rate_limiter.is_some() {
            (SERVER_EXTRA_FAILURES, SERVER_EXTRA_TIMEOUT)
        } else {
            Default::default()
        };
        let many = times > FAILURES_PER_STREAM.0 * table.max_active + FAILURES_PER_STREAM.1 + more;
        drop(table);
        // The first stream was idle for some time before it was found stalled.
        let after = stalled.map(|since| now.saturating_duration_since(since) + self.stall_timeouts.stream);
        if let Some(after) = after.filter(|after| many || *after >= self.stall_timeouts.copy + longer) {
            return self
                .fail(TransferError::Stalled { after, stall: Stall { cause: StallCause::Network, is_upload: true } });
        }
        if !many {
            return;
        }
        let source = Box::new(far.map_or(why, TransferError::PeerStreamError));
        self.fail(TransferError::RepeatedStreamFailures { times, source });
    }

    /// Records the other side's reason for a broken stream, which may be more specific.
    pub(crate) fn set_peer_error(&self, why: &str) {
        self.table.lock().peer_error = Some(why.to_owned());
    }

    /// Returns the count of failed streams.
    pub(crate) fn failed_streams(&self) -> u32 {
        self.table.lock().failed
    }

    /// Returns the count of failed streams since the last progress.
    pub(crate) fn failures_without_progress(&self) -> u32 {
        let table = self.table.lock();
        if table.arrived_at_failure == self.arrived.load(Ordering::SeqCst) {
            table.failures_without_progress
        } else {
            0
        }
    }

    /// Ends all streams with `error`, unless they ended before.
    pub(crate) fn fail(&self, error: TransferError) {
        let mut failure = self.failure.lock();
        if failure.is_none() && !self.is_stopped() {
            *failure = Some(error);
        }
        drop(failure);
        self.shut_down();
    }

    /// Shuts all streams down.
    pub(crate) fn shut_down(&self) {
        self.meter.stop();
        self.table.lock().active.values().for_each(|state| state.shut_down());
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.meter.is_stopped()
    }

    /// Returns the first error of a stream.
    pub(crate) fn take_error(&self) -> Option<TransferError> {
        self.failure.lock().take()
    }

    /// Returns the measured work of this side's threads.
    pub(crate) fn meter(&self) -> &Arc<WorkMeter> {
        &self.meter
    }

    /// Runs an activity and adds its time to the totals.
    pub(crate) fn measure<T>(&self, on: Activity, work: impl FnOnce() -> T) -> T {
        self.meter.measure(on, work)
    }

    /// Returns the progress of this side.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            bytes: Bytes(self.bytes.load(Ordering::Relaxed)),
            shares: self.meter.times(),
            activity: self.meter.activity(),
            sockets: None,
            host: None,
        }
    }

    /// Returns the figures of this host, with the changes since the first stream; `None` before the first stream.
    pub(crate) fn host(&self) -> Option<CopyHost> {
        self.host_counters.get().map(HostCounters::read)
    }

    /// Returns the kernel counters of this side's sockets, summed; `None` before the first stream.
    pub(crate) fn sockets(&self) -> Option<SocketEvidence> {
        let table = self.table.lock();
        let live = table.active.values().filter_map(|state| read_socket(state));
        let all = live.chain(table.closed_totals).reduce(Add::add);
        all.map(|all| SocketEvidence { switched_to_bbr: self.uses_bbr.load(Ordering::SeqCst), ..all })
    }

    /// Writes the complete message. The bytes after the first `header` bytes count as payload.
    pub(crate) fn write_all(
        &self,
        stream: &mut DataStream,
        state: &StreamState,
        message: &[u8],
        header: usize,
    ) -> Result<(), TransferError> {
        let mut at = 0;
        while at < message.len() {
            let part = self.chunk_size(message.len() - at);
            match stream.write(&message[at..][..part]) {
                Ok(0) => return Err(self.stream_error(state, io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    state.count_bytes(written);
                    self.count_payload((at + written).saturating_sub(header.max(at)))?;
                    at += written;
                }
                Err(error) => self.check_retry(state, error)?,
            }
        }
        Ok(())
    }

    /// Sends a part of a file directly from the page cache, over a stream with a payload socket. Returns the sent
    /// bytes; fewer if the file ends before.
    pub(crate) fn send_pages(
        &self,
        stream: &DataStream,
        state: &StreamState,
        file: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> Result<u64, TransferError> {
        let socket = self.payload_socket(stream, state)?;
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let part = self.chunk_size((end - at) as usize).min(MAX_SEND);
            match sendfile(socket, file, Some(&mut at), part) {
                Ok(0) => break,
                Ok(sent) => {
                    state.count_bytes(sent);
                    self.count_payload(sent)?;
                }
                Err(error) => self.check_retry(state, error.into())?,
            }
        }
        Ok(at - offset)
    }

    /// Reads available bytes, at least one unless the stream ended. The caller counts the payload.
    pub(crate) fn read_some(
        &self,
        stream: &mut DataStream,
        state: &StreamState,
        buffer: &mut [u8],
    ) -> Result<usize, TransferError> {
        let part = self.chunk_size(buffer.len());
        loop {
            match stream.read(&mut buffer[..part]) {
                Ok(read) => {
                    state.count_bytes(read);
                    return Ok(read);
                }
                Err(error) => self.check_retry(state, error)?,
            }
        }
    }

    /// Discards available bytes of a stream with a payload socket, at least one unless the stream ended, and at most
    /// the size of `buffer`.
    pub(crate) fn drop_some(
        &self,
        stream: &DataStream,
        state: &StreamState,
        buffer: &mut [u8],
    ) -> Result<usize, TransferError> {
        let socket = self.payload_socket(stream, state)?;
        let part = self.chunk_size(buffer.len());
        loop {
            match tcp::discard(socket, &mut buffer[..part]) {
                Ok(dropped) => {
                    state.count_bytes(dropped);
                    return Ok(dropped);
                }
                Err(error) => self.check_retry(state, error)?,
            }
        }
    }

    fn payload_socket<'a>(&self, stream: &'a DataStream, state: &StreamState) -> Result<BorrowedFd<'a>, TransferError> {
        let missing = || self.stream_error(state, io::ErrorKind::Unsupported.into());
        stream.payload_socket().ok_or_else(missing)
    }

    /// Counts payload, and waits for the rate limiter.
    pub(crate) fn count_payload(&self, bytes: usize) -> Result<(), TransferError> {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(limiter) = &self.rate_limiter else { return Ok(()) };
        let passed =
            self.measure(Activity::RateLimited, || limiter.count_and_wait(bytes as u64, self.meter.stop_flag()));
        passed.map_err(|spent| SessionError::Refused(spent.refusal()).into())
    }

    /// Reports whether the server has a quota of bytes.
    pub(crate) fn has_byte_quota(&self) -> bool {
        self.rate_limiter.as_ref().is_some_and(|limiter| limiter.has_byte_quota())
    }

    /// Checks that the session may move `all` bytes in total, `requested` of which are a new request.
    pub(crate) fn check_affordable(&self, all: Bytes, requested: Bytes) -> Result<(), Denial> {
        self.rate_limiter.as_ref().map_or(Ok(()), |limiter| limiter.check_affordable(all, requested))
    }

    /// Takes a hole from the quota, because a hole increases the file like sent bytes.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), TransferError> {
        let charged = self.rate_limiter.as_ref().map_or(Ok(()), |limiter| limiter.charge(bytes));
        charged.map_err(|spent| SessionError::Refused(spent.refusal()).into())
    }

    /// Counts payload that need not be sent: a hole, or bytes that an earlier copy left.
    pub(crate) fn add_not_needed(&self, bytes: u64) {
        self.not_needed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the payload that need not be sent.
    pub(crate) fn not_needed(&self) -> Bytes {
        Bytes(self.not_needed.load(Ordering::Relaxed))
    }

    /// Returns how many bytes to move at once.
    fn chunk_size(&self, wanted: usize) -> usize {
        self.rate_limiter.as_ref().map_or(wanted, |limiter| limiter.chunk_size(wanted))
    }

    fn check_retry(&self, state: &StreamState, error: io::Error) -> Result<(), TransferError> {
        let passing = is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted;
        if passing && !self.is_stopped() && !state.is_shut_down() {
            Ok(())
        } else {
            Err(self.stream_error(state, error))
        }
    }

    /// Returns the error of a broken stream.
    pub(crate) fn stream_error(&self, state: &StreamState, source: io::Error) -> TransferError {
        TransferError::Stream { stream: state.number(), source }
    }
}

fn read_socket(state: &StreamState) -> Option<SocketEvidence> {
    let info = state.handle.info()?;
    let socket = state.handle.socket();
    let congestion = socket.and_then(|socket| tcp::congestion(socket).ok()?.parse().ok());
    let send_buffer = Bytes(socket.and_then(|socket| tcp::send_buffer(socket).ok()).unwrap_or(0));
    Some(SocketEvidence { congestion, send_buffer, ..SocketEvidence::of_stream(&info) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stall::{STALL_TIMEOUT, STREAM_STALL_TIMEOUT};

    /// Simulates a copy in which the streams break one after another. Returns the error that ends the copy, and the
    /// count of rounds.
    fn ended(stream_set: &StreamSet, stalls: bool, arrives_at: Option<u64>) -> (u64, TransferError) {
        let begun = Instant::now();
        for round in 1.. {
            let now = begun + round * STREAM_STALL_TIMEOUT;
            if arrives_at == Some(round.into()) {
                stream_set.add_arrived_blocks(1);
            }
            if stalls {
                stream_set.record_stall(now);
            }
            stream_set
                .record_failure_at(TransferError::Stream { stream: 0, source: io::ErrorKind::BrokenPipe.into() }, now);
            if let Some(error) = stream_set.take_error() {
                return (round.into(), error);
            }
        }
        unreachable!("it never ends")
    }

    #[test]
    fn repeated_stalls_fail_after_a_minute() {
        let (rounds, error) = ended(&StreamSet::default(), true, None);
        assert!(matches!(error, TransferError::Stalled { after, .. } if after == STALL_TIMEOUT), "{error}");
        assert_eq!(rounds, 6);
        // The client must report the error first. Progress restarts the timeout.
        let served = StreamSet { rate_limiter: Some(RateLimiter::unlimited()), ..StreamSet::default() };
        assert_eq!(ended(&served, true, None).0, 8);
        assert_eq!(ended(&StreamSet::default(), true, Some(5)).0, 10);
    }

    #[test]
    fn broken_streams_are_not_reported_as_stalled() {
        let (rounds, error) = ended(&StreamSet::default(), false, None);
        assert!(matches!(error, TransferError::RepeatedStreamFailures { times: 6, .. }), "{error}");
        assert_eq!(rounds, 6);
    }
}
