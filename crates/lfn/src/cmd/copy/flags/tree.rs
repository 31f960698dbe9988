//! What of a tree is listed, and what is kept of it.

use std::ffi::OsString;

use lfn_core::transfer::keep::Keep;
use lfn_core::wire::copy::Pick;

use super::lists::names;
use super::rules::RuleFlags;
use crate::exit::Failure;

/// Which entries, and which of their attributes.
#[derive(clap::Args, Debug)]
pub struct TreeFlags {
    /// Keep everything of a tree: -l -H -p -o -X -A -S
    #[arg(short, long)]
    archive: bool,
    /// Copy symbolic links as links, instead of leaving them out, or following one that is itself a SOURCE
    #[arg(short, long)]
    links: bool,
    /// Keep that several names are one file
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// Keep permission bits whatever the umask, also of what is there already; set-user-ID bits too where root keeps owners
    #[arg(short, long)]
    perms: bool,
    /// Keep user and group, by name where both ends know it; whom one may not give files to is told once
    #[arg(short, long, visible_alias = "owner")]
    owners: bool,
    /// Keep extended attributes: those of users, and for root the others too
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Keep access control lists
    #[arg(short = 'A', long)]
    acls: bool,
    /// Keep holes: zeros are not sent, and take no room
    #[arg(short = 'S', long)]
    sparse: bool,
    #[command(flatten)]
    rules: RuleFlags,
    /// Copy only the names in FILE, relative to the one SOURCE, with the directories on the way; - is standard input
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    files_from: Option<OsString>,
    /// NUL ends a name or pattern in a FILE, not the end of a line
    #[arg(short = '0', long)]
    from0: bool,
}

impl TreeFlags {
    /// As both ends understand it.
    pub fn pick(&self) -> Result<Pick, Failure> {
        let names = self.files_from.as_ref().map(|file| names(file, self.from0)).transpose()?;
        Ok(Pick { keep: self.keep(), rules: self.rules.rules(self.from0)?, names })
    }

    fn keep(&self) -> Keep {
        let all = self.archive;
        Keep {
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
