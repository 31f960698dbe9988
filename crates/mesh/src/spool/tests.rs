use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::entry::EntryKind;

const MAX: u64 = 64 << 20;

fn entry(number: u64) -> Entry {
    Entry { test: "t".repeat(200), ..Entry::new(EntryKind::Latency, "a", "b", Duration::from_secs(number)) }
}

fn numbers(spool: &Spool) -> Vec<u64> {
    spool.pending_entries(usize::MAX, usize::MAX).unwrap().iter().map(|entry| entry.number).collect()
}

fn segments(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().filter(|file| segment_name(&file.as_ref().unwrap().path()).is_some()).count()
}

#[test]
fn entries_stay_until_they_are_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    for number in 1..=5 {
        spool.reserve(1000).unwrap();
        assert_eq!(spool.append(&entry(number)).unwrap(), number);
    }
    spool.acknowledge(2).unwrap();
    assert_eq!(numbers(&spool), [3, 4, 5]);
    assert!(matches!(Spool::open(directory.path(), MAX), Err(SpoolError::InUse(_))));
    drop(spool);
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    assert_eq!((numbers(&spool), spool.pending()), (vec![3, 4, 5], 3));
    spool.acknowledge(99).unwrap();
    spool.acknowledge(1).unwrap();
    assert_eq!((spool.pending(), spool.append(&entry(6)).unwrap()), (0, 6));
}

#[test]
fn batches_are_bounded_and_never_empty() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    for number in 1..=9 {
        spool.append(&entry(number)).unwrap();
    }
    assert_eq!(spool.pending_entries(4, usize::MAX).unwrap().len(), 4);
    assert_eq!(spool.pending_entries(4, 1).unwrap().len(), 1);
    let json = &spool.pending_entries(1, 1).unwrap()[0].json;
    assert_eq!(serde_json::from_str::<Entry>(json).unwrap(), entry(1));
}

#[test]
fn acknowledged_segments_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    let long = Entry { test: "t".repeat(400_000), ..entry(1) };
    for _ in 0..10 {
        spool.append(&long).unwrap();
    }
    assert_eq!(segments(directory.path()), 4);
    spool.acknowledge(7).unwrap();
    assert_eq!((segments(directory.path()), numbers(&spool)), (2, vec![8, 9, 10]));
    drop(spool);
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    spool.acknowledge(10).unwrap();
    assert_eq!(spool.append(&entry(11)).unwrap(), 11);
}

#[test]
fn a_full_spool_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), 1000).unwrap();
    spool.append(&entry(1)).unwrap();
    spool.append(&entry(2)).unwrap();
    assert!(matches!(spool.append(&entry(3)), Err(SpoolError::TooLarge { max: 1000, .. })));
    assert!(matches!(spool.reserve(10_000), Err(SpoolError::TooLarge { .. })));
    assert_eq!(numbers(&spool), [1, 2]);
}

#[test]
fn a_full_spool_has_space_after_the_acknowledgement() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), 1000).unwrap();
    spool.append(&entry(1)).unwrap();
    spool.append(&entry(2)).unwrap();
    spool.acknowledge(1).unwrap();
    assert!(matches!(spool.append(&entry(3)), Err(SpoolError::TooLarge { .. })));
    spool.acknowledge(2).unwrap();
    spool.reserve(500).unwrap();
    assert_eq!(spool.append(&entry(3)).unwrap(), 3);
    drop(spool);
    let spool = Spool::open(directory.path(), 1000).unwrap();
    assert_eq!((numbers(&spool), spool.acknowledged()), (vec![3], 2));
}

/// Changes a byte of the first segment, and returns the open spool.
fn flip(directory: &Path, place: usize) -> Spool {
    let first = directory.join(format!("{:020}.entries", 1));
    let mut bytes = fs::read(&first).unwrap();
    bytes[place] ^= 1;
    fs::write(&first, bytes).unwrap();
    Spool::open(directory, MAX).unwrap()
}

fn spool_of(directory: &Path, count: u64) -> Vec<usize> {
    let mut spool = Spool::open(directory, MAX).unwrap();
    let append = |number| {
        spool.append(&entry(number)).unwrap();
        spool.segments[0].length as usize
    };
    (1..=count).map(append).collect()
}

#[test]
fn damaged_entry_takes_no_other_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let ends = spool_of(directory.path(), 5);
    let mut spool = flip(directory.path(), ends[1] + 40);
    let damage = spool.take_damage().unwrap();
    assert_eq!((damage.lost, numbers(&spool), spool.take_damage()), (1, vec![1, 2, 4, 5], None));
    assert!(damage.path.is_file());
    assert_eq!(spool.append(&entry(6)).unwrap(), 6);
    spool.acknowledge(3).unwrap();
    assert_eq!(numbers(&spool), [4, 5, 6]);
}

#[test]
fn damaged_length_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let ends = spool_of(directory.path(), 5);
    let mut spool = flip(directory.path(), ends[1] + 2);
    assert_eq!((spool.take_damage().unwrap().lost, numbers(&spool)), (1, vec![1, 2]));
    assert_eq!(spool.append(&entry(6)).unwrap(), 3);
}

#[test]
fn damaged_number_sends_all_entries_again() {
    let directory = tempfile::tempdir().unwrap();
    spool_of(directory.path(), 3);
    Spool::open(directory.path(), MAX).unwrap().acknowledge(2).unwrap();
    assert_eq!(numbers(&Spool::open(directory.path(), MAX).unwrap()), [3]);
    let path = directory.path().join(ACKNOWLEDGED);
    let text = fs::read_to_string(&path).unwrap().replacen('2', "3", 1);
    fs::write(&path, text).unwrap();
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    assert_eq!((numbers(&spool), spool.append(&entry(4)).unwrap()), (vec![1, 2, 3], 4));
}

#[test]
fn entry_that_is_too_long_is_kept_without_detail() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), MAX).unwrap();
    let detail = serde_json::from_str(&format!("\"{}\"", "x".repeat(3 << 20))).unwrap();
    let long = Entry { detail: Some(detail), ..entry(1) };
    spool.append(&long).unwrap();
    let kept = &spool.pending_entries(1, usize::MAX).unwrap()[0].json;
    assert_eq!(serde_json::from_str::<Entry>(kept).unwrap(), Entry { detail: None, ..long });
    assert!(matches!(spool.append(&Entry { test: "t".repeat(3 << 20), ..entry(2) }), Err(SpoolError::TooLong)));
}

#[test]
fn reservations_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), 1000).unwrap();
    spool.reserve(400).unwrap();
    spool.reserve(400).unwrap();
    assert!(matches!(spool.reserve(400), Err(SpoolError::TooLarge { .. })));
    spool.release(400);
    spool.reserve(400).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_crash_at_any_byte_keeps_complete_entries(count in 1_u64..8, acknowledged in 0_u64..8, cut in 0_usize..3000) {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(directory.path(), MAX).unwrap();
        let mut ends = vec![0];
        for number in 1..=count {
            spool.append(&entry(number)).unwrap();
            ends.push(spool.segments[0].length as usize);
        }
        spool.acknowledge(acknowledged).unwrap();
        let acknowledged = acknowledged.min(count);
        let path = spool.segments[0].path.clone();
        drop(spool);
        let bytes = fs::read(&path).unwrap();
        let cut = cut.min(bytes.len());
        fs::write(&path, &bytes[..cut]).unwrap();
        let complete = ends.iter().filter(|&&end| end != 0 && end <= cut).count() as u64;
        let mut spool = Spool::open(directory.path(), MAX).unwrap();
        prop_assert_eq!(numbers(&spool), (acknowledged + 1..=complete).collect::<Vec<_>>());
        let next = spool.append(&entry(100)).unwrap();
        prop_assert!(next > complete && next > acknowledged);
        prop_assert_eq!(numbers(&spool).last().copied(), Some(next));
    }
}
