//! `lfn serve --stamp`: a STAMP reflector in the same process.

use std::path::PathBuf;

use lfn_api::serve::StampReflectorOptions;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "STAMP reflector (RFC 8762)")]
pub(super) struct StampServeArgs {
    /// Reflect STAMP and TWAMP Light packets on this UDP port [default port: 862, which needs root]
    ///
    /// --allow and --deny apply to the senders.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "862")]
    stamp: Option<u16>,
    /// Accept only packets that are authenticated with the key in this file
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
    /// Do not count packets; senders then cannot see in which direction a packet was lost
    #[arg(long, requires = "stamp")]
    stamp_stateless: bool,
}

impl StampServeArgs {
    /// Returns the options of the reflector, if requested.
    pub(super) fn options(&self) -> Option<StampReflectorOptions> {
        Some(StampReflectorOptions {
            port: self.stamp?,
            key: self.stamp_key.clone(),
            is_stateful: !self.stamp_stateless,
        })
    }
}
