use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, EntryFinding, EntryKind, Marks, Outcome, RawJson};

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn load(from: &str, to: &str, seconds: u64, goodput: u64) -> Entry {
    Entry {
        test: "goodput".into(),
        duration: Some(Duration::from_secs(10)),
        bytes: Some(Bytes(goodput * 10 / 8)),
        goodput: Some(BitRate(goodput)),
        predicted: Some(BitRate(129_000_000)),
        base_rtt: Some(Duration::from_micros(40_123)),
        hops: vec!["192.0.2.1".into(), String::new(), "192.0.2.9".into()],
        outcome: Outcome::Limited,
        verdict: "limited by the receive window, 13.1 Mb/s".into(),
        findings: vec![EntryFinding {
            name: "receive_window".into(),
            summary: "65 KB per RTT".into(),
            remedy: "sysctl".into(),
            host: Some(to.into()),
        }],
        conditions: BTreeMap::from([("kernel".into(), "6.18".into()), ("congestion".into(), "cubic".into())]),
        marks: Marks { maintenance: true, ..Marks::default() },
        detail: RawJson::of(&serde_json::json!({ "runs": [1, 2] })),
        ..Entry::new(EntryKind::Load, from, to, Duration::from_secs(seconds))
    }
}

fn archive() -> (tempfile::TempDir, Archive) {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::open(&directory.path().join("state/mesh.sqlite")).unwrap();
    (directory, archive)
}

fn all(documents: bool) -> EntryFilter<'static> {
    EntryFilter { texts: true, documents, ..EntryFilter::default() }
}

#[test]
fn entries_are_read_back_and_stored_once() {
    let (_directory, mut archive) = archive();
    let entries = [load("ncar", "sdsc", 1_000, 9_850_000), load("sdsc", "ncar", 1_000, 88_000_000)];
    assert_eq!(archive.insert(&entries, NOW).unwrap(), InsertCount { stored: 2, known: 0 });
    assert_eq!(archive.insert(&entries, NOW).unwrap(), InsertCount { stored: 0, known: 2 });
    assert_eq!(archive.entries(all(true)).unwrap(), entries);
    assert_eq!(archive.latest().unwrap().len(), 2);
    assert_eq!(archive.hosts().unwrap(), ["ncar", "sdsc"]);
    let mode = fs::metadata(archive.path()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn latest_is_the_newest_entry_that_is_not_ahead() {
    let (_directory, mut archive) = archive();
    let ahead = NOW.as_secs() + 7200;
    for seconds in [500, 900, 700, ahead] {
        archive.insert(&[load("a", "b", seconds, seconds * 1000)], NOW).unwrap();
    }
    let latest = archive.latest().unwrap();
    assert_eq!((latest.len(), latest[0].time), (1, Duration::from_secs(900)));
    assert_eq!(archive.entries(all(false)).unwrap().len(), 4);
}

#[test]
fn filters_select_pairs_kinds_and_times() {
    let (_directory, mut archive) = archive();
    let latency = |seconds| Entry::new(EntryKind::Latency, "a", "b", Duration::from_secs(seconds));
    archive.insert(&[load("a", "b", 100, 1), load("b", "c", 200, 2), latency(100), latency(300)], NOW).unwrap();
    let mut count = |filter: EntryFilter<'_>| archive.entries(filter).unwrap().len();
    let filter = EntryFilter::default();
    assert_eq!(count(filter), 4);
    assert_eq!(count(EntryFilter { from: Some("a"), ..filter }), 3);
    assert_eq!(count(EntryFilter { to: Some("b"), kind: Some(EntryKind::Load), ..filter }), 1);
    assert_eq!(count(EntryFilter { from: Some("a"), to: Some("c"), ..filter }), 0);
    assert_eq!(count(EntryFilter { from: Some("absent"), ..filter }), 0);
    let (since, until) = (Some(Duration::from_secs(200)), Some(Duration::from_secs(300)));
    assert_eq!(count(EntryFilter { since, until, ..filter }), 1);
    let newest = archive.entries(EntryFilter { limit: Some(1), ..filter }).unwrap();
    assert_eq!(newest[0].time, Duration::from_secs(300));
    let mut visited = 0;
    let mut first = |_| {
        visited += 1;
        ControlFlow::Break(())
    };
    archive.each_entry(filter, &mut first).unwrap();
    assert_eq!(visited, 1);
}

#[test]
fn tests_that_start_together_have_one_row_each() {
    let (_directory, mut archive) = archive();
    let named = |test: &str, goodput| Entry { test: test.into(), ..load("a", "b", 1_000, goodput) };
    let entries = [named("", 1), named("bulk", 2), named("goodput", 3)];
    assert_eq!(archive.insert(&entries, NOW).unwrap(), InsertCount { stored: 3, known: 0 });
    assert_eq!(archive.insert(&entries, NOW).unwrap(), InsertCount { stored: 0, known: 3 });
    let mut stored = archive.entries(all(true)).unwrap();
    stored.sort_by_key(|entry| entry.goodput);
    assert_eq!(stored, entries);
    assert_eq!(archive.latest().unwrap().len(), 1);
}

#[test]
fn documents_expire_and_texts_stay() {
    let (_directory, mut archive) = archive();
    let later = NOW + Duration::from_secs(600);
    archive.insert(&[load("a", "b", 1_000, 7)], NOW).unwrap();
    // The time of an old result that is imported later does not matter.
    archive.insert(&[load("a", "b", 500, 8)], later).unwrap();
    assert_eq!(archive.expire_details(later, 100).unwrap(), 1);
    let entries = archive.entries(all(true)).unwrap();
    assert_eq!(entries[0], load("a", "b", 500, 8));
    assert_eq!(entries[1], Entry { detail: None, ..load("a", "b", 1_000, 7) });
}

#[test]
fn days_have_minimum_mean_and_maximum() {
    let (_directory, mut archive) = archive();
    let failed = Entry { outcome: Outcome::Failed, ..Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(30)) };
    archive.insert(&[failed, load("a", "b", 40, 30), load("a", "b", 50, 10), load("a", "b", 86_400, 5)], NOW).unwrap();
    let days = archive.days("a", "b", EntryKind::Load, Duration::ZERO, Duration::from_secs(86_401)).unwrap();
    assert_eq!(days.len(), 2);
    let first = &days[0];
    assert_eq!((first.entries, first.failed), (3, 1));
    let rates = [first.goodput_min, first.goodput_mean, first.goodput_max].map(|rate| rate.unwrap().0);
    assert_eq!(rates, [10, 20, 30]);
    assert_eq!(days[1].day, Duration::from_secs(86_400));
    assert_eq!(archive.counts().unwrap().entries, 4);
}

#[test]
fn a_backup_is_an_archive_and_never_overwrites() {
    let (directory, mut archive) = archive();
    archive.insert(&[load("a", "b", 1, 1)], NOW).unwrap();
    let copy = directory.path().join("copy.sqlite");
    archive.back_up(&copy).unwrap();
    let mut copied = Archive::open_read_only(&copy).unwrap();
    assert_eq!(copied.entries(all(true)).unwrap(), archive.entries(all(true)).unwrap());
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(archive.back_up(&copy), Err(ArchiveError::Exists(_))));
}

#[test]
fn a_backup_may_have_any_name_but_no_link() {
    use std::os::unix::ffi::OsStringExt;

    let (directory, mut archive) = archive();
    archive.insert(&[load("a", "b", 1, 1)], NOW).unwrap();
    let copy = directory.path().join(std::ffi::OsString::from_vec(b"copy-\xff.sqlite".to_vec()));
    archive.back_up(&copy).unwrap();
    let file = fs::metadata(&copy).unwrap();
    assert!(file.len() > 10_000 && file.permissions().mode() & 0o777 == 0o600, "{file:?}");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("absent"), &link).unwrap();
    assert!(matches!(archive.back_up(&link), Err(ArchiveError::Exists(_))));
    assert!(!directory.path().join("absent").exists());
}

#[test]
fn a_backup_over_a_killed_archive_needs_its_log_deleted() {
    let (directory, mut archive) = archive();
    let backup = directory.path().join("backup");
    archive.insert(&[load("a", "b", 1, 1)], NOW).unwrap();
    archive.back_up(&backup).unwrap();
    archive.insert(&[load("a", "b", 2, 2)], NOW).unwrap();
    // A killed hub leaves its file and its write-ahead log.
    let killed = directory.path().join("killed");
    let with = |suffix: &str| std::path::PathBuf::from(format!("{}{suffix}", killed.display()));
    fs::copy(archive.path(), &killed).unwrap();
    fs::copy(format!("{}-wal", archive.path().display()), with("-wal")).unwrap();
    assert_eq!(Archive::open_read_only(&killed).unwrap().counts().unwrap().entries, 2);
    fs::copy(archive.path(), &killed).unwrap();
    fs::copy(format!("{}-wal", archive.path().display()), with("-wal")).unwrap();
    fs::copy(&backup, &killed).unwrap();
    for error in [Archive::open(&killed).unwrap_err(), Archive::open_read_only(&killed).unwrap_err()] {
        assert!(
            matches!(&error, ArchiveError::OldLog { .. }) && error.hint().unwrap().contains("killed-shm"),
            "{error}"
        );
    }
    fs::remove_file(with("-wal")).unwrap();
    let _ = fs::remove_file(with("-shm"));
    assert_eq!(Archive::open(&killed).unwrap().counts().unwrap().entries, 1);
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    assert!(matches!(Archive::open_read_only(&path), Err(ArchiveError::Missing(_))));
    fs::write(&path, "some text that is no database, long enough for a header of one hundred bytes".repeat(9)).unwrap();
    assert!(matches!(Archive::open(&path), Err(ArchiveError::Foreign(_))));
    fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute("CREATE TABLE a (x)", []).unwrap();
    assert!(matches!(Archive::open(&path), Err(ArchiveError::Foreign(_))));
    let newer = directory.path().join("newer");
    drop(Archive::open(&newer).unwrap());
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Archive::open(&newer), Err(ArchiveError::Newer { found: 99, .. })));
}

#[test]
fn readers_and_a_writer_share_the_file() {
    let (_directory, mut archive) = archive();
    archive.insert(&[load("a", "b", 1, 1)], NOW).unwrap();
    let mut reader = Archive::open_read_only(archive.path()).unwrap();
    assert_eq!(reader.latest().unwrap().len(), 1);
    archive.insert(&[load("b", "a", 1, 1)], NOW).unwrap();
    assert_eq!(reader.latest().unwrap().len(), 2);
    assert!(matches!(reader.insert(&[load("c", "a", 1, 1)], NOW), Err(ArchiveError::Sql { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn any_text_is_stored_as_text(verdict in ".{0,40}", error in proptest::option::of(".{0,40}"), goodput: u64) {
        let (_directory, mut archive) = archive();
        let goodput = goodput >> 1;
        let entry = Entry {
            verdict, error, goodput: Some(BitRate(goodput)),
            ..Entry::new(EntryKind::Load, "a", "b", Duration::from_millis(1234))
        };
        archive.insert(std::slice::from_ref(&entry), NOW).unwrap();
        prop_assert_eq!(archive.entries(all(true)).unwrap(), [entry]);
    }
}
