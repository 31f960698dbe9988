//! Connections of MPTCP: which subflows belong together (RFC 8684).
//!
//! The first subflow shows the keys of both ends in its MP_CAPABLE options, and each key gives a token. A further subflow
//! names the token of its receiver in the MP_JOIN option of its SYN. If the capture begins after the first handshake,
//! subflows with the same token are one MPTCP connection without its first subflow.

use std::collections::{HashMap, HashSet};

use lfn_base::units::Bytes;
use lfn_packet::{MptcpOption, TcpFlags, TcpSegment};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::report::{Connection, MptcpConnection, Subflow};
use crate::spans::Spans;
use crate::totals::ConnectionTotals;

/// MPTCP connections with a subflow that is open or that the result may list.
#[derive(Debug, Default)]
pub(crate) struct MptcpConnections {
    connections: HashMap<u64, MptcpState>,
    by_token: HashMap<u32, u64>,
    created: u64,
}

/// State of one MPTCP connection.
#[derive(Debug, Default)]
struct MptcpState {
    version: Option<u8>,
    client_token: Option<u32>,
    server_token: Option<u32>,
    subflows: u64,
    open: u64,
    spans: Spans,
    /// Payload from the client and from the server.
    payload: [u64; 2],
    totals: ConnectionTotals,
}

/// Returns the token of a key: the first 32 bits of its SHA-256 (RFC 8684 §3.2), or of its SHA-1 in version 0 (RFC 6824).
fn token_of(version: u8, key: u64) -> u32 {
    let key = key.to_be_bytes();
    u32::from_be_bytes(match version {
        0 => first_bytes(&Sha1::digest(key)),
        _ => first_bytes(&Sha256::digest(key)),
    })
}

fn first_bytes(digest: &[u8]) -> [u8; 4] {
    digest.first_chunk().copied().unwrap_or_default()
}

impl MptcpConnections {
    /// Reads the option of a segment of the connection with this subflow.
    pub(crate) fn note(&mut self, subflow: &mut Option<Subflow>, option: MptcpOption, segment: &TcpSegment) {
        let is_syn = segment.flags.contains(TcpFlags::SYN);
        let is_answer = is_syn && segment.flags.contains(TcpFlags::ACK);
        match option {
            MptcpOption::Join { token } if is_syn && !is_answer && subflow.is_none() => {
                *subflow = Some(self.join(token));
            }
            // The offer of the first SYN may be declined.
            MptcpOption::Capable { version, key, receiver_key } if !is_syn || is_answer => {
                let keys = if is_answer { [receiver_key, key] } else { [key, receiver_key] };
                self.note_keys(subflow, version, keys);
            }
            _ => {}
        }
    }

    /// Adds a subflow that names a token.
    fn join(&mut self, token: u32) -> Subflow {
        let number = match self.by_token.get(&token) {
            Some(number) => *number,
            None => {
                let number = self.create();
                self.set_tokens(number, [None, Some(token)]);
                number
            }
        };
        let mut subflow = Subflow { mptcp: number, number: 0, is_joined: true, token, is_reversed: false };
        if let Some(state) = self.connections.get_mut(&number) {
            subflow.number = state.add_subflow();
            subflow.is_reversed = state.client_token == Some(token);
        }
        subflow
    }

    /// Adds the keys of client and server, which the first subflow shows.
    fn note_keys(&mut self, subflow: &mut Option<Subflow>, version: u8, keys: [Option<u64>; 2]) {
        if subflow.is_some_and(|subflow| subflow.is_joined || self.has_both_tokens(subflow.mptcp)) {
            return;
        }
        let tokens = keys.map(|key| key.map(|key| token_of(version, key)));
        if tokens == [None, None] {
            return;
        }
        let number = subflow.map(|subflow| subflow.mptcp).or_else(|| self.without_first_subflow(tokens));
        let number = number.unwrap_or_else(|| self.create());
        self.set_tokens(number, tokens);
        let Some(state) = self.connections.get_mut(&number) else { return };
        state.version = Some(version);
        let token = state.server_token.or(state.client_token).unwrap_or_default();
        match subflow {
            Some(subflow) => subflow.token = token,
            None => {
                let added = state.add_subflow();
                *subflow = Some(Subflow { mptcp: number, number: added, is_joined: false, token, is_reversed: false });
            }
        }
    }

    fn has_both_tokens(&self, number: u64) -> bool {
        let state = self.connections.get(&number);
        state.is_some_and(|state| state.client_token.is_some() && state.server_token.is_some())
    }

    /// Returns the MPTCP connection with one of these tokens, if only its joined subflows are known so far.
    fn without_first_subflow(&self, tokens: [Option<u32>; 2]) -> Option<u64> {
        let mut numbers = tokens.into_iter().flatten().filter_map(|token| self.by_token.get(&token).copied());
        let is_joined = |number: &u64| self.connections.get(number).is_some_and(|state| state.version.is_none());
        numbers.find(is_joined)
    }

    fn create(&mut self) -> u64 {
        self.created += 1;
        self.connections.insert(self.created, MptcpState::default());
        self.created
    }

    /// Sets the tokens of client and server, unless they are known. A token that another connection had before is now the
    /// token of this connection.
    fn set_tokens(&mut self, number: u64, [client, server]: [Option<u32>; 2]) {
        let Some(state) = self.connections.get_mut(&number) else { return };
        for (known, token) in [(&mut state.client_token, client), (&mut state.server_token, server)] {
            if let (None, Some(token)) = (*known, token) {
                *known = Some(token);
                self.by_token.insert(token, number);
            }
        }
    }

    /// Adds the figures of a finished connection.
    pub(crate) fn add(&mut self, connection: &Connection) {
        let Some(subflow) = connection.mptcp else { return };
        let Some(state) = self.connections.get_mut(&subflow.mptcp) else { return };
        let evidence = &connection.evidence;
        state.open = state.open.saturating_sub(1);
        state.totals.add(evidence, None);
        state.spans.add(connection.start, connection.start + evidence.duration);
        let sender = usize::from(connection.is_client_sender == subflow.is_reversed);
        for (end, payload) in [(sender, evidence.payload), (1 - sender, evidence.reverse_payload)] {
            state.payload[end] = state.payload[end].saturating_add(payload.0);
        }
    }

    /// Forgets the MPTCP connections without an open subflow and without one of these connections.
    pub(crate) fn keep(&mut self, connections: &[Connection]) {
        if self.connections.is_empty() {
            return;
        }
        let listed: HashSet<u64> =
            connections.iter().filter_map(|connection| connection.mptcp).map(|subflow| subflow.mptcp).collect();
        self.connections.retain(|number, state| state.open > 0 || listed.contains(number));
        self.by_token.retain(|_, number| self.connections.contains_key(number));
    }

    /// Returns the MPTCP connections of the listed connections, the largest payload first, and numbers both.
    pub(crate) fn finish(mut self, listed: &mut [Connection]) -> Vec<MptcpConnection> {
        self.keep(listed);
        let mut states: Vec<(u64, MptcpState)> = self.connections.into_iter().collect();
        states.sort_by_key(|(number, state)| (std::cmp::Reverse(state.payload.iter().max().copied()), *number));
        let numbers: HashMap<u64, u64> = states.iter().zip(1..).map(|((old, _), new)| (*old, new)).collect();
        for subflow in listed.iter_mut().filter_map(|connection| connection.mptcp.as_mut()) {
            subflow.mptcp = numbers.get(&subflow.mptcp).copied().unwrap_or_default();
        }
        states.into_iter().zip(1..).map(|((_, state), number)| state.finish(number)).collect()
    }

    /// Returns the number of MPTCP connections so far.
    pub(crate) fn created(&self) -> u64 {
        self.created
    }
}

impl MptcpState {
    /// Returns the number of a new subflow.
    fn add_subflow(&mut self) -> u64 {
        self.subflows += 1;
        self.open += 1;
        self.subflows
    }

    fn finish(self, number: u64) -> MptcpConnection {
        let [from_client, from_server] = self.payload;
        MptcpConnection {
            number,
            version: self.version,
            client_token: self.client_token,
            server_token: self.server_token,
            start: self.spans.start(),
            duration: self.spans.duration(),
            payload: Bytes(from_client.max(from_server)),
            reverse_payload: Bytes(from_client.min(from_server)),
            totals: self.totals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_beginning_of_the_digest_of_a_key() {
        // Computed with `sha256sum` and `sha1sum` from the eight bytes of the key.
        assert_eq!(token_of(1, 0x0102_0304_0506_0708), 0x6684_0dda);
        assert_eq!(token_of(0, 0x0102_0304_0506_0708), 0xdd57_83bc);
    }
}
