//! `lfn emulate`.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_core::path::{PathProfile, QueueSize};
use lfn_core::units::{BitRate, Bytes, Ratio, parse_duration};
use lfn_net::emulator::{self, EmulateError, EmulatedPath, Ending, FarSide, Outcome, Setup};

use crate::exit::{Exit, Failure};
use crate::print;

/// Run a command over an emulated long link: real kernel traffic, no root needed
///
/// The command runs on the near side, a server or what --far says on the far side. There, the names near and far
/// resolve, LFN_FAR is the far side's address, and `lfn test far` and `lfn copy FILE far:PATH` just work.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Base round-trip time, half of it each way, such as 539ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    rtt: Duration,
    /// Line rate each way, counted with Ethernet headers as tc counts, such as 135mbit
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: BitRate,
    /// Room in each direction's queue: a multiple of the BDP (0.5bdp), bytes (9MB) or time at the line rate (300ms)
    #[arg(long, value_name = "SIZE", default_value = "1bdp", allow_hyphen_values = true)]
    queue: QueueSize,
    /// Share of packets lost at random each way, such as 1e-4 or 0.01%
    #[arg(long, value_name = "RATIO", default_value = "0", hide_default_value = true, allow_hyphen_values = true)]
    loss: Ratio,
    /// IP MTU of the link, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, allow_hyphen_values = true)]
    mtu: u32,
    /// Seed of the random draws [default: random, and printed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<u64>,
    /// Run this on the far side, by sh -c, instead of lfn serve; none: nothing
    #[arg(long, value_name = "CMD", conflicts_with = "far_root")]
    far: Option<String>,
    /// Directory that the far side serves copies to and from [default: the current one]
    #[arg(long, value_name = "DIR")]
    far_root: Option<PathBuf>,
    /// Write the fidelity ledger to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Inside, CMD sees itself as root, may do what root may to these namespaces and nothing more outside, and has no network \
but the link.

Exit codes: CMD's own (128 and the signal's number if one killed it); 126 or 127 if it could not be started; 4 if CMD \
succeeded but the emulation was not faithful; 2 usage; 1 the emulation failed.

Example: lfn emulate --rtt 539ms --rate 135mbit -- lfn test far";

pub fn run(args: Args) -> Result<Exit, Failure> {
    let setup = args.setup()?;
    let report = args.report.as_deref().map(create).transpose()?;
    let outcome = emulator::run(&setup, &args.command).map_err(explain)?;
    if let Some(ending) = outcome.far.filter(|ending| *ending != Ending::Exited(0)) {
        print::talk(format_args!("lfn: the far command {ending} before CMD ended\n"));
    }
    print::talk(print::ledger::text(&outcome.ledger));
    if let (Some(report), Some(file)) = (report, &args.report) {
        serde_json::to_writer_pretty(report, &outcome).map_err(|error| unwritable(file, error))?;
    }
    Ok(exit(&outcome))
}

impl Args {
    fn setup(&self) -> Result<Setup, Failure> {
        for (flag, is_zero) in [("--rtt", self.rtt.is_zero()), ("--rate", self.rate.0 == 0), ("--mtu", self.mtu == 0)] {
            if is_zero {
                return Err(Failure::usage(format!("{flag} 0 makes no path"))
                    .hint("lfn emulate --rtt 539ms --rate 135mbit -- lfn test far"));
            }
        }
        let mut path = PathProfile::new(self.rate, self.rtt);
        path.mtu = self.mtu;
        path.loss = self.loss;
        path.queue = self.queue_on(&path);
        let setup = Setup::new(EmulatedPath::symmetric(path), self.seed()?, self.far_side()?);
        setup.check().map_err(explain)?;
        Ok(setup)
    }

    /// A queue in BDPs holds a few packets at least, however short the path; one in bytes or time is as typed.
    fn queue_on(&self, path: &PathProfile) -> Option<Bytes> {
        let queue = self.queue.on(path);
        match self.queue {
            QueueSize::Bdp(times) if times > 0.0 => Some(
                queue.max(EmulatedPath::symmetric(PathProfile { base_rtt: Duration::ZERO, ..*path }).profile.queue?),
            ),
            _ => Some(queue),
        }
    }

    fn seed(&self) -> Result<u64, Failure> {
        match self.seed {
            Some(seed) => Ok(seed),
            // 32 bits: a number that can be typed again.
            None => Ok(u64::from(getrandom::u32().map_err(|e| Failure::msg(format!("no random seed: {e}")))?)),
        }
    }

    fn far_side(&self) -> Result<FarSide, Failure> {
        match self.far.as_deref().map(str::trim) {
            Some("") => Err(Failure::usage("--far is empty").hint("--far none runs nothing on the far side")),
            Some("none") => Ok(FarSide::Nothing),
            Some(line) => Ok(FarSide::Shell(line.to_owned())),
            None => self.server(),
        }
    }

    fn server(&self) -> Result<FarSide, Failure> {
        let root = self.far_root.as_deref().unwrap_or(Path::new("."));
        if !root.is_dir() {
            return Err(Failure::usage(format!("--far-root {}: no such directory", root.display()))
                .hint(format!("mkdir -p {}", root.display())));
        }
        let mut arguments: Vec<OsString> =
            ["serve", "--ephemeral", "--quiet", "--host", "far", "--root"].map(Into::into).into();
        arguments.push(root.into());
        Ok(FarSide::Server { program: std::env::current_exe()?, arguments })
    }
}

/// A report that cannot be written is better known before the run than after.
fn create(file: &Path) -> Result<File, Failure> {
    File::create(file).map_err(|error| unwritable(file, error))
}

fn unwritable(file: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", file.display())).hint("--report report.json, where you may write")
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome.near {
        Ending::Exited(0) if !outcome.ledger.is_faithful() => Exit::Untrusted,
        Ending::Exited(status) => Exit::Of(u8::try_from(status).unwrap_or(u8::MAX)),
        Ending::Killed(signal) => Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}

pub fn explain(error: EmulateError) -> Failure {
    let hint = match &error {
        EmulateError::Namespaces(obstacle) => return Failure::msg(&error).hint(obstacle.cure()),
        EmulateError::Link(_) => "check the units: --rate 135mbit --rtt 539ms",
        EmulateError::Paths(_) => "one --rtt and --rate make one path",
        EmulateError::Mtu(_) => "--mtu 1500 is Ethernet's, 9000 a jumbo frame's",
        EmulateError::Queue { .. } => "--queue 1bdp, or leave it out",
        EmulateError::Memory { .. } => "a lower --rate, --rtt or --queue",
        EmulateError::Start { not_found, .. } => {
            let exit = Exit::Of(if *not_found { 127 } else { 126 });
            return Failure::msg(&error)
                .with_exit(exit)
                .hint("lfn emulate --rtt 539ms --rate 135mbit -- ping -c 3 far");
        }
        EmulateError::Far(_) => "--far none runs nothing on the far side, --far CMD another command",
        EmulateError::System { .. } | EmulateError::Lost(_) => return Failure::msg(&error),
    };
    Failure::usage(&error).hint(hint).with_exit(match error {
        EmulateError::Far(_) | EmulateError::Memory { .. } => Exit::Failed,
        _ => Exit::Usage,
    })
}
