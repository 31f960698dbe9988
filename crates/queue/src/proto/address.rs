//! The address of a queue: `nats://HOST:PORT/NAME`.

use std::fmt;
use std::str::FromStr;

/// Port of NATS servers.
pub const DEFAULT_PORT: u16 = 4222;

/// Maximum length of the name of a queue.
pub const MAX_NAME: usize = 64;

/// A NATS server and the name of a queue there. Its texts contain no password.
#[derive(Clone, PartialEq, Eq)]
pub struct QueueAddress {
    /// URL of the server, without user and password.
    server: String,
    login: Option<Login>,
    name: String,
    has_tls: bool,
}

/// The part of an address that authenticates the user. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A user without a password is a token, as for every client of NATS.
    Token(String),
}

/// Reason why a text is not the address of a queue. No variant contains a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("'{0}' does not begin with nats:// or tls://")]
    Scheme(String),
    /// The text may contain a part of a password, so the error does not show it.
    #[error("a slash in a user name or password must be written as %2F")]
    Login,
    #[error("{0}: the name of the queue is missing: {0}/NAME")]
    NoName(String),
    #[error("{0}: the host is missing")]
    NoHost(String),
    #[error("'{0}' is no port: expected 1 to 65535")]
    Port(String),
    #[error("'{0}' is no name of a queue: expected 1 to {MAX_NAME} of A-Z, a-z, 0-9, _ and -")]
    Name(String),
}

impl QueueAddress {
    /// Returns the URL of the server, without user and password.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the user and the password, or the token.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports whether the connection must be encrypted.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }
}

impl FromStr for QueueAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("nats" | "tls"), rest)) => (scheme, rest),
            // The text may contain a password.
            Some((scheme, _)) => return Err(AddressError::Scheme(format!("{scheme}://"))),
            None => return Err(AddressError::Scheme(without_user(text).to_owned())),
        };
        // A password may contain a slash only in its escaped form, as in every URL.
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        if name.contains('@') {
            return Err(AddressError::Login);
        }
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        let (host, port) = split_port(place);
        if host.is_empty() {
            return Err(AddressError::NoHost(format!("{scheme}://{place}")));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => {
                port.parse().ok().filter(|port| *port > 0).ok_or_else(|| AddressError::Port(port.to_owned()))?
            }
        };
        let server = format!("{scheme}://{host}:{port}");
        if name.is_empty() {
            return Err(AddressError::NoName(server));
        }
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.len() > MAX_NAME || !name.bytes().all(is_valid) {
            return Err(AddressError::Name(name.chars().take(2 * MAX_NAME).collect()));
        }
        let login = user.map(|user| match user.split_once(':') {
            Some((user, password)) => Login::Password { user: unescape(user), password: unescape(password) },
            None => Login::Token(unescape(user)),
        });
        Ok(QueueAddress { server, login, name: name.to_owned(), has_tls: scheme == "tls" })
    }
}

/// Splits the port from a host. An IPv6 address is in brackets.
fn split_port(place: &str) -> (&str, Option<&str>) {
    match place.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (place, None),
    }
}

/// Decodes `%2F` and similar escapes of a URL.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn without_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

impl fmt::Display for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.name)
    }
}

impl fmt::Debug for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_have_a_server_and_a_name() {
        let password = |password: &str| Some(Login::Password { user: "me".into(), password: password.into() });
        for (text, shown, login) in [
            ("nats://h/runs", "nats://h:4222/runs", None),
            ("nats://h:1/a-b_9", "nats://h:1/a-b_9", None),
            ("tls://[::1]:5/q", "tls://[::1]:5/q", None),
            ("nats://[::1]/q", "nats://[::1]:4222/q", None),
            ("nats://me:secret@h/q", "nats://h:4222/q", password("secret")),
            ("nats://me:secret%2F%40%zz@h/q", "nats://h:4222/q", password("secret/@%zz")),
            ("nats://secret@h:7/q", "nats://h:7/q", Some(Login::Token("secret".into()))),
        ] {
            let address: QueueAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(address.login() == login.as_ref(), "{text}");
            assert_eq!(address.has_tls(), text.starts_with("tls"));
            assert!(!format!("{address:?}").contains("secret"));
        }
    }

    #[test]
    fn wrong_addresses_name_the_value() {
        for (text, expected) in [
            ("h/q", "'h/q' does not begin with nats:// or tls://"),
            ("http://me:secret@h/q", "'http://' does not begin with nats:// or tls://"),
            ("me:secret@h/q", "'h/q' does not begin with nats:// or tls://"),
            ("nats://h", "nats://h:4222: the name of the queue is missing: nats://h:4222/NAME"),
            ("nats://h/", "nats://h:4222: the name of the queue is missing: nats://h:4222/NAME"),
            ("nats://:4222/q", "nats://:4222: the host is missing"),
            ("nats://me:secret@/q", "nats://: the host is missing"),
            ("nats://h:x/q", "'x' is no port: expected 1 to 65535"),
            ("nats://h:0/q", "'0' is no port: expected 1 to 65535"),
            ("nats://me:12/secret@h/q", "a slash in a user name or password must be written as %2F"),
            ("nats://h/a.b", "'a.b' is no name of a queue: expected 1 to 64 of A-Z, a-z, 0-9, _ and -"),
        ] {
            assert_eq!(text.parse::<QueueAddress>().unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String, tail: String) {
            let _ = text.parse::<QueueAddress>();
            let _ = format!("nats://{text}/{tail}").parse::<QueueAddress>();
        }
    }
}
