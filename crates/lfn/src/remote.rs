//! What a person calls a far end, turned into something to dial: a ticket, a saved name, `far`, or a bare host.
//!
//! Saved names live in `hosts.toml` in the user's configuration directory (mode 0600: it holds tokens). `far` is the
//! far side of `lfn emulate` ([`emulated`]).

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
use lfn_core::wire::queue::Place;
use lfn_net::session::SessionError;
use lfn_net::session::dial::Target;
use lfn_net::session::identity;
use lfn_net::session::queue::Patience;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print;

/// How to reach a far end, shared by the commands that do.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct Trust {
    /// Trust whoever answers and show no token; only on loopback or an emulated path
    #[arg(long)]
    pub insecure: bool,
    /// Allow --insecure over a real network
    #[arg(long, requires = "insecure")]
    pub insecure_anywhere: bool,
}

/// How long to wait for a place at the server, shared by the commands that need one.
#[derive(clap::Args, Debug, Clone)]
pub struct Waiting {
    /// If the server is full, wait in its queue for at most this long
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    pub wait: Duration,
    /// If the server is full, fail at once
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}

impl Waiting {
    /// The same for those who dial.
    pub fn patience(&self) -> Patience {
        Patience { most: if self.no_wait { Duration::ZERO } else { self.wait }, told: tell_place }
    }
}

/// One line on stderr for each change of the place in the queue.
fn tell_place(place: &Place) {
    let wait = place.expected_wait_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.get()).ok());
    let wait = wait.map_or("nobody can say how long".into(), |wait| {
        format!("up to {}", show_duration(Duration::from_secs(wait.as_secs() + 1)))
    });
    print::talk(format_args!("lfn: {}, waiting: {} ahead, {wait}\n", place.why(), place.ahead));
}

/// The tickets saved by `lfn hosts add`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SavedHosts {
    hosts: BTreeMap<String, SavedHost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedHost {
    ticket: String,
}

/// Finds out where `name` is and what to trust there.
pub fn resolve(name: &str, trust: &Trust, waiting: &Waiting) -> Result<Target, Failure> {
    let mut target = Target::new(ticket_for(name, trust)?).map_err(session_failure)?;
    target.patience = waiting.patience();
    if !trust.insecure {
        return Ok(target);
    }
    if !(target.is_loopback() || emulated::is_inside() || trust.insecure_anywhere) {
        return Err(Failure::usage(format!("--insecure with '{name}', which is not on loopback"))
            .hint("take the ticket `lfn serve` prints there, or add --insecure-anywhere if the network is your own"));
    }
    Ok(target.insecure())
}

/// The line and the hint of an error of a session.
pub fn session_failure(error: SessionError) -> Failure {
    let hint = error.hint();
    let failure = Failure::new(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Where in an argument the token of a ticket stands.
pub fn token_in(argument: &[u8]) -> Option<Range<usize>> {
    const BEGINS: &[u8] = b"lfn://";
    let start = argument.windows(BEGINS.len()).position(|part| part == BEGINS)? + BEGINS.len();
    let length = argument[start..].iter().position(|byte| *byte == b'@')?;
    Some(start..start + length)
}

/// Longer than any ticket.
const LONGEST_TICKET: u64 = 4096;

/// Whether this is a ticket or tells where one is, and so no name of a host.
pub fn is_ticket(name: &str) -> bool {
    name.starts_with("lfn://") || name.starts_with('@') || name == "-"
}

/// A ticket kept from an argument, which every user of the host can read: the first line that is not blank of standard
/// input (`-`, or `@-` where a path follows) or of a file (`@FILE`).
pub fn ticket_elsewhere(name: &str) -> Result<Option<Ticket>, Failure> {
    let (place, mut from): (String, Box<dyn BufRead>) = match name.strip_prefix('@') {
        _ if is_typed(name) => ("standard input".to_owned(), Box::new(io::stdin().lock())),
        Some(file) => {
            let opened = File::open(file).map_err(|error| {
                Failure::msg(format!("{name}: {error}")).hint("@FILE is a file with the line `lfn serve` prints")
            })?;
            (file.to_owned(), Box::new(BufReader::new(opened)))
        }
        None => return Ok(None),
    };
    let mut text = Vec::new();
    read_to_first(&mut from.by_ref().take(LONGEST_TICKET), &mut text)
        .map_err(|error| Failure::msg(format!("{place}: {error}")).hint("it is to hold the line `lfn serve` prints"))?;
    let text = String::from_utf8_lossy(&text);
    let Some((number, line)) = (1..).zip(text.lines()).find(|(_, line)| !line.trim().is_empty()) else {
        return Err(Failure::usage(format!("{place} holds no ticket: nothing but blank lines")).hint(WHOLE));
    };
    // The text may be another secret: it is not quoted.
    let ticket = line.trim().parse::<Ticket>();
    ticket.map(Some).map_err(|_| Failure::usage(format!("{place}, line {number}: not a ticket")).hint(WHOLE))
}

/// Reads up to the first line that is not blank: behind it nobody has to say that there is no more.
fn read_to_first(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    while text.trim_ascii().is_empty() && from.read_until(b'\n', text)? > 0 {}
    Ok(())
}

fn is_typed(name: &str) -> bool {
    matches!(name, "-" | "@-")
}

/// Waits until there is something on standard input, if that is where the ticket is; a person is told what is waited for.
pub fn wait_for_ticket(name: &str, interrupted: &AtomicBool) -> Result<(), Failure> {
    if !is_typed(name) {
        return Ok(());
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        print::talk("ticket: ");
    }
    let look_up = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !interrupted.load(Ordering::Relaxed) {
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&look_up)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Failure::msg(format_args!("standard input: {error}"))),
        }
    }
    Err(Failure::msg("interrupted").with_exit(Exit::Interrupted))
}

/// What belongs there.
const WHOLE: &str = "the line `lfn serve` prints, whole, before any other";

fn ticket_for(name: &str, trust: &Trust) -> Result<Ticket, Failure> {
    if let Some(ticket) = ticket_elsewhere(name)? {
        return Ok(ticket);
    }
    if let Some(ticket) = known(name, trust)? {
        return Ok(ticket);
    }
    let (host, _) = split_host_port(name).map_err(Failure::usage)?;
    Err(Failure::msg(format!("unknown host '{name}': no ticket is saved under that name"))
        .hint(format!("run `lfn serve` there and save the ticket it prints: lfn hosts add {host} TICKET")))
}

/// The ticket of whom this side knows by that name, if it knows anybody; it is read from nowhere else.
pub fn known(name: &str, trust: &Trust) -> Result<Option<Ticket>, Failure> {
    if name.starts_with("lfn://") {
        return name.parse().map(Some).map_err(|e| Failure::usage(e).hint("paste the ticket whole, in quotes"));
    }
    if let Some(ticket) = emulated::far_ticket(name)? {
        return Ok(Some(ticket));
    }
    if let Some(ticket) = SavedHosts::load()?.get(name)? {
        return Ok(Some(ticket));
    }
    if name == emulated::FAR {
        return Err(no_far_side());
    }
    if trust.insecure {
        let (host, port) = split_host_port(name).map_err(Failure::usage)?;
        let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
        return Ok(Some(Ticket { host, port, token, fingerprint }));
    }
    Ok(None)
}

fn no_far_side() -> Failure {
    if emulated::is_inside() {
        return Failure::msg("no `lfn serve` is known on the far side: --far put something else there").hint(
            "leave --far out of `lfn emulate`, or save the ticket under another name: lfn hosts add NAME TICKET",
        );
    }
    Failure::msg("'far' is the far side of an emulated path, and this is none")
        .hint("lfn emulate --rtt 539ms --rate 135mbit -- lfn test far")
}

impl SavedHosts {
    /// Reads the file; none saved if there is no file.
    pub fn load() -> Result<Self, Failure> {
        let path = Self::path()?;
        let Some(text) = identity::read_secret(&path)? else { return Ok(SavedHosts::default()) };
        toml::from_str(&text).map_err(|e| {
            Failure::msg(format!("{}: {}", path.display(), e.message()))
                .hint("mend or remove the file; `lfn hosts add` writes it anew")
        })
    }

    /// The ticket saved under `name`.
    pub fn get(&self, name: &str) -> Result<Option<Ticket>, Failure> {
        let Some(saved) = self.hosts.get(name) else { return Ok(None) };
        let wrong = |e| Failure::msg(format!("the ticket saved as '{name}': {e}"));
        saved.ticket.parse().map(Some).map_err(wrong)
    }

    /// Whether there is such a name, whatever its ticket is good for.
    pub fn has(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Names and tickets, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hosts.iter().map(|(name, saved)| (name.as_str(), saved.ticket.as_str()))
    }

    /// Saves a ticket; tells whether the name was new.
    pub fn add(&mut self, name: &str, ticket: &Ticket) -> Result<bool, Failure> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) || name.starts_with('-') {
            return Err(Failure::usage(format!("'{name}' is not a name for a host"))
                .hint("use letters, digits, dots, dashes and underscores, at most 64"));
        }
        if name == emulated::FAR {
            return Err(Failure::usage("'far' always means the far side of an emulated path").hint("use another name"));
        }
        let saved = SavedHost { ticket: ticket.to_string() };
        Ok(self.hosts.insert(name.to_owned(), saved).is_none())
    }

    /// Forgets a name; tells whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.hosts.remove(name).is_some()
    }

    /// Writes the file, readable by its owner alone.
    pub fn save(&self) -> Result<(), Failure> {
        Ok(identity::write_secret(&Self::path()?, &toml::to_string(self)?)?)
    }

    fn path() -> Result<PathBuf, Failure> {
        Ok(etcetera::choose_base_strategy()
            .map_err(|_| Failure::msg("no home directory: cannot find hosts.toml").hint("set HOME"))?
            .config_dir()
            .join("lfn/hosts.toml"))
    }
}
