//! Which end an error is of. Of a whole copy, a path that the far end refused is said as it was typed, with its host
//! before it; one of this host stands alone. Of an entry, whose path is the same at both ends, the end stands behind
//! it.

use std::ffi::OsString;

use lfn_core::transfer::location::{Location, Place};
use lfn_core::wire::copy::Failure;
use lfn_net::session::SessionError;
use lfn_net::transfer::{CarriedEnd, TransferError};

use super::places::{Direction, without_secrets};

/// What the two ends are called where it is told what failed at which.
pub(super) struct Ends {
    sender: String,
    receiver: String,
}

impl Ends {
    /// As typed; where that is the same of both, by what they are for.
    pub(super) fn of(direction: &Direction) -> Self {
        let at = |host: &str| format!("at {}", without_secrets(host.as_ref()));
        let (sender, receiver) = match direction {
            Direction::Up(_, host, _) => ("here".to_owned(), at(host)),
            Direction::Down(host, ..) if !direction.is_here() => (at(host), "here".to_owned()),
            Direction::Across { sender, receiver, .. } if sender != receiver => (at(sender), at(receiver)),
            _ => (format!("at {}", CarriedEnd::Sender), format!("at {}", CarriedEnd::Receiver)),
        };
        Ends { sender, receiver }
    }

    /// What could not be copied, why, and at which end.
    pub(super) fn tell(&self, Failure { name, what, end, .. }: &Failure) -> String {
        let end = match end {
            CarriedEnd::Sender => &self.sender,
            CarriedEnd::Receiver => &self.receiver,
        };
        format!("{name}: {what} ({end})")
    }
}

/// The line of an error, with the path in it as it was typed, where it is one of a far end.
pub(super) fn line(error: &TransferError, places: &[OsString]) -> String {
    let text = error.to_string();
    let Some((destination, sources)) = places.split_last() else { return text };
    if let TransferError::End { end, .. } = error {
        let typed = if *end == "the source" { sources.first() } else { Some(destination) };
        let host = typed.and_then(|typed| Location::parse_bytes(typed.as_encoded_bytes()).ok()?.host);
        return host.map_or(text.clone(), |host| format!("{}, {text}", without_secrets(host.as_ref())));
    }
    let typed: Vec<&OsString> = match error {
        TransferError::Session(SessionError::Refused(_)) => places.iter().collect(),
        TransferError::Relayed { end: CarriedEnd::Sender, .. } => sources.iter().collect(),
        TransferError::Relayed { end: CarriedEnd::Receiver, .. } => vec![destination],
        _ => return text,
    };
    typed.into_iter().filter_map(far_path).find_map(|(path, typed)| named(&text, &path, &typed)).unwrap_or(text)
}

/// A path at a far end as that end calls it, and as it was typed, less what is secret in it.
fn far_path(typed: &OsString) -> Option<(String, String)> {
    let Ok(Location { host: Some(_), place: Place::Path(path) }) = Location::parse_bytes(typed.as_encoded_bytes())
    else {
        return None;
    };
    let path = path.to_string_lossy();
    // Over ssh that is where it starts anyway.
    let path = path.strip_prefix("~/").unwrap_or(&path);
    (!path.is_empty()).then(|| (path.to_owned(), without_secrets(typed)))
}

/// The text with the first mention of that path, or of something in it, as it was typed.
fn named(text: &str, path: &str, typed: &str) -> Option<String> {
    let whole = |at: usize| {
        let behind = text[at + path.len()..].chars().next();
        (at == 0 || text[..at].ends_with(' '))
            && behind.is_none_or(|c| matches!(c, '/' | ':' | ' ') || path.ends_with('/'))
    };
    let at = text.match_indices(path).map(|(at, _)| at).find(|at| whole(*at))?;
    Some(format!("{}{typed}{}", &text[..at], &text[at + path.len()..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_core::session::{Fingerprint, Ticket, Token};
    use lfn_core::transfer::entry::Name;
    use lfn_core::transfer::verdict::Allowed;
    use lfn_core::wire::copy::Pick;
    use lfn_core::wire::{Refusal, RefusalCode};

    use super::super::places::direction;
    use super::*;

    fn ticket() -> Ticket {
        Ticket { host: "h".into(), port: 7, token: Token::from_bytes([1; 16]), fingerprint: Fingerprint([2; 32]) }
    }

    #[track_caller]
    fn says(error: &TransferError, places: &[&str], line_: &str) {
        let places: Vec<_> = places.iter().map(OsString::from).collect();
        assert_eq!(line(error, &places), line_);
    }

    #[test]
    fn what_a_far_end_refused_is_said_with_its_host() {
        let refused =
            |text: &str| TransferError::Session(SessionError::Refused(Refusal::new(RefusalCode::NotFound, text)));
        let missing = "same/x: no such file or directory";
        says(&refused(missing), &["far1:same/x", "same/x"], "far1:same/x: no such file or directory");
        says(&refused(missing), &["same/x", "far1:same/x"], "far1:same/x: no such file or directory");
        says(&TransferError::NotFound { path: "same/x".into() }, &["same/x", "far1:same/x"], missing);
        says(&refused("cannot open a: no"), &["me@there:~/a", "b"], "cannot open me@there:~/a: no");
        says(&refused("a/b: no"), &["x", "far1:a"], "far1:a/b: no");
        says(&refused("this is not for a"), &["x", "far1:is"], "this far1:is not for a");
        says(&refused("ab: no"), &["x", "far1:a"], "ab: no");
        let typed = ticket().to_string().replace('#', "/a#");
        says(&refused("a: no"), &[&typed, "b"], "lfn://h:7/a: no");
    }

    #[test]
    fn the_ends_of_an_entry_are_called_as_typed() {
        let failed = |places: &[&str], end| {
            let places: Vec<_> = places.iter().map(OsString::from).collect();
            let direction = direction(&places, Allowed::default(), &Pick::default()).unwrap();
            let failure = Failure { file: None, name: Name::new("a").unwrap(), what: "no".into(), full: false, end };
            Ends::of(&direction).tell(&failure)
        };
        for (places, at) in [
            (["x", "far1:x"], ["here", "at far1"]),
            (["far1:x", "y"], ["at far1", "here"]),
            (["me@there:x", "far2:y"], ["at me@there", "at far2"]),
            (["far1:x", "far1:y"], ["at the source", "at the destination"]),
            (["x", "y"], ["at the source", "at the destination"]),
        ] {
            for (end, at) in [CarriedEnd::Sender, CarriedEnd::Receiver].into_iter().zip(at) {
                assert_eq!(failed(&places, end), format!("a: no ({at})"));
            }
        }
        let ticket = ticket().to_string().replace('#', "/a#");
        assert_eq!(failed(&["x", &ticket], CarriedEnd::Receiver), "a: no (at lfn://h:7)");
    }

    #[test]
    fn of_two_far_ends_the_right_one_is_named() {
        let relayed =
            |end| TransferError::Relayed { end, what: "x/y: no such file".into(), hint: None, resumable: false };
        let places = ["far1:x/y", "far2:x/y"];
        says(&relayed(CarriedEnd::Sender), &places, "the source says: far1:x/y: no such file");
        says(&relayed(CarriedEnd::Receiver), &places, "the destination says: far2:x/y: no such file");
    }
}
