//! Sessions being put together: control connections and data streams arrive in any order and meet here.
//!
//! A data stream that comes before its control connection is parked for at most [`PARK_FOR`]; it was authenticated,
//! so only a bearer of the ticket can park anything, and no more streams than the limit.

use std::collections::{HashMap, HashSet};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::{Refusal, RefusalCode};

use super::Limits;
use crate::session::{DataStream, SessionError};

/// How long a data stream waits for its control connection.
const PARK_FOR: Duration = Duration::from_secs(20);

/// All sessions of a server, and the connections that are none yet.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionId, Slot>,
    open: usize,
    connections: HashMap<u64, Option<Unknown>>,
    next_connection: u64,
}

/// One session, from whichever of its connections came first.
#[derive(Debug)]
struct Slot {
    sender: Sender<DataStream>,
    /// Held until the control connection comes for it.
    parked: Option<Receiver<DataStream>>,
    seen: HashSet<u16>,
    /// When it came, or when it ended.
    since: Instant,
    /// Over: kept only so that streams still under way are not taken for those of a session to come.
    ended: bool,
}

/// A connection that has not shown a token.
#[derive(Debug)]
struct Unknown {
    socket: TcpStream,
    deadline: Instant,
}

/// The data streams of an open session, in the order they arrive. Dropping it ends the session's place.
#[derive(Debug)]
pub(crate) struct Streams {
    receiver: Receiver<DataStream>,
    id: SessionId,
    state: Arc<Mutex<State>>,
}

/// A connection's place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Watch {
    id: u64,
    state: Arc<Mutex<State>>,
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Self {
        Registry { limits, state: Arc::default() }
    }

    /// Takes a place for a new connection; `None` if all are taken.
    pub(crate) fn watch(&self, socket: &TcpStream) -> Option<Watch> {
        let socket = socket.try_clone().ok()?;
        let mut state = lock(&self.state);
        if state.connections.len() >= self.limits.connections {
            return None;
        }
        let id = state.next_connection;
        state.next_connection += 1;
        state.connections.insert(id, Some(Unknown { socket, deadline: Instant::now() + self.limits.hello_within }));
        Some(Watch { id, state: self.state.clone() })
    }

    /// Closes connections that did not show a token in time, and streams whose session never came.
    pub(crate) fn close_overdue(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        for unknown in state.connections.values().flatten().filter(|unknown| unknown.deadline < now) {
            // Its thread then sees the end of the stream.
            let _ = unknown.socket.shutdown(Shutdown::Both);
        }
        let stays = |slot: &Slot| slot.parked.is_none() && !slot.ended;
        state.sessions.retain(|_, slot| stays(slot) || now < slot.since + PARK_FOR);
    }

    /// Gives a session its streams, those that came already and those that will.
    pub(crate) fn open(&self, id: SessionId) -> Result<Streams, Refusal> {
        let mut state = lock(&self.state);
        if state.open >= self.limits.sessions {
            state.sessions.entry(id).or_insert_with(Slot::new).end();
            return Err(Refusal::new(
                RefusalCode::Full,
                format!("the server is full: it serves {} sessions at once", self.limits.sessions),
            )
            .hint("try again later, or start `lfn serve` with a larger --max-sessions"));
        }
        let slot = state.sessions.entry(id).or_insert_with(Slot::new);
        let Some(receiver) = slot.parked.take() else {
            return Err(Refusal::new(RefusalCode::BadMessage, "this session is open already"));
        };
        state.open += 1;
        Ok(Streams { receiver, id, state: self.state.clone() })
    }

    /// Hands a data stream to its session, or parks it until the session comes.
    pub(crate) fn deliver(&self, id: SessionId, stream: DataStream) -> Result<(), SessionError> {
        let refused = |code, text: String| Err(SessionError::Refused(Refusal::new(code, text)));
        let mut state = lock(&self.state);
        let parked: usize = state.sessions.values().filter(|slot| slot.parked.is_some()).count();
        if !state.sessions.contains_key(&id) && parked >= self.limits.sessions * 4 {
            return refused(RefusalCode::Full, "too many sessions without a control connection".into());
        }
        let slot = state.sessions.entry(id).or_insert_with(Slot::new);
        if slot.seen.len() >= usize::from(self.limits.streams) {
            return refused(RefusalCode::Limit, format!("more than {} streams", self.limits.streams));
        }
        if !slot.seen.insert(stream.stream()) {
            return refused(RefusalCode::BadMessage, format!("stream {} came twice", stream.stream()));
        }
        // A session that ended meanwhile drops the stream, which closes it.
        let _ = slot.sender.send(stream);
        Ok(())
    }
}

impl Slot {
    fn new() -> Self {
        let (sender, receiver) = channel();
        Slot { sender, parked: Some(receiver), seen: HashSet::new(), since: Instant::now(), ended: false }
    }

    /// Closes what is parked, and what comes later.
    fn end(&mut self) {
        self.parked = None;
        self.ended = true;
        self.since = Instant::now();
    }
}

impl Streams {
    /// The next data stream that arrives within `within`.
    pub(crate) fn next(&self, within: Duration) -> Option<DataStream> {
        self.receiver.recv_timeout(within).ok()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(slot) = state.sessions.get_mut(&self.id) {
            slot.end();
        }
        state.open -= 1;
    }
}

impl Watch {
    /// The connection has shown a token: it may take its time from here on.
    pub(crate) fn known(&self) {
        if let Some(unknown) = lock(&self.state).connections.get_mut(&self.id) {
            *unknown = None;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.state).connections.remove(&self.id);
    }
}

/// No thread panics while it holds the lock, and the state is whole after every statement.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
