//! Attribution of errors to one end of a copy. An error of a whole copy names a remote path as typed, with its host. A
//! local path has no host. An error of one entry has the same path on both ends, so the end follows in brackets.

use std::ffi::OsString;

use lfn_copy::proto::location::{Location, Resource};
use lfn_copy::{CopyEnd, TransferError};
use lfn_session::SessionError;
use lfn_session::wire::copy::EntryFailure;

use super::places::{Direction, without_secrets};

/// Names of the two ends in error messages.
pub struct EndNames {
    sender: String,
    receiver: String,
}

impl EndNames {
    /// Names the ends as typed, or by their roles if both have the same name.
    pub fn new(direction: &Direction) -> Self {
        let at = |host: &str| format!("at {}", without_secrets(host.as_ref()));
        let (sender, receiver) = match direction {
            Direction::Upload(_, host, _) => ("here".to_owned(), at(host)),
            Direction::Download(host, ..) if !direction.is_local() => (at(host), "here".to_owned()),
            Direction::ThirdParty { sender, receiver, .. } if sender != receiver => (at(sender), at(receiver)),
            _ => (format!("at {}", CopyEnd::Sender), format!("at {}", CopyEnd::Receiver)),
        };
        EndNames { sender, receiver }
    }

    /// Describes a failed entry: its name, the reason and the end.
    pub fn describe(&self, EntryFailure { name, reason: what, end, .. }: &EntryFailure) -> String {
        let end = match end {
            CopyEnd::Sender => &self.sender,
            CopyEnd::Receiver => &self.receiver,
        };
        format!("{name}: {what} ({end})")
    }
}

/// Returns the line of an error. A remote path in it is replaced by the path as typed.
pub fn error_line(error: &TransferError, places: &[OsString]) -> String {
    let text = error.to_string();
    let Some((destination, sources)) = places.split_last() else { return text };
    if let TransferError::End { end, .. } = error {
        let typed = if *end == CopyEnd::Sender { sources.first() } else { Some(destination) };
        let host = typed.and_then(|typed| Location::parse_bytes(typed.as_encoded_bytes()).ok()?.host);
        return host.map_or(text.clone(), |host| format!("{}, {text}", without_secrets(host.as_ref())));
    }
    let typed: Vec<&OsString> = match error {
        TransferError::Session(SessionError::Refused(_)) => places.iter().collect(),
        TransferError::RemoteFailure { end: CopyEnd::Sender, .. } => sources.iter().collect(),
        TransferError::RemoteFailure { end: CopyEnd::Receiver, .. } => vec![destination],
        _ => return text,
    };
    typed
        .into_iter()
        .filter_map(remote_path)
        .find_map(|(path, typed)| replace_path(&text, &path, &typed))
        .unwrap_or(text)
}

/// Returns a remote path as the server names it, and as typed without secrets.
fn remote_path(typed: &OsString) -> Option<(String, String)> {
    let Ok(Location { host: Some(_), resource: Resource::Path(path) }) =
        Location::parse_bytes(typed.as_encoded_bytes())
    else {
        return None;
    };
    let path = path.to_string_lossy();
    // Over ssh, paths start in the home directory.
    let path = path.strip_prefix("~/").unwrap_or(&path);
    (!path.is_empty()).then(|| (path.to_owned(), without_secrets(typed)))
}

/// Replaces the first mention of the path, or of a path below it, by the typed form.
fn replace_path(text: &str, path: &str, typed: &str) -> Option<String> {
    let is_path_at = |at: usize| {
        let next = text[at + path.len()..].chars().next();
        (at == 0 || text[..at].ends_with(' '))
            && next.is_none_or(|c| matches!(c, '/' | ':' | ' ') || path.ends_with('/'))
    };
    let at = text.match_indices(path).map(|(at, _)| at).find(|at| is_path_at(*at))?;
    Some(format!("{}{typed}{}", &text[..at], &text[at + path.len()..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_session::wire::copy::Selection;
    use lfn_session::wire::copy::entry::Name;
    use lfn_session::wire::copy::overwrite::OverwritePolicy;
    use lfn_session::wire::{Refusal, RefusalCode};
    use lfn_session::{Fingerprint, Ticket, Token};

    use super::super::places::direction;
    use super::*;

    fn ticket() -> Ticket {
        Ticket { host: "h".into(), port: 7, token: Token::from_bytes([1; 16]), fingerprint: Fingerprint([2; 32]) }
    }

    #[track_caller]
    fn assert_line(error: &TransferError, places: &[&str], expected: &str) {
        let places: Vec<_> = places.iter().map(OsString::from).collect();
        assert_eq!(error_line(error, &places), expected);
    }

    #[test]
    fn remote_refusal_names_its_host() {
        let refused =
            |text: &str| TransferError::Session(SessionError::Refused(Refusal::new(RefusalCode::NotFound, text)));
        let missing = "same/x: no such file or directory";
        assert_line(&refused(missing), &["far1:same/x", "same/x"], "far1:same/x: no such file or directory");
        assert_line(&refused(missing), &["same/x", "far1:same/x"], "far1:same/x: no such file or directory");
        assert_line(&TransferError::NotFound { path: "same/x".into() }, &["same/x", "far1:same/x"], missing);
        assert_line(&refused("cannot open a: no"), &["me@there:~/a", "b"], "cannot open me@there:~/a: no");
        assert_line(&refused("a/b: no"), &["x", "far1:a"], "far1:a/b: no");
        assert_line(&refused("this is not for a"), &["x", "far1:is"], "this far1:is not for a");
        assert_line(&refused("ab: no"), &["x", "far1:a"], "ab: no");
        let typed = ticket().to_string().replace('#', "/a#");
        assert_line(&refused("a: no"), &[&typed, "b"], "lfn://h:7/a: no");
    }

    #[test]
    fn ends_are_named_as_typed() {
        let failed = |places: &[&str], end| {
            let places: Vec<_> = places.iter().map(OsString::from).collect();
            let direction = direction(&places, OverwritePolicy::default(), &Selection::default()).unwrap();
            let failure =
                EntryFailure { file: None, name: Name::new("a").unwrap(), reason: "no".into(), disk_full: false, end };
            EndNames::new(&direction).describe(&failure)
        };
        for (places, at) in [
            (["x", "far1:x"], ["here", "at far1"]),
            (["far1:x", "y"], ["at far1", "here"]),
            (["me@there:x", "far2:y"], ["at me@there", "at far2"]),
            (["far1:x", "far1:y"], ["at the source", "at the destination"]),
            (["x", "y"], ["at the source", "at the destination"]),
        ] {
            for (end, at) in [CopyEnd::Sender, CopyEnd::Receiver].into_iter().zip(at) {
                assert_eq!(failed(&places, end), format!("a: no ({at})"));
            }
        }
        let ticket = ticket().to_string().replace('#', "/a#");
        assert_eq!(failed(&["x", &ticket], CopyEnd::Receiver), "a: no (at lfn://h:7)");
    }

    #[test]
    fn third_party_error_names_the_right_end() {
        let relayed = |end| TransferError::RemoteFailure {
            end,
            message: "x/y: no such file".into(),
            hint: None,
            resumable: false,
        };
        let places = ["far1:x/y", "far2:x/y"];
        assert_line(&relayed(CopyEnd::Sender), &places, "the source: far1:x/y: no such file");
        assert_line(&relayed(CopyEnd::Receiver), &places, "the destination: far2:x/y: no such file");
    }
}
