//! Packet log and live display of a run. Starts both, and stops them at the end of the run.
//!
//! Both run on their own threads. They take from the data path only an observer's view of each packet ([`log`]) and the
//! snapshots of a control channel ([`live`]). The totals of the run are in the [`accuracy`](super::accuracy) report,
//! which exists in every run.

mod course;
mod live;
mod log;
mod output;

use lfn_link::LinkDirection;

use super::data_path::Forwarder;
use super::error::EmulateError;
use course::CourseRecorder;
use live::LiveThread;
use log::Log;

pub use course::{CourseSample, DirectionCourse, PathCourse};
pub use live::{LiveDirection, LiveFigures, LiveOptions};
pub use log::{LogError, LogFiles, LogFormat, LogSummary};
pub use output::OutputFile;

/// Outputs that a run writes while it is running.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Log of every packet.
    pub log: Option<LogFiles>,
    pub live: Option<LiveOptions>,
    /// Records the course of the run.
    pub course: bool,
}

/// Packet log and live display of a running emulation.
pub(super) struct Watchers {
    log: Option<Log>,
    live: Option<LiveThread>,
    course: Option<(CourseRecorder, LiveThread)>,
}

impl Watchers {
    /// Starts to observe the forwarders of each path.
    pub(super) fn start(
        options: &WatchOptions,
        seed: u64,
        paths: &mut [[Forwarder<'_>; 2]],
    ) -> Result<Watchers, EmulateError> {
        let log = options.log.as_ref().map(|file| Log::start(file, paths.len(), seed)).transpose()?;
        if let Some(log) = &log {
            for (path, [forth, back]) in paths.iter_mut().enumerate() {
                forth.set_observer(log.tap(path, LinkDirection::Forward));
                back.set_observer(log.tap(path, LinkDirection::Return));
            }
        }
        let channels = || paths.iter().map(|pair| pair.each_ref().map(Forwarder::channel)).collect();
        let live = options.live.clone().map(|live| LiveThread::start(live, channels())).transpose()?;
        let record = || {
            let recorder = CourseRecorder::default();
            let thread = LiveThread::start(recorder.options(), channels())?;
            Ok::<_, EmulateError>((recorder, thread))
        };
        let course = options.course.then(record).transpose()?;
        Ok(Watchers { log, live, course })
    }

    /// Removes the live display and waits until the log is written. Returns the summary of the log and the course. Call
    /// this after the forwarders have been dropped.
    pub(super) fn finish(self) -> (Option<LogSummary>, Vec<CourseSample>) {
        drop(self.live);
        let course = self.course.map(|(recorder, thread)| {
            drop(thread);
            recorder.finish()
        });
        (self.log.map(Log::finish), course.unwrap_or_default())
    }
}
