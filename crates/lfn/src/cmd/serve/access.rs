//! Access rights of clients, the audit log and the sandbox.

use std::path::{Path, PathBuf};

use lfn_api::emulator_env;
use lfn_core::session::{Rights, WriteAccess};
use lfn_net::server::audit::AuditLog;
use lfn_net::server::sandbox::{SandboxStatus, restrict};
use lfn_net::server::tokens::file::TokenFile;
use lfn_net::tester::emulated_path_sysctls;

use crate::exit::Failure;
use crate::typed::corrected;

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

    /// Refuses write-only access if no directory is served.
    pub fn check(&self, root: Option<&Path>, tokens: Option<&Path>) -> Result<(), Failure> {
        let flag = match (self.write_only, self.create_only) {
            (true, _) => "--write-only",
            (_, true) => "--create-only",
            _ => return Ok(()),
        };
        let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
        if root.is_some() || token_list.tokens.values().any(|kept| kept.root.is_some()) {
            return Ok(());
        }
        Err(Failure::usage(format!("{flag} needs --root, or a token with a directory"))
            .hint(format!("serve the current directory: {}", corrected("root", "."))))
    }

    /// Opens the audit log.
    pub fn audit(&self) -> Result<Option<AuditLog>, Failure> {
        let Some(path) = &self.audit else { return Ok(None) };
        AuditLog::open(path).map(Some).map_err(|error| {
            let failure = Failure::usage(format!("--audit {}: {error}", path.display()));
            match path.parent().filter(|parent| !parent.exists()) {
                Some(parent) => failure.hint(format!("create the directory: mkdir -p {}", parent.display())),
                None => failure.hint("choose a file that this user may append to, on a disk with free space"),
            }
        })
    }
}

/// Restricts this process to its root, the roots of its tokens and the file of tokens. Must be called before any thread
/// that accesses files. Returns the active restrictions.
pub(super) fn restrict_process(root: Option<&Path>, tokens: Option<&Path>) -> Result<SandboxStatus, Failure> {
    // An invalid file of tokens has been reported before.
    let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
    let roots: Vec<&Path> =
        root.into_iter().chain(token_list.tokens.values().filter_map(|kept| kept.root.as_deref())).collect();
    // The file of tokens is replaced on each change, so access to its directory is needed.
    let state: Vec<&Path> = tokens.and_then(Path::parent).into_iter().collect();
    let tuned = if emulator_env::is_inside() { emulated_path_sysctls() } else { Vec::new() };
    restrict(&roots, &state, &tuned).map_err(|error| Failure::msg(format!("landlock: {error}")))
}
