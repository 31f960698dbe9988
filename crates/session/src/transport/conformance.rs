//! Tests that every transport passes. A new transport adds a line with a function that returns both ends of a stream.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::tcp::{Listener, TcpConnection};
use super::{Connection, Stream, is_timeout, memory, tcp, tls};

/// A short time-out, for waits that must end with it.
const SHORT: Duration = Duration::from_millis(50);

/// Maximum time of a wait that must end earlier.
const LONG: Duration = Duration::from_secs(20);

/// More bytes than the buffers of any transport hold.
const LARGE: usize = 24 << 20;

/// Both ends of a stream.
type Pair = [Box<dyn Stream>; 2];

macro_rules! conforms {
    ($transport:ident, $pair:expr) => {
        mod $transport {
            use super::*;

            conforms!(@tests $pair;
                bytes_arrive_in_order,
                vectored_writes_arrive_in_order,
                peeked_bytes_stay_in_the_stream,
                finished_direction_ends_at_the_peer,
                data_arrives_before_the_end,
                shutdown_wakes_a_blocked_reader,
                shutdown_wakes_a_blocked_writer,
                read_timeout_leaves_the_stream_usable,
                write_timeout_leaves_the_stream_usable,
                deadline_covers_several_reads,
                removed_deadline_restores_the_timeouts,
                large_messages_pass_in_both_directions,
                both_ends_may_write_before_they_read,
                abort_by_the_peer_is_no_end,
                handle_outlives_its_stream,
                figures_and_sockets_are_optional,
            );
        }
    };
    (@tests $pair:expr; $($test:ident,)*) => {
        $(#[test]
        fn $test() {
            super::$test($pair);
        })*
    };
}

conforms!(over_tcp, tcp_pair());
conforms!(in_memory, memory_pair());
conforms!(tls_over_tcp, encrypt(tcp_pair()));
conforms!(tls_in_memory, encrypt(memory_pair()));

fn tcp_pair() -> Pair {
    let (near, far) = tcp::pair();
    [Box::new(near), Box::new(far)]
}

fn memory_pair() -> Pair {
    let (near, far) = memory::pair();
    [Box::new(near), Box::new(far)]
}

/// Returns TLS over both ends, after the handshake. The certificate is the only one that the client accepts.
fn encrypt([near, far]: Pair) -> Pair {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["lfn.invalid".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let mut near = tls::client(near, Arc::new(client)).unwrap();
    let mut far = tls::server(far, Arc::new(server)).unwrap();
    let accepted = thread::spawn(move || {
        far.read_exact(&mut [0]).unwrap();
        far.write_all(&[0]).unwrap();
        far.flush().unwrap();
        far
    });
    near.write_all(&[0]).unwrap();
    near.flush().unwrap();
    near.read_exact(&mut [0]).unwrap();
    [near, accepted.join().unwrap()]
}

/// Returns bytes without a short period.
fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + at / 1021 + at / 65_537) as u8).collect()
}

fn set_timeouts(stream: &mut dyn Stream, timeout: Duration) {
    stream.set_read_timeout(Some(timeout)).unwrap();
    stream.set_write_timeout(Some(timeout)).unwrap();
}

/// Starts a thread that writes all bytes and ends the sending direction.
fn send(mut stream: Box<dyn Stream>, bytes: Vec<u8>) -> thread::JoinHandle<Box<dyn Stream>> {
    thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.finish_sending().unwrap();
        stream
    })
}

fn bytes_arrive_in_order([near, mut far]: Pair) {
    let bytes = payload(LARGE);
    let sender = send(near, bytes.clone());
    let (mut received, mut buffer) = (Vec::new(), vec![0; 10_007]);
    loop {
        match far.read(&mut buffer).unwrap() {
            0 => break,
            length => received.extend_from_slice(&buffer[..length]),
        }
    }
    assert!(received == bytes);
    drop(sender.join().unwrap());
}

fn vectored_writes_arrive_in_order([mut near, mut far]: Pair) {
    let parts = [io::IoSlice::new(b"one "), io::IoSlice::new(b""), io::IoSlice::new(b"two")];
    let written = near.write_vectored(&parts).unwrap();
    near.write_all(&b"one two"[written..]).unwrap();
    near.flush().unwrap();
    let mut received = [0; 7];
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"one two");
}

fn peeked_bytes_stay_in_the_stream([mut near, mut far]: Pair) {
    far.set_read_timeout(Some(SHORT)).unwrap();
    assert!(is_timeout(&far.peek(&mut [0]).unwrap_err()));
    near.write_all(b"ab").unwrap();
    near.finish_sending().unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    let mut received = [0; 2];
    for _ in 0..2 {
        assert_eq!((far.peek(&mut received[..1]).unwrap(), received), (1, [b'a', 0]));
    }
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"ab");
    assert_eq!(far.peek(&mut received).unwrap(), 0, "the end");
}

fn finished_direction_ends_at_the_peer([mut near, mut far]: Pair) {
    assert!(!far.handle().is_finished_by_peer());
    near.finish_sending().unwrap();
    set_timeouts(&mut *far, LONG);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    assert!(far.handle().is_finished_by_peer() && !near.handle().is_finished_by_peer());
    // The other direction stays open.
    far.write_all(b"still open").unwrap();
    far.finish_sending().unwrap();
    let mut received = Vec::new();
    near.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"still open");
    assert!(near.write(b"after the end").and_then(|_| near.flush()).is_err());
}

fn data_arrives_before_the_end([near, mut far]: Pair) {
    let bytes = payload(60_000);
    // The sender is gone before the receiver reads.
    drop(send(near, bytes.clone()).join().unwrap());
    let mut received = Vec::new();
    far.read_to_end(&mut received).unwrap();
    assert!(received == bytes);
}

/// Shuts a stream down soon, while another thread waits for it.
fn shut_down_soon(stream: &dyn Stream) -> thread::JoinHandle<()> {
    let handle = stream.handle().clone();
    thread::spawn(move || {
        thread::sleep(SHORT);
        handle.shut_down(Shutdown::Both).unwrap();
    })
}

fn shutdown_wakes_a_blocked_reader([mut near, mut far]: Pair) {
    let begun = Instant::now();
    set_timeouts(&mut *near, LONG);
    let other = shut_down_soon(&*near);
    // With encryption the end without a notice is an error.
    assert!(near.read(&mut [0]).map_or_else(|error| !is_timeout(&error), |length| length == 0));
    other.join().unwrap();
    assert!(near.write(b"x").and_then(|_| near.flush()).is_err());
    set_timeouts(&mut *far, LONG);
    assert!(far.read(&mut [0]).map_or_else(|error| !is_timeout(&error), |length| length == 0));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

fn shutdown_wakes_a_blocked_writer([mut near, _far]: Pair) {
    set_timeouts(&mut *near, LONG);
    let other = shut_down_soon(&*near);
    let error = near.write_all(&payload(LARGE)).and_then(|()| near.flush()).unwrap_err();
    assert!(!is_timeout(&error), "{error:?}");
    other.join().unwrap();
}

fn read_timeout_leaves_the_stream_usable([mut near, mut far]: Pair) {
    far.set_read_timeout(Some(SHORT)).unwrap();
    let begun = Instant::now();
    for _ in 0..2 {
        assert!(is_timeout(&far.read(&mut [0; 4]).unwrap_err()));
    }
    assert!((2 * SHORT..LONG).contains(&(begun.elapsed() + SHORT / 10)), "{:?}", begun.elapsed());
    near.write_all(b"late").unwrap();
    far.set_read_timeout(None).unwrap();
    let mut received = [0; 4];
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"late");
}

/// Writes until a time-out; returns the number of written bytes.
fn write_until_timeout(stream: &mut dyn Stream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    loop {
        match stream.write(&bytes[sent..]) {
            Ok(length) => sent += length,
            Err(error) if is_timeout(&error) => return sent,
            Err(error) => panic!("{error:?}"),
        }
        assert!(sent < bytes.len(), "a peer that does not read accepts everything");
    }
}

fn write_timeout_leaves_the_stream_usable([mut near, mut far]: Pair) {
    let bytes = payload(LARGE);
    near.set_write_timeout(Some(SHORT)).unwrap();
    let sent = write_until_timeout(&mut *near, &bytes);
    near.set_write_timeout(Some(LONG)).unwrap();
    let sender = send(near, bytes[sent..].to_vec());
    let mut received = Vec::new();
    far.read_to_end(&mut received).unwrap();
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
    drop(sender.join().unwrap());
}

fn deadline_covers_several_reads([mut near, mut far]: Pair) {
    let begun = Instant::now();
    far.set_deadline(Some(begun + 4 * SHORT)).unwrap();
    let dripping = thread::spawn(move || {
        // Single bytes, each of them earlier than the end of the time-out of one read.
        for _ in 0..8 {
            near.write_all(b"x").unwrap();
            near.flush().unwrap();
            thread::sleep(SHORT);
        }
        near
    });
    let mut message = [0; 100];
    let error = far.read_exact(&mut message).unwrap_err();
    assert!(is_timeout(&error), "{error:?}");
    assert!((4 * SHORT..LONG).contains(&(begun.elapsed() + SHORT / 10)), "{:?}", begun.elapsed());
    // After the deadline no call waits.
    let late = Instant::now();
    assert!(is_timeout(&far.read_exact(&mut message).unwrap_err()));
    assert!(late.elapsed() < LONG);
    let _near = dripping.join().unwrap();
    let writes = write_until_timeout(&mut *far, &payload(LARGE));
    assert!(writes < LARGE);
}

fn removed_deadline_restores_the_timeouts([mut near, mut far]: Pair) {
    far.set_read_timeout(Some(LONG)).unwrap();
    far.set_deadline(Some(Instant::now() + SHORT)).unwrap();
    assert!(is_timeout(&far.read(&mut [0]).unwrap_err()));
    far.set_deadline(None).unwrap();
    let late = thread::spawn(move || {
        thread::sleep(2 * SHORT);
        near.write_all(b"x").unwrap();
        near.flush().unwrap();
        near
    });
    assert_eq!(far.read(&mut [0]).unwrap(), 1);
    drop(late.join().unwrap());
    far.set_read_timeout(Some(SHORT)).unwrap();
    far.set_deadline(Some(Instant::now() + LONG)).unwrap();
    far.set_deadline(None).unwrap();
    // The other end is gone.
    let read = far.read(&mut [0]);
    assert!(read.map_or_else(|error| !is_timeout(&error), |length| length == 0));
}

fn large_messages_pass_in_both_directions([mut near, mut far]: Pair) {
    let bytes = payload(LARGE / 4);
    let echo = thread::spawn(move || {
        let mut message = vec![0; LARGE / 4];
        for _ in 0..2 {
            far.read_exact(&mut message).unwrap();
            far.write_all(&message).unwrap();
            far.flush().unwrap();
        }
        far
    });
    let mut answer = vec![0; bytes.len()];
    for _ in 0..2 {
        near.write_all(&bytes).unwrap();
        near.flush().unwrap();
        near.read_exact(&mut answer).unwrap();
        assert!(answer == bytes);
    }
    drop(echo.join().unwrap());
}

/// Sends and receives at the same time in one thread: after a write that must wait, it reads.
fn exchange(mut stream: Box<dyn Stream>, bytes: &[u8]) -> Vec<u8> {
    set_timeouts(&mut *stream, Duration::from_millis(2));
    let (mut sent, mut received, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    let mut is_flushed = false;
    while !is_flushed || received.len() < bytes.len() {
        let write = if sent < bytes.len() {
            stream.write(&bytes[sent..]).map(|length| sent += length)
        } else {
            stream.flush().map(|()| is_flushed = true)
        };
        assert!(write.as_ref().is_ok_and(|()| true) || is_timeout(write.as_ref().unwrap_err()), "{write:?}");
        while received.len() < bytes.len() {
            match stream.read(&mut buffer) {
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(error) => {
                    assert!(is_timeout(&error), "{error:?}");
                    break;
                }
            }
        }
    }
    // The peer may still send.
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream.finish_sending().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut buffer).unwrap(), 0);
    received
}

fn both_ends_may_write_before_they_read([near, far]: Pair) {
    let bytes = payload(LARGE);
    let other = {
        let bytes = bytes.clone();
        thread::spawn(move || exchange(far, &bytes))
    };
    assert!(exchange(near, &bytes) == bytes);
    assert!(other.join().unwrap() == bytes);
}

fn abort_by_the_peer_is_no_end([near, mut far]: Pair) {
    near.handle().abort();
    drop(near);
    set_timeouts(&mut *far, LONG);
    let outcome = far.write(b"x").and_then(|_| far.flush()).and_then(|()| far.write(b"x")).and_then(|_| far.flush());
    assert!(outcome.is_err_and(|error| !is_timeout(&error)));
}

fn handle_outlives_its_stream([near, mut far]: Pair) {
    let handle = near.handle().clone();
    drop(near);
    // The results do not matter, but no call blocks or panics.
    let _ = handle.shut_down(Shutdown::Both);
    let _ = (handle.info(), handle.peer_address(), handle.is_finished_by_peer());
    handle.abort();
    set_timeouts(&mut *far, LONG);
    assert!(far.read(&mut [0]).map_or_else(|error| !is_timeout(&error), |length| length == 0));
}

fn figures_and_sockets_are_optional([near, _far]: Pair) {
    let handle = near.handle();
    assert_eq!(handle.socket().is_some(), handle.require_socket().is_ok());
    if handle.info().is_none() {
        assert_eq!(handle.min_rtt(), Duration::ZERO);
    }
    // A payload socket is a socket.
    assert!(near.payload_socket().is_none() || handle.socket().is_some());
}

/// Without encryption, a killed process at the peer looks like its end.
#[test]
fn broken_tls_connection_is_no_end() {
    for [near, mut far] in [encrypt(tcp_pair()), encrypt(memory_pair())] {
        drop(near);
        set_timeouts(&mut *far, LONG);
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn encrypted_streams_have_no_payload_socket() {
    assert!(tcp_pair()[0].payload_socket().is_some());
    let [near, _far] = encrypt(tcp_pair());
    assert!(near.payload_socket().is_none() && near.handle().socket().is_some());
}

/// Opens a stream at one end and accepts it at the other.
fn open(near: &mut dyn Connection, far: &mut dyn Connection) -> io::Result<Pair> {
    let mut opened = near.open_stream()?;
    opened.write_all(b"hello")?;
    let mut accepted = far.accept_stream(LONG)?;
    let mut hello = [0; 5];
    accepted.read_exact(&mut hello)?;
    assert_eq!(&hello, b"hello");
    Ok([opened, accepted])
}

/// Opens streams from both ends until the connection carries no more, at most `max`. Returns their number.
fn streams_of_a_connection(near: &mut dyn Connection, far: &mut dyn Connection, max: usize) -> usize {
    let mut streams = Vec::new();
    while streams.len() < max {
        let opened = if streams.len() % 2 == 0 { open(near, far) } else { open(far, near) };
        match opened {
            Ok(pair) => streams.push(pair),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                break;
            }
        }
    }
    let count = streams.len();
    near.handle().shut_down(Shutdown::Both).unwrap();
    for [mut opened, mut accepted] in streams {
        assert_eq!((opened.read(&mut [0]).unwrap(), accepted.read(&mut [0]).unwrap()), (0, 0));
    }
    count
}

#[test]
fn tcp_connection_carries_one_stream() {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), tcp::DEFAULT_BACKLOG).unwrap();
    assert!(is_timeout(&listener.accept().unwrap_err()));
    let mut near = TcpConnection::connect(listener.local_address().unwrap(), LONG).unwrap();
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(near.handle().local_address().unwrap(), peer);
    assert_eq!(far.handle().peer_address().unwrap(), peer);
    assert_eq!(streams_of_a_connection(&mut near, &mut far, 5), 1);
    assert_eq!(far.accept_stream(SHORT).unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn memory_connection_carries_many_streams() {
    let (mut near, mut far) = memory::connection();
    assert!(is_timeout(&far.accept_stream(SHORT).unwrap_err()));
    assert_eq!(streams_of_a_connection(&mut near, &mut far, 5), 5);
    drop(near);
    assert_eq!(far.accept_stream(LONG).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
