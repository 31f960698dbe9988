//! Command line of `lfn copy`.

use std::ffi::OsString;

use lfn_api::resolve::ServerResolver;

use super::flags::clean::CleanFlags;
use super::flags::integrity::IntegrityFlags;
use super::flags::overwrite::OverwriteFlags;
use super::flags::progress::ProgressFlags;
use super::flags::queue::QueueFlags;
use super::flags::ranks::RankFlags;
use super::flags::streams::StreamFlags;
use super::flags::stripes::StripeFlags;
use super::flags::tree::TreeFlags;
use crate::cli::output::{OutputArgs, PlotArgs, TextOrLines};
use crate::server_flags::{QueueArgs, SshFlags, TrustArgs, resolver};

/// Copy files and directory trees over parallel streams, verified end to end
///
/// SOURCE and DESTINATION are a local path, NAME:PATH (NAME is saved by `lfn hosts add`, or is `far` inside `lfn
/// emulate`), HOST:PATH or USER@HOST:PATH (ssh starts lfn on that host for this copy; only the binary must be installed
/// there), or a ticket with a path, lfn://TOKEN@HOST:PORT/PATH#FINGERPRINT. All SOURCEs must be on one host. Other
/// users see arguments in `ps`: @-:PATH reads the ticket from standard input, @FILE:PATH from a file. Instead of a
/// file, SOURCE can be random:SIZE or zero:SIZE (generated data), and DESTINATION can be null: (data is verified and
/// discarded). Write a local file with a colon in its name as ./a:b.
///
/// A directory is copied with its contents, into a directory of the same name at the destination. With a trailing slash
/// (dir/) only its contents are copied, as with rsync. Files whose size and modification time already match are
/// skipped. An interrupted copy resumes.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct CopyArgs {
    /// Files and directories to copy, then the destination; in a destination directory, files keep their names
    #[arg(required_unless_present_any = ["clean", "queue_delete"], num_args = 1.., value_names = ["SOURCE", "DESTINATION"])]
    pub(super) places: Vec<OsString>,
    #[command(flatten)]
    pub(super) clean: CleanFlags,
    #[command(flatten)]
    pub(super) overwrite: OverwriteFlags,
    #[command(flatten)]
    pub(super) integrity: IntegrityFlags,
    #[command(flatten)]
    pub(super) tree: TreeFlags,
    #[command(flatten)]
    pub(super) streams: StreamFlags,
    #[command(flatten)]
    pub(super) ranks: RankFlags,
    #[command(flatten)]
    pub(super) queue: QueueFlags,
    #[command(flatten)]
    pub(super) stripes: StripeFlags,
    #[command(flatten)]
    pub(super) ssh: SshFlags,
    #[command(flatten, next_help_heading = "Server")]
    pub(super) trust: TrustArgs,
    #[command(flatten)]
    pub(super) waiting: QueueArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs<TextOrLines>,
    #[command(flatten)]
    pub(super) plot: PlotArgs,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) progress: ProgressFlags,
}

const USAGE: &str = "lfn copy [OPTIONS] SOURCE... DESTINATION
       lfn copy --clean [OPTIONS] [DIRECTORY...]
       lfn copy --queue URL --queue-delete";

const EXAMPLES: &str = "Examples:
  lfn copy field.nc far1:field.nc         far1 is a saved name: lfn hosts add far1 TICKET
  lfn copy far1:runs/field.nc .
  lfn copy field.nc me@there:data/        over ssh, into ~/data on that host
  lfn copy runs far1:archive              the directory runs becomes archive/runs
  lfn copy far1:runs/ .                   only the contents of runs
  lfn copy -a runs far1:archive           preserves owners, links, attributes, holes
  lfn copy 'far1:runs/*.nc' .             the server expands the pattern
  lfn copy random:1GiB far1:null:         tests the path without a disk
  lfn copy --streams 16 --congestion bbr field.nc far1:
  lfn copy --stripe eth1=10.0.1.2 --stripe eth2=10.0.2.2 runs far1:   over two paths
  lfn copy -a runs backup                 between two directories of this host
  lfn copy far1:runs far2:archive         directly between two servers
  lfn copy --queue nats://there/runs runs far1:   with other movers, which run the same command
  lfn copy --plot copy.svg field.nc far1: draws goodput, limits and windows over time
  lfn copy --clean backup                 lists partial files of interrupted copies

The printed digest is the same as that of `b3sum FILE`.
Exit codes: 0 ok, 1 failed, at least in part, 2 usage, 3 incomplete (the same command resumes), 130 interrupted.";

impl CopyArgs {
    pub(super) fn resolver(&self) -> ServerResolver {
        resolver(&self.trust, &self.waiting, &self.ssh)
    }
}
