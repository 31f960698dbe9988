//! What anybody may do at a server, what account is kept of it, and what the kernel holds it to.

use std::path::{Path, PathBuf};

use lfn_core::session::{Rights, Writing};
use lfn_net::server::audit::Audit;
use lfn_net::server::confine::{Confinement, confine};
use lfn_net::server::tokens::file::TokenFile;
use lfn_net::tester::tuned_on_an_emulated_path;

use crate::emulated;
use crate::exit::Failure;

/// Flags that bound what is done at --root.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "What clients may do")]
pub(super) struct Safety {
    /// Copies from --root only: nothing is stored, replaced or removed
    #[arg(long, conflicts_with_all = ["write_only", "drop_box"])]
    read_only: bool,
    /// Copies to --root only: nothing is listed or read, and of what is there clients learn that a name is taken
    #[arg(long, conflicts_with_all = ["drop_box", "stdio"])]
    write_only: bool,
    /// Copies to --root only, each into a new directory of its own: nothing that is there can be replaced or learnt of
    #[arg(long, conflicts_with = "stdio")]
    drop_box: bool,
    /// Dial other servers where a client asks this one to send there (`lfn copy THIS:PATH OTHER:PATH`); whoever may read
    /// here can then have connections made from this host
    #[arg(long)]
    third_party: bool,
    /// Keep account of every session in this file, one JSON object a line; if it cannot be written nobody is served
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
}

impl Safety {
    /// Whether it sends to others.
    pub fn third_party(&self) -> bool {
        self.third_party
    }

    /// What anybody may do here.
    pub fn rights(&self) -> Rights {
        let (read, write) = match (self.read_only, self.write_only, self.drop_box) {
            (true, ..) => (true, Writing::No),
            (_, true, _) => (false, Writing::Yes),
            (.., true) => (false, Writing::Drop),
            _ => (true, Writing::Yes),
        };
        Rights { test: true, read, write }
    }

    /// Whether there is anywhere that clients could write to, where they are to do nothing else.
    pub fn check(&self, root: Option<&Path>, tokens: Option<&Path>) -> Result<(), Failure> {
        let flag = match (self.write_only, self.drop_box) {
            (true, _) => "--write-only",
            (_, true) => "--drop-box",
            _ => return Ok(()),
        };
        let given = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
        if root.is_some() || given.tokens.values().any(|kept| kept.root.is_some()) {
            return Ok(());
        }
        Err(Failure::usage(format!("{flag} without --root: there is nowhere to write to"))
            .hint(format!("lfn serve {flag} --root DIR")))
    }

    /// The audit log, opened.
    pub fn audit(&self) -> Result<Option<Audit>, Failure> {
        let Some(path) = &self.audit else { return Ok(None) };
        Audit::open(path).map(Some).map_err(|error| {
            Failure::msg(format!("--audit {}: {error}", path.display()))
                .hint("give a file that this user may append to, on a disk with room")
        })
    }
}

/// Confines this process to its root, those of its tokens, and the file they are in; comes before any thread that touches
/// files. Tells what holds.
pub(super) fn hold(root: Option<&Path>, tokens: Option<&Path>) -> Result<Confinement, Failure> {
    // A file of tokens that is no good was told already.
    let given = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
    let roots: Vec<&Path> =
        root.into_iter().chain(given.tokens.values().filter_map(|kept| kept.root.as_deref())).collect();
    // It is replaced by another file: what can be read is its directory.
    let state: Vec<&Path> = tokens.and_then(Path::parent).into_iter().collect();
    let tuned = if emulated::is_inside() { tuned_on_an_emulated_path() } else { Vec::new() };
    confine(&roots, &state, &tuned).map_err(|error| Failure::msg(format!("landlock: {error}")))
}
