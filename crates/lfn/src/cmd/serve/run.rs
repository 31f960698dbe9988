//! Start and end of the server.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Command;
use lfn_api::serve::{self, ReadyServer, ServeStartError, TicketHost, root_directory};
use lfn_core::session::DEFAULT_PORT;
use lfn_net::server::{ServeError, ServerEvent, metrics};
use lfn_sys::process::raise_open_file_limit;

use super::notify::ServiceManager;
use super::{ServeArgs, StopRequest, file, log, ready_server, stdio};
use crate::exit::{Exit, Failure};
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
