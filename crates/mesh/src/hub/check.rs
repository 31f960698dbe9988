//! Decides which entries of an agent are stored: entries about the agent itself, within the bounds of the archive.

use std::time::Duration;

use crate::entry::{Entry, EntryError, EntryKind, RawJson};

/// Entries later than this after the clock of the hub get a mark: the clock of the agent is ahead.
const MAX_AHEAD: Duration = Duration::from_secs(5);

/// Reasons why an entry is never stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EntryRefusal {
    #[error("not an entry: {0}")]
    NotAnEntry(String),
    #[error(transparent)]
    Invalid(#[from] EntryError),
    /// The agent reports for other hosts, or under another name.
    #[error("agent {agent} must not report {from} to {to}")]
    OtherHost { agent: String, from: String, to: String },
    /// Otherwise an agent could fill the archive with names.
    #[error("{0} is no host of the sites file, and the archive has no results of it")]
    UnknownHost(String),
}

/// Parses and checks an entry of an agent. Entries may be about known hosts only.
///
/// The time of an entry is no reason for a refusal: a refused entry is lost, and the clock of the hub may be the wrong one.
pub(super) fn check_entry(
    agent: &str,
    json: &RawJson,
    now: Duration,
    is_known: impl Fn(&str) -> bool,
) -> Result<Entry, EntryRefusal> {
    let mut entry: Entry =
        serde_json::from_str(json.text()).map_err(|error| EntryRefusal::NotAnEntry(error.to_string()))?;
    entry.check()?;
    let is_own = match entry.kind {
        EntryKind::Counters => entry.from == agent && entry.to == agent,
        _ => entry.from == agent || entry.to == agent,
    };
    if !is_own {
        return Err(EntryRefusal::OtherHost { agent: agent.to_owned(), from: entry.from, to: entry.to });
    }
    if let Some(unknown) = [&entry.from, &entry.to].into_iter().find(|host| !is_known(host)) {
        return Err(EntryRefusal::UnknownHost(unknown.clone()));
    }
    entry.marks.clock |= entry.time > now.saturating_add(MAX_AHEAD);
    entry.marks.imported = false;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_other_hosts_are_refused() {
        let check = |entry: &Entry| {
            check_entry("a", &RawJson::of(entry).unwrap(), Duration::from_secs(100), |host| host != "unknown")
        };
        let entry = |kind, from: &str, to: &str| Entry::new(kind, from, to, Duration::from_secs(99));
        assert!(check(&entry(EntryKind::Load, "a", "b")).is_ok());
        assert!(check(&entry(EntryKind::Load, "b", "a")).is_ok());
        assert!(check(&entry(EntryKind::Counters, "a", "a")).is_ok());
        for other in [entry(EntryKind::Load, "b", "c"), entry(EntryKind::Counters, "a", "b")] {
            assert!(matches!(check(&other), Err(EntryRefusal::OtherHost { .. })));
        }
        let null = check_entry("a", &RawJson::of(&()).unwrap(), Duration::ZERO, |_| true);
        assert!(matches!(null, Err(EntryRefusal::NotAnEntry(_))));
        for (from, to) in [("a", "unknown"), ("unknown", "a")] {
            let refused = check(&entry(EntryKind::Load, from, to));
            assert_eq!(refused, Err(EntryRefusal::UnknownHost("unknown".to_owned())));
        }
    }

    #[test]
    fn an_entry_ahead_of_the_hub_is_marked() {
        let check = |seconds| {
            let entry = Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(seconds));
            let json = RawJson::of(&entry).unwrap();
            check_entry("a", &json, Duration::from_secs(100), |_| true).unwrap().marks.clock
        };
        assert!(!check(104) && check(106) && check(10_000_000_000));
    }
}
