//! Datagram streams need the token, and the address of the control connection, and can be opened once. For all others,
//! the UDP port of the server is silent.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_session::hello::ClearHello;
use lfn_session::server::ServerSession;
use lfn_session::wire::Request;
use lfn_session::{Control, SessionError, SessionId, Token, datagram, dial};
use serde_json::{Value, json};
use support::TestServer;

use crate::support;

const TIMEOUT: Duration = Duration::from_secs(10);

fn served() -> TestServer {
    TestServer::start(support::config(), echo)
}

/// Opens a session that waits for datagrams.
fn session(server: &TestServer) -> (Control, SessionId) {
    let id = dial::new_session_id().unwrap();
    let mut control = dial::open_control(&server.target(), id, request()).unwrap();
    let ready: Value = control.recv(TIMEOUT, "before it is ready").unwrap();
    assert_eq!(ready, json!("ready"));
    (control, id)
}

/// Returns a socket connected to the server's UDP port.
fn stranger(server: &TestServer) -> UdpSocket {
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

/// Returns every datagram of every stream to its sender, until the client disconnects.
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
    let end = session.control.poll::<Value>(TIMEOUT, "during the test");
    over.store(true, Ordering::Relaxed);
    echoes.join().unwrap();
    end.map(|_| ())
}

fn answer_length(socket: &UdpSocket, datagram: &[u8]) -> Option<usize> {
    socket.send(datagram).unwrap();
    socket.recv(&mut [0; 2048]).ok()
}

#[test]
fn datagram_stream_ends_with_its_session() {
    let server = served();
    let (control, id) = session(&server);
    let streams: Vec<_> =
        (0..2).map(|n| dial::open_datagrams(&server.target(), &**control.handle(), id, n, TIMEOUT).unwrap()).collect();
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
    // The sockets of the session are closed. The port itself answers only to a hello.
    let mut buffer = [0; 100];
    let silent = (0..100).any(|_| {
        streams[0].socket().send(b"still there?").unwrap();
        matches!(streams[0].recv(&mut buffer, Duration::from_millis(50)), Ok(None))
    });
    assert!(silent);
}

#[test]
fn udp_port_is_silent_without_the_token() {
    let server = served();
    let (control, id) = session(&server);
    let stranger = stranger(&server);
    let wrong = ClearHello { session: id, stream: 0 }.encode_datagram(&Token::from_bytes([9; 16]));
    let mut damaged = ClearHello { session: id, stream: 0 }.encode_datagram(&server.ticket.token);
    damaged[30] ^= 1;
    let tcp_hello = ClearHello { session: id, stream: 0 }.encode(&server.ticket.token);
    let unknown_session = ClearHello { session: SessionId([7; 16]), stream: 0 }.encode_datagram(&server.ticket.token);
    let other_stream = ClearHello { session: id, stream: 5 }.encode_datagram(&server.ticket.token);
    let cases: [&[u8]; 9] =
        [b"", b"l", &[0; 56], &[b'l'; 1400], &wrong, &damaged, &tcp_hello, &unknown_session, &other_stream];
    for (number, case) in cases.iter().enumerate() {
        assert_eq!(answer_length(&stranger, case), None, "case {number}");
    }
    for _ in 0..2000 {
        stranger.send(&wrong).unwrap();
    }
    // The authenticated client is still served.
    dial::open_datagrams(&server.target(), &**control.handle(), id, 0, TIMEOUT).unwrap();
}

#[test]
fn hello_opens_one_stream_from_the_session_address() {
    let server = served();
    let (control, id) = session(&server);
    let hello = ClearHello { session: id, stream: 0 }.encode_datagram(&server.ticket.token);
    // Another address of this host.
    let elsewhere = UdpSocket::bind("127.0.0.9:0").unwrap();
    elsewhere.connect((Ipv4Addr::LOCALHOST, server.ticket.port)).unwrap();
    elsewhere.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(answer_length(&elsewhere, &hello), None);
    let first = stranger(&server);
    assert_eq!(answer_length(&first, &hello), Some(hello.len()), "as many bytes as it had");
    assert_eq!(answer_length(&first, &hello), Some(hello.len()), "the answer may have been lost");
    // A replay from another port opens nothing, and the first stream continues.
    assert_eq!(answer_length(&stranger(&server), &hello), None);
    assert_eq!(answer_length(&first, b"hello"), Some(5));
    drop(control);
}

#[test]
fn missing_udp_answer_is_reported() {
    let server = served();
    let (control, id) = session(&server);
    let error = dial::open_datagrams(
        &server.target(),
        &**control.handle(),
        id,
        datagram::PATH_STREAM,
        Duration::from_millis(300),
    );
    let error = error.unwrap_err();
    assert!(error.to_string().contains("no answer over UDP from 127.0.0.1:"), "{error}");
    assert!(error.hint().unwrap().contains("UDP"), "{error}");
}
