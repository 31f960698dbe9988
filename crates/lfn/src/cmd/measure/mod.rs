//! `lfn test`: runs one test, or one in each direction, analyses the results and prints them.
//!
//! The flags are grouped by topic, one group per file. Each group converts its values to parts of the request. `values`
//! reports all errors of values in the same form.

mod buffers;
mod interrupt;
mod iperf3;
mod iperf3_args;
pub mod iperf3_flags;
mod load;
mod path;
mod report;
mod run;
mod server;
mod stamp;
mod tcp;
mod tuning;
mod udp;
mod values;

use std::time::{Duration, SystemTime};

use clap::{Args as _, Command};
use lfn_api::emulator_env;
use lfn_api::resolve::is_ticket;
use lfn_core::date::rfc3339;
use lfn_core::diagnose::Cause;
use lfn_core::evidence::{Evidence, TypedArgument};
use lfn_core::path::PathProfile;
use lfn_core::plan::recommend_congestion;
use lfn_core::report::{HostNames, Origin, Run};
use lfn_core::tcp_model::Congestion;
use lfn_core::units::Ratio;
use lfn_core::wire::CongestionRequest;
use lfn_core::wire::measure::{Modes, RequestError, SocketRequest, TestDirection, TestRequest};
use lfn_net::session::dial::Target;
use lfn_net::tester::{self, Test, TestError, TestProgress};

pub use run::run;

use crate::exit::{Exit, Failure, session_failure};
use crate::print::measure::Printer;
use crate::repeat::typed_flags;
use crate::server_flags::{QueueArgs, SshFlags, TrustArgs, resolver};
use crate::typed;
use interrupt::Interrupt;

/// Measure the throughput of a path under load and find its bottleneck
///
/// The client sends to a server (`lfn serve`). The receiver measures the goodput. Both ends report the kernel's
/// statistics of each stream in every interval. Findings name the bottleneck and the remedy.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TestArgs {
    /// Server: a name saved with `lfn hosts add`, a ticket (lfn://…), USER@HOST for ssh, or far inside `lfn emulate`
    ///
    /// A name without a saved ticket is a host for ssh, which starts lfn on that host for this test. With - the ticket is
    /// read from standard input, with @FILE from a file. Other users see arguments in `ps`.
    #[arg(value_name = "HOST", required_unless_present_any = ["stamp", "iperf3", "list_findings"])]
    host: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    waiting: QueueArgs,
    #[command(flatten)]
    ssh: SshFlags,
    #[command(flatten)]
    load: load::LoadArgs,
    #[command(flatten)]
    tcp: tcp::TcpArgs,
    #[command(flatten)]
    udp: udp::UdpArgs,
    #[command(flatten)]
    tuning: tuning::TuningArgs,
    #[command(flatten)]
    buffers: buffers::BufferArgs,
    #[command(flatten)]
    report: report::ReportArgs,
    #[command(flatten)]
    path: path::PathArgs,
    #[command(flatten)]
    stamp: stamp::StampProbeArgs,
    #[command(flatten)]
    iperf3: iperf3_args::Iperf3ClientArgs,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example                            runs for 10 s
  lfn test me@there                               starts the server over ssh
  lfn test far.example --both --streams 4
  lfn test far.example --rate 10gbit --time 30s   adds a prediction
  lfn test far.example --rate 10gbit --compare    shows what tuning changes
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far --window 4547813
  lfn test far.example --udp --pacing 50mbit --latency
  lfn test far.example --ramp                     finds the rate at which loss begins
  lfn test --iperf3 far.example:5201              tests with an iperf3 server
  lfn test far.example --output nettest --count 100 --length 3000000
  lfn test --stamp far.example                    delay and loss of each direction

Exit codes: 0 measured, with or without findings; 1 the test failed; 2 usage; 4 measured, but not reliable \
(--check-data found wrong bytes, or the sender of a --ramp was late); 130 interrupted: the first Ctrl-C ends the load \
and prints the result, the second Ctrl-C ends the command.";

/// Returns the origin of a result: version, start time, command line and hosts.
fn origin(hosts: HostNames) -> Origin {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Origin {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(now),
        command: typed::without_secrets(typed::words()),
        hosts,
    }
}

/// Forwards the progress of a test. From the connection on, an interrupt ends only the load.
fn report_progress(printer: &mut Printer, number: usize, progress: &TestProgress<'_>, stop: &Interrupt) {
    if let TestProgress::Connected(..) = progress {
        stop.begin_load();
    }
    printer.progress(number, progress);
}

/// Describes an invalid request.
fn request_error(error: RequestError) -> Failure {
    let hint = error.hint().unwrap_or_else(|| "see `lfn test --help`".into());
    Failure::usage(error).hint(hint)
}

/// Describes a failed test.
fn test_error(error: TestError) -> Failure {
    match error {
        TestError::Session(error) => session_failure(error),
        TestError::Request(error) => request_error(error),
        error => {
            let hint = error.hint();
            let failure = Failure::new(error);
            hint.into_iter().fold(failure, Failure::hint)
        }
    }
}

/// Returns the share of the sent data that was lost, if loss limited the test.
fn limiting_loss(run: &Run) -> Option<Ratio> {
    let loss = run.diagnosis.findings.iter().find(|finding| finding.cause() == Some(Cause::Loss))?;
    Ratio::new(loss.evidence.get("lost_share")?.as_f64()?)
}

/// The tests to run, derived from the flags.
#[derive(Clone)]
struct TestPlan {
    directions: Vec<TestDirection>,
    request: TestRequest,
    near: SocketRequest,
    /// Figures of the path, forward and reverse.
    paths: [Option<PathProfile>; 2],
    /// The streams use the buffers of the plan.
    tuned: bool,
    /// A plan chooses the congestion control, because none is requested.
    choose_congestion: bool,
    omit: Option<Duration>,
    /// lfn chooses the interval.
    round_to_rtt: bool,
    bidirectional: bool,
    target_precision: Option<Ratio>,
    /// Flags as typed, for the hints.
    typed_flags: Vec<TypedArgument>,
}

impl TestPlan {
    /// Returns the figures of the path in this direction.
    fn path(&self, direction: TestDirection) -> Option<PathProfile> {
        self.paths[usize::from(direction == TestDirection::Reverse)]
    }

    fn test(&self, direction: TestDirection, stop: &Interrupt) -> Test {
        let mut request = TestRequest { direction, ..self.request.clone() };
        let (mut near, path) = (self.near.clone(), self.path(direction));
        if let (true, Some(path)) = (self.tuned && self.choose_congestion, &path) {
            // The host keeps its own congestion control unless the plan gives a better one for the loss of the path.
            let own = tester::read_kernel().congestion.parse().ok();
            let planned = recommend_congestion(path, request.streams.into(), &Congestion::ALL, own);
            let planned: Vec<_> =
                planned.iter().map(|planned| CongestionRequest::Planned(planned.to_string())).collect();
            (request.socket.congestion, near.congestion) = (planned.clone(), planned);
        }
        Test {
            request,
            near_socket: near,
            path,
            tuned: self.tuned,
            round_to_rtt: self.round_to_rtt,
            target_precision: self.target_precision,
            omit: self.omit,
            stop: stop.stop.clone(),
        }
    }

    /// Returns a test of a comparison. The plan of the tuned test knows the loss that limited the other test.
    fn compared_test(
        &self,
        direction: TestDirection,
        tuned: bool,
        measured_loss: Option<Ratio>,
        stop: &Interrupt,
    ) -> Test {
        let mut plan = TestPlan { tuned, ..self.clone() };
        let path = &mut plan.paths[usize::from(direction == TestDirection::Reverse)];
        if let (Some(loss), Some(path)) = (measured_loss, path) {
            path.loss = if loss > path.loss { loss } else { path.loss };
        }
        let test = plan.test(direction, stop);
        // The prediction of both tests is for the path as it was given.
        Test { path: self.path(direction), ..test }
    }

    /// Completes the evidence of a test with the names of the hosts and with the arguments that repeat the test. `typed`
    /// is the name of the server on the command line.
    fn complete(&self, evidence: Evidence, hosts: &HostNames, typed: &str) -> Evidence {
        // The remedy is tried in the same direction.
        let direction_flag = match evidence.request.direction {
            _ if evidence.bidirectional => Some("bidir"),
            TestDirection::Forward => None,
            TestDirection::Reverse => Some("reverse"),
        };
        let host = TypedArgument { flag: None, text: typed.to_owned() };
        let direction_flag =
            direction_flag.map(|name| TypedArgument { flag: Some(name.to_owned()), text: format!("--{name}") });
        let arguments = [host].into_iter().chain(self.typed_flags.clone()).chain(direction_flag).collect();
        Evidence { hosts: hosts.clone(), arguments, ..evidence }
    }
}

impl TestArgs {
    fn resolve_and_run(&self, plan: &TestPlan, printer: &mut Printer) -> Result<Exit, Failure> {
        let server = server::reach(self.host(), &resolver(&self.trust, &self.waiting, &self.ssh))?;
        let target = self.tcp.bind_target(server.target.clone())?;
        let hosts = HostNames { near: self.near_name(), far: self.far_name(&target.address()) };
        printer.set_far_name(hosts.far.clone());
        self.run_tests(plan, &target, &hosts, printer)
    }

    fn run_tests(
        &self,
        plan: &TestPlan,
        target: &Target,
        hosts: &HostNames,
        printer: &mut Printer,
    ) -> Result<Exit, Failure> {
        if self.path.is_requested() && self.tcp.is_bound_to_interface() {
            return Err(Failure::usage(
                "--path cannot be combined with --bind INTERFACE: the probes follow the routing table",
            )
            .hint("use an address of the interface: --bind 192.0.2.1"));
        }
        let path = self.path.discover(target)?;
        let stop = Interrupt::listen()?;
        let mut found_unreliable = false;
        let mut judge = |printer: &mut Printer, number, mut evidence: Evidence| -> Result<Option<Ratio>, Failure> {
            evidence.path_report = path::with_tcp_mtu(path.as_ref(), &evidence);
            let run = Run::new(plan.complete(evidence, hosts, &self.remote_argument()));
            found_unreliable |= run.is_unreliable();
            let loss = limiting_loss(&run);
            printer.end_test(number, run)?;
            Ok(loss)
        };
        if self.tuning.compare {
            for &direction in &plan.directions {
                let mut loss = None;
                for tuned in [false, true] {
                    let test = plan.compared_test(direction, tuned, loss, &stop);
                    let number = printer.begin_test(&test, false);
                    let mut watch = |progress: TestProgress<'_>| report_progress(printer, number, &progress, &stop);
                    let measured = tester::run(target, &test, &mut watch)
                        .map_err(|error| stop.with_exit_code(test_error(error)))?;
                    loss = judge(printer, number, measured)?;
                    if stop.is_interrupted() {
                        return Ok(Exit::Interrupted);
                    }
                }
            }
            return Ok(if found_unreliable { Exit::Unreliable } else { Exit::Ok });
        }
        let tests = plan.directions.iter().map(|&direction| plan.test(direction, &stop));
        match <[Test; 2]>::try_from(tests.clone().collect::<Vec<_>>()) {
            Ok(both) if plan.bidirectional => {
                let numbers = [0, 1].map(|n| printer.begin_test(&both[n], true));
                let done = tester::run_both(target, [&both[0], &both[1]], &mut |n, progress| {
                    report_progress(printer, numbers[n], &progress, &stop);
                });
                // One direction may have a result even if the other fails.
                let mut failure = None;
                for (number, measured) in numbers.into_iter().zip(done) {
                    match measured {
                        Ok(evidence) => drop(judge(printer, number, evidence)?),
                        // The other direction was stopped because of the first failure.
                        Err(error) if matches!(failure, None | Some(TestError::Stopped)) => failure = Some(error),
                        Err(_) => {}
                    }
                }
                failure.map_or(Ok(()), |error| Err(stop.with_exit_code(test_error(error))))?;
            }
            _ => {
                for test in tests {
                    let number = printer.begin_test(&test, false);
                    let mut watch = |progress: TestProgress<'_>| report_progress(printer, number, &progress, &stop);
                    let measured = tester::run(target, &test, &mut watch)
                        .map_err(|error| stop.with_exit_code(test_error(error)))?;
                    judge(printer, number, measured)?;
                    if stop.is_interrupted() {
                        break;
                    }
                }
            }
        }
        Ok(match (stop.is_interrupted(), found_unreliable) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Unreliable,
            _ => Exit::Ok,
        })
    }

    fn plan(&self) -> Result<TestPlan, Failure> {
        let load = self.load.load()?;
        let congestion: Vec<_> = self.load.congestion.iter().cloned().map(CongestionRequest::Requested).collect();
        let mut request = TestRequest {
            streams: self.load.streams()?,
            load,
            record: self.load.record()?,
            interval: self.report.interval(load)?,
            socket: self.buffers.far(congestion.clone())?,
            udp: self.udp.udp(&self.load, &self.tcp.pacing()?)?.map(Box::new),
            latency: self.udp.latency()?,
            ..TestRequest::default()
        };
        let mut near = self.buffers.near(congestion)?;
        request.modes = self.tcp.modes();
        self.tcp.add_to(&mut near, &mut request.socket)?;
        self.load.add_to(&mut request)?;
        if request.check && request.modes != Modes::default() {
            return Err(Failure::usage(
                "--check-data cannot be combined with --no-copy, which does not read the payload",
            )
            .hint("remove one of the two"));
        }
        if request.udp.is_some() {
            self.tcp.check_datagrams()?;
            if self.iperf3.iperf3.is_none() {
                self.buffers.check_datagrams()?;
                self.load.check_datagrams()?;
            }
            let given = [
                ("check-data", request.check),
                ("block-timing", request.blocks),
                ("precision", request.slices_per_interval > 0),
            ];
            if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
                let udp = self.udp.flag();
                return Err(Failure::usage(format!("--{flag} with {udp}: only TCP streams support it"))
                    .hint(format!("remove --{flag} or {udp}")));
            }
        }
        let windows = near.window.or(request.socket.window);
        for (flag, given) in [("window", windows.is_some()), ("pacing", !near.pacing.is_empty())] {
            if near.mptcp && given {
                let text = format!("--{flag} with --mptcp: the kernel supports it only for plain TCP");
                return Err(Failure::usage(text).hint("remove one of the two"));
            }
        }
        for check in [request.check(), near.check()] {
            check.map_err(request_error)?;
        }
        let paths = self.report.paths()?;
        self.tuning.check_capacity(paths.iter().all(Option::is_some), &self.remote_argument())?;
        self.tuning.check_format(self.report.output.format())?;
        Ok(TestPlan {
            directions: self.load.directions(self.report.is_nettest())?,
            paths,
            tuned: self.tuning.tuned,
            choose_congestion: near.congestion.is_empty(),
            request,
            near,
            omit: self.report.omit(load)?,
            round_to_rtt: self.report.chooses_interval(),
            bidirectional: self.load.is_bidirectional(),
            target_precision: self.load.precision()?,
            typed_flags: typed_flags(&TestArgs::augment_args(Command::new("test"))),
        })
    }

    /// Returns the host as typed, or an empty text with an iperf3 server.
    fn host(&self) -> &str {
        self.host.as_deref().unwrap_or_default()
    }

    fn near_name(&self) -> String {
        if emulator_env::is_inside() { "near".into() } else { tester::read_kernel().host }
    }

    /// Returns the host of a ticket, or the name as typed.
    fn far_name(&self, address: &str) -> String {
        if is_ticket(self.host()) {
            return address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        }
        self.host().to_owned()
    }

    /// Returns the server as an argument for a command, without the secret of a ticket.
    fn remote_argument(&self) -> String {
        let host = if is_ticket(self.host()) && !self.host().starts_with('@') { "TICKET" } else { self.host() };
        if self.trust.insecure { format!("{host} --insecure") } else { host.to_owned() }
    }
}
