//! `lfn emulate`: reads what link is wanted and where, runs a command over it, and says how faithful it was.
//!
//! [`flags`] are those made from core's table of settings, [`running`] the two words that speak to a path that is up
//! already. What the settings mean is core's business ([`EmulatedPath::new`]), the namespaces are `lfn-net`'s.

mod dry_run;
mod flags;
mod link;
mod list;
mod log;
mod report;
mod running;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dry_run::DryRun;
use flags::{SettingFlags, refused};
use lfn_core::link::settings::nearest_word;
use lfn_core::units::{BitRate, Bytes};
use lfn_net::emulator::{
    self, Attachment, EmulateError, EmulatedPath, Ending, FarSide, LogFile, Outcome, OutputFile, Place, Setup,
};
use link::{Hop, in_spec};

use crate::exit::{Exit, Failure};
use crate::print;

/// Run a command over an emulated long link: real kernel traffic, no root needed
///
/// The command runs on the near side, a server or what --far says on the far side. There, the names near and far
/// resolve, LFN_FAR is the far side's address, and `lfn test far` and `lfn copy FILE far:PATH` just work.
///
/// Each setting of the link holds both ways; --forward-KEY and --return-KEY, as in --return-rate 5mbit, are of the way
/// to the far side and of the way back alone.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = USAGE, subcommand_help_heading = "While it runs")]
pub struct Args {
    #[command(subcommand)]
    action: Option<running::Action>,

    /// A profile by name (see --list) or a TOML file; flags override what it says
    #[arg(long, value_name = "NAME|FILE", help_heading = "Which link")]
    profile: Option<String>,
    /// List the profiles and traces, or print one to copy and change
    #[arg(long, value_name = "NAME", num_args = 0..=1, help_heading = "Which link")]
    list: Option<Option<String>>,
    #[arg(help = "A link of its own, [PROFILE,]KEY=VALUE,…; again for further links in a row")]
    #[arg(long, value_name = "SPEC", conflicts_with = "profile", help_heading = "Which link")]
    link: Vec<String>,
    #[arg(help = "A further path beside it, with addresses of its own; links in a row are 'SPEC; SPEC'")]
    #[arg(long, value_name = "SPEC", help_heading = "Which link")]
    parallel: Vec<String>,
    /// MTU of the interfaces, bytes [default: 1500, or the profile's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Which link")]
    mtu: Option<u32>,
    /// Seed of the random draws [default: random, and printed]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Which link")]
    seed: Option<u64>,

    #[command(flatten)]
    settings: SettingFlags,

    /// Run this on the far side, by sh -c, instead of lfn serve; none: nothing
    #[arg(long, value_name = "CMD", conflicts_with = "far_root", help_heading = "Where it runs")]
    far: Option<String>,
    /// Directory that the far side serves copies to and from [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "Where it runs")]
    far_root: Option<PathBuf>,
    /// Make the near side that of a process, of a named network namespace, or of a file that stands for one
    #[arg(long, value_name = "PID|NETNS", help_heading = "Where it runs")]
    attach_near: Option<String>,
    /// The same of the far side
    #[arg(long, value_name = "PID|NETNS", conflicts_with_all = ["far", "far_root"], help_heading = "Where it runs")]
    attach_far: Option<String>,
    /// Be a box in the wire between two interfaces; needs root
    #[arg(long, value_names = ["IF_A", "IF_B"], num_args = 2, help_heading = "Where it runs")]
    #[arg(conflicts_with_all = ["far", "far_root", "attach_near", "attach_far", "parallel", "mtu"])]
    bridge: Vec<String>,
    /// Do not measure at start what this machine can carry
    #[arg(long, help_heading = "Where it runs")]
    no_calibration: bool,
    /// Run also what this machine cannot carry faithfully
    #[arg(long, help_heading = "Where it runs")]
    force: bool,

    /// Show rate, queue and drops of each direction as it goes
    #[arg(long, help_heading = "What it says")]
    live: bool,
    /// Log every packet: what became of it (FILE.jsonl), or both sides of the link (FILE.pcapng)
    #[arg(long, value_name = "FILE", help_heading = "What it says")]
    log: Option<PathBuf>,
    /// Write the fidelity ledger as JSON
    #[arg(long, value_name = "FILE", help_heading = "What it says")]
    report: Option<PathBuf>,
    /// One JSON object instead of text: of --list and --dry-run
    #[arg(long, help_heading = "What it says")]
    json: bool,
    #[command(flatten)]
    dry_run: DryRun,

    /// What is left of --list, where a flag stands before the name.
    #[arg(hide = true)]
    words: Vec<String>,
    /// The command and its arguments [default: a shell]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const USAGE: &str = "lfn emulate [OPTIONS] [-- CMD…]
       lfn emulate [OPTIONS] --dry-run [--size BYTES]
       lfn emulate set KEY=VALUE…
       lfn emulate show";

/// What interfaces have if nobody says otherwise, bytes.
const DEFAULT_MTU: u32 = 1500;

const AFTER_HELP: &str = "\
Inside, CMD sees itself as root, may do what root may to these namespaces and nothing more outside, and has no network \
but the link. Without CMD there is a shell on the near side; with --attach-near or --bridge the link lasts until SIGINT \
or SIGTERM.

While it runs, lfn emulate set and show reach it from the network namespace it was started in and from both sides; \
LFN_PATH keeps the figures it began with.

Exit codes: CMD's own (128 and the signal's number if one killed it); 126 or 127 if it could not be started; 4 if CMD \
succeeded but the emulation was not faithful; 2 usage; 1 the emulation failed; 0 or 4 after a signal that ended it, if \
there was no CMD.

Examples, and doc/emulate.md has every form of every value:
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far
  lfn emulate --profile acts --loss 1e-5 --report run.json -- lfn copy FILE far:
  lfn emulate --rtt 40ms --rate 100mbit --return-rate 5mbit --aqm fq-codel
  lfn emulate --link rate=10gbit,rtt=5ms --link geo,loss=1e-4 -- ping far";

pub fn run(mut args: Args) -> Result<Exit, Failure> {
    if let Some(action) = args.action.take() {
        return running::run(action);
    }
    let mut words = args.words.iter().map(String::as_str);
    if let Some(name) = &args.list {
        // `--list --json NAME` as well as `--list NAME --json`.
        let name = name.as_deref().or_else(|| words.next());
        return words.next().map_or_else(|| list::run(name, args.json), |word| Err(misplaced(word)));
    }
    if let Some(word) = words.next() {
        return Err(misplaced(word));
    }
    if args.dry_run.is_wanted()? {
        return args.dry_run.run(&args.path()?, args.seed()?, args.json);
    }
    if args.json {
        return Err(Failure::usage("--json is of --list and --dry-run: the output of a run is CMD's")
            .hint("--report FILE writes what the link did as JSON"));
    }
    let mut setup = args.setup()?;
    let (report, log) = args.files()?;
    setup.watch.log = log;
    let mut told = Vec::new();
    for doubt in setup.paths.iter().flat_map(EmulatedPath::doubts) {
        // Paths are most often alike.
        if !told.contains(&doubt) {
            print::talk(format_args!("lfn: {doubt}\n"));
            told.push(doubt);
        }
    }
    let outcome = match emulator::run(&setup, &args.command) {
        Ok(outcome) => outcome,
        Err(error) => {
            report.iter().chain(setup.watch.log.as_ref().map(LogFile::output)).for_each(OutputFile::discard);
            return Err(explain(error));
        }
    };
    if let Some(ending) = outcome.far.filter(|ending| *ending != Ending::Exited(0)) {
        print::talk(format_args!("lfn: the far command {ending} before CMD ended\n"));
    }
    print::talk(print::emulate::ledger::shown(&outcome.ledger, outcome.broken.is_some()));
    conclude(&outcome, report.as_ref(), setup.watch.log.as_ref())
}

/// Writes what there is to write, and tells each thing that failed.
fn conclude(outcome: &Outcome, report: Option<&OutputFile>, log: Option<&LogFile>) -> Result<Exit, Failure> {
    let logged = log.zip(outcome.log.as_ref()).map_or(Ok(()), |(file, account)| log::conclude(file, account));
    let reported = report.map_or(Ok(()), |file| report::write(file, outcome));
    let broken = outcome.broken.as_ref().map(Failure::msg);
    let mut failures: Vec<Failure> = [logged.err(), reported.err(), broken].into_iter().flatten().collect();
    let Some(last) = failures.pop() else { return Ok(exit(outcome)) };
    for failure in failures {
        failure.report();
    }
    Err(match exit(outcome) {
        // CMD's own failure is what its caller asks about first, unless it was killed because the link broke.
        own @ Exit::Of(1..) if outcome.broken.is_none() => last.with_exit(own),
        _ => last,
    })
}

impl Args {
    fn setup(&self) -> Result<Setup, Failure> {
        let (calibrate, force) = (!self.no_calibration, self.force);
        let mut setup =
            Setup { place: self.place(), calibrate, force, ..Setup::new(self.path()?, self.seed()?, self.far_side()?) };
        for spec in &self.parallel {
            let links: Vec<_> = spec.split(';').map(|link| link.trim().to_owned()).collect();
            setup.paths.push(self.path_of("parallel", &links)?);
        }
        setup.check().map_err(explain)?;
        let has_shell = matches!(setup.place, Place::Sides { near: None, .. });
        setup.watch.live = print::emulate::live::wanted(self.live, has_shell || !self.command.is_empty());
        Ok(setup)
    }

    /// The files that the run is to write.
    fn files(&self) -> Result<(Option<OutputFile>, Option<LogFile>), Failure> {
        let report = self.report.as_deref().map(report::open).transpose()?;
        let log = self.log.as_deref().map(log::open).transpose().and_then(|log| match (&report, &log) {
            (Some(report), Some(file)) if report.is_same_as(file.output())? => {
                let name = report.path().display();
                Err(Failure::usage(format!("--report and --log are the same file: {name}"))
                    .hint("--report run.json --log packets.jsonl"))
            }
            _ => Ok(log),
        });
        if log.is_err() {
            report.iter().for_each(OutputFile::discard);
        }
        Ok((report, log?))
    }

    /// The first path: its links as --link says, or one as profile and flags say.
    fn path(&self) -> Result<EmulatedPath, Failure> {
        if let (Some(spec), Some(key)) = (self.link.first(), self.settings.first()) {
            return Err(Failure::usage(format!("--{key} beside --link: which link is meant?"))
                .hint(format!("--link {spec},{key}=…")));
        }
        if !self.link.is_empty() {
            return self.path_of("link", &self.link);
        }
        let mut hop = self.profile.as_deref().map(Hop::of_profile).transpose()?.unwrap_or_default();
        hop.settings.overlay(&self.settings.read()?);
        EmulatedPath::new(&[hop.settings], self.mtu()?.or(hop.mtu).unwrap_or(DEFAULT_MTU)).map_err(refused)
    }

    /// A path of links in a row, as specified after this flag: each after one of its own, or all after one.
    fn path_of(&self, flag: &str, specs: &[String]) -> Result<EmulatedPath, Failure> {
        let hops = specs.iter().map(|spec| Hop::of_spec(flag, spec)).collect::<Result<Vec<_>, _>>()?;
        // The interfaces carry what every link of the row carries, and one that says nothing has the usual MTU.
        let least = hops.iter().map(|hop| hop.mtu.unwrap_or(DEFAULT_MTU)).min().unwrap_or(DEFAULT_MTU);
        let mtu = self.mtu()?.unwrap_or(least);
        let settings: Vec<_> = hops.into_iter().map(|hop| hop.settings).collect();
        let between = if flag == "parallel" { "; " } else { " --link " };
        EmulatedPath::new(&settings, mtu).map_err(|error| in_spec(flag, &specs.join(between), error))
    }

    /// What was typed, or what the interfaces in the wire have.
    fn mtu(&self) -> Result<Option<u32>, Failure> {
        match self.place() {
            Place::Wire(interfaces) => emulator::wire_mtu(&interfaces).map(Some).map_err(explain),
            Place::Sides { .. } => Ok(self.mtu),
        }
    }

    fn seed(&self) -> Result<u64, Failure> {
        match self.seed {
            Some(seed) => Ok(seed),
            // 32 bits: a number that can be typed again.
            None => Ok(u64::from(getrandom::u32().map_err(|e| Failure::msg(format!("no random seed: {e}")))?)),
        }
    }

    fn place(&self) -> Place {
        if let [near, far] = &self.bridge[..] {
            return Place::Wire([near.clone(), far.clone()]);
        }
        let [near, far] = [&self.attach_near, &self.attach_far];
        let attachment = |typed: &Option<String>| typed.as_deref().map(Attachment::parse);
        Place::Sides { near: attachment(near), far: attachment(far) }
    }

    fn far_side(&self) -> Result<FarSide, Failure> {
        if self.attach_far.is_some() || !self.bridge.is_empty() {
            return Ok(FarSide::Nothing);
        }
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

/// Neither a flag nor a word that means something where it stands.
fn misplaced(word: &str) -> Failure {
    Failure::usage(format!("unexpected argument '{word}'")).hint(
        match nearest_word(word, ["set", "show"].into_iter()) {
            Some(meant) => format!("did you mean lfn emulate {meant}?"),
            None => format!("a command stands behind two dashes: lfn emulate --profile acts -- {word}"),
        },
    )
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome.near.unwrap_or(Ending::Exited(0)) {
        Ending::Exited(0) if !outcome.ledger.is_faithful() => Exit::Untrusted,
        Ending::Exited(status) => Exit::Of(u8::try_from(status).unwrap_or(u8::MAX)),
        Ending::Killed(signal) => Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}

pub fn explain(error: EmulateError) -> Failure {
    let hint = match &error {
        EmulateError::Namespaces(obstacle) => return Failure::msg(&error).hint(obstacle.cure()),
        EmulateError::Link(_) => "check the units: --rate 135mbit --rtt 539ms",
        EmulateError::Paths(_) => "fewer --parallel",
        EmulateError::Memory { rate, rtt, needed, usable } => {
            let less = less_memory(*rate, *rtt, *needed, *usable);
            return Failure::msg(&error).hint(format!("{less}; or --dry-run, in virtual time"));
        }
        EmulateError::Start { not_found, .. } => {
            let exit = Exit::Of(if *not_found { 127 } else { 126 });
            return Failure::msg(&error)
                .with_exit(exit)
                .hint("lfn emulate --rtt 539ms --rate 135mbit -- ping -c 3 far");
        }
        EmulateError::Beyond(_, fits) => {
            let hint =
                format!("--rate {}; or --dry-run, in virtual time; or --force, and packets are late", fits.typed());
            return Failure::usage(&error).hint(hint);
        }
        EmulateError::Far(_) => "--far none runs nothing on the far side, --far CMD another command",
        EmulateError::Attach { cure, .. } | EmulateError::Bridge { cure, .. } => {
            return Failure::msg(&error).hint(cure);
        }
        EmulateError::Ended | EmulateError::Unanswered | EmulateError::System { .. } | EmulateError::Lost(_) => {
            return Failure::msg(&error);
        }
    };
    Failure::usage(&error).hint(hint).with_exit(match error {
        EmulateError::Far(_) => Exit::Failed,
        _ => Exit::Usage,
    })
}

/// What would fit into memory. Where it is the BDP that needs it, there and back and in the queues, so much less of it.
fn less_memory(rate: BitRate, rtt: Duration, needed: Bytes, usable: Bytes) -> String {
    if needed.0 == 0 || needed.0 > rate.times(rtt).0.saturating_mul(4) {
        return "a lower --rate, --rtt or --queue".to_owned();
    }
    let most = rate.as_f64() * usable.0 as f64 / needed.0 as f64;
    // Rounded down, because what is free changes.
    let unit = 10_f64.powf((most.max(10.0).log10() - 1.0).floor());
    let fits = BitRate(((most / unit).floor() * unit) as u64);
    format!("--rate {} would fit, or a shorter --rtt or --queue", fits.typed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_memory_is_named() {
        let (rate, rtt) = (BitRate(100_000_000_000), Duration::from_millis(500));
        let hint = |needed| less_memory(rate, rtt, Bytes(needed), Bytes(14_290_000_000));
        assert_eq!(hint(23_450_000_000), "--rate 60gbit would fit, or a shorter --rtt or --queue");
        // A queue that was given in bytes does not shrink with the rate.
        assert_eq!(hint(60_000_000_000), "a lower --rate, --rtt or --queue");
    }
}
