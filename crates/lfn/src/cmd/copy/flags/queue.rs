//! Flags of a copy whose files come from a queue that many movers share.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use lfn_api::copy::QueueOptions;
use lfn_base::units::{parse_unit_duration, show_duration};
use lfn_queue::proto::address::QueueAddress;

use crate::exit::Failure;

/// Shortest and longest lease.
const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// Default of `--patience` with a queue.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(600);

/// Flags of a copy whose files come from a queue.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Many movers")]
pub struct QueueFlags {
    /// Share the files with all movers that run the same command, over a queue of a NATS server with JetStream
    ///
    /// URL is nats://HOST:PORT/NAME or tls://HOST:PORT/NAME, with USER:PASSWORD@ if needed. The first mover writes the
    /// list of files. Each mover leases files, copies them and records them. Files of a mover that fails go to others.
    #[arg(long, value_name = "URL")]
    queue: Option<String>,
    /// Read the credentials for the queue from FILE (.creds of NATS)
    #[arg(long, value_name = "FILE", requires = "queue")]
    queue_credentials: Option<PathBuf>,
    /// Delete the list and the records of the queue on its server; the copied files stay
    #[arg(long, requires = "queue", conflicts_with_all = ["places", "clean"])]
    pub queue_delete: bool,
    /// Give the files of a silent mover to others after this time; the first mover decides for all
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "queue", value_parser = parse_unit_duration)]
    lease: Duration,
}

/// Returns a name of this process for records: the host, the process and the time.
fn mover_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{host}:{}:{:x}", std::process::id(), now.as_nanos())
}

impl QueueFlags {
    /// Returns the settings of the queue. `None` if this host copies alone.
    pub fn options(&self, patience: Option<Duration>) -> Result<Option<QueueOptions>, Failure> {
        let Some(url) = &self.queue else { return Ok(None) };
        let address: QueueAddress = url.parse().map_err(|error| {
            Failure::usage(format!("--queue: {error}")).hint("write the queue as nats://HOST:4222/NAME")
        })?;
        if self.lease < MIN_LEASE || self.lease > MAX_LEASE {
            let [lease, least, most] = [self.lease, MIN_LEASE, MAX_LEASE].map(show_duration);
            return Err(Failure::usage(format!("--lease {lease}: expected {least} to {most}")).hint("--lease 30s"));
        }
        Ok(Some(QueueOptions {
            address,
            credentials: self.queue_credentials.clone(),
            lease: self.lease,
            patience: patience.unwrap_or(DEFAULT_PATIENCE),
            mover: mover_name(),
        }))
    }
}
