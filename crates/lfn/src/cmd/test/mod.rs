//! `lfn test`: reads what was typed, runs one test or, with --both, one each way, judges and prints.
//!
//! The flags stand in groups, one a file, each of which makes of its text what a test is asked for; what is wrong with
//! them is told by `typed` in one shape.

mod buffers;
mod iperf3;
mod load;
mod path;
mod report;
pub mod spelling;
mod stamp;
mod stop;
mod tcp;
mod typed;
mod udp;

use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::diagnose::Evidence;
use lfn_core::path::PathProfile;
use lfn_core::plan::congestion_for;
use lfn_core::report::{Hosts, Origin};
use lfn_core::units::Ratio;
use lfn_core::wire::CongestionWish;
use lfn_core::wire::test::{Direction, Modes, RequestError, SocketWish, TestRequest};
use lfn_net::session::dial::Target;
use lfn_net::tester::{self, Measurement, Progress, Test, TestError};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print::test::{Printer, Run};
use crate::remote::{self, Trust, Waiting};
use stop::Interrupt;

/// Measure a path under load, and say what limits it
///
/// The client writes to an `lfn serve`; goodput is what the receiver got by the receiver's clock. Both ends report, for
/// every interval, what their kernels say of each stream; findings name what holds the path back, and the cure.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A name saved with `lfn hosts add`, a ticket (lfn://…), or far inside `lfn emulate`; - reads the ticket from
    /// standard input, @FILE from a file: an argument is seen in `ps`
    #[arg(value_name = "HOST", required_unless_present_any = ["stamp", "iperf3"])]
    host: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    load: load::LoadArgs,
    #[command(flatten)]
    tcp: tcp::TcpArgs,
    #[command(flatten)]
    udp: udp::UdpArgs,
    #[command(flatten)]
    buffers: buffers::BufferArgs,
    #[command(flatten)]
    report: report::ReportArgs,
    #[command(flatten)]
    path: path::PathArgs,
    #[command(flatten)]
    stamp: stamp::StampArgs,
    #[command(flatten)]
    iperf3: iperf3::Iperf3Args,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example                            10 s, with findings
  lfn test far.example --both --streams 4
  lfn test far.example --rate 10gbit --time 30s   plan and prediction for a known capacity
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far --window 4547813
  lfn test far.example --udp --pacing 50mbit --latency
  lfn test far.example --ramp                     the rate where datagrams begin to be lost
  lfn test --iperf3 far.example:5201              with an iperf3 server there
  lfn test far.example --nettest --count 100 --record 3000000
  lfn test --stamp far.example                    delay and loss each way, without load

Exit codes: 0 measured, whatever was found; 1 the test failed; 2 usage; 4 measured, but --check found wrong bytes;
130 interrupted: the first Ctrl-C ends the load and prints what there is, the second ends the command.";

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if let Some(host) = &args.stamp.stamp {
        return args.stamp.run(host, args.report.format());
    }
    if let Some(server) = &args.iperf3.iperf3 {
        return iperf3::run(&args, server);
    }
    let wanted = args.wanted()?;
    let target = args.tcp.dialled(remote::resolve(args.host(), &args.trust, &args.waiting)?)?;
    let hosts = Hosts { near: args.near_name(), far: args.far_name(&target.address()) };
    let mut printer = Printer::new(
        args.report.format(),
        args.report.save()?,
        origin(hosts.clone()),
        wanted.omit,
        args.report.watched(),
    );
    let tested = args.tests(&wanted, &target, &hosts, &mut printer);
    let printed = printer.finish(tested.as_ref().err());
    tested.and_then(|exit| printed.map(|()| exit))
}

/// Who measures, when, and as what it was typed.
fn origin(hosts: Hosts) -> Origin {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Origin {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(now),
        command: typed::without_secrets(std::env::args_os().skip(1)),
        hosts,
    }
}

/// Passes on what a test tells. From its connection on there is a load to interrupt.
fn tell(printer: &mut Printer, number: usize, progress: &Progress<'_>, stop: &Interrupt) {
    if let Progress::Connected(..) = progress {
        stop.load_begins();
    }
    printer.progress(number, progress);
}

/// Whether a receiver that looked found other bytes than were sent.
fn has_wrong_bytes(measurement: &Measurement) -> bool {
    let mut checks = measurement.receiver().streams.iter().filter_map(|stream| stream.check);
    checks.any(|check| check.wrong_bytes > 0)
}

/// A request that nobody could serve, and what to type instead.
fn unusable(error: RequestError) -> Failure {
    let hint = error.hint().unwrap_or_else(|| "see lfn test --help".into());
    Failure::usage(error).hint(hint)
}

/// The line and the hint of a test that failed.
fn failed(error: TestError) -> Failure {
    match error {
        TestError::Session(error) => remote::session_failure(error),
        TestError::Request(error) => unusable(error),
        error => {
            let hint = error.hint();
            let failure = Failure::new(error);
            hint.into_iter().fold(failure, Failure::hint)
        }
    }
}

/// What is meant by what was typed.
struct Wanted {
    directions: Vec<Direction>,
    request: TestRequest,
    near: SocketWish,
    /// Of data that goes forward, and of data that comes back.
    paths: [Option<PathProfile>; 2],
    /// The congestion control is ours to choose, where the path is known.
    congestion_is_ours: bool,
    omit: Option<Duration>,
    /// The interval is ours to choose.
    whole_round_trips: bool,
    /// Both directions at the same time.
    at_once: bool,
    until: Option<Ratio>,
}

impl Wanted {
    /// The path the data takes.
    fn path(&self, direction: Direction) -> Option<PathProfile> {
        self.paths[usize::from(direction == Direction::Reverse)]
    }

    fn test(&self, direction: Direction, stop: &Interrupt) -> Test {
        let mut request = TestRequest { direction, ..self.request.clone() };
        let (mut near, path) = (self.near.clone(), self.path(direction));
        if let (true, Some(path)) = (self.congestion_is_ours, &path) {
            let planned = vec![CongestionWish::Planned(congestion_for(path, request.streams.into()).to_string())];
            (request.socket.congestion, near.congestion) = (planned.clone(), planned);
        }
        Test {
            request,
            near,
            path,
            whole_round_trips: self.whole_round_trips,
            until: self.until,
            omit: self.omit,
            stop: stop.stop.clone(),
        }
    }

    /// What the rules judge; `omit` is what of its figures is start-up, `typed` how the far end was named.
    fn evidence(&self, measurement: &Measurement, hosts: &Hosts, omit: Option<Duration>, typed: &str) -> Evidence {
        let direction = measurement.request.direction;
        let (near, far) = (hosts.near.as_str(), hosts.far.as_str());
        let (sender, receiver) = match direction {
            Direction::Forward => (near, far),
            Direction::Reverse => (far, near),
        };
        let (sent, received) = (measurement.sender(), measurement.receiver());
        let mut evidence =
            Evidence::new(self.path(direction), measurement.rtt, omit, (sender, sent), (receiver, received), far);
        // A cure is tried on the same way.
        evidence.again = match direction {
            _ if measurement.at_once => format!("{typed} --bidir"),
            Direction::Forward => typed.to_owned(),
            Direction::Reverse => format!("{typed} --reverse"),
        };
        evidence.at_once = measurement.at_once;
        evidence.one_host |= measurement.clock.is_some_and(|clock| clock.is_one_clock());
        evidence.no_gso = self.request.udp.as_ref().is_some_and(|udp| udp.no_gso);
        evidence
    }
}

impl Args {
    fn tests(&self, wanted: &Wanted, target: &Target, hosts: &Hosts, printer: &mut Printer) -> Result<Exit, Failure> {
        if self.path.is_asked() && self.tcp.is_by_interface() {
            return Err(Failure::usage("--path by an interface: probes of a trace leave by the routes")
                .hint("give an address of that interface: --bind 192.0.2.1"));
        }
        let path = self.path.look(target)?;
        let stop = Interrupt::listen()?;
        let mut wrong = false;
        let mut judge = |printer: &mut Printer, number, mut measurement: Measurement| -> Result<(), Failure> {
            measurement.path = path::beside(path.as_ref(), &measurement);
            wrong |= has_wrong_bytes(&measurement);
            let mut evidence = wanted.evidence(&measurement, hosts, wanted.omit, &self.typed());
            evidence.probed_mtu = path::probed(measurement.path.as_ref(), measurement.request.direction);
            Ok(printer.end(number, Run::new(measurement, evidence))?)
        };
        let tests = wanted.directions.iter().map(|&direction| wanted.test(direction, &stop));
        match <[Test; 2]>::try_from(tests.clone().collect::<Vec<_>>()) {
            Ok(both) if wanted.at_once => {
                let numbers = [0, 1].map(|n| printer.begin(&both[n], true));
                let done = tester::run_both(target, [&both[0], &both[1]], &mut |n, progress| {
                    tell(printer, numbers[n], &progress, &stop);
                });
                // What one direction measured stands beside what made the other fail.
                let mut failure = None;
                for (number, measured) in numbers.into_iter().zip(done) {
                    match measured {
                        Ok(measurement) => judge(printer, number, measurement)?,
                        // That the other was stopped for it says nothing.
                        Err(error) if matches!(failure, None | Some(TestError::Stopped)) => failure = Some(error),
                        Err(_) => {}
                    }
                }
                failure.map_or(Ok(()), |error| Err(stop.of(failed(error))))?;
            }
            _ => {
                for test in tests {
                    let number = printer.begin(&test, false);
                    let mut watch = |progress: Progress<'_>| tell(printer, number, &progress, &stop);
                    let measured = tester::run(target, &test, &mut watch).map_err(|error| stop.of(failed(error)))?;
                    judge(printer, number, measured)?;
                    if stop.seen() {
                        break;
                    }
                }
            }
        }
        Ok(match (stop.seen(), wrong) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Untrusted,
            _ => Exit::Ok,
        })
    }

    fn wanted(&self) -> Result<Wanted, Failure> {
        let load = self.load.load()?;
        let congestion: Vec<_> = self.load.congestion.iter().cloned().map(CongestionWish::Asked).collect();
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
            return Err(
                Failure::usage("--check looks at payload, which --no-copy never touches").hint("leave out one of them")
            );
        }
        if request.udp.is_some() {
            self.tcp.check_datagrams()?;
            if self.iperf3.iperf3.is_none() {
                self.buffers.check_datagrams()?;
                self.load.check_datagrams()?;
            }
            let given = [("check", request.check), ("blocks", request.blocks), ("until", request.parts > 0)];
            if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
                let udp = self.udp.flag();
                return Err(Failure::usage(format!("--{flag} with {udp}: it is of TCP streams"))
                    .hint(format!("leave out --{flag}, or {udp}")));
            }
        }
        let windows = near.window.or(request.socket.window);
        for (flag, given) in [("window", windows.is_some()), ("pacing", !near.pacing.is_empty())] {
            if near.mptcp && given {
                let text = format!("--{flag} with --mptcp: the kernel takes it for plain TCP alone");
                return Err(Failure::usage(text).hint("leave out one of them"));
            }
        }
        for check in [request.check(), near.check()] {
            check.map_err(unusable)?;
        }
        Ok(Wanted {
            directions: self.load.directions(self.report.nettest),
            paths: self.report.paths()?,
            congestion_is_ours: near.congestion.is_empty() && request.udp.is_none(),
            request,
            near,
            omit: self.report.omit(load)?,
            whole_round_trips: self.report.interval_is_ours(),
            at_once: self.load.at_once(),
            until: self.load.until()?,
        })
    }

    /// As typed; nothing where an iperf3 server takes its place.
    fn host(&self) -> &str {
        self.host.as_deref().unwrap_or_default()
    }

    fn near_name(&self) -> String {
        if emulated::is_inside() { "near".into() } else { tester::kernel().host }
    }

    /// A ticket's host, or the name as typed.
    fn far_name(&self, address: &str) -> String {
        if remote::is_ticket(self.host()) {
            return address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        }
        self.host().to_owned()
    }

    /// How to name the far end in a command; a ticket is a secret.
    fn typed(&self) -> String {
        let host = if remote::is_ticket(self.host()) && !self.host().starts_with('@') { "TICKET" } else { self.host() };
        if self.trust.insecure { format!("{host} --insecure") } else { host.to_owned() }
    }
}
