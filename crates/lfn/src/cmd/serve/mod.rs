//! `lfn serve`: combines the flags and the configuration file, and starts the server.

mod access;
mod file;
mod iperf3;
mod limits;
mod log;
mod notify;
mod ready_server;
mod stamp;
mod stdio;
mod ticket_host;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy;
use lfn_api::emulator_env;
use lfn_core::session::{DEFAULT_PORT, Token};
use lfn_net::server::{ServeError, Server, ServerConfig, ServerEvent, is_loopback, metrics, tokens};
use lfn_net::service;
use lfn_net::session::identity::{self, IdentityError, ServerIdentity};
use lfn_sys::process::raise_open_file_limit;
use serde::{Deserialize, Serialize};

use notify::ServiceManager;
use ready_server::ReadyServer;
pub use ticket_host::TicketHost;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print::output::OutputFormat;
use crate::print::settings::is_quiet;
use crate::typed::corrected;

/// Run the server for tests and copies
///
/// Prints a ticket on standard output. Anyone with the ticket can test the path, and copy to and from --root.
#[derive(clap::Args, Debug)]
#[command(args_override_self = true, after_help = EXIT_CODES)]
pub struct ServeArgs {
    /// Listen on this port, on every address; 0 uses any free port
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Write this name or address of the host into the ticket [default: an address of this host, or --bind]
    #[arg(long, value_name = "NAME")]
    ticket_host: Option<String>,
    /// Serve copies to and from this directory, and nothing outside it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Let the ticket expire after this time, such as 12h [default: valid until --new-token]
    #[arg(long, value_name = "DURATION", value_parser = limits::duration)]
    ticket_lifetime: Option<Duration>,
    /// Create a new token; old tickets stop working
    #[arg(long)]
    new_token: bool,
    /// Use a new key and token for this run only; nothing is read or saved
    #[arg(long, conflicts_with = "new_token")]
    ephemeral: bool,
    /// Accept all clients without a token; only on loopback or an emulated path
    #[arg(long)]
    insecure: bool,
    /// Allow --insecure on a real network
    #[arg(long, requires = "insecure")]
    insecure_anywhere: bool,
    #[command(flatten)]
    access: access::AccessArgs,
    #[command(flatten)]
    stdio: stdio::StdioArgs,
    #[command(flatten)]
    limits: limits::LimitArgs,
    #[command(flatten)]
    stamp: stamp::StampServeArgs,
    /// Let running sessions continue for this long after SIGTERM or SIGINT; a second signal ends them
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = limits::duration, help_heading = "Running")]
    drain: Duration,
    /// Read flags from a TOML file, with their names as keys; the command line overrides them
    #[arg(long, value_name = "FILE", help_heading = "Running")]
    config: Option<PathBuf>,
    /// Set the format of the log on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = log::LogFormat::Text, help_heading = "Running")]
    log_format: log::LogFormat,
    #[command(flatten)]
    iperf3: iperf3::Iperf3ServeArgs,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, without authentication
    ///
    /// Use an address such as 127.0.0.1 that only trusted clients can reach.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Running")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Saved token of the server.
#[derive(Debug, Serialize, Deserialize)]
struct SavedToken {
    token: Token,
    /// Expiry, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

const EXIT_CODES: &str = "Exit codes: 0 stopped by SIGTERM, 130 by SIGINT, 1 failed, 2 usage.";

/// Runs `lfn serve` and returns its exit code.
pub fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let args = match &args.config {
        Some(path) => file::read(path)?,
        None => args,
    };
    if args.stdio.is_enabled() {
        return stdio::run(args);
    }
    let tokens = if args.ephemeral { None } else { Some(token_file()?) };
    args.access.check(args.root.as_deref(), tokens.as_deref())?;
    let mut output = args.output.open_private()?;
    let stop = StopRequest::on_signals()?;
    // With this handler, a file size limit fails the copy and not the server.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_open_file_limit();
    let server = bind(&args)?;
    let iperf3 = args.iperf3.bind(&server, args.limits.access(), args.limits.connections())?;
    let stamp = args.stamp.start(args.bind, args.limits.access(), stop.requested.clone())?;
    let (stamp, reflected) = stamp.unzip();
    let page = server.metrics(move || reflected.as_ref().map(|reflected| reflected()));
    let host = match &args.ticket_host {
        Some(host) => TicketHost::chosen(host),
        None => TicketHost::find(args.bind),
    };
    let metrics = args.metrics.map(metrics::listen).transpose().map_err(|error| {
        Failure::new(error).hint("choose another address or port: lfn serve --metrics 127.0.0.1:9733")
    })?;
    let announcement = ReadyServer {
        ticket: server.ticket(&host.host)?,
        host: &host,
        listen: server.local_addr()?,
        metrics: metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        stamp,
        iperf3: iperf3.as_ref().map(|iperf3| iperf3.local_addr()).transpose()?,
        is_insecure: args.insecure,
    };
    output.write_report(&announcement.document())?;
    // All files that only the start needs are written and open now.
    let root = args.root.as_deref().map(root_directory).transpose()?;
    let sandbox = access::restrict_process(root.as_deref(), tokens.as_deref())?;
    if let Some(listener) = metrics {
        metrics::serve(listener, page)?;
    }
    server.event_logger()(ServerEvent::Sandboxed(sandbox.description()));
    match output.format() {
        OutputFormat::Json => announcement.json()?,
        _ => announcement.text(!is_quiet() && args.log_format == log::LogFormat::Text)?,
    }
    let manager = ServiceManager::from_environment();
    manager.ready(&server.local_addr()?.to_string());
    manager.watch(stop.requested.clone(), server.heartbeat());
    // iperf3 sessions share the admission, so the server waits for them and stops them.
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(iperf3) = &iperf3 {
            scope.spawn(|| iperf3.run(&finished));
        }
        server.run(&stop.requested, &stop.immediate);
        finished.store(true, Ordering::Relaxed);
    });
    Ok(stop.exit())
}

/// Requests to stop, set by signals.
struct StopRequest {
    /// Stop after the running sessions.
    requested: Arc<AtomicBool>,
    /// Stop without waiting for sessions.
    immediate: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl StopRequest {
    fn on_signals() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let stop = StopRequest { requested: Arc::default(), immediate: Arc::default(), signal: Arc::default() };
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let (requested, immediate, last) = (stop.requested.clone(), stop.immediate.clone(), stop.signal.clone());
        let work = move || {
            for signal in signals.forever() {
                if requested.load(Ordering::Relaxed) {
                    immediate.store(true, Ordering::Relaxed);
                }
                // The signal is stored first, so that its number is known when the stop is seen.
                last.store(signal as usize, Ordering::Relaxed);
                requested.store(true, Ordering::Relaxed);
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

fn bind(args: &ServeArgs) -> Result<Server, Failure> {
    // All addresses, IPv6 and IPv4, if the host has IPv6.
    let wildcards = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let addresses = args.bind.map_or(wildcards.to_vec(), |address| vec![address]);
    let mut last = None;
    for address in addresses {
        match Server::bind(
            config(args, SocketAddr::new(address, args.port))?,
            service::serve,
            log::log(args.log_format, !args.iperf3.has_users()),
        ) {
            Ok(server) => return Ok(server),
            Err(error) => last = Some(error),
        }
    }
    let error = last.ok_or_else(|| Failure::msg("no address to listen on"))?;
    let hint = match &error {
        ServeError::Listen { source, .. } => listen_hint(args, source),
        ServeError::Identity(_) => "delete server.key and server.crt; `lfn serve` creates new ones".to_owned(),
        ServeError::TokenSet(IdentityError::Exposed { .. }) => {
            "run chmod 600 on the file, and revoke its tokens if others may have read it".to_owned()
        }
        ServeError::TokenSet(_) => "correct the file, or delete it together with all its tokens".to_owned(),
    };
    Err(Failure::new(error).hint(hint))
}

/// Returns a command that can listen.
fn listen_hint(args: &ServeArgs, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let port = args.port.checked_add(1).unwrap_or(DEFAULT_PORT);
            format!("another server uses this port; use another one: {}", corrected("port", &port.to_string()))
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "only root may use ports below 1024; use another one: {}",
                corrected("port", &DEFAULT_PORT.to_string())
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            let host = TicketHost::find(None).host;
            format!("the address is not on this host; use one that is: {}", corrected("bind", &host))
        }
        _ => "`ip address` lists the addresses of this host".to_owned(),
    }
}

fn config(args: &ServeArgs, listen: SocketAddr) -> Result<ServerConfig, Failure> {
    if args.insecure && !(is_loopback(&listen) || emulator_env::is_inside() || args.insecure_anywhere) {
        return Err(Failure::usage(format!("--insecure: other hosts can reach {listen}"))
            .hint(format!("serve only this host: {}", corrected("bind", "127.0.0.1"))));
    }
    let root = args.root.as_ref().map(|root| root_directory(root)).transpose()?;
    let (identity, saved) = identity_and_token(args)?;
    let expires = saved.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Ok(ServerConfig {
        listen,
        identity,
        token: (!args.insecure).then_some(saved.token),
        token_expires: expires,
        token_file: if args.ephemeral { None } else { Some(token_file()?) },
        rights: args.access.rights(),
        audit: args.access.audit()?,
        root,
        unconfined: args.stdio.is_enabled(),
        allow_third_party: args.access.third_party(),
        quotas: args.limits.quotas(),
        connection_limits: args.limits.connections(),
        access: args.limits.access(),
        drain: args.drain,
    })
}

/// Returns the canonical path of the directory to serve.
pub fn root_directory(root: &Path) -> Result<PathBuf, Failure> {
    let wrong = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => format!("check the path, or create the directory: mkdir -p {}", root.display()),
            io::ErrorKind::NotADirectory => "use the directory that contains the file".to_owned(),
            _ => "choose a directory that this user may read".to_owned(),
        };
        Failure::usage(format!("--root {}: {error}", root.display())).hint(hint)
    };
    let canonical = root.canonicalize().map_err(wrong)?;
    std::fs::read_dir(&canonical).map_err(wrong)?;
    Ok(canonical)
}

/// Loads the saved key and token, or creates new ones for this run.
fn identity_and_token(args: &ServeArgs) -> Result<(ServerIdentity, SavedToken), Failure> {
    let expires = args.ticket_lifetime.map(|life| now() + life.as_secs().max(1));
    if args.ephemeral {
        return Ok((ServerIdentity::ephemeral()?, SavedToken { token: identity::new_token()?, expires }));
    }
    let state = state_directory()?;
    let path = state.join("token.toml");
    let saved_token: Option<SavedToken> = match identity::read_secret(&path)? {
        Some(text) => Some(toml::from_str(&text).map_err(|_| {
            Failure::msg(format!("{} contains no valid token", path.display()))
                .hint("delete the file; a new token is created, and old tickets stop working")
        })?),
        None => None,
    };
    // A saved token without an expiry time is not used if --ticket-lifetime is given.
    let is_usable = |saved: &SavedToken| match saved.expires {
        Some(end) => end > now(),
        None => expires.is_none(),
    };
    let token = match saved_token {
        Some(saved) if !args.new_token && is_usable(&saved) => saved,
        _ => {
            let saved = SavedToken { token: identity::new_token()?, expires };
            identity::write_secret(&path, &toml::to_string(&saved)?)?;
            saved
        }
    };
    Ok((ServerIdentity::load_or_create(&state)?, token))
}

/// Returns the path of the file of tokens.
pub fn token_file() -> Result<PathBuf, Failure> {
    Ok(state_directory()?.join(tokens::file::FILE_NAME))
}

/// Returns the directory of the keys and tokens of this user's server.
pub fn state_directory() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy()
        .map_err(|_| Failure::msg("no home directory for the server's key").hint("set HOME, or use --ephemeral"))?;
    Ok(strategy.state_dir().unwrap_or_else(|| strategy.data_dir()).join("lfn"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
