//! `lfn mesh up`: the hub and the agent of this host in one process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use lfn_api::mesh::hub::{self, agent_ticket, read_plan};
use lfn_api::mesh::{MeshError, agent};
use lfn_mesh::sites::{HostKind, Sites};
use lfn_session::split_host_port;
use lfn_sys::names::lookup;

use super::agent::AgentFlags;
use super::hub::print_start;
use super::hub_flags::HubFlags;
use super::running::{log_agent, log_hub, stop_agent, wait_for_signal};
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};

/// Run the hub and the agent of this host in one process
///
/// For a small mesh: one command on the first host, and `lfn mesh agent` on each of the others.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UpArgs {
    #[command(flatten)]
    hub: HubFlags,
    /// Name of this host in the sites file [default: the host with an address of this machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    agent: AgentFlags,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh up sites.toml
  lfn mesh up sites.toml --host near1 --page 127.0.0.1:8080

Exit codes: 0 stopped by a signal; 1 a part cannot start; 2 usage, also if the sites file has problems.";

/// Runs `lfn mesh up` and returns its exit code.
pub fn run(args: UpArgs) -> Result<Exit, Failure> {
    let output = args.output.open_private()?;
    lfn_sys::process::raise_open_file_limit();
    let options = args.hub.options()?;
    let plan = read_plan(&options.sites)?;
    let host = match &args.host {
        Some(host) => host.clone(),
        None => own_host(&plan.sites)?,
    };
    let hub = hub::start(&options, log_hub)?;
    print_start(&hub, output)?;
    let at = hub.listen();
    let address = match at.ip() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => loopback(),
        address => address,
    };
    let at = std::net::SocketAddr::new(address, at.port()).to_string();
    let ticket = agent_ticket(&options.sites, &options.state, &host, Some(&at))?;
    let agent = agent::start(&args.agent.options(Some(ticket))?, log_agent)?;
    crate::cmd::serve::notify::ready(&at);
    let exit = wait_for_signal();
    stop_agent(agent);
    drop(hub);
    exit
}

/// Returns the loopback address of a socket that listens on all addresses of both families.
fn loopback() -> IpAddr {
    let has_v4 = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_ok();
    if has_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Returns the agent host whose address belongs to this machine.
fn own_host(sites: &Sites) -> Result<String, MeshError> {
    let is_own = |typed: &str| -> Option<bool> {
        let (name, _) = split_host_port(typed).ok()?;
        // Only an own address can be bound.
        let addresses = lookup(&name, 0).ok()?;
        Some(addresses.iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok()))
    };
    let mut own = sites
        .hosts()
        .filter(|host| host.kind == HostKind::Agent && host.address.as_deref().and_then(is_own) == Some(true));
    match (own.next(), own.next()) {
        (Some(host), None) => Ok(host.name.clone()),
        _ => Err(MeshError::NotAHostOfTheMesh),
    }
}
