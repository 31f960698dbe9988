//! One end's clock and figures: when the test began, its intervals, and the report at its end.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lfn_core::host::remarks;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::BitRate;
use lfn_core::wire::test::{Cpu, EndReport, Interval, Kernel, Load, Part, StreamReport, StreamSample, TestRequest};
use lfn_sys::clock::monotonic_nanos;
use lfn_sys::tcp;
use socket2::SockRef;

use super::TestError;
use super::host::HostWatch;
use super::load::{Event, Seen, Shared, Stream};
use super::options::{HOLD_EVERY, Options};

/// How long the control thread sleeps at most, so that it notices a start and an end soon.
const LOOK_UP: Duration = Duration::from_millis(20);

/// How long streams may take to end once they are told to.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The streams of one end, and what was seen of them.
#[derive(Debug)]
pub(super) struct Meter {
    shared: Arc<Shared>,
    options: Arc<Options>,
    events: Receiver<Event>,
    sends: bool,
    expected: u16,
    load: Load,
    interval: Duration,
    /// Into how many parts each interval is cut.
    cut: u16,
    streams: Vec<Stream>,
    ended: u16,
    /// Of streams that ended.
    seen: Vec<(u16, Seen)>,
    cpu: Cpu,
    /// The load was ended before its time.
    stopped: bool,
    /// From the origin to the first payload byte.
    start: Option<Duration>,
    /// Of the intervals so far, counted from the start.
    until: Duration,
    /// Of each stream, until then.
    counted: Vec<u64>,
    /// Of the interval that is going on.
    parts: Vec<Part>,
    /// Of all streams, until the last part.
    counted_in_parts: u64,
    intervals: Vec<Interval>,
    ticked: usize,
    held: Instant,
    /// What each stream is paced to by the server's limit.
    pace: Option<BitRate>,
    host: Option<HostWatch>,
    /// The origin on the monotonic clock.
    origin_nanos: u64,
}

impl Meter {
    pub(super) fn new(
        request: &TestRequest,
        sends: bool,
        shared: Arc<Shared>,
        options: Arc<Options>,
        events: Receiver<Event>,
    ) -> Self {
        let held = shared.origin;
        let since_origin = u64::try_from(shared.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let origin_nanos = monotonic_nanos().saturating_sub(since_origin);
        Meter {
            shared,
            options,
            events,
            sends,
            expected: request.streams,
            load: request.load,
            interval: request.interval,
            cut: request.parts.max(1),
            streams: Vec::new(),
            ended: 0,
            seen: Vec::new(),
            cpu: Cpu::default(),
            stopped: false,
            start: None,
            until: Duration::ZERO,
            counted: Vec::new(),
            parts: Vec::new(),
            counted_in_parts: 0,
            intervals: Vec::new(),
            ticked: 0,
            held,
            pace: None,
            host: None,
            origin_nanos,
        }
    }

    /// Another length of the intervals, before the first.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// The connection is up: the host's watch looks at the interface that this leaves by.
    pub(super) fn confirm_host(&mut self, socket: &TcpStream) {
        self.host = Some(match self.host.take() {
            Some(watch) => watch.confirmed(socket),
            None => HostWatch::begin(socket),
        });
    }

    /// Tells, from here on, what the host does meanwhile.
    pub(super) fn watch_host(&mut self, watch: HostWatch) {
        self.host = Some(watch);
    }

    /// The data arrived with the hello: the test began then, though nobody read it yet.
    pub(super) fn start_at_origin(&mut self) {
        self.start = Some(Duration::ZERO);
    }

    /// Paces what this end sends to the server's limit on all streams together, which are those that are open and those
    /// that will be; a slower pace that was asked for stays.
    pub(super) fn limit(&mut self, rate: Option<BitRate>) {
        let Some(rate) = rate.filter(|_| self.sends) else { return };
        let asked = (0..self.expected).map(|stream| Some(self.options.pacing_of(stream)?.0));
        // Paces of different size that fit as they are stay as they are.
        if asked.sum::<Option<u64>>().is_some_and(|all| all <= rate.0) {
            return;
        }
        let even = BitRate((rate.0 / u64::from(self.expected.max(1))).max(1));
        self.pace = Some(even);
        self.streams.iter().for_each(|stream| self.pace(stream));
    }

    fn pace(&self, stream: &Stream) {
        let Some(even) = self.pace else { return };
        let pace = self.options.pacing_of(stream.number).map_or(even, |asked| asked.min(even));
        // Only for an even flow: the server's throttle holds whatever becomes of it.
        let _ = tcp::set_pacing(&stream.socket, pace.0);
    }

    /// Takes in what streams have to tell.
    pub(super) fn collect(&mut self) -> Result<(), TestError> {
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        if self.start.is_none() {
            self.start = self.streams.iter().filter_map(|s| s.counter.first()).min().map(Duration::from_nanos);
        }
        if self.options.holds() && self.held.elapsed() >= HOLD_EVERY {
            self.held = Instant::now();
            for stream in &self.streams {
                // A stream that is gone has nothing to hold.
                let _ = self.options.hold(&stream.socket);
            }
        }
        Ok(())
    }

    /// How long until there is something to do.
    pub(super) fn idle(&self) -> Duration {
        let Some(now) = self.now() else { return LOOK_UP };
        let next = self.next_boundary().min(self.next_part()).saturating_sub(now);
        let left = match self.load {
            Load::TimeSeconds(time) => time.saturating_sub(now),
            Load::Records(_) | Load::Bytes(_) => LOOK_UP,
        };
        let hold = if self.options.holds() { HOLD_EVERY } else { Duration::MAX };
        next.min(left).min(hold).max(Duration::from_millis(1))
    }

    /// Whether every stream has come to its own end.
    pub(super) fn all_ended(&self) -> bool {
        self.ended == self.expected
    }

    /// The load is over, whatever of it is left.
    pub(super) fn end_now(&mut self) {
        self.stopped = true;
    }

    /// Whether it was ended that way.
    pub(super) fn stopped(&self) -> bool {
        self.stopped
    }

    /// When each stream was opened, the first of them.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.streams.iter().map(|stream| stream.opened).min()
    }

    /// What times count from, here and in the streams' figures.
    pub(super) fn origin(&self) -> Instant {
        self.shared.origin
    }

    /// Whether the time of a timed test is over.
    pub(super) fn time_over(&self) -> bool {
        matches!((self.load, self.now()), (Load::TimeSeconds(time), Some(now)) if now >= time)
    }

    /// Time since the start; `None` before it.
    pub(super) fn now(&self) -> Option<Duration> {
        self.start.map(|start| self.shared.origin.elapsed().saturating_sub(start))
    }

    /// The interval that is over by now, if one is. The last one is left to [`Meter::finish`].
    pub(super) fn tick(&mut self) -> Option<&Interval> {
        let now = self.now()?;
        if self.time_over() {
            return None;
        }
        if now < self.next_boundary() {
            if now >= self.next_part() {
                self.close_part(now);
            }
            return None;
        }
        self.close_interval(now);
        self.ticked += 1;
        self.intervals.last()
    }

    /// The same for who tells it at once: it is not kept.
    pub(super) fn tell(&mut self) -> Option<Interval> {
        self.tick()?;
        self.intervals.pop()
    }

    /// How many intervals [`Meter::tick`] and [`Meter::tell`] gave.
    pub(super) fn ticked(&self) -> usize {
        self.ticked
    }

    /// Ends the streams and gives the figures; the intervals that were not told are among them. The sockets stay open
    /// until the meter is dropped, so that the peer sees nothing odd before it has been told.
    pub(super) fn finish(&mut self, kernel: Kernel) -> Result<EndReport, TestError> {
        let elapsed = self.elapsed();
        self.close_last_interval(elapsed);
        let bytes = self.counted.iter().sum();
        let mut streams: Vec<_> = self.streams.iter().zip(&self.counted).map(|(s, &b)| self.report(s, b)).collect();
        let (host, mut notes) = match &mut self.host {
            Some(watch) => watch.finish(),
            None => Default::default(),
        };
        notes.extend(remarks(&streams, host.as_ref()));
        self.stop()?;
        for stream in &mut streams {
            let seen = self.seen.iter().find(|(number, _)| *number == stream.stream).map(|(_, seen)| *seen);
            let seen = seen.unwrap_or_default();
            (stream.check, stream.blocks) = (seen.check, seen.blocks);
        }
        Ok(EndReport {
            elapsed,
            bytes,
            mode: Some(self.shared.mode),
            cpu: Some(self.cpu),
            kernel: Some(kernel),
            lfn_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            rate_limit: None,
            started: self.started(),
            host,
            notes,
            streams,
            intervals: std::mem::take(&mut self.intervals),
        })
    }

    /// The start on the monotonic clock, nanoseconds.
    pub(super) fn started(&self) -> Option<u64> {
        let start = u64::try_from(self.start?.as_nanos()).ok()?;
        Some(self.origin_nanos.saturating_add(start))
    }

    /// From the start to the last byte that counts.
    fn elapsed(&self) -> Duration {
        let start = self.start.unwrap_or_default();
        let last = if self.cut_short() {
            self.shared.origin.elapsed()
        } else {
            Duration::from_nanos(self.streams.iter().map(|stream| stream.counter.last()).max().unwrap_or(0))
        };
        last.saturating_sub(start)
    }

    /// Whether something may still be under way at the end, as there is where the clock or the user ends the load.
    fn cut_short(&self) -> bool {
        self.stopped || matches!(self.load, Load::TimeSeconds(_))
    }

    fn take(&mut self, event: Event) -> Result<(), TestError> {
        match event {
            Event::Opened(stream) => {
                self.pace(&stream);
                // In the order of their numbers, whichever was there first: every list of them is told so.
                let place = self.streams.partition_point(|other| other.number < stream.number);
                self.counted.insert(place, 0);
                self.streams.insert(place, *stream);
            }
            Event::Ended { stream, cpu, seen, result } => {
                self.ended += 1;
                self.seen.push((stream, *seen));
                self.cpu.user += cpu.user;
                self.cpu.system += cpu.system;
                result.map_err(|source| TestError::Stream { stream, source })?;
            }
            Event::Failed(error) => return Err((*error).into()),
        }
        Ok(())
    }

    fn next_boundary(&self) -> Duration {
        next_multiple(self.until, self.interval)
    }

    /// When the part that is going on is to end; never where intervals are not cut.
    fn next_part(&self) -> Duration {
        if self.cut == 1 {
            return Duration::MAX;
        }
        next_multiple(self.parts.last().map_or(self.until, |part| part.end), self.interval / u32::from(self.cut))
    }

    fn close_part(&mut self, now: Duration) {
        let total = self.total();
        let bytes = total - std::mem::replace(&mut self.counted_in_parts, total);
        self.parts.push(Part { end: now, bytes });
    }

    fn total(&self) -> u64 {
        self.streams.iter().map(|stream| stream.counter.bytes.load(Ordering::Relaxed)).sum()
    }

    fn close_interval(&mut self, now: Duration) {
        let streams: Vec<_> = self
            .streams
            .iter()
            .zip(&mut self.counted)
            .map(|(stream, counted)| sample(stream, counted, self.sends, self.host.as_mut()))
            .collect();
        let bytes = streams.iter().map(|sample| sample.bytes).sum();
        let mut parts = std::mem::take(&mut self.parts);
        if self.cut > 1 {
            let total = self.counted.iter().sum();
            let bytes = total - std::mem::replace(&mut self.counted_in_parts, total);
            parts.push(Part { end: now, bytes });
        }
        let host = self.host.as_mut().and_then(HostWatch::sample);
        let (start, end) = (self.until, now);
        self.intervals.push(Interval { start, end, bytes, streams, parts, host, ..Interval::default() });
        self.until = now;
    }

    /// What is left over becomes an interval of its own, shorter than the others.
    fn close_last_interval(&mut self, elapsed: Duration) {
        if self.cut_short() || self.ticked == 0 || self.total() > self.counted.iter().sum() {
            self.close_interval(elapsed.max(self.until));
        }
    }

    fn report(&self, stream: &Stream, bytes: u64) -> StreamReport {
        // Buffers under autotuning are of interest as they are at the end.
        let socket = self.options.report(&stream.socket, stream.number).unwrap_or_else(|_| stream.granted.clone());
        let tcp_info = info(stream);
        let thread = self.host.as_ref().and_then(|host| host.whole_thread(stream.number, stream.counter.thread()));
        StreamReport { stream: stream.number, bytes, socket: Some(socket), tcp_info, thread, ..StreamReport::default() }
    }

    fn stop(&mut self) -> Result<(), TestError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A reader wakes from a shut reading side, and its peer notices nothing; a writer from a shut writing side.
        let side = if self.sends { Shutdown::Write } else { Shutdown::Read };
        for stream in &self.streams {
            let _ = stream.socket.shutdown(side);
        }
        let deadline = Instant::now() + STOP_WITHIN;
        while self.ended < self.streams.len() as u16 {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.take(event)?,
                // Its processor time is then missing; it ends by its own deadlines.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Also after an error: no thread goes on.
        self.shared.stop.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            if self.cut_short() || self.ended < self.expected {
                // What is still on its way is of no use: the kernel need not deliver it first.
                let _ = SockRef::from(&stream.socket).set_linger(Some(Duration::ZERO));
            }
            let _ = stream.socket.shutdown(Shutdown::Both);
        }
    }
}

/// The multiple of `step` after `last`: a boundary that was noticed late does not shift the later ones.
pub(super) fn next_multiple(last: Duration, step: Duration) -> Duration {
    let passed = last.as_nanos() / step.as_nanos().max(1);
    let next = (passed + 1).saturating_mul(step.as_nanos());
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
}

fn sample(stream: &Stream, counted: &mut u64, sends: bool, host: Option<&mut HostWatch>) -> StreamSample {
    let total = stream.counter.bytes.load(Ordering::Relaxed);
    let bytes = total - std::mem::replace(counted, total);
    let unread_bytes = if sends { None } else { tcp::unread(&stream.socket).ok() };
    let thread = host.and_then(|host| host.thread(stream.number, stream.counter.thread()));
    let (stream, tcp_info) = (stream.number, info(stream));
    StreamSample { stream, bytes, unread_bytes, tcp_info, thread, ..StreamSample::default() }
}

/// What the kernel says of a stream; nothing of one whose socket it has taken away.
fn info(stream: &Stream) -> Option<TcpInfo> {
    tcp::info(&stream.socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok())
}
