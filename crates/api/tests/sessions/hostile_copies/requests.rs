//! Requests, entries and messages that are not valid or not permitted.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use lfn_base::units::Bytes;
use lfn_session::wire::RefusalCode;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{CopyJob, ReceiverMessage, RemoteDestination, RemoteSource, Selection, SenderMessage};
use lfn_session::{Protection, SessionError, dial};
use serde_json::json;

use super::{BLOCK, CopyServer, TIMEOUT, block, file, finish, refusal, to};
use crate::support::{self, list};

#[test]
fn invalid_requests_are_refused() {
    let served = CopyServer::new();
    let get = |from| CopyJob::Get { from: vec![from], selection: Selection::default() };
    let cases = [
        (to("a"), 1, 3, RefusalCode::Limit),
        (to("a"), 1, u64::MAX, RefusalCode::Limit),
        (to("a"), 0, BLOCK, RefusalCode::Limit),
        (to("a"), u16::MAX, BLOCK, RefusalCode::Limit),
        (to("../a"), 1, BLOCK, RefusalCode::Forbidden),
        (to("/etc/a"), 1, BLOCK, RefusalCode::Forbidden),
        (to("a\0b"), 1, BLOCK, RefusalCode::Io),
        (to(&"x/".repeat(4000)), 1, BLOCK, RefusalCode::Io),
        (to(&"x".repeat(300)), 1, BLOCK, RefusalCode::Io),
        (get(RemoteSource::File { path: "../etc/passwd".into() }), 1, BLOCK, RefusalCode::Forbidden),
        (get(RemoteSource::Zero { bytes: Bytes(u64::MAX) }), 1, BLOCK, RefusalCode::Limit),
    ];
    for (job, streams, block, code) in cases {
        let what = format!("{job:?}").chars().take(100).collect::<String>();
        let (mut control, _streams) = served.open_copy(job, streams, block);
        assert_eq!(refusal(&mut control), code, "{what}");
    }
    served.assert_unharmed();
}

#[test]
fn invalid_entries_are_refused() {
    let served = CopyServer::new();
    let long = "x".repeat(300);
    for entry in [
        file("../a", 1),
        file("..", 1),
        file("/etc/passwd", 1),
        file("a\0b", 1),
        file("a//b", 1),
        file("", 1),
        file(&long, 1),
        file("a", u64::MAX),
        json!({ "name": "a", "kind": "device", "mode": 0o644, "modified": [0, 0] }),
        json!({ "name": "a", "kind": "directory", "mode": 0o104644, "modified": [0, 0] }),
    ] {
        let (mut control, _streams) = served.open_copy(to(""), 1, BLOCK);
        list(&mut control, std::slice::from_ref(&entry));
        assert_eq!(refusal(&mut control), RefusalCode::BadMessage, "{entry}");
    }
    // An error that only the disk can find is a failure of this file.
    let (mut control, mut streams) = served.open_copy(to(""), 1, BLOCK);
    list(&mut control, &[file("a", 1 << 53)]);
    let (header, payload) = block(&[7; 3000], 0);
    streams[0].write_all(&header.encode()).unwrap();
    streams[0].write_all(&payload).unwrap();
    let (tally, failures) = finish(&mut control).unwrap();
    assert_eq!((tally.failed, failures.len(), failures[0].disk_full), (1, 1, true), "{failures:?}");
    served.assert_unharmed();
}

#[test]
fn false_receiver_messages_are_refused() {
    let served = CopyServer::new();
    let violations = [
        ReceiverMessage::Request { up_to: 1000 },
        ReceiverMessage::Have { file: 1000, blocks: BlockSet::from_range(0, 0) },
        ReceiverMessage::Have { file: 0, blocks: BlockSet::from_range(0, u64::MAX >> 1) },
        ReceiverMessage::Resend { file: 0, index: u64::MAX },
        ReceiverMessage::Settled { files: BlockSet::from_range(0, 1000) },
    ];
    for violation in violations {
        let from = vec![RemoteSource::Zero { bytes: Bytes(1 << 40) }];
        let (mut control, _streams) =
            served.open_copy(CopyJob::Get { from, selection: Selection::default() }, 2, BLOCK);
        // Wait for the complete list, so that the message refers to listed entries.
        while !matches!(control.recv(TIMEOUT, "in a test").unwrap(), SenderMessage::Listed { .. }) {}
        control.send(&violation).unwrap();
        let code = loop {
            match control.recv::<SenderMessage>(TIMEOUT, "in a test") {
                Ok(_) => {}
                Err(SessionError::Refused(refusal)) => break refusal.code,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(code, RefusalCode::BadMessage, "{violation:?}");
    }
    served.assert_unharmed();
}

#[test]
fn streams_of_refused_sessions_use_no_slots() {
    let served = CopyServer::new();
    // These are more streams than a server keeps without a session (four times its sessions), each opened after the
    // refusal.
    for _ in 0..80 {
        let session = dial::new_session_id().unwrap();
        let job =
            CopyJob::Get { from: vec![RemoteSource::File { path: "missing".into() }], selection: Selection::default() };
        let request = support::copy_request(job, 1, BLOCK);
        let mut control = dial::open_control(&served.target, session, request).unwrap();
        assert_eq!(refusal(&mut control), RefusalCode::NotFound);
        drop(dial::open_data(&served.target, session, 0, Protection::Tls, None, |_| Ok(())));
    }
    served.assert_unharmed();
}

/// `-p` sets the mode bits regardless of the umask, but never set-id bits.
#[test]
fn peer_cannot_create_set_id_files() {
    for (modes, file_bits, directory_bits) in [(true, 0o1777, 0o1777), (false, 0, 0)] {
        let served = CopyServer::new();
        let preserve = Preserve { modes, ..Preserve::default() };
        let to =
            RemoteDestination::File { path: "".into(), allowed: OverwritePolicy::default(), single: false, preserve };
        let (mut control, _streams) = served.open_copy(CopyJob::Put { to }, 1, BLOCK);
        let mut entries = [file("f", 0), file("d", 0)];
        entries[1]["kind"] = json!("directory");
        entries.iter_mut().for_each(|entry| entry["mode"] = json!(0o7777));
        list(&mut control, &entries);
        assert_eq!(finish(&mut control).unwrap().0.failed, 0);
        for (name, bits) in [("f", file_bits), ("d", directory_bits)] {
            let mode = fs::metadata(served.root.path().join(name)).unwrap().mode() & 0o7777;
            // Without `-p`, the umask may have cleared some of the lower bits.
            assert!(if modes { mode == bits } else { mode & 0o7000 == 0 }, "{name} {modes}: {mode:o}");
        }
    }
}
