//! Users and passwords: the text inside a token, and the file of users.
//!
//! A client encrypts [`IperfCredentials::text`] with the server's public key and sends it as base64 in its parameters.
//! This protects only the password from eavesdroppers: the test itself is not encrypted, and a captured token can be
//! used again until it expires. The encryption is in `crate::iperf3`.

use std::fmt::Write;
use std::time::Duration;

/// Maximum length of a client's token: RSA of 16,384 bits in base64.
pub const MAX_TOKEN: usize = 2736;

/// Maximum length of a line in a users file, as in iperf3.
const MAX_LINE: usize = 1024;

/// User name, password and time from a client.
#[derive(Clone, PartialEq, Eq)]
pub struct IperfCredentials {
    pub user: String,
    /// Password in plain text.
    pub password: String,
    /// In seconds since 1970.
    pub time: i64,
}

impl std::fmt::Debug for IperfCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user)
    }
}

/// Error: a user or password that iperf3's format cannot carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} that is empty, or has a space or a line end, cannot be sent to an iperf3 server")]
pub struct Unsendable(pub &'static str);

impl IperfCredentials {
    /// Returns the text to encrypt.
    pub fn text(&self) -> Result<String, Unsendable> {
        for (what, text) in [("a user", &self.user), ("a password", &self.password)] {
            if !is_word(text) {
                return Err(Unsendable(what));
            }
        }
        Ok(format!("user: {}\npwd:  {}\nts:   {}", self.user, self.password, self.time))
    }

    /// Parses a decrypted text; `None` if the text has another form.
    pub fn read(text: &[u8]) -> Option<IperfCredentials> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut labelled = |label: &str| (words.next()? == label).then(|| words.next())?.filter(|text| is_word(text));
        let (user, password) = (labelled("user:")?, labelled("pwd:")?);
        let time = labelled("ts:")?.parse().ok()?;
        Some(IperfCredentials { user: user.to_owned(), password: password.to_owned(), time })
    }

    /// Returns whether the time is within `skew` of `now`, seconds since 1970.
    pub fn is_recent(&self, now: i64, skew: Duration) -> bool {
        now.abs_diff(self.time) <= skew.as_secs()
    }

    /// Returns the text for the SHA-256 hash in the users file.
    pub fn salted(&self) -> String {
        format!("{{{}}}{}", self.user, self.password)
    }
}

/// Returns whether iperf3 reads the whole text as one word: C reads a word up to a space of any kind or a zero.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '\0')
}

/// Users that may run tests. The file has lines of `user,hash`; the hash is the SHA-256 of `{user}password` in
/// hexadecimal. Empty lines and lines that begin with `#` are ignored.
#[derive(Clone, Default)]
pub struct Users(Vec<(String, [u8; 32])>);

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

/// Error: an invalid line of a users file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct UsersError {
    /// Line number, from 1.
    pub line: usize,
    /// Reason for the error.
    pub reason: &'static str,
}

impl Users {
    /// Reads a users file.
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        let mut users = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what| UsersError { line: number + 1, reason: what };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() > MAX_LINE {
                return Err(wrong("longer than 1024 bytes"));
            }
            let (user, hash) = line.split_once(',').ok_or_else(|| wrong("no comma between user and hash"))?;
            let hash = decode_hash(hash.trim()).ok_or_else(|| wrong("the hash is not SHA-256 in hexadecimal"))?;
            if user.is_empty() {
                return Err(wrong("no user before the comma"));
            }
            users.push((user.to_owned(), hash));
        }
        Ok(Users(users))
    }

    /// Returns whether the user exists with this hash of [`IperfCredentials::salted`]. The time is the same for any
    /// user and hash.
    pub fn admit(&self, user: &str, hash: &[u8; 32]) -> bool {
        self.0.iter().fold(false, |admitted, (known, expected)| {
            let same = expected.iter().zip(hash).fold(0, |different, (a, b)| different | (a ^ b)) == 0;
            admitted | (same & (known == user))
        })
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the line of a users file for this user.
    pub fn line(user: &str, hash: &[u8; 32]) -> String {
        hash.iter().fold(format!("{user},"), |mut line, byte| {
            // Writing to a string cannot fail.
            let _ = write!(line, "{byte:02x}");
            line
        })
    }
}

fn decode_hash(text: &str) -> Option<[u8; 32]> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> IperfCredentials {
        IperfCredentials { user: "mario".into(), password: "rossi".into(), time: 1_700_000_000 }
    }

    #[test]
    fn credentials_have_iperf3s_form_and_are_read_back() {
        let text = claim().text().unwrap();
        assert_eq!(text, "user: mario\npwd:  rossi\nts:   1700000000");
        assert_eq!(IperfCredentials::read(text.as_bytes()), Some(claim()));
        assert_eq!(claim().salted(), "{mario}rossi");
        assert_eq!(format!("{:?}", claim()), "Credentials(mario)", "the password must not be in logs");
    }

    #[test]
    fn invalid_credentials_are_rejected() {
        for text in [
            "",
            "user: a",
            "user: a\npwd:  b\nts:   never",
            "pwd:  b\nuser: a\nts:   1",
            "user: a pwd: b ts: ",
            "user: a\0b pwd: c ts: 1",
        ] {
            assert_eq!(IperfCredentials::read(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(IperfCredentials::read(&[0xff, 0xfe]), None);
        for (user, password) in [("two words", "x"), ("", "x"), ("x", ""), ("x", "a\nb")] {
            let claim = IperfCredentials { user: user.into(), password: password.into(), time: 0 };
            assert!(claim.text().is_err(), "{user:?} {password:?}");
        }
    }

    #[test]
    fn credentials_are_recent_within_the_skew() {
        let skew = Duration::from_secs(10);
        for (now, recent) in [(0, true), (10, true), (-10, true), (11, false), (-11, false)] {
            assert_eq!(claim().is_recent(1_700_000_000 + now, skew), recent, "{now}");
        }
        let odd = IperfCredentials { time: i64::MIN, ..claim() };
        assert!(!odd.is_recent(i64::MAX, skew));
    }

    #[test]
    fn users_file_is_parsed_like_iperf3() {
        let hash = [7; 32];
        let text = format!("# who may\n\n{}\r\n", Users::line("mario", &hash));
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.len(), 1);
        assert!(users.admit("mario", &hash) && !users.admit("luigi", &hash) && !users.admit("mario", &[8; 32]));
        for (text, line) in [("mario", 1), ("\nmario,12", 2), (&format!(",{}", "00".repeat(32))[..], 1)] {
            assert_eq!(Users::parse(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
