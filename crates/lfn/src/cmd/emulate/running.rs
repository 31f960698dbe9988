//! `lfn emulate set` and `lfn emulate show`: an emulated path that runs already.

use lfn_core::link::settings::HopSettings;

use crate::exit::{Exit, Failure};

/// What to do with a path that runs already.
#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// Change a link while it runs: lfn emulate set rate=50mbit forward-loss=1e-3
    Set(SetArgs),
    /// Say what a running link is set to
    Show(ShowArgs),
}

/// Which of the running paths.
#[derive(clap::Args, Debug)]
pub struct Which {
    /// Process id of the lfn emulate that is meant [default: the only one there is]
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
    /// Number of the path, if there are several side by side
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub path: u32,
    /// Number of the link in the path, if there are several in a row [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hop: Option<u32>,
}

/// Change a link while it runs
///
/// The settings are those of lfn emulate's flags, without the dashes; what is not named stays as it is. Packets in
/// flight go on as they were.
#[derive(clap::Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    which: Which,
    /// Settings, each for both directions or with forward- or return- for one
    #[arg(required = true, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    settings: Vec<String>,
}

/// Say what a running link is set to
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    which: Which,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(action: Action) -> Result<Exit, Failure> {
    match action {
        Action::Set(args) => {
            let change = args.change()?;
            let Which { run, path, hop } = args.which;
            Err(super::unwired(&format!("set {change} (run {run:?}, path {path}, hop {hop:?})")))
        }
        Action::Show(args) => {
            let Which { run, path, hop } = args.which;
            Err(super::unwired(&format!("show (run {run:?}, path {path}, hop {hop:?}, JSON {})", args.json)))
        }
    }
}

impl SetArgs {
    /// What is to change.
    fn change(&self) -> Result<HopSettings, Failure> {
        let mut change = HopSettings::default();
        for pair in &self.settings {
            change
                .set_pair(pair)
                .map_err(|error| Failure::usage(&error).hint(format!("lfn emulate set {}", error.hint())))?;
        }
        Ok(change)
    }
}
