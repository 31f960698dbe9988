//! Names of servers, and their tickets: a ticket, a saved name, `far` or a bare host becomes a target to dial.
//!
//! Saved names are stored in `hosts.toml` in the user's configuration directory (mode 0600, since the file holds
//! tokens). `far` is the far side of `lfn emulate` ([`emulator_env`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcetera::BaseStrategy;
use lfn_core::session::{Fingerprint, Ticket, Token, split_host_port};
use lfn_core::units::{parse_unit_duration, show_duration};
use lfn_core::wire::queue::QueuePosition;
use lfn_net::session::SessionError;
use lfn_net::session::dial::Target;
use lfn_net::session::identity;
use lfn_net::session::queue::QueueOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::emulator_env;
use crate::exit::{Exit, Failure};
use crate::print;

/// Flags that control authentication of the server, shared by all commands that dial.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct TrustArgs {
    /// Do not authenticate the server and send no token; only on loopback or an emulated path
    #[arg(long)]
    pub insecure: bool,
    /// Allow --insecure on a real network
    #[arg(long, requires = "insecure")]
    pub insecure_anywhere: bool,
}

/// Flags for the queue of a full server, shared by all commands that dial.
#[derive(clap::Args, Debug, Clone)]
pub struct QueueArgs {
    /// Wait in the queue of a full server for at most this long
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    pub wait: Duration,
    /// Fail at once if the server is full
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}

impl QueueArgs {
    /// Returns the waiting time and the callback for a queue position.
    pub fn queue_wait(&self) -> QueueOptions {
        QueueOptions {
            max_wait: if self.no_wait { Duration::ZERO } else { self.wait },
            on_change: print_queue_position,
        }
    }
}

/// Prints one line on standard error for each change of the queue position.
fn print_queue_position(place: &QueuePosition) {
    let wait = place.expected_wait_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.get()).ok());
    let wait = wait.map_or("for an unknown time".into(), |wait| {
        format!("about {}", show_duration(Duration::from_secs(wait.as_secs() + 1)))
    });
    print::message(format_args!("lfn: {}, waiting {wait} ({} ahead)\n", place.reason(), place.ahead));
}

/// Tickets saved by `lfn hosts add`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SavedHosts {
    hosts: BTreeMap<String, SavedHost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedHost {
    ticket: String,
}

/// Resolves `name` to a target and decides how the server is authenticated.
pub fn resolve(name: &str, trust: &TrustArgs, waiting: &QueueArgs) -> Result<Target, Failure> {
    let mut target = Target::new(require_ticket(name, trust)?).map_err(session_failure)?;
    target.queue = waiting.queue_wait();
    if !trust.insecure {
        return Ok(target);
    }
    if !(target.is_loopback() || emulator_env::is_inside() || trust.insecure_anywhere) {
        return Err(Failure::usage(format!("--insecure: '{name}' is not on loopback"))
            .hint("use the ticket that `lfn serve` prints on that host, or add --insecure-anywhere on a network that you trust"));
    }
    Ok(target.insecure())
}

/// Converts an error of a session into a failure with the hint of the error.
pub fn session_failure(error: SessionError) -> Failure {
    let hint = error.hint();
    let failure = Failure::new(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Returns the range of bytes of an argument that holds the token of a ticket.
pub fn token_range(argument: &[u8]) -> Option<Range<usize>> {
    const BEGINS: &[u8] = b"lfn://";
    let start = argument.windows(BEGINS.len()).position(|part| part == BEGINS)? + BEGINS.len();
    let length = argument[start..].iter().position(|byte| *byte == b'@')?;
    Some(start..start + length)
}

const MAX_TICKET: u64 = 4096;

/// Reports whether the name is a ticket or a source of one (`@FILE`, `-`), and so no host name.
pub fn is_ticket(name: &str) -> bool {
    name.starts_with("lfn://") || name.starts_with('@') || name == "-"
}

/// Reads a ticket from standard input (`-`, or `@-` before a path) or from a file (`@FILE`): the first line that is not
/// blank. Every user of this host can read command-line arguments, so a ticket is safer elsewhere.
pub fn read_ticket(name: &str) -> Result<Option<Ticket>, Failure> {
    let (place, mut from): (String, Box<dyn BufRead>) = match name.strip_prefix('@') {
        _ if is_stdin(name) => ("standard input".to_owned(), Box::new(io::stdin().lock())),
        Some(file) => {
            let opened = File::open(file).map_err(|error| {
                Failure::msg(format!("{name}: {error}"))
                    .hint("@FILE is a file that contains the ticket printed by `lfn serve`")
            })?;
            (file.to_owned(), Box::new(BufReader::new(opened)))
        }
        None => return Ok(None),
    };
    let mut text = Vec::new();
    read_first_line(&mut from.by_ref().take(MAX_TICKET), &mut text)
        .map_err(|error| Failure::msg(format!("{place}: {error}")).hint("give the ticket printed by `lfn serve`"))?;
    let text = String::from_utf8_lossy(&text);
    let Some((number, line)) = (1..).zip(text.lines()).find(|(_, line)| !line.trim().is_empty()) else {
        return Err(Failure::usage(format!("{place} contains no ticket: all lines are blank")).hint(TICKET_HINT));
    };
    // The text may be another secret, so the error does not quote it.
    let ticket = line.trim().parse::<Ticket>();
    ticket.map(Some).map_err(|_| Failure::usage(format!("{place}, line {number}: not a ticket")).hint(TICKET_HINT))
}

/// Reads up to the first line that is not blank. The sender need not close the stream after this line.
fn read_first_line(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    while text.trim_ascii().is_empty() && from.read_until(b'\n', text)? > 0 {}
    Ok(())
}

fn is_stdin(name: &str) -> bool {
    matches!(name, "-" | "@-")
}

/// Waits until standard input has data, if the ticket comes from there. Prints a prompt on a terminal.
pub fn wait_for_ticket(name: &str, interrupted: &AtomicBool) -> Result<(), Failure> {
    if !is_stdin(name) {
        return Ok(());
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        print::message("ticket: ");
    }
    let poll_interval = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !interrupted.load(Ordering::Relaxed) {
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&poll_interval)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Failure::msg(format_args!("standard input: {error}"))),
        }
    }
    Err(Failure::msg("interrupted").with_exit(Exit::Interrupted))
}

const TICKET_HINT: &str = "the first line must be the complete ticket printed by `lfn serve`";

fn require_ticket(name: &str, trust: &TrustArgs) -> Result<Ticket, Failure> {
    if let Some(ticket) = read_ticket(name)? {
        return Ok(ticket);
    }
    if let Some(ticket) = find_ticket(name, trust)? {
        return Ok(ticket);
    }
    let (host, _) = split_host_port(name).map_err(Failure::usage)?;
    Err(Failure::msg(format!("unknown host '{name}': no ticket is saved under that name"))
        .hint(format!("run `lfn serve` on that host and save the ticket it prints: lfn hosts add {host} TICKET")))
}

/// Returns the ticket for a name that this host knows, and `None` for an unknown name. Never reads a ticket from
/// standard input or a file.
pub fn find_ticket(name: &str, trust: &TrustArgs) -> Result<Option<Ticket>, Failure> {
    if name.starts_with("lfn://") {
        return name.parse().map(Some).map_err(|e| Failure::usage(e).hint("paste the complete ticket, in quotes"));
    }
    if let Some(ticket) = emulator_env::far_ticket(name)? {
        return Ok(Some(ticket));
    }
    if let Some(ticket) = SavedHosts::load()?.get(name)? {
        return Ok(Some(ticket));
    }
    if name == emulator_env::FAR {
        return Err(far_side_error());
    }
    if trust.insecure {
        let (host, port) = split_host_port(name).map_err(Failure::usage)?;
        let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
        return Ok(Some(Ticket { host, port, token, fingerprint }));
    }
    Ok(None)
}

fn far_side_error() -> Failure {
    match emulator_env::side().as_deref() {
        Some(emulator_env::FAR) => Failure::msg("this process is on the far side itself")
            .hint("run the command on the near side, where `lfn emulate` started your command"),
        Some(_) => Failure::msg("the far side runs your --far-command instead of `lfn serve`").hint(
            "run `lfn emulate` without --far-command, or save the ticket under another name: lfn hosts add NAME TICKET",
        ),
        None => {
            Failure::msg("'far' exists only inside `lfn emulate`, and this user runs none in this network namespace")
                .hint("lfn emulate --rtt 539ms --rate 135mbit -- lfn test far")
        }
    }
}

impl SavedHosts {
    /// Reads the saved tickets. A missing file counts as empty.
    pub fn load() -> Result<Self, Failure> {
        let path = Self::path()?;
        let Some(text) = identity::read_secret(&path)? else { return Ok(SavedHosts::default()) };
        toml::from_str(&text).map_err(|e| {
            Failure::msg(format!("{}: {}", path.display(), e.message()))
                .hint("correct the file, or delete it and save the tickets again with `lfn hosts add`")
        })
    }

    /// Returns the ticket saved under `name`.
    pub fn get(&self, name: &str) -> Result<Option<Ticket>, Failure> {
        let Some(saved) = self.hosts.get(name) else { return Ok(None) };
        let wrong = |e| Failure::msg(format!("the ticket saved as '{name}': {e}"));
        saved.ticket.parse().map(Some).map_err(wrong)
    }

    /// Reports whether a ticket is saved under `name`, also a damaged one.
    pub fn contains(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Returns names and tickets, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hosts.iter().map(|(name, saved)| (name.as_str(), saved.ticket.as_str()))
    }

    /// Saves a ticket. Returns whether the name is new.
    pub fn add(&mut self, name: &str, ticket: &Ticket) -> Result<bool, Failure> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) || name.starts_with('-') {
            return Err(Failure::usage(format!("'{name}' is not a valid name for a host"))
                .hint("use at most 64 letters, digits, dots, dashes and underscores"));
        }
        if name == emulator_env::FAR {
            return Err(
                Failure::usage("'far' is reserved for the far side of an emulated path").hint("use another name")
            );
        }
        let saved = SavedHost { ticket: ticket.to_string() };
        Ok(self.hosts.insert(name.to_owned(), saved).is_none())
    }

    /// Deletes a name. Returns whether the name existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.hosts.remove(name).is_some()
    }

    /// Writes the file with mode 0600.
    pub fn save(&self) -> Result<(), Failure> {
        Ok(identity::write_secret(&Self::path()?, &toml::to_string(self)?)?)
    }

    fn path() -> Result<PathBuf, Failure> {
        Ok(etcetera::choose_base_strategy()
            .map_err(|_| Failure::msg("cannot find hosts.toml: no home directory").hint("set HOME"))?
            .config_dir()
            .join("lfn/hosts.toml"))
    }
}
