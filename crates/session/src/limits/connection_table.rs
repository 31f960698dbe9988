//! The connections of a port: their number, and which ones are closed when there are too many.
//!
//! A connection is unauthenticated, parked or authenticated. A parked connection is an authenticated data stream that
//! waits for its session. The holder of a ticket can open any number of parked streams, so they are closed first.
//! Authenticated connections stay open. Of the unauthenticated ones, the client with the most loses one, so that one
//! address cannot exclude another. An eighth of all slots is reserved for unauthenticated connections, so that a new
//! client always gets an answer.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SessionId;
use crate::limits::Client;
use crate::transport::{DEAD_PEER_TIMEOUT, Handle};

/// Default of [`ConnectionLimits::hello_timeout`]: sixteen round trips of a 600 ms path, which leaves room for losses.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Age below which an unauthenticated connection does not count as silent. Its first data arrives half a round trip
/// later than the connection.
const SILENCE_GRACE: Duration = Duration::from_secs(1);

/// Limits of the connections of a port. Each one is a flag of `lfn serve`.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum connections, data streams included.
    pub max_connections: usize,
    /// Maximum connections without authentication. When full, the oldest one of the client with the most is closed.
    pub max_unauthenticated: usize,
    /// Maximum time from accept(2) to the end of the hello.
    pub hello_timeout: Duration,
    /// Maximum time without a message from the client of a session.
    pub silence_timeout: Duration,
}

impl ConnectionLimits {
    /// Open files that are reserved for all else.
    const RESERVED_FILES: u64 = 64;

    /// Open files of a connection: its socket, and another handle of it while it is unauthenticated or carries a data
    /// stream. The third is for a file that the stream writes.
    const FILES_PER_CONNECTION: u64 = 3;

    /// Minimum number of connections, whatever the limit of open files.
    pub const MIN_CONNECTIONS: usize = 8;

    /// Returns the open files that a server needs for this number of connections.
    pub fn open_files(connections: usize) -> u64 {
        Self::RESERVED_FILES + Self::FILES_PER_CONNECTION * connections as u64
    }

    /// Returns the maximum number of connections of a process that may have `limit` open files.
    pub fn max_for_open_files(limit: u64) -> usize {
        let connections = limit.saturating_sub(Self::RESERVED_FILES) / Self::FILES_PER_CONNECTION;
        usize::try_from(connections).unwrap_or(usize::MAX).max(Self::MIN_CONNECTIONS)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            max_connections: 4096,
            max_unauthenticated: 1024,
            hello_timeout: HELLO_TIMEOUT,
            silence_timeout: DEAD_PEER_TIMEOUT,
        }
    }
}

/// All connections of a port.
#[derive(Debug, Clone)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    state: Arc<Mutex<TableState>>,
}

#[derive(Debug, Default)]
struct TableState {
    connections: HashMap<u64, ConnectionState>,
    unauthenticated: usize,
    parked: usize,
    next_id: u64,
    /// Maximum connections that are parked or authenticated.
    max_authenticated: usize,
}

#[derive(Debug)]
enum ConnectionState {
    Unauthenticated(Unauthenticated),
    Parked(Client, SessionId),
    Authenticated(Client),
}

/// A connection that has not authenticated yet.
#[derive(Debug)]
struct Unauthenticated {
    handle: Arc<dyn Handle>,
    client: Client,
    accepted_at: Instant,
    has_sent_data: bool,
    /// The server closed the connection.
    closed: Arc<AtomicBool>,
}

/// A connection's slot in the table. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    id: u64,
    closed: Arc<AtomicBool>,
    state: Arc<Mutex<TableState>>,
}

impl ConnectionTable {
    /// Creates an empty table with these limits.
    pub fn new(limits: ConnectionLimits) -> Self {
        let max_authenticated = limits.max_connections - limits.max_connections / 8;
        ConnectionTable {
            limits,
            state: Arc::new(Mutex::new(TableState { max_authenticated, ..TableState::default() })),
        }
    }

    /// Adds a new connection; `None` if all slots are in use. If only the slots of unauthenticated connections are in
    /// use, one of these is closed.
    pub fn add(&self, connection: &Arc<dyn Handle>, peer: IpAddr) -> Option<ConnectionSlot> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if state.unauthenticated >= self.limits.max_unauthenticated {
            state.evict_unauthenticated(now);
        }
        if state.connections.len() >= self.limits.max_connections {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        let closed = Arc::<AtomicBool>::default();
        let client = Client::of(peer);
        let connection = Unauthenticated {
            handle: connection.clone(),
            client,
            accepted_at: now,
            has_sent_data: false,
            closed: closed.clone(),
        };
        state.connections.insert(id, ConnectionState::Unauthenticated(connection));
        state.unauthenticated += 1;
        Some(ConnectionSlot { id, closed, state: self.state.clone() })
    }

    /// Returns whether all slots are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().connections.len() >= self.limits.max_connections
    }

    /// Returns the number of open connections, and of the unauthenticated ones among them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.connections.len(), state.unauthenticated)
    }

    pub(crate) fn parked_count(&self) -> usize {
        self.state.lock().parked
    }

    /// Closes a quarter of the unauthenticated connections, because the process has no free file descriptors.
    pub fn evict_quarter(&self) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        for _ in 0..state.unauthenticated.div_ceil(4) {
            state.evict_unauthenticated(now);
        }
    }

    /// Closes connections that did not authenticate in time.
    pub(crate) fn close_overdue(&self) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        let timeout = self.limits.hello_timeout;
        let unauthenticated = state.connections.values_mut().filter_map(ConnectionState::unauthenticated_mut);
        let closed = unauthenticated
            .filter(|connection| connection.accepted_at + timeout < now)
            .map(Unauthenticated::close)
            .count();
        state.unauthenticated -= closed;
    }

    /// Returns the parked stream to close, if too many are parked: more than half of all connections, or more than a
    /// quarter of them by one client.
    pub(crate) fn parked_over_limit(&self) -> Option<(SessionId, u64)> {
        let (all, own) = ((self.limits.max_connections / 2).max(1), (self.limits.max_connections / 4).max(1));
        let state = self.state.lock();
        if state.parked <= own {
            return None;
        }
        let (client, count) = state.client_with_most_parked()?;
        (state.parked > all || count > own).then(|| state.oldest_parked(client)).flatten()
    }

    /// Returns the parked stream to close first: the oldest one of the client with the most.
    pub(crate) fn parked_to_evict(&self) -> Option<(SessionId, u64)> {
        let state = self.state.lock();
        let (client, _) = state.client_with_most_parked()?;
        state.oldest_parked(client)
    }

    /// Marks a parked stream as authenticated: its session has taken it.
    pub(crate) fn unpark(&self, id: u64) {
        self.state.lock().set_state(id, ConnectionState::Authenticated);
    }
}

impl TableState {
    /// Returns whether an unauthenticated connection may authenticate: a slot is free, and the client uses less than
    /// three quarters of the slots.
    fn has_room_for(&self, id: u64) -> bool {
        let Some(ConnectionState::Unauthenticated(connection)) = self.connections.get(&id) else { return true };
        let clients = || self.connections.values().filter_map(ConnectionState::authenticated_client);
        let own = clients().filter(|client| *client == connection.client).count();
        clients().count() < self.max_authenticated && own < (self.max_authenticated - self.max_authenticated / 4).max(1)
    }

    /// Closes one unauthenticated connection of the client with the most. A silent connection goes first, then the
    /// oldest one. If several clients have the same number, the client with the oldest connection loses one.
    fn evict_unauthenticated(&mut self, now: Instant) {
        let open = || self.connections.iter().filter_map(|(id, state)| Some((*id, state.unauthenticated()?)));
        let Some((client, _)) = client_with_most(open().map(|(id, connection)| (connection.client, id))) else {
            return;
        };
        let spared = open()
            .filter(|(_, connection)| connection.client == client)
            .min_by_key(|(id, connection)| {
                (connection.has_sent_data || now < connection.accepted_at + SILENCE_GRACE, *id)
            })
            .map(|(id, _)| id);
        if let Some(connection) = spared.and_then(|id| self.connections.get_mut(&id)?.unauthenticated_mut()) {
            connection.close();
            self.unauthenticated -= 1;
        }
    }

    fn client_with_most_parked(&self) -> Option<(Client, usize)> {
        client_with_most(self.connections.iter().filter_map(|(id, state)| match state {
            ConnectionState::Parked(client, _) => Some((*client, *id)),
            _ => None,
        }))
    }

    fn oldest_parked(&self, of: Client) -> Option<(SessionId, u64)> {
        let parked = self.connections.iter().filter_map(|(id, state)| match state {
            ConnectionState::Parked(client, session) if *client == of => Some((*session, *id)),
            _ => None,
        });
        parked.min_by_key(|(_, id)| *id)
    }

    /// Changes the state of a connection, unless the server closed it. Returns whether it changed.
    fn set_state(&mut self, id: u64, new: impl FnOnce(Client) -> ConnectionState) -> bool {
        let Some(state) = self.connections.get_mut(&id) else { return false };
        let client = match state {
            ConnectionState::Unauthenticated(connection) if connection.is_closed() => return false,
            ConnectionState::Unauthenticated(connection) => connection.client,
            ConnectionState::Parked(client, _) | ConnectionState::Authenticated(client) => *client,
        };
        let old = std::mem::replace(state, new(client));
        if matches!(state, ConnectionState::Parked(..)) {
            self.parked += 1;
        }
        self.subtract(&old);
        true
    }

    fn subtract(&mut self, old: &ConnectionState) {
        match old {
            ConnectionState::Unauthenticated(connection) => {
                self.unauthenticated -= usize::from(!connection.is_closed())
            }
            ConnectionState::Parked(..) => self.parked -= 1,
            ConnectionState::Authenticated(_) => {}
        }
    }
}

/// Returns the client with the most connections and their number. Of clients with the same number it is the client with
/// the oldest connection.
fn client_with_most(connections: impl Iterator<Item = (Client, u64)>) -> Option<(Client, usize)> {
    let mut by_client: HashMap<Client, (usize, u64)> = HashMap::new();
    for (client, id) in connections {
        let (count, oldest) = by_client.entry(client).or_insert((0, id));
        (*count, *oldest) = (*count + 1, id.min(*oldest));
    }
    let most = by_client.into_iter().max_by_key(|(_, (count, oldest))| (*count, Reverse(*oldest)))?;
    Some((most.0, most.1.0))
}

impl ConnectionState {
    /// Returns the client of a parked or authenticated connection.
    fn authenticated_client(&self) -> Option<Client> {
        match self {
            ConnectionState::Unauthenticated(_) => None,
            ConnectionState::Parked(client, _) | ConnectionState::Authenticated(client) => Some(*client),
        }
    }

    /// Returns an unauthenticated connection that is still open.
    fn unauthenticated(&self) -> Option<&Unauthenticated> {
        match self {
            ConnectionState::Unauthenticated(connection) if !connection.is_closed() => Some(connection),
            _ => None,
        }
    }

    fn unauthenticated_mut(&mut self) -> Option<&mut Unauthenticated> {
        match self {
            ConnectionState::Unauthenticated(connection) if !connection.is_closed() => Some(connection),
            _ => None,
        }
    }
}

impl Unauthenticated {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the connection; its thread then reads the end of the stream.
    fn close(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = self.handle.shut_down(Shutdown::Both);
    }
}

impl ConnectionSlot {
    /// Returns the number of the connection, in the order of arrival.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Records that the connection has sent data.
    pub fn note_data(&self) {
        if let Some(connection) =
            self.state.lock().connections.get_mut(&self.id).and_then(ConnectionState::unauthenticated_mut)
        {
            connection.has_sent_data = true;
        }
    }

    /// Marks the connection as authenticated: no time limit applies from now on. Returns false if no slot is free, or
    /// the server closed the connection.
    #[must_use = "a connection without room is to be closed"]
    pub fn authenticate(&self) -> bool {
        let mut state = self.state.lock();
        state.has_room_for(self.id) && state.set_state(self.id, ConnectionState::Authenticated)
    }

    /// Marks the connection as an authenticated data stream without a session. Returns false if no slot is free, or the
    /// server closed the connection.
    pub(crate) fn park(&self, session: SessionId) -> bool {
        let mut state = self.state.lock();
        state.has_room_for(self.id) && state.set_state(self.id, |client| ConnectionState::Parked(client, session))
    }

    /// Returns whether the server closed the connection: it was too slow, or had to free its slot.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the flag of [`ConnectionSlot::is_closed`], for use after the slot is dropped.
    pub fn closed_flag(&self) -> Arc<AtomicBool> {
        self.closed.clone()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(old) = state.connections.remove(&self.id) {
            state.subtract(&old);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::transport::Stream;
    use crate::transport::tcp::{TcpSocket, pair};

    /// Returns the slot of a new connection, and the client's end.
    fn arrive(table: &ConnectionTable, from: &str) -> (Option<ConnectionSlot>, TcpSocket) {
        let (near, mut far) = pair();
        far.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        (table.add(near.handle(), from.parse().unwrap()), far)
    }

    fn table(most: usize, unauthenticated: usize) -> ConnectionTable {
        ConnectionTable::new(ConnectionLimits {
            max_connections: most,
            max_unauthenticated: unauthenticated,
            ..ConnectionLimits::default()
        })
    }

    fn is_open(slot: Option<&ConnectionSlot>, far: &mut TcpSocket) -> bool {
        let slot = slot.unwrap();
        assert_eq!(slot.is_closed(), far.read(&mut [0]).is_ok());
        !slot.is_closed()
    }

    #[test]
    fn oldest_connection_of_equal_clients_is_evicted() {
        let table = table(8, 3);
        let mut all: Vec<_> = ["::1", "2001:db8::1", "192.0.2.1", "2001:db9::1", "10.0.0.1"]
            .into_iter()
            .map(|address| arrive(&table, address))
            .collect();
        let open: Vec<bool> = all.iter_mut().map(|(slot, far)| is_open(slot.as_ref(), far)).collect();
        assert_eq!((open, table.counts()), (vec![false, false, true, true, true], (5, 3)));
    }

    #[test]
    fn one_client_cannot_take_every_slot() {
        let table = table(16, 16);
        // Two slots are reserved for unauthenticated connections; one client may use eleven of the others.
        let known = |address| arrive(&table, address).0.filter(ConnectionSlot::authenticate);
        let of_one: Vec<_> = (0..16).filter_map(|_| known("192.0.2.1")).collect();
        let of_others: Vec<_> = (0..16).filter_map(|_| known("192.0.2.2")).collect();
        assert_eq!((of_one.len(), of_others.len()), (11, 3));
        let parks = |address| arrive(&table, address).0.filter(|slot| slot.park(SessionId([7; 16])));
        assert!(parks("192.0.2.3").is_none());
        let newcomer = arrive(&table, "192.0.2.3").0.unwrap();
        assert!(!newcomer.authenticate(), "it is heard, and refused");
        drop(of_others);
        assert!(newcomer.authenticate());
        drop((newcomer, of_one));
        assert_eq!(table.counts(), (0, 0));
    }

    #[test]
    fn new_connections_do_not_count_as_silent() {
        let table = table(8, 2);
        let mut spoke = arrive(&table, "192.0.2.1");
        spoke.0.as_ref().unwrap().note_data();
        let mut new = arrive(&table, "192.0.2.1");
        table.state.lock().evict_unauthenticated(Instant::now());
        let open = |(slot, far): &mut (Option<ConnectionSlot>, TcpSocket)| is_open(slot.as_ref(), far);
        assert_eq!((open(&mut spoke), open(&mut new)), (false, true));
        let mut spoke = arrive(&table, "192.0.2.1");
        spoke.0.as_ref().unwrap().note_data();
        table.state.lock().evict_unauthenticated(Instant::now() + 2 * SILENCE_GRACE);
        assert_eq!((open(&mut spoke), open(&mut new)), (true, false));
    }

    #[test]
    fn parked_streams_over_the_limit_are_reported() {
        let table = table(8, 8);
        let session = SessionId([7; 16]);
        let park = |address| {
            let slot = arrive(&table, address).0.unwrap();
            assert!(slot.park(session));
            slot
        };
        let mut parked = vec![park("192.0.2.1"), park("192.0.2.1")];
        assert_eq!((table.parked_over_limit(), table.counts(), table.parked_count()), (None, (2, 0), 2));
        parked.push(park("192.0.2.1"));
        assert_eq!(table.parked_over_limit(), Some((session, parked[0].id())), "a client's quarter");
        drop(parked.remove(0));
        assert_eq!(table.parked_over_limit(), None);
        parked.extend([park("192.0.2.2"), park("192.0.2.3"), park("192.0.2.4")]);
        assert_eq!(table.parked_over_limit(), Some((session, parked[0].id())), "half of all connections");
        table.unpark(parked[0].id());
        assert_eq!((table.parked_count(), table.counts()), (4, (5, 0)), "a stream with a session stays");
        assert!(table.parked_to_evict().is_some_and(|(_, id)| id == parked[1].id()));
        drop(parked);
        assert_eq!((table.parked_count(), table.counts()), (0, (0, 0)));
    }
}
