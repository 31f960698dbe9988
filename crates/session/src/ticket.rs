//! Tickets, tokens, fingerprints and session ids, with their text forms.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::DEFAULT_PORT;

const HASH_CONTEXT: &str = "lfn 2026-11-22 token as a server keeps it v1";

/// Reason why a ticket is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Does not start with `lfn://`.
    #[error("'{0}' is not a ticket: expected lfn://TOKEN@HOST:PORT#FINGERPRINT")]
    NotATicket(String),
    /// The part before `@` is missing or no token.
    #[error("the token of the ticket for '{host}' is damaged: expected 22 letters and digits{}", got(*length, 22))]
    Token { host: String, length: usize },
    /// The part after `#` is missing or no SHA-256 digest.
    #[error("the fingerprint of the ticket for '{host}' is damaged: expected 43 letters and digits{}", got(*length, 43))]
    Fingerprint { host: String, length: usize },
    /// No host, or a port that is not a number from 1 to 65535.
    #[error("'{0}' is not HOST or HOST:PORT")]
    Address(String),
}

/// A secret of 128 bits that authenticates its holder. `Debug` output never contains the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 16]);

/// Hash of a token, which the server stores instead of the token. The hash identifies the token but does not reveal it.
///
/// A plain hash is sufficient, because 128 random bits cannot be guessed. A holder of the token proves with the hash
/// that it opened an unencrypted stream. The hash alone cannot open a session, which requires the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TokenHash(pub [u8; 32]);

/// SHA-256 of the server's certificate (DER). Clients identify the server by this fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub [u8; 32]);

/// Identifier of one session: 128 random bits, chosen by the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId(pub [u8; 16]);

/// Address of a server, token of the client, and fingerprint of the server's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub token: Token,
    pub fingerprint: Fingerprint,
}

impl Token {
    /// Creates a token from random bits.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Token(bytes)
    }

    /// Returns the bits of the token, to derive keys.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the hash that the server stores.
    pub fn hash(&self) -> TokenHash {
        TokenHash(blake3::derive_key(HASH_CONTEXT, &self.0))
    }

    /// Compares in constant time, so that the response time reveals nothing.
    pub fn matches(&self, other: &Token) -> bool {
        let difference = self.0.iter().zip(other.0).fold(0u8, |acc, (a, b)| acc | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl TokenHash {
    /// Reports whether this is the hash of `token`, in constant time.
    pub fn matches(&self, token: &Token) -> bool {
        self.is_equal(&token.hash())
    }

    /// Compares in constant time.
    pub(crate) fn is_equal(&self, other: &TokenHash) -> bool {
        // blake3::Hash compares in constant time.
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }

    /// Returns the session id bound to this token. It cannot be computed from the session id with another token.
    pub fn scope(&self, session: SessionId) -> SessionId {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::keyed_hash(&self.0, &session.0).as_bytes()[..16]);
        SessionId(id)
    }
}

impl From<&Token> for TokenHash {
    fn from(token: &Token) -> Self {
        token.hash()
    }
}

impl From<&TokenHash> for TokenHash {
    fn from(hash: &TokenHash) -> Self {
        *hash
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ticket { host, port, token, fingerprint } = self;
        if host.contains(':') {
            write!(f, "lfn://{token}@[{host}]:{port}#{fingerprint}")
        } else {
            write!(f, "lfn://{token}@{host}:{port}#{fingerprint}")
        }
    }
}

impl FromStr for Token {
    type Err = usize;

    /// Returns the number of characters as error.
    fn from_str(text: &str) -> Result<Self, usize> {
        decode(text).map(Token)
    }
}

impl FromStr for Fingerprint {
    type Err = usize;

    /// Returns the number of characters as error.
    fn from_str(text: &str) -> Result<Self, usize> {
        decode(text).map(Fingerprint)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        // The text contains a secret. Errors quote no more than the host.
        let rest = text.trim().strip_prefix("lfn://").ok_or_else(|| TicketError::NotATicket(shorten(text)))?;
        let (authority, fingerprint) = rest.split_once('#').unwrap_or((rest, ""));
        let (token, address) = authority.rsplit_once('@').ok_or_else(|| TicketError::NotATicket(shorten("lfn://…")))?;
        let (host, port) = split_host_port(address.trim_end_matches('/'))?;
        let port = port.unwrap_or(DEFAULT_PORT);
        let token = token.parse().map_err(|length| TicketError::Token { host: host.clone(), length })?;
        let fingerprint =
            fingerprint.parse().map_err(|length| TicketError::Fingerprint { host: host.clone(), length })?;
        Ok(Ticket { host, port, token, fingerprint })
    }
}

impl Ticket {
    /// Splits `lfn://TOKEN@host:port/PATH#FINGERPRINT` into the ticket and the path, if it has one.
    pub fn parse_with_path(text: &str) -> Result<(Ticket, Option<String>), TicketError> {
        let rest = text.trim().strip_prefix("lfn://").ok_or_else(|| TicketError::NotATicket(shorten(text)))?;
        // A path may contain `#` and `@`; a fingerprint and a token cannot contain `/`.
        let (before, fingerprint) = rest.rsplit_once('#').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        let ticket = format!("lfn://{authority}#{fingerprint}").parse()?;
        Ok((ticket, (!path.is_empty()).then(|| path.to_owned())))
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address into the host without brackets and the port.
pub fn split_host_port(address: &str) -> Result<(String, Option<u16>), TicketError> {
    let wrong = || TicketError::Address(address.to_owned());
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, tail) = rest.split_once(']').ok_or_else(wrong)?;
            (host, if tail.is_empty() { None } else { Some(tail.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None if address.matches(':').count() > 1 => (address, None),
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = port.map(|text| text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)).transpose()?;
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

/// Joins a host and a port. An IPv6 address gets brackets.
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn decode<const N: usize>(text: &str) -> Result<[u8; N], usize> {
    let length = text.chars().count();
    BASE64URL_NOPAD.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(length)
}

/// If the count is right, a character must be wrong.
fn got(length: usize, expected: usize) -> String {
    if length == expected { ", one of them is wrong".into() } else { format!(", got {length}") }
}

fn shorten(text: &str) -> String {
    text.chars().take(24).collect()
}

macro_rules! serde_as_text {
    ($type:ident, $what:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::custom(concat!("damaged ", $what)))
            }
        }
    };
}

impl FromStr for SessionId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok()).map(SessionId).ok_or(())
    }
}

impl FromStr for TokenHash {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok()).map(TokenHash).ok_or(())
    }
}

serde_as_text!(Token, "token");
serde_as_text!(TokenHash, "hash of a token");
serde_as_text!(Fingerprint, "fingerprint");
serde_as_text!(SessionId, "session id");

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(host: &str) -> Ticket {
        Ticket {
            host: host.to_owned(),
            port: 7323,
            token: Token::from_bytes([7; 16]),
            fingerprint: Fingerprint([9; 32]),
        }
    }

    #[test]
    fn ticket_round_trips_through_text() {
        for host in ["far.example", "192.0.2.1", "2001:db8::1"] {
            let ticket = ticket(host);
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
    }

    #[test]
    fn path_may_follow_the_port() {
        let text = ticket("far").to_string().replace('#', "/data/a#b@c.bin#");
        assert_eq!(Ticket::parse_with_path(&text), Ok((ticket("far"), Some("data/a#b@c.bin".to_owned()))));
        assert_eq!(Ticket::parse_with_path(&ticket("far").to_string()), Ok((ticket("far"), None)));
    }

    #[test]
    fn address_splits_into_host_and_port() {
        let cases = [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:862", "192.0.2.1", Some(862)),
            ("far.example", "far.example", None),
            ("far.example:5201", "far.example", Some(5201)),
            ("2001:db8::1", "2001:db8::1", None),
            ("::1", "::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:7324", "2001:db8::1", Some(7324)),
        ];
        for (address, host, port) in cases {
            assert_eq!(split_host_port(address), Ok((host.to_owned(), port)), "{address}");
            if let Some(port) = port {
                assert_eq!(join_host_port(host, port), address);
            }
        }
    }

    #[test]
    fn address_without_host_or_with_a_wrong_port_is_an_error() {
        for address in ["", ":862", "far:", "far:x", "far:0", "far:65536", "[::1", "[::1]x", "[::1]:", "[]:5", "a b"] {
            assert_eq!(split_host_port(address), Err(TicketError::Address(address.to_owned())));
        }
    }

    #[test]
    fn error_of_damaged_ticket_hides_the_token() {
        let good = ticket("far").to_string();
        let token = Token::from_bytes([7; 16]).to_string();
        let cases = [
            good.replace("lfn://", "http://"),
            good.replace(&token, "short"),
            good.replace(&token, ""),
            good.replace(":7323", ":99999"),
            good.replace(":7323", ":0"),
            good.replace("far", ""),
            good[..good.len() - 1].to_owned(),
            good.split('#').next().unwrap().to_owned(),
            "lfn://".to_owned(),
            String::new(),
        ];
        for case in cases {
            let error = case.parse::<Ticket>().unwrap_err().to_string();
            assert!(!error.contains(&token), "{error}");
        }
    }

    #[test]
    fn debug_output_keeps_the_token_secret() {
        assert!(!format!("{:?}", ticket("far")).contains(&ticket("far").token.to_string()));
    }
}
