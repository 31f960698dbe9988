//! A test's conversation broken off, held up and garbled at every message, on either side, by somebody in between: the
//! client ends with one clear line in bounded time, the server goes on and its places come back.
//!
//! Who stands in between ends the TLS of both, as `--insecure` allows, so that a fault meets one message and not just
//! some byte of it. Datagrams pass beside it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod between;
mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use between::{Between, Datagrams, Fault, Point, Side};
use lfn_core::diagnose::{Evidence, diagnose};
use lfn_core::latency::{LatencyRequest, Transport};
use lfn_core::path::PathProfile;
use lfn_core::session::{Fingerprint, Ticket, Token};
use lfn_core::udp::ramp::RampRequest;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{Direction, Load, SocketWish, TestRequest, UdpRequest};
use lfn_net::server::{Config, Connections};
use lfn_net::service;
use lfn_net::session::dial::Target;
use lfn_net::tester::{self, Measurement, Test, TestError};
use support::Served;

/// Longer than any error may take, shorter than the waits that have not been made short.
const BOUND: Duration = Duration::from_secs(12);
/// What the waits for a silent peer are made.
const SILENCE: Duration = Duration::from_secs(2);

fn served(connections: Connections) -> Served {
    Served::start(Config { token: None, connections, ..support::config() }, service::serve)
}

/// Every place is free again, and an honest client is served.
fn goes_on(server: &Served) {
    let deadline = Instant::now() + BOUND;
    while server.admission.running() + server.admission.waiting() > 0 {
        assert!(Instant::now() < deadline, "{} sessions are left", server.admission.running());
        thread::sleep(Duration::from_millis(10));
    }
    for kind in Kind::ALL {
        run(server.ticket.port, kind, Duration::from_secs(30)).unwrap();
    }
}

/// Conversations that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TcpForward,
    TcpReverse,
    UdpForward,
    UdpReverse,
    RampForward,
    RampReverse,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::TcpForward, Kind::TcpReverse, Kind::UdpForward, Kind::UdpReverse, Kind::RampForward, Kind::RampReverse];

    fn request(self) -> TestRequest {
        let ms = Duration::from_millis;
        let direction = match self {
            Kind::TcpForward | Kind::UdpForward | Kind::RampForward => Direction::Forward,
            Kind::TcpReverse | Kind::UdpReverse | Kind::RampReverse => Direction::Reverse,
        };
        let udp = UdpRequest { rate: BitRate(2_000_000), datagram_bytes: Some(1000), ..UdpRequest::default() };
        let ramp =
            RampRequest { from: BitRate(8_000_000), to: BitRate(16_000_000), step: ms(60), ..Default::default() };
        TestRequest {
            direction,
            streams: 1,
            // The end of a counted test is a message of its own.
            load: if self == Kind::TcpReverse { Load::Records(40) } else { Load::TimeSeconds(ms(250)) },
            record: Bytes(10_000),
            interval: ms(100),
            socket: SocketWish { pacing: vec![BitRate(20_000_000)], ..SocketWish::default() },
            udp: match self {
                Kind::TcpForward | Kind::TcpReverse => None,
                Kind::UdpForward | Kind::UdpReverse => Some(Box::new(udp)),
                Kind::RampForward | Kind::RampReverse => Some(Box::new(UdpRequest { ramp: Some(ramp), ..udp })),
            },
            ..TestRequest::default()
        }
    }
}

/// A test with whoever listens there.
fn run(port: u16, kind: Kind, silence: Duration) -> Result<Measurement, TestError> {
    ask(port, kind.request(), silence)
}

fn ask(port: u16, request: TestRequest, silence: Duration) -> Result<Measurement, TestError> {
    ask_until(port, request, silence, Arc::default())
}

fn ask_until(
    port: u16,
    request: TestRequest,
    silence: Duration,
    stop: Arc<AtomicBool>,
) -> Result<Measurement, TestError> {
    let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
    let mut target = Target::new(Ticket { host: "127.0.0.1".into(), port, token, fingerprint }).unwrap().insecure();
    (target.within, target.silence) = (silence, silence);
    let test = Test {
        request,
        near: SocketWish { pacing: vec![BitRate(20_000_000)], ..SocketWish::default() },
        path: None,
        whole_round_trips: false,
        until: None,
        omit: None,
        stop,
    };
    tester::run(&target, &test, &mut |_| {})
}

use Kind::{RampForward, RampReverse, TcpForward, TcpReverse, UdpForward, UdpReverse};

/// Every message there is, in a conversation that has it.
const POINTS: [(Kind, Point); 19] = [
    (TcpForward, Point::client("\"connection\":\"control\"")),
    (UdpForward, Point::client("\"connection\":\"control\"")),
    (TcpForward, Point::server("\"message\":\"ready\"")),
    (UdpReverse, Point::server("\"message\":\"ready\"")),
    (UdpForward, Point::client("\"message\":\"opened\"")),
    (UdpReverse, Point::client("\"message\":\"opened\"")),
    (TcpForward, Point::client("\"message\":\"ping\"")),
    (TcpForward, Point::server("\"message\":\"pong\"")),
    (TcpForward, Point::server("\"message\":\"interval\"")),
    (UdpForward, Point::server("\"message\":\"interval\"")),
    (TcpReverse, Point::client("\"message\":\"received\"")),
    (UdpForward, Point::client("\"message\":\"sent\"")),
    (RampForward, Point::client("\"message\":\"step_sent\"")),
    (RampForward, Point::server("\"message\":\"step\"")),
    (RampReverse, Point::server("\"message\":\"step_sent\"")),
    (RampReverse, Point::client("\"message\":\"step\"")),
    (TcpForward, Point::server("\"message\":\"report\"")),
    (TcpReverse, Point::server("\"message\":\"report\"")),
    (UdpReverse, Point::server("\"message\":\"report\"")),
];

/// Runs cases some at a time; each names what is wrong with it.
fn all(cases: Vec<(Kind, Point, Fault)>, check: impl Fn(Kind, Point, Fault) -> Result<(), String> + Sync) {
    let (left, wrong) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((kind, point, fault)) = next else { return };
                    if let Err(what) = check(kind, point, fault) {
                        wrong.lock().unwrap().push(format!("{kind:?} {point:?} {fault:?}: {what}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn every(faults: &[Fault]) -> Vec<(Kind, Point, Fault)> {
    let of = |&(kind, point)| faults.iter().map(move |&fault| (kind, point, fault));
    POINTS.iter().flat_map(of).collect()
}

/// What is wrong with how this ended.
fn is_told(ended: Result<Measurement, TestError>, took: Duration) -> Result<(), String> {
    let Err(error) = ended else { return Err("measured".into()) };
    let said = error.to_string();
    if said.contains('\n') || said.len() > 300 || error.hint().is_none() {
        return Err(format!("said '{said}', hint {:?}", error.hint()));
    }
    if took > BOUND { Err(format!("took {took:?}: {said}")) } else { Ok(()) }
}

#[test]
fn a_conversation_cut_or_garbled_at_any_message_is_an_error() {
    let server = served(Connections::default());
    let faults = [Fault::Close, Fault::Half, Fault::Garble, Fault::Lie, Fault::Kind, Fault::Other, Fault::Queue];
    all(every(&faults), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, Duration::from_secs(60));
        if !between.struck() {
            return Err(format!("the message never came: {ended:?}"));
        }
        is_told(ended, begun.elapsed())
    });
    goes_on(&server);
}

#[test]
fn a_conversation_that_stops_at_any_message_ends() {
    let connections = Connections { hello_within: SILENCE, silence: SILENCE, ..Connections::default() };
    let server = served(connections);
    all(every(&[Fault::Stall, Fault::Drop]), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, SILENCE);
        let took = begun.elapsed();
        if !between.struck() {
            return Err(format!("the message never came: {ended:?}"));
        }
        // Nobody misses one question, one answer, or one interval.
        let missed = !point.is_any_of(&["ping", "pong", "interval"]);
        match fault {
            Fault::Drop if !missed => ended.map(|_| ()).map_err(|error| error.to_string()),
            _ => is_told(ended, took),
        }?;
        // The server's side was left open.
        between.server_closes(BOUND)
    });
    goes_on(&server);
}

#[test]
fn an_interrupt_waits_for_no_server_that_stops_or_trickles() {
    let server = served(Connections { silence: SILENCE, ..Connections::default() });
    let interval = Point::server("\"message\":\"interval\"");
    let kinds = [TcpForward, TcpReverse, UdpForward, UdpReverse];
    let cases = kinds.into_iter().flat_map(|kind| [Fault::Stall, Fault::Trickle].map(|fault| (kind, interval, fault)));
    all(cases.collect(), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let stop = Arc::new(AtomicBool::new(false));
        let request = TestRequest { load: Load::TimeSeconds(Duration::from_secs(600)), ..kind.request() };
        thread::scope(|scope| {
            let test = scope.spawn(|| ask_until(between.port, request, Duration::from_secs(60), stop.clone()));
            while !between.struck() && !test.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            let begun = Instant::now();
            stop.store(true, Ordering::Relaxed);
            let ended = test.join().unwrap();
            is_told(ended, begun.elapsed())
        })
    });
    goes_on(&server);
}

#[test]
fn a_record_that_never_is_whole_holds_nobody() {
    let connections = Connections { hello_within: SILENCE, silence: SILENCE, ..Connections::default() };
    let server = served(connections);
    // The one in between goes on when the client has gone: the server is to end its session by itself.
    let stays = Mutex::new(Vec::new());
    all(every(&[Fault::Trickle]), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, SILENCE);
        let (struck, took) = (between.struck(), begun.elapsed());
        stays.lock().unwrap().push(between);
        if !struck {
            return Err(format!("the message never came: {ended:?}"));
        }
        is_told(ended, took)
    });
    goes_on(&server);
}

#[test]
fn intervals_without_end_are_refused() {
    let server = served(Connections { silence: SILENCE, ..Connections::default() });
    let cases = [TcpForward, UdpForward].map(|kind| (kind, Point::server("\"message\":\"interval\""), Fault::Repeat));
    all(cases.to_vec(), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, Duration::from_secs(60));
        match &ended {
            Err(error) if error.to_string().starts_with("the server tells of 'intervals' of ") => {
                is_told(ended, begun.elapsed())
            }
            other => Err(format!("{other:?}")),
        }
    });
    goes_on(&server);
}

#[test]
fn a_message_that_comes_late_is_waited_for() {
    let server = served(Connections::default());
    all(every(&[Fault::Delay]), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let ended = run(between.port, kind, Duration::from_secs(60));
        if !between.struck() {
            return Err(format!("the message never came: {ended:?}"));
        }
        ended.map(|_| ()).map_err(|error| error.to_string())
    });
    goes_on(&server);
}

#[test]
fn a_server_that_says_no_in_the_middle_is_quoted() {
    let server = served(Connections::default());
    let cases = every(&[Fault::Refuse]).into_iter().filter(|(_, point, _)| point.side == Side::Server).collect();
    all(cases, |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        match run(between.port, kind, Duration::from_secs(60)) {
            Err(error) if error.to_string() == "not today" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    goes_on(&server);
}

#[test]
fn data_streams_that_break_are_an_error() {
    // A stream that never opens is waited for as long as a client may be silent.
    let server = served(Connections { silence: SILENCE, ..Connections::default() });
    let cases = [TcpForward, TcpReverse].into_iter().flat_map(|kind| {
        // In the hello, right behind it, and in the payload.
        let cuts = [30, 56, 100_000].map(|bytes| (kind, Point::data(bytes), Fault::Close));
        cuts.into_iter().chain([(kind, Point::data(30), Fault::Garble)])
    });
    all(cases.collect(), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, Duration::from_secs(60));
        if !between.struck() {
            return Err(format!("never so many bytes: {ended:?}"));
        }
        is_told(ended, begun.elapsed())
    });
    goes_on(&server);
}

#[test]
fn figures_that_cannot_be_break_nothing() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    let server = served(Connections { silence: SILENCE, ..Connections::default() });
    all(every(&[Fault::Integers, Fault::Floats, Fault::Negative, Fault::Empty]), |kind, point, fault| {
        let between = Between::start(server.ticket.port, point, fault);
        let begun = Instant::now();
        let ended = run(between.port, kind, SILENCE);
        if begun.elapsed() > BOUND {
            return Err(format!("took {:?}", begun.elapsed()));
        }
        let Ok(measurement) = ended else { return is_told(ended, begun.elapsed()) };
        // It may have gone by unseen; then it is judged, and told.
        let path = PathProfile::new(BitRate(20_000_000), Duration::from_millis(1));
        let (sender, receiver) = (measurement.sender(), measurement.receiver());
        for path in [None, Some(path)] {
            let evidence = Evidence::new(path, measurement.rtt, None, ("a", sender), ("b", receiver), "b");
            let findings = serde_json::to_string(&diagnose(&evidence)).map_err(|error| error.to_string())?;
            if findings.contains("null,null") || findings.contains("NaN") {
                return Err(findings);
            }
        }
        Ok(())
    });
    goes_on(&server);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}

fn with_probes(udp: bool) -> TestRequest {
    let kind = if udp { UdpForward } else { TcpForward };
    TestRequest { latency: Some(LatencyRequest::default()), ..kind.request() }
}

#[test]
fn lost_hellos_and_answers_are_said_again() {
    let server = served(Connections::default());
    for way in [Datagrams::LoseHellos(2), Datagrams::LoseAnswers(2)] {
        let between = Between::beside(server.ticket.port, way);
        let measured = ask(between.port, with_probes(true), Duration::from_secs(30)).unwrap();
        let latency = measured.latency.unwrap();
        assert_eq!(latency.transport, Transport::Udp, "{way:?}");
        assert!(measured.far.bytes > 0 && latency.idle.rtt.is_some(), "{way:?}: {latency:?}");
    }
    goes_on(&server);
}

#[test]
fn where_no_datagram_passes_probes_go_over_tcp_and_a_test_of_datagrams_says_so() {
    let server = served(Connections::default());
    thread::scope(|scope| {
        for way in [Datagrams::Filtered, Datagrams::Closed] {
            let server = &server;
            scope.spawn(move || {
                let between = Between::beside(server.ticket.port, way);
                let latency = ask(between.port, with_probes(false), Duration::from_secs(30)).unwrap().latency.unwrap();
                assert_eq!(latency.transport, Transport::Tcp, "{way:?}");
                assert!(latency.idle.rtt.is_some() && latency.loaded.rtt.is_some(), "{way:?}: {latency:?}");
            });
            scope.spawn(move || {
                let between = Between::beside(server.ticket.port, way);
                let begun = Instant::now();
                let error = run(between.port, UdpForward, Duration::from_secs(30)).unwrap_err();
                assert!(error.to_string().starts_with("no answer over UDP from 127.0.0.1:"), "{way:?}: {error}");
                assert!(error.hint().unwrap().contains("port for UDP"), "{way:?}");
                assert!(begun.elapsed() < BOUND, "{way:?}");
            });
        }
    });
    goes_on(&server);
}
