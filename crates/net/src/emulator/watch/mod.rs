//! What is wanted to be seen of a run while it goes: a log, a live line. Starts them, and ends them with the run.
//!
//! Both run on threads of their own and take from the data path only what it hands out: an observer's view of each packet
//! ([`log`]), a mailbox's snapshot now and then ([`live`]). The account of the whole run is not made here but in the
//! [`ledger`](super::ledger), which there is whether anybody watches or not.

mod live;
mod log;
mod output;

use lfn_core::link::Direction;

use super::EmulateError;
use super::data_path::Forwarder;
use live::LiveThread;
use log::Log;

pub use live::{Live, LiveDirection, LiveFigures};
pub use log::{LogAccount, LogError, LogFile, LogFormat};
pub use output::OutputFile;

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// Every packet, to a file.
    pub log: Option<LogFile>,
    /// Figures, now and then.
    pub live: Option<Live>,
}

/// What watches a run.
pub(super) struct Watchers {
    log: Option<Log>,
    live: Option<LiveThread>,
}

impl Watchers {
    /// Begins to watch what will forward the packets of each path.
    pub(super) fn start(
        wanted: &Watching,
        seed: u64,
        paths: &mut [[Forwarder<'_>; 2]],
    ) -> Result<Watchers, EmulateError> {
        let log = wanted.log.as_ref().map(|file| Log::start(file, paths.len(), seed)).transpose()?;
        if let Some(log) = &log {
            for (path, [forth, back]) in paths.iter_mut().enumerate() {
                forth.watch(log.tap(path, Direction::Forward));
                back.watch(log.tap(path, Direction::Return));
            }
        }
        let mailboxes = || paths.iter().map(|pair| pair.each_ref().map(Forwarder::mailbox)).collect();
        let live = wanted.live.map(|live| LiveThread::start(live, mailboxes())).transpose()?;
        Ok(Watchers { log, live })
    }

    /// Takes the live line away, and waits until the log is written. After the forwarders are gone.
    pub(super) fn finish(self) -> Option<LogAccount> {
        drop(self.live);
        self.log.map(Log::finish)
    }
}
