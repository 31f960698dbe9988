//! `lfn copy`: what was typed, turned into one upload or download, and a forecast to hold it against.

mod clean;
mod ends;
mod flags;
mod manifest;
mod places;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_core::path::PathProfile;
use lfn_core::transfer::keep::{LeftOut, Unkept};
use lfn_core::transfer::limit::Look;
use lfn_core::transfer::manner::Manner;
use lfn_core::transfer::streams::{Change, Choice};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::copy::{MOST_FAILURES, Told};
use lfn_net::session::dial::{Line, Target};
use lfn_net::session::{Protection, SessionError};
use lfn_net::transfer::{
    Connection, Extent, LocalDestination, Options, Outcome, Teller, TransferError, Watch, across, download, upload,
};
use lfn_sys::process::signal::SIGHUP;
use lfn_sys::process::{is_ignored, raise_files};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::forecast::Forecast;
use crate::print::{
    self,
    copy::{Live, Report, tell},
};
use crate::remote::{SavedHosts, Trust, Waiting, session_failure};
use ends::Ends;
use flags::clean::CleanFlags;
use flags::reach::ReachFlags;
use flags::streams::StreamFlags;
use flags::there::ThereFlags;
use flags::tree::TreeFlags;
use flags::whole::WholeFlags;
use manifest::Manifest;
use places::{Direction, direction, without_secrets};

/// Move files and trees over parallel streams, verified end to end
///
/// SOURCE and DESTINATION are a local path, NAME:PATH (NAME saved by `lfn hosts add`, or `far` inside `lfn emulate`),
/// USER@HOST:PATH or HOST:PATH (ssh starts the far end there for this copy; nothing but the binary has to be installed)
/// or a ticket with a path, lfn://TOKEN@HOST:PORT/PATH#FINGERPRINT; the destination or all sources at one far end, each
/// at one, or all here. An argument is seen in `ps`: @-:PATH reads the ticket from standard input, @FILE:PATH from a
/// file. In the place of a file, here or there: random:SIZE and zero:SIZE are made on the spot, null: is checked and
/// forgotten. A local file with a colon in its name is written ./a:b.
///
/// A directory is copied with all that is in it, into a directory of its name at the destination; with a slash behind it
/// (dir/) what is in it goes there, as with rsync. What is there already, of the same length and time, is not sent again, and
/// a copy that was cut goes on where it was.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Args {
    /// What to copy, and where to: the last one is the destination. A directory takes files under their own names
    #[arg(required_unless_present = "clean", num_args = 1.., value_names = ["SOURCE", "DESTINATION"])]
    places: Vec<OsString>,
    #[command(flatten)]
    clean: CleanFlags,
    #[command(flatten)]
    there: ThereFlags,
    #[command(flatten)]
    whole: WholeFlags,
    #[command(flatten)]
    tree: TreeFlags,
    #[command(flatten)]
    streams: StreamFlags,
    #[command(flatten)]
    reach: ReachFlags,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    waiting: Waiting,
    /// One JSON object instead of text
    #[arg(long, conflicts_with = "ndjson")]
    json: bool,
    /// One JSON object a line: how far it is every second, what changes, and at the end what --json gives
    #[arg(long)]
    ndjson: bool,
}

const USAGE: &str = "lfn copy [OPTIONS] SOURCE... DESTINATION
       lfn copy --clean [OPTIONS] [PLACE...]";

const EXAMPLES: &str = "Examples:
  lfn copy field.nc far1:field.nc         far1 is a saved name: lfn hosts add far1 TICKET
  lfn copy far1:runs/field.nc .
  lfn copy field.nc me@there:data/        over ssh, into data in the home directory there
  lfn copy runs far1:archive              the directory runs, as archive/runs
  lfn copy far1:runs/ .                   what is in it
  lfn copy -a runs far1:archive           with owners, links, attributes, holes
  lfn copy 'far1:runs/*.nc' .             what matches at the far end
  lfn copy random:1GiB far1:null:         what the path carries, without a disk
  lfn copy --streams 16 --congestion bbr field.nc far1:
  lfn copy -a runs /mnt/disk              on this host
  lfn copy far1:runs far2:archive         from one far end to another, not by way of here
  lfn copy --clean far1:archive           what copies that were cut left there

The digest printed is what `b3sum FILE` prints. Exit codes: 0 done, 1 failed
or not all of it done, 2 usage, 3 incomplete: the same command goes on from there, 130 interrupted.";

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if args.clean.clean {
        return clean::run(&args);
    }
    if let [only] = args.places.as_slice() {
        let only = without_secrets(only);
        return Err(Failure::usage(format!("{only}: a copy wants a SOURCE and a DESTINATION")).hint(places::PLACES));
    }
    let pick = args.tree.pick()?;
    names_without_colon(&args.places)?;
    let mut direction = direction(&args.places, args.there.allowed(), &pick)?;
    direction.start_at_home(|host| args.reach.is_over_ssh(host, &args.trust))?;
    args.streams.check()?;
    // Streams, files under way and their directories: a thousand is soon not enough.
    raise_files();
    let mut manner = args.whole.manner(&args.there, &pick)?;
    let interrupted = stop_flag()?;
    let reach = |end| {
        let reached = args.reach.reach(end, &args.trust, &args.waiting, &interrupted);
        reached.map_err(|failure| unless_interrupted(failure, &interrupted))
    };
    protect_manifest(&args, &direction, &mut manner)?;
    let is_here = direction.is_here();
    let far = reach((direction.host(), direction.other_host().is_some()))?;
    let other = direction.other_host().map(|host| reach((host, false))).transpose()?;
    let is_one_server = other.as_ref().is_some_and(|other| other.target.is_same_server(&far.target));
    manner.here = is_here || direction.is_on_one_host() || is_one_server;
    manner.several = direction.is_several();
    let path = if is_here { None } else { path(&direction, args.streams.rate, &far.target)? };
    let choice = args.streams.choose(path.as_ref(), direction.size());
    // What does not leave this host is seen by nobody who could not read the files.
    let protection = if is_here { Protection::Clear } else { args.streams.protection() };
    let congestion = choice.congestion.unwrap_or_default();
    let forecast =
        Forecast { path, rate: args.streams.rate, congestion, streams: choice.streams, protection: Some(protection) };
    let told = told(&args)?;
    let options = Options {
        streams: choice.streams,
        most_streams: args.streams.most(&choice, path.as_ref()),
        block: choice.block,
        protection,
        congestion: args.streams.wish(&choice),
        pace: choice.pace,
        predicted: forecast.predict(Bytes(0), None).map(|predicted| predicted.goodput),
        pick,
        manner,
        teller: told.0,
        patience: args.streams.patience,
    };
    let near_sends = direction.near_sends();
    let ends = Ends::of(&direction);
    let live = Live::new(&forecast, near_sends, args.ndjson);
    let mut observer = |extent: &Extent, look: &Look| live.show(extent, look);
    let mut change = |change: &Change| live.change(change);
    let mut connection = |connection: &Connection<'_>| live.tell(connection);
    let watch =
        Watch { observer: &mut observer, change: &mut change, connection: &mut connection, interrupted: &interrupted };
    let result = match direction {
        Direction::Up(from, _, to) => upload(&far.target, &from, to, &options, watch),
        Direction::Down(_, from, to) => download(&far.target, from, &to, &options, watch),
        Direction::Across { from, to, .. } => {
            let receiver = other.as_ref().map_or(&far.target, |other| &other.target);
            across((&far.target, from), (receiver, to), &options, watch)
        }
    };
    live.clear();
    let outcome = result.map_err(|error| {
        // Threads that still dial hold it too, and nobody waits for them.
        told.1.iter().for_each(|manifest| manifest.abandon());
        let interrupted = matches!(error, TransferError::Interrupted) && !args.there.dry_run;
        let failure = match error {
            TransferError::Session(SessionError::Unreachable { address, source }) if is_here => {
                Failure::msg(format_args!("this host does not reach itself at {address}: {source}"))
                    .hint("bring its loopback interface up: ip link set lo up")
            }
            error => failure(error, &args.places),
        };
        if interrupted { failure.hint("the same command goes on from what was kept") } else { failure }
    })?;
    let (listed, unlisted) = match told.1.map(|manifest| manifest.finish()) {
        Some(Err(failure)) => (None, Some(failure)),
        listed => (listed.and_then(Result::ok), None),
    };
    // To a person the line of a file that failed by itself says all.
    let alone = outcome.failures.first().filter(|_| outcome.tally.entries() == 1);
    if alone.is_none() || args.json || args.ndjson {
        report(&args, &options, &forecast, &choice, near_sends, &outcome, listed)?;
    }
    if let Some(failure) = alone {
        let exit = if failure.full { Exit::Incomplete } else { Exit::Failed };
        return Err(Failure::msg(ends.tell(failure)).with_exit(exit));
    }
    list_failures(&outcome, &ends);
    tell_what_is_missing(&outcome);
    if let Some(failure) = unlisted {
        return Err(failure);
    }
    // 3 where the disk is full or a quota spent: with more room the same command goes on.
    Ok(match &outcome.tally {
        tally if tally.full || outcome.failures.iter().any(|failure| failure.full) => Exit::Incomplete,
        tally if tally.failed > 0 || tally.not_deleted || !outcome.failures.is_empty() => Exit::Failed,
        _ => Exit::Ok,
    })
}

/// A saved name as destination of which only the colon was forgotten would become a file of that name.
fn names_without_colon(places: &[OsString]) -> Result<(), Failure> {
    let Some(name) = places.last().and_then(|place| place.to_str()) else { return Ok(()) };
    let is_saved = || Ok::<_, Failure>(emulated::far_ticket(name)?.is_some() || SavedHosts::load()?.has(name));
    if std::path::Path::new(name).symlink_metadata().is_ok() || !is_saved()? {
        return Ok(());
    }
    Err(Failure::usage(format!("{name}: a saved name, and no file or directory here"))
        .hint(format!("did you mean {name}:? A new file of that name is ./{name}")))
}

/// The path before anything is sent on it, as far as it can be known: the emulator's, or the capacity of `--rate` and the
/// round trip of a connection that is made for nothing else.
fn path(direction: &Direction, rate: Option<BitRate>, target: &Target) -> Result<Option<PathProfile>, Failure> {
    // A server that sends has the way back before it.
    let known = match direction {
        Direction::Up(..) => emulated::path()?,
        Direction::Down(..) => emulated::return_path()?,
        // Between others: nothing is known of it here, and no round trip of ours is theirs.
        Direction::Across { .. } => return Ok(None),
    };
    let Some(capacity) = rate else { return Ok(known) };
    if let Some(path) = known {
        return Ok(Some(PathProfile { capacity, ..path }));
    }
    // Whoever cannot be reached at once is dialled again by the copy itself, which also says why.
    Ok(Line::connect(target).ok().map(|line| PathProfile::new(capacity, line.round_trip())))
}

/// What is to be deleted is no manifest that this copy writes.
fn protect_manifest(args: &Args, direction: &Direction, manner: &mut Manner) -> Result<(), Failure> {
    let Direction::Down(_, _, LocalDestination::File { path: destination, .. }) = direction else { return Ok(()) };
    let Some(manifest) = args.whole.manifest.as_deref().filter(|_| manner.delete) else { return Ok(()) };
    for path in manifest::paths_below(manifest, destination) {
        manner.protect.exclude_first(path.as_os_str().as_bytes()).map_err(Failure::usage)?;
    }
    Ok(())
}

/// What takes what the copy tells, and the manifest it may write.
fn told(args: &Args) -> Result<(Teller, Option<Arc<Manifest>>), Failure> {
    let manifest = args.whole.manifest.as_deref().map(Manifest::create).transpose()?.map(Arc::new);
    let (file, json, digests) = (manifest.clone(), args.json, manifest.is_some());
    let tells = args.there.dry_run || args.there.verbose;
    if !tells && !digests {
        return Ok((Teller::default(), None));
    }
    let begun = file.clone();
    let take = move |told: &Told| {
        if let Some(manifest) = &file {
            manifest.take(told);
        }
        // With its digest it is for the manifest.
        if tells && told.digest.is_none() {
            tell(told, json);
        }
    };
    let teller = Teller::new(take, move || begun.iter().for_each(|manifest| manifest.restart()));
    Ok((teller, manifest))
}

/// What could not be copied, one line each.
fn list_failures(outcome: &Outcome, ends: &Ends) {
    for failure in &outcome.failures {
        print::talk(format_args!("lfn: {}\n", ends.tell(failure)));
    }
    if outcome.tally.not_deleted {
        print::talk("lfn: nothing was deleted: what the source has could not be told whole\n");
    }
    let untold = outcome.tally.failed.saturating_sub(outcome.failures.len() as u64);
    if untold > 0 {
        // Those in a directory that failed are not told one by one.
        let below = if outcome.failures.len() < MOST_FAILURES { " below" } else { "" };
        print::talk(format_args!("lfn: {untold} more failed{below}\n"));
    }
}

/// What was left out, and what could not be kept: one line for each kind.
fn tell_what_is_missing(outcome: &Outcome) {
    let LeftOut { links, special } = outcome.left_out;
    let Unkept { owners, xattrs, acls } = outcome.tally.unkept;
    let or_none = "not permitted there, or its file system has none";
    let entry = ["entry without its", "entries without their"];
    let lines = [
        (links, ["symbolic link", "symbolic links"], "left out: --links copies what they are".to_owned()),
        (
            special,
            ["device, FIFO or socket", "devices, FIFOs or sockets"],
            "left out: such are never copied".to_owned(),
        ),
        (owners, entry, "owner or group: only root gives files away".to_owned()),
        (xattrs, ["entry", "entries"], format!("without some extended attributes: {or_none}")),
        (acls, entry, format!("access control list: {or_none}")),
    ];
    for (count, [one, more], what) in lines.iter().filter(|(count, ..)| *count > 0) {
        print::talk(format_args!("lfn: {count} {} {what}\n", if *count == 1 { one } else { more }));
    }
}

fn report(
    args: &Args,
    options: &Options,
    forecast: &Forecast,
    choice: &Choice,
    near_sends: bool,
    outcome: &Outcome,
    listed: Option<u64>,
) -> Result<(), Failure> {
    let report = Report {
        sources: args.places[..args.places.len() - 1].iter().map(|place| without_secrets(place)).collect(),
        destination: args.places.last().map(|place| without_secrets(place)).unwrap_or_default(),
        outcome,
        options,
        choice,
        near_sends,
        manifest: listed,
        predicted: match outcome.moved() {
            Bytes(0) => None,
            moved => forecast.predict(moved, outcome.look.sockets.map(|s| s.min_rtt_seconds)),
        },
    };
    if args.json || args.ndjson { report.json(args.ndjson) } else { report.text() }
}

/// Set by the first SIGINT, SIGTERM or SIGHUP; the second ends the process at once. A hang-up that nohup has told it to
/// ignore stays ignored.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let hangup = Some(SIGHUP).filter(|&signal| !is_ignored(signal));
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    // A file size limit is then an error of write like any other.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(flag)
}

/// What fails once the copy is interrupted is no cause: the terminal interrupts ssh too, and a server that ends at the
/// same time.
fn unless_interrupted(failure: Failure, interrupted: &AtomicBool) -> Failure {
    match interrupted.load(Ordering::Relaxed) {
        true => Failure::msg("interrupted").with_exit(Exit::Interrupted),
        false => failure,
    }
}

fn failure(error: TransferError, places: &[OsString]) -> Failure {
    let said = ends::line(&error, places);
    let exit = match &error {
        TransferError::Sources { .. } => Exit::Usage,
        error if error.is_resumable() => Exit::Incomplete,
        _ => Exit::Failed,
    };
    match error {
        TransferError::Session(SessionError::Refused(refusal)) => {
            let failure = Failure::msg(said).with_exit(exit);
            match refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        TransferError::Session(error) => session_failure(error),
        TransferError::Interrupted => Failure::new(error).with_exit(Exit::Interrupted),
        error => {
            let hint = error.hint();
            let failure = Failure::msg(said).with_exit(exit);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}
