//! `lfn token`: gives out, lists and revokes tokens of this host's `lfn serve`, running or not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use lfn_core::date;
use lfn_core::session::{DEFAULT_PORT, Rights, Ticket};
use lfn_core::units::{BitRate, parse_duration};
use lfn_net::server::tokens::file::{Kept, MOST, TokenFile};
use lfn_net::session::identity::{self, Identity};
use serde_json::json;

use super::serve::{root_directory, state_directory, token_file};
use crate::exit::{Exit, Failure};
use crate::print;

/// Give others tickets of their own: rights, root, rate and an end each
///
/// They are for the `lfn serve` of this user on this host, which need not run, and takes note at once if it does. Its
/// own ticket goes on working.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a token, and print its ticket: this once, for only a hash of it is kept
    Add(Box<Add>),
    /// List the tokens; what opens the door is not shown
    List {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a token worthless; its sessions end within seconds
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(clap::Args, Debug)]
struct Add {
    /// What log, metrics and `lfn token list` call it
    name: String,
    /// What its bearer may do: read, write, test, or drop (store into a new directory, and learn nothing), with commas
    /// between; never more than the server lets anybody
    #[arg(long, value_name = "RIGHTS", default_value = "read,write,test")]
    rights: Rights,
    /// Directory its copies are confined to [default: the server's --root]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Rate of all its sessions together [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<BitRate>,
    /// Good for this long (12h), or until then (2026-12-31, 2026-12-31T18:00:00Z; UTC) [default: until revoked]
    #[arg(long, value_name = "DURATION|DATE", value_parser = end)]
    expires: Option<End>,
    /// Name or address of this host in the ticket [default: the host's name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Port of the server in the ticket
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// When a token ceases to be good.
#[derive(Clone, Copy, Debug)]
enum End {
    After(Duration),
    /// Since 1970.
    At(Duration),
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    match args.action {
        Action::Add(add) => add.run(),
        Action::List { json } => list(json),
        Action::Revoke { name } => revoke(&name),
    }
}

impl Add {
    fn run(self) -> Result<Exit, Failure> {
        check_name(&self.name)?;
        let now = since_1970();
        let expires = match self.expires {
            None => None,
            Some(End::After(duration)) => Some(now + duration),
            Some(End::At(at)) if at > now => Some(at),
            Some(End::At(at)) => {
                return Err(Failure::usage(format!("--expires {}: that is past", date::rfc3339(at)))
                    .hint("give a date to come, in UTC, or a time from now: --expires 12h"));
            }
        };
        let root = self.root.as_deref().map(root_directory).transpose()?;
        if let Some(root) = root.as_ref().filter(|root| root.to_str().is_none()) {
            return Err(Failure::usage(format!("--root {}: not UTF-8, which the file of tokens is", root.display())));
        }
        // The key first: without it there is no ticket.
        let fingerprint = Identity::load_or_create(&state_directory()?)?.fingerprint();
        let token = identity::new_token()?;
        let kept = Kept {
            hash: token.hash(),
            rights: self.rights,
            root,
            rate: self.rate,
            created: now.as_secs(),
            expires: expires.map(|at| at.as_secs()),
        };
        let root = kept.root.clone();
        self.keep(kept)?;
        let host =
            self.host.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        self.announce(&Ticket { host, port: self.port, token, fingerprint }, root.as_deref())
    }

    fn keep(&self, kept: Kept) -> Result<(), Failure> {
        TokenFile::change(&token_file()?, |file| {
            if file.tokens.contains_key(&self.name) {
                return Err(Failure::msg(format!("there is a token '{}' already", self.name))
                    .hint(format!("lfn token revoke {}", self.name)));
            }
            if file.tokens.len() >= MOST {
                return Err(Failure::msg(format!("there are {MOST} tokens, which is as many as there can be"))
                    .hint("lfn token list shows those that have expired; lfn token revoke NAME"));
            }
            file.tokens.insert(self.name.clone(), kept);
            Ok(())
        })?
    }

    fn announce(&self, ticket: &Ticket, root: Option<&Path>) -> Result<Exit, Failure> {
        let mut out = if self.json { print::json() } else { print::out() };
        if self.json {
            let object = json!({ "schema": "lfn.token/1", "name": self.name, "ticket": ticket.to_string() });
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "{ticket}")?;
        }
        out.flush()?;
        if let Some(root) = root {
            // Which roots those are only the server knows, and whether its kernel holds it to them.
            let root = root.display();
            let text = "restart a server that runs already, unless it began with that root or one above it";
            print::talk(format_args!("lfn: --root {root}: {text}\n"));
        }
        Ok(Exit::Ok)
    }
}

fn list(json: bool) -> Result<Exit, Failure> {
    let file = TokenFile::read(&token_file()?)?;
    let moment = |seconds: u64| date::rfc3339(Duration::from_secs(seconds)).replace(".000Z", "Z");
    let mut out = if json { print::json() } else { print::out() };
    if json {
        let one = |(name, kept): (&String, &Kept)| {
            json!({
                "name": name, "rights": kept.rights, "root": kept.root, "rate_bits_per_second": kept.rate,
                "created": moment(kept.created), "expires": kept.expires.map(moment), "expired": is_over(kept),
            })
        };
        let tokens: Vec<_> = file.tokens.iter().map(one).collect();
        writeln!(out, "{}", json!({ "schema": "lfn.tokens/1", "tokens": tokens }))?;
        return Ok(Exit::Ok);
    }
    for (name, kept) in &file.tokens {
        let root = kept.root.as_ref().map_or("the server's root".into(), |root| root.display().to_string());
        let rate = kept.rate.map_or("any rate".into(), |rate| rate.to_string());
        let end = match kept.expires {
            None => "until revoked".to_owned(),
            Some(at) if is_over(kept) => format!("expired {}", moment(at)),
            Some(at) => format!("until {}", moment(at)),
        };
        writeln!(out, "{name:<16} {:<16} {rate:<12} {end:<28} {root}", kept.rights)?;
    }
    Ok(Exit::Ok)
}

fn revoke(name: &str) -> Result<Exit, Failure> {
    if !TokenFile::change(&token_file()?, |file| file.tokens.remove(name).is_some())? {
        return Err(Failure::msg(format!("there is no token '{name}'")).hint("lfn token list"));
    }
    print::talk(format_args!("revoked {name}\n"));
    Ok(Exit::Ok)
}

fn is_over(kept: &Kept) -> bool {
    kept.expires().is_some_and(|end| SystemTime::now() >= end)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// It stands in logs, metrics and names of directories.
fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) || name.starts_with(['-', '.']) {
        return Err(Failure::usage(format!("'{name}' is not a name for a token"))
            .hint("use letters, digits, dots, dashes and underscores, at most 64"));
    }
    Ok(())
}

fn rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err(format!("'{text}': a rate of zero lets nothing through")),
        // What TOML can hold.
        Ok(BitRate(rate)) if i64::try_from(rate).is_err() => Err(format!("'{text}': no path carries that")),
        other => other.map_err(|error| error.to_string()),
    }
}

fn end(text: &str) -> Result<End, String> {
    if let Some(at) = date::parse(text) {
        return Ok(End::At(at));
    }
    match parse_duration(text) {
        // Beyond a century it is a slip of the pen.
        Ok(duration) if (1..=3_155_760_000).contains(&duration.as_secs()) => Ok(End::After(duration)),
        _ => {
            Err(format!("'{text}' is neither a time from now (12h, 30min, a second at least) nor a date (2026-12-31)"))
        }
    }
}
