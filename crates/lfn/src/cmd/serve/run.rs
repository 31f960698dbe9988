//! Start and end of the server.

use std::io;
use std::sync::Arc;

use clap::Command;
use lfn_api::open_file_limit::raise_command;
use lfn_api::serve::{self, ServeStartError, TicketHost};
use lfn_session::DEFAULT_PORT;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::ServeError;
use lfn_sys::process::raise_open_file_limit;
use rustix::process::{Resource, getrlimit};

use super::notify::ServiceManager;
use super::{ServeArgs, StopRequest, file, log, ready_server, stdio};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::OutputFormat;
use crate::print::settings::is_quiet;
use crate::typed::corrected;

/// Runs `lfn serve` and returns its exit code.
pub fn run(args: ServeArgs, program: &Command) -> Result<Exit, Failure> {
    let args = match &args.config {
        Some(path) => file::read(path, program)?,
        None => args,
    };
    if args.stdio.is_enabled() {
        return stdio::run(args);
    }
    let mut output = args.output.open_private()?;
    let stop = StopRequest::on_signals()?;
    // With this handler, a file size limit fails the copy and not the server.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_open_file_limit();
    check_open_files()?;
    let log = log::log(args.log_format, !args.iperf3.has_users());
    let server = serve::listen(&args.options(), log).map_err(|error| start_failure(&args, error))?;
    let ready = server.ready();
    if let Some(stamp) = ready.stamp {
        print::message(format_args!("STAMP reflector at {stamp}\n"));
    }
    output.write_report(&ready.document())?;
    // All files that only the start needs are written and open now.
    server.confine()?;
    match output.format() {
        OutputFormat::Json => ready_server::print_json(ready)?,
        _ => ready_server::print_text(ready, !is_quiet() && args.log_format == log::LogFormat::Text)?,
    }
    let manager = ServiceManager::from_environment();
    manager.ready(&ready.listen.to_string());
    manager.watch(stop.requested.clone(), server.heartbeat());
    server.run(&stop.requested, &stop.immediate)?;
    Ok(stop.exit())
}

/// Refuses to serve if the limit of open files is too low for the minimum number of connections.
fn check_open_files() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = ConnectionLimits::open_files(ConnectionLimits::MIN_CONNECTIONS);
    if needed <= limit {
        return Ok(());
    }
    let problem = format!("the server needs {needed} open files, the limit is {limit}");
    Err(Failure::msg(problem).hint(raise_command(needed)))
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
