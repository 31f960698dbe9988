//! `lfn token`: creates, lists and revokes tokens for the `lfn serve` of this host, running or not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use lfn_api::documents::{TokenDocument, TokenEntry, TokenRevokedDocument, TokensDocument, TokensSchema};
use lfn_api::serve::{TicketHost, root_directory, state_directory, token_file};
use lfn_base::date;
use lfn_base::units::{BitRate, QuantityError, parse_unit_duration};
use lfn_session::identity::{self, ServerIdentity};
use lfn_session::server::tokens::file::{MAX_TOKENS, TokenFile, TokenRecord};
use lfn_session::{DEFAULT_PORT, Rights, Ticket};
use lfn_sys::clock::since_1970;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::Output;

/// Create tickets for other users, each with its own rights, directory, rate limit and expiry
///
/// The tickets are for the `lfn serve` of this user on this host. The server need not run. A running server notices
/// changes at once. The server's own ticket stays valid.
#[derive(clap::Args, Debug)]
pub struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Subcommand, Debug)]
enum TokenAction {
    /// Create a token and print its ticket, which is shown only once: only a hash is stored
    Add(Box<AddArgs>),
    /// List the tokens, without their secrets
    List {
        #[command(flatten)]
        output: OutputArgs<TextOrJson>,
    },
    /// Revoke a token; its sessions end within seconds
    Revoke {
        /// Name of the token
        name: String,
        #[command(flatten)]
        output: OutputArgs<TextOrJson>,
    },
}

#[derive(clap::Args, Debug)]
struct AddArgs {
    /// Name of the token in logs, metrics and `lfn token list`
    name: String,
    /// Set the rights: read, write and test, separated by commas; or create, alone or with test
    ///
    /// With create, each copy writes into a new directory, without access to existing files. A token never has more
    /// rights than the server gives.
    #[arg(long, value_name = "RIGHTS", default_value = "read,write,test")]
    rights: Rights,
    /// Restrict copies to this directory [default: the server's --root]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Limit the total rate of the token's sessions [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<BitRate>,
    /// Set the expiry: after a time (12h), or at a date in UTC (2026-12-31, 2026-12-31T18:00:00Z) [default: until
    /// revoked]
    #[arg(long, value_name = "DURATION|DATE", value_parser = parse_expiry)]
    expires: Option<Expiry>,
    /// Write this name or address of the host into the ticket [default: an address of this host]
    #[arg(long, value_name = "NAME")]
    ticket_host: Option<String>,
    /// Write this port of the server into the ticket
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    ticket_port: u16,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Expiry of a token.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    After(Duration),
    /// Date, as time since 1970.
    At(Duration),
}

/// Runs `lfn token` and returns its exit code.
pub fn run(args: TokenArgs) -> Result<Exit, Failure> {
    match args.action {
        TokenAction::Add(add) => add.run(),
        TokenAction::List { output } => list(output.open()?),
        TokenAction::Revoke { name, output } => revoke(&name, output.open()?),
    }
}

impl AddArgs {
    fn run(self) -> Result<Exit, Failure> {
        check_name(&self.name)?;
        let output = self.output.open_private()?;
        let now = since_1970();
        let expires = match self.expires {
            None => None,
            Some(Expiry::After(duration)) => Some(now + duration),
            Some(Expiry::At(at)) if at > now => Some(at),
            Some(Expiry::At(at)) => {
                return Err(Failure::usage(format!("--expires {} is in the past", date::rfc3339(at)))
                    .hint("use a future date in UTC, or a time from now: --expires 12h"));
            }
        };
        let root = self.root.as_deref().map(root_directory).transpose()?;
        if let Some(root) = root.as_ref().filter(|root| root.to_str().is_none()) {
            return Err(Failure::usage(format!(
                "--root {}: the path is not UTF-8, and the file of tokens must be UTF-8",
                root.display()
            )));
        }
        // The key comes first, since a ticket needs its fingerprint.
        let fingerprint = ServerIdentity::load_or_create(&state_directory()?)?.fingerprint();
        let token = identity::new_token()?;
        let record = TokenRecord {
            hash: token.hash(),
            rights: self.rights,
            root,
            rate: self.rate,
            created: now.as_secs(),
            expires: expires.map(|at| at.as_secs()),
        };
        let root = record.root.clone();
        self.save(record)?;
        let host = match &self.ticket_host {
            Some(host) => TicketHost::chosen(host),
            None => TicketHost::find(None),
        };
        let host = host.host;
        self.announce(&Ticket { host, port: self.ticket_port, token, fingerprint }, root.as_deref(), output)
    }

    fn save(&self, record: TokenRecord) -> Result<(), Failure> {
        TokenFile::update(&token_file()?, |file| {
            if file.tokens.contains_key(&self.name) {
                return Err(Failure::msg(format!("token '{}' exists already", self.name))
                    .hint(format!("choose another name, or revoke the token: lfn token revoke {}", self.name)));
            }
            if file.tokens.len() >= MAX_TOKENS {
                return Err(Failure::msg(format!("cannot create more than {MAX_TOKENS} tokens"))
                    .hint("revoke expired tokens: `lfn token list` shows them, `lfn token revoke NAME` revokes one"));
            }
            file.tokens.insert(self.name.clone(), record);
            Ok(())
        })?
    }

    fn announce(&self, ticket: &Ticket, root: Option<&Path>, output: Output) -> Result<Exit, Failure> {
        let document =
            TokenDocument { name: self.name.clone(), ticket: ticket.to_string(), ..TokenDocument::default() };
        output.finish(&document, || {
            let mut out = print::out();
            writeln!(out, "{ticket}")?;
            out.flush()
        })?;
        if let Some(root) = root {
            // Only the server knows the roots of its sandbox, and whether the kernel restricts it to them.
            let root = root.display();
            let text = "restart the server if it was not started with this directory or a parent";
            print::message(format_args!("lfn: --root {root}: {text}\n"));
        }
        Ok(Exit::Ok)
    }
}

fn list(output: Output) -> Result<Exit, Failure> {
    let file = TokenFile::read(&token_file()?)?;
    let moment = |seconds: u64| date::rfc3339(Duration::from_secs(seconds)).replace(".000Z", "Z");
    let entry = |name: &String, record: &TokenRecord| TokenEntry {
        name: name.clone(),
        rights: record.rights.to_string(),
        root: record.root.clone(),
        rate: record.rate,
        created: moment(record.created),
        expires: record.expires.map(moment),
        expired: is_expired(record),
    };
    let tokens = file.tokens.iter().map(|(name, record)| entry(name, record)).collect();
    output.finish(&TokensDocument { schema: TokensSchema::Current, tokens }, || {
        let mut out = print::out();
        for (name, record) in &file.tokens {
            let root = record.root.as_ref().map_or("the server's root".into(), |root| root.display().to_string());
            let rate = record.rate.map_or("any rate".into(), |rate| rate.to_string());
            let end = match record.expires {
                None => "until revoked".to_owned(),
                Some(at) if is_expired(record) => format!("expired {}", moment(at)),
                Some(at) => format!("until {}", moment(at)),
            };
            writeln!(out, "{name:<16} {:<16} {rate:<12} {end:<28} {root}", record.rights)?;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Ok)
}

fn revoke(name: &str, output: Output) -> Result<Exit, Failure> {
    if !TokenFile::update(&token_file()?, |file| file.tokens.remove(name).is_some())? {
        return Err(Failure::msg(format!("no token '{name}'")).hint("list the tokens: lfn token list"));
    }
    output.finish(&TokenRevokedDocument { name: name.to_owned(), ..TokenRevokedDocument::default() }, || {
        print::message(format_args!("revoked {name}\n"));
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Ok)
}

fn is_expired(record: &TokenRecord) -> bool {
    record.expires().is_some_and(|end| SystemTime::now() >= end)
}

/// Checks the name, which appears in logs, metrics and names of directories.
fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) || name.starts_with(['-', '.']) {
        return Err(Failure::usage(format!("'{name}' is not a valid name for a token"))
            .hint("use at most 64 letters, digits, dots, dashes and underscores"));
    }
    Ok(())
}

fn rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err(format!("'{text}': the rate must be above zero")),
        // Maximum integer of TOML.
        Ok(BitRate(rate)) if i64::try_from(rate).is_err() => Err(format!("'{text}': the rate is too high")),
        other => other.map_err(|error| error.to_string()),
    }
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    if let Some(at) = date::parse(text) {
        return Ok(Expiry::At(at));
    }
    match parse_unit_duration(text) {
        // More than a century is probably a mistake.
        Ok(duration) if (1..=3_155_760_000).contains(&duration.as_secs()) => Ok(Expiry::After(duration)),
        Err(QuantityError::NoUnit(number)) => Err(format!("'{number}' has no unit: write {number}min or {number}h")),
        _ => Err(format!("'{text}' is not a time from now (12h, 30min, at least 1s) and not a date (2026-12-31)")),
    }
}
