//! Flag of the progress.

/// Flag of the progress.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ProgressFlags {
    /// Show the progress: on a terminal as one line, otherwise as a line of text every 5 seconds
    ///
    /// On a terminal this is the default, except with --quiet.
    #[arg(long)]
    pub progress: bool,
}
