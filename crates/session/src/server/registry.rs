//! Assembly of sessions: control connections and data streams arrive in any order and are matched here.
//!
//! A data stream that arrives before its control connection is parked for at most [`PARK_TIMEOUT`]. It is
//! authenticated, so only holders of a ticket can park streams. Each stream keeps its connection's slot
//! ([`crate::limits::connection_table`]) until it is closed. Parked streams are closed first when slots or file
//! descriptors are short.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SessionId;
use crate::limits::ServerLimits;
use crate::limits::connection_table::{ConnectionLimits, ConnectionSlot, ConnectionTable};
use crate::wire::{Refusal, RefusalCode};
use crate::{DataStream, SessionError};

/// Maximum time that a data stream waits for its control connection.
const PARK_TIMEOUT: Duration = Duration::from_secs(20);

/// All sessions of a server, and its connections that belong to no session yet.
#[derive(Debug)]
pub(crate) struct Registry {
    connections: ConnectionTable,
    max_streams: u16,
    /// Maximum sessions that have data streams but no control connection yet.
    max_parked_sessions: usize,
    sessions: Arc<Mutex<Sessions>>,
}

/// Lock order: this map before the connection table, because a dropped stream frees its slot there.
type Sessions = HashMap<SessionId, SessionSlot>;

/// The streams of one session, created by the connection that arrives first.
#[derive(Debug)]
struct SessionSlot {
    state: SlotState,
    seen_streams: HashSet<u16>,
    /// Number of open streams, for sessions that may replace a broken stream by a new one with a new number.
    open_streams: Option<Arc<AtomicUsize>>,
    /// The server's limit, and later the number of streams that were granted.
    max_streams: usize,
    /// Time of the first connection, or of the end.
    since: Instant,
}

/// State of a session's data streams.
#[derive(Debug)]
enum SlotState {
    /// The streams wait for the control connection. Each has the id of its connection.
    Parked(Vec<(u64, DataStream)>),
    /// New streams go to the session.
    Open(Sender<DataStream>),
    /// The session is over. The slot stays for a while, so that late streams are not taken for those of a new session.
    Ended,
}

/// Data streams of an open session, in the order of arrival. Dropping it ends the session's slot.
#[derive(Debug)]
pub struct SessionStreams {
    receiver: Receiver<DataStream>,
    id: SessionId,
    sessions: Arc<Mutex<Sessions>>,
}

impl Registry {
    pub(crate) fn new(connection_limits: ConnectionLimits, limits: &ServerLimits) -> Self {
        let max_parked_sessions = 4 * limits.total.sessions as usize + limits.total.queue as usize;
        Registry {
            connections: ConnectionTable::new(connection_limits),
            max_streams: limits.session_streams,
            max_parked_sessions,
            sessions: Arc::default(),
        }
    }

    /// Returns the table of all connections.
    pub(crate) fn connections(&self) -> &ConnectionTable {
        &self.connections
    }

    /// Closes a quarter of the parked streams.
    pub(crate) fn evict_parked_quarter(&self) {
        for _ in 0..self.connections.parked_count().div_ceil(4) {
            self.evict_parked();
        }
    }

    /// Closes connections that did not authenticate in time, and streams without a session after [`PARK_TIMEOUT`].
    pub(crate) fn close_overdue(&self) {
        self.connections.close_overdue();
        let now = Instant::now();
        let stays = |slot: &SessionSlot| matches!(slot.state, SlotState::Open(_));
        self.sessions.lock().retain(|_, slot| stays(slot) || now < slot.since + PARK_TIMEOUT);
    }

    /// Opens a session and gives it the parked streams and later ones, `granted` at most. With `renews`, the limit
    /// counts streams that are open at the same time, and a new stream may replace a broken one.
    pub(crate) fn open(&self, id: SessionId, granted: u16, renews: bool) -> Result<SessionStreams, Refusal> {
        let mut sessions = self.sessions.lock();
        let slot = sessions.entry(id).or_insert_with(|| self.new_slot());
        slot.max_streams = slot.max_streams.min(granted.into());
        slot.open_streams = renews.then(Arc::default);
        let SlotState::Parked(streams) = &mut slot.state else {
            return Err(Refusal::new(RefusalCode::BadMessage, "this session is already open"));
        };
        let (sender, receiver) = channel();
        match renews {
            true => streams.truncate(slot.max_streams),
            false => streams.retain(|(_, stream)| usize::from(stream.stream()) < slot.max_streams),
        }
        for (connection, mut stream) in streams.drain(..) {
            self.connections.unpark(connection);
            if let Some(open) = &slot.open_streams {
                stream.attach_also(OpenStreamGuard::count(open));
            }
            // The receiving end is in this function, so the send cannot fail.
            let _ = sender.send(stream);
        }
        slot.state = SlotState::Open(sender);
        Ok(SessionStreams { receiver, id, sessions: self.sessions.clone() })
    }

    fn new_slot(&self) -> SessionSlot {
        SessionSlot {
            state: SlotState::Parked(Vec::new()),
            seen_streams: HashSet::new(),
            open_streams: None,
            max_streams: self.max_streams.into(),
            since: Instant::now(),
        }
    }

    /// Closes the streams of a session that is not admitted, both the parked ones and later ones.
    pub(crate) fn reject_streams(&self, id: SessionId) {
        let mut sessions = self.sessions.lock();
        let slot = sessions.entry(id).or_insert_with(|| self.new_slot());
        // An open session with this id belongs to another client and stays open.
        if let SlotState::Parked(_) = slot.state {
            slot.end();
        }
    }

    /// Gives a data stream to its session, or parks the stream until the session opens. `connection_slot` is the slot
    /// of the stream's connection.
    pub(crate) fn deliver(
        &self,
        id: SessionId,
        mut stream: DataStream,
        connection_slot: ConnectionSlot,
    ) -> Result<(), SessionError> {
        let refused = |code, text: String| Err(SessionError::Refused(Refusal::new(code, text)));
        let mut sessions = self.sessions.lock();
        let parked = sessions.values().filter(|slot| matches!(slot.state, SlotState::Parked(_))).count();
        if !sessions.contains_key(&id) && parked >= self.max_parked_sessions {
            return refused(RefusalCode::Full, "too many sessions without a control connection".into());
        }
        let slot = sessions.entry(id).or_insert_with(|| self.new_slot());
        if slot.is_full() || !slot.accepts_number(&stream) {
            return refused(RefusalCode::Limit, format!("more than {} streams", slot.max_streams));
        }
        if !slot.seen_streams.insert(stream.stream()) {
            return refused(RefusalCode::BadMessage, format!("stream {} was opened twice", stream.stream()));
        }
        let connection = connection_slot.id();
        match &mut slot.state {
            SlotState::Open(sender) => {
                if !connection_slot.authenticate() {
                    return refused(RefusalCode::Full, "no free slot for another connection".into());
                }
                stream.attach(connection_slot);
                if let Some(open) = &slot.open_streams {
                    stream.attach_also(OpenStreamGuard::count(open));
                }
                // A session that has ended meanwhile drops the stream, which closes it.
                let _ = sender.send(stream);
            }
            SlotState::Parked(streams) => {
                if connection_slot.park(id) {
                    stream.attach(connection_slot);
                    streams.push((connection, stream));
                }
            }
            SlotState::Ended => {}
        }
        if let Some((session, connection)) = self.connections.parked_over_limit() {
            close_parked(&mut sessions, session, connection);
        }
        Ok(())
    }

    /// Closes one parked stream: the oldest one of the client with the most.
    pub(crate) fn evict_parked(&self) {
        let mut sessions = self.sessions.lock();
        if let Some((session, connection)) = self.connections.parked_to_evict() {
            close_parked(&mut sessions, session, connection);
        }
    }
}

/// Closes a parked stream. Its number is not used again: the client sees the close.
fn close_parked(sessions: &mut Sessions, session: SessionId, connection: u64) {
    if let Some(SessionSlot { state: SlotState::Parked(streams), .. }) = sessions.get_mut(&session) {
        streams.retain(|(id, _)| *id != connection);
    }
}

impl SessionSlot {
    /// Returns whether the stream's number is in range (numbers start at 0). Before the session is open, the number of
    /// streams is unknown.
    fn accepts_number(&self, stream: &DataStream) -> bool {
        let numbered = usize::from(stream.stream()) < self.max_streams || self.open_streams.is_some();
        matches!(self.state, SlotState::Parked(_)) || numbered
    }

    /// Returns whether the session has all its streams.
    fn is_full(&self) -> bool {
        let open = |open: &Arc<AtomicUsize>| open.load(Ordering::SeqCst);
        match &self.open_streams {
            // A stream that the client closed may still count when its replacement arrives. The quarter allows for this.
            Some(renewed) => open(renewed) > self.max_streams + self.max_streams / 4,
            None => self.seen_streams.len() >= self.max_streams,
        }
    }

    /// Closes the parked streams, and marks the session as over for later ones.
    fn end(&mut self) {
        self.state = SlotState::Ended;
        self.since = Instant::now();
    }
}

/// Counts an open stream until it is dropped.
struct OpenStreamGuard(Arc<AtomicUsize>);

impl OpenStreamGuard {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        OpenStreamGuard(open.clone())
    }
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SessionStreams {
    /// Returns the session's id.
    pub(crate) fn session(&self) -> SessionId {
        self.id
    }

    /// Returns the next data stream that arrives within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<DataStream> {
        self.receiver.recv_timeout(timeout).ok()
    }
}

impl Drop for SessionStreams {
    fn drop(&mut self) {
        if let Some(slot) = self.sessions.lock().get_mut(&self.id) {
            slot.end();
        }
    }
}
