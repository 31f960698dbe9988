//! `lfn serve`: what was typed and what is in the file, turned into a server and what watches it.

mod file;
mod iperf3;
mod limits;
mod log;
mod notify;
mod safe;
mod stamp;
mod stdio;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy;
use lfn_core::session::{DEFAULT_PORT, Token};
use lfn_net::server::{Config, Event, ServeError, Server, is_loopback, metrics, tokens};
use lfn_net::service;
use lfn_net::session::identity::{self, Identity, IdentityError};
use lfn_sys::process::raise_files;
use serde::{Deserialize, Serialize};

use notify::Manager;

use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print;

/// Be the far end of tests and copies
///
/// Prints one ticket on standard output: whoever has it may test, and copy to and from --root.
#[derive(clap::Args, Debug)]
#[command(args_override_self = true, after_help = EXIT_CODES)]
pub struct Args {
    /// Port to listen on, on every address; 0 takes any free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Name or address of this host in the ticket [default: the host's name, or --bind]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Serve copies to and from this directory, and nothing outside it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Ticket good for this long, such as 12h [default: until --new-token]
    #[arg(long, value_name = "DURATION", value_parser = limits::duration)]
    ticket_life: Option<Duration>,
    /// Make a new token: tickets given out before are good no more
    #[arg(long)]
    new_token: bool,
    /// Key and token of this run alone; nothing is read or kept
    #[arg(long, conflicts_with = "new_token")]
    ephemeral: bool,
    /// Serve whoever comes, without token; only on a loopback address or an emulated path
    #[arg(long)]
    insecure: bool,
    /// Allow --insecure on a real network
    #[arg(long, requires = "insecure")]
    insecure_anywhere: bool,
    #[command(flatten)]
    safety: safe::Safety,
    #[command(flatten)]
    stdio: stdio::Stdio,
    #[command(flatten)]
    limits: limits::Limits,
    #[command(flatten)]
    stamp: stamp::StampArgs,
    /// When told to stop (SIGTERM, SIGINT), let sessions that run go on for this long; a second signal ends them
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = limits::duration, help_heading = "Running")]
    drain: Duration,
    /// Flags from a TOML file, each under its name; those typed win
    #[arg(long, value_name = "FILE", help_heading = "Running")]
    config: Option<PathBuf>,
    /// How the log on standard error looks
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = log::Format::Text, help_heading = "Running")]
    log: log::Format,
    #[command(flatten)]
    iperf3: iperf3::Iperf3Args,
    /// Log nothing
    #[arg(short, long, help_heading = "Running")]
    quiet: bool,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, best on 127.0.0.1; there is no password
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Running")]
    metrics: Option<SocketAddr>,
    /// Print the ticket, and where the server listens, as one JSON object
    #[arg(long)]
    json: bool,
}

/// The token as kept between starts.
#[derive(Debug, Serialize, Deserialize)]
struct SavedToken {
    token: Token,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

const EXIT_CODES: &str = "Exit codes: 0 stopped by SIGTERM, 130 by SIGINT, 1 failed, 2 usage.";

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let args = match &args.config {
        Some(path) => file::read(path)?,
        None => args,
    };
    if args.stdio.is_wanted() {
        return stdio::run(args);
    }
    let tokens = if args.ephemeral { None } else { Some(token_file()?) };
    args.safety.check(args.root.as_deref(), tokens.as_deref())?;
    let stop = Stop::on_signals()?;
    // A file size limit then fails the copy that met it, not the server.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_files();
    let server = bind(&args)?;
    let iperf3 = args.iperf3.bind(&server, args.limits.access(), args.limits.connections())?;
    let stamp = args.stamp.start(args.bind, args.limits.access(), args.quiet, stop.asked.clone())?;
    let (stamp, reflected) = stamp.unzip();
    let page = server.metrics(move || reflected.as_ref().map(|reflected| reflected()));
    let host = match (&args.host, args.bind) {
        (Some(host), _) => host.clone(),
        (None, Some(address)) if !address.is_unspecified() => address.to_string(),
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    // Every file is open that only the start needs.
    let root = args.root.as_deref().map(root_directory).transpose()?;
    let held = safe::hold(root.as_deref(), tokens.as_deref())?;
    let metrics = args.metrics.map(|address| metrics::serve(address, page)).transpose().map_err(|error| {
        Failure::new(error).hint("choose another address or port: lfn serve --metrics 127.0.0.1:9733")
    })?;
    server.teller()(Event::Confined(held.text()));
    announce(&server, &host, (metrics, stamp), iperf3.as_ref(), args.json)?;
    let manager = Manager::from_environment();
    manager.ready(&server.local_addr()?.to_string());
    manager.watch(stop.asked.clone(), server.heartbeat());
    // Those of iperf3 go through the same door: they are waited for, and told when it is over.
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(iperf3) = &iperf3 {
            scope.spawn(|| iperf3.run(&over));
        }
        server.run(&stop.asked, &stop.again);
        over.store(true, Ordering::Relaxed);
    });
    Ok(stop.exit())
}

/// What signals ask for.
struct Stop {
    /// To stop.
    asked: Arc<AtomicBool>,
    /// To stop at once.
    again: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    fn on_signals() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let stop = Stop { asked: Arc::default(), again: Arc::default(), signal: Arc::default() };
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let (asked, again, last) = (stop.asked.clone(), stop.again.clone(), stop.signal.clone());
        let work = move || {
            for signal in signals.forever() {
                if asked.load(Ordering::Relaxed) {
                    again.store(true, Ordering::Relaxed);
                }
                // The number first: whoever sees the stop then knows why.
                last.store(signal as usize, Ordering::Relaxed);
                asked.store(true, Ordering::Relaxed);
            }
        };
        thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(work)?;
        Ok(stop)
    }

    fn exit(&self) -> Exit {
        let interrupted = self.signal.load(Ordering::Relaxed) == signal_hook::consts::SIGINT as usize;
        if interrupted { Exit::Interrupted } else { Exit::Ok }
    }
}

/// The one line on stdout, at once: whoever started the server waits for it.
fn announce(
    server: &Server,
    host: &str,
    (metrics, stamp): (Option<SocketAddr>, Option<SocketAddr>),
    iperf3: Option<&lfn_net::iperf3::server::Server>,
    json: bool,
) -> Result<(), Failure> {
    let ticket = server.ticket(host)?;
    let mut out = if json { print::json() } else { print::out() };
    if json {
        let fingerprint = ticket.fingerprint.to_string();
        let listen = server.local_addr()?;
        let mut object = serde_json::json!({
            "schema": "lfn.serve/1", "ticket": ticket.to_string(), "listen": listen, "fingerprint": fingerprint,
            "metrics": metrics, "stamp": stamp,
        });
        if let Some(iperf3) = iperf3 {
            object["iperf3"] = iperf3.local_addr()?.to_string().into();
        }
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{ticket}")?;
    }
    Ok(out.flush()?)
}

fn bind(args: &Args) -> Result<Server, Failure> {
    // Every address, IPv6 and IPv4 alike, where the host has IPv6 at all.
    let wildcards = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let addresses = args.bind.map_or(wildcards.to_vec(), |address| vec![address]);
    let mut last = None;
    for address in addresses {
        match Server::bind(
            config(args, SocketAddr::new(address, args.port))?,
            service::serve,
            log::log(args.log, args.quiet, !args.iperf3.has_users()),
        ) {
            Ok(server) => return Ok(server),
            Err(error) => last = Some(error),
        }
    }
    let error = last.ok_or_else(|| Failure::msg("no address to listen on"))?;
    let hint = match &error {
        ServeError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            "is another `lfn serve` running? choose another port: lfn serve --port 7324"
        }
        ServeError::Listen { .. } => "see `ip address` for this host's addresses; ports below 1024 need root",
        ServeError::Identity(_) => "remove server.key and server.crt to have new ones made",
        ServeError::Tokens(IdentityError::Exposed { .. }) => {
            "chmod 600 that file; if others may have read it, revoke its tokens"
        }
        ServeError::Tokens(_) => "mend the file, or remove it with all its tokens",
    };
    Err(Failure::new(error).hint(hint))
}

fn config(args: &Args, listen: SocketAddr) -> Result<Config, Failure> {
    if args.insecure && !(is_loopback(&listen) || emulated::is_inside() || args.insecure_anywhere) {
        return Err(Failure::usage(format!("--insecure on {listen}, which others can reach"))
            .hint("add --bind 127.0.0.1, or --insecure-anywhere if the network is your own"));
    }
    let root = args.root.as_ref().map(|root| root_directory(root)).transpose()?;
    let (identity, saved) = identity_and_token(args)?;
    let expires = saved.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Ok(Config {
        listen,
        identity,
        token: (!args.insecure).then_some(saved.token),
        token_expires: expires,
        tokens: if args.ephemeral { None } else { Some(token_file()?) },
        rights: args.safety.rights(),
        audit: args.safety.audit()?,
        root,
        everywhere: args.stdio.is_wanted(),
        third_party: args.safety.third_party(),
        quotas: args.limits.quotas(),
        connections: args.limits.connections(),
        access: args.limits.access(),
        drain: args.drain,
    })
}

/// A directory to serve, whatever leads to it.
pub fn root_directory(root: &Path) -> Result<PathBuf, Failure> {
    let wrong = |e: io::Error| {
        Failure::msg(format!("--root {}: {e}", root.display())).hint("give a directory this user may read")
    };
    let canonical = root.canonicalize().map_err(wrong)?;
    std::fs::read_dir(&canonical).map_err(wrong)?;
    Ok(canonical)
}

/// The kept key and token, or new ones for this run alone.
fn identity_and_token(args: &Args) -> Result<(Identity, SavedToken), Failure> {
    let expires = args.ticket_life.map(|life| now() + life.as_secs().max(1));
    if args.ephemeral {
        return Ok((Identity::ephemeral()?, SavedToken { token: identity::new_token()?, expires }));
    }
    let state = state_directory()?;
    let path = state.join("token.toml");
    let kept: Option<SavedToken> = match identity::read_secret(&path)? {
        Some(text) => Some(toml::from_str(&text).map_err(|_| {
            Failure::msg(format!("{} is not a usable token", path.display()))
                .hint("remove it to have a new one made; tickets given out before are then good no more")
        })?),
        None => None,
    };
    // A token without an end is not given to somebody who asked for one with an end.
    let good = |saved: &SavedToken| match saved.expires {
        Some(end) => end > now(),
        None => expires.is_none(),
    };
    let token = match kept {
        Some(saved) if !args.new_token && good(&saved) => saved,
        _ => {
            let saved = SavedToken { token: identity::new_token()?, expires };
            identity::write_secret(&path, &toml::to_string(&saved)?)?;
            saved
        }
    };
    Ok((Identity::load_or_create(&state)?, token))
}

/// Where the tokens that were given out are kept.
pub fn token_file() -> Result<PathBuf, Failure> {
    Ok(state_directory()?.join(tokens::file::NAME))
}

/// Where key and tokens of this user's server are kept.
pub fn state_directory() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy().map_err(|_| {
        Failure::msg("no home directory to keep the server's key in").hint("set HOME, or use --ephemeral")
    })?;
    Ok(strategy.state_dir().unwrap_or_else(|| strategy.data_dir()).join("lfn"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
