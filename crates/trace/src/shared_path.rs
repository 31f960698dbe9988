//! Connections between the same two hosts: they share the path, its queue and its policer.

use std::collections::HashMap;
use std::time::Duration;

use core::net::IpAddr;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};

use crate::bucket::{self, Tolerance};
use crate::half::Arrival;
use crate::report::Connection;

/// Maximum arrivals of all connections together. Later connections are judged alone.
const MAX_ARRIVALS: usize = 200_000;
/// Maximum connections of one path that are compared.
const MAX_CONNECTIONS: usize = 64;
/// Minimum share of the time of a connection in which another one sends.
const MIN_OVERLAP: f64 = 0.2;
/// Minimum rate of the others, relative to the connection.
const MIN_COMPETING_SHARE: f64 = 0.2;

/// Direction between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct HostPair {
    from: IpAddr,
    to: IpAddr,
}

/// Arrivals of the connections with losses, by host pair.
#[derive(Debug, Default)]
pub(crate) struct SharedPaths {
    lossy: HashMap<HostPair, Vec<Arrival>>,
    count: usize,
}

fn pair(connection: &Connection) -> HostPair {
    let (client, server) = (connection.client.address, connection.server.address);
    match connection.is_client_sender {
        true => HostPair { from: client, to: server },
        false => HostPair { from: server, to: client },
    }
}

impl SharedPaths {
    /// Adds the arrivals of a finished connection.
    pub(crate) fn add(&mut self, connection: &Connection, arrivals: Vec<Arrival>) {
        let has_losses = arrivals.iter().any(|arrival| arrival.is_lost);
        if !has_losses || self.count + arrivals.len() > MAX_ARRIVALS {
            return;
        }
        self.count += arrivals.len();
        self.lossy.entry(pair(connection)).or_default().extend(arrivals);
    }

    /// Compares the connections of each path: the rate of the others, and a policer that they share.
    pub(crate) fn finish(&mut self, connections: &mut [Connection]) {
        let mut paths: HashMap<HostPair, Vec<usize>> = HashMap::new();
        for (number, connection) in connections.iter().enumerate() {
            let path = paths.entry(pair(connection)).or_default();
            if path.len() < MAX_CONNECTIONS {
                path.push(number);
            }
        }
        for (hosts, numbers) in paths.into_iter().filter(|(_, numbers)| numbers.len() > 1) {
            for number in &numbers {
                connections[*number].evidence.queue.competing = competing(connections, *number, &numbers);
            }
            self.fit_together(hosts, &numbers, connections);
        }
    }

    /// Fits one token bucket to the losses of all connections of a path, if it explains more than one bucket each.
    fn fit_together(&mut self, hosts: HostPair, numbers: &[usize], connections: &mut [Connection]) {
        let lossy: Vec<usize> =
            numbers.iter().copied().filter(|number| connections[*number].evidence.policer.is_some()).collect();
        let Some(mut arrivals) = self.lossy.remove(&hosts).filter(|_| lossy.len() > 1) else { return };
        arrivals.sort_by_key(|arrival| arrival.at);
        let first = &connections[lossy[0]].evidence;
        let tolerance = Tolerance { mss: first.mss_bytes, rtt: first.rtt.base.as_secs_f64() };
        let count = u32::try_from(lossy.len()).unwrap_or(u32::MAX);
        let Some(together) = bucket::fit(&arrivals, count, &tolerance) else { return };
        for number in lossy {
            let policer = &mut connections[number].evidence.policer;
            if policer.is_none_or(|alone| alone.explained_share < together.explained_share) {
                *policer = Some(together);
            }
        }
    }
}

/// Returns the rate of the other connections while this one sends.
fn competing(connections: &[Connection], number: usize, numbers: &[usize]) -> Option<BitRate> {
    let own = &connections[number];
    let own_time = own.evidence.duration.as_secs_f64();
    let mut bytes = 0.0;
    let mut has_overlap = false;
    for other in numbers.iter().filter(|other| **other != number).map(|other| &connections[*other]) {
        let overlap = overlap(own, other).as_secs_f64();
        has_overlap |= overlap >= MIN_OVERLAP * own_time;
        let time = other.evidence.duration.as_secs_f64().max(1e-9);
        bytes += other.evidence.payload.0 as f64 * (overlap / time).min(1.0);
    }
    let is_competing = has_overlap && bytes >= MIN_COMPETING_SHARE * own.evidence.payload.0 as f64;
    is_competing.then(|| Bytes(bytes as u64).per(own.evidence.duration))
}

fn overlap(a: &Connection, b: &Connection) -> Duration {
    let end = |connection: &Connection| connection.start + connection.evidence.duration;
    let start: Instant = a.start.max(b.start);
    end(a).min(end(b)).saturating_since(start)
}
