//! `lfn serve`.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy;
use lfn_core::session::{DEFAULT_PORT, Token};
use lfn_core::units::{parse_duration, show_duration};
use lfn_core::wire::Request;
use lfn_net::server::{Config, Event, Limits, ServeError, Server, is_loopback};
use lfn_net::service;
use lfn_net::session::identity::{self, Identity};
use serde::{Deserialize, Serialize};

use crate::emulated;
use crate::exit::{Exit, Failure};

/// Be the far end of tests and copies
///
/// Prints one ticket on standard output: whoever has it may test, and copy to and from --root.
#[derive(clap::Args, Debug)]
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
    #[arg(long, value_name = "DURATION", value_parser = duration)]
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
    /// Sessions at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    max_sessions: u16,
    /// Data streams of one session
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    max_streams: u16,
    /// How long one test may load the path
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    max_test_time: Duration,
    /// Say nothing of sessions that come and go
    #[arg(short, long)]
    quiet: bool,
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

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let (stop, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The number first: whoever sees the stop then knows why.
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
        signal_hook::flag::register(number, stop.clone())?;
    }
    // A file size limit then fails the copy that met it, not the server.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    let server = bind(&args)?;
    let host = match (&args.host, args.bind) {
        (Some(host), _) => host.clone(),
        (None, Some(address)) if !address.is_unspecified() => address.to_string(),
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    announce(&server, &host, args.json)?;
    server.run(&stop);
    Ok(if signal.load(Ordering::Relaxed) == signal_hook::consts::SIGINT as usize {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

/// The one line on stdout, at once: whoever started the server waits for it.
fn announce(server: &Server, host: &str, json: bool) -> Result<(), Failure> {
    let ticket = server.ticket(host)?;
    let mut out = io::stdout().lock();
    if json {
        let fingerprint = ticket.fingerprint.to_string();
        let listen = server.local_addr()?;
        let object = serde_json::json!({
            "schema": "lfn.serve/1", "ticket": ticket.to_string(), "listen": listen, "fingerprint": fingerprint,
        });
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
        match Server::bind(config(args, SocketAddr::new(address, args.port))?, service::serve, log(args.quiet)) {
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
        root,
        limits: Limits {
            sessions: args.max_sessions.into(),
            streams: args.max_streams,
            test_time: args.max_test_time,
            ..Limits::default()
        },
    })
}

fn root_directory(root: &Path) -> Result<PathBuf, Failure> {
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
    let kept: Option<SavedToken> = match identity::read(&path)? {
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

fn state_directory() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy().map_err(|_| {
        Failure::msg("no home directory to keep the server's key in").hint("set HOME, or use --ephemeral")
    })?;
    Ok(strategy.state_dir().unwrap_or_else(|| strategy.data_dir()).join("lfn"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|e| e.to_string())?;
    if duration.is_zero() { Err(format!("'{text}': a time of zero has no meaning here")) } else { Ok(duration) }
}

/// One line on stderr for each session that comes, goes or is turned away.
fn log(quiet: bool) -> impl Fn(Event<'_>) + Send + Sync + 'static {
    let started = std::time::Instant::now();
    move |event| {
        if quiet {
            return;
        }
        let line = match event {
            Event::Opened(peer, Request::Test(_)) => format!("{peer}: test begins"),
            Event::Opened(peer, Request::Copy(_)) => format!("{peer}: copy begins"),
            Event::Ended(peer, None) => format!("{peer}: session done"),
            Event::Ended(peer, Some(error)) => format!("{peer}: session failed: {error}"),
            Event::Refused(peer, why) => format!("{peer}: turned away: {why}"),
        };
        let printable: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // A server goes on serving when nobody reads its log.
        let _ = writeln!(io::stderr(), "{:>8}  {printable}", show_duration(started.elapsed()));
    }
}
