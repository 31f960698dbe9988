//! Tests of journals after a crash.

use super::*;
use proptest::prelude::*;

fn header(name: &str, blocks: u64) -> JournalHeader {
    let layout = Layout::new(Bytes(blocks * 1024), Bytes(1024)).unwrap();
    JournalHeader { layout, modified: Modified::new(7, 8).unwrap(), source: name.into(), verify: Verify::Blake3 }
}

fn record(index: u64) -> JournalRecord {
    let is_hole = index.is_multiple_of(8) && index < 48;
    let subtree = if is_hole { Subtree { first: index, level: 1 } } else { Subtree::of_block(index) };
    JournalRecord { subtree, hash: BlockHash(*blake3::hash(&index.to_be_bytes()).as_bytes()) }
}

fn journal(header: &JournalHeader, numbers: &[u64], clean: bool) -> Vec<u8> {
    let (mut bytes, writer) = header.encode().unwrap();
    numbers.iter().for_each(|number| bytes.extend(writer.record(record(*number))));
    if clean {
        bytes.extend(writer.clean_stop_record(closed()));
    }
    bytes
}

fn closed() -> Modified {
    Modified::new(-5, 999_999_999).unwrap()
}

fn read(bytes: &[u8], piece: usize) -> Result<(Vec<JournalRecord>, JournalEnd), JournalError> {
    let (mut reader, mut records) = (JournalReader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        let more = reader.feed(piece, |record| records.push(record))?;
        assert!(reader.buffer.len() <= MAX_HEADER);
        if !more {
            break;
        }
    }
    Ok((records, reader.finish()?))
}

proptest! {
    #[test]
    fn journal_round_trips_in_any_pieces(
        numbers in proptest::collection::vec(0u64..50, 0..40), clean: bool, piece in 1usize..200
    ) {
        let header = header("a\n\u{1}", 50);
        let bytes = journal(&header, &numbers, clean);
        let (records, ending) = read(&bytes, piece).unwrap();
        prop_assert_eq!(records, numbers.into_iter().map(record).collect::<Vec<_>>());
        prop_assert_eq!(&ending.header, &header);
        prop_assert_eq!((ending.valid_bytes, ending.clean_stop, ending.has_invalid_tail), (bytes.len() as u64, clean.then(closed), false));
    }

    #[test]
    fn damaged_records_are_rejected(
        numbers in proptest::collection::vec(0u64..50, 0..20), at: prop::sample::Index, bit in 0u32..8, cut: bool,
        garbage in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..150),
    ) {
        let whole = journal(&header("a", 50), &numbers, true);
        let at = at.index(whole.len());
        // Else the garbage would begin with the missing byte.
        prop_assume!(!cut || garbage.first() != Some(&whole[at]));
        let mut bytes = whole.clone();
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        let start = whole.len() - (numbers.len() + 1) * RECORD_BYTES;
        let clean_copy = bytes.clone();
        bytes.extend(&garbage);
        for bytes in [clean_copy, bytes] {
            let Ok((records, ending)) = read(&bytes, 1000) else {
                prop_assert!(at < start);
                continue;
            };
            prop_assert!(at >= start, "a damaged header was believed");
            let sound = (at - start) / RECORD_BYTES;
            let written: Vec<_> = numbers.iter().take(sound).map(|number| record(*number)).collect();
            prop_assert_eq!(records, written);
            prop_assert_eq!(ending.valid_bytes as usize, start + sound * RECORD_BYTES);
            prop_assert_eq!(ending.clean_stop, None);
            prop_assert_eq!(ending.has_invalid_tail, bytes.len() as u64 > ending.valid_bytes);
        }
    }

    #[test]
    fn no_input_panics(bytes: Vec<u8>, numbers in proptest::collection::vec(0u64..50, 0..5)) {
        let _ = read(&bytes, 7);
        let mut behind = journal(&header("a", 50), &numbers, false);
        behind.extend(bytes);
        prop_assert_eq!(read(&behind, 7).unwrap().0.len(), numbers.len());
    }
}

#[test]
fn records_of_another_journal_are_rejected() {
    let (mut bytes, _) = header("a", 50).encode().unwrap();
    let mut later = header("a", 50);
    later.modified = Modified::new(7, 9).unwrap();
    for other in [header("b", 50), header("a", 51), later] {
        let (_, writer) = other.encode().unwrap();
        let length = bytes.len();
        bytes.extend(writer.record(record(1)));
        bytes.extend(writer.clean_stop_record(closed()));
        let (records, ending) = read(&bytes, 48).unwrap();
        assert_eq!(
            (records, ending.valid_bytes, ending.clean_stop, ending.has_invalid_tail),
            (vec![], length as u64, None, true)
        );
        bytes.truncate(length);
    }
}

#[test]
fn records_of_unknown_blocks_are_rejected() {
    let bytes = journal(&header("a", 3), &[0, 2, 3, 1], false);
    let (records, ending) = read(&bytes, 48).unwrap();
    assert_eq!((records, ending.has_invalid_tail), (vec![record(0), record(2)], true));
}

#[test]
fn records_can_be_appended_to_valid_part() {
    let whole = header("a", 50);
    let mut bytes = journal(&whole, &[1, 2], true);
    let ending = read(&bytes, 48).unwrap().1;
    assert_eq!(ending.clean_stop, Some(closed()));
    bytes.extend(ending.writer.record(record(3)));
    let (records, ending) = read(&bytes, 48).unwrap();
    assert_eq!((records.len(), ending.clean_stop, ending.has_invalid_tail), (3, None, false));
    bytes.extend([9; 47]);
    let ending = read(&bytes, 48).unwrap().1;
    bytes.truncate(ending.valid_bytes as usize);
    bytes.extend(ending.writer.record(record(1)));
    bytes.extend(ending.writer.clean_stop_record(Modified::default()));
    let (records, ending) = read(&bytes, 48).unwrap();
    assert_eq!((records, ending.clean_stop), ([1, 2, 3, 1].map(record).to_vec(), Some(Modified::default())));
}

#[test]
fn errors_name_the_cause() {
    let (line, _) = header("a", 50).encode().unwrap();
    let text = String::from_utf8(line).unwrap();
    let expected = r#"lfn-journal 1 {"length":51200,"modified":[7,8],"block":1024,"source":"a"} "#;
    assert!(text.starts_with(expected), "{text}");
    let error_text = |text: &str| read(text.as_bytes(), 100).map(|_| ()).unwrap_err();
    assert_eq!(error_text(&text.replace("journal 1", "journal 2")), JournalError::Version(2));
    assert_eq!(error_text(&text.replace("51200", "51201")), JournalError::Damaged);
    assert_eq!(error_text("lfn-journal x {}\n"), JournalError::Magic);
    assert_eq!(error_text(text.trim_end()), JournalError::Magic);
    assert_eq!(error_text(&"a".repeat(1 << 20)), JournalError::Magic);
    assert_eq!(JournalReader::default().finish().unwrap_err(), JournalError::Magic);
    assert_eq!(header(&"a".repeat(4097), 5).encode().unwrap_err(), JournalError::Name(4097));
    let long = header(&"\"".repeat(4096), 5);
    assert_eq!(read(&journal(&long, &[4], true), 4096).unwrap().1.header, long);
}
