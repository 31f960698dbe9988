//! The server of a test, and the origin of the result.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use lfn_base::date::rfc3339;
use lfn_measure::tester;
use lfn_results::evidence::{HostNames, TypedArgument};
use lfn_results::report::Origin;
use lfn_session::split_host_port;
use lfn_sys::clock;

use super::error::TestVerbError;
use super::options::TestOptions;
use crate::emulator_env;
use crate::hosts::HostError;
use crate::resolve::{ReachedServer, ServerResolver, is_ticket, server_argument};

/// Name of a server that a ticket selects, until the ticket is read. A ticket is a secret.
const UNREAD_TICKET: &str = "the server";

/// Resolves the server of a test.
pub(crate) fn reach(
    options: &TestOptions,
    resolver: &ServerResolver,
    stop: &AtomicBool,
) -> Result<ReachedServer, TestVerbError> {
    let mut server = reach_name(&options.server, resolver, stop)?;
    server.target = server.target.bind_to(options.bind_addresses.clone()).multipath(options.near_socket.mptcp);
    Ok(server)
}

/// Resolves a server. Starts it over ssh if no ticket is known for the name.
pub(crate) fn reach_name(
    name: &str,
    resolver: &ServerResolver,
    stop: &AtomicBool,
) -> Result<ReachedServer, TestVerbError> {
    if resolver.is_over_ssh(name)? {
        check_ssh_host(name)?;
        return Ok(resolver.start_for_test(name, stop)?);
    }
    Ok(ReachedServer::running(resolver.resolve(name)?))
}

/// Refuses a name with a port, which ssh cannot use, and loopback: a test of this host needs no ssh.
fn check_ssh_host(host: &str) -> Result<(), TestVerbError> {
    let (name, port) = split_host_port(host).map_err(HostError::InvalidAddress)?;
    if name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return Err(TestVerbError::NoTicketForLoopback(host.to_owned()));
    }
    if port.is_some() {
        return Err(TestVerbError::PortForSsh { host: host.to_owned(), name });
    }
    Ok(())
}

/// Returns the origin of a test that starts now.
pub(super) fn origin(options: &TestOptions, far: String) -> Origin {
    let command =
        if options.command.is_empty() { vec!["test".to_owned(), far.clone()] } else { options.command.clone() };
    origin_of(command, far)
}

/// Returns the origin of a result that starts now.
pub(crate) fn origin_of(command: Vec<String>, far: String) -> Origin {
    let now = clock::since_1970();
    let near = if emulator_env::is_inside() { "near".to_owned() } else { tester::read_kernel().host };
    Origin {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(now),
        command,
        hosts: HostNames { near, far },
    }
}

/// Returns the name of the server before it is reached.
pub(crate) fn preliminary_name(server: &str) -> String {
    if is_ticket(server) { UNREAD_TICKET.to_owned() } else { server.to_owned() }
}

/// Returns the name of the server: the host of a ticket, or the name as given.
pub(crate) fn far_name(server: &str, reached: &ReachedServer) -> String {
    if !is_ticket(server) {
        return server.to_owned();
    }
    let address = reached.target.address();
    address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).to_owned()
}

/// Returns the arguments of the command that repeats the test: the server without the secret of a ticket, and the
/// flags.
pub(super) fn arguments(options: &TestOptions, resolver: &ServerResolver) -> Vec<TypedArgument> {
    let server = match &options.iperf3 {
        Some(_) => vec![TypedArgument { flag: None, text: format!("--iperf3 {}", options.server) }],
        None => server_arguments(&options.server, resolver),
    };
    server.into_iter().chain(options.arguments.clone()).collect()
}

/// Returns the arguments that select the server, without the secret of a ticket.
pub(crate) fn server_arguments(server: &str, resolver: &ServerResolver) -> Vec<TypedArgument> {
    vec![TypedArgument { flag: None, text: server_argument(server, resolver.insecure) }]
}
