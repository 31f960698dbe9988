//! `lfn test`: reads what was typed, runs one test or, with --both, one each way, judges and prints.
//!
//! The flags stand in groups, one a file, each of which makes of its text what a test is asked for; what is wrong with
//! them is told by `typed` in one shape.

mod buffers;
mod iperf3;
mod load;
mod path;
mod report;
mod stamp;
mod typed;
mod udp;

use std::time::{Duration, SystemTime};

use lfn_core::diagnose::Evidence;
use lfn_core::path::PathProfile;
use lfn_core::plan::congestion_for;
use lfn_core::report::{Hosts, Origin, rfc3339};
use lfn_core::wire::CongestionWish;
use lfn_core::wire::test::{Direction, SocketWish, TestRequest};
use lfn_net::session::dial::Target;
use lfn_net::tester::{self, Measurement, Test, TestError};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print::test::{Printer, Run};
use crate::remote::{self, Trust, Waiting};

/// Measure a path under load, and say what limits it
///
/// The client writes to an `lfn serve`; goodput is what the receiver got by the receiver's clock. Both ends report, for
/// every interval, what their kernels say of each stream; findings name what holds the path back, and the cure.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A ticket (lfn://…), a name saved with `lfn hosts add`, or far inside `lfn emulate`
    #[arg(value_name = "HOST", required_unless_present_any = ["stamp", "iperf3"])]
    host: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    load: load::LoadArgs,
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

Exit codes: 0 measured, whatever was found; 1 the test failed; 2 usage.";

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if let Some(host) = &args.stamp.stamp {
        return args.stamp.run(host, args.report.format());
    }
    if let Some(server) = &args.iperf3.iperf3 {
        return iperf3::run(&args, server);
    }
    let wanted = args.wanted()?;
    let target = remote::resolve(args.host(), &args.trust, &args.waiting)?;
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
    tested.and(printed).map(|()| Exit::Ok)
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

/// The line and the hint of a test that failed.
fn failed(error: TestError) -> Failure {
    match error {
        TestError::Session(error) => remote::session_failure(error),
        TestError::Request(error) => Failure::usage(error).hint("see lfn test --help"),
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
    path: Option<PathProfile>,
    omit: Option<Duration>,
    /// The interval is ours to choose.
    whole_round_trips: bool,
}

impl Wanted {
    fn test(&self, direction: Direction) -> Test {
        let request = TestRequest { direction, ..self.request.clone() };
        Test { request, near: self.near.clone(), path: self.path, whole_round_trips: self.whole_round_trips }
    }

    fn evidence(&self, measurement: &Measurement, (near, far): (&str, &str), typed: &str) -> Evidence {
        let (sender, receiver) = match measurement.request.direction {
            Direction::Forward => (near, far),
            Direction::Reverse => (far, near),
        };
        Evidence::new(
            self.path,
            measurement.rtt,
            self.omit,
            (sender, measurement.sender()),
            (receiver, measurement.receiver()),
            typed,
        )
    }
}

impl Args {
    fn tests(&self, wanted: &Wanted, target: &Target, hosts: &Hosts, printer: &mut Printer) -> Result<(), Failure> {
        let path = self.path.look(target)?;
        for &direction in &wanted.directions {
            let test = wanted.test(direction);
            printer.begin(&test);
            let mut measurement =
                tester::run(target, &test, &mut |progress| printer.progress(&progress)).map_err(failed)?;
            measurement.path = path::beside(path.as_ref(), &measurement);
            let evidence = wanted.evidence(&measurement, (&hosts.near, &hosts.far), &self.typed());
            printer.end(Run::new(measurement, evidence))?;
        }
        Ok(())
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
            udp: self.udp.udp(&self.load)?.map(Box::new),
            latency: self.udp.latency()?,
            ..TestRequest::default()
        };
        let mut near = self.buffers.near(congestion)?;
        for check in [request.check(), near.check()] {
            check.map_err(|error| Failure::usage(error).hint("see lfn test --help"))?;
        }
        let path = self.report.path()?;
        let planned = near.congestion.is_empty() && request.udp.is_none();
        if let (true, Some(path)) = (planned, &path) {
            let planned = vec![CongestionWish::Planned(congestion_for(path, request.streams.into()).to_string())];
            (request.socket.congestion, near.congestion) = (planned.clone(), planned);
        }
        Ok(Wanted {
            directions: self.load.directions(self.report.nettest),
            request,
            near,
            path,
            omit: self.report.omit(load)?,
            whole_round_trips: self.report.interval_is_ours(),
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
        if self.host().starts_with("lfn://") {
            return address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        }
        self.host().to_owned()
    }

    /// How to name the far end in a command; a ticket is a secret.
    fn typed(&self) -> String {
        let host = if self.host().starts_with("lfn://") { "TICKET" } else { self.host() };
        if self.trust.insecure { format!("{host} --insecure") } else { host.to_owned() }
    }
}
