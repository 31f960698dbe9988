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

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lfn_api::serve::{self, KeyStorage, ReadyServer, ServeOptions, ServeStartError, TicketHost, root_directory};
use lfn_core::session::DEFAULT_PORT;
use lfn_net::server::{ServeError, ServerEvent, metrics};
use lfn_sys::process::raise_open_file_limit;

use notify::ServiceManager;

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
    let options = args.options();
    let tokens = serve::token_file_of(&options)?;
    serve::check_write_only(&options, tokens.as_deref()).map_err(|error| start_failure(&args, error))?;
    let mut output = args.output.open_private()?;
    let stop = StopRequest::on_signals()?;
    // With this handler, a file size limit fails the copy and not the server.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_open_file_limit();
    let log = log::log(args.log_format, !args.iperf3.has_users());
    let server = serve::bind(&options, log).map_err(|error| start_failure(&args, error))?;
    let iperf3 = args.iperf3.bind(&server, options.access.clone(), options.connections)?;
    let stamp = args.stamp.start(args.bind, options.access.clone(), stop.requested.clone())?;
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
        host,
        listen: server.local_addr()?,
        metrics: metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        stamp,
        iperf3: iperf3.as_ref().map(|iperf3| iperf3.local_addr()).transpose()?,
        is_insecure: args.insecure,
    };
    output.write_report(&announcement.document())?;
    // All files that only the start needs are written and open now.
    let root = args.root.as_deref().map(root_directory).transpose()?;
    let sandbox = serve::restrict_process(root.as_deref(), tokens.as_deref())?;
    if let Some(listener) = metrics {
        metrics::serve(listener, page)?;
    }
    server.event_logger()(ServerEvent::Sandboxed(sandbox.description()));
    match output.format() {
        OutputFormat::Json => ready_server::print_json(&announcement)?,
        _ => ready_server::print_text(&announcement, !is_quiet() && args.log_format == log::LogFormat::Text)?,
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

/// Describes why the server does not start, with a command that can start.
fn start_failure(args: &ServeArgs, error: ServeStartError) -> Failure {
    let hint = match &error {
        ServeStartError::Serve(ServeError::Listen { source, .. }) => Some(listen_hint(args, source)),
        ServeStartError::InsecureOnNetwork(_) => {
            Some(format!("serve only this host: {}", corrected("bind", "127.0.0.1")))
        }
        ServeStartError::WriteWithoutRoot(_) => {
            Some(format!("serve the current directory: {}", corrected("root", ".")))
        }
        _ => None,
    };
    hint.into_iter().fold(Failure::new(error), Failure::hint)
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

impl ServeArgs {
    fn options(&self) -> ServeOptions {
        let key = match (self.ephemeral, self.new_token) {
            (true, _) => KeyStorage::Ephemeral,
            (false, new_token) => KeyStorage::Saved { new_token },
        };
        ServeOptions {
            bind: self.bind,
            port: self.port,
            ticket_host: self.ticket_host.clone(),
            root: self.root.clone(),
            key,
            ticket_lifetime: self.ticket_lifetime,
            insecure: self.insecure,
            insecure_anywhere: self.insecure_anywhere,
            rights: self.access.rights(),
            third_party: self.access.third_party(),
            audit: self.access.audit(),
            unconfined: self.stdio.is_enabled(),
            connections: self.limits.connections(),
            access: self.limits.access(),
            drain: self.drain,
            ..ServeOptions::new(self.limits.sessions())
        }
    }
}
