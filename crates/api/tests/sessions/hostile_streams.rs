//! Unencrypted data streams that an attacker on the path changes, and streams that are offered to sessions of others.
#![allow(clippy::disallowed_types, reason = "the other end of the path uses plain sockets")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use lfn_api::service;
use lfn_base::units::Bytes;
use lfn_copy::{CopyOptions, LocalSource, TransferError, upload};
use lfn_session::dial::{self, Target};
use lfn_session::server::ServerConfig;
use lfn_session::server::tokens::file::{TokenFile, TokenRecord};
use lfn_session::wire::Request;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::{CopyJob, ReceiverMessage, RemoteDestination, SenderMessage};
use lfn_session::wire::seal::SEALED_HEADER_BYTES;
use lfn_session::{Protection, Ticket, Token};
use support::TestServer;

use crate::support;

const BLOCK: usize = 1 << 20;
const HELLO: usize = 56;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Relays bytes between clients and the server. The first two blocks of an unencrypted client stream, after its hello,
/// go through `tamper`. TLS connections stay unchanged. Returns the port.
fn tampering_proxy(to: u16, tamper: fn(&mut Vec<u8>)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            let (back, forth) = ((server.try_clone().unwrap(), client.try_clone().unwrap()), (client, server));
            thread::spawn(move || pass(back.0, back.1, None));
            thread::spawn(move || pass(forth.0, forth.1, Some(tamper)));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, tamper: Option<fn(&mut Vec<u8>)>) {
    let mut first = [0; 1];
    if let (Some(tamper), Ok(1)) = (tamper, from.peek(&mut first))
        && first[0] == b'l'
    {
        let mut bytes = vec![0; HELLO];
        from.read_exact(&mut bytes).unwrap();
        to.write_all(&bytes).unwrap();
        // The first two blocks.
        let mut blocks = vec![0; 2 * (SEALED_HEADER_BYTES + BLOCK)];
        if from.read_exact(&mut blocks).is_ok() {
            tamper(&mut blocks);
            let _ = to.write_all(&blocks);
        }
    }
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Uploads three blocks over one unencrypted stream through the proxy.
fn upload_through(tamper: fn(&mut Vec<u8>)) -> (Result<u64, TransferError>, Option<Vec<u8>>) {
    let root = tempfile::tempdir().unwrap();
    let served =
        TestServer::start(ServerConfig { root: Some(root.path().to_owned()), ..support::config() }, service::new());
    let port = tampering_proxy(served.ticket.port, tamper);
    let target = Target::new(Ticket { port, ..served.ticket.clone() }).unwrap();
    let source = root.path().join("source");
    fs::write(&source, data()).unwrap();
    let options =
        CopyOptions { streams: 1, block: Bytes(BLOCK as u64), protection: Protection::Clear, ..CopyOptions::default() };
    let to = RemoteDestination::File {
        path: "x".into(),
        allowed: OverwritePolicy::default(),
        single: true,
        preserve: Default::default(),
    };
    let outcome = upload(&target, &[LocalSource::File(source)], to, &options, support::observer());
    (outcome.map(|outcome| outcome.tally.resent_blocks), fs::read(root.path().join("x")).ok())
}

fn data() -> Vec<u8> {
    (0..3 * BLOCK).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn unencrypted_stream_copies_data() {
    let (resent, stored) = upload_through(|_| ());
    assert_eq!(resent.unwrap(), 0);
    assert!(stored.unwrap() == data());
}

#[test]
fn changed_payload_is_sent_again() {
    let (resent, stored) = upload_through(|blocks| blocks[SEALED_HEADER_BYTES + 5] ^= 1);
    assert_eq!(resent.unwrap(), 1);
    assert!(stored.unwrap() == data());
}

#[test]
fn changed_header_is_detected() {
    let changes: [fn(&mut Vec<u8>); 7] = [
        |blocks| blocks[1] ^= 1,
        |blocks| blocks[7] ^= 1,
        |blocks| blocks[13] ^= 16,
        |blocks| blocks[17] ^= 1,
        |blocks| blocks[30] ^= 1,
        |blocks| blocks[60] ^= 1,
        // Swaps the two blocks.
        |blocks| blocks.rotate_left(SEALED_HEADER_BYTES + BLOCK),
    ];
    // Each stream is closed at its first block, until too many streams have failed.
    let check = |(number, change)| {
        let (result, stored) = upload_through(change);
        let error = result.unwrap_err();
        assert!(matches!(error, TransferError::RepeatedStreamFailures { .. }), "change {number}: {error}");
        assert!(error.to_string().contains("was modified on the path"), "change {number}: {error}");
        assert!(stored.is_none(), "change {number}");
    };
    thread::scope(|scope| changes.into_iter().enumerate().for_each(|change| drop(scope.spawn(move || check(change)))));
}

#[test]
fn replayed_block_is_rejected() {
    // The stream is closed, but earlier blocks stay valid. The next stream carries another block.
    static DONE: AtomicBool = AtomicBool::new(false);
    let (resent, stored) = upload_through(|blocks| {
        if !DONE.swap(true, Ordering::SeqCst) {
            let first = blocks[..SEALED_HEADER_BYTES + BLOCK].to_vec();
            blocks.splice(SEALED_HEADER_BYTES + BLOCK..SEALED_HEADER_BYTES + BLOCK, first);
        }
    });
    assert_eq!(resent.unwrap(), 0);
    assert!(stored.unwrap() == data());
}

/// Returns a copy to `null:`, which lists one entry and sends no data.
fn request() -> Request {
    let job = CopyJob::Put { to: RemoteDestination::Null };
    support::copy_request(job, 1, 1024)
}

#[test]
fn unencrypted_stream_without_a_secret_is_refused() {
    let served = TestServer::start(support::config(), service::new());
    let (target, session) = (served.target(), dial::new_session_id().unwrap());
    let mut control = dial::open_control(&target, session, request()).unwrap();
    let _stream = dial::open_data(&target, session, 0, Protection::Clear, None, |_| Ok(())).unwrap();
    let error = loop {
        match control.recv::<ReceiverMessage>(TIMEOUT, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no secret to authenticate"), "{error}");
}

#[test]
fn stream_cannot_join_the_session_of_another_token() {
    let temp = tempfile::tempdir().unwrap();
    let tokens = temp.path().join("tokens.toml");
    let hash = Token::from_bytes([1; 16]).hash();
    let rights = "write".parse().unwrap();
    let record = TokenRecord { hash, rights, root: None, rate: None, created: 0, expires: None };
    TokenFile::update(&tokens, |file| file.tokens.insert("other".into(), record)).unwrap();
    let served = TestServer::start(ServerConfig { token_file: Some(tokens), ..support::config() }, service::new());
    let session = dial::new_session_id().unwrap();
    let mut control = dial::open_control(&served.target(), session, request()).unwrap();
    // The other token knows the session id, which every unencrypted stream shows.
    let other = Target::new(Ticket { token: Token::from_bytes([1; 16]), ..served.ticket.clone() }).unwrap();
    let mut offered = dial::open_data(&other, session, 0, Protection::Tls, None, |_| Ok(())).unwrap();
    // Invalid data would end the session if the stream belonged to it.
    let _ = offered.write_all(&[0xa5; 4096]);
    let entry = serde_json::json!({ "name": "x", "kind": "directory", "mode": 0o755, "modified": [0, 0] });
    control.send(&serde_json::json!({ "sender": "list", "first": 0, "entries": [entry] })).unwrap();
    control.send(&SenderMessage::Listed { entries: 1, bytes: Bytes(0), skipped: Default::default() }).unwrap();
    loop {
        match control.recv::<ReceiverMessage>(TIMEOUT, "in a test").unwrap() {
            ReceiverMessage::Done { tally, .. } => break assert_eq!(tally.directories, 1),
            _ => continue,
        }
    }
    // The stream was kept for a session with the same id and its own token.
    let mut own = dial::open_control(&other, session, request()).unwrap();
    let entry =
        serde_json::json!({ "name": "x", "kind": { "file": { "length": 5 } }, "mode": 0o644, "modified": [0, 0] });
    own.send(&serde_json::json!({ "sender": "list", "first": 0, "entries": [entry] })).unwrap();
    let error = loop {
        match own.recv::<ReceiverMessage>(TIMEOUT, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("unknown kind 0xa5"), "{error}");
}

#[test]
fn session_id_cannot_be_used_twice() {
    let served = TestServer::start(support::config(), service::new());
    let (target, session) = (served.target(), dial::new_session_id().unwrap());
    let mut control = dial::open_control(&target, session, request()).unwrap();
    let _ = control.recv::<ReceiverMessage>(TIMEOUT, "in a test").unwrap();
    let mut resent = dial::open_control(&target, session, request()).unwrap();
    let refused = loop {
        match resent.recv::<ReceiverMessage>(TIMEOUT, "in a test") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains("already open"), "{refused}");
    // The first session continues.
    control.send(&SenderMessage::Listed { entries: 0, bytes: Bytes(0), skipped: Default::default() }).unwrap();
    loop {
        if let ReceiverMessage::Done { .. } = control.recv::<ReceiverMessage>(TIMEOUT, "in a test").unwrap() {
            break;
        }
    }
}
