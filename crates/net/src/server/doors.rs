//! The connections of a port: how many there are, and who makes place when there are too many.
//!
//! Whoever has not shown who it is, is a *stranger*. A data stream that was authenticated and waits for its session is
//! *parked*: a bearer of the ticket can make any number of those, so they are the first to go. All others stay until
//! they close. Of a crowd the client that has most gives way, so that one address cannot shut out another; and an eighth of
//! all places is for strangers alone, so that there is always somebody who hears a newcomer and tells it how things are.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::admission::Client;
use lfn_core::session::SessionId;

use super::Connections;

/// How long a newcomer is not held to be silent: its first word takes half a round trip longer than it does itself.
const NEW_FOR: Duration = Duration::from_secs(1);

/// All connections of a port.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    limits: Connections,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<u64, Standing>,
    strangers: usize,
    parked: usize,
    next: u64,
    /// Places for those that are no strangers.
    room: usize,
}

/// What is known of a connection.
#[derive(Debug)]
enum Standing {
    Stranger(Stranger),
    Parked(Client, SessionId),
    Known(Client),
}

/// A connection that has not shown who it is.
#[derive(Debug)]
struct Stranger {
    socket: TcpStream,
    client: Client,
    since: Instant,
    /// It has said something.
    spoke: bool,
    /// It was told to go.
    closed: Arc<AtomicBool>,
}

/// A connection's place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Watch {
    id: u64,
    closed: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

impl Doors {
    pub(crate) fn new(limits: Connections) -> Self {
        let room = limits.most - limits.most / 8;
        Doors { limits, state: Arc::new(Mutex::new(State { room, ..State::default() })) }
    }

    /// Takes a place for a new connection; `None` if all are taken. Where only those for strangers are, the one that
    /// can best be spared makes place.
    pub(crate) fn watch(&self, socket: &TcpStream, peer: IpAddr) -> Option<Watch> {
        let socket = socket.try_clone().ok()?;
        let (mut state, now) = (lock(&self.state), Instant::now());
        if state.strangers >= self.limits.strangers {
            state.spare_stranger(now);
        }
        if state.connections.len() >= self.limits.most {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let closed = Arc::<AtomicBool>::default();
        let client = Client::of(peer);
        let stranger = Stranger { socket, client, since: now, spoke: false, closed: closed.clone() };
        state.connections.insert(id, Standing::Stranger(stranger));
        state.strangers += 1;
        Some(Watch { id, closed, state: self.state.clone() })
    }

    /// Whether there is no place for another.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.state).connections.len() >= self.limits.most
    }

    /// Connections that are open, and strangers among them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.connections.len(), state.strangers)
    }

    /// Parked streams.
    pub(crate) fn parked(&self) -> usize {
        lock(&self.state).parked
    }

    /// Closes some of the strangers: there are no files left for others.
    pub(crate) fn make_place(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        for _ in 0..state.strangers.div_ceil(4) {
            state.spare_stranger(now);
        }
    }

    /// Closes strangers that did not say in time who they are.
    pub(crate) fn close_overdue(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let within = self.limits.hello_within;
        let strangers = state.connections.values_mut().filter_map(Standing::stranger_mut);
        let closed = strangers.filter(|stranger| stranger.since + within < now).map(Stranger::close).count();
        state.strangers -= closed;
    }

    /// A parked stream that is one too many: of all more than half the connections may be parked, of a client's own a
    /// quarter.
    pub(crate) fn parked_too_many(&self) -> Option<(SessionId, u64)> {
        let (all, own) = ((self.limits.most / 2).max(1), (self.limits.most / 4).max(1));
        let state = lock(&self.state);
        if state.parked <= own {
            return None;
        }
        let (crowd, count) = state.parked_crowd()?;
        (state.parked > all || count > own).then(|| state.oldest_parked(crowd)).flatten()
    }

    /// The parked stream that can best be spared.
    pub(crate) fn parked_to_spare(&self) -> Option<(SessionId, u64)> {
        let state = lock(&self.state);
        let (crowd, _) = state.parked_crowd()?;
        state.oldest_parked(crowd)
    }

    /// A parked stream has its session.
    pub(crate) fn known(&self, id: u64) {
        lock(&self.state).stands(id, Standing::Known);
    }
}

impl State {
    /// Whether a stranger may become more than that: all who are have room, and one client has three quarters of it.
    fn has_room_for(&self, id: u64) -> bool {
        let Some(Standing::Stranger(stranger)) = self.connections.get(&id) else { return true };
        let held = || self.connections.values().filter_map(Standing::holder);
        let own = held().filter(|client| *client == stranger.client).count();
        held().count() < self.room && own < (self.room - self.room / 4).max(1)
    }

    /// Closes the stranger that can best be spared: of the client that has most of them, first one that has said
    /// nothing, first the oldest. Of clients that have as many it is the one that has one the longest.
    fn spare_stranger(&mut self, now: Instant) {
        let open = || self.connections.iter().filter_map(|(id, standing)| Some((*id, standing.stranger()?)));
        let Some((crowd, _)) = crowd(open().map(|(id, stranger)| (stranger.client, id))) else { return };
        let spared = open()
            .filter(|(_, stranger)| stranger.client == crowd)
            .min_by_key(|(id, stranger)| (stranger.spoke || now < stranger.since + NEW_FOR, *id))
            .map(|(id, _)| id);
        if let Some(stranger) = spared.and_then(|id| self.connections.get_mut(&id)?.stranger_mut()) {
            stranger.close();
            self.strangers -= 1;
        }
    }

    fn parked_crowd(&self) -> Option<(Client, usize)> {
        crowd(self.connections.iter().filter_map(|(id, standing)| match standing {
            Standing::Parked(client, _) => Some((*client, *id)),
            _ => None,
        }))
    }

    fn oldest_parked(&self, of: Client) -> Option<(SessionId, u64)> {
        let parked = self.connections.iter().filter_map(|(id, standing)| match standing {
            Standing::Parked(client, session) if *client == of => Some((*session, *id)),
            _ => None,
        });
        parked.min_by_key(|(_, id)| *id)
    }

    /// Gives a connection another standing, unless it was told to go; says whether it has it.
    fn stands(&mut self, id: u64, new: impl FnOnce(Client) -> Standing) -> bool {
        let Some(standing) = self.connections.get_mut(&id) else { return false };
        let client = match standing {
            Standing::Stranger(stranger) if stranger.is_closed() => return false,
            Standing::Stranger(stranger) => stranger.client,
            Standing::Parked(client, _) | Standing::Known(client) => *client,
        };
        let old = std::mem::replace(standing, new(client));
        if matches!(standing, Standing::Parked(..)) {
            self.parked += 1;
        }
        self.forget(&old);
        true
    }

    fn forget(&mut self, old: &Standing) {
        match old {
            Standing::Stranger(stranger) => self.strangers -= usize::from(!stranger.is_closed()),
            Standing::Parked(..) => self.parked -= 1,
            Standing::Known(_) => {}
        }
    }
}

/// The client that has most, the one that has one the longest if several have as many; and how many it has.
fn crowd(connections: impl Iterator<Item = (Client, u64)>) -> Option<(Client, usize)> {
    let mut crowds: HashMap<Client, (usize, u64)> = HashMap::new();
    for (client, id) in connections {
        let (count, oldest) = crowds.entry(client).or_insert((0, id));
        (*count, *oldest) = (*count + 1, id.min(*oldest));
    }
    let most = crowds.into_iter().max_by_key(|(_, (count, oldest))| (*count, Reverse(*oldest)))?;
    Some((most.0, most.1.0))
}

impl Standing {
    /// Whose it is, unless it is a stranger's.
    fn holder(&self) -> Option<Client> {
        match self {
            Standing::Stranger(_) => None,
            Standing::Parked(client, _) | Standing::Known(client) => Some(*client),
        }
    }

    /// Of those that were not told to go.
    fn stranger(&self) -> Option<&Stranger> {
        match self {
            Standing::Stranger(stranger) if !stranger.is_closed() => Some(stranger),
            _ => None,
        }
    }

    fn stranger_mut(&mut self) -> Option<&mut Stranger> {
        match self {
            Standing::Stranger(stranger) if !stranger.is_closed() => Some(stranger),
            _ => None,
        }
    }
}

impl Stranger {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Its thread then sees the end of the stream.
    fn close(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Watch {
    /// Which connection this is.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The connection has said something.
    pub(crate) fn spoke(&self) {
        if let Some(stranger) = lock(&self.state).connections.get_mut(&self.id).and_then(Standing::stranger_mut) {
            stranger.spoke = true;
        }
    }

    /// The connection has shown who it is: it may take its time from here on. False if there is no room for another, or
    /// it was told to go.
    #[must_use = "a connection without room is to be closed"]
    pub(crate) fn known(&self) -> bool {
        let mut state = lock(&self.state);
        state.has_room_for(self.id) && state.stands(self.id, Standing::Known)
    }

    /// The connection is a data stream that has shown its token, and has no session yet. Whether it may be that: not
    /// if it was told to go, or there is no room.
    pub(crate) fn parks(&self, session: SessionId) -> bool {
        let mut state = lock(&self.state);
        state.has_room_for(self.id) && state.stands(self.id, |client| Standing::Parked(client, session))
    }

    /// Whether it was closed here: it took too long, or made place.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The same, to be asked when the place is gone.
    pub(crate) fn closed(&self) -> Arc<AtomicBool> {
        self.closed.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(old) = state.connections.remove(&self.id) {
            state.forget(&old);
        }
    }
}

/// No thread panics while it holds the lock, and the state is whole after every statement.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// A connection's place, and its far end.
    fn arrive(doors: &Doors, from: &str) -> (Option<Watch>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        (doors.watch(&near, from.parse().unwrap()), far)
    }

    fn doors(most: usize, strangers: usize) -> Doors {
        Doors::new(Connections { most, strangers, ..Connections::default() })
    }

    fn is_open((watch, far): &mut (Option<Watch>, TcpStream)) -> bool {
        let watch = watch.as_ref().unwrap();
        assert_eq!(watch.is_closed(), far.read(&mut [0]).is_ok());
        !watch.is_closed()
    }

    #[test]
    fn of_clients_with_as_many_the_oldest_makes_place_whatever_its_address() {
        let doors = doors(8, 3);
        let mut all: Vec<_> = ["::1", "2001:db8::1", "192.0.2.1", "2001:db9::1", "10.0.0.1"]
            .into_iter()
            .map(|address| arrive(&doors, address))
            .collect();
        let open: Vec<bool> = all.iter_mut().map(is_open).collect();
        assert_eq!((open, doors.counts()), (vec![false, false, true, true, true], (5, 3)));
    }

    #[test]
    fn no_crowd_takes_every_place() {
        let doors = doors(16, 16);
        // Two places are a stranger's, and of the others eleven may be one client's.
        let known = |address| arrive(&doors, address).0.filter(Watch::known);
        let of_one: Vec<_> = (0..16).filter_map(|_| known("192.0.2.1")).collect();
        let of_others: Vec<_> = (0..16).filter_map(|_| known("192.0.2.2")).collect();
        assert_eq!((of_one.len(), of_others.len()), (11, 3));
        let parks = |address| arrive(&doors, address).0.filter(|watch| watch.parks(SessionId([7; 16])));
        assert!(parks("192.0.2.3").is_none());
        let newcomer = arrive(&doors, "192.0.2.3").0.unwrap();
        assert!(!newcomer.known(), "it is heard, and told");
        drop(of_others);
        assert!(newcomer.known());
        drop((newcomer, of_one));
        assert_eq!(doors.counts(), (0, 0));
    }

    #[test]
    fn newcomers_are_not_held_to_be_silent() {
        let doors = doors(8, 2);
        let mut spoke = arrive(&doors, "192.0.2.1");
        spoke.0.as_ref().unwrap().spoke();
        let mut new = arrive(&doors, "192.0.2.1");
        lock(&doors.state).spare_stranger(Instant::now());
        assert_eq!((is_open(&mut spoke), is_open(&mut new)), (false, true));
        let mut spoke = arrive(&doors, "192.0.2.1");
        spoke.0.as_ref().unwrap().spoke();
        lock(&doors.state).spare_stranger(Instant::now() + 2 * NEW_FOR);
        assert_eq!((is_open(&mut spoke), is_open(&mut new)), (true, false));
    }

    #[test]
    fn parked_streams_count_and_are_told_when_they_are_too_many() {
        let doors = doors(8, 8);
        let session = SessionId([7; 16]);
        let park = |address| {
            let place = arrive(&doors, address).0.unwrap();
            assert!(place.parks(session));
            place
        };
        let mut parked = vec![park("192.0.2.1"), park("192.0.2.1")];
        assert_eq!((doors.parked_too_many(), doors.counts(), doors.parked()), (None, (2, 0), 2));
        parked.push(park("192.0.2.1"));
        assert_eq!(doors.parked_too_many(), Some((session, parked[0].id())), "a client's quarter");
        drop(parked.remove(0));
        assert_eq!(doors.parked_too_many(), None);
        parked.extend([park("192.0.2.2"), park("192.0.2.3"), park("192.0.2.4")]);
        assert_eq!(doors.parked_too_many(), Some((session, parked[0].id())), "everybody's half");
        doors.known(parked[0].id());
        assert_eq!((doors.parked(), doors.counts()), (4, (5, 0)), "one that has its session stays");
        assert!(doors.parked_to_spare().is_some_and(|(_, id)| id == parked[1].id()));
        drop(parked);
        assert_eq!((doors.parked(), doors.counts()), (0, (0, 0)));
    }
}
