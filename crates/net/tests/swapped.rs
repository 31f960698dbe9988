//! Directories and links that change places while a server looks up paths through them: nothing outside the root is read
//! or written, however often it is tried.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::verdict::Allowed;
use lfn_core::wire::copy::{From, To};
use lfn_net::server::Config;
use lfn_net::service;
use lfn_net::transfer::{LocalDestination, LocalSource, Options, download, upload};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use support::Served;

/// How long it is tried.
const LONG: Duration = Duration::from_secs(2);

/// Swaps the two names until it is stopped; tells how often.
fn swap(one: &Path, other: &Path, stop: &AtomicBool) -> u64 {
    let mut swapped = 0;
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        swapped += 1;
    }
    swapped
}

/// Stops the swapping however a test ends.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` again and again while `in/d` and a link that leads out of the root change places.
fn while_swapped(work: impl Fn(&Served, &Path, u32)) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    for directory in [root.join("in/d/e"), outside.join("e")] {
        fs::create_dir_all(&directory).unwrap();
    }
    fs::write(root.join("in/d/x"), "inside").unwrap();
    fs::write(outside.join("x"), "secret").unwrap();
    symlink("../../outside", root.join("in/l")).unwrap();
    let served = Served::start(Config { root: Some(root.clone()), ..support::config() }, service::serve);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let swaps = scope.spawn(|| swap(&root.join("in/d"), &root.join("in/l"), &stop));
        let stops = Stops(&stop);
        let started = Instant::now();
        let mut tries = 0;
        while started.elapsed() < LONG {
            work(&served, place.path(), tries);
            tries += 1;
        }
        drop(stops);
        assert!(swaps.join().unwrap() > 0 && tries > 0);
    });
    place
}

#[test]
fn no_upload_gets_out_through_a_link_that_was_a_directory() {
    let stored = AtomicBool::new(false);
    let place = while_swapped(|served, place, number| {
        // A tree of which the directory in the middle is swapped, and a single file behind it.
        let source = place.join("source");
        fs::create_dir_all(source.join("in/d/e")).unwrap();
        for file in 0..20 {
            fs::write(source.join(format!("in/d/{number}-{file}")), "payload").unwrap();
            fs::write(source.join(format!("in/d/e/{number}-{file}")), "payload").unwrap();
        }
        // A link is not to be replaced: it would lead nowhere any more. Of the single file there may be one already.
        for (from, path, single) in
            [(source.join("in/"), "in", false), (source.join(format!("in/d/{number}-0")), "in/d/single", true)]
        {
            // With its slash it is what is in it that is copied.
            let from = if single { from } else { format!("{}/", from.display()).into() };
            let allowed = Allowed { force: single, ..Allowed::default() };
            let to = To::File { path: path.into(), allowed, single, keep: Default::default() };
            let options = Options { streams: 1, ..Options::default() };
            if upload(&served.target(), &[LocalSource::File(from)], to, &options, support::watch())
                .is_ok_and(|o| o.tally.files > 0)
            {
                stored.store(true, Ordering::Relaxed);
            }
        }
        fs::remove_dir_all(source).unwrap();
    });
    let names = |directory: &str| {
        let entries = fs::read_dir(place.path().join(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("outside"), ["e", "x"]);
    assert_eq!(names("outside/e"), [""; 0]);
    assert_eq!(fs::read(place.path().join("outside/x")).unwrap(), b"secret");
    assert!(stored.into_inner(), "nothing was stored at all: the test tries nothing");
}

#[test]
fn no_download_comes_in_through_a_link_that_was_a_directory() {
    let fetched = AtomicBool::new(false);
    while_swapped(|served, place, _| {
        for path in ["in/d/x", "in/d/", "in"] {
            let to = place.join("got");
            fs::create_dir_all(&to).unwrap();
            let from = vec![From::File { path: path.into() }];
            let options = support::one_stream_with_links();
            let destination = LocalDestination::File { path: to.clone(), allowed: Allowed::default() };
            let _ = download(&served.target(), from, &destination, &options, support::watch());
            for name in ["x", "d/x", "in/d/x", "in/l/x", "l/x"] {
                // A link that was copied as one leads to nowhere here, or out of it: only files count.
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
