//! The parts of an examination in their order, each with its own session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_measure::facts;
use lfn_measure::path::{self, MtuTimeLimits};
use lfn_measure::tester::{Test, TestError, TestProgress};
use lfn_results::evidence::figures::Figures;
use lfn_results::evidence::{Evidence, PerEnd, TypedArgument};
use lfn_results::host::facts::HostFacts;
use lfn_results::latency::LatencyRequest;
use lfn_results::measure::{EndReport, SocketRequest, TestDirection, TestLoad, TestRequest};
use lfn_results::path_report::{MtuReport, PathReport};
use lfn_results::report::{DoctorDocument, Origin, PlannedLoad, Unseen};
use lfn_session::SessionError;
use lfn_session::dial::ServerConnection;

use super::error::{DoctorError, DoctorFailure};
use super::event::{DoctorEvent, DoctorPart};
use super::options::{Cost, DoctorOptions, QUICK_HOLE_TIME, Schedule};
use super::server::{self, ExaminedServer};
use super::trains::BeforeTrains;
use crate::error_text::error_chain;
use crate::test::TestVerbError;
use crate::test::path::{KnownPaths, with_tcp_mtu};

/// Interval of the figures of a TCP load: short outages and the growth of windows are visible.
const INTERVAL: Duration = Duration::from_millis(250);
/// Part of a TCP load that its start-up may take.
const START_UP_PART: u32 = 4;
/// Minimum round trips of a load whose start-up is over after this part: slow start to 10,000 packets takes 10.
const MIN_ROUND_TRIPS: u32 = 40;
/// Maximum time of the search of the path MTU. Over a black hole, the probes that get lost take about ten round trips.
const MTU_TIME: Duration = Duration::from_secs(6);
const QUICK_MTU_TIME: Cost = Cost { time: Duration::from_secs(1), round_trips: 12 };
/// Time in which a quick examination gets the first answer over UDP: four datagrams without an answer show that a
/// firewall drops them.
const QUICK_OPEN_TIME: Cost = Cost { time: Duration::from_millis(700), round_trips: 3 };
/// Consequence of a path MTU that is not known.
const UNKNOWN_MTU: &str = "an MTU black hole is found only by its effects on TCP";
/// Addition to the reason of a part without an answer over UDP.
const DROPPED_UDP: &str = "UDP is dropped in one direction or in both";
/// Consequence of a fact that cannot be read.
const UNREADABLE: &str = "a fault of these settings is found only by its effects";

/// Reason for trains that were skipped.
const TOO_SLOW: &str = "the path or --max-load is too slow for trains of datagrams";
/// Reason for trains of a direction whose load failed.
const NO_LOAD: &str = "their rates follow from the TCP load, which failed";
/// Reason for a part that was skipped.
const NO_TIME: &str = "no time left: earlier parts took longer than planned";

/// Facts of both hosts and path MTUs, as far as they are known.
struct Surroundings {
    facts: Option<Box<PerEnd<Option<HostFacts>>>>,
    path: Option<PathReport>,
    /// Reason why no datagrams can be sent: the server does not answer them.
    without_datagrams: Option<String>,
}

/// An examination that runs.
pub(super) struct Examination<'a> {
    pub(super) options: &'a DoctorOptions,
    pub(super) paths: KnownPaths,
    pub(super) server: &'a ExaminedServer,
    pub(super) origin: Origin,
    /// Arguments of the command that repeats a load.
    pub(super) arguments: Vec<TypedArgument>,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) on_event: &'a mut dyn FnMut(&DoctorEvent<'_>),
}

impl Examination<'_> {
    /// Runs all parts. A part that fails is listed in the result, unless all loads fail.
    pub(super) fn run(mut self) -> Result<DoctorDocument, DoctorFailure> {
        let started = Instant::now();
        let connection =
            ServerConnection::connect(self.server.target()).map_err(|error| failed(TestError::from(error)))?;
        let rtt = connection.handle().min_rtt();
        drop(connection);
        let schedule = self.options.schedule(rtt);
        let far = self.origin.hosts.far.clone();
        (self.on_event)(&DoctorEvent::Planned { far: &far, rtt, load: &schedule.load });
        let mut unseen: Vec<Unseen> = self.options.max_load.map(rates_above).into_iter().collect();
        let hosts_and_path = self.hosts_and_path(rtt, &mut unseen);
        let Surroundings { facts, path, without_datagrams } =
            hosts_and_path.map_err(|error| failed(TestError::from(error)))?;
        let schedule = schedule.without_datagrams(self.options.quick && without_datagrams.is_some());
        let (mut loads, mut failure) = (Vec::new(), None);
        for (direction, loads_left) in [(TestDirection::Forward, 2), (TestDirection::Reverse, 1)] {
            let has_hole = has_black_hole(path.as_ref(), direction);
            let time = match self.options.quick && has_hole {
                true => QUICK_HOLE_TIME,
                false => schedule.tcp_time(started.elapsed(), loads_left),
            };
            (self.on_event)(&DoctorEvent::Begin(DoctorPart::Load(direction)));
            match self.measure(&self.load(direction, &schedule, time)) {
                Ok(evidence) if self.options.time.is_none() => loads.push(without_start_up(evidence)),
                Ok(evidence) => loads.push(evidence),
                // The probes explain a load without data.
                Err(error) if !self.is_stopped() && has_hole => {
                    loads.push(self.empty_load(direction, rtt));
                    self.add_unseen(&mut unseen, DoctorPart::Load(direction), &error);
                }
                Err(error) => {
                    self.add_unseen(&mut unseen, DoctorPart::Load(direction), &error);
                    self.report_unseen(&mut unseen, DoctorPart::Trains(direction).unseen(NO_LOAD.to_owned()));
                    failure.get_or_insert(error);
                }
            }
        }
        let has_time = schedule.has_time_for_trains(started.elapsed());
        let obstacle = without_datagrams.or_else(|| (!has_time).then(|| NO_TIME.to_owned()));
        match obstacle {
            _ if self.is_stopped() => {}
            None => self.trains(&schedule, &mut loads, path.as_ref(), &mut unseen),
            Some(reason) => {
                for load in &loads {
                    let part = DoctorPart::Trains(load.request.direction);
                    self.report_unseen(&mut unseen, part.unseen(reason.clone()));
                }
            }
        }
        let DoctorOptions { disks, quick, .. } = self.options;
        // Without a load, there is no evidence to which the disks belong.
        let measures = !loads.is_empty();
        let disks = measures
            .then(|| disks.measure(*quick, self.server.target(), self.stop, &mut unseen, &mut *self.on_event))
            .flatten();
        let evidence = loads
            .into_iter()
            .map(|evidence| Evidence { facts: facts.clone(), disks: disks.clone(), ..evidence })
            .map(|evidence| self.complete(evidence, path.as_ref()))
            .collect();
        self.result(schedule.load, evidence, unseen, failure)
    }

    /// Returns the document, or the failure of the first load if none has a result.
    fn result(
        self,
        load: PlannedLoad,
        evidence: Vec<Evidence>,
        unseen: Vec<Unseen>,
        failure: Option<TestError>,
    ) -> Result<DoctorDocument, DoctorFailure> {
        let is_empty = evidence.is_empty();
        let mut document = DoctorDocument::new(self.origin, load, evidence, unseen);
        match failure.filter(|_| is_empty) {
            None => Ok(document),
            Some(error) => {
                let error = DoctorError::from(TestVerbError::from(error));
                document.error = Some(error.command_error());
                Err(DoctorFailure { error, document: Some(Box::new(document)) })
            }
        }
    }

    /// Reads the facts of both hosts, and searches the path MTU of both directions at the same time. The error is one that
    /// each session of this server has.
    fn hosts_and_path(&mut self, rtt: Duration, unseen: &mut Vec<Unseen>) -> Result<Surroundings, SessionError> {
        (self.on_event)(&DoctorEvent::Begin(DoctorPart::Facts));
        let usual = MtuTimeLimits { search: MTU_TIME, ..MtuTimeLimits::default() };
        let limits = match self.options.quick {
            true => MtuTimeLimits {
                open: QUICK_OPEN_TIME.at(rtt).min(usual.open),
                search: QUICK_MTU_TIME.at(rtt).min(usual.search),
            },
            false => usual,
        };
        let target = self.server.target();
        let (facts, mtus) = thread::scope(|scope| {
            let facts = scope.spawn(|| facts::of_both_ends(target));
            let mtus = path::search_mtus(target, limits);
            (facts.join().ok(), mtus)
        });
        let facts = match facts {
            Some(Ok(facts)) => Some(Box::new(facts)),
            Some(Err(error)) if server::refuses_each_session(&error) => return Err(error),
            Some(Err(error)) => {
                self.add_unseen(unseen, DoctorPart::Facts, &error);
                self.server.check_after(&error);
                None
            }
            // The panic of the thread has already been reported on stderr.
            None => {
                self.report_unseen(unseen, DoctorPart::Facts.unseen("the thread of the facts failed".to_owned()));
                None
            }
        };
        unseen.extend(facts.iter().flat_map(|facts| unreadable(facts)));
        let without_datagrams = match &mtus {
            Err(error @ SessionError::NoDatagrams { .. }) => Some(format!("{}: {DROPPED_UDP}", error_chain(error))),
            _ => None,
        };
        let path = self.path_report(mtus, without_datagrams.as_deref(), unseen);
        Ok(Surroundings { facts, path, without_datagrams })
    }

    /// Returns the result of the search of the path MTU, and lists its failure.
    fn path_report(
        &mut self,
        mtus: Result<MtuReport, SessionError>,
        without_datagrams: Option<&str>,
        unseen: &mut Vec<Unseen>,
    ) -> Option<PathReport> {
        let mut report = |part: &str, reason: String| {
            let entry = Unseen { part: part.to_owned(), reason, consequence: UNKNOWN_MTU.to_owned() };
            self.report_unseen(unseen, entry);
        };
        match mtus {
            Ok(mtu) => {
                let silent = "no probe of any size was answered";
                for (part, found) in
                    [("path MTU from near to far", mtu.forward), ("path MTU from far to near", mtu.reverse)]
                {
                    if found.is_none() {
                        report(part, silent.to_owned());
                    }
                }
                Some(PathReport { mtu, ..PathReport::default() })
            }
            Err(error) => {
                report("path MTU", without_datagrams.map_or_else(|| error_chain(&error), str::to_owned));
                None
            }
        }
    }

    /// Returns the TCP load of a direction.
    fn load(&self, direction: TestDirection, schedule: &Schedule, time: Duration) -> Test {
        let pacing = self.options.max_load.into_iter().collect::<Vec<_>>();
        let socket = SocketRequest { pacing, ..SocketRequest::default() };
        let request = TestRequest {
            direction,
            load: TestLoad::TimeSeconds(time),
            interval: INTERVAL,
            socket: socket.clone(),
            latency: schedule.latency_probes.then(LatencyRequest::default),
            ..TestRequest::default()
        };
        // A load of few round trips is too short for a fixed part.
        let omit = (time >= schedule.rtt * MIN_ROUND_TRIPS).then(|| time / START_UP_PART);
        Test { near_socket: socket, omit, ..self.test(request) }
    }

    /// Returns the evidence of a load that delivered no data.
    fn empty_load(&self, direction: TestDirection, rtt: Duration) -> Evidence {
        let request = TestRequest { direction, ..TestRequest::default() };
        let evidence = Evidence::of_test(request, rtt, EndReport::default(), EndReport::default());
        Evidence { path: self.paths.get(direction), ..evidence }
    }

    /// Sends the trains of each direction with a load: without one, there is no evidence to which the trains belong.
    fn trains(
        &mut self,
        schedule: &Schedule,
        loads: &mut [Evidence],
        path: Option<&PathReport>,
        unseen: &mut Vec<Unseen>,
    ) {
        let (mut examined, mut tests) = (Vec::new(), Vec::new());
        for load in loads {
            let Some(test) = self.trains_after(load, path) else {
                let part = DoctorPart::Trains(load.request.direction);
                self.report_unseen(unseen, part.unseen(TOO_SLOW.to_owned()));
                continue;
            };
            examined.push(load);
            tests.push(test);
        }
        let results: Vec<_> = match <&[Test; 2]>::try_from(&tests[..]) {
            Ok(both) if schedule.trains_at_once => {
                (self.on_event)(&DoctorEvent::Begin(DoctorPart::BothTrains));
                self.measure_both(both).into()
            }
            _ => tests
                .iter()
                .map(|test| {
                    (self.on_event)(&DoctorEvent::Begin(DoctorPart::Trains(test.request.direction)));
                    self.measure(test)
                })
                .collect(),
        };
        for (load, result) in examined.into_iter().zip(results) {
            match result {
                Ok(evidence) => load.trains = Some(Box::new(evidence.into_trains())),
                Err(error) => self.add_unseen(unseen, DoctorPart::Trains(load.request.direction), &error),
            }
        }
    }

    /// Returns the trains for the direction of a load; none if its rates are too low for trains.
    fn trains_after(&self, load: &Evidence, path: Option<&PathReport>) -> Option<Test> {
        let direction = load.request.direction;
        let before = BeforeTrains {
            goodput: Some(Figures::of(load).steady_goodput()),
            capacity: self.paths.get(direction).map(|path| path.payload_capacity()),
            max_load: self.options.max_load,
            path_mtu: path.and_then(|report| report.probed_mtu(direction).or(report.black_hole(direction))),
            quick: self.options.quick,
        };
        Some(self.test(before.request(direction)?))
    }

    fn test(&self, request: TestRequest) -> Test {
        Test {
            path: self.paths.get(request.direction),
            request,
            near_socket: SocketRequest::default(),
            tuned: false,
            round_to_rtt: true,
            target_precision: None,
            omit: None,
            stop: Arc::clone(self.stop),
        }
    }

    fn measure(&mut self, test: &Test) -> Result<Evidence, TestError> {
        let on_event = &mut *self.on_event;
        self.server.run(test, &mut |progress: TestProgress<'_>| on_event(&DoctorEvent::Progress(&progress)))
    }

    /// Runs two tests at the same time, and reports the progress of the first one. Each test has its own result: a failure
    /// of one of them does not end the other one.
    fn measure_both(&mut self, [first, second]: &[Test; 2]) -> [Result<Evidence, TestError>; 2] {
        let server = self.server;
        thread::scope(|scope| {
            let second = scope.spawn(|| server.run(second, &mut |_| ()));
            let first = self.measure(first);
            [first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
        })
    }

    /// Adds what other parts found to the evidence of a load.
    fn complete(&self, evidence: Evidence, path: Option<&PathReport>) -> Evidence {
        let is_reverse = evidence.request.direction == TestDirection::Reverse;
        let reverse = is_reverse.then(|| TypedArgument { flag: Some("reverse".into()), text: "--reverse".into() });
        let arguments = self.arguments.iter().cloned().chain(reverse).collect();
        let path_report = with_tcp_mtu(path, &evidence);
        Evidence { hosts: self.origin.hosts.clone(), arguments, path_report, ..evidence }
    }

    fn add_unseen(&mut self, unseen: &mut Vec<Unseen>, part: DoctorPart, error: &(dyn std::error::Error + 'static)) {
        self.report_unseen(unseen, part.unseen(error_chain(error)));
    }

    fn report_unseen(&mut self, unseen: &mut Vec<Unseen>, entry: Unseen) {
        (self.on_event)(&DoctorEvent::Unseen(&entry));
        unseen.push(entry);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Returns the entry of the rates that the limit of the load excludes.
fn rates_above(max_load: BitRate) -> Unseen {
    Unseen {
        part: format!("rates above {max_load}"),
        reason: "--max-load limits the load".to_owned(),
        consequence: "a fault above this rate cannot be seen".to_owned(),
    }
}

/// Returns the facts of both hosts that could not be read. The same reason at both hosts is one entry.
fn unreadable(facts: &PerEnd<Option<HostFacts>>) -> Vec<Unseen> {
    let of = |end: &Option<HostFacts>| end.as_ref().map(|facts| facts.unreadable.clone()).unwrap_or_default();
    let (near, far) = (of(&facts.near), of(&facts.far));
    let (both, only_near): (Vec<String>, Vec<String>) = near.into_iter().partition(|reason| far.contains(reason));
    let only_far = far.into_iter().filter(|reason| !both.contains(reason));
    let entry = |host: &str, reason: String| Unseen {
        part: format!("facts of {host}"),
        reason,
        consequence: UNREADABLE.to_owned(),
    };
    let no_far = facts.far.is_none().then(|| facts::EARLIER_VERSION.to_owned());
    let only_far = only_far.chain(no_far).collect();
    let hosts = [("both hosts", both.clone()), ("near", only_near), ("far", only_far)];
    hosts.into_iter().flat_map(|(host, reasons)| reasons.into_iter().map(move |reason| entry(host, reason))).collect()
}

/// Omits the start-up of a load that became steady: the examination chose the time of the load.
fn without_start_up(evidence: Evidence) -> Evidence {
    let start = Figures::of(&evidence).steady.map(|steady| steady.start);
    Evidence { omit: evidence.omit.or(start), ..evidence }
}

fn has_black_hole(path: Option<&PathReport>, direction: TestDirection) -> bool {
    path.is_some_and(|report| report.black_hole(direction).is_some())
}

fn failed(error: TestError) -> DoctorError {
    DoctorError::Test(error.into())
}
