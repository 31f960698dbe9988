//! Waiting for the files of a model.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Maximum wait without a notice of the kernel. The ends of the model and of the run are seen after this time.
const WATCHED_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Interval of looks at the directory if the kernel gives no notices.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Notices of new files in a directory (`inotify(7)`). Without inotify, the directory is polled.
pub(super) struct DirectoryWatch {
    inotify: Option<OwnedFd>,
}

impl DirectoryWatch {
    pub(super) fn new(directory: &Path) -> Self {
        let open = || {
            let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let events = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::CLOSE_WRITE;
            inotify::add_watch(&inotify, directory, events)?;
            Ok::<_, rustix::io::Errno>(inotify)
        };
        DirectoryWatch { inotify: open().ok() }
    }

    /// Waits for a change of the directory, at most a few milliseconds. The caller looks for its files again. Returns true if the
    /// kernel gave a notice of a change.
    pub(super) fn wait(&self) -> bool {
        let Some(inotify) = &self.inotify else {
            thread::sleep(POLL_INTERVAL);
            return false;
        };
        // An interrupted wait is a short wait.
        let _ = poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&WATCHED_INTERVAL));
        let mut events = [0; 4096];
        let mut is_changed = false;
        while rustix::io::read(inotify, &mut events).is_ok_and(|count| count > 0) {
            is_changed = true;
        }
        is_changed
    }
}
