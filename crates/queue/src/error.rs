//! Reasons why a queue cannot be used.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lfn_base::units::show_duration;

use crate::proto::header::Difference;

/// Reason why a queue cannot be used. No text contains a password.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("cannot start the client of the queue: {0}")]
    Thread(io::Error),
    #[error("cannot create the id of the manifest: {0}")]
    Random(io::Error),
    #[error("cannot read the credentials {}: {source}", .path.display())]
    Credentials { path: PathBuf, source: io::Error },
    #[error("cannot connect to {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("{server} refuses the user, the password or the credentials")]
    Denied { server: String },
    #[error("{server} has no JetStream")]
    NoJetStream { server: String },
    #[error("cannot {doing} at {server} for {}: {reason}", show_duration(*.after))]
    Away { server: String, after: Duration, doing: &'static str, reason: String },
    #[error("{server} refuses to {doing}: {reason}")]
    Refused { server: String, doing: &'static str, reason: String },
    #[error("the queue {name} has an invalid {object}: {reason}")]
    Invalid { name: String, object: String, reason: String },
    #[error(
        "the queue {name} belongs to another copy: its {} is '{}', and that of this command is '{}'",
        .difference.setting, .difference.queue, .difference.command
    )]
    OtherCopy { name: String, difference: Difference },
    #[error("the queue {name} was deleted or replaced")]
    Replaced { name: String },
    #[error("the manifest has more than {max} parts of 64 MB or 1,000 files")]
    TooLarge { max: u32 },
    #[error("interrupted")]
    Interrupted,
}

impl QueueError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            QueueError::Unreachable { .. } => "start the server: nats-server --jetstream --store_dir DIRECTORY",
            QueueError::NoJetStream { .. } => "start the server with JetStream: nats-server --jetstream",
            QueueError::Denied { .. } => {
                "give the user and the password, nats://USER:PASSWORD@HOST/NAME, or --queue-credentials FILE"
            }
            QueueError::OtherCopy { .. } => "use another name of the queue for another copy",
            QueueError::Away { .. } => "run the same command again: it resumes; --patience waits longer",
            QueueError::Replaced { .. } => "run the same command again",
            QueueError::TooLarge { .. } => "use several queues, one for each part of the tree",
            QueueError::Credentials { .. } => "give the .creds file of the NATS user: --queue-credentials FILE",
            QueueError::Thread(_)
            | QueueError::Random(_)
            | QueueError::Refused { .. }
            | QueueError::Invalid { .. }
            | QueueError::Interrupted => return None,
        };
        Some(hint.to_owned())
    }
}
