//! `lfn test --path`: what lies between, looked at before the load.

use std::net::ToSocketAddrs;

use lfn_core::discover::report::{PathReport, Searched};
use lfn_core::wire::test::Direction;
use lfn_net::path;
use lfn_net::session::dial::Target;
use lfn_net::tester::Measurement;

use crate::exit::Failure;
use crate::remote::session_failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Path")]
pub(super) struct PathArgs {
    /// Look at the path first: hops by TCP and by UDP, each along one flow, and the path MTU of both directions, found
    /// by probes that need no ICMP. Takes seconds, a minute at most; needs no privilege
    #[arg(long)]
    path: bool,
    /// The same, and the names of the hops from the resolver
    #[arg(long)]
    path_names: bool,
}

impl PathArgs {
    /// Whether it was asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.path || self.path_names
    }

    /// What was found of the path to a host that does not help, if it was asked for.
    pub(super) fn look_alone(&self, host: &str) -> Result<Option<PathReport>, Failure> {
        if !self.is_asked() {
            return Ok(None);
        }
        let unknown = |why: String| {
            Failure::msg(format!("unknown host '{host}': {why}")).hint("give a name or an address: --iperf3 192.0.2.1")
        };
        let mut addresses = (host, 0).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let to = addresses.next().ok_or_else(|| unknown("no address".into()))?;
        Ok(Some(path::discover_alone(to.ip(), self.path_names)))
    }

    /// What was found, if it was asked for.
    pub(super) fn look(&self, target: &Target) -> Result<Option<PathReport>, Failure> {
        if !self.is_asked() {
            return Ok(None);
        }
        path::discover(target, self.path_names).map(Some).map_err(session_failure)
    }
}

/// What was found before a test, with what TCP took the path MTU for in it.
pub(super) fn beside(found: Option<&PathReport>, measurement: &Measurement) -> Option<PathReport> {
    let mut report = found.cloned()?;
    let pmtu = |end: &lfn_core::wire::test::EndReport| {
        let info = end.streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
        info.map(|info| info.pmtu_bytes).filter(|&pmtu| pmtu > 0).min()
    };
    report.mtu.near_tcp_pmtu_bytes = pmtu(&measurement.near);
    report.mtu.far_tcp_pmtu_bytes = pmtu(&measurement.far);
    Some(report)
}

/// The path MTU of the data's direction, if probes found it.
pub(super) fn probed(found: Option<&PathReport>, direction: Direction) -> Option<u32> {
    let mtu = &found?.mtu;
    let found = if direction == Direction::Forward { mtu.forward } else { mtu.reverse };
    found.filter(|found| found.search == Searched::Complete).map(|found| found.path_mtu_bytes)
}
