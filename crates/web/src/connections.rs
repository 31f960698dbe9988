//! The open connections and their maximum.
//!
//! A full table must not lock readers out: a client that opens connections and sends nothing has no token, so its oldest
//! connection is closed for the new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The open connections, by the order of their arrival.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    is_authenticated: Arc<AtomicBool>,
    /// `None` until the task of the connection runs.
    task: Option<AbortHandle>,
}

/// Place of one connection in the table, which is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    number: u64,
    is_authenticated: Arc<AtomicBool>,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Connections { max, table: Mutex::default() })
    }

    /// Takes a place for a new connection; `None` if all places belong to authenticated clients.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut table = self.table.lock();
        if table.open.len() >= self.max {
            let is_guest = |connection: &Connection| !connection.is_authenticated.load(Ordering::Relaxed);
            let oldest = table.open.iter().find(|(_, connection)| is_guest(connection)).map(|(number, _)| *number)?;
            if let Some(task) = table.open.remove(&oldest).and_then(|connection| connection.task) {
                task.abort();
            }
        }
        let number = table.next;
        table.next += 1;
        let is_authenticated = Arc::new(AtomicBool::new(false));
        table.open.insert(number, Connection { is_authenticated: Arc::clone(&is_authenticated), task: None });
        Some(Place { connections: Arc::clone(self), number, is_authenticated })
    }

    /// Sets the task of a connection, which is aborted if its place is needed.
    pub(crate) fn set_task(&self, number: u64, task: AbortHandle) {
        match self.table.lock().open.get_mut(&number) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }
}

impl Place {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the flag of a valid token, to be set with the first valid request.
    pub(crate) fn is_authenticated(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_authenticated)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_guest_gives_its_place_to_a_new_client() {
        let connections = Connections::new(2);
        let reader = connections.enter().unwrap();
        reader.is_authenticated().store(true, Ordering::Relaxed);
        let guest = connections.enter().unwrap();
        let next = connections.enter().unwrap();
        assert_eq!(connections.table.lock().open.len(), 2);
        drop(guest);
        assert_eq!(connections.table.lock().open.len(), 2, "the place has another owner");
        next.is_authenticated().store(true, Ordering::Relaxed);
        assert!(connections.enter().is_none());
        drop(reader);
        assert!(connections.enter().is_some());
    }
}
