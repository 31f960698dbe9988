//! Clock and figures of one end: the start of the test, its intervals, and its report.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_results::host::socket_warnings;
use lfn_results::measure::{
    EndReport, Interval, Kernel, PayloadData, StreamReport, StreamSample, TestDirection, TestLoad, TestRequest,
};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::DEAD_PEER_TIMEOUT;
use lfn_session::transport::Handle;
use lfn_sys::clock::monotonic_nanos;
use lfn_sys::tcp;

use super::TestError;
use super::options::{CLAMP_INTERVAL, SocketOptions};
use crate::load::{
    HostWatch, IntervalMeter, LoadEngine, LoadOptions, LoadState, LoadStream, MeteredStream, PayloadKind, StreamEvent,
    StreamTotals,
};

/// Maximum sleep of the control thread, so that it notices the start and the end soon.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Bounds of the time that a receiver without data waits after the time of the test, which is as long as the test: several
/// round trips, and two (1 s and 2 s, RFC 6298) or three retransmissions of a lost first packet.
const EXTRA_READ_TIME: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(7)];

/// Returns the time after which a receiver without data gives up a test of this time.
fn read_timeout(time: Duration) -> Duration {
    let [min, max] = EXTRA_READ_TIME;
    DEAD_PEER_TIMEOUT.min(time.saturating_add(time.clamp(min, max)))
}

/// Streams of one end and their figures.
#[derive(Debug)]
pub(super) struct Meter {
    engine: LoadEngine,
    options: Arc<SocketOptions>,
    expected: u16,
    load: TestLoad,
    intervals: IntervalMeter,
    /// The load was ended before its time.
    is_stopped: bool,
    /// Time from the origin to the first payload byte.
    start: Option<Duration>,
    clamp_set_at: Instant,
    /// Pacing rate of each stream under the server's limit.
    pace_limit: Option<BitRate>,
    /// Origin on the monotonic clock, nanoseconds.
    origin_nanos: u64,
}

/// Returns the state of a load at its sending or its receiving end. `max_time` limits the streams' time from now on, if
/// the streams themselves do not know their end.
pub(super) fn new_load(
    request: &TestRequest,
    sends: bool,
    origin: Instant,
    rate_limiter: Arc<RateLimiter>,
    max_time: Option<Duration>,
) -> Arc<LoadState> {
    let is_near = sends == (request.direction == TestDirection::Forward);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let options = LoadOptions {
        sends,
        block_bytes: size(request.record.0),
        read_bytes: size(request.read.0),
        mode: if is_near { request.modes.near } else { request.modes.far },
        payload: match request.data {
            PayloadData::Random => PayloadKind::Seeded,
            PayloadData::Zero => PayloadKind::Zero,
        },
        check: request.check,
        with_block_times: request.blocks,
        lockstep: request.lockstep,
        end_after: max_time.map_or(Duration::MAX, |max_time| origin.elapsed().saturating_add(max_time)),
        // A receiver without data gives up soon after the end of a short test.
        read_timeout: Some(request.time().map_or(DEAD_PEER_TIMEOUT, read_timeout)),
        ..LoadOptions::default()
    };
    let load = LoadState::new(options, origin, rate_limiter);
    if let Some(bytes) = request.load.bytes(request.record) {
        load.limit(bytes);
    }
    load
}

impl Meter {
    pub(super) fn new(request: &TestRequest, load: Arc<LoadState>, options: Arc<SocketOptions>) -> Self {
        let clamp_set_at = load.origin;
        let since_origin = u64::try_from(load.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let origin_nanos = monotonic_nanos().saturating_sub(since_origin);
        Meter {
            engine: LoadEngine::new(load),
            options,
            expected: request.streams,
            load: request.load,
            intervals: IntervalMeter::new(request.interval, request.slices_per_interval),
            is_stopped: false,
            start: None,
            clamp_set_at,
            pace_limit: None,
            origin_nanos,
        }
    }

    /// Changes the interval, before the first one is closed.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.intervals.set_interval(interval);
    }

    /// Watches the interface of the connection, if it is not the expected one.
    pub(super) fn confirm_interface(&mut self, connection: &dyn Handle) {
        let watch = match self.intervals.take_host_watch() {
            Some(watch) => watch.for_connected(connection),
            None => HostWatch::begin(connection),
        };
        self.intervals.set_host_watch(watch);
    }

    /// Sets the watch of this host.
    pub(super) fn set_host_watch(&mut self, watch: HostWatch) {
        self.intervals.set_host_watch(watch);
    }

    /// Sets the start to the origin: the data arrived with the hello, even if it is still unread.
    pub(super) fn start_at_origin(&mut self) {
        self.start = Some(Duration::ZERO);
    }

    /// Paces all streams together to the server's rate limit. A lower requested rate stays.
    pub(super) fn set_rate_limit(&mut self, rate: Option<BitRate>) {
        let Some(rate) = rate.filter(|_| self.engine.sends()) else { return };
        let requested = (0..self.expected).map(|stream| Some(self.options.pacing_of(stream)?.0));
        // Different rates that fit the limit stay as they are.
        if requested.sum::<Option<u64>>().is_some_and(|all| all <= rate.0) {
            return;
        }
        let even_pace = BitRate((rate.0 / u64::from(self.expected.max(1))).max(1));
        self.pace_limit = Some(even_pace);
        self.engine.streams().iter().for_each(|stream| apply_pace(stream, even_pace, &self.options));
    }

    /// Returns the channel for the events of the streams' threads.
    pub(super) fn sender(&self) -> Sender<StreamEvent> {
        self.engine.sender()
    }

    /// Handles the events of the streams, and sets window clamps again.
    pub(super) fn collect(&mut self) -> Result<(), TestError> {
        let (options, even_pace, intervals) = (&self.options, self.pace_limit, &mut self.intervals);
        self.engine.collect(|stream, index| {
            if let Some(even_pace) = even_pace {
                apply_pace(stream, even_pace, options);
            }
            intervals.add_stream(index);
        })?;
        if self.start.is_none() {
            self.start = self.engine.streams().iter().filter_map(|stream| stream.counter.first()).min();
        }
        if self.options.has_clamp() && self.clamp_set_at.elapsed() >= CLAMP_INTERVAL {
            self.clamp_set_at = Instant::now();
            for stream in self.engine.streams() {
                // A closed stream needs no clamp.
                let _ = stream.handle.require_socket().and_then(|socket| self.options.set_clamp(socket));
            }
        }
        Ok(())
    }

    /// Returns the time until the meter has something to do.
    pub(super) fn time_to_next_event(&self) -> Duration {
        let Some(now) = self.now() else { return POLL_INTERVAL };
        let next = self.intervals.next_end().saturating_sub(now);
        let left = match self.load {
            TestLoad::TimeSeconds(time) => time.saturating_sub(now),
            TestLoad::Records(_) | TestLoad::Bytes(_) => POLL_INTERVAL,
        };
        let clamp = if self.options.has_clamp() { CLAMP_INTERVAL } else { Duration::MAX };
        next.min(left).min(clamp).max(Duration::from_millis(1))
    }

    /// Returns whether every stream has ended by itself.
    pub(super) fn have_all_ended(&self) -> bool {
        self.engine.ended() == usize::from(self.expected)
    }

    /// Ends the load early.
    pub(super) fn stop_load(&mut self) {
        self.is_stopped = true;
    }

    /// Returns whether the load was ended early.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the time at which the first stream was opened.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.engine.streams().iter().map(|stream| stream.opened).min()
    }

    /// Returns the origin of all times, here and in the streams' figures.
    pub(super) fn origin(&self) -> Instant {
        self.engine.load().origin
    }

    /// Returns whether the time of a timed test is over.
    pub(super) fn is_time_over(&self) -> bool {
        matches!((self.load, self.now()), (TestLoad::TimeSeconds(time), Some(now)) if now >= time)
    }

    /// Returns the time since the start; `None` before the start.
    pub(super) fn now(&self) -> Option<Duration> {
        self.start.map(|start| self.engine.load().origin.elapsed().saturating_sub(start))
    }

    /// Closes the current interval if it is over, and returns it. The last interval is closed by [`Meter::finish`].
    pub(super) fn close_due_interval(&mut self) -> Option<&Interval> {
        let now = self.now().filter(|_| !self.is_time_over())?;
        self.intervals.close_due(now, metered(&self.engine))
    }

    /// Like [`Meter::close_due_interval`], for callers that send the interval at once: it is not kept.
    pub(super) fn take_interval(&mut self) -> Option<Interval> {
        let now = self.now().filter(|_| !self.is_time_over())?;
        self.intervals.take_due(now, metered(&self.engine))
    }

    /// Returns the number of intervals that were closed.
    pub(super) fn closed_intervals(&self) -> usize {
        self.intervals.closed_count()
    }

    /// Ends the streams and returns the report with the intervals that were not sent. The sockets stay open until the
    /// meter is dropped, so that the peer sees no close before it has the report.
    pub(super) fn finish(&mut self, kernel: Kernel) -> Result<EndReport, TestError> {
        let elapsed = self.elapsed();
        self.close_last_interval(elapsed);
        let bytes = self.intervals.counted_bytes().sum();
        let mut streams: Vec<_> =
            self.engine.streams().iter().zip(self.intervals.counted_bytes()).map(|(s, b)| self.report(s, b)).collect();
        let (host, mut notes) = self.intervals.finish_host_watch();
        notes.extend(socket_warnings(&streams, host.as_ref()));
        self.engine.stop()?;
        for stream in &mut streams {
            let result = self.engine.payload_result(stream.stream);
            stream.check = result.check;
            stream.blocks = result.blocks;
        }
        Ok(EndReport {
            elapsed,
            bytes,
            mode: Some(self.engine.load().options.mode),
            cpu: Some(self.engine.cpu()),
            kernel: Some(kernel),
            lfn_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            rate_limit: None,
            started: self.started_nanos(),
            host,
            notes,
            streams,
            intervals: self.intervals.take_intervals(),
        })
    }

    /// Returns the start on the monotonic clock, nanoseconds.
    pub(super) fn started_nanos(&self) -> Option<u64> {
        let start = u64::try_from(self.start?.as_nanos()).ok()?;
        Some(self.origin_nanos.saturating_add(start))
    }

    /// Returns the time from the start to the last byte that counts.
    fn elapsed(&self) -> Duration {
        let start = self.start.unwrap_or_default();
        let last = if self.may_have_data_in_flight() {
            self.engine.load().origin.elapsed()
        } else {
            self.engine.streams().iter().map(|stream| stream.counter.last()).max().unwrap_or_default()
        };
        last.saturating_sub(start)
    }

    /// Returns whether data may be in flight at the end: after a timed test or an early end.
    fn may_have_data_in_flight(&self) -> bool {
        self.is_stopped || matches!(self.load, TestLoad::TimeSeconds(_))
    }

    /// Closes the rest as a last, shorter interval.
    fn close_last_interval(&mut self, elapsed: Duration) {
        if self.may_have_data_in_flight()
            || self.intervals.closed_count() == 0
            || self.engine.bytes() > self.intervals.counted_bytes().sum()
        {
            self.intervals.close(elapsed.max(self.intervals.last_end()), metered(&self.engine));
        }
    }

    fn report(&self, stream: &LoadStream, bytes: u64) -> StreamReport {
        // The final sizes of autotuned buffers are of interest.
        let socket = stream.handle.socket().and_then(|socket| self.options.report(socket, stream.number).ok());
        let socket = socket.or_else(|| stream.granted.clone());
        let tcp_info = stream.handle.info();
        let watch = self.intervals.host_watch();
        let thread = watch.and_then(|host| host.thread_total(stream.number, stream.counter.thread()));
        StreamReport { stream: stream.number, bytes, socket, tcp_info, thread, ..StreamReport::default() }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.may_have_data_in_flight() || !self.have_all_ended() {
            // Data in flight is useless: the kernel need not deliver it.
            self.engine.abort();
        }
    }
}

fn apply_pace(stream: &LoadStream, even_pace: BitRate, options: &SocketOptions) {
    let pace = options.pacing_of(stream.number).map_or(even_pace, |requested| requested.min(even_pace));
    // Pacing only smooths the flow. The server's rate limiter enforces the limit in any case.
    let _ = stream.handle.require_socket().and_then(|socket| tcp::set_pacing(socket, pace.0));
}

/// Returns the streams for the meter of intervals.
fn metered(engine: &LoadEngine) -> impl Iterator<Item = MeteredTcp<'_>> {
    let sends = engine.sends();
    engine.streams().iter().map(move |stream| MeteredTcp { stream, sends })
}

/// A stream with the samples of its socket.
struct MeteredTcp<'a> {
    stream: &'a LoadStream,
    sends: bool,
}

impl MeteredStream for MeteredTcp<'_> {
    fn number(&self) -> u16 {
        self.stream.number
    }

    fn thread(&self) -> i32 {
        self.stream.counter.thread()
    }

    fn totals(&self, _before: &StreamTotals) -> StreamTotals {
        StreamTotals::of_bytes(self.stream.counter.bytes())
    }

    fn sample(&self, added: &StreamTotals) -> StreamSample {
        let socket = self.stream.handle.socket().filter(|_| !self.sends);
        StreamSample {
            stream: self.stream.number,
            bytes: added.bytes,
            unread_bytes: socket.and_then(|socket| tcp::unread_bytes(socket).ok()),
            tcp_info: self.stream.handle.info(),
            ..StreamSample::default()
        }
    }
}
