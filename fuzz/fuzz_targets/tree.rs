//! Any bytes as input of a tree copy: a journal in pieces, a list of entries, a set of blocks, a line of a manifest,
//! patterns with a path, a path with wildcards and a name, and a list with the requested entries.

#![no_main]

use lfn_base::units::Bytes;
use lfn_copy::proto::journal::{JournalHeader, JournalReader, JournalRecord};
use lfn_copy::proto::manifest::ManifestLine;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::filter::{Decision, FilterRules};
use lfn_session::wire::copy::glob::{PathPart, is_pattern, split_pattern};
use lfn_session::wire::copy::requested_entries::RequestedEntries;
use lfn_session::wire::copy::{RemoteSource, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else { return };
    match selector % 8 {
        0 => journal(bytes, selector),
        1 => records(bytes, selector),
        2 => entries(bytes),
        3 => blocks(bytes),
        4 => manifest(bytes),
        5 => filter(bytes),
        6 => glob(bytes),
        _ => requested_entries(bytes, selector),
    }
});

fn read(bytes: &[u8], piece: usize) -> Option<(Vec<JournalRecord>, u64)> {
    let (mut reader, mut records) = (JournalReader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        match reader.feed(piece, |record| records.push(record)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                drop(error.to_string());
                return None;
            }
        }
    }
    let ending = reader.finish().ok()?;
    assert!(ending.valid_bytes <= bytes.len() as u64);
    assert!(records.iter().all(|record| record.subtree.first < ending.header.layout.blocks()));
    // Writing gives the bytes that were read.
    let written: Vec<u8> = records.iter().flat_map(|record| ending.writer.record(*record)).collect();
    assert!(written.len() as u64 <= ending.valid_bytes);
    Some((records, ending.valid_bytes))
}

/// The result does not depend on the sizes of the pieces.
fn journal(bytes: &[u8], selector: u8) {
    assert_eq!(read(bytes, usize::from(selector) + 1), read(bytes, bytes.len().max(1)));
}

/// A valid header comes first, so that records are reached. The check of a record has no key, so the fuzzer can find
/// it.
fn records(bytes: &[u8], selector: u8) {
    let layout = Layout::new(Bytes(51_200), Bytes(1024)).unwrap();
    let header =
        JournalHeader { layout, modified: Modified::default(), source: "a".into(), verify: Default::default() };
    let (mut whole, _) = header.encode().unwrap();
    let start = whole.len() as u64;
    whole.extend(bytes);
    let (_, sound) = read(&whole, whole.len()).unwrap();
    assert!(sound >= start);
    assert_eq!(read(&whole, usize::from(selector) + 1), read(&whole, whole.len()));
}

fn entries(bytes: &[u8]) {
    let entries: Vec<Entry> = match serde_json::from_slice(bytes) {
        Ok(entries) => entries,
        Err(error) => return drop(error.to_string()),
    };
    for entry in &entries {
        assert!(!entry.name.as_bytes().starts_with(b"/"));
        assert!(entry.name.components().all(|component| component != b".." && !component.is_empty()));
        assert!(serde_json::to_vec(entry).unwrap().len() <= entry.max_json_bytes());
    }
    let text = serde_json::to_vec(&entries).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<Entry>>(&text).unwrap(), entries);
}

fn blocks(bytes: &[u8]) {
    let set: BlockSet = match serde_json::from_slice(bytes) {
        Ok(set) => set,
        Err(error) => return drop(error.to_string()),
    };
    let text = serde_json::to_vec(&set).unwrap();
    assert_eq!(serde_json::from_slice::<BlockSet>(&text).unwrap(), set);
    let last = set.ranges().last().map_or(0, |(_, last)| last + 1);
    let missing: u64 = set.gaps(last).map(|(first, last)| last - first + 1).sum();
    assert_eq!(missing + set.len(), last);
}

fn manifest(bytes: &[u8]) {
    match ManifestLine::decode(bytes) {
        Ok(line) => assert_eq!(ManifestLine::decode(&line.encode()), Ok(line)),
        Err(fault) => drop(fault.to_string()),
    }
}

/// Lines: the path, then patterns.
fn filter(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let path = lines.next().unwrap_or_default();
    let mut rules = FilterRules::default();
    for (number, pattern) in lines.enumerate() {
        let decision = if number % 2 == 0 { Decision::Exclude } else { Decision::Include };
        let _ = rules.push(decision, pattern).map_err(|error| error.to_string());
    }
    let text = serde_json::to_vec(&rules).unwrap();
    let again: FilterRules = serde_json::from_slice(&text).unwrap();
    for is_directory in [false, true] {
        assert_eq!(rules.decide(path, is_directory), again.decide(path, is_directory));
    }
}

/// Lines: a name, then a path with wildcards that a client requests.
fn glob(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let name: Vec<u8> = lines.next().unwrap_or_default().iter().copied().filter(|byte| *byte != b'/').collect();
    let path = lines.next().unwrap_or_default();
    let components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let read: Vec<PathPart> = split_pattern(path).collect();
    assert_eq!(read.len(), components.len());
    for (part, component) in read.iter().zip(components) {
        match part {
            PathPart::Name(_) => {}
            PathPart::Pattern(pattern) => {
                assert!(is_pattern(component));
                let shown = component.starts_with(b".") || !name.starts_with(b".");
                assert!(shown || !pattern.matches(&name));
                if shown && !component.iter().any(|byte| b"[\\".contains(byte)) {
                    assert_eq!(pattern.matches(&name), matches_slowly(component, &name));
                }
            }
        }
    }
    // Every name can be requested by itself.
    let quoted: Vec<u8> =
        name.iter().flat_map(|byte| if b"*?[\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] }).collect();
    if is_pattern(&name) {
        assert!(matches!(&split_pattern(&quoted).collect::<Vec<_>>()[..], [PathPart::Name(plain)] if *plain == name));
    }
}

/// Lines: a source, an exclude pattern, optionally names, then a list in which directories end with a slash. The
/// entries before an entry do not change its result.
fn requested_entries(bytes: &[u8], selector: u8) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let from = [RemoteSource::File { path: lines.next().unwrap_or_default().into() }];
    let mut selection = Selection::default();
    let _ =
        selection.rules.push(Decision::Exclude, lines.next().unwrap_or_default()).map_err(|error| error.to_string());
    if selector >= 128 {
        let names = lines.next().unwrap_or_default().split(|byte| *byte == b',');
        selection.names = Some(names.filter_map(|name| Name::new(name).ok()).collect());
    }
    let mut all = RequestedEntries::new(&from, &selection);
    for line in lines.take(32) {
        let (name, kind) = match line.strip_suffix(b"/") {
            Some(name) => (name, EntryKind::Directory),
            None => (line, EntryKind::File { length: Bytes(1) }),
        };
        let Ok(name) = Name::new(name) else { continue };
        // Deeper names would repeat too many requests.
        if name.components().count() > 60 {
            continue;
        }
        let Ok(entry) = Entry::new(name, kind, 0o644, Modified::default()) else { continue };
        assert_eq!(all.allows(&entry), RequestedEntries::new(&from, &selection).allows(&entry));
    }
}

/// Matches `*` and `?` inside a component with a table, as a reference.
fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for token in pattern {
        if *token == b'*' {
            for at in 0..name.len() {
                reached[at + 1] |= reached[at];
            }
        } else {
            for at in (0..name.len()).rev() {
                reached[at + 1] = reached[at] && (*token == b'?' || *token == name[at]);
            }
            reached[0] = false;
        }
    }
    reached[name.len()]
}
