//! Byte quotas: files, holes, damaged blocks and resumed copies count in full, and a refused file leaves nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use lfn_session::Protection;
use lfn_session::wire::RefusalCode;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::{BlockHash, Digest};
use lfn_session::wire::copy::{BlockHeader, ReceiverMessage, SenderMessage};

use super::{BLOCK, CopyServer, TIMEOUT, block, file, finish, into, refusal, send, send_all};
use crate::support::{self, list};

#[test]
fn file_larger_than_the_quota_is_refused() {
    for sparse in [false, true] {
        let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4000));
        let (mut control, mut streams) = served.open_copy(into(sparse), 1, BLOCK);
        let fits = vec![7; 3000];
        list(&mut control, &[file("fits", 3000), file("huge", 1 << 40), file("more", 1001), file("small", 1000)]);
        let mut failed = Vec::new();
        while failed.len() < 2 {
            if let ReceiverMessage::Failed(failure) = control.recv(TIMEOUT, "in a test").unwrap() {
                failed.push((failure.name.to_string(), failure.reason, failure.disk_full));
            }
        }
        let message = |requested: &str| format!("byte quota of this client: 1 kB of 4 kB per 24 h left, {requested}");
        let huge = ("huge".to_owned(), message("1 TiB requested"), true);
        assert_eq!(failed, [huge, ("more".to_owned(), message("1.001 kB requested"), true)]);
        assert_eq!(served.names(), [""; 0]);
        // Blocks of a refused file are dropped.
        send(&mut streams[0], 3, &[7; 1000], 0, false);
        let (tally, _) = send_all(&mut control, &mut streams[0], &fits, false);
        assert_eq!((tally.files, tally.failed, served.names()), (2, 2, vec!["fits".to_owned(), "small".to_owned()]));
        assert_eq!(fs::read(served.root.path().join("fits")).unwrap(), fits);
    }
}

#[test]
fn abandoned_file_uses_only_the_space_of_its_blocks() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(100 << 20));
    let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 64 << 20)]);
    send(&mut streams[0], 0, &vec![7; 64 << 20], 5, false);
    let partial = || fs::metadata(served.root.path().join(".x.lfn-partial"));
    support::wait_until(|| partial().is_ok_and(|partial| partial.len() == 64 << 20 && partial.blocks() > 0));
    assert!(partial().unwrap().blocks() * 512 < 1 << 20, "{:?}", partial());
}

#[test]
fn holes_count_against_the_quota() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4096));
    for (name, blocks, fits) in [("x", 3, true), ("y", 2, false), ("z", 1, true), ("w", 1, false)] {
        let (session, mut control) = served.open_control(into(true), 1, BLOCK);
        let zeros = vec![0; blocks * BLOCK as usize];
        // A client without any quota left is not admitted.
        list(&mut control, &[file(name, zeros.len() as u64)]);
        if name == "w" {
            assert_eq!(refusal(&mut control), RefusalCode::Quota);
            break;
        }
        let mut stream = served.stream(session, 0, Protection::Tls);
        let (tally, failures) =
            if fits { send_all(&mut control, &mut stream, &zeros, true) } else { finish(&mut control).unwrap() };
        assert_eq!((tally.files, failures.len()), (u64::from(fits), usize::from(!fits)), "{name}: {failures:?}");
        drop((control, stream));
        support::wait_until(|| served.served.admission.running() == 0);
    }
    assert_eq!(served.names(), ["x", "z"]);
}

#[test]
fn copy_resumes_after_the_quota_was_exhausted() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4000));
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 3000)]);
    // Damaged blocks count against the quota too.
    send(&mut streams[0], 0, &data, 0, false);
    let (header, payload) = block(&data, 1);
    for _ in 0..2 {
        streams[0].write_all(&BlockHeader { hash: BlockHash([1; 32]), ..header }.encode()).unwrap();
        streams[0].write_all(&payload).unwrap();
    }
    send(&mut streams[0], 0, &data, 2, false);
    assert_eq!(refusal(&mut control), RefusalCode::Quota);
    drop((control, streams));
    support::wait_until(|| served.served.admission.running() == 0);
    assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
    // Existing blocks need no quota. With less quota than the missing bytes, the files stay unchanged.
    let mut served = served;
    for (left, resumes) in [(1900, false), (2000, true)] {
        served = served.restarted(Some(left));
        let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
        list(&mut control, &[file("x", 3000)]);
        if !resumes {
            let (tally, failures) = finish(&mut control).unwrap();
            assert_eq!((tally.failed, failures[0].disk_full), (1, true), "{failures:?}");
            assert!(failures[0].reason.ends_with("left, 1.976 kB requested"), "{failures:?}");
            assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
            continue;
        }
        let have = loop {
            match control.recv(TIMEOUT, "in a test").unwrap() {
                ReceiverMessage::Have { blocks, .. } => break blocks,
                ReceiverMessage::Failed(failure) => panic!("{failure:?}"),
                _ => {}
            }
        };
        assert_eq!(have, BlockSet::from_range(0, 0));
        [1, 2].iter().for_each(|index| send(&mut streams[0], 0, &data, *index, false));
        control.send(&SenderMessage::Sent { file: 0, digest: Digest(*blake3::hash(&data).as_bytes()) }).unwrap();
        assert_eq!(finish(&mut control).unwrap().0.files, 1);
    }
    assert_eq!(fs::read(served.root.path().join("x")).unwrap(), data);
}
