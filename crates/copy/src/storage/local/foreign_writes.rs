//! Notices other processes that open a partial file while this copy writes it.
//!
//! This copy opens each partial file once and changes its times with every block. So neither the times nor the events
//! of a change show a foreign write, but a second opening does (inotify(7), `IN_OPEN`). A file that another process
//! opened is read again before it gets its final name.
//!
//! A process that had the file open before, and does not close it, is not noticed. A client of the same network file
//! system on another host is not noticed either.

use std::collections::BTreeMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// The watches of all partial files of one storage. They use one descriptor.
#[derive(Debug, Default)]
pub(super) struct ForeignWrites(Mutex<Watches>);

#[derive(Debug, Default)]
struct Watches {
    /// `None` before the first file, and if the user has too many of these descriptors.
    inotify: Option<OwnedFd>,
    accesses: BTreeMap<i32, ForeignAccess>,
}

/// Access of other processes to a partial file, in increasing order of suspicion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ForeignAccess {
    #[default]
    None,
    /// Another process opened the file, perhaps only for reading.
    Opened,
    /// Another process opened the file for writing.
    OpenedForWriting,
}

/// The watch of one partial file.
#[derive(Debug)]
pub(super) struct FileWatch {
    all: Arc<ForeignWrites>,
    number: i32,
}

impl ForeignWrites {
    /// Starts to watch a file. `None` if the kernel allows no further watch.
    pub(super) fn watch(self: &Arc<Self>, file: &File) -> Option<FileWatch> {
        let mut watches = self.0.lock();
        if watches.inotify.is_none() {
            watches.inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let number =
            inotify::add_watch(watches.inotify.as_ref()?, path, WatchFlags::OPEN | WatchFlags::CLOSE_WRITE).ok()?;
        watches.accesses.insert(number, ForeignAccess::None);
        drop(watches);
        Some(FileWatch { all: self.clone(), number })
    }
}

impl FileWatch {
    /// Returns the access of other processes since the watch began.
    pub(super) fn foreign_access(&self) -> ForeignAccess {
        let mut watches = self.all.0.lock();
        watches.read_events();
        watches.accesses.get(&self.number).copied().unwrap_or_default()
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let mut watches = self.all.0.lock();
        watches.accesses.remove(&self.number);
        if let Some(inotify) = &watches.inotify {
            let _ = inotify::remove_watch(inotify, self.number);
        }
    }
}

impl Watches {
    fn read_events(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Events of any file may be lost.
                self.accesses.values_mut().for_each(|access| *access = ForeignAccess::OpenedForWriting);
            }
            let Some(access) = self.accesses.get_mut(&event.wd()) else { continue };
            if events.contains(ReadFlags::CLOSE_WRITE) {
                *access = ForeignAccess::OpenedForWriting;
            } else if events.contains(ReadFlags::OPEN) {
                *access = ForeignAccess::Opened.max(*access);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn own_writes_are_no_foreign_access() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        let file = File::create(&path).unwrap();
        let writes = Arc::new(ForeignWrites::default());
        let watch = writes.watch(&file).unwrap();
        std::io::Write::write_all(&mut &file, b"own").unwrap();
        drop(file.try_clone().unwrap());
        fs::rename(&path, home.path().join("b")).unwrap();
        assert_eq!(watch.foreign_access(), ForeignAccess::None);
        drop(File::open(home.path().join("b")).unwrap());
        assert_eq!(watch.foreign_access(), ForeignAccess::Opened);
        fs::write(home.path().join("b"), b"foreign").unwrap();
        assert_eq!(watch.foreign_access(), ForeignAccess::OpenedForWriting);
        drop(watch);
        assert_eq!(writes.watch(&file).unwrap().foreign_access(), ForeignAccess::None);
    }
}
