//! What a server does with those it does not know: slow talkers, crowds, wrong tokens, wrong keys, other protocols.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::{Ticket, Token};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{Direction, Load, SocketWish, TestRequest};
use lfn_core::wire::{Refusal, Request};
use lfn_net::server::admission::{Quotas, Share};
use lfn_net::server::{Config, Connections};
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Protection, SessionError};
use lfn_net::tester::{self, Test};
use serde_json::json;
use support::Served;

fn served(connections: Connections, quotas: Quotas, token_expires: Option<SystemTime>) -> Served {
    Served::start(Config { connections, quotas, token_expires, ..support::config() }, service::serve)
}

fn connect(server: &Served) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.ticket.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// What a client with this ticket hears in answer to a copy of zeros into nothing.
fn ask(ticket: &Ticket) -> Result<serde_json::Value, SessionError> {
    let target = Target::new(ticket.clone())?;
    let mut control = dial::control(&target, dial::new_session_id()?, zeros_from_far())?;
    control.recv(Duration::from_secs(20), "before its answer")
}

fn zeros_from_far() -> Request {
    let request = json!({
        "verb": "copy", "direction": "get", "from": [{ "from": "zero", "bytes": 10 }], "streams": 1,
        "block_bytes": 1 << 20
    });
    serde_json::from_value(request).unwrap()
}

/// Whether the server closed the connection, by an end or by a reset.
fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

#[test]
fn who_says_nothing_or_too_little_is_closed() {
    let connections = Connections { hello_within: Duration::from_millis(300), ..Connections::default() };
    let server = served(connections, Quotas::default(), None);
    let mut silent = connect(&server);
    let mut slow = connect(&server);
    // A TLS record header that announces 512 bytes, then a byte now and then: each wait is short, the whole is not.
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
fn a_crowd_is_turned_away_and_the_server_goes_on() {
    let connections = Connections { most: 2, ..Connections::default() };
    let server = served(connections, Quotas::default(), None);
    let crowd: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    // The third is dropped unread, as soon as the accept loop has taken the two before it.
    assert!(is_closed(&mut connect(&server)));
    drop(crowd);
    let answered = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        ask(&server.ticket).is_ok()
    });
    assert!(answered, "{:?}", server.log.lock().unwrap());
}

#[test]
fn a_session_has_as_many_streams_as_it_was_granted_and_others_have_room() {
    let server = served(Connections { most: 12, ..Connections::default() }, Quotas::default(), None);
    let target = server.target();
    let request =
        TestRequest { streams: 2, load: Load::TimeSeconds(Duration::from_secs(60)), ..TestRequest::default() };
    // Enough to take all connections, were they taken.
    let held: Vec<_> = (0..2)
        .map(|_| {
            let id = dial::new_session_id().unwrap();
            let mut control = dial::control(&target, id, Request::Test(Box::new(request.clone()))).unwrap();
            let _: serde_json::Value = control.recv(Duration::from_secs(20), "before the test").unwrap();
            let open = |number| dial::data(&target, id, number, Protection::Clear, None, |_| Ok(())).unwrap();
            let (own, others): (Vec<_>, Vec<_>) = ((0..2).map(open).collect(), (2..10).map(open).collect());
            for stream in &others {
                let mut socket = stream.socket().try_clone().unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                assert!(is_closed(&mut socket));
            }
            (control, own, others)
        })
        .collect();
    for (_, own, _) in &held {
        for stream in own {
            stream.socket().set_nonblocking(true).unwrap();
            let read = stream.socket().peek(&mut [0]).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::WouldBlock, "its own stay");
        }
    }
    ask(&server.ticket).unwrap();
}

#[test]
fn who_leaves_before_its_streams_are_open_gives_its_place_back() {
    let all = Share { sessions: 1, ..Quotas::default().all };
    let quotas = Quotas { all, ..Quotas::default() };
    let server = served(Connections { silence: Duration::from_secs(600), ..Connections::default() }, quotas, None);
    let request = TestRequest { streams: 2, ..TestRequest::default() };
    let id = dial::new_session_id().unwrap();
    let mut control = dial::control(&server.target(), id, Request::Test(Box::new(request))).unwrap();
    let _: serde_json::Value = control.recv(Duration::from_secs(20), "before the test").unwrap();
    assert_eq!(server.admission.running(), 1);
    drop(control);
    let left = Instant::now();
    while server.admission.running() > 0 {
        // Half of what a client has to open them.
        assert!(left.elapsed() < Duration::from_secs(10), "the place is kept");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_wrong_token_an_old_one_and_a_wrong_key_are_told_apart() {
    let server = served(Connections::default(), Quotas::default(), None);
    let wrong_token = Ticket { token: Token::from_bytes([1; 16]), ..server.ticket.clone() };
    let refused = ask(&wrong_token).unwrap_err();
    assert!(refused.to_string().contains("token is not this server's"), "{refused}");
    assert!(refused.hint().is_some());

    let mut wrong_key = server.ticket.clone();
    wrong_key.fingerprint.0[0] ^= 1;
    let refused = ask(&wrong_key).unwrap_err();
    assert!(matches!(refused, SessionError::WrongFingerprint { .. }), "{refused}");

    let expired = served(Connections::default(), Quotas::default(), Some(SystemTime::UNIX_EPOCH));
    let refused = ask(&expired.ticket).unwrap_err();
    assert!(refused.to_string().contains("expired"), "{refused}");
}

#[test]
fn another_protocol_is_named() {
    let server = served(Connections::default(), Quotas::default(), None);
    let mut http = connect(&server);
    http.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // A TLS alert or a close; never data, never silence.
    let mut answer = Vec::new();
    let _ = http.read_to_end(&mut answer);
    assert!(answer.len() < 64, "{answer:?}");

    // And the other way round: an lfn client at something that is no lfn server.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"220 ready\r\n");
        let _ = socket.read(&mut [0; 1024]);
    });
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let error = dial::control(&target, dial::new_session_id().unwrap(), zeros_from_far()).unwrap_err();
    assert!(matches!(error, SessionError::Tls { .. }), "{error}");
    other.join().unwrap();
}

#[test]
fn one_server_one_session_too_many() {
    let all = Share { sessions: 1, ..Quotas::default().all };
    let server = served(Connections::default(), Quotas { all, ..Quotas::default() }, None);
    let target = server.target();
    // The first session waits for a data stream that does not come.
    let mut first = dial::control(&target, dial::new_session_id().unwrap(), zeros_from_far()).unwrap();
    let _: serde_json::Value = first.recv(Duration::from_secs(20), "").unwrap();
    // The second is told so and waits; what `ask` takes for its answer is a word of the queue.
    let refused = ask(&server.ticket).unwrap_err();
    assert!(matches!(refused, SessionError::Frame(_)), "{refused}");
    drop(first);
    let freed = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        ask(&server.ticket).is_ok()
    });
    assert!(freed, "the place of a session that ended is free again");
}

/// A relay to a port, and which side spoke so far, each turn once: `c` for client to server. What the server says comes so
/// late, and all at once, that whatever the client says without waiting for it is one turn.
fn turns(server_port: u16) -> (u16, Arc<Mutex<String>>) {
    const LATE: Duration = Duration::from_millis(200);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let spoke = Arc::<Mutex<String>>::default();
    let turns = spoke.clone();
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
    (port, spoke)
}

#[test]
fn a_request_leaves_two_round_trips_after_the_dial_and_clear_data_one() {
    let server = served(Connections::default(), Quotas::default(), None);
    let (port, spoke) = turns(server.ticket.port);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let mut control = dial::control(&target, dial::new_session_id().unwrap(), zeros_from_far()).unwrap();
    let _: serde_json::Value = control.recv(Duration::from_secs(20), "before its answer").unwrap();
    // After the TCP handshake (one round trip): ClientHello, the server's flight (the second), then the request, and its
    // answer comes at once.
    assert_eq!(*spoke.lock().unwrap(), "cscs", "no round trip more than needed");
    drop(control);

    let (port, spoke) = turns(server.ticket.port);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    let id = dial::new_session_id().unwrap();
    let mut data = dial::data(&target, id, 0, Protection::Clear, None, |_| Ok(())).unwrap();
    data.write_all(b"payload").unwrap();
    // Hello and payload are the client's first turn: nothing is waited for.
    let deadline = Instant::now() + Duration::from_secs(20);
    while spoke.lock().unwrap().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*spoke.lock().unwrap(), "c");
    drop((data, server));
}

/// A way of one round trip to the server: what is said to its port arrives half of that later, and so do the answers.
fn far_away(server_port: u16, round_trip: Duration) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Each ends when its connection does.
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
fn a_test_waits_for_no_round_trip_it_does_not_need() {
    const ROUND_TRIP: Duration = Duration::from_millis(800);
    let server = served(Connections::default(), Quotas::default(), None);
    let port = far_away(server.ticket.port, ROUND_TRIP);
    let target = Target::new(Ticket { port, ..server.ticket.clone() }).unwrap();
    // Beside TCP's handshake, which this way does not delay: TLS's; and the request with the answer that is the report. A
    // receiver that counts says that it has all, once it has; the report answers that.
    for (direction, load, least) in [
        (Direction::Forward, Load::TimeSeconds(Duration::from_millis(50)), 2),
        (Direction::Forward, Load::Records(1), 2),
        (Direction::Reverse, Load::TimeSeconds(Duration::from_millis(50)), 2),
        (Direction::Reverse, Load::Records(1), 3),
    ] {
        let request = TestRequest { direction, load, record: Bytes(1000), ..TestRequest::default() };
        let request = TestRequest { socket: paced(), ..request };
        let (near, stop) = (paced(), Arc::default());
        let test = Test { request, near, path: None, whole_round_trips: false, until: None, omit: None, stop };
        // Of three the fastest: nothing makes one faster than its round trips, a busy machine may make it slower.
        let took = |_| {
            let begun = Instant::now();
            tester::run(&target, &test, &mut |_| {}).unwrap();
            begun.elapsed()
        };
        let waited = (0..3).map(took).find(|took| took.as_nanos() / ROUND_TRIP.as_nanos() <= least);
        let waited = waited.unwrap_or_else(|| panic!("{direction:?} {load:?}: more than {least} round trips"));
        assert_eq!(waited.as_nanos() / ROUND_TRIP.as_nanos(), least, "{direction:?} {load:?}: the way is that long");
    }
}

/// So that little is on its way.
fn paced() -> SocketWish {
    SocketWish { pacing: vec![BitRate(4_000_000)], ..SocketWish::default() }
}

#[test]
fn a_refusal_reads_as_one() {
    let text = serde_json::to_string(&Refusal::new(lfn_core::wire::RefusalCode::Full, "the server is full")).unwrap();
    let newer = text.replace("full\",\"message", "a_code_of_tomorrow\",\"message");
    let read: Refusal = serde_json::from_str(&newer).unwrap();
    assert_eq!(read.code, lfn_core::wire::RefusalCode::Other);
}
