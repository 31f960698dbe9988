//! Access rights of clients, and the audit log.

use std::path::PathBuf;

use lfn_session::{Rights, WriteAccess};

/// Flags that restrict clients below --root.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "What clients may do")]
pub(super) struct AccessArgs {
    /// Allow only copies from --root: clients cannot store, replace or delete files
    #[arg(long, conflicts_with_all = ["write_only", "create_only"])]
    read_only: bool,
    /// Allow only copies to --root: clients cannot list or read files, and learn only whether a name is in use
    #[arg(long, conflicts_with_all = ["create_only", "stdio"])]
    write_only: bool,
    /// Allow only copies to --root, each into its own new directory: existing files cannot be replaced or seen
    #[arg(long, conflicts_with = "stdio")]
    create_only: bool,
    /// Send to other servers if a client requests a third-party copy (`lfn copy THIS:PATH OTHER:PATH`)
    ///
    /// Every client that may read files here can then make this host open connections.
    #[arg(long)]
    third_party: bool,
    /// Write an audit log of all sessions to FILE, one JSON object per line
    ///
    /// If FILE cannot be written, all sessions are refused.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
}

impl AccessArgs {
    /// Reports whether the server may send to other servers.
    pub fn third_party(&self) -> bool {
        self.third_party
    }

    /// Returns the rights that no token can exceed.
    pub fn rights(&self) -> Rights {
        let (read, write) = match (self.read_only, self.write_only, self.create_only) {
            (true, ..) => (true, WriteAccess::No),
            (_, true, _) => (false, WriteAccess::Yes),
            (.., true) => (false, WriteAccess::CreateOnly),
            _ => (true, WriteAccess::Yes),
        };
        Rights { test: true, read, write }
    }

    /// Returns the file of the audit log.
    pub fn audit(&self) -> Option<PathBuf> {
        self.audit.clone()
    }
}
