//! Flags of a server that `lfn copy` or `lfn test` starts over ssh.

use lfn_api::ssh::PortRange;

/// Flags of a server started over ssh.
#[derive(clap::Args, Debug)]
pub(super) struct StdioArgs {
    /// Serve one copy or test over ssh; `lfn copy` and `lfn test` start this mode
    ///
    /// Uses a new key and token and saves nothing. The client can copy all that this user may read and write. The
    /// server ends when standard input closes.
    #[arg(long, conflicts_with_all = ["root", "config", "insecure", "new_token", "metrics"], help_heading = "Started over ssh")]
    stdio: bool,
    /// With --stdio: listen on the first free port of this range [default: any free port]
    #[arg(long, value_name = "FIRST-LAST", requires = "stdio", help_heading = "Started over ssh")]
    pub(super) ports: Option<PortRange>,
}

impl StdioArgs {
    /// Reports whether --stdio is set.
    pub(super) fn is_enabled(&self) -> bool {
        self.stdio
    }
}
