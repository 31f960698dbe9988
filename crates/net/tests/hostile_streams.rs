//! Data streams in the clear that somebody on the path meddles with, and streams offered to sessions that are not theirs.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_core::session::{Ticket, Token};
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::Request;
use lfn_core::wire::copy::{FromReceiver, FromSender, Job, To};
use lfn_core::wire::seal::SEALED;
use lfn_net::server::Config;
use lfn_net::server::tokens::file::{Kept, TokenFile};
use lfn_net::service;
use lfn_net::session::Protection;
use lfn_net::session::dial::{self, Target};
use lfn_net::transfer::{LocalSource, Options, TransferError, upload};
use support::Served;

const BLOCK: usize = 1 << 20;
const HELLO: usize = 56;
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes bytes between a client and the server, those of the client in the clear through `meddle`, from the first behind
/// the hello. Connections inside TLS are left alone. Gives the port.
fn meddler(to: u16, meddle: fn(&mut Vec<u8>)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            let (back, forth) = ((server.try_clone().unwrap(), client.try_clone().unwrap()), (client, server));
            thread::spawn(move || pass(back.0, back.1, None));
            thread::spawn(move || pass(forth.0, forth.1, Some(meddle)));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, meddle: Option<fn(&mut Vec<u8>)>) {
    let mut first = [0; 1];
    if let (Some(meddle), Ok(1)) = (meddle, from.peek(&mut first))
        && first[0] == b'l'
    {
        let mut bytes = vec![0; HELLO];
        from.read_exact(&mut bytes).unwrap();
        to.write_all(&bytes).unwrap();
        // The first two blocks, together.
        let mut blocks = vec![0; 2 * (SEALED + BLOCK)];
        if from.read_exact(&mut blocks).is_ok() {
            meddle(&mut blocks);
            let _ = to.write_all(&blocks);
        }
    }
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Uploads three blocks in the clear over one stream, past who meddles.
fn copied_past(meddle: fn(&mut Vec<u8>)) -> (Result<u64, TransferError>, Option<Vec<u8>>) {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(Config { root: Some(root.path().to_owned()), ..support::config() }, service::serve);
    let port = meddler(served.ticket.port, meddle);
    let target = Target::new(Ticket { port, ..served.ticket.clone() }).unwrap();
    let source = root.path().join("source");
    fs::write(&source, data()).unwrap();
    let options =
        Options { streams: 1, block: Bytes(BLOCK as u64), protection: Protection::Clear, ..Options::default() };
    let to = To::File { path: "x".into(), allowed: Allowed::default(), single: true, keep: Default::default() };
    let outcome = upload(&target, &[LocalSource::File(source)], to, &options, support::watch());
    (outcome.map(|outcome| outcome.tally.again), fs::read(root.path().join("x")).ok())
}

fn data() -> Vec<u8> {
    (0..3 * BLOCK).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn a_stream_in_the_clear_that_nobody_meddles_with_is_copied() {
    let (again, there) = copied_past(|_| ());
    assert_eq!(again.unwrap(), 0);
    assert!(there.unwrap() == data());
}

#[test]
fn a_payload_that_was_changed_comes_again() {
    let (again, there) = copied_past(|blocks| blocks[SEALED + 5] ^= 1);
    assert_eq!(again.unwrap(), 1);
    assert!(there.unwrap() == data());
}

#[test]
fn a_header_that_was_changed_is_known_for_that() {
    let changes: [fn(&mut Vec<u8>); 7] = [
        |blocks| blocks[1] ^= 1,
        |blocks| blocks[7] ^= 1,
        |blocks| blocks[13] ^= 16,
        |blocks| blocks[17] ^= 1,
        |blocks| blocks[30] ^= 1,
        |blocks| blocks[60] ^= 1,
        // The second block first.
        |blocks| blocks.rotate_left(SEALED + BLOCK),
    ];
    // Each stream is given up with its first block, until there were too many of them.
    let check = |(number, change)| {
        let (ended, there) = copied_past(change);
        let error = ended.unwrap_err();
        assert!(matches!(error, TransferError::Fruitless { .. }), "change {number}: {error}");
        assert!(error.to_string().contains("changed on the way"), "change {number}: {error}");
        assert!(there.is_none(), "change {number}");
    };
    thread::scope(|scope| changes.into_iter().enumerate().for_each(|change| drop(scope.spawn(move || check(change)))));
}

#[test]
fn a_block_that_was_sent_again_by_somebody_else_is_not_taken() {
    // The stream is given up, but not what came before: the next one brings another block.
    static DONE: AtomicBool = AtomicBool::new(false);
    let (again, there) = copied_past(|blocks| {
        if !DONE.swap(true, Ordering::SeqCst) {
            let first = blocks[..SEALED + BLOCK].to_vec();
            blocks.splice(SEALED + BLOCK..SEALED + BLOCK, first);
        }
    });
    assert_eq!(again.unwrap(), 0);
    assert!(there.unwrap() == data());
}

/// A copy to nowhere: one entry is listed, and nothing sent.
fn request() -> Request {
    let job = Job::Put { to: To::Null };
    support::copy_request(job, 1, 1024)
}

#[test]
fn a_stream_in_the_clear_without_a_secret_is_refused() {
    let served = Served::start(support::config(), service::serve);
    let (target, session) = (served.target(), dial::new_session_id().unwrap());
    let mut control = dial::control(&target, session, request()).unwrap();
    let _stream = dial::data(&target, session, 0, Protection::Clear, None, |_| Ok(())).unwrap();
    let said = loop {
        match control.recv::<FromReceiver>(PATIENCE, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(said.to_string().contains("no secret to seal"), "{said}");
}

#[test]
fn a_stream_of_one_token_does_not_come_to_the_session_of_another() {
    let place = tempfile::tempdir().unwrap();
    let tokens = place.path().join("tokens.toml");
    let hash = Token::from_bytes([1; 16]).hash();
    let rights = "write".parse().unwrap();
    let kept = Kept { hash, rights, root: None, rate: None, created: 0, expires: None };
    TokenFile::change(&tokens, |file| file.tokens.insert("other".into(), kept)).unwrap();
    let served = Served::start(Config { tokens: Some(tokens), ..support::config() }, service::serve);
    let session = dial::new_session_id().unwrap();
    let mut control = dial::control(&served.target(), session, request()).unwrap();
    // The other knows the session's name, which is in the clear before every stream in the clear.
    let other = Target::new(Ticket { token: Token::from_bytes([1; 16]), ..served.ticket.clone() }).unwrap();
    let mut offered = dial::data(&other, session, 0, Protection::Tls, None, |_| Ok(())).unwrap();
    // Nonsense on it would end the session, if it were its own.
    let _ = offered.write_all(&[0xa5; 4096]);
    let entry = serde_json::json!({ "name": "x", "kind": "directory", "mode": 0o755, "modified": [0, 0] });
    control.send(&serde_json::json!({ "sender": "list", "first": 0, "entries": [entry] })).unwrap();
    control.send(&FromSender::Listed { entries: 1, bytes: Bytes(0), left_out: Default::default() }).unwrap();
    loop {
        match control.recv::<FromReceiver>(PATIENCE, "in a test").unwrap() {
            FromReceiver::Done { tally, .. } => break assert_eq!(tally.directories, 1),
            _ => continue,
        }
    }
    // It was kept for a session of its own token, of the same name.
    let mut own = dial::control(&other, session, request()).unwrap();
    let entry =
        serde_json::json!({ "name": "x", "kind": { "file": { "length": 5 } }, "mode": 0o644, "modified": [0, 0] });
    own.send(&serde_json::json!({ "sender": "list", "first": 0, "entries": [entry] })).unwrap();
    let error = loop {
        match own.recv::<FromReceiver>(PATIENCE, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("unknown kind 0xa5"), "{error}");
}

#[test]
fn a_session_and_its_streams_cannot_be_had_a_second_time() {
    let served = Served::start(support::config(), service::serve);
    let (target, session) = (served.target(), dial::new_session_id().unwrap());
    let mut control = dial::control(&target, session, request()).unwrap();
    let _ = control.recv::<FromReceiver>(PATIENCE, "in a test").unwrap();
    let mut again = dial::control(&target, session, request()).unwrap();
    let refused = loop {
        match again.recv::<FromReceiver>(PATIENCE, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains("open already"), "{refused}");
    // The first one goes on.
    control.send(&FromSender::Listed { entries: 0, bytes: Bytes(0), left_out: Default::default() }).unwrap();
    loop {
        if let FromReceiver::Done { .. } = control.recv::<FromReceiver>(PATIENCE, "in a test").unwrap() {
            break;
        }
    }
}
