//! `lfn test`: reads what was typed, runs one test or, with --both, one each way, judges and prints.
//!
//! Quantities are taken as text and read here rather than by clap, so that all that can be wrong with them fails in one
//! shape: a line that names the flag and the value, a hint, exit code 2.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_core::diagnose::Evidence;
use lfn_core::path::PathProfile;
use lfn_core::plan::congestion_for;
use lfn_core::units::{BitRate, Bytes, parse_duration};
use lfn_core::wire::CongestionWish;
use lfn_core::wire::test::{Direction, Load, SocketWish, TestRequest};
use lfn_net::tester::{self, Measurement, Test, TestError};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print::test::{Format, Printer, Run};
use crate::remote::{self, Trust};

/// Measure a path under load, and say what limits it
///
/// The client writes to an `lfn serve`; goodput is what the receiver got by the receiver's clock. Both ends report, for
/// every interval, what their kernels say of each stream; findings name what holds the path back, and the cure.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A ticket (lfn://…), a name saved with `lfn hosts add`, or far inside `lfn emulate`
    #[arg(value_name = "HOST")]
    host: String,
    #[command(flatten)]
    trust: Trust,

    /// The server writes and the client reads
    #[arg(long, conflicts_with = "both", help_heading = "Load")]
    reverse: bool,
    /// The client writes, then reads
    #[arg(long, help_heading = "Load")]
    both: bool,
    /// How long to write [default: 10s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Load")]
    time: Option<String>,
    /// Write this many records instead, and wait for the last to arrive
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, help_heading = "Load")]
    count: Option<String>,
    /// Bytes handed to one write [default: 256KiB]
    #[arg(short = 'l', long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Load")]
    record: Option<String>,
    /// TCP streams side by side, 1 to 256 [default: 1]
    #[arg(short = 'P', long, value_name = "N", allow_hyphen_values = true, help_heading = "Load")]
    streams: Option<String>,
    /// Congestion control of the sending end, such as cubic or bbr [default: the kernel's]
    #[arg(short = 'C', long, value_name = "NAME", help_heading = "Load")]
    congestion: Option<String>,

    /// Send buffer (SO_SNDBUF) of both ends [default: the kernel's autotuning, or the plan where that ends too early]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    sndbuf: Option<String>,
    /// Receive buffer (SO_RCVBUF) of both ends [default: as for --sndbuf]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    rcvbuf: Option<String>,
    /// Receive window to hold exactly, at whichever end receives
    #[arg(short, long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    window: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    near_sndbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    near_rcvbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    near_window: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    far_sndbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    far_rcvbuf: Option<String>,
    /// These hold for one end alone: near is the client, far the server
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Buffers")]
    far_window: Option<String>,

    /// Capacity of the bottleneck, if known: the plan and the prediction are made from it
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Report")]
    rate: Option<String>,
    /// Length of the intervals reported [default: 1s, or a tenth of a shorter test, and whole round trips on
    /// a long path]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Report")]
    interval: Option<String>,
    /// How much is start-up [default: found in the figures]
    #[arg(short = 'O', long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Report")]
    omit: Option<String>,
    /// The layout of nettest, 1995; implies --both
    #[arg(long, conflicts_with_all = ["json", "reverse"], help_heading = "Report")]
    nettest: bool,
    /// One JSON object instead of text
    #[arg(long, help_heading = "Report")]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example                            10 s, with findings
  lfn test far.example --both --streams 4
  lfn test far.example --rate 10gbit --time 30s   plan and prediction for a known capacity
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far --window 4547813
  lfn test far.example --nettest --count 100 --record 3000000

Exit codes: 0 measured, whatever was found; 1 the test failed; 2 usage.";

const DEFAULT_TIME: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Measured on loopback: below this the calls begin to cost, above it the caches.
const DEFAULT_RECORD: Bytes = Bytes(256 * 1024);

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let wanted = args.wanted()?;
    let target = remote::resolve(&args.host, &args.trust)?;
    let (near, far) = (args.near_name(), args.far_name(&target.address()));
    let mut printer = Printer::new(args.format(), &near, &far);
    for &direction in &wanted.directions {
        let test = wanted.test(direction);
        printer.begin(&test);
        let measurement = tester::run(&target, &test, &mut |progress| printer.progress(&progress)).map_err(failed)?;
        let evidence = wanted.evidence(&measurement, (&near, &far), &args.typed());
        printer.end(Run::new(measurement, evidence))?;
    }
    printer.finish()?;
    Ok(Exit::Ok)
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
    fn wanted(&self) -> Result<Wanted, Failure> {
        if self.time.is_some() && self.count.is_some() {
            return Err(Failure::usage("--time and --count contradict each other: a test ends by one of them")
                .hint("leave out one of them"));
        }
        let load = self.load()?;
        let directions = match (self.reverse, self.both || self.nettest) {
            (_, true) => vec![Direction::Forward, Direction::Reverse],
            (true, _) => vec![Direction::Reverse],
            _ => vec![Direction::Forward],
        };
        let mut request = TestRequest {
            direction: directions[0],
            streams: self.streams()?,
            load,
            record: read("record", &self.record, "--record 256KiB")?.unwrap_or(DEFAULT_RECORD),
            interval: self.interval(load)?,
            socket: self.socket(&self.far_sndbuf, &self.far_rcvbuf, &self.far_window, "far-")?,
        };
        let mut near = self.socket(&self.near_sndbuf, &self.near_rcvbuf, &self.near_window, "near-")?;
        for check in [request.check(), near.check()] {
            check.map_err(|error| Failure::usage(error).hint("see lfn test --help"))?;
        }
        let path = self.path()?;
        if let (None, Some(path)) = (&self.congestion, &path) {
            let planned = CongestionWish::Planned(congestion_for(path, request.streams.into()).to_string());
            (request.socket.congestion, near.congestion) = (Some(planned.clone()), Some(planned));
        }
        let omit = self.duration("omit", &self.omit)?;
        if matches!((omit, load), (Some(omit), Load::TimeSeconds(time)) if omit >= time) {
            return Err(Failure::usage("--omit leaves nothing of the test").hint("give a longer --time"));
        }
        Ok(Wanted { directions, request, near, path, omit, whole_round_trips: self.interval.is_none() })
    }

    fn load(&self) -> Result<Load, Failure> {
        let hint = "--count 1000";
        match &self.count {
            None => Ok(Load::TimeSeconds(self.duration("time", &self.time)?.unwrap_or(DEFAULT_TIME))),
            Some(text) => match text.trim().parse() {
                Ok(0) | Err(_) => Err(unreadable("count", format!("'{text}' is not a whole number above zero"), hint)),
                Ok(count) => Ok(Load::Records(count)),
            },
        }
    }

    fn streams(&self) -> Result<u16, Failure> {
        let Some(text) = &self.streams else { return Ok(1) };
        match text.trim().parse() {
            Ok(streams @ 1..=lfn_core::wire::test::MOST_STREAMS) => Ok(streams),
            _ => {
                Err(unreadable("streams", format!("'{text}' is not a number of streams from 1 to 256"), "--streams 4"))
            }
        }
    }

    fn interval(&self, load: Load) -> Result<Duration, Failure> {
        let least = lfn_core::wire::test::SHORTEST_INTERVAL;
        Ok(match (self.duration("interval", &self.interval)?, load) {
            (Some(interval), _) => interval,
            (None, Load::TimeSeconds(time)) => (time / 10).clamp(least, DEFAULT_INTERVAL),
            (None, Load::Records(_)) => DEFAULT_INTERVAL,
        })
    }

    /// Options of one end: its own flags before those for both.
    fn socket(
        &self,
        sndbuf: &Option<String>,
        rcvbuf: &Option<String>,
        window: &Option<String>,
        end: &str,
    ) -> Result<SocketWish, Failure> {
        let bytes = |flag: &str, own: &Option<String>, both: &Option<String>| match own {
            Some(_) => read::<Bytes>(&format!("{end}{flag}"), own, &format!("--{end}{flag} 16MiB")),
            None => read(flag, both, &format!("--{flag} 16MiB")),
        };
        Ok(SocketWish {
            sndbuf: bytes("sndbuf", sndbuf, &self.sndbuf)?,
            rcvbuf: bytes("rcvbuf", rcvbuf, &self.rcvbuf)?,
            window: bytes("window", window, &self.window)?,
            congestion: self.congestion.clone().map(CongestionWish::Asked),
            ..SocketWish::default()
        })
    }

    /// The path whose capacity is known: as typed, or that of `lfn emulate`.
    fn path(&self) -> Result<Option<PathProfile>, Failure> {
        let rate: Option<BitRate> = read("rate", &self.rate, "--rate 10gbit")?;
        if rate == Some(BitRate(0)) {
            return Err(unreadable("rate", "a capacity of zero carries nothing", "--rate 10gbit"));
        }
        Ok(match (rate, emulated::path()?) {
            (Some(capacity), Some(path)) => Some(PathProfile { capacity, ..path }),
            (Some(capacity), None) => Some(PathProfile::new(capacity, Duration::ZERO)),
            (None, emulated) => emulated,
        })
    }

    fn duration(&self, flag: &str, text: &Option<String>) -> Result<Option<Duration>, Failure> {
        let hint = format!("--{flag} 10s");
        let Some(text) = text else { return Ok(None) };
        let duration = parse_duration(text).map_err(|error| unreadable(flag, error, &hint))?;
        if duration.is_zero() {
            return Err(unreadable(flag, format!("'{text}': a time of zero has no meaning here"), &hint));
        }
        Ok(Some(duration))
    }

    fn format(&self) -> Format {
        match (self.json, self.nettest) {
            (true, _) => Format::Json,
            (_, true) => Format::Nettest,
            _ => Format::Text,
        }
    }

    fn near_name(&self) -> String {
        if emulated::is_inside() { "near".into() } else { tester::kernel().host }
    }

    /// A ticket's host, or the name as typed.
    fn far_name(&self, address: &str) -> String {
        if self.host.starts_with("lfn://") {
            return address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        }
        self.host.clone()
    }

    /// How to name the far end in a command; a ticket is a secret.
    fn typed(&self) -> String {
        let host = if self.host.starts_with("lfn://") { "TICKET" } else { &self.host };
        if self.trust.insecure { format!("{host} --insecure") } else { host.to_owned() }
    }
}

fn read<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>, hint: &str) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| unreadable(flag, error, hint))
}

fn unreadable(flag: &str, error: impl Display, hint: &str) -> Failure {
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}
