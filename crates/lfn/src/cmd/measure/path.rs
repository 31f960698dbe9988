//! `lfn test --path`: discovers the hops and the path MTU before the load.

use lfn_core::discover::report::PathReport;
use lfn_core::evidence::Evidence;
use lfn_net::path;
use lfn_net::session::dial::Target;
use lfn_sys::names::lookup;

use crate::exit::{Failure, session_failure};

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Path")]
pub(super) struct PathArgs {
    /// Discover the hops and the path MTU before the test
    ///
    /// Traces the hops with TCP and UDP, each along one flow, and finds the path MTU of both directions with probes
    /// that need no ICMP. Takes some seconds, at most a minute. Needs no privileges.
    #[arg(long)]
    path: bool,
    /// Discover the path as with --path, and resolve the names of the hops
    #[arg(long)]
    path_names: bool,
}

impl PathArgs {
    /// Reports whether path discovery is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.path || self.path_names
    }

    /// Discovers the path to a host without lfn, if requested.
    pub(super) fn discover_alone(&self, host: &str) -> Result<Option<PathReport>, Failure> {
        if !self.is_requested() {
            return Ok(None);
        }
        let unknown = |why: String| {
            Failure::msg(format!("unknown host '{host}': {why}"))
                .hint("use a valid host name or an address: --iperf3 192.0.2.1")
        };
        let addresses = lookup(host, 0).map_err(|error| unknown(error.to_string()))?;
        let to = addresses.first().ok_or_else(|| unknown("no address".into()))?;
        Ok(Some(path::discover_alone(to.ip(), self.path_names)))
    }

    /// Discovers the path to a server, if requested.
    pub(super) fn discover(&self, target: &Target) -> Result<Option<PathReport>, Failure> {
        if !self.is_requested() {
            return Ok(None);
        }
        path::discover(target, self.path_names).map(Some).map_err(session_failure)
    }
}

/// Combines the discovered path with the path MTU that TCP used in the test.
pub(super) fn with_tcp_mtu(found: Option<&PathReport>, evidence: &Evidence) -> Option<PathReport> {
    let mut report = found.cloned()?;
    let pmtu = |end: &lfn_core::wire::measure::EndReport| {
        let info = end.streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
        info.map(|info| info.pmtu_bytes).filter(|&pmtu| pmtu > 0).min()
    };
    report.mtu.near_tcp_pmtu_bytes = pmtu(&evidence.near);
    report.mtu.far_tcp_pmtu_bytes = pmtu(&evidence.far);
    Some(report)
}
