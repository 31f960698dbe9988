//! All connections of a capture.

use std::cmp::Reverse;
use std::collections::HashMap;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_packet::{TcpEndpoint, TcpSegment};
use lfn_results::diagnose::diagnose;
use lfn_results::evidence::Evidence;

use crate::connection::ConnectionState;
use crate::evidence;
use crate::flags::{PacketFlag, PacketFlags};
use crate::limits::Limits;
use crate::mptcp::MptcpConnections;
use crate::report::{AnalysisOptions, CaptureTotals, Connection, Finished};
use crate::shared_path::SharedPaths;
use crate::totals::ConnectionTotals;

/// Segments between two searches for closed connections.
const SWEEP_INTERVAL: u64 = 65_536;
/// Time after which a closed connection is finished, nanoseconds.
const CLOSED_FOR: u64 = 5_000_000_000;
/// Minimum open connections before the lists of idle connections are shortened.
const MIN_SHORTENED: usize = 1_000;

/// Finished connections that keep their points: those with the most payload.
const MAX_FINISHED_SERIES: usize = 16;

/// Follows the connections of a capture.
#[derive(Debug)]
pub struct Analysis {
    options: AnalysisOptions,
    open: HashMap<ConnectionKey, Box<ConnectionState>>,
    /// Limits of each open connection.
    limits: Limits,
    /// Limits of the last shortening of all lists.
    shortened_to: Limits,
    finished: Vec<Connection>,
    /// Rank of the last connection of a full list. Connections after it are not listed.
    last_listed: Option<Rank>,
    /// Connections that were not listed since the MPTCP connections were looked through.
    unlisted_since: usize,
    /// Finished connections that may have points of pictures.
    finished_series: usize,
    shared: SharedPaths,
    mptcp: MptcpConnections,
    totals: CaptureTotals,
    /// Sums of the connections that the result does not list.
    unlisted: ConnectionTotals,
}

/// Both endpoints of a connection, the smaller one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ConnectionKey {
    low: TcpEndpoint,
    high: TcpEndpoint,
}

impl ConnectionKey {
    fn of(segment: &TcpSegment) -> Self {
        ConnectionKey::between(segment.source, segment.destination)
    }

    fn between(a: TcpEndpoint, b: TcpEndpoint) -> Self {
        if a <= b { ConnectionKey { low: a, high: b } } else { ConnectionKey { low: b, high: a } }
    }
}

impl Analysis {
    /// Creates an analysis without connections.
    pub fn new(options: AnalysisOptions) -> Self {
        Analysis {
            options,
            open: HashMap::new(),
            limits: Limits::MAX,
            shortened_to: Limits::MAX,
            finished: Vec::new(),
            last_listed: None,
            unlisted_since: 0,
            finished_series: 0,
            shared: SharedPaths::default(),
            mptcp: MptcpConnections::default(),
            totals: CaptureTotals::default(),
            unlisted: ConnectionTotals::default(),
        }
    }

    /// Adds the next segment, captured at `at` since 1970, and returns its flags.
    pub fn add(&mut self, at: Instant, segment: &TcpSegment) -> PacketFlags {
        self.totals.segments += 1;
        self.totals.payload += u64::from(segment.payload);
        self.totals.first.get_or_insert(at);
        self.totals.last = self.totals.last.max(Some(at));
        if self.totals.segments.is_multiple_of(SWEEP_INTERVAL) {
            self.finish_closed(at);
            self.shorten_open();
        }
        let key = ConnectionKey::of(segment);
        let mut reused = false;
        if let Some(state) = self.open.get_mut(&key) {
            state.limit(self.limits);
            if !state.is_replaced_by(segment) {
                if let Some(option) = segment.options.mptcp {
                    self.mptcp.note(&mut state.mptcp, option, segment);
                }
                return state.add(at, segment);
            }
            if let Some(state) = self.open.remove(&key) {
                self.finish_one(*state);
            }
            reused = true;
        }
        if self.open.len() >= self.options.max_open {
            self.evict();
        }
        self.totals.connections += 1;
        let mut state = ConnectionState::new(at, segment, &self.options.per_connection(self.open.len() + 1));
        if let Some(option) = segment.options.mptcp {
            self.mptcp.note(&mut state.mptcp, option, segment);
        }
        let mut flags = state.add(at, segment);
        if reused {
            flags.insert(PacketFlag::ReusedPorts);
        }
        self.open.insert(key, Box::new(state));
        self.limits = Limits::per_connection(self.open.len());
        flags
    }

    /// Shortens the lists of all open connections. An idle connection has lists from a time with higher limits.
    fn shorten_open(&mut self) {
        self.limits = Limits::per_connection(self.open.len());
        if self.open.len() >= MIN_SHORTENED && self.limits != self.shortened_to {
            self.shortened_to = self.limits;
            for state in self.open.values_mut() {
                state.shrink_to(self.limits);
            }
        }
    }

    /// Adds a message of ICMP that a segment was too big for a link with this MTU; 0 is unknown.
    pub fn add_too_big(&mut self, source: TcpEndpoint, destination: TcpEndpoint, mtu: u32) {
        if let Some(state) = self.open.get_mut(&ConnectionKey::between(source, destination)) {
            state.add_too_big(mtu);
        }
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> &CaptureTotals {
        &self.totals
    }

    /// Ends the analysis and returns its result.
    pub fn finish(mut self) -> Finished {
        for (_, state) in std::mem::take(&mut self.open) {
            self.finish_one(*state);
        }
        self.keep_largest();
        self.shared.finish(&mut self.finished);
        self.totals.unlisted = self.totals.connections.saturating_sub(self.finished.len() as u64);
        self.totals.mptcp_connection_count = self.mptcp.created();
        let mptcp = self.mptcp.finish(&mut self.finished);
        Finished { connections: self.finished, mptcp, totals: self.totals, unlisted: self.unlisted }
    }

    fn finish_one(&mut self, state: ConnectionState) {
        let (connection, arrivals) = evidence::finish(state);
        self.shared.add(&connection, arrivals);
        self.mptcp.add(&connection);
        let max = self.options.max_finished;
        if self.last_listed.is_some_and(|last| rank(&connection) > last) {
            add_with_finding(&mut self.unlisted, connection);
            self.unlisted_since += 1;
            if self.unlisted_since > max {
                self.unlisted_since = 0;
                self.mptcp.keep(&self.finished);
            }
            return;
        }
        self.finished_series += usize::from(connection.series.is_some());
        self.finished.push(connection);
        if self.finished_series > 2 * MAX_FINISHED_SERIES {
            self.drop_small_series();
        }
        if self.finished.len() > max.saturating_add(max / 4) {
            self.keep_largest();
        }
    }

    /// Deletes the points of the finished connections with little payload.
    fn drop_small_series(&mut self) {
        let mut with_series: Vec<_> =
            self.finished.iter_mut().filter(|connection| connection.series.is_some()).collect();
        with_series.sort_by_key(|connection| Reverse(connection.evidence.payload));
        for connection in with_series.into_iter().skip(MAX_FINISHED_SERIES) {
            connection.series = None;
        }
        self.finished_series = MAX_FINISHED_SERIES;
    }

    fn keep_largest(&mut self) {
        let max = self.options.max_finished;
        self.finished.sort_by_key(rank);
        for connection in self.finished.drain(max.min(self.finished.len())..) {
            add_with_finding(&mut self.unlisted, connection);
        }
        self.last_listed = self.finished.last().filter(|_| self.finished.len() == max).map(rank);
        self.mptcp.keep(&self.finished);
    }

    fn finish_closed(&mut self, now: Instant) {
        let limit = now.as_nanos().saturating_sub(CLOSED_FOR);
        let is_over = |state: &ConnectionState| state.is_closed() && state.last < limit;
        let keys: Vec<_> = self.open.iter().filter(|(_, state)| is_over(state)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(state) = self.open.remove(&key) {
                self.finish_one(*state);
            }
        }
    }

    /// Closes the sixteenth of the connections that is idle for the longest time.
    fn evict(&mut self) {
        let mut ages: Vec<_> = self.open.iter().map(|(key, state)| (state.last, *key)).collect();
        let count = (ages.len() / 16).max(1);
        if count < ages.len() {
            ages.select_nth_unstable_by_key(count, |(last, _)| *last);
        }
        for (_, key) in ages.into_iter().take(count) {
            if let Some(state) = self.open.remove(&key) {
                self.totals.evicted += 1;
                self.finish_one(*state);
            }
        }
    }
}

/// Order of the connections in the result: the most payload first, then the earliest.
type Rank = (Reverse<Bytes>, Instant, TcpEndpoint);

fn rank(connection: &Connection) -> Rank {
    (Reverse(connection.evidence.payload), connection.start, connection.client)
}

/// Adds a connection with its first finding. Other connections of its path are not compared: the result lacks them.
fn add_with_finding(totals: &mut ConnectionTotals, connection: Connection) {
    let mut evidence = Evidence::of_capture(connection.evidence);
    let diagnosis = diagnose(&evidence);
    if let Some(evidence) = evidence.capture.take() {
        totals.add(&evidence, diagnosis.findings.first().map(|finding| finding.name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use lfn_packet::{TcpFlags, TcpOptions};

    use super::*;

    #[test]
    fn many_open_connections_share_the_points() {
        let options = AnalysisOptions { series_points: 2000, ..AnalysisOptions::default() };
        let points = |open| options.per_connection(open).series_points;
        assert_eq!([points(1), points(25), points(500), points(1_000_000)], [2000, 2000, 100, 50]);
    }

    /// Adds flights of data with their acknowledgements to so many open connections.
    fn exchange(analysis: &mut Analysis, connections: u16, flights: u32) {
        const SEGMENTS: u32 = 8;
        const PAYLOAD: u32 = 1448;
        let endpoint = |port| TcpEndpoint { address: core::net::Ipv4Addr::LOCALHOST.into(), port };
        for flight in 0..flights {
            for number in 0..connections {
                let mut at = u64::from(flight) * 50_000_000 + u64::from(number) * 5_000;
                let first = 1 + flight * SEGMENTS * PAYLOAD;
                for segment in 0..SEGMENTS {
                    let data = TcpSegment {
                        source: endpoint(number),
                        destination: endpoint(50_000),
                        ip_id: Some((flight * SEGMENTS + segment) as u16),
                        ttl: 64,
                        ecn: 0,
                        sequence: first + segment * PAYLOAD,
                        acknowledgement: 1,
                        flags: TcpFlags::ACK,
                        window: 100,
                        payload: PAYLOAD,
                        options: TcpOptions::default(),
                    };
                    let acknowledgement = TcpSegment {
                        source: data.destination,
                        destination: data.source,
                        sequence: 1,
                        acknowledgement: first.saturating_sub((SEGMENTS - segment) * PAYLOAD).max(1),
                        window: 60_000,
                        payload: 0,
                        ..data
                    };
                    for packet in [acknowledgement, data] {
                        at += 100;
                        analysis.add(Instant::from_nanos(at), &packet);
                    }
                }
            }
        }
    }

    #[test]
    fn ten_thousand_open_connections_take_little_memory() {
        let mut analysis = Analysis::new(AnalysisOptions::default());
        exchange(&mut analysis, 10_000, 12);
        let bytes: usize = analysis.open.values().map(|state| state.heap_bytes()).sum();
        assert_eq!(analysis.open.len(), 10_000);
        assert!(bytes < 10_000 * 4_900, "{} bytes per connection", bytes / 10_000);
    }

    #[test]
    fn few_connections_have_the_full_limits() {
        assert_eq!(Limits::per_connection(48), Limits::MAX);
        let (some, many) = (Limits::per_connection(1_000), Limits::per_connection(10_000));
        assert_eq!([some.rounds, some.arrivals, some.runs], [100, 400, 320]);
        assert_eq!([many.rounds, many.arrivals, many.runs], [6, 10, 8]);
    }

    #[test]
    fn many_connections_stay_within_the_limits() {
        let options = AnalysisOptions { max_open: 1000, max_finished: 400, ..AnalysisOptions::default() };
        let mut analysis = Analysis::new(options);
        let endpoint = |port| TcpEndpoint { address: core::net::Ipv4Addr::LOCALHOST.into(), port };
        for number in 0..20_000_u16 {
            let segment = TcpSegment {
                source: endpoint(number),
                destination: endpoint(50_000),
                ip_id: None,
                ttl: 64,
                ecn: 0,
                sequence: 1,
                acknowledgement: 1,
                flags: TcpFlags::ACK,
                window: 100,
                payload: 10,
                options: TcpOptions::default(),
            };
            analysis.add(Instant::from_nanos(u64::from(number)), &segment);
            assert!(analysis.open.len() <= 1000 && analysis.finished.len() <= 800);
            let closed = analysis.totals.evicted + analysis.open.len() as u64;
            assert_eq!(analysis.totals.connections, closed);
        }
    }
}
