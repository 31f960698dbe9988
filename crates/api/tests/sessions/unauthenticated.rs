//! Unauthenticated and unsuitable clients: slow ones, too many of them, wrong tokens, wrong keys, and other protocols.

#![allow(clippy::disallowed_types, reason = "the other end of the path uses plain sockets")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_api::service;
use lfn_base::units::{BitRate, Bytes};
use lfn_measure::tester::{self, Test};
use lfn_results::measure::{SocketRequest, TestDirection, TestLoad, TestRequest};
use lfn_session::dial::{self, Target};
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::{Refusal, Request};
use lfn_session::{Protection, SessionError, Ticket, Token};
use serde_json::json;
use support::TestServer;

use crate::support;

fn served(connections: ConnectionLimits, limits: ServerLimits, token_expires: Option<SystemTime>) -> TestServer {
    TestServer::start(
        ServerConfig { connection_limits: connections, limits, token_expires, ..support::config() },
        service::new(),
    )
}

fn connect(server: &TestServer) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.ticket.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Returns the first answer to a copy of zeros to this client.
fn request_zeros(ticket: &Ticket) -> Result<serde_json::Value, SessionError> {
    let target = Target::new(ticket.clone())?;
    let mut control = dial::open_control(&target, dial::new_session_id()?, zeros_request())?;
    control.recv(Duration::from_secs(20), "before its answer")
}

fn zeros_request() -> Request {
    let request = json!({
        "verb": "copy", "direction": "get", "from": [{ "from": "zero", "bytes": 10 }], "streams": 1,
        "block_bytes": 1 << 20
    });
    serde_json::from_value(request).unwrap()
}

/// Returns whether the server closed or reset the connection.
fn is_closed(socket: &mut impl Read) -> bool {
    match socket.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

#[test]
fn silent_and_slow_connections_are_closed() {
    let connections = ConnectionLimits { hello_timeout: Duration::from_millis(300), ..ConnectionLimits::default() };
    let server = served(connections, ServerLimits::default(), None);
    let mut silent = connect(&server);
    let mut slow = connect(&server);
    // A TLS record header that announces 512 bytes, then one byte at a time. Each wait is short, but the total is long.
    slow.write_all(&[22, 3, 1, 2, 0]).unwrap();
    let mut dripping = slow.try_clone().unwrap();
    let drip = thread::spawn(move || {
        while dripping.write_all(&[1]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(is_closed(&mut silent));
    assert!(is_closed(&mut slow));
    drip.join().unwrap();
}

#[test]
fn excess_connections_are_closed() {
    let connections = ConnectionLimits { max_connections: 2, ..ConnectionLimits::default() };
    let server = served(connections, ServerLimits::default(), None);
    let crowd: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    // The third connection is closed unread, as soon as the accept loop has taken the first two.
    assert!(is_closed(&mut connect(&server)));
    drop(crowd);
    let answered = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        request_zeros(&server.ticket).is_ok()
    });
    assert!(answered, "{:?}", server.log.lock());
}

#[test]
fn session_cannot_open_more_streams_than_granted() {
    let server =
        served(ConnectionLimits { max_connections: 12, ..ConnectionLimits::default() }, ServerLimits::default(), None);
    let target = server.target();
    let request =
        TestRequest { streams: 2, load: TestLoad::TimeSeconds(Duration::from_secs(60)), ..TestRequest::default() };
    // Enough streams to exceed the limit of connections.
    let mut sessions: Vec<_> = (0..2)
        .map(|_| {
            let id = dial::new_session_id().unwrap();
            let mut control = dial::open_control(&target, id, Request::Test(Box::new(request.clone()))).unwrap();
            let _: serde_json::Value = control.recv(Duration::from_secs(20), "before the test").unwrap();
            let open = |number| dial::open_data(&target, id, number, Protection::Clear, None, |_| Ok(())).unwrap();
            let (own, mut others): (Vec<_>, Vec<_>) = ((0..2).map(open).collect(), (2..10).map(open).collect());
            for stream in &mut others {
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                assert!(is_closed(stream));
            }
            (control, own, others)
        })
        .collect();
    for (_, own, _) in &mut sessions {
        for stream in own {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let read = stream.peek(&mut [0]).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::WouldBlock, "its own stay");
        }
    }
    request_zeros(&server.ticket).unwrap();
}

#[test]
fn disconnect_before_streams_open_frees_the_slot() {
    let total = ResourceLimits { sessions: 1, ..ServerLimits::default().total };
    let limits = ServerLimits { total, ..ServerLimits::default() };
    let server = served(
        ConnectionLimits { silence_timeout: Duration::from_secs(600), ..ConnectionLimits::default() },
        limits,
        None,
    );
    let request = TestRequest { streams: 2, ..TestRequest::default() };
    let id = dial::new_session_id().unwrap();
    let mut control = dial::open_control(&server.target(), id, Request::Test(Box::new(request))).unwrap();
    let _: serde_json::Value = control.recv(Duration::from_secs(20), "before the test").unwrap();
    assert_eq!(server.admission.running(), 1);
    drop(control);
    let left = Instant::now();
    while server.admission.running() > 0 {
        // Half of the time that a client has to open its streams.
        assert!(left.elapsed() < Duration::from_secs(10), "the place is kept");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wrong_token_expired_token_and_wrong_key_differ() {
    let server = served(ConnectionLimits::default(), ServerLimits::default(), None);
    let wrong_token = Ticket { token: Token::from_bytes([1; 16]), ..server.ticket.clone() };
    let refused = request_zeros(&wrong_token).unwrap_err();
    assert!(refused.to_string().contains("does not know the ticket's token"), "{refused}");
    assert!(refused.hint().is_some());

    let mut wrong_key = server.ticket.clone();
    wrong_key.fingerprint.0[0] ^= 1;
    let refused = request_zeros(&wrong_key).unwrap_err();
    assert!(matches!(refused, SessionError::WrongFingerprint { .. }), "{refused}");

    let expired = served(ConnectionLimits::default(), ServerLimits::default(), Some(SystemTime::UNIX_EPOCH));
    let refused = request_zeros(&expired.ticket).unwrap_err();
    assert!(refused.to_string().contains("expired"), "{refused}");
}

#[test]
fn other_protocols_are_rejected() {
    let server = served(ConnectionLimits::default(), ServerLimits::default(), None);
    let mut http = connect(&server);
    http.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // The answer is a TLS alert or an end of the connection. It is never data or silence.
    let mut answer = Vec::new();
    let _ = http.read_to_end(&mut answer);
    assert!(answer.len() < 64, "{answer:?}");

    // The other direction: an lfn client at another kind of server.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"220 ready\r\n");
        let _ = socket.read(&mut [0; 1024]);
    });
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let error = dial::open_control(&target, dial::new_session_id().unwrap(), zeros_request()).unwrap_err();
    assert!(matches!(error, SessionError::Tls { .. }), "{error}");
    other.join().unwrap();
}

#[test]
fn second_session_waits_for_the_first() {
    let total = ResourceLimits { sessions: 1, ..ServerLimits::default().total };
    let server = served(ConnectionLimits::default(), ServerLimits { total, ..ServerLimits::default() }, None);
    let target = server.target();
    // The first session waits for a data stream that is never opened.
    let mut first = dial::open_control(&target, dial::new_session_id().unwrap(), zeros_request()).unwrap();
    let _: serde_json::Value = first.recv(Duration::from_secs(20), "").unwrap();
    // The second session gets a queue message, which is not the answer that `request_zeros` expects.
    let refused = request_zeros(&server.ticket).unwrap_err();
    assert!(matches!(refused, SessionError::Frame(_)), "{refused}");
    drop(first);
    let freed = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        request_zeros(&server.ticket).is_ok()
    });
    assert!(freed, "the place of a session that ended is free again");
}

/// A relay that records which side sent data, one letter for each turn: `c` for the client. Data of the server is
/// delayed and arrives together. So everything that the client sends without waiting is one turn.
fn recording_relay(server_port: u16) -> (u16, Arc<Mutex<String>>) {
    const LATE: Duration = Duration::from_millis(200);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded = Arc::<Mutex<String>>::default();
    let turns = recorded.clone();
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).unwrap();
        let pass = |mut from: TcpStream, mut to: TcpStream, name: char, turns: Arc<Mutex<String>>| {
            thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(1..) = from.peek(&mut [0]) {
                    if name == 's' {
                        thread::sleep(LATE);
                    }
                    let Ok(length @ 1..) = from.read(&mut buffer) else { break };
                    {
                        let mut turns = turns.lock().unwrap();
                        if !turns.ends_with(name) {
                            turns.push(name);
                        }
                    }
                    if to.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            })
        };
        pass(client.try_clone().unwrap(), server.try_clone().unwrap(), 'c', turns.clone());
        pass(server, client, 's', turns);
    });
    (port, recorded)
}

#[test]
fn requests_need_the_minimum_of_round_trips() {
    let server = served(ConnectionLimits::default(), ServerLimits::default(), None);
    let (port, recorded) = recording_relay(server.ticket.port);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let mut control = dial::open_control(&target, dial::new_session_id().unwrap(), zeros_request()).unwrap();
    let _: serde_json::Value = control.recv(Duration::from_secs(20), "before its answer").unwrap();
    // After the TCP handshake (one round trip): ClientHello and the server's flight (the second), then the request and
    // its answer.
    assert_eq!(*recorded.lock().unwrap(), "cscs", "no round trip more than needed");
    drop(control);

    let (port, recorded) = recording_relay(server.ticket.port);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let id = dial::new_session_id().unwrap();
    let mut data = dial::open_data(&target, id, 0, Protection::Clear, None, |_| Ok(())).unwrap();
    data.write_all(b"payload").unwrap();
    // Hello and payload are one turn of the client: it does not wait in between.
    let deadline = Instant::now() + Duration::from_secs(20);
    while recorded.lock().unwrap().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*recorded.lock().unwrap(), "c");
    drop((data, server));
}

/// Starts a relay with this round-trip time. Returns its port.
fn delayed_path(server_port: u16, round_trip: Duration) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Each thread ends with its connection.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).unwrap();
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                let (late, arriving) = channel::<(Instant, Vec<u8>)>();
                thread::spawn(move || {
                    let mut buffer = [0; 64 * 1024];
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        let _ = late.send((Instant::now() + round_trip / 2, buffer[..length].to_vec()));
                    }
                });
                thread::spawn(move || {
                    for (when, bytes) in arriving {
                        thread::sleep(when.saturating_duration_since(Instant::now()));
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    port
}

#[test]
fn test_needs_the_minimum_of_round_trips() {
    const ROUND_TRIP: Duration = Duration::from_millis(800);
    let server = served(ConnectionLimits::default(), ServerLimits::default(), None);
    let port = delayed_path(server.ticket.port, ROUND_TRIP);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    // Besides the TCP handshake, which the relay does not delay: the TLS handshake, and the request with the report as
    // its answer. After a test with a count, the receiver confirms the end, and the report answers the confirmation.
    for (direction, load, round_trips) in [
        (TestDirection::Forward, TestLoad::TimeSeconds(Duration::from_millis(50)), 2),
        (TestDirection::Forward, TestLoad::Records(1), 2),
        (TestDirection::Reverse, TestLoad::TimeSeconds(Duration::from_millis(50)), 2),
        (TestDirection::Reverse, TestLoad::Records(1), 3),
    ] {
        let request = TestRequest { direction, load, record: Bytes(1000), ..TestRequest::default() };
        let request = TestRequest { socket: paced(), ..request };
        let (near, stop) = (paced(), Arc::default());
        let test = Test {
            request,
            near_socket: near,
            path: None,
            tuned: false,
            round_to_rtt: false,
            target_precision: None,
            omit: None,
            stop,
        };
        // Take the fastest of three: a busy machine may delay a test, but no test is faster than its round trips.
        let took = |_| {
            let started = Instant::now();
            tester::run(&target, &test, &mut |_| {}).unwrap();
            started.elapsed()
        };
        let waited = (0..3).map(took).find(|took| took.as_nanos() / ROUND_TRIP.as_nanos() <= round_trips);
        let waited = waited.unwrap_or_else(|| panic!("{direction:?} {load:?}: more than {round_trips} round trips"));
        assert_eq!(
            waited.as_nanos() / ROUND_TRIP.as_nanos(),
            round_trips,
            "{direction:?} {load:?}: the way is that long"
        );
    }
}

/// Returns a pacing that keeps little data in flight.
fn paced() -> SocketRequest {
    SocketRequest { pacing: vec![BitRate(4_000_000)], ..SocketRequest::default() }
}

#[test]
fn unknown_refusal_code_is_read_as_other() {
    let text =
        serde_json::to_string(&Refusal::new(lfn_session::wire::RefusalCode::Full, "the server is full")).unwrap();
    let newer = text.replace("full\",\"message", "a_code_of_tomorrow\",\"message");
    let read: Refusal = serde_json::from_str(&newer).unwrap();
    assert_eq!(read.code, lfn_session::wire::RefusalCode::Other);
}
