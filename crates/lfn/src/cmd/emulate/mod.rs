//! `lfn emulate`: sets up the emulated link, runs a command over it, and reports how accurate the emulation was.
//!
//! [`flags`] has the flags from the table of settings of `lfn-link`. [`running`] has the commands for a running
//! emulation. `lfn-api` interprets the settings ([`emulate::EmulatedLinks::path`]). `lfn-emulate` creates the
//! namespaces.

mod dry_run;
mod flags;
mod link;
mod list;
mod log;
mod missing_dashes;
mod running;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lfn_api::command_line::quote;
use lfn_api::documents::EmulateDocument;
use lfn_api::emulate::{self, DEFAULT_MTU, EmulateRequest, EmulateRequestError, EmulatedLinks, RequestedFarSide};
use lfn_api::pictures::of_emulation;
use lfn_base::units::{BitRate, Bytes};
use lfn_emulate::{CommandExit, EmulateError, LogFiles, NamespaceRef, Placement, RunOutcome, Setup};
use lfn_sys::process::{self, signal::SIGXFSZ};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::{Output, OutputFormat};
use crate::print::pictures::PictureFiles;
use dry_run::DryRun;
use flags::{SettingFlags, settings_error};
use link::{Hop, spec_error};

/// Run a command over an emulated long link, with real kernel traffic and without root
///
/// CMD runs on the near side. The far side serves `lfn` and iperf3, or runs the command of --far-command. On both sides
/// the names near and far resolve, and LFN_FAR is the address of the far side. `lfn test far`, `lfn copy FILE far:` and
/// `iperf3 -c far` work. Copied files are kept in memory and disappear at the end, unless --far-root is given.
///
/// Each setting of the link applies to both directions. --forward-KEY applies only from near to far, --return-KEY only
/// from far to near, for example --return-rate 5mbit.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = USAGE, subcommand_help_heading = "While it runs")]
pub struct EmulateArgs {
    #[command(subcommand)]
    action: Option<running::RunningAction>,

    /// Use a profile, by name (see --list) or from a TOML file; flags override its settings
    #[arg(long, value_name = "NAME|FILE", help_heading = "Link")]
    profile: Option<String>,
    /// List the profiles and traces, or print one of them to copy and change
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "plot", help_heading = "Link")]
    list: Option<Option<String>>,
    #[arg(help = "Add one link, [PROFILE,]KEY=VALUE,…; repeat for links in series")]
    #[arg(long, value_name = "SPEC", conflicts_with = "profile", help_heading = "Link")]
    link: Vec<String>,
    #[arg(help = "Add a parallel path with its own addresses; for links in series write 'SPEC; SPEC'")]
    #[arg(long, value_name = "SPEC", help_heading = "Link")]
    parallel: Vec<String>,
    /// Set the MTU of the interfaces, in bytes [default: 1500, or the profile's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Link")]
    mtu: Option<u32>,
    /// Set the seed of the random numbers [default: random, and printed]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Link")]
    seed: Option<u64>,

    #[command(flatten)]
    settings: SettingFlags,

    /// Run this command on the far side with sh -c, instead of lfn serve; 'none' runs no command
    #[arg(long, value_name = "CMD", conflicts_with = "far_root", help_heading = "Sides")]
    far_command: Option<String>,
    /// Serve this directory on the far side [default: an empty one in memory, deleted at the end]
    #[arg(long, value_name = "DIR", help_heading = "Sides")]
    far_root: Option<PathBuf>,
    /// Do not answer iperf3 clients on the far side (port 5201)
    #[arg(long, conflicts_with = "far_command", help_heading = "Sides")]
    no_iperf3: bool,
    /// Raise the limits of the TCP buffers on both sides to fill the path [default: the limits of this host]
    #[arg(long, help_heading = "Sides")]
    large_buffers: bool,
    /// Attach the near side to the network namespace of a process, to a named one, or to a namespace file
    #[arg(long, value_name = "PID|NETNS", help_heading = "Sides")]
    attach_near: Option<String>,
    /// Attach the far side to the network namespace of a process, to a named one, or to a namespace file
    #[arg(long, value_name = "PID|NETNS", help_heading = "Sides")]
    attach_far: Option<String>,
    /// Bridge two interfaces transparently through the link; needs root
    #[arg(long, value_names = ["IF_A", "IF_B"], num_args = 2, help_heading = "Sides")]
    #[arg(conflicts_with_all = ["far_command", "far_root", "no_iperf3", "large_buffers", "attach_near", "attach_far", "parallel", "mtu"])]
    bridge: Vec<String>,
    /// Skip the measurement of this machine's speed at the start
    #[arg(long, help_heading = "Accuracy")]
    no_calibration: bool,
    /// Run even if this machine is too slow for the link; packets may then be late
    #[arg(long, help_heading = "Accuracy")]
    force: bool,

    /// Show rate, queue and drops of each direction while it runs
    #[arg(long, help_heading = "Output")]
    live: bool,
    /// Log every packet: its outcome (NAME.jsonl), or captures of both sides (NAME.pcapng)
    ///
    /// The captures are NAME.near.pcapng and NAME.far.pcapng, and NAME.dropped.pcapng if the link dropped packets.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    log: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
    #[command(flatten)]
    dry_run: DryRun,

    /// Name for --list, if another flag precedes it.
    #[arg(hide = true)]
    words: Vec<String>,
    /// Command to run on the near side, with its arguments [default: a shell]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const USAGE: &str = "lfn emulate [OPTIONS] [-- CMD…]
       lfn emulate [OPTIONS] --dry-run [--size BYTES]
       lfn emulate set KEY=VALUE…
       lfn emulate show";

const AFTER_HELP: &str = "\
CMD runs as root in its own network namespaces. It has no further rights outside them, and no network except the \
link. For an ordinary user no second user exists inside, so daemons that change their user fail there. Without CMD a \
shell runs on the near side, and its prompt shows the link. With --attach-near or --bridge the link lasts until SIGINT \
or SIGTERM.

While an emulation runs, lfn emulate set and show work from the network namespace where it was started, and from both \
sides. \
LFN_PATH keeps the initial figures.

Exit codes: that of CMD (128 plus the signal number if a signal killed it); 126 or 127 if CMD could not be started; \
4 if CMD succeeded but the emulation was not accurate; 2 usage; 1 the emulation failed; 0 or 4 if a signal ended it \
and there was no CMD.

Examples (doc/reference/emulate.md describes every value):
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far
  lfn emulate --profile acts --loss 1e-5 --report run.json -- lfn copy results.h5 far:
  lfn emulate --rtt 20ms --rate 100mbit -- iperf3 -c far
  lfn emulate --rtt 20ms --rate 100mbit --plot run.svg -- lfn test far
  lfn emulate --rtt 40ms --rate 100mbit --return-rate 5mbit --aqm fq-codel
  lfn emulate --link rate=10gbit,rtt=5ms --link geo,loss=1e-4 -- ping -c 3 far";

/// Runs `lfn emulate`, or its subcommands `set` and `show`.
pub fn run(mut args: EmulateArgs, program: &clap::Command) -> Result<Exit, Failure> {
    if let Some(action) = args.action.take() {
        return running::run(action);
    }
    let mut words = args.words.iter().map(String::as_str);
    if let Some(name) = &args.list {
        // Accepts `--list --json NAME` as well as `--list NAME --json`.
        let name = name.as_deref().or_else(|| words.next());
        return match words.next() {
            Some(word) => Err(unexpected_word(word, program)),
            None => list::run(name, args.output.open()?),
        };
    }
    if let Some(word) = words.next() {
        return Err(unexpected_word(word, program));
    }
    if args.dry_run.is_requested()? {
        let path = args.path()?.path().map_err(settings_error)?;
        let seed = args.seed.map_or_else(emulate::random_seed, Ok)?;
        return args.dry_run.run(&path, seed, args.output.open()?);
    }
    if args.output.format() != OutputFormat::Text {
        return Err(Failure::usage(
            "--output json needs --list or --dry-run, since the output of a run belongs to CMD",
        )
        .hint("to write the accuracy report as JSON, use --report report.json"));
    }
    let mut setup = args.setup()?;
    let output = args.output.open()?;
    let pictures = args.plot.create()?;
    setup.watch.course = pictures.is_some();
    setup.watch.log = args.log.as_deref().map(log::open).transpose()?;
    for warning in emulate::warnings(&setup) {
        print::message(format_args!("lfn: {warning}\n"));
    }
    let document = emulate::run_setup(&setup, &args.command).map_err(emulate_error)?;
    let outcome = &document.outcome;
    if let Some(ending) = outcome.far.filter(|ending| *ending != CommandExit::Exited(0)) {
        print::message(format_args!("lfn: the far command {ending} before CMD ended\n"));
    }
    let is_accurate = outcome.accuracy_report.is_accurate();
    print::message(print::emulate::accuracy::for_stderr(&outcome.accuracy_report, outcome.link_failure.is_some()));
    if print::settings::is_quiet()
        && let Some(inaccuracy) = outcome.accuracy_report.inaccuracies().first().filter(|_| !is_accurate)
    {
        print::error(format_args!("lfn: not accurate: {}: {}\n", inaccuracy.direction, inaccuracy.cause));
    }
    finish_run(&document, output, setup.watch.log.as_ref(), pictures)
}

/// Writes the report, the pictures and the end of the log, and prints every error.
fn finish_run(
    document: &EmulateDocument,
    output: Output,
    log: Option<&LogFiles>,
    pictures: Option<PictureFiles>,
) -> Result<Exit, Failure> {
    let outcome = &document.outcome;
    let logged = log.zip(outcome.log.as_ref()).map_or(Ok(()), |(file, account)| log::report_log(file, account));
    let reported = write_report(output, document);
    let drawn = pictures.map_or(Ok(()), |pictures| pictures.write_one(of_emulation(outcome), "the link had no path"));
    let broken = outcome.link_failure.as_ref().map(Failure::msg);
    let mut failures: Vec<Failure> =
        [logged.err(), reported.err(), drawn.err(), broken].into_iter().flatten().collect();
    let Some(last) = failures.pop() else { return Ok(exit_code(outcome)) };
    for failure in failures {
        failure.report();
    }
    Err(match exit_code(outcome) {
        // The caller expects CMD's own failure first, unless CMD was killed because the link failed.
        own @ Exit::Command(1..) if outcome.link_failure.is_none() => last.with_exit(own),
        _ => last,
    })
}

/// Writes the accuracy report, if it is requested.
fn write_report(mut output: Output, document: &EmulateDocument) -> Result<(), Failure> {
    // A file size limit (`ulimit -f`) becomes an error of write(2). CMD has ended and does not inherit this.
    let _ = process::ignore_signal(SIGXFSZ);
    output.set_album(|| of_emulation(&document.outcome));
    output.write_report(document)
}

impl EmulateArgs {
    fn setup(&self) -> Result<Setup, Failure> {
        let request = self.request()?;
        let mut setup = request.setup(std::env::current_exe()?).map_err(request_error)?;
        setup.quiet = print::settings::is_quiet();
        let has_shell = matches!(setup.placement, Placement::Namespaces { near: None, .. });
        setup.watch.live = print::emulate::live::live_output(self.live, has_shell || !self.command.is_empty());
        Ok(setup)
    }

    fn request(&self) -> Result<EmulateRequest, Failure> {
        let mut request = EmulateRequest {
            seed: self.seed,
            far: self.far_side()?,
            placement: self.placement(),
            calibrate: !self.no_calibration,
            force: self.force,
            large_buffers: self.large_buffers,
            ..EmulateRequest::new(self.path()?, self.command.clone())
        };
        for spec in &self.parallel {
            let links: Vec<_> = spec.split(';').map(|link| link.trim().to_owned()).collect();
            request.paths.push(self.path_from_specs("parallel", &links)?);
        }
        Ok(request)
    }

    /// Returns the first path: from --link, or from the profile and the flags.
    fn path(&self) -> Result<EmulatedLinks, Failure> {
        if let (Some(spec), Some(key)) = (self.link.first(), self.settings.first()) {
            return Err(Failure::usage(format!("--{key} cannot be combined with --link"))
                .hint(format!("add the setting to the link: --link {spec},{key}=…")));
        }
        if !self.link.is_empty() {
            return self.path_from_specs("link", &self.link);
        }
        let mut hop = self.profile.as_deref().map(Hop::from_profile).transpose()?.unwrap_or_default();
        hop.settings.overlay(&self.settings.read()?);
        let mtu = self.mtu()?.or(hop.mtu).unwrap_or(DEFAULT_MTU);
        let links = EmulatedLinks { links: vec![hop.settings], mtu };
        links.path().map_err(settings_error)?;
        Ok(links)
    }

    /// Returns a path of links in series. --link is given once for each link, --parallel once for all links.
    fn path_from_specs(&self, flag: &str, specs: &[String]) -> Result<EmulatedLinks, Failure> {
        let hops = specs.iter().map(|spec| Hop::from_spec(flag, spec)).collect::<Result<Vec<_>, _>>()?;
        // The interfaces have the smallest MTU of all links. A link without an MTU has the default.
        let min_mtu = hops.iter().map(|hop| hop.mtu.unwrap_or(DEFAULT_MTU)).min().unwrap_or(DEFAULT_MTU);
        let mtu = self.mtu()?.unwrap_or(min_mtu);
        let links = EmulatedLinks { links: hops.into_iter().map(|hop| hop.settings).collect(), mtu };
        let separator = if flag == "parallel" { "; " } else { " --link " };
        links.path().map_err(|error| spec_error(flag, &specs.join(separator), error))?;
        Ok(links)
    }

    /// Returns the MTU from the command line, or the MTU of the bridged interfaces.
    fn mtu(&self) -> Result<Option<u32>, Failure> {
        match self.placement() {
            Placement::Bridge(interfaces) => lfn_emulate::bridge_mtu(&interfaces).map(Some).map_err(emulate_error),
            Placement::Namespaces { .. } => Ok(self.mtu),
        }
    }

    fn placement(&self) -> Placement {
        if let [near, far] = &self.bridge[..] {
            return Placement::Bridge([near.clone(), far.clone()]);
        }
        let [near, far] = [&self.attach_near, &self.attach_far];
        let attachment = |typed: &Option<String>| typed.as_deref().map(NamespaceRef::parse);
        Placement::Namespaces { near: attachment(near), far: attachment(far) }
    }

    fn far_side(&self) -> Result<RequestedFarSide, Failure> {
        if !self.bridge.is_empty() {
            return Ok(RequestedFarSide::Nothing);
        }
        match self.far_command.as_deref().map(str::trim) {
            Some("") => {
                Err(Failure::usage("--far-command is empty")
                    .hint("to run nothing on the far side, use --far-command none"))
            }
            Some("none") => Ok(RequestedFarSide::Nothing),
            Some(line) => Ok(RequestedFarSide::Shell(line.to_owned())),
            None => Ok(RequestedFarSide::Server {
                root: self.far_root.clone(),
                iperf3: !self.no_iperf3,
                any_port: self.attach_far.is_some(),
            }),
        }
    }
}

/// Describes an error of the request.
fn request_error(error: EmulateRequestError) -> Failure {
    match error {
        EmulateRequestError::Emulate(error) => emulate_error(error),
        EmulateRequestError::NoFarRoot(root) => {
            let hint = format!("mkdir -p {}", quote(root.as_os_str()));
            Failure::new(EmulateRequestError::NoFarRoot(root)).hint(hint)
        }
        error => error.into(),
    }
}

/// Describes a word that is no flag and no valid argument.
fn unexpected_word(word: &str, program: &clap::Command) -> Failure {
    explain_usage(program).unwrap_or_else(|| {
        Failure::usage(format!("unexpected argument '{word}'"))
            .hint("list one profile or trace: lfn emulate --list acts")
    })
}

/// Explains the command line of this process, if a word of it is in the wrong place, such as a command without `--`.
pub fn explain_usage(program: &clap::Command) -> Option<Failure> {
    let mut words = std::env::args_os().skip_while(|word| word != "emulate");
    words.next()?;
    let mut cli = program.clone();
    cli.build();
    missing_dashes::explain(&words.collect::<Vec<_>>(), cli.find_subcommand("emulate")?)
}

fn exit_code(outcome: &RunOutcome) -> Exit {
    match outcome.near.unwrap_or(CommandExit::Exited(0)) {
        CommandExit::Exited(0) if !outcome.accuracy_report.is_accurate() => Exit::Unreliable,
        CommandExit::Exited(status) => Exit::Command(u8::try_from(status).unwrap_or(u8::MAX)),
        CommandExit::Killed(signal) => Exit::Command(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}

/// Returns the message and the hint for an error of the emulator.
pub fn emulate_error(error: EmulateError) -> Failure {
    let hint = match &error {
        EmulateError::Namespaces(cause) => return Failure::msg(&error).hint(cause.remedy()),
        EmulateError::Link(_) => "check the units: --rate 135mbit --rtt 539ms",
        EmulateError::Paths(_) => "use fewer --parallel paths",
        EmulateError::Memory { rate, rtt, needed, usable } => {
            let smaller = memory_hint(*rate, *rtt, *needed, *usable);
            return Failure::msg(&error).hint(format!("{smaller}; or simulate the transfer with --dry-run"));
        }
        EmulateError::Start { not_found, .. } => {
            let exit = Exit::Command(if *not_found { 127 } else { 126 });
            return Failure::msg(&error)
                .with_exit(exit)
                .hint("lfn emulate --rtt 539ms --rate 135mbit -- ping -c 3 far");
        }
        EmulateError::Infeasible(_, fits) => {
            let hint = format!(
                "use --rate {}, or simulate the transfer with --dry-run, or use --force (packets will be late)",
                fits.to_argument()
            );
            return Failure::usage(&error).hint(hint);
        }
        EmulateError::FarSide(_) => {
            "run nothing on the far side with --far-command none, or another command with --far-command CMD"
        }
        EmulateError::Attach { remedy, .. } | EmulateError::Bridge { remedy, .. } => {
            return Failure::msg(&error).hint(remedy);
        }
        EmulateError::DirectionEnded
        | EmulateError::NoAnswer
        | EmulateError::System { .. }
        | EmulateError::NoReport(_) => {
            return Failure::msg(&error);
        }
    };
    Failure::usage(&error).hint(hint).with_exit(match error {
        EmulateError::FarSide(_) => Exit::Failed,
        _ => Exit::Usage,
    })
}

/// Suggests settings that fit into memory. If the BDP needs the memory (in flight in both directions and in queues),
/// suggests a rate.
fn memory_hint(rate: BitRate, rtt: Duration, needed: Bytes, usable: Bytes) -> String {
    if needed.0 == 0 || needed.0 > rate.times(rtt).0.saturating_mul(4) {
        return "use a lower --rate, --rtt or --queue".to_owned();
    }
    let max_rate = rate.as_f64() * usable.0 as f64 / needed.0 as f64;
    // Rounded down, since the free memory changes.
    let unit = 10_f64.powf((max_rate.max(10.0).log10() - 1.0).floor());
    let fits = BitRate(((max_rate / unit).floor() * unit) as u64);
    format!("use --rate {}, or a lower --rtt or --queue", fits.to_argument())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_hint_names_a_rate_that_fits() {
        let (rate, rtt) = (BitRate(100_000_000_000), Duration::from_millis(500));
        let hint = |needed| memory_hint(rate, rtt, Bytes(needed), Bytes(14_290_000_000));
        assert_eq!(hint(23_450_000_000), "use --rate 60gbit, or a lower --rtt or --queue");
        // A queue size in bytes does not shrink with the rate.
        assert_eq!(hint(60_000_000_000), "use a lower --rate, --rtt or --queue");
    }
}
