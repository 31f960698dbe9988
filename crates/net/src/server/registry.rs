//! Sessions being put together: control connections and data streams arrive in any order and meet here.
//!
//! A data stream that comes before its control connection is parked for at most [`PARK_FOR`]; it was authenticated,
//! so only a bearer of the ticket can park anything. Each stream keeps its connection's place ([`super::doors`]) as long
//! as it lives, parked or at work, and those that are parked are the first to go where places or files are short.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::{Refusal, RefusalCode};

use super::Connections;
use super::admission::Quotas;
use super::doors::{Doors, Watch};
use crate::session::{DataStream, SessionError};

/// How long a data stream waits for its control connection.
const PARK_FOR: Duration = Duration::from_secs(20);

/// All sessions of a server, and the connections that are none yet.
#[derive(Debug)]
pub(crate) struct Registry {
    doors: Doors,
    /// Data streams of one session.
    streams: u16,
    /// Sessions that have data streams and no control connection yet.
    parked: usize,
    sessions: Arc<Mutex<Sessions>>,
}

/// Locked before the doors: a stream that is dropped lets go of its place there.
type Sessions = HashMap<SessionId, Slot>;

/// One session, from whichever of its connections came first.
#[derive(Debug)]
struct Slot {
    place: Place,
    seen: HashSet<u16>,
    /// Those that live, where one that is gone may be followed by another of a new number.
    renewed: Option<Arc<AtomicUsize>>,
    /// How many streams it may have: as many as any, until it was granted some.
    most: usize,
    /// When it came, or when it ended.
    since: Instant,
}

/// What becomes of a session's data streams.
#[derive(Debug)]
enum Place {
    /// Held until the control connection comes for them, with the number of each one's connection.
    Parked(Vec<(u64, DataStream)>),
    /// Given to the session.
    Open(Sender<DataStream>),
    /// Over: kept only so that streams still under way are not taken for those of a session to come.
    Ended,
}

/// The data streams of an open session, in the order they arrive. Dropping it ends the session's place.
#[derive(Debug)]
pub(crate) struct Streams {
    receiver: Receiver<DataStream>,
    id: SessionId,
    sessions: Arc<Mutex<Sessions>>,
}

impl Registry {
    pub(crate) fn new(limits: Connections, quotas: &Quotas) -> Self {
        let parked = 4 * quotas.all.sessions as usize + quotas.queue as usize;
        Registry { doors: Doors::new(limits), streams: quotas.session_streams, parked, sessions: Arc::default() }
    }

    /// Takes a place for a new connection; `None` if all are taken. A parked stream or a stranger makes place.
    pub(crate) fn watch(&self, socket: &TcpStream, peer: IpAddr) -> Option<Watch> {
        if self.doors.is_full() {
            self.spare_parked();
        }
        self.doors.watch(socket, peer)
    }

    /// Connections that are open, and those of them that have shown no token.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.doors.counts()
    }

    /// Closes some of the strangers and of the parked streams: there are no files left for others.
    pub(crate) fn make_place(&self) {
        self.doors.make_place();
        for _ in 0..self.doors.parked().div_ceil(4) {
            self.spare_parked();
        }
    }

    /// Closes connections that did not show a token in time, and streams whose session never came.
    pub(crate) fn close_overdue(&self) {
        self.doors.close_overdue();
        let now = Instant::now();
        let stays = |slot: &Slot| matches!(slot.place, Place::Open(_));
        lock(&self.sessions).retain(|_, slot| stays(slot) || now < slot.since + PARK_FOR);
    }

    /// Gives a session its streams, those that came already and those that will, and no more than it was `granted`.
    /// `renews`: it is those open at once that count, and one that broke may be followed by another.
    pub(crate) fn open(&self, id: SessionId, granted: u16, renews: bool) -> Result<Streams, Refusal> {
        let mut sessions = lock(&self.sessions);
        let slot = sessions.entry(id).or_insert_with(|| self.slot());
        slot.most = slot.most.min(granted.into());
        slot.renewed = renews.then(Arc::default);
        let Place::Parked(streams) = &mut slot.place else {
            return Err(Refusal::new(RefusalCode::BadMessage, "this session is open already"));
        };
        let (sender, receiver) = channel();
        match renews {
            true => streams.truncate(slot.most),
            false => streams.retain(|(_, stream)| usize::from(stream.stream()) < slot.most),
        }
        for (connection, mut stream) in streams.drain(..) {
            self.doors.known(connection);
            if let Some(live) = &slot.renewed {
                stream.keep_also(Lives::count(live));
            }
            // The other end is in this hand.
            let _ = sender.send(stream);
        }
        slot.place = Place::Open(sender);
        Ok(Streams { receiver, id, sessions: self.sessions.clone() })
    }

    fn slot(&self) -> Slot {
        Slot {
            place: Place::Parked(Vec::new()),
            seen: HashSet::new(),
            renewed: None,
            most: self.streams.into(),
            since: Instant::now(),
        }
    }

    /// Closes the streams of a session that is not let in, those that came already and those that will.
    pub(crate) fn hold(&self, id: SessionId) {
        let mut sessions = lock(&self.sessions);
        let slot = sessions.entry(id).or_insert_with(|| self.slot());
        // Another that is open under this id is none of its business.
        if let Place::Parked(_) = slot.place {
            slot.end();
        }
    }

    /// Hands a data stream to its session, or parks it until the session comes. `watch` is the place of its connection.
    pub(crate) fn deliver(&self, id: SessionId, mut stream: DataStream, watch: Watch) -> Result<(), SessionError> {
        let refused = |code, text: String| Err(SessionError::Refused(Refusal::new(code, text)));
        let mut sessions = lock(&self.sessions);
        let parked = sessions.values().filter(|slot| matches!(slot.place, Place::Parked(_))).count();
        if !sessions.contains_key(&id) && parked >= self.parked {
            return refused(RefusalCode::Full, "too many sessions without a control connection".into());
        }
        let slot = sessions.entry(id).or_insert_with(|| self.slot());
        if slot.is_full() || !slot.has(&stream) {
            return refused(RefusalCode::Limit, format!("more than {} streams", slot.most));
        }
        if !slot.seen.insert(stream.stream()) {
            return refused(RefusalCode::BadMessage, format!("stream {} came twice", stream.stream()));
        }
        let connection = watch.id();
        match &mut slot.place {
            Place::Open(sender) => {
                if !watch.known() {
                    return refused(RefusalCode::Full, "no room for another connection".into());
                }
                stream.keep(watch);
                if let Some(live) = &slot.renewed {
                    stream.keep_also(Lives::count(live));
                }
                // A session that ended meanwhile drops the stream, which closes it.
                let _ = sender.send(stream);
            }
            Place::Parked(streams) => {
                if watch.parks(id) {
                    stream.keep(watch);
                    streams.push((connection, stream));
                }
            }
            Place::Ended => {}
        }
        if let Some(spared) = self.doors.parked_too_many() {
            forget(&mut sessions, spared);
        }
        Ok(())
    }

    /// Closes the parked stream that can best be spared, if there is any.
    fn spare_parked(&self) {
        let mut sessions = lock(&self.sessions);
        if let Some(spared) = self.doors.parked_to_spare() {
            forget(&mut sessions, spared);
        }
    }
}

/// Closes a parked stream. Its number is not given to another: its client sees that it is gone.
fn forget(sessions: &mut Sessions, (session, connection): (SessionId, u64)) {
    if let Some(Slot { place: Place::Parked(streams), .. }) = sessions.get_mut(&session) {
        streams.retain(|(id, _)| *id != connection);
    }
}

impl Slot {
    /// Whether a stream is one of those: they are numbered from 0. Before it is open nobody knows how many there are.
    fn has(&self, stream: &DataStream) -> bool {
        let numbered = usize::from(stream.stream()) < self.most || self.renewed.is_some();
        matches!(self.place, Place::Parked(_)) || numbered
    }

    /// Whether no other stream may come now.
    fn is_full(&self) -> bool {
        let live = |live: &Arc<AtomicUsize>| live.load(Ordering::SeqCst);
        match &self.renewed {
            // One that is gone at the client may still seem to live here when another comes for it.
            Some(renewed) => live(renewed) > self.most + self.most / 4,
            None => self.seen.len() >= self.most,
        }
    }

    /// Closes what is parked, and what comes later.
    fn end(&mut self) {
        self.place = Place::Ended;
        self.since = Instant::now();
    }
}

/// A stream that lives.
struct Lives(Arc<AtomicUsize>);

impl Lives {
    fn count(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::SeqCst);
        Lives(live.clone())
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
        if let Some(slot) = lock(&self.sessions).get_mut(&self.id) {
            slot.end();
        }
    }
}

/// No thread panics while it holds the lock, and the state is whole after every statement.
fn lock(sessions: &Mutex<Sessions>) -> MutexGuard<'_, Sessions> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}
