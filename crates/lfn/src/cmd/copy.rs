//! `lfn copy`: what was typed, turned into one upload or download, and a forecast to hold it against.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_core::path::PathProfile;
use lfn_core::plan::{self, Wishes, congestion_for};
use lfn_core::tcp_model::Congestion;
use lfn_core::transfer::blocks::{DEFAULT_BLOCK, Layout};
use lfn_core::transfer::location::{Location, Place};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::CongestionWish;
use lfn_core::wire::copy::{From, To};
use lfn_net::session::Protection;
use lfn_net::transfer::{LocalDestination, LocalSource, Options, Outcome, TransferError, Watch, download, upload};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::forecast::Forecast;
use crate::print::copy::{Report, progress};
use crate::remote::{self, Trust, Waiting, session_failure};

/// Move a file over parallel streams, verified end to end
///
/// SOURCE and DESTINATION are a local path, NAME:PATH (NAME saved by `lfn hosts add`, or `far` inside `lfn emulate`)
/// or a ticket with a path, lfn://TOKEN@HOST:PORT/PATH#FINGERPRINT; exactly one of them at a far end. An argument is seen
/// in `ps`: @-:PATH reads the ticket from standard input, @FILE:PATH from a file. In the place of a file, here or there:
/// random:SIZE and zero:SIZE are made on the spot, null: is checked and forgotten. A local file with a colon in its name
/// is written ./a:b.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to copy
    source: String,
    /// Where to; a directory takes the file under its own name
    destination: String,
    /// Replace a file that exists; it stays whole until the new one is
    #[arg(long)]
    force: bool,
    /// Data streams [default: 4, or what the plan of a known path asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,
    /// Size of a block, a power of two from 1KiB to 16MiB
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_BLOCK)]
    block: Bytes,
    /// Congestion control of the sending streams, such as bbr [default: the host's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Capacity of the path, for the prediction [default: that of the emulated path]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Data streams without encryption, authenticated still; for private circuits
    #[arg(long)]
    clear_data: bool,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    waiting: Waiting,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  lfn copy field.nc far:field.nc
  lfn copy far:runs/field.nc .
  lfn copy random:1GiB far:null:          what the path carries, without a disk
  lfn copy --streams 16 --congestion bbr field.nc far:

The digest printed is what `b3sum FILE` prints. Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted.";

const STREAMS: u16 = 4;

/// One of the two ways.
enum Direction {
    Up(LocalSource, String, To),
    Down(String, From, LocalDestination),
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let direction = direction(&args)?;
    check(&args)?;
    // A server that sends has the way back before it.
    let path = match direction {
        Direction::Up(..) => emulated::path()?,
        Direction::Down(..) => emulated::return_path()?,
    };
    let (streams, streams_reason) = streams(&args, path.as_ref());
    let protection = if args.clear_data { Protection::Clear } else { Protection::Tls };
    let (congestion, wish) = congestion(&args, path.as_ref(), streams);
    let options = Options { streams, block: args.block, protection, congestion: wish };
    let forecast = Forecast { path, rate: args.rate, congestion, streams, protection: Some(protection) };
    let interrupted = stop_flag()?;
    let bar = progress(&forecast);
    let mut observer = |total: Bytes, look: &lfn_core::transfer::limit::Look| bar.show(total, look);
    let watch = Watch { observer: &mut observer, interrupted: &interrupted };
    let result = match direction {
        Direction::Up(from, host, to) => {
            upload(&remote::resolve(&host, &args.trust, &args.waiting)?, &from, to, &options, watch)
        }
        Direction::Down(host, from, to) => {
            download(&remote::resolve(&host, &args.trust, &args.waiting)?, from, &to, &options, watch)
        }
    };
    bar.clear();
    let outcome = result.map_err(failure)?;
    report(&args, &options, &forecast, streams_reason, &outcome)?;
    Ok(Exit::Ok)
}

/// What to forecast with, and what to ask the sockets for: as typed, or as the plan prefers for a path that is known.
fn congestion(args: &Args, path: Option<&PathProfile>, streams: u16) -> (Congestion, Option<CongestionWish>) {
    if let Some(name) = &args.congestion {
        return (name.parse().unwrap_or_default(), Some(CongestionWish::Asked(name.clone())));
    }
    let Some(path) = path else { return (Congestion::default(), None) };
    let planned = congestion_for(path, streams.into());
    (planned, Some(CongestionWish::Planned(planned.to_string())))
}

fn report(
    args: &Args,
    options: &Options,
    forecast: &Forecast,
    streams_reason: String,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let report = Report {
        source: without_secrets(&args.source),
        destination: without_secrets(&args.destination),
        outcome,
        options,
        streams_reason,
        predicted: forecast.predict(outcome.bytes, outcome.look.sockets.map(|s| s.min_rtt_seconds)),
    };
    if args.json { report.json() } else { report.text() }
}

fn direction(args: &Args) -> Result<Direction, Failure> {
    let read = |text: &str| Location::parse(text).map_err(|e| Failure::usage(e).hint(PLACES));
    let (source, destination) = (read(&args.source)?, read(&args.destination)?);
    match (source, destination) {
        (Location { host: None, place }, Location { host: Some(host), place: to }) => {
            Ok(Direction::Up(local_source(place)?, host, far_destination(to, args.force)?))
        }
        (Location { host: Some(host), place }, Location { host: None, place: to }) => {
            Ok(Direction::Down(host, far_source(place)?, local_destination(to, args.force)?))
        }
        (Location { host: None, .. }, Location { host: None, .. }) => {
            Err(Failure::usage("both ends are on this host: one must be at a far end").hint(PLACES))
        }
        _ => Err(Failure::usage("both ends are at a far end: one must be on this host")
            .hint("copy it here first, then on from here")),
    }
}

const PLACES: &str = "lfn copy FILE NAME:PATH, or lfn copy NAME:PATH FILE; `lfn hosts list` shows the names";

fn local_source(place: Place) -> Result<LocalSource, Failure> {
    match place {
        Place::Path(path) => Ok(LocalSource::File(path)),
        Place::Random(bytes) => Ok(LocalSource::Random(bytes)),
        Place::Zero(bytes) => Ok(LocalSource::Zero(bytes)),
        Place::Null => Err(null_source()),
    }
}

fn far_source(place: Place) -> Result<From, Failure> {
    match place {
        Place::Path(path) => Ok(From::File { path: text(path)? }),
        Place::Random(bytes) => Ok(From::Random { bytes }),
        Place::Zero(bytes) => Ok(From::Zero { bytes }),
        Place::Null => Err(null_source()),
    }
}

fn local_destination(place: Place, force: bool) -> Result<LocalDestination, Failure> {
    match place {
        Place::Path(path) => Ok(LocalDestination::File { path, force }),
        Place::Null => Ok(LocalDestination::Null),
        Place::Random(_) | Place::Zero(_) => Err(made_destination()),
    }
}

fn far_destination(place: Place, force: bool) -> Result<To, Failure> {
    match place {
        Place::Path(path) => Ok(To::File { path: text(path)?, force }),
        Place::Null => Ok(To::Null),
        Place::Random(_) | Place::Zero(_) => Err(made_destination()),
    }
}

fn null_source() -> Failure {
    Failure::usage("null: can only be a destination").hint("as a source use zero:SIZE or random:SIZE")
}

fn made_destination() -> Failure {
    Failure::usage("random: and zero: can only be sources").hint("as a destination use null: or a path")
}

fn text(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("{}: the far path is not UTF-8", path.display())).hint("rename the file there")
    })
}

/// What no server would grant.
fn check(args: &Args) -> Result<(), Failure> {
    if args.rate == Some(BitRate(0)) {
        return Err(Failure::usage("--rate: a capacity of zero carries nothing").hint("--rate 10gbit"));
    }
    let block = Layout::new(Bytes(0), args.block);
    block.map(|_| ()).map_err(|error| Failure::usage(error).hint("--block 1MiB"))
}

/// As many streams as the path needs, and why.
fn streams(args: &Args, path: Option<&PathProfile>) -> (u16, String) {
    if let Some(streams) = args.streams {
        return (streams, "as asked".to_owned());
    }
    let planned = path.and_then(|path| plan::plan(path, &Wishes::default()).ok()).map_or(0, |plan| plan.streams);
    let planned = u16::try_from(planned).unwrap_or(u16::MAX);
    if planned > STREAMS {
        return (planned, "the plan of the path: no buffer is larger".to_owned());
    }
    (STREAMS, "default: as fast as more between near hosts, and a loss slows one of four".to_owned())
}

/// Set by the first SIGINT or SIGTERM; the second ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    // A file size limit is then an error of write like any other.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(flag)
}

fn failure(error: TransferError) -> Failure {
    match error {
        TransferError::Session(error) => session_failure(error),
        TransferError::Interrupted => Failure::new(error).with_exit(Exit::Interrupted),
        error => {
            let hint = error.hint();
            let failure = Failure::new(error);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// A ticket holds a token, which belongs in no report.
fn without_secrets(text: &str) -> String {
    let Some((_, rest)) = text.strip_prefix("lfn://").and_then(|rest| rest.split_once('@')) else {
        return text.to_owned();
    };
    format!("lfn://{}", rest.rsplit_once('#').map_or(rest, |(place, _)| place))
}
