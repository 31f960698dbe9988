//! Flags that select entries of a tree, and the attributes to preserve.

use std::ffi::OsString;

use lfn_session::wire::copy::Selection;
use lfn_session::wire::copy::preserve::Preserve;

use super::lists::read_names;
use super::rules::RuleFlags;
use crate::exit::Failure;

/// Entries to copy, and their attributes.
#[derive(clap::Args, Debug)]
pub struct TreeFlags {
    /// Preserve everything: -l -H -p -o -X -A -S
    #[arg(short, long)]
    archive: bool,
    /// Copy symbolic links as links [default: skip them, but follow a SOURCE that is a link]
    #[arg(short, long)]
    links: bool,
    /// Preserve hard links between the copied files
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// Preserve permissions, regardless of the umask
    ///
    /// Permissions of existing files are changed too. Set-user-ID bits are preserved only by root with --owners.
    #[arg(short, long)]
    perms: bool,
    /// Preserve user and group, by name if both ends know it, else by number
    ///
    /// Without root, only groups you belong to can be set. lfn reports the number of other files, and this is not an
    /// error.
    #[arg(short, long, visible_alias = "owner")]
    owners: bool,
    /// Preserve extended attributes of users; as root, all extended attributes
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Preserve ACLs (access control lists)
    #[arg(short = 'A', long)]
    acls: bool,
    /// Turn blocks of zeros into holes: they are not sent and take no disk space
    #[arg(short = 'S', long)]
    sparse: bool,
    #[command(flatten)]
    rules: RuleFlags,
    /// Copy only the names listed in FILE, relative to the one SOURCE; - reads standard input
    ///
    /// The directories above each name are copied too.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    files_from: Option<OsString>,
    /// Separate the names and patterns of a FILE by NUL instead of newline
    #[arg(short = '0', long)]
    from0: bool,
}

impl TreeFlags {
    /// Returns the selection in the form of the protocol.
    pub fn selection(&self) -> Result<Selection, Failure> {
        let names = self.files_from.as_ref().map(|file| read_names(file, self.from0)).transpose()?;
        Ok(Selection { preserve: self.preserve(), rules: self.rules.rules(self.from0)?, names })
    }

    fn preserve(&self) -> Preserve {
        let all = self.archive;
        Preserve {
            links: all || self.links,
            hard_links: all || self.hard_links,
            modes: all || self.perms,
            owners: all || self.owners,
            xattrs: all || self.xattrs,
            acls: all || self.acls,
            sparse: all || self.sparse,
        }
    }
}
