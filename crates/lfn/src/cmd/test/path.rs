//! `lfn test --path`: discovers the hops and the path MTU before the load.

use lfn_api::test::PathDiscovery;

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
    /// Returns the options of path discovery, if requested.
    pub(super) fn discovery(&self) -> Option<PathDiscovery> {
        (self.path || self.path_names).then_some(PathDiscovery { names: self.path_names })
    }
}
