//! Connections between the same two hosts: they share the path, its queue and its policer.

use std::collections::HashMap;
use std::time::Duration;

use core::net::IpAddr;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};

use crate::bucket::{self, Tolerance};
use crate::report::Connection;
use crate::sent_packets::SentPacket;

/// Maximum packets of all connections together. Later connections are judged alone.
const MAX_PACKETS: usize = 200_000;
/// Maximum connections of one path that are compared.
const MAX_CONNECTIONS: usize = 64;
/// Minimum share of the time of a connection in which another one sends.
const MIN_OVERLAP: f64 = 0.2;
/// Minimum rate of the others, relative to the connection.
const MIN_COMPETING_SHARE: f64 = 0.2;

/// Minimum share that one bucket explains of all losses, so that a better bucket of one connection is chance.
const MIN_TOGETHER: f64 = 0.8;

/// Direction between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct HostPair {
    from: IpAddr,
    to: IpAddr,
}

/// Packets of the connections with losses, by host pair.
#[derive(Debug, Default)]
pub(crate) struct SharedPaths {
    lossy: HashMap<HostPair, Vec<SentPacket>>,
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
    /// Adds the packets of a finished connection.
    pub(crate) fn add(&mut self, connection: &Connection, packets: Vec<SentPacket>) {
        let has_losses = packets.iter().any(|packet| packet.is_lost);
        if !has_losses || self.count + packets.len() > MAX_PACKETS {
            return;
        }
        self.count += packets.len();
        self.lossy.entry(pair(connection)).or_default().extend(packets);
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
        let lossy: Vec<usize> = numbers.iter().copied().filter(|number| has_losses(&connections[*number])).collect();
        let Some(mut packets) = self.lossy.remove(&hosts).filter(|_| lossy.len() > 1) else { return };
        packets.sort_by_key(|packet| packet.at);
        let first = &connections[lossy[0]].evidence;
        let tolerance = Tolerance { mss: first.mss_bytes, rtt: first.rtt.base.as_secs_f64() };
        let count = u32::try_from(lossy.len()).unwrap_or(u32::MAX);
        let Some(together) = bucket::fit(&packets, count, &tolerance) else { return };
        for number in lossy {
            let policer = &mut connections[number].evidence.policer;
            let is_better = policer.is_none_or(|alone| alone.explained_share < together.explained_share);
            if is_better || together.explained_share >= MIN_TOGETHER {
                *policer = Some(together);
            }
        }
    }
}

fn has_losses(connection: &Connection) -> bool {
    let loss = &connection.evidence.loss;
    loss.before_capture + loss.after_capture > 0
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
