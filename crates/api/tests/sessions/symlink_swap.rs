//! Directories and links that swap names while a server resolves paths through them. The server must not read or write
//! outside the root, however often this is tried.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_copy::{CopyOptions, LocalDestination, LocalSource, download, upload};
use lfn_session::server::ServerConfig;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::{RemoteDestination, RemoteSource};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use support::TestServer;

use crate::support;

/// Duration of the attempts.
const DURATION: Duration = Duration::from_secs(2);

/// Swaps the two names until `stop`. Returns the number of swaps.
fn swap(one: &Path, other: &Path, stop: &AtomicBool) -> u64 {
    let mut swapped = 0;
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        swapped += 1;
    }
    swapped
}

/// Stops the swapping at the end of a test, also after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` repeatedly while `in/d` and a link out of the root swap their names.
fn with_swapped_directories(work: impl Fn(&TestServer, &Path, u32)) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let (root, outside) = (temp.path().join("root"), temp.path().join("outside"));
    for directory in [root.join("in/d/e"), outside.join("e")] {
        fs::create_dir_all(&directory).unwrap();
    }
    fs::write(root.join("in/d/x"), "inside").unwrap();
    fs::write(outside.join("x"), "secret").unwrap();
    symlink("../../outside", root.join("in/l")).unwrap();
    let served = TestServer::start(ServerConfig { root: Some(root.clone()), ..support::config() }, service::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let swaps = scope.spawn(|| swap(&root.join("in/d"), &root.join("in/l"), &stop));
        let stopper = StopOnDrop(&stop);
        let started = Instant::now();
        let mut tries = 0;
        while started.elapsed() < DURATION {
            work(&served, temp.path(), tries);
            tries += 1;
        }
        drop(stopper);
        assert!(swaps.join().unwrap() > 0 && tries > 0);
    });
    temp
}

#[test]
fn upload_cannot_leave_the_root_by_a_swapped_link() {
    let stored = AtomicBool::new(false);
    let temp = with_swapped_directories(|served, temp, number| {
        // A tree with a swapped directory in the middle, and a single file below that directory.
        let source = temp.join("source");
        fs::create_dir_all(source.join("in/d/e")).unwrap();
        for file in 0..20 {
            fs::write(source.join(format!("in/d/{number}-{file}")), "payload").unwrap();
            fs::write(source.join(format!("in/d/e/{number}-{file}")), "payload").unwrap();
        }
        // A copy must not replace the link, or the link would lead nowhere. The single file may exist already.
        for (from, path, single) in
            [(source.join("in/"), "in", false), (source.join(format!("in/d/{number}-0")), "in/d/single", true)]
        {
            // With the slash, the contents of the directory are copied.
            let from = if single { from } else { format!("{}/", from.display()).into() };
            let allowed = OverwritePolicy { force: single, ..OverwritePolicy::default() };
            let to = RemoteDestination::File { path: path.into(), allowed, single, preserve: Default::default() };
            let options = CopyOptions { streams: 1, ..CopyOptions::default() };
            if upload(&served.target(), &[LocalSource::File(from)], to, &options, support::observer())
                .is_ok_and(|o| o.tally.files > 0)
            {
                stored.store(true, Ordering::Relaxed);
            }
        }
        fs::remove_dir_all(source).unwrap();
    });
    let names = |directory: &str| {
        let entries = fs::read_dir(temp.path().join(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("outside"), ["e", "x"]);
    assert_eq!(names("outside/e"), [""; 0]);
    assert_eq!(fs::read(temp.path().join("outside/x")).unwrap(), b"secret");
    assert!(stored.into_inner(), "nothing was stored at all: the test tries nothing");
}

#[test]
fn download_cannot_read_through_a_swapped_link() {
    let fetched = AtomicBool::new(false);
    with_swapped_directories(|served, temp, _| {
        for path in ["in/d/x", "in/d/", "in"] {
            let to = temp.join("got");
            fs::create_dir_all(&to).unwrap();
            let from = vec![RemoteSource::File { path: path.into() }];
            let options = support::one_stream_with_links();
            let destination = LocalDestination::File { path: to.clone(), allowed: OverwritePolicy::default() };
            let _ = download(&served.target(), from, &destination, &options, support::observer());
            for name in ["x", "d/x", "in/d/x", "in/l/x", "l/x"] {
                // A copied link leads nowhere here, or out of the directory. Only files count.
                let path = to.join(name);
                let linked = path.parent().is_some_and(|parent| parent.is_symlink());
                if let (false, Ok(text)) = (linked, fs::read_to_string(&path)) {
                    assert_eq!(text, "inside", "{name}");
                    fetched.store(true, Ordering::Relaxed);
                }
            }
            fs::remove_dir_all(to).unwrap();
        }
    });
    assert!(fetched.into_inner(), "nothing was fetched at all: the test tries nothing");
}
