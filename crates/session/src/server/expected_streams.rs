//! Datagram streams that open sessions expect, and the streams that have arrived.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::DatagramStream;
use crate::SessionId;
use parking_lot::Mutex;

/// Datagram streams that open sessions expect.
#[derive(Debug, Default)]
pub(crate) struct ExpectedStreams(Arc<Mutex<HashMap<SessionId, Vec<ExpectedRange>>>>);

#[derive(Debug)]
struct ExpectedRange {
    numbers: Range<u16>,
    peer: IpAddr,
    arrived: HashSet<u16>,
    sender: Sender<DatagramStream>,
}

/// Datagram streams of a session, in the order of arrival. Dropping it stops the acceptance of more.
#[derive(Debug)]
pub struct DatagramStreams {
    receiver: Receiver<DatagramStream>,
    session: SessionId,
    numbers: Range<u16>,
    expected: Arc<Mutex<HashMap<SessionId, Vec<ExpectedRange>>>>,
}

impl ExpectedStreams {
    /// Expects streams of these numbers, from the address of the control connection.
    pub(super) fn expect(&self, session: SessionId, peer: IpAddr, numbers: Range<u16>) -> DatagramStreams {
        let (sender, receiver) = channel();
        let range =
            ExpectedRange { numbers: numbers.clone(), peer: peer.to_canonical(), arrived: HashSet::new(), sender };
        self.0.lock().entry(session).or_default().push(range);
        DatagramStreams { receiver, session, numbers, expected: self.0.clone() }
    }

    /// Returns whether a session expects this stream from this address.
    pub(super) fn is_expected(&self, session: SessionId, stream: u16, peer: IpAddr) -> bool {
        let expected = self.0.lock();
        let range = expected.get(&session).and_then(|ranges| ranges.iter().find(|range| range.contains(stream)));
        range.is_some_and(|range| range.peer == peer && !range.arrived.contains(&stream))
    }

    pub(super) fn deliver(&self, session: SessionId, stream: DatagramStream) {
        let mut expected = self.0.lock();
        let Some(ranges) = expected.get_mut(&session) else { return };
        if let Some(range) = ranges.iter_mut().find(|range| range.contains(stream.stream())) {
            range.arrived.insert(stream.stream());
            stream.send_answer();
            let _ = range.sender.send(stream);
        }
    }
}

impl ExpectedRange {
    fn contains(&self, stream: u16) -> bool {
        self.numbers.contains(&stream)
    }
}

impl DatagramStreams {
    /// Returns the next stream that arrives within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<DatagramStream> {
        self.receiver.recv_timeout(timeout).ok()
    }
}

impl Drop for DatagramStreams {
    fn drop(&mut self) {
        let mut all = self.expected.lock();
        if let Some(ranges) = all.get_mut(&self.session) {
            ranges.retain(|range| range.numbers != self.numbers);
            if ranges.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}
