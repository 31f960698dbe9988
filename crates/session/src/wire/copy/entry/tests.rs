//! Tests of unsafe names, bounds, and the JSON form.

use proptest::prelude::*;

use super::*;
use crate::wire::copy::SenderMessage;
use crate::wire::{FrameKind, MESSAGE_LIMIT, encode};

fn entry(kind: EntryKind) -> Entry {
    Entry::new(Name::new("a/b").unwrap(), kind, 0o644, Modified::new(-1, 999_999_999).unwrap()).unwrap()
}

#[test]
fn names_stay_below_the_root() {
    let long = "a".repeat(256);
    let deep = "ab/".repeat(1366);
    for bad in ["", "/", "/a", "a/", "a//b", "..", "a/../b", "a/..", "./a", "a/.", "a\0b", &long, &deep[..4097]] {
        let bad = bad.replace("\\0", "\0");
        let error_text = Name::new(bad.as_bytes()).unwrap_err().to_string();
        assert!(error_text.len() < 160 && error_text.starts_with("name '"), "{error_text}");
        assert!(serde_json::from_str::<Name>(&serde_json::to_string(&bad).unwrap()).is_err(), "{bad}");
    }
    for good in ["a", "a/b", "...", "..a", "a/.b", " ", "-", "é\n", &long[..255], &deep[..4094]] {
        assert!(Name::new(good).is_ok(), "{good}");
    }
    assert!(Name::new(".").unwrap().is_root());
    assert_eq!(
        serde_json::from_str::<Name>(r#"{"base64":"Li4="}"#).unwrap_err().to_string(),
        "name '..': has a component '..'"
    );
    assert_eq!(Name::new("a/b").unwrap().components().collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn json_form_is_short() {
    let mut file = entry(EntryKind::File { length: Bytes(5) });
    let text = r#"{"name":"a/b","kind":{"file":{"length":5}},"mode":420,"modified":[-1,999999999]}"#;
    assert_eq!(serde_json::to_string(&file).unwrap(), text);
    file.owner = Some(Owner { uid: 1, gid: 2, user: Some("u".into()), group: None });
    file.xattrs.push(Xattr { name: "user.a".into(), value: ByteString(vec![0]) });
    let rest = r#","owner":{"uid":1,"gid":2,"user":"u"},"xattrs":[{"name":"user.a","value":{"base64":"AA=="}}]}"#;
    assert_eq!(serde_json::to_string(&file).unwrap(), text.replace("99]}", &format!("99]{rest}")));
    assert_eq!(serde_json::from_str::<Entry>(&text.replace("420", "420,\"new\":1")).unwrap().mode, 420);
}

#[test]
fn largest_entry_fits_a_frame() {
    let name = Name::new(vec!["\"".repeat(255); 16].join("/")).unwrap();
    let kind = EntryKind::Symlink { target: ByteString(vec![b'"'; MAX_NAME - 1]) };
    let mut largest = Entry::new(name, kind, 0o644, Modified::default()).unwrap();
    let owner = Some(ByteString(vec![b'\\'; 256]));
    largest.owner = Some(Owner { uid: u32::MAX, gid: u32::MAX, user: owner.clone(), group: owner });
    for value in [b'"', 1, 0xff] {
        let each = MAX_XATTR_BYTES / 1024 - 255;
        largest.xattrs = vec![Xattr { name: ByteString(vec![b'\\'; 255]), value: ByteString(vec![value; each]) }; 1024];
        largest.check().unwrap();
        let message = SenderMessage::List { first: u32::MAX, entries: vec![largest.clone()] };
        let frame = encode(FrameKind::Message, &message).unwrap();
        assert!(frame.len() < MESSAGE_LIMIT, "{}", frame.len());
    }
}

#[test]
fn bounds_are_checked_while_parsing() {
    let good = serde_json::to_value(entry(EntryKind::File { length: Bytes(5) })).unwrap();
    let xattr = |name: &str, length: usize| serde_json::json!({"name": name, "value": "v".repeat(length)});
    let cases = [
        ("mode", serde_json::json!(0o10000), "mode 0o10000"),
        ("modified", serde_json::json!([0, 1_000_000_000]), "1000000000 nanoseconds"),
        ("kind", serde_json::json!({"file": {"length": u64::MAX}}), "18446744073709551615 B"),
        ("kind", serde_json::json!({"symlink": {"target": ""}}), "0 bytes"),
        ("kind", serde_json::json!({"symlink": {"target": "a".repeat(4096)}}), "4096 bytes"),
        ("kind", serde_json::json!({"symlink": {"target": "a\u{0}"}}), "2 bytes"),
        ("kind", serde_json::json!("fifo"), "fifo"),
        ("owner", serde_json::json!({"uid": 0, "gid": 0, "group": "g".repeat(257)}), "257 bytes"),
        ("xattrs", serde_json::json!([xattr("", 1)]), "attribute ''"),
        ("xattrs", serde_json::json!([xattr("user.a", 65_537)]), "attribute 'user.a'"),
        ("xattrs", serde_json::json!(vec![xattr("user.a", 65_536); 16]), "16 extended attributes of 1048672 B"),
        ("xattrs", serde_json::json!(vec![xattr("user.a", 1); 1025]), "1025 extended attributes"),
        ("name", serde_json::json!("."), "only a directory"),
    ];
    for (field, value, error_text) in cases {
        let mut bad = good.clone();
        bad[field] = value;
        let error = serde_json::from_value::<Entry>(bad).unwrap_err().to_string();
        assert!(error.contains(error_text), "{field}: {error}");
    }
}

proptest! {
    #[test]
    fn entries_round_trip_within_size_bound(
        names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..80), 3),
        value: Vec<u8>, numbers: (u32, u32, i64, u64), which in 0..4,
    ) {
        let Ok(name) = Name::new(names[0].clone()) else { return Ok(()) };
        let kind = match which {
            0 => EntryKind::Directory,
            1 => EntryKind::File { length: Bytes(numbers.3 >> 1) },
            2 => EntryKind::Symlink { target: ByteString(names[1].iter().map(|b| b | 1).collect()) },
            _ => EntryKind::HardLink { to: numbers.0 },
        };
        let modified = Modified::new(numbers.2, numbers.1 % 1_000_000_000).unwrap();
        let Ok(mut entry) = Entry::new(name, kind, numbers.0 & 0o7777, modified) else { return Ok(()) };
        let owner = Some(ByteString(names[2].clone()));
        entry.owner = Some(Owner { uid: numbers.0, gid: numbers.1, user: owner.clone(), group: owner });
        entry.xattrs.push(Xattr { name: ByteString(names[1].iter().map(|b| b | 1).collect()), value: ByteString(value) });
        let text = serde_json::to_string(&entry).unwrap();
        prop_assert!(text.len() <= entry.max_json_bytes(), "{} of {}: {text}", text.len(), entry.max_json_bytes());
        prop_assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}

#[test]
fn truncated_times_are_recognised() {
    let at = |nanoseconds| Modified::new(5, nanoseconds).unwrap();
    let given = at(123_456_789);
    for kept in [123_456_789, 123_456_700, 123_456_000, 123_000_000, 0] {
        assert!(at(kept).is_truncation_of(given), "{kept}");
    }
    for other in [123_456_788, 123_456_800, 123_457_000, 100_000_001, 900_000_000] {
        assert!(!at(other).is_truncation_of(given), "{other}");
    }
    assert!(!at(5).is_truncation_of(at(0)) && !Modified::new(6, 0).unwrap().is_truncation_of(at(0)));
}
