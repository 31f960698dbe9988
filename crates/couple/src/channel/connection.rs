//! The threads of one connection: each data stream has one direction and one thread.
//!
//! Streams with an even number carry data from the side that dials, streams with an odd number to it. The first stream of each
//! direction carries events, keep-alives and small fields. The others carry large fields.
//!
//! The streams of small fields use the congestion control reno, and a keep-alive has a payload. A small field then leaves in one
//! burst. BBR would pace it over an RTT, and a connection without traffic loses its congestion window after a retransmission
//! timeout (RFC 2861, RFC 5681 section 4.1).

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::tcp_info::TcpInfo;
use lfn_session::transport::{Handle, is_timeout};
use lfn_session::wire::RefusalCode;
use lfn_session::{Control, DataStream, SessionError};
use parking_lot::{Mutex, MutexGuard};

use super::error::ChannelError;
use super::event::ChannelEvent;
use super::padding;
use super::shared::{LinkState, Shared, State};
use crate::fields::{Chunk, FieldClass};
use crate::wire::{CHUNK_BYTES, Frame, FrameKind, HEADER_BYTES, MAX_TEXT, PADDING_BYTES, WireError};

/// Maximum interval of the keep-alives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval of the keep-alives on a path with a long delay. It is below every retransmission timeout (RFC 6298, 200 ms on
/// Linux).
const MIN_KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(50);

/// Time without any byte from the partner after which the connection counts as lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum wait for the arrival of the padding.
const MAX_PADDING_TIME: Duration = Duration::from_secs(5);

/// Interval of the checks whether the padding has arrived.
const PADDING_POLL: Duration = Duration::from_millis(2);

/// Interval at which the control connection is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum characters of a text from the partner.
const MAX_SHOWN: usize = 500;

/// Maximum time for the end of a connection after the last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Direction of the streams that a side writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Dials,
    Listens,
}

/// One connection, and the reason of its end.
struct Connection<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    role: Role,
    handles: Vec<Arc<dyn Handle>>,
    /// First reason for the end.
    reason: Mutex<Option<String>>,
}

/// Runs an agreed connection until it ends. Returns the reason.
pub fn run(shared: &Arc<Shared>, number: u64, control: &mut Control, streams: Vec<DataStream>, role: Role) -> String {
    let handles = streams.iter().map(|stream| stream.handle().clone()).collect();
    let connection = Connection { shared, number, role, handles, reason: Mutex::default() };
    let own_parity = u16::from(role == Role::Listens);
    let (mut writes, mut reads): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for stream in streams {
        if stream.stream() % 2 == own_parity { writes.push(stream) } else { reads.push(stream) }
    }
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, stream) in writes.into_iter().enumerate() {
            let connection = &connection;
            let work =
                move || if place == 0 { connection.write_events(stream) } else { connection.write_large(stream) };
            threads.push(scope.spawn(move || connection.note(work())));
        }
        for (place, stream) in reads.into_iter().enumerate() {
            let connection = &connection;
            threads.push(scope.spawn(move || connection.note(connection.read(stream, place == 0))));
        }
        let mut over_since = None;
        while threads.iter().any(|thread| !thread.is_finished()) {
            connection.watch(control);
            if shared.is_over() {
                let since = *over_since.get_or_insert_with(Instant::now);
                if since.elapsed() > CLOSE_TIMEOUT {
                    connection.end("the partner did not close the connection".to_owned());
                }
            }
        }
    });
    let reason = connection.reason.lock().take();
    reason.unwrap_or_else(|| "the connection was closed".to_owned())
}

impl Connection<'_> {
    /// Ends the connection. The first reason counts.
    fn end(&self, reason: String) {
        self.reason.lock().get_or_insert(reason);
        self.handles.iter().for_each(|handle| handle.abort());
        self.shared.wake();
    }

    /// Ends the connection if a thread failed.
    fn note(&self, result: Result<(), EndReason>) {
        match result {
            Ok(()) => {}
            Err(EndReason::Lost(error)) => self.end(describe(&error)),
            Err(EndReason::Invalid(problem)) => {
                let partner = self.shared.partner.clone();
                let problem = problem.to_string();
                self.shared.fail(ChannelError::Protocol { partner, problem: problem.clone() });
                self.end(problem);
            }
        }
    }

    /// Checks the control connection for a refusal or its end.
    fn watch(&self, control: &mut Control) {
        match control.poll::<serde::de::IgnoredAny>(POLL_INTERVAL, "during the run") {
            Ok(_) => {}
            Err(SessionError::Refused(refusal)) => {
                if !matches!(refusal.code, RefusalCode::Full | RefusalCode::Stopped) {
                    self.shared.fail(SessionError::Refused(refusal.clone()).into());
                }
                self.end(refusal.to_string());
            }
            Err(error) => {
                // The data streams end by themselves after the last message.
                if !self.shared.is_over() {
                    self.end(error.to_string());
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.reason.lock().is_some()
    }

    /// Sends events, keep-alives and small fields.
    fn write_events(&self, mut stream: DataStream) -> Result<(), EndReason> {
        let mut sent = SentEvents::default();
        let mut buffer = Vec::with_capacity(64 * 1024 + 1024);
        let mut last = Instant::now();
        let rtt = self.shared.state.lock().link.rtt;
        let (interval, keep_alive) = keep_alive(padding::is_needed(self.shared, rtt), rtt);
        let rest = padding::bytes(self.shared, rtt).saturating_sub(padding::FIRST_BYTES);
        stream.write_all(&padding::frames(rest)).and_then(|()| stream.flush())?;
        self.wait_for_padding(&stream);
        if self.role == Role::Listens {
            sent.collect(self.shared, &mut self.shared.state.lock(), &mut buffer);
            // The partner starts when it has these events. Both models then start at the same time.
            self.shared.state.lock().link.epoch = Some(Instant::now() + rtt / 2);
            stream.write_all(&buffer).and_then(|()| stream.flush())?;
            thread::sleep(rtt / 2);
            self.shared.ready(self.number);
        } else {
            self.note_start_condition(|link| link.is_padded = true);
        }
        loop {
            buffer.clear();
            let (chunk, is_last) = {
                let mut state = self.shared.state.lock();
                loop {
                    if self.has_ended() {
                        return Ok(());
                    }
                    let is_last = sent.collect(self.shared, &mut state, &mut buffer);
                    let chunk = state.outbox.next_chunk(FieldClass::Small);
                    if chunk.is_some() || is_last || !buffer.is_empty() {
                        break (chunk, is_last);
                    }
                    let timeout = interval.saturating_sub(last.elapsed());
                    if timeout.is_zero() {
                        buffer.extend_from_slice(&keep_alive);
                        break (None, false);
                    }
                    self.wait_for_work(&mut state, timeout);
                }
            };
            if let Some(chunk) = &chunk {
                buffer.extend(self.header(chunk));
                buffer.extend_from_slice(&chunk.data[chunk.range.clone()]);
                self.shared.changed.notify_all();
                self.count_nan(chunk);
            }
            stream.write_all(&buffer).and_then(|()| stream.flush())?;
            last = Instant::now();
            if is_last {
                return Ok(stream.finish()?);
            }
        }
    }

    /// Waits until the padding of the stream has arrived at the partner: then the first fields leave in one burst. The partner's
    /// thread reads the padding meanwhile, so that its receive window grows, too.
    fn wait_for_padding(&self, stream: &DataStream) {
        let deadline = Instant::now() + MAX_PADDING_TIME;
        let has_arrived = |info: TcpInfo| info.unacked_segments == 0 && info.notsent_bytes.unwrap_or(0) == 0;
        while Instant::now() < deadline && !self.has_ended() && !stream.handle().info().is_none_or(has_arrived) {
            thread::sleep(PADDING_POLL);
        }
    }

    /// Notes one of the two conditions under which the side that dials starts: its padding has arrived, and the partner is ready.
    fn note_start_condition(&self, note: impl FnOnce(&mut LinkState)) {
        let is_ready = {
            let mut state = self.shared.state.lock();
            note(&mut state.link);
            let link = &state.link;
            link.is_padded && link.is_partner_ready && !link.is_ready
        };
        if is_ready {
            self.shared.ready(self.number);
        }
    }

    /// Sends the parts of large fields until the run is over.
    fn write_large(&self, mut stream: DataStream) -> Result<(), EndReason> {
        loop {
            let chunk = {
                let mut state = self.shared.state.lock();
                loop {
                    if self.has_ended() {
                        return Ok(());
                    }
                    if let Some(chunk) = state.outbox.next_chunk(FieldClass::Large) {
                        break Some(chunk);
                    }
                    if state.is_over() {
                        break None;
                    }
                    self.wait_for_work(&mut state, KEEP_ALIVE_INTERVAL);
                }
            };
            let Some(chunk) = chunk else { return Ok(stream.finish()?) };
            // A put may wait for room.
            self.shared.changed.notify_all();
            let header = self.header(&chunk);
            self.count_nan(&chunk);
            stream.write_all(&header)?;
            stream.write_all(&chunk.data[chunk.range])?;
            stream.flush()?;
        }
    }

    fn wait_for_work(&self, state: &mut MutexGuard<'_, State>, timeout: Duration) {
        // The end of the connection is announced without the lock, so that a wake-up can be missed: the wait is short.
        self.shared.work.wait_for(state, timeout.min(KEEP_ALIVE_INTERVAL));
    }

    fn header(&self, chunk: &Chunk) -> [u8; HEADER_BYTES] {
        let variable = self.shared.state.lock().outbox.number(chunk.variable);
        let (offset, length) = (chunk.range.start as u64, chunk.range.len() as u32);
        Frame { kind: FrameKind::Chunk, variable, step: chunk.step, offset, length }.encode()
    }

    /// Counts the elements of a chunk that are not a number, and reports the first ones.
    fn count_nan(&self, chunk: &Chunk) {
        let element = self.shared.state.lock().outbox.element(chunk.variable);
        let count = element.count_nan(&chunk.data[chunk.range.clone()]);
        let variable = {
            let mut state = self.shared.state.lock();
            let is_first = state.outbox.chunk_counted(chunk.variable, count);
            is_first.then(|| state.outbox.names().swap_remove(chunk.variable))
        };
        // The end of the run waits for the last count.
        self.shared.work.notify_all();
        if let Some(variable) = variable {
            self.shared.emit(&ChannelEvent::NotANumber { variable, step: chunk.step, count });
        }
    }

    /// Reads one stream to its end.
    fn read(&self, mut stream: DataStream, has_events: bool) -> Result<(), EndReason> {
        // Keep-alives pass the stream of events only.
        stream.set_read_timeout(has_events.then_some(SILENCE_TIMEOUT))?;
        let mut payload = vec![0; CHUNK_BYTES];
        loop {
            let mut header = [0; HEADER_BYTES];
            if !read_header(&mut stream, &mut header)? {
                // The last message passes the stream of events, and may arrive later than the end of the other streams.
                let is_end = !has_events || self.shared.is_over() || self.has_ended();
                return if is_end { Ok(()) } else { Err(EndReason::Lost(io::ErrorKind::UnexpectedEof.into())) };
            }
            let frame = Frame::decode(&header).map_err(EndReason::Invalid)?;
            let length = frame.length as usize;
            if length > payload.len() {
                payload.resize(length.min(MAX_TEXT), 0);
            }
            stream.read_exact(&mut payload[..length])?;
            self.accept(&frame, &payload[..length])?;
        }
    }

    fn accept(&self, frame: &Frame, payload: &[u8]) -> Result<(), EndReason> {
        let (mut events, arrival) = (Vec::new(), Instant::now());
        {
            let mut state = self.shared.state.lock();
            if state.link.current != Some(self.number) {
                return Ok(());
            }
            state.link.last_arrival = Some(arrival);
            match frame.kind {
                FrameKind::Chunk => self.accept_chunk(&mut state, frame, payload, &mut events)?,
                FrameKind::Consumed => {
                    if !state.outbox.consumed(frame.variable, frame.step) {
                        return Err(EndReason::Invalid(WireError::Step { step: frame.step }));
                    }
                }
                FrameKind::Step => {
                    // Steps that began before the connection have the time 0.
                    let since = (frame.offset > 0).then(|| Duration::from_micros(frame.offset));
                    let time = state.link.epoch.zip(since).and_then(|(epoch, since)| epoch.checked_add(since));
                    state.partner.begin_step(frame.step, time);
                    if state.partner.lost_at_step.is_none() {
                        state.link.end_outage();
                    }
                }
                FrameKind::Checkpoint => {
                    state.partner.announce(frame.step);
                    state.accept_checkpoints();
                }
                FrameKind::Confirmed => {
                    let confirmed = state.confirmed.max(Some(frame.step)).min(state.checkpoint);
                    if confirmed > state.confirmed {
                        state.confirmed = confirmed;
                        events.extend(confirmed.map(|step| ChannelEvent::CheckpointConfirmed { step }));
                    }
                }
                FrameKind::Leaving => state.partner.leaving = Some(text_of(payload)),
                FrameKind::Window => state.outbox.set_window(frame.offset),
                FrameKind::KeepAlive => {}
                FrameKind::Ended => state.partner.end = Some(frame.step),
                FrameKind::Finished => {
                    let report =
                        serde_json::from_slice(payload).map_err(|_| EndReason::Invalid(WireError::InvalidText))?;
                    state.partner.finished = Some(report);
                    events.push(ChannelEvent::PartnerFinished { partner: self.shared.partner.clone() });
                }
                FrameKind::Stop => {
                    let reason = text_of(payload);
                    let partner = self.shared.partner.clone();
                    state.failure.get_or_insert(ChannelError::StoppedByPartner { partner, reason });
                }
            }
        }
        self.shared.wake();
        events.iter().for_each(|event| self.shared.emit(event));
        // The window is among the first events of a connection.
        if frame.kind == FrameKind::Window && self.role == Role::Dials {
            self.note_start_condition(|link| {
                link.is_partner_ready = true;
                link.epoch.get_or_insert(arrival);
            });
        }
        Ok(())
    }

    fn accept_chunk(
        &self,
        state: &mut State,
        frame: &Frame,
        payload: &[u8],
        events: &mut Vec<ChannelEvent>,
    ) -> Result<(), EndReason> {
        let rtt = state.link.rtt;
        if let Some(window) = state.window.add(payload.len() as u64, rtt, Instant::now()) {
            state.inbox.set_window(window);
        }
        let arrived = state.inbox.accept(frame, payload).map_err(EndReason::Invalid)?;
        if arrived.is_some() {
            state.accept_checkpoints();
        }
        let nan = arrived.and_then(|arrived| arrived.first_nan.map(|count| (arrived, count)));
        events.extend(nan.map(|(arrived, count)| ChannelEvent::NotANumber {
            variable: arrived.variable,
            step: arrived.step,
            count,
        }));
        Ok(())
    }
}

/// Events that a connection has sent. Each event is a state of which only the newest value counts.
#[derive(Debug, Default)]
struct SentEvents {
    step: Option<u64>,
    checkpoint: Option<u64>,
    confirmed: Option<u64>,
    unread: Vec<(u16, u64)>,
    window: u64,
    has_ended: bool,
    is_finished: bool,
}

impl SentEvents {
    /// Appends the events that are new. Returns true if no event follows.
    fn collect(&mut self, shared: &Shared, state: &mut State, buffer: &mut Vec<u8>) -> bool {
        let mut push = |frame: Frame| buffer.extend(frame.encode());
        if state.checkpoint != self.checkpoint {
            self.checkpoint = state.checkpoint;
            push(Frame::event(FrameKind::Checkpoint, 0, state.checkpoint.unwrap_or(0)));
        }
        if state.partner.checkpoint != self.confirmed {
            self.confirmed = state.partner.checkpoint;
            push(Frame::event(FrameKind::Confirmed, 0, self.confirmed.unwrap_or(0)));
        }
        if let Some((step, time)) = state.step.filter(|(step, _)| self.step != Some(*step)) {
            self.step = Some(step);
            let since = state.link.epoch.map_or(Duration::ZERO, |epoch| time.saturating_duration_since(epoch));
            let offset = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
            push(Frame { offset, ..Frame::event(FrameKind::Step, 0, step) });
        }
        let unread = state.inbox.unread();
        for (place, (number, next)) in unread.iter().enumerate() {
            let before = self.unread.get(place).map_or(0, |(_, before)| *before);
            if *next > before {
                push(Frame::event(FrameKind::Consumed, *number, next - 1));
            }
        }
        self.unread = unread;
        let window = state.window.window();
        if window != self.window {
            self.window = window;
            push(Frame { offset: window, ..Frame::event(FrameKind::Window, 0, 0) });
        }
        let end = [(FrameKind::Stop, &state.stop), (FrameKind::Leaving, &state.leaving)];
        if let Some((kind, reason)) = end.into_iter().find_map(|(kind, reason)| Some((kind, reason.as_ref()?))) {
            append_text(kind, reason.as_bytes(), buffer);
            return true;
        }
        match &state.failure {
            Some(ChannelError::StoppedByPartner { .. }) => return true,
            Some(failure) => {
                append_text(FrameKind::Stop, failure.to_string().as_bytes(), buffer);
                return true;
            }
            None => {}
        }
        if self.is_finished {
            return state.is_over();
        }
        let Some(report) = &state.finishing else { return false };
        if !std::mem::replace(&mut self.has_ended, true) {
            buffer.extend(Frame::event(FrameKind::Ended, 0, report.first_step + report.steps).encode());
        }
        let has_all = state.partner.end.is_some_and(|end| state.inbox.has_all_before(end));
        let is_complete = state.outbox.is_drained() && has_all;
        if !is_complete && state.partner.finished.is_none() {
            return false;
        }
        let mut report = report.clone();
        report.sent = state.outbox.tallies();
        report.received = state.inbox.tallies();
        report.disconnected = state.link.disconnected;
        report.reconnects = state.link.count - 1;
        report.partner_restarts = state.link.partner_restarts;
        append_text(FrameKind::Finished, &serde_json::to_vec(&report).unwrap_or_default(), buffer);
        state.finished = Some(report);
        self.is_finished = true;
        shared.wake();
        state.is_over()
    }
}

/// Returns the interval of the keep-alives, and the bytes of one.
fn keep_alive(is_padded: bool, rtt: Duration) -> (Duration, Vec<u8>) {
    if is_padded {
        let interval = (rtt / 8).clamp(MIN_KEEP_ALIVE_INTERVAL, KEEP_ALIVE_INTERVAL);
        return (interval, padding::frame(PADDING_BYTES));
    }
    (KEEP_ALIVE_INTERVAL, padding::frame(0))
}

/// Returns the text of a message in one line.
fn text_of(payload: &[u8]) -> String {
    printable(&String::from_utf8_lossy(payload), MAX_SHOWN)
}

/// Returns at most `max` characters of a text from the partner, without control characters.
pub fn printable(text: &str, max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(max).collect()
}

fn append_text(kind: FrameKind, text: &[u8], buffer: &mut Vec<u8>) {
    let text = &text[..text.len().min(MAX_TEXT)];
    buffer.extend(Frame { kind, variable: 0, step: 0, offset: 0, length: text.len() as u32 }.encode());
    buffer.extend_from_slice(text);
}

/// Reads a header. Returns false at the end of the stream before its first byte.
fn read_header(stream: &mut DataStream, header: &mut [u8; HEADER_BYTES]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match stream.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reason for the end of a thread.
enum EndReason {
    Lost(io::Error),
    Invalid(WireError),
}

impl From<io::Error> for EndReason {
    fn from(error: io::Error) -> Self {
        EndReason::Lost(error)
    }
}

fn describe(error: &io::Error) -> String {
    if is_timeout(error) {
        return format!("nothing arrived for {} s", SILENCE_TIMEOUT.as_secs());
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            "the partner closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}
