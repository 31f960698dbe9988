//! Where a copy comes from or goes to, as it was typed.
//!
//! The rule is scp's: a colon before any slash makes a far end of what stands before it, and `./a:b` is a local
//! file. Behind an `@` stands a file that holds a ticket, and a slash may be in its name. `random:SIZE`, `zero:SIZE` and
//! `null:` are memory, here or behind the name of a far end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::raw::Raw;
use crate::session::{Ticket, TicketError};
use crate::units::{Bytes, QuantityError};

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The far end: a saved name, or a ticket without its path; `None` is this host.
    pub host: Option<String>,
    /// What is meant there.
    pub place: Place,
}

/// What can be copied from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file or directory.
    Path(PathBuf),
    /// Bytes that do not compress, made on the spot.
    Random(Bytes),
    /// Zeros made on the spot.
    Zero(Bytes),
    /// Checked and forgotten.
    Null,
}

/// Why what was typed is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Nothing between the quotes, or nothing before the colon.
    #[error("'{0}' names no file and no host")]
    Empty(String),
    /// Something behind `null:`.
    #[error("'{0}': null: takes nothing behind it")]
    Null(String),
    /// The size behind `random:` or `zero:`.
    #[error("{typed}: {source}")]
    Size {
        /// As typed.
        typed: String,
        /// What is wrong with it.
        source: QuantityError,
    },
    /// A ticket is text; it holds a token, and is not repeated.
    #[error("lfn://...: a ticket is text; a path of other bytes stands behind a saved name, or @FILE:PATH")]
    TicketBytes,
    /// Only paths may be any bytes.
    #[error("'{0}': what stands before the path is not UTF-8")]
    Bytes(Raw),
    /// The ticket is damaged.
    #[error("{0}")]
    Ticket(#[from] TicketError),
}

impl Location {
    /// Reads what was typed; a path may be any bytes, what names a far end may not.
    pub fn parse_bytes(typed: &[u8]) -> Result<Self, LocationError> {
        if let Ok(text) = std::str::from_utf8(typed) {
            return Location::parse(text);
        }
        if typed.starts_with(b"lfn://") {
            return Err(LocationError::TicketBytes);
        }
        let path = |bytes: &[u8]| Place::Path(PathBuf::from(OsStr::from_bytes(bytes)));
        let start = if typed.starts_with(b"[") { typed.iter().position(|byte| *byte == b']').unwrap_or(0) } else { 0 };
        let ends = |byte: &u8| *byte == b':' || (*byte == b'/' && !typed.starts_with(b"@"));
        match typed[start..].iter().position(ends).map(|at| typed.split_at(start + at)) {
            Some((host, [b':', rest @ ..])) => {
                match std::str::from_utf8(host).map_err(|_| LocationError::Bytes(Raw::from(typed)))? {
                    "" => Err(LocationError::Empty(Raw::from(typed).to_string())),
                    host => Ok(Location { host: Some(host.to_owned()), place: path(rest) }),
                }
            }
            _ => Ok(Location { host: None, place: path(typed) }),
        }
    }

    /// Reads what was typed.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if text.starts_with("lfn://") {
            let (ticket, path) = Ticket::parse_with_path(text)?;
            return Ok(Location { host: Some(ticket.to_string()), place: Place::parse(&path.unwrap_or_default())? });
        }
        if let Some(place) = Place::memory(text)? {
            return Ok(Location { host: None, place });
        }
        match split_host(text) {
            Some(("", _)) => Err(LocationError::Empty(text.to_owned())),
            Some((host, rest)) => Ok(Location { host: Some(host.to_owned()), place: Place::parse(rest)? }),
            None if text.is_empty() => Err(LocationError::Empty(text.to_owned())),
            None => Ok(Location { host: None, place: Place::Path(text.into()) }),
        }
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, LocationError> {
        Ok(Place::memory(text)?.unwrap_or_else(|| Place::Path(text.into())))
    }

    fn memory(text: &str) -> Result<Option<Self>, LocationError> {
        let bytes = |size: &str| size.parse().map_err(|source| LocationError::Size { typed: text.to_owned(), source });
        if let Some(size) = text.strip_prefix("random:") {
            return Ok(Some(Place::Random(bytes(size)?)));
        }
        if let Some(size) = text.strip_prefix("zero:") {
            return Ok(Some(Place::Zero(bytes(size)?)));
        }
        match text.strip_prefix("null:") {
            Some("") => Ok(Some(Place::Null)),
            Some(_) => Err(LocationError::Null(text.to_owned())),
            None => Ok(None),
        }
    }
}

/// The name that a path gives to what it leads to; none where only what is in a directory is meant, by a slash behind it
/// or because its last part is `.` or `..` (rsync's rule).
pub fn own_name(path: &[u8]) -> Option<&[u8]> {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (!matches!(last, b"" | b"." | b"..")).then_some(last)
}

/// Splits at the first colon outside brackets that no slash precedes; `[2001:db8::1]:path` is an address.
fn split_host(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('@') {
        return text.split_once(':');
    }
    let start = if text.starts_with('[') { text.find(']')? } else { 0 };
    let at = start + text[start..].find([':', '/'])?;
    (text.as_bytes()[at] == b':').then(|| (&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn local(place: Place) -> Location {
        Location { host: None, place }
    }

    fn far(place: Place) -> Location {
        Location { host: Some("far".into()), place }
    }

    #[test]
    fn what_is_typed_is_what_is_meant() {
        let cases = [
            ("a", local(Place::Path("a".into()))),
            ("./a:b", local(Place::Path("./a:b".into()))),
            ("/a:b", local(Place::Path("/a:b".into()))),
            ("far:a", far(Place::Path("a".into()))),
            ("far:", far(Place::Path("".into()))),
            ("far:./random:1", far(Place::Path("./random:1".into()))),
            ("random:1GiB", local(Place::Random(Bytes(1 << 30)))),
            ("zero:0", local(Place::Zero(Bytes(0)))),
            ("null:", local(Place::Null)),
            ("far:random:1", far(Place::Random(Bytes(1)))),
            ("far:null:", far(Place::Null)),
        ];
        for (text, location) in cases {
            assert_eq!(Location::parse(text), Ok(location), "{text}");
        }
        for (text, host, path) in [("@/run/t:a/b", "@/run/t", "a/b"), ("-:", "-", "")] {
            let location = Location { host: Some(host.into()), place: Place::Path(path.into()) };
            assert_eq!(Location::parse(text), Ok(location), "{text}");
        }
        for file in ["-", "@a", "./@a:b"] {
            assert_eq!(Location::parse(file), Ok(local(Place::Path(file.into()))), "{file}");
        }
        assert_eq!(Location::parse("[2001:db8::1]:a").unwrap().host.as_deref(), Some("[2001:db8::1]"));
        let ticket = "lfn://AAAAAAAAAAAAAAAAAAAAAA@far:7323/d/a#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let location = Location::parse(ticket).unwrap();
        assert_eq!(location.place, Place::Path("d/a".into()));
        assert_eq!(location.host, Some(ticket.replace("/d/a", "")));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in ["", ":a", "null:x", "random:", "random:-1", "zero:1e99", "far:zero:x", "lfn://x@y", "lfn://"] {
            assert!(Location::parse(text).is_err(), "{text}");
        }
        assert!(Location::parse("far:zero:x").unwrap_err().to_string().starts_with("zero:x: "));
    }

    #[test]
    fn a_slash_behind_a_directory_means_what_is_in_it() {
        for path in ["", "/", ".", "..", "a/", "a//", "a/.", "a/..", "/a/./"] {
            assert_eq!(own_name(path.as_bytes()), None, "{path}");
        }
        for path in ["a", "b/a", "/a", "./a", "../a", "b//a"] {
            assert_eq!(own_name(path.as_bytes()), Some(&b"a"[..]), "{path}");
        }
        assert_eq!(own_name(b"..."), Some(&b"..."[..]));
    }

    #[test]
    fn a_path_may_be_any_bytes() {
        let path = |bytes: &[u8]| Place::Path(PathBuf::from(OsStr::from_bytes(bytes)));
        for (typed, host, rest) in [
            (&b"a\xff"[..], None, &b"a\xff"[..]),
            (b"./a:\xff", None, b"./a:\xff"),
            (b"far:a:\xff", Some("far"), b"a:\xff"),
            (b"@/run/t:\xff", Some("@/run/t"), b"\xff"),
            (b"[2001:db8::1]:\xff", Some("[2001:db8::1]"), b"\xff"),
        ] {
            let location = Location { host: host.map(str::to_owned), place: path(rest) };
            assert_eq!(Location::parse_bytes(typed), Ok(location));
        }
        assert_eq!(Location::parse_bytes(b"far:zero:1"), Ok(far(Place::Zero(Bytes(1)))));
        for typed in [&b"f\xff:a"[..], b"lfn://t@h:1/\xff", b":\xff"] {
            assert!(Location::parse_bytes(typed).is_err());
        }
        let error = Location::parse_bytes(b"lfn://token@h:1/\xff").unwrap_err().to_string();
        assert!(!error.contains("token"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(typed: Vec<u8>) {
            let _ = Location::parse_bytes(&typed);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = Location::parse(&text);
        }
    }
}
