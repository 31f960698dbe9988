//! Streams of datagrams: opened by who has the token, from where the control connection comes, once; for everybody else
//! the server's UDP port is silent.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_core::session::hello::ClearHello;
use lfn_core::session::{SessionId, Token};
use lfn_core::wire::Request;
use lfn_net::server::ServerSession;
use lfn_net::session::dial;
use lfn_net::session::{Control, SessionError, datagram};
use serde_json::{Value, json};
use support::Served;

const SOON: Duration = Duration::from_secs(10);

fn served() -> Served {
    Served::start(support::config(), echo)
}

/// An open session that waits for datagrams.
fn session(server: &Served) -> (Control, SessionId) {
    let id = dial::new_session_id().unwrap();
    let mut control = dial::control(&server.target(), id, request()).unwrap();
    let ready: Value = control.recv(SOON, "before it is ready").unwrap();
    assert_eq!(ready, json!("ready"));
    (control, id)
}

/// A socket that talks to the server's UDP port.
fn stranger(server: &Served) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, server.ticket.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

fn request() -> Request {
    let request = json!({
        "verb": "copy", "direction": "get", "from": [{ "from": "zero", "bytes": 10 }], "streams": 1,
        "block_bytes": 1 << 20
    });
    serde_json::from_value(request).unwrap()
}

/// Sends every datagram of every stream back, until the client goes.
fn echo(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
    let streams = session.expect_datagrams(0..2);
    session.control.send(&"ready")?;
    let over = Arc::new(AtomicBool::new(false));
    let gone = over.clone();
    let echoes = thread::spawn(move || {
        let mut open = Vec::new();
        while !gone.load(Ordering::Relaxed) {
            open.extend(streams.next(Duration::from_millis(5)));
            for stream in &open {
                let mut buffer = [0; 2048];
                if let Ok(Some(length)) = stream.recv(&mut buffer, Duration::from_millis(5)) {
                    let _ = stream.socket().send(&buffer[..length]);
                }
            }
        }
    });
    let end = session.control.poll::<Value>(SOON, "during the test");
    over.store(true, Ordering::Relaxed);
    echoes.join().unwrap();
    end.map(|_| ())
}

fn answers(socket: &UdpSocket, datagram: &[u8]) -> Option<usize> {
    socket.send(datagram).unwrap();
    socket.recv(&mut [0; 2048]).ok()
}

#[test]
fn a_stream_carries_datagrams_both_ways_and_ends_with_its_session() {
    let server = served();
    let (control, id) = session(&server);
    let streams: Vec<_> =
        (0..2).map(|n| dial::datagrams(&server.target(), control.socket(), id, n, SOON).unwrap()).collect();
    for stream in &streams {
        let mut buffer = [0; 100];
        let text = format!("stream {}", stream.stream());
        let back = (0..20).find_map(|_| {
            stream.socket().send(text.as_bytes()).unwrap();
            stream.recv(&mut buffer, Duration::from_millis(500)).unwrap()
        });
        assert_eq!(&buffer[..back.unwrap()], text.as_bytes());
    }
    assert_ne!(streams[0].tag(), streams[1].tag());
    control.close();
    // The session's sockets go; the port itself says nothing to what is no hello.
    let mut buffer = [0; 100];
    let silent = (0..100).any(|_| {
        streams[0].socket().send(b"still there?").unwrap();
        matches!(streams[0].recv(&mut buffer, Duration::from_millis(50)), Ok(None))
    });
    assert!(silent);
}

#[test]
fn the_port_is_silent_to_whoever_has_not_the_token() {
    let server = served();
    let (control, id) = session(&server);
    let stranger = stranger(&server);
    let wrong = ClearHello { session: id, stream: 0 }.encode_datagram(&Token::from_bytes([9; 16]));
    let mut damaged = ClearHello { session: id, stream: 0 }.encode_datagram(&server.ticket.token);
    damaged[30] ^= 1;
    let tcp_hello = ClearHello { session: id, stream: 0 }.encode(&server.ticket.token);
    let nobodys = ClearHello { session: SessionId([7; 16]), stream: 0 }.encode_datagram(&server.ticket.token);
    let other_stream = ClearHello { session: id, stream: 5 }.encode_datagram(&server.ticket.token);
    let cases: [&[u8]; 9] = [b"", b"l", &[0; 56], &[b'l'; 1400], &wrong, &damaged, &tcp_hello, &nobodys, &other_stream];
    for (number, case) in cases.iter().enumerate() {
        assert_eq!(answers(&stranger, case), None, "case {number}");
    }
    for _ in 0..2000 {
        stranger.send(&wrong).unwrap();
    }
    // The honest one is served all the same.
    dial::datagrams(&server.target(), control.socket(), id, 0, SOON).unwrap();
}

#[test]
fn a_hello_opens_one_stream_and_only_from_where_its_session_comes() {
    let server = served();
    let (control, id) = session(&server);
    let hello = ClearHello { session: id, stream: 0 }.encode_datagram(&server.ticket.token);
    // Another address of this host.
    let elsewhere = UdpSocket::bind("127.0.0.9:0").unwrap();
    elsewhere.connect((Ipv4Addr::LOCALHOST, server.ticket.port)).unwrap();
    elsewhere.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(answers(&elsewhere, &hello), None);
    let first = stranger(&server);
    assert_eq!(answers(&first, &hello), Some(hello.len()), "as many bytes as it had");
    assert_eq!(answers(&first, &hello), Some(hello.len()), "the answer may have been lost");
    // Replayed from another port it opens nothing, and the first one goes on.
    assert_eq!(answers(&stranger(&server), &hello), None);
    assert_eq!(answers(&first, b"hello"), Some(5));
    drop(control);
}

#[test]
fn without_an_answer_udp_is_named() {
    let server = served();
    let (control, id) = session(&server);
    let error = dial::datagrams(&server.target(), control.socket(), id, datagram::PATH, Duration::from_millis(300));
    let error = error.unwrap_err();
    assert!(error.to_string().contains("no answer over UDP from 127.0.0.1:"), "{error}");
    assert!(error.hint().unwrap().contains("UDP"), "{error}");
}
