//! The control connection of a test is cut, delayed and garbled at every message, on either side, by a proxy. The
//! client ends with one clear error line in bounded time. The server continues, and its session slots become free
//! again.
//!
//! The proxy terminates the TLS of both sides, as `--insecure` permits, so that a fault hits exactly one message.
//! Datagrams pass around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fault_proxy::{DatagramFault, Fault, FaultPoint, FaultProxy, Side};
use lfn_api::service;
use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_measure::tester::{self, Test, TestError};
use lfn_results::diagnose::diagnose;
use lfn_results::evidence::Evidence;
use lfn_results::latency::{LatencyRequest, ProbeTransport};
use lfn_results::measure::{SocketRequest, TestDirection, TestLoad, TestRequest, UdpRequest};
use lfn_results::udp::ramp::RampRequest;
use lfn_session::dial::Target;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::ServerConfig;
use lfn_session::{Fingerprint, Ticket, Token};
use parking_lot::Mutex;
use support::TestServer;

use crate::{fault_proxy, support};

/// Maximum time until an error: shorter than the timeouts that the tests do not shorten.
const MAX_DURATION: Duration = Duration::from_secs(12);
/// Shortened timeout for a silent peer.
const SILENCE: Duration = Duration::from_secs(2);

fn served(connections: ConnectionLimits) -> TestServer {
    TestServer::start(ServerConfig { token: None, connection_limits: connections, ..support::config() }, service::new())
}

/// Asserts that all session slots are free again, and that an ordinary client is served.
fn assert_still_serves(server: &TestServer) {
    let deadline = Instant::now() + MAX_DURATION;
    while server.admission.running() + server.admission.waiting() > 0 {
        assert!(Instant::now() < deadline, "{} sessions are left", server.admission.running());
        thread::sleep(Duration::from_millis(10));
    }
    for kind in TestKind::ALL {
        run(server.ticket.port, kind, Duration::from_secs(30)).unwrap();
    }
}

/// The kinds of tests, which exchange different messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestKind {
    TcpForward,
    TcpReverse,
    UdpForward,
    UdpReverse,
    RampForward,
    RampReverse,
}

impl TestKind {
    const ALL: [TestKind; 6] = [
        TestKind::TcpForward,
        TestKind::TcpReverse,
        TestKind::UdpForward,
        TestKind::UdpReverse,
        TestKind::RampForward,
        TestKind::RampReverse,
    ];

    fn request(self) -> TestRequest {
        let ms = Duration::from_millis;
        let direction = match self {
            TestKind::TcpForward | TestKind::UdpForward | TestKind::RampForward => TestDirection::Forward,
            TestKind::TcpReverse | TestKind::UdpReverse | TestKind::RampReverse => TestDirection::Reverse,
        };
        let udp = UdpRequest { rate: BitRate(2_000_000), datagram_bytes: Some(1000), ..UdpRequest::default() };
        let ramp =
            RampRequest { from: BitRate(8_000_000), to: BitRate(16_000_000), step: ms(60), ..Default::default() };
        TestRequest {
            direction,
            streams: 1,
            // Only a test with a count has a message for its end.
            load: if self == TestKind::TcpReverse { TestLoad::Records(40) } else { TestLoad::TimeSeconds(ms(250)) },
            record: Bytes(10_000),
            interval: ms(100),
            socket: SocketRequest { pacing: vec![BitRate(20_000_000)], ..SocketRequest::default() },
            udp: match self {
                TestKind::TcpForward | TestKind::TcpReverse => None,
                TestKind::UdpForward | TestKind::UdpReverse => Some(Box::new(udp)),
                TestKind::RampForward | TestKind::RampReverse => Some(Box::new(UdpRequest { ramp: Some(ramp), ..udp })),
            },
            ..TestRequest::default()
        }
    }
}

/// Runs a test against the server on this port.
fn run(port: u16, kind: TestKind, silence: Duration) -> Result<Evidence, TestError> {
    run_request(port, kind.request(), silence)
}

fn run_request(port: u16, request: TestRequest, silence: Duration) -> Result<Evidence, TestError> {
    run_request_until(port, request, silence, Arc::default())
}

fn run_request_until(
    port: u16,
    request: TestRequest,
    silence: Duration,
    stop: Arc<AtomicBool>,
) -> Result<Evidence, TestError> {
    let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
    let mut target = Target::new(Ticket { host: "127.0.0.1".into(), port, token, fingerprint }).unwrap().insecure();
    target.connect_timeout = silence;
    target.silence_timeout = silence;
    let test = Test {
        request,
        near_socket: SocketRequest { pacing: vec![BitRate(20_000_000)], ..SocketRequest::default() },
        path: None,
        tuned: false,
        round_to_rtt: false,
        target_precision: None,
        omit: None,
        stop,
    };
    tester::run(&target, &test, &mut |_| {})
}

use TestKind::{RampForward, RampReverse, TcpForward, TcpReverse, UdpForward, UdpReverse};

/// Every message, in a test that sends it.
const POINTS: [(TestKind, FaultPoint); 19] = [
    (TcpForward, FaultPoint::client("\"connection\":\"control\"")),
    (UdpForward, FaultPoint::client("\"connection\":\"control\"")),
    (TcpForward, FaultPoint::server("\"message\":\"ready\"")),
    (UdpReverse, FaultPoint::server("\"message\":\"ready\"")),
    (UdpForward, FaultPoint::client("\"message\":\"opened\"")),
    (UdpReverse, FaultPoint::client("\"message\":\"opened\"")),
    (TcpForward, FaultPoint::client("\"message\":\"ping\"")),
    (TcpForward, FaultPoint::server("\"message\":\"pong\"")),
    (TcpForward, FaultPoint::server("\"message\":\"interval\"")),
    (UdpForward, FaultPoint::server("\"message\":\"interval\"")),
    (TcpReverse, FaultPoint::client("\"message\":\"received\"")),
    (UdpForward, FaultPoint::client("\"message\":\"sent\"")),
    (RampForward, FaultPoint::client("\"message\":\"step_sent\"")),
    (RampForward, FaultPoint::server("\"message\":\"step\"")),
    (RampReverse, FaultPoint::server("\"message\":\"step_sent\"")),
    (RampReverse, FaultPoint::client("\"message\":\"step\"")),
    (TcpForward, FaultPoint::server("\"message\":\"report\"")),
    (TcpReverse, FaultPoint::server("\"message\":\"report\"")),
    (UdpReverse, FaultPoint::server("\"message\":\"report\"")),
];

/// Runs the cases in parallel. Each failure names its case.
fn run_cases(
    cases: Vec<(TestKind, FaultPoint, Fault)>,
    check: impl Fn(TestKind, FaultPoint, Fault) -> Result<(), String> + Sync,
) {
    let (cases, problems) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                loop {
                    let next = cases.lock().pop();
                    let Some((kind, point, fault)) = next else { return };
                    if let Err(problem) = check(kind, point, fault) {
                        problems.lock().push(format!("{kind:?} {point:?} {fault:?}: {problem}"));
                    }
                }
            });
        }
    });
    let problems = problems.into_inner();
    assert!(problems.is_empty(), "{} cases:\n{}", problems.len(), problems.join("\n"));
}

fn at_every_point(faults: &[Fault]) -> Vec<(TestKind, FaultPoint, Fault)> {
    let of = |&(kind, point)| faults.iter().map(move |&fault| (kind, point, fault));
    POINTS.iter().flat_map(of).collect()
}

/// Checks that the test failed with a clear error in time.
fn check_error(result: Result<Evidence, TestError>, took: Duration) -> Result<(), String> {
    let Err(error) = result else { return Err("measured".into()) };
    let text = error.to_string();
    if text.contains('\n') || text.len() > 300 || error.hint().is_none() {
        return Err(format!("text '{text}', hint {:?}", error.hint()));
    }
    if took > MAX_DURATION { Err(format!("took {took:?}: {text}")) } else { Ok(()) }
}

#[test]
fn cut_or_garbled_messages_are_errors() {
    let server = served(ConnectionLimits::default());
    let faults = [
        Fault::Close,
        Fault::Truncate,
        Fault::Garble,
        Fault::FalseLength,
        Fault::UnknownKind,
        Fault::Meaningless,
        Fault::Queue,
    ];
    run_cases(at_every_point(&faults), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let started = Instant::now();
        let result = run(proxy.port, kind, Duration::from_secs(60));
        if !proxy.was_triggered() {
            return Err(format!("the message never arrived: {result:?}"));
        }
        check_error(result, started.elapsed())
    });
    assert_still_serves(&server);
}

#[test]
fn stopped_conversation_ends() {
    let connections =
        ConnectionLimits { hello_timeout: SILENCE, silence_timeout: SILENCE, ..ConnectionLimits::default() };
    let server = served(connections);
    run_cases(at_every_point(&[Fault::Stall, Fault::Drop]), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let started = Instant::now();
        let result = run(proxy.port, kind, SILENCE);
        let took = started.elapsed();
        if !proxy.was_triggered() {
            return Err(format!("the message never arrived: {result:?}"));
        }
        // A test survives the loss of one ping, pong or interval.
        let is_required = !point.is_any_of(&["ping", "pong", "interval"]);
        match fault {
            Fault::Drop if !is_required => result.map(|_| ()).map_err(|error| error.to_string()),
            _ => check_error(result, took),
        }?;
        // The connection to the server was left open.
        proxy.wait_for_server_close(MAX_DURATION)
    });
    assert_still_serves(&server);
}

#[test]
fn interrupt_does_not_wait_for_a_stopped_server() {
    let server = served(ConnectionLimits { silence_timeout: SILENCE, ..ConnectionLimits::default() });
    let interval = FaultPoint::server("\"message\":\"interval\"");
    let kinds = [TcpForward, TcpReverse, UdpForward, UdpReverse];
    let cases = kinds.into_iter().flat_map(|kind| [Fault::Stall, Fault::Trickle].map(|fault| (kind, interval, fault)));
    run_cases(cases.collect(), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let stop = Arc::new(AtomicBool::new(false));
        let request = TestRequest { load: TestLoad::TimeSeconds(Duration::from_secs(600)), ..kind.request() };
        thread::scope(|scope| {
            let test = scope.spawn(|| run_request_until(proxy.port, request, Duration::from_secs(60), stop.clone()));
            while !proxy.was_triggered() && !test.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            let started = Instant::now();
            stop.store(true, Ordering::Relaxed);
            let result = test.join().unwrap();
            check_error(result, started.elapsed())
        })
    });
    assert_still_serves(&server);
}

#[test]
fn incomplete_record_blocks_no_peer() {
    let connections =
        ConnectionLimits { hello_timeout: SILENCE, silence_timeout: SILENCE, ..ConnectionLimits::default() };
    let server = served(connections);
    // The proxy continues after the client has disconnected, so the server must end the session by itself.
    let proxies = Mutex::new(Vec::new());
    run_cases(at_every_point(&[Fault::Trickle]), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let started = Instant::now();
        let result = run(proxy.port, kind, SILENCE);
        let (triggered, took) = (proxy.was_triggered(), started.elapsed());
        proxies.lock().push(proxy);
        if !triggered {
            return Err(format!("the message never arrived: {result:?}"));
        }
        check_error(result, took)
    });
    assert_still_serves(&server);
}

#[test]
fn endless_intervals_are_refused() {
    let server = served(ConnectionLimits { silence_timeout: SILENCE, ..ConnectionLimits::default() });
    let cases =
        [TcpForward, UdpForward].map(|kind| (kind, FaultPoint::server("\"message\":\"interval\""), Fault::Repeat));
    run_cases(cases.to_vec(), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let started = Instant::now();
        let result = run(proxy.port, kind, Duration::from_secs(60));
        match &result {
            Err(error) if error.to_string().starts_with("the server reports 'intervals' of ") => {
                check_error(result, started.elapsed())
            }
            other => Err(format!("{other:?}")),
        }
    });
    assert_still_serves(&server);
}

#[test]
fn delayed_message_is_accepted() {
    let server = served(ConnectionLimits::default());
    run_cases(at_every_point(&[Fault::Delay]), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let result = run(proxy.port, kind, Duration::from_secs(60));
        if !proxy.was_triggered() {
            return Err(format!("the message never arrived: {result:?}"));
        }
        result.map(|_| ()).map_err(|error| error.to_string())
    });
    assert_still_serves(&server);
}

#[test]
fn refusal_during_a_test_is_reported() {
    let server = served(ConnectionLimits::default());
    let cases =
        at_every_point(&[Fault::Refuse]).into_iter().filter(|(_, point, _)| point.side == Side::Server).collect();
    run_cases(cases, |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        match run(proxy.port, kind, Duration::from_secs(60)) {
            Err(error) if error.to_string() == "not today" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_still_serves(&server);
}

#[test]
fn broken_data_streams_are_errors() {
    // The server waits for a missing stream as long as a client may be silent.
    let server = served(ConnectionLimits { silence_timeout: SILENCE, ..ConnectionLimits::default() });
    let cases = [TcpForward, TcpReverse].into_iter().flat_map(|kind| {
        // In the hello, right after it, and in the payload.
        let cuts = [30, 56, 100_000].map(|bytes| (kind, FaultPoint::data(bytes), Fault::Close));
        cuts.into_iter().chain([(kind, FaultPoint::data(30), Fault::Garble)])
    });
    run_cases(cases.collect(), |kind, point, fault| {
        let proxy = FaultProxy::start(server.ticket.port, point, fault);
        let started = Instant::now();
        let result = run(proxy.port, kind, Duration::from_secs(60));
        if !proxy.was_triggered() {
            return Err(format!("fewer bytes than expected: {result:?}"));
        }
        check_error(result, started.elapsed())
    });
    assert_still_serves(&server);
}

#[test]
fn impossible_figures_cause_no_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    let server = served(ConnectionLimits { silence_timeout: SILENCE, ..ConnectionLimits::default() });
    run_cases(
        at_every_point(&[Fault::HugeIntegers, Fault::HugeFloats, Fault::Negative, Fault::EmptyLists]),
        |kind, point, fault| {
            let proxy = FaultProxy::start(server.ticket.port, point, fault);
            let started = Instant::now();
            let result = run(proxy.port, kind, SILENCE);
            if started.elapsed() > MAX_DURATION {
                return Err(format!("took {:?}", started.elapsed()));
            }
            let Ok(evidence) = result else { return check_error(result, started.elapsed()) };
            // The value may be accepted. Then the diagnosis must handle it.
            let path = PathProfile::new(BitRate(20_000_000), Duration::from_millis(1));
            for path in [None, Some(path)] {
                let evidence = Evidence { path, ..evidence.clone() };
                let findings =
                    serde_json::to_string(&diagnose(&evidence).findings).map_err(|error| error.to_string())?;
                if findings.contains("null,null") || findings.contains("NaN") {
                    return Err(findings);
                }
            }
            Ok(())
        },
    );
    assert_still_serves(&server);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}

fn with_probes(udp: bool) -> TestRequest {
    let kind = if udp { UdpForward } else { TcpForward };
    TestRequest { latency: Some(LatencyRequest::default()), ..kind.request() }
}

#[test]
fn lost_udp_hellos_and_answers_are_repeated() {
    let server = served(ConnectionLimits::default());
    for fault in [DatagramFault::LoseHellos(2), DatagramFault::LoseAnswers(2)] {
        let proxy = FaultProxy::with_datagrams(server.ticket.port, fault);
        let measured = run_request(proxy.port, with_probes(true), Duration::from_secs(30)).unwrap();
        let latency = measured.latency.unwrap();
        assert_eq!(latency.transport, ProbeTransport::Udp, "{fault:?}");
        assert!(measured.far.bytes > 0 && latency.idle.rtt.is_some(), "{fault:?}: {latency:?}");
    }
    assert_still_serves(&server);
}

#[test]
fn blocked_udp_is_reported_and_probes_use_tcp() {
    let server = served(ConnectionLimits::default());
    thread::scope(|scope| {
        for fault in [DatagramFault::Filtered, DatagramFault::Closed] {
            let server = &server;
            scope.spawn(move || {
                let proxy = FaultProxy::with_datagrams(server.ticket.port, fault);
                let latency =
                    run_request(proxy.port, with_probes(false), Duration::from_secs(30)).unwrap().latency.unwrap();
                assert_eq!(latency.transport, ProbeTransport::Tcp, "{fault:?}");
                assert!(latency.idle.rtt.is_some() && latency.loaded.rtt.is_some(), "{fault:?}: {latency:?}");
            });
            scope.spawn(move || {
                let proxy = FaultProxy::with_datagrams(server.ticket.port, fault);
                let started = Instant::now();
                let error = run(proxy.port, UdpForward, Duration::from_secs(30)).unwrap_err();
                assert!(error.to_string().starts_with("no answer over UDP from 127.0.0.1:"), "{fault:?}: {error}");
                assert!(error.hint().unwrap().contains("port for UDP"), "{fault:?}");
                assert!(started.elapsed() < MAX_DURATION, "{fault:?}");
            });
        }
    });
    assert_still_serves(&server);
}
