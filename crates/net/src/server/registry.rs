//! Sessions being put together: control connections and data streams arrive in any order and meet here.
//!
//! A data stream that comes before its control connection is parked for at most [`PARK_FOR`]; it was authenticated,
//! so only a bearer of the ticket can park anything, and no more streams than the limit.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::admission::Client;
use lfn_core::session::SessionId;
use lfn_core::wire::{Refusal, RefusalCode};

use super::Connections;
use super::admission::Quotas;
use crate::session::{DataStream, SessionError};

/// How long a data stream waits for its control connection.
const PARK_FOR: Duration = Duration::from_secs(20);

/// All sessions of a server, and the connections that are none yet.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: Connections,
    /// Data streams of one session.
    streams: u16,
    /// Sessions that have data streams and no control connection yet.
    parked: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionId, Slot>,
    /// All that are open, with what is known of those that have shown no token.
    connections: HashMap<u64, Option<Unknown>>,
    strangers: usize,
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
    client: Client,
    deadline: Instant,
    /// It has said something.
    spoke: bool,
    /// It was told to go.
    closed: bool,
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
    pub(crate) fn new(limits: Connections, quotas: &Quotas) -> Self {
        let parked = 4 * quotas.all.sessions as usize + quotas.queue as usize;
        Registry { limits, streams: quotas.session_streams, parked, state: Arc::default() }
    }

    /// Takes a place for a new connection; `None` if all are taken. Where only those for strangers are, the one that
    /// can best be spared makes place.
    pub(crate) fn watch(&self, socket: &TcpStream, peer: IpAddr) -> Option<Watch> {
        let socket = socket.try_clone().ok()?;
        let mut state = lock(&self.state);
        if state.strangers >= self.limits.strangers {
            state.spare_one();
        }
        if state.connections.len() >= self.limits.most {
            return None;
        }
        let id = state.next_connection;
        state.next_connection += 1;
        let deadline = Instant::now() + self.limits.hello_within;
        let unknown = Unknown { socket, client: Client::of(peer), deadline, spoke: false, closed: false };
        state.connections.insert(id, Some(unknown));
        state.strangers += 1;
        Some(Watch { id, state: self.state.clone() })
    }

    /// Connections that are open, and those of them that have shown no token.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.connections.len(), state.strangers)
    }

    /// Closes some of the strangers: there are no files left for others.
    pub(crate) fn make_place(&self) {
        let mut state = lock(&self.state);
        for _ in 0..state.strangers.div_ceil(4) {
            state.spare_one();
        }
    }

    /// Closes connections that did not show a token in time, and streams whose session never came.
    pub(crate) fn close_overdue(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let overdue = |unknown: &&mut Unknown| unknown.deadline < now && !unknown.closed;
        let closed = state.connections.values_mut().flatten().filter(overdue).map(Unknown::close).count();
        state.strangers -= closed;
        let stays = |slot: &Slot| slot.parked.is_none() && !slot.ended;
        state.sessions.retain(|_, slot| stays(slot) || now < slot.since + PARK_FOR);
    }

    /// Gives a session its streams, those that came already and those that will.
    pub(crate) fn open(&self, id: SessionId) -> Result<Streams, Refusal> {
        let mut state = lock(&self.state);
        let slot = state.sessions.entry(id).or_insert_with(Slot::new);
        let Some(receiver) = slot.parked.take() else {
            return Err(Refusal::new(RefusalCode::BadMessage, "this session is open already"));
        };
        Ok(Streams { receiver, id, state: self.state.clone() })
    }

    /// Closes the streams of a session that is not let in, those that came already and those that will.
    pub(crate) fn hold(&self, id: SessionId) {
        let mut state = lock(&self.state);
        let slot = state.sessions.entry(id).or_insert_with(Slot::new);
        // Another that is open under this id is none of its business.
        if slot.parked.is_some() {
            slot.end();
        }
    }

    /// Hands a data stream to its session, or parks it until the session comes.
    pub(crate) fn deliver(&self, id: SessionId, stream: DataStream) -> Result<(), SessionError> {
        let refused = |code, text: String| Err(SessionError::Refused(Refusal::new(code, text)));
        let mut state = lock(&self.state);
        let parked: usize = state.sessions.values().filter(|slot| slot.parked.is_some()).count();
        if !state.sessions.contains_key(&id) && parked >= self.parked {
            return refused(RefusalCode::Full, "too many sessions without a control connection".into());
        }
        let slot = state.sessions.entry(id).or_insert_with(Slot::new);
        if slot.seen.len() >= usize::from(self.streams) {
            return refused(RefusalCode::Limit, format!("more than {} streams", self.streams));
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
    /// The session they belong to.
    pub(crate) fn session(&self) -> SessionId {
        self.id
    }

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
    }
}

impl Unknown {
    /// Its thread then sees the end of the stream.
    fn close(&mut self) {
        self.closed = true;
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl State {
    /// Closes the stranger that can best be spared: of the client that has most of them, first one that has said
    /// nothing, first the oldest.
    fn spare_one(&mut self) {
        let open = || self.connections.iter().filter_map(|(id, unknown)| Some((id, unknown.as_ref()?)));
        let mut crowds: HashMap<Client, usize> = HashMap::new();
        for (_, unknown) in open().filter(|(_, unknown)| !unknown.closed) {
            *crowds.entry(unknown.client).or_default() += 1;
        }
        let Some(crowd) = crowds.into_iter().max_by_key(|(client, count)| (*count, *client)) else { return };
        let of_crowd = open().filter(|(_, unknown)| unknown.client == crowd.0 && !unknown.closed);
        let spared = of_crowd.min_by_key(|(id, unknown)| (unknown.spoke, **id)).map(|(id, _)| *id);
        if let Some(unknown) = spared.and_then(|id| self.connections.get_mut(&id)?.as_mut()) {
            unknown.close();
            self.strangers -= 1;
        }
    }
}

impl Watch {
    /// The connection has said something.
    pub(crate) fn spoke(&self) {
        if let Some(Some(unknown)) = lock(&self.state).connections.get_mut(&self.id) {
            unknown.spoke = true;
        }
    }

    /// The connection has shown a token: it may take its time from here on.
    pub(crate) fn known(&self) {
        let mut state = lock(&self.state);
        let unknown = state.connections.get_mut(&self.id).and_then(Option::take);
        state.strangers -= usize::from(unknown.is_some_and(|unknown| !unknown.closed));
    }

    /// Whether it was closed here: it took too long, or made place.
    pub(crate) fn is_closed(&self) -> bool {
        let state = lock(&self.state);
        state.connections.get(&self.id).and_then(Option::as_ref).is_some_and(|unknown| unknown.closed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        let unknown = state.connections.remove(&self.id).flatten();
        state.strangers -= usize::from(unknown.is_some_and(|unknown| !unknown.closed));
    }
}

/// No thread panics while it holds the lock, and the state is whole after every statement.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
