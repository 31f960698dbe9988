//! Users and passwords: the text inside a token, and the file of those who may.
//!
//! A client encrypts [`Claim::text`] with the server's public key and sends it as base64 in its parameters. That keeps
//! the password from whoever listens, and nothing more: the test itself is in the clear, and a token that was heard is
//! good again until its time is over. What encrypts is in `lfn-net`.

use std::fmt::Write;
use std::time::Duration;

/// Longest token of a client: RSA of 16,384 bits in base64.
pub const LONGEST_TOKEN: usize = 2736;

/// Longest line of a users file that is read, as iperf3 has it.
const LONGEST_LINE: usize = 1024;

/// What a client claims of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub user: String,
    /// The password, in the clear.
    pub password: String,
    /// When, in seconds since 1970.
    pub time: i64,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({})", self.user)
    }
}

/// A user or password that iperf3's format cannot carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} with a space, a line end or nothing in it cannot be sent to an iperf3 server")]
pub struct Unsendable(pub &'static str);

impl Claim {
    /// The text to encrypt.
    pub fn text(&self) -> Result<String, Unsendable> {
        for (what, text) in [("a user", &self.user), ("a password", &self.password)] {
            if !is_word(text) {
                return Err(Unsendable(what));
            }
        }
        Ok(format!("user: {}\npwd:  {}\nts:   {}", self.user, self.password, self.time))
    }

    /// What a decrypted text claims; `None` where it is no such text.
    pub fn read(text: &[u8]) -> Option<Claim> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut labelled = |label: &str| (words.next()? == label).then(|| words.next())?.filter(|text| is_word(text));
        let (user, password) = (labelled("user:")?, labelled("pwd:")?);
        let time = labelled("ts:")?.parse().ok()?;
        Some(Claim { user: user.to_owned(), password: password.to_owned(), time })
    }

    /// Whether it was made within `skew` of `now`, seconds since 1970.
    pub fn is_recent(&self, now: i64, skew: Duration) -> bool {
        now.abs_diff(self.time) <= skew.as_secs()
    }

    /// What the users file has the SHA-256 of.
    pub fn salted(&self) -> String {
        format!("{{{}}}{}", self.user, self.password)
    }
}

/// Whether iperf3 would read it whole: it reads words of C, which a space of any kind or a zero ends.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '\0')
}

/// Who may run tests: lines of `user,hash`, the hash being SHA-256 of `{user}password` in hexadecimal. Empty lines and
/// those that begin with `#` mean nothing.
#[derive(Clone, Default)]
pub struct Users(Vec<(String, [u8; 32])>);

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

/// A line of a users file that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct UsersError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Users {
    /// Reads a users file.
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        let mut users = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what| UsersError { line: number + 1, what };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() > LONGEST_LINE {
                return Err(wrong("longer than 1024 bytes"));
            }
            let (user, hash) = line.split_once(',').ok_or_else(|| wrong("no comma between user and hash"))?;
            let hash = unhex(hash.trim()).ok_or_else(|| wrong("the hash is not SHA-256 in hexadecimal"))?;
            if user.is_empty() {
                return Err(wrong("no user before the comma"));
            }
            users.push((user.to_owned(), hash));
        }
        Ok(Users(users))
    }

    /// Whether the user is among them with this hash of [`Claim::salted`]. Takes the same time for any user and hash.
    pub fn admit(&self, user: &str, hash: &[u8; 32]) -> bool {
        self.0.iter().fold(false, |admitted, (known, expected)| {
            let same = expected.iter().zip(hash).fold(0, |different, (a, b)| different | (a ^ b)) == 0;
            admitted | (same & (known == user))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The line of a users file for somebody.
    pub fn line(user: &str, hash: &[u8; 32]) -> String {
        hash.iter().fold(format!("{user},"), |mut line, byte| {
            // Writing to a string does not fail.
            let _ = write!(line, "{byte:02x}");
            line
        })
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim { user: "mario".into(), password: "rossi".into(), time: 1_700_000_000 }
    }

    #[test]
    fn a_claim_is_written_as_iperf3_writes_it_and_read_back() {
        let text = claim().text().unwrap();
        assert_eq!(text, "user: mario\npwd:  rossi\nts:   1700000000");
        assert_eq!(Claim::read(text.as_bytes()), Some(claim()));
        assert_eq!(claim().salted(), "{mario}rossi");
        assert_eq!(format!("{:?}", claim()), "Claim(mario)", "the password is not for logs");
    }

    #[test]
    fn what_is_no_claim_is_nobodys() {
        for text in [
            "",
            "user: a",
            "user: a\npwd:  b\nts:   never",
            "pwd:  b\nuser: a\nts:   1",
            "user: a pwd: b ts: ",
            "user: a\0b pwd: c ts: 1",
        ] {
            assert_eq!(Claim::read(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Claim::read(&[0xff, 0xfe]), None);
        for (user, password) in [("two words", "x"), ("", "x"), ("x", ""), ("x", "a\nb")] {
            let claim = Claim { user: user.into(), password: password.into(), time: 0 };
            assert!(claim.text().is_err(), "{user:?} {password:?}");
        }
    }

    #[test]
    fn a_claim_is_good_for_a_while_on_both_sides() {
        let skew = Duration::from_secs(10);
        for (now, recent) in [(0, true), (10, true), (-10, true), (11, false), (-11, false)] {
            assert_eq!(claim().is_recent(1_700_000_000 + now, skew), recent, "{now}");
        }
        let odd = Claim { time: i64::MIN, ..claim() };
        assert!(!odd.is_recent(i64::MAX, skew));
    }

    #[test]
    fn users_are_read_as_iperf3_reads_them() {
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
