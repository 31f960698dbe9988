//! The iperf3 protocol with aborts, stalls and invalid messages in every step, on either side: a clear error in bounded
//! time, and a server that continues with free slots.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_measure::iperf3::Error;
use lfn_measure::iperf3::client::{self, IperfTest};
use lfn_measure::iperf3::server::{IperfServer, IperfServerConfig, IperfTimeouts};
use lfn_measure::proto::iperf3::{
    COOKIE_LENGTH, ErrorCode, LoadDirection, Parameters, Results, StreamResult, TestEnd, frame,
};
use lfn_results::iperf3_report::LoadProtocol;
use lfn_session::limits::ServerLimits;
use lfn_session::limits::access::Access;
use lfn_session::limits::admission::Admission;
use lfn_session::limits::connection_table::ConnectionLimits;

/// Far longer than any deadline below, far shorter than a hang.
const SOON: Duration = Duration::from_secs(30);
/// Deadline of the server for one step.
const STEP: Duration = Duration::from_millis(500);

/// Returns a client with this deadline for each step and for the queue.
fn test(parameters: Parameters, within: Duration) -> IperfTest {
    IperfTest {
        parameters,
        login: None,
        interval: STEP,
        step_timeout: within,
        queue_timeout: within,
        bind_addresses: Vec::new(),
        stop: Default::default(),
    }
}

/// A server with short deadlines, stopped on drop.
struct Running {
    server: Arc<IperfServer>,
    admission: Admission,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(strangers: usize) -> Running {
        let admission = Admission::new(ServerLimits::default());
        let config = IperfServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            access: Access::default(),
            admission: admission.clone(),
            users: None,
            json_output: false,
            connection_limits: ConnectionLimits { max_unauthenticated: strangers, ..ConnectionLimits::default() },
            timeouts: IperfTimeouts { step_timeout: STEP, silence_timeout: STEP, end_grace: STEP, queue_timeout: STEP },
        };
        let server = Arc::new(IperfServer::bind(config, |_| {}).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let (running, stopped) = (server.clone(), stop.clone());
        let thread = thread::spawn(move || running.run(&stopped));
        Running { server, admission, stop, thread: Some(thread) }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    fn is_free_again(&self) {
        let deadline = Instant::now() + SOON;
        while self.server.sessions() > 0 || self.admission.running() > 0 || self.admission.waiting() > 0 {
            assert!(Instant::now() < deadline, "{} sessions are left", self.server.sessions());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn serves(&self) {
        let parameters = Parameters { end: TestEnd::Bytes(100_000), length: Bytes(1000), ..Parameters::default() };
        let test = test(parameters, SOON);
        let outcome = client::run("127.0.0.1", self.address().port(), &test, &mut |_| {}).unwrap();
        assert_eq!(outcome.runs[0].far.bytes, 100_000);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// Last step in which a client follows the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    Connected,
    HalfCookie,
    Cookie,
    HalfParameters,
    Parameters,
    Streams,
    End,
    HalfResults,
    Results,
}

/// Behaviour of the client after this step.
#[derive(Clone, Copy, Debug)]
enum Then {
    Closes,
    Stalls,
    Talks,
}

fn json_frame(value: &serde_json::Value) -> Vec<u8> {
    frame::encode(value, frame::MAX_SERVER_OUTPUT).unwrap()
}

/// Runs a client up to `until`. Returns its control connection and its other open sockets.
fn conversation(
    address: SocketAddr,
    until: Until,
    number: u8,
    parameters: &Parameters,
) -> (TcpStream, Option<TcpStream>) {
    let cookie = [b'a' + number; COOKIE_LENGTH];
    let mut control = TcpStream::connect(address).unwrap();
    control.set_read_timeout(Some(SOON)).unwrap();
    let mut stream = None;
    let frame = json_frame(&parameters.write());
    let state = |control: &mut TcpStream, wanted: u8| {
        let mut byte = [0];
        control.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], wanted);
    };
    let mut at_least = |step: Until, act: &mut dyn FnMut(&mut TcpStream)| {
        if until >= step {
            act(&mut control);
        }
    };
    at_least(Until::HalfCookie, &mut |control| control.write_all(&cookie[..10]).unwrap());
    at_least(Until::Cookie, &mut |control| control.write_all(&cookie[10..]).unwrap());
    at_least(Until::Cookie, &mut |control| state(control, 9));
    at_least(Until::HalfParameters, &mut |control| control.write_all(&frame[..20]).unwrap());
    at_least(Until::Parameters, &mut |control| control.write_all(&frame[20..]).unwrap());
    at_least(Until::Parameters, &mut |control| state(control, 10));
    at_least(Until::Streams, &mut |control| {
        let mut data = TcpStream::connect(address).unwrap();
        data.write_all(&cookie).unwrap();
        stream = Some(data);
        state(control, 1);
        state(control, 2);
    });
    at_least(Until::End, &mut |control| {
        control.write_all(&[4]).unwrap();
        state(control, 13);
    });
    let results = Results { streams: vec![StreamResult { id: 1, ..StreamResult::default() }], ..Results::default() };
    let results = json_frame(&results.write());
    at_least(Until::HalfResults, &mut |control| control.write_all(&results[..30]).unwrap());
    at_least(Until::Results, &mut |control| control.write_all(&results[30..]).unwrap());
    (control, stream)
}

/// Asserts that the other end closes the connection.
fn closes(control: &mut TcpStream, what: &str) {
    let mut rest = Vec::new();
    match control.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{what}: not closed: {error}"),
    }
}

#[test]
fn aborted_iperf3_client_frees_its_slot() {
    use Until::{Connected, Cookie, End as Ended, HalfCookie, HalfParameters, HalfResults, Results, Streams};
    let running = Running::start(1024);
    let address = running.address();
    let steps =
        [Connected, HalfCookie, Cookie, HalfParameters, Until::Parameters, Streams, Ended, HalfResults, Results];
    thread::scope(|scope| {
        for (index, until) in steps.into_iter().enumerate() {
            for (kind, then) in [Then::Closes, Then::Stalls, Then::Talks].into_iter().enumerate() {
                let number = u8::try_from(3 * index + kind).unwrap();
                scope.spawn(move || {
                    let what = format!("{until:?} {then:?}");
                    // The test has no end of its own: the client ends it.
                    let way = if kind == 0 { LoadDirection::Forward } else { LoadDirection::Reverse };
                    let parameters = Parameters {
                        direction: way,
                        end: TestEnd::Time(Duration::from_secs(1)),
                        ..Parameters::default()
                    };
                    let (mut control, stream) = conversation(address, until, number, &parameters);
                    match then {
                        Then::Closes => return,
                        Then::Stalls => {}
                        // The server may have closed already.
                        Then::Talks => drop(control.write_all(&[b'c'; 64])),
                    }
                    // A reverse test ends by its time, and its data was not read.
                    closes(&mut control, &what);
                    drop(stream);
                });
            }
        }
    });
    running.is_free_again();
    running.serves();
}

#[test]
fn invalid_iperf3_messages_get_an_error() {
    let running = Running::start(1024);
    let lies: [&[u8]; 7] = [
        &u32::MAX.to_be_bytes(),
        &8193u32.to_be_bytes(),
        &0u32.to_be_bytes(),
        b"\0\0\0\x04nope",
        b"\0\0\0\x02[]",
        b"\0\0\0\x11{\"parallel\": 129}",
        b"\0\0\0\x0e{\"sctp\": true}",
    ];
    for lie in lies {
        let (mut control, _) = conversation(running.address(), Until::Cookie, 0, &Parameters::default());
        control.write_all(lie).unwrap();
        let mut state = [0];
        control.read_exact(&mut state).unwrap();
        assert_eq!(state, [0xfe], "SERVER_ERROR after {lie:?}");
        closes(&mut control, "a lie");
    }
    running.is_free_again();
    running.serves();
}

#[test]
fn unrequested_datagram_streams_are_not_awaited() {
    let running = Running::start(1024);
    let udp = Parameters {
        protocol: LoadProtocol::Udp,
        direction: LoadDirection::Reverse,
        length: Bytes(1000),
        ..Parameters::default()
    };
    let (mut control, _) = conversation(running.address(), Until::Parameters, 0, &udp);
    // Datagrams of another protocol get no answer.
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.send_to(b"GET / HTTP/1.1", running.address()).unwrap();
    closes(&mut control, "no streams");
    running.is_free_again();
    // A request gets no answer if no test waits for streams.
    other.set_read_timeout(Some(STEP)).unwrap();
    other.send_to(&[0x39, 0x38, 0x37, 0x36], running.address()).unwrap();
    assert!(other.recv(&mut [0; 16]).is_err());
    running.serves();
}

#[test]
fn paused_stream_is_not_broken() {
    let running = Running::start(1024);
    // One block every 400 ms, longer than the polling interval.
    let slow = Parameters {
        end: TestEnd::Bytes(3000),
        length: Bytes(1000),
        rate: Some(BitRate(20_000)),
        burst: Some(1),
        ..Parameters::default()
    };
    for way in [LoadDirection::Forward, LoadDirection::Reverse] {
        let test = test(Parameters { direction: way, ..slow.clone() }, SOON);
        let outcome = client::run("127.0.0.1", running.address().port(), &test, &mut |_| {}).unwrap();
        assert_eq!(outcome.runs[0].receiver().bytes, 3000, "{way:?}");
    }
}

#[test]
fn silent_crowd_does_not_block_others() {
    let running = Running::start(60);
    let crowd: Vec<_> = (0..50).map(|_| TcpStream::connect(running.address()).unwrap()).collect();
    running.serves();
    // Above the limit, silent connections are closed in favour of new ones.
    let more: Vec<_> = (0..200).map(|_| TcpStream::connect(running.address()).unwrap()).collect();
    running.serves();
    let mut first = &crowd[0];
    first.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "the oldest was closed");
    running.serves();
    drop((crowd, more));
    running.is_free_again();
}

/// Last step in which a server follows the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Served {
    Accepted,
    Asked,
    Streams,
    Runs,
    Exchange,
    Told,
}

/// Behaviour of the server after this step.
#[derive(Clone, Copy, Debug)]
enum Instead {
    Closes,
    Stalls,
    Talks,
    Denies,
    Errs,
    ErrsInHalf,
    Stops,
}

/// Starts a server that follows the protocol until a step. Returns its address.
fn faulty(until: Served, instead: Instead) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        // The client may disconnect at any time, so every error here is expected.
        let _ = serve_badly(&listener, until, instead);
    });
    address
}

fn serve_badly(listener: &TcpListener, until: Served, instead: Instead) -> std::io::Result<()> {
    let (mut control, _) = listener.accept()?;
    let mut streams = Vec::new();
    control.read_exact(&mut [0; COOKIE_LENGTH])?;
    if until >= Served::Asked {
        control.write_all(&[9])?;
        read_frame(&mut control)?;
    }
    if until >= Served::Streams {
        control.write_all(&[10])?;
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; COOKIE_LENGTH])?;
        streams.push(stream);
    }
    if until >= Served::Runs {
        control.write_all(&[1, 2])?;
    }
    if until >= Served::Exchange {
        control.read_exact(&mut [0])?;
        control.write_all(&[13])?;
        read_frame(&mut control)?;
    }
    if until >= Served::Told {
        let results =
            Results { streams: vec![StreamResult { id: 1, ..StreamResult::default() }], ..Results::default() };
        control.write_all(&json_frame(&results.write()))?;
    }
    match instead {
        Instead::Closes => return Ok(()),
        Instead::Stalls => {}
        Instead::Talks => control.write_all(&[99; 16])?,
        Instead::Denies => control.write_all(&[0xff])?,
        Instead::Errs => control.write_all(&[0xfe, 0, 0, 0, 142, 0, 0, 0, 13])?,
        Instead::ErrsInHalf => return control.write_all(&[0xfe, 0, 0, 0, 142]),
        Instead::Stops => control.write_all(&[11])?,
    }
    thread::sleep(SOON / 2);
    drop(streams);
    Ok(())
}

fn read_frame(control: &mut TcpStream) -> std::io::Result<()> {
    let mut header = [0; 4];
    control.read_exact(&mut header)?;
    control.read_exact(&mut vec![0; u32::from_be_bytes(header) as usize])
}

#[test]
fn aborting_server_is_an_error_in_bounded_time() {
    use Instead::{Closes, Denies, Errs, ErrsInHalf, Stalls, Stops, Talks};
    let steps = [Served::Accepted, Served::Asked, Served::Streams, Served::Runs, Served::Exchange, Served::Told];
    thread::scope(|scope| {
        for until in steps {
            for instead in [Closes, Stalls, Talks, Denies, Errs, ErrsInHalf, Stops] {
                scope.spawn(move || check(until, instead));
            }
        }
    });
}

fn check(until: Served, instead: Instead) {
    let address = faulty(until, instead);
    let parameters = Parameters {
        end: TestEnd::Time(Duration::from_millis(700)),
        length: Bytes(1000),
        rate: Some(BitRate(1_000_000)),
        ..Parameters::default()
    };
    let test = test(parameters, STEP);
    let begun = Instant::now();
    let error = client::run("127.0.0.1", address.port(), &test, &mut |_| {}).unwrap_err();
    let what = format!("{until:?} {instead:?}: {error}");
    assert!(begun.elapsed() < SOON / 3, "{what} after {:?}", begun.elapsed());
    assert!(!error.hint().is_empty() && !error.to_string().contains('\n'), "{what}");
    // If a frame is expected, a state byte is an impossible length.
    if until == Served::Exchange {
        return;
    }
    let expected = match instead {
        Instead::Denies => matches!(error, Error::Busy),
        Instead::Errs => matches!(error, Error::Refused { code: ErrorCode::AUTHENTICATION, errno: 13 }),
        Instead::ErrsInHalf => {
            matches!(error, Error::Refused { code: ErrorCode::AUTHENTICATION, .. } | Error::Stream { .. })
        }
        Instead::Stops => matches!(error, Error::Stopped),
        Instead::Talks => matches!(error, Error::Unknown(_)),
        Instead::Stalls => matches!(error, Error::Timeout { .. }),
        Instead::Closes => matches!(error, Error::Closed { .. } | Error::Stream { .. }),
    };
    assert!(expected, "{what}");
}

#[test]
fn interrupt_does_not_wait_for_a_stalled_server() {
    thread::scope(|scope| {
        for until in [Served::Runs, Served::Exchange, Served::Told] {
            scope.spawn(move || {
                let address = faulty(until, Instead::Stalls);
                let parameters =
                    Parameters { rate: Some(BitRate(1_000_000)), length: Bytes(1000), ..Parameters::default() };
                let stop = Arc::new(AtomicBool::new(false));
                let test = IperfTest {
                    parameters: Parameters { end: TestEnd::Time(Duration::from_secs(600)), ..parameters },
                    login: None,
                    interval: STEP,
                    step_timeout: Duration::from_secs(120),
                    queue_timeout: SOON,
                    bind_addresses: Vec::new(),
                    stop: stop.clone(),
                };
                let mut begun = None;
                let error = client::run("127.0.0.1", address.port(), &test, &mut |_| {
                    begun.get_or_insert_with(Instant::now);
                    stop.store(true, Ordering::Relaxed);
                });
                let (error, took) = (error.unwrap_err(), begun.unwrap().elapsed());
                assert!(took < Duration::from_secs(15), "{until:?} {took:?}: {error}");
                assert!(error.to_string().contains("for 5 s"), "{until:?}: {error}");
            });
        }
    });
}

#[test]
fn missing_iperf3_server_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let test = test(Parameters::default(), STEP);
    let error = client::run("127.0.0.1", port, &test, &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot reach 127.0.0.1:{port}")), "{error}");
    let error = client::run("a..b", port, &test, &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("unknown host 'a..b': "), "{error}");
}
