//! `lfn serve`: combines the flags and the configuration file, and starts the server.

mod access;
mod file;
mod iperf3;
mod limits;
mod log;
pub(in crate::cmd) mod notify;
mod ready_server;
mod run;
mod stamp;
mod stdio;
mod stdio_args;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lfn_api::serve::{KeyStorage, ServeOptions};
use lfn_session::DEFAULT_PORT;
pub use run::run;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};

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
    stdio: stdio_args::StdioArgs,
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
            iperf3: self.iperf3.options(),
            stamp: self.stamp.options(),
            metrics: self.metrics,
            drain: self.drain,
            ..ServeOptions::new(self.limits.sessions())
        }
    }
}
