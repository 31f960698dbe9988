//! Rates of the server's disk: only below its root, with the rights and limits of a copy, and without a trace.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_api::service;
use lfn_base::random_data::fill_random;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::TransferError;
use lfn_copy::disk::{DiskError, measure_local, measure_remote};
use lfn_results::evidence::disk::DiskReport;
use lfn_session::SessionError;
use lfn_session::dial;
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::{ServerConfig, ServerSession};
use lfn_session::wire::disk::DiskRequest;
use lfn_session::wire::{Refusal, RefusalCode, Request};
use lfn_sys::process;
use serde_json::json;

use crate::support::{self, TestServer, wait_until};

/// Time of the reads and of the writes.
const TIME: Duration = Duration::from_millis(300);

/// A server with a directory `root` and a directory `outside` next to it.
struct DiskServer {
    temp: tempfile::TempDir,
    served: TestServer,
}

impl DiskServer {
    fn new(rights: &str, limits: ServerLimits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("root/a")).unwrap();
        fs::create_dir(temp.path().join("outside")).unwrap();
        let root = Some(temp.path().join("root"));
        let config = ServerConfig { root, limits, rights: rights.parse().unwrap(), ..support::config() };
        DiskServer { served: TestServer::start(config, service::new()), temp }
    }

    fn with(rights: &str) -> Self {
        DiskServer::new(rights, ServerLimits::default())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    fn measure(&self, path: &str) -> Result<DiskReport, DiskError> {
        measure_remote(&self.served.target(), path.into(), TIME, &AtomicBool::new(false))
    }

    /// Returns the refusal of a path.
    fn refusal(&self, path: &str) -> Refusal {
        match self.measure(path).unwrap_err() {
            DiskError::Transfer(TransferError::Session(SessionError::Refused(refusal))) => refusal,
            other => panic!("{path}: {other:?}"),
        }
    }
}

/// Writes a file of 16 MiB without holes.
fn write_large_file(path: &Path) {
    let mut data = vec![0; 16 << 20];
    fill_random(1, 0, &mut data);
    fs::write(path, data).unwrap();
}

/// Returns true if this process has an open file below the directory, also one without a name.
fn has_open_file(directory: &Path) -> bool {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.into_iter().any(|link| link.starts_with(directory) && link != directory && link != directory.join("a"))
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn disk_below_the_root_is_written_and_read() {
    let server = DiskServer::with("read,write");
    let report = server.measure("a").unwrap();
    let (read, write) = (report.read.unwrap(), report.write.unwrap());
    assert!(read.rate > BitRate(0) && write.rate > BitRate(0) && write.bytes.0 % (1 << 20) == 0, "{report:?}");
    assert!(read.min <= read.median && write.min <= write.median, "{report:?}");
    assert_eq!((report.block, report.not_read, report.not_written), (Bytes(1 << 20), None, None));
    assert!(report.file_system.is_some() && report.free.is_some());
    assert!(is_empty(&server.path("root/a")));
    let log = server.served.log.lock();
    assert!(log.iter().any(|event| event.contains("\"disk\"") && event.contains("[\"a\"]")), "{log:?}");
}

#[test]
fn no_path_leaves_the_root() {
    let server = DiskServer::with("read,write");
    write_large_file(&server.path("outside/file"));
    symlink(server.path("outside"), server.path("root/out")).unwrap();
    symlink("../outside/file", server.path("root/file")).unwrap();
    symlink("a", server.path("root/in")).unwrap();
    for path in ["..", "../outside", "a/../../outside", "/", "/etc", "out", "out/file", "file", "/proc/self/cwd"] {
        assert_eq!(server.refusal(path).code, RefusalCode::Forbidden, "{path}");
    }
    assert_eq!(server.refusal("missing").code, RefusalCode::NotFound);
    assert!(server.measure("in").unwrap().write.is_some(), "a link that stays below the root");
    assert!(server.measure("").unwrap().write.is_some(), "the root itself");
    assert_eq!(fs::read_dir(server.path("outside")).unwrap().count(), 1);
}

#[test]
fn read_only_server_reads_an_existing_file() {
    let server = DiskServer::with("read,test");
    let empty = server.measure("a").unwrap();
    assert!(empty.not_written.as_deref().is_some_and(|reason| reason.contains("does not allow writing")), "{empty:?}");
    assert!(empty.not_read.as_deref().is_some_and(|reason| reason.contains("no readable file")), "{empty:?}");
    assert_eq!((empty.read, empty.write), (None, None));
    write_large_file(&server.path("root/a/file"));
    fs::write(server.path("root/a/small"), "x").unwrap();
    let before = fs::metadata(server.path("root/a/file")).unwrap().modified().unwrap();
    for path in ["a", "a/file"] {
        let report = server.measure(path).unwrap();
        assert!(report.read.is_some() && report.write.is_none(), "{path}: {report:?}");
        assert_eq!(report.not_written.is_none(), path == "a/file", "a file is only read");
    }
    assert!(server.measure("a/small").unwrap().not_read.is_some_and(|reason| reason.contains("16.78 MB needed")));
    assert_eq!(fs::metadata(server.path("root/a/file")).unwrap().modified().unwrap(), before);
}

#[test]
fn write_only_client_learns_nothing() {
    for rights in ["create", "write", "create,test"] {
        let server = DiskServer::with(rights);
        write_large_file(&server.path("root/secret"));
        let report = server.measure("").unwrap();
        assert!(report.write.is_some(), "{rights}: {report:?}");
        assert_eq!((report.read, report.file_system, report.rotational, report.free), (None, None, None, None));
        assert!(report.not_read.is_some());
        let refusals = ["secret", "missing", "a", "..", "/etc"].map(|path| server.refusal(path));
        assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{rights}: {refusals:?}");
        assert_eq!(refusals[0].message, "this ticket does not allow measurements of a path below the served root");
        assert_eq!(fs::read_dir(server.path("root")).unwrap().count(), 2, "{rights}: only `a` and `secret`");
    }
}

#[test]
fn disk_needs_the_right_to_read_or_write() {
    let server = DiskServer::with("test");
    for path in ["", "a", "missing", ".."] {
        let refusal = server.refusal(path);
        assert_eq!(refusal.code, RefusalCode::Forbidden);
        assert_eq!(refusal.message, "this server does not allow measurements of the disk; allowed: test");
    }
    let without_root = TestServer::start(support::config(), service::new());
    let refused = measure_remote(&without_root.target(), "".into(), TIME, &AtomicBool::new(false)).unwrap_err();
    assert!(refused.to_string().contains("this server serves no files"), "{refused}");
}

#[test]
fn limits_of_the_server_hold() {
    let with = |change: fn(&mut ServerLimits)| {
        let mut limits = ServerLimits::default();
        change(&mut limits);
        DiskServer::new("read,write", limits)
    };
    let rate = with(|limits| limits.client.rate = Some(BitRate(400_000_000)));
    let report = rate.measure("a").unwrap();
    assert_eq!(report.rate_limit, Some(BitRate(400_000_000)));
    // Each thread moves one block before the first wait.
    let most = 400e6 / 8.0 * 0.5 + 8e6;
    assert!((report.write.unwrap().bytes.0 as f64) < most, "{report:?}");
    let quota = |bytes| ResourceLimits { bytes: Some(Bytes(bytes)), ..ServerLimits::default().client };
    let bytes = DiskServer::new("read,write", ServerLimits { client: quota(100 << 20), ..ServerLimits::default() });
    let report = bytes.measure("a").unwrap();
    assert!(report.not_written.is_some_and(|reason| reason.contains("byte quota")));
    let enough = DiskServer::new("read,write", ServerLimits { client: quota(400 << 20), ..ServerLimits::default() });
    let report = enough.measure("a").unwrap();
    assert!(report.write.is_some_and(|write| write.bytes <= Bytes(40 << 20)), "a tenth of the quota");
    let short = with(|limits| limits.test_time = Duration::from_secs(1));
    assert_eq!(short.refusal("a").code, RefusalCode::Limit);
}

#[test]
fn file_is_gone_after_an_interrupt() {
    let server = DiskServer::with("read,write");
    let root = server.path("root");
    let stop = Arc::new(AtomicBool::new(false));
    let (target, stopped) = (server.served.target(), stop.clone());
    let client = thread::spawn(move || measure_remote(&target, "a".into(), Duration::from_secs(5), &stopped));
    wait_until(|| has_open_file(&root));
    stop.store(true, Ordering::Relaxed);
    let interrupted = client.join().unwrap().unwrap_err();
    assert!(matches!(interrupted, DiskError::Transfer(TransferError::Interrupted)), "{interrupted:?}");
    wait_until(|| !has_open_file(&root));
    assert!(is_empty(&root.join("a")));
}

#[test]
fn file_is_gone_after_the_client_is_killed() {
    let server = DiskServer::with("read,write");
    let root = server.path("root");
    let request = Request::Disk(DiskRequest { path: "a".into(), time: Duration::from_secs(5) });
    let control = dial::open_control(&server.served.target(), dial::new_session_id().unwrap(), request).unwrap();
    wait_until(|| has_open_file(&root));
    // As the kernel does for a killed process: the connection ends without a message.
    control.handle().abort();
    wait_until(|| !has_open_file(&root));
    assert!(is_empty(&root.join("a")));
    let ended = |event: &String| event.starts_with("Ended") && event.contains("error: Some(");
    wait_until(|| server.served.log.lock().iter().any(ended));
}

#[test]
fn file_is_gone_after_the_server_stops() {
    let server = DiskServer::with("read,write");
    let root = server.path("root");
    let target = server.served.target();
    let client =
        thread::spawn(move || measure_remote(&target, "a".into(), Duration::from_secs(5), &AtomicBool::new(false)));
    wait_until(|| has_open_file(&root));
    let DiskServer { temp, served } = server;
    drop(served);
    assert!(client.join().unwrap().is_err());
    assert!(!has_open_file(&root) && is_empty(&temp.path().join("root/a")));
}

#[test]
fn near_disk_is_measured_and_interrupted() {
    let temp = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = measure_local(temp.path().into(), TIME, &stop).unwrap();
    assert!(report.read.is_some() && report.write.is_some(), "{report:?}");
    let (path, stopped) = (temp.path().to_owned(), stop.clone());
    let begun = Instant::now();
    let running = thread::spawn(move || measure_local(path, Duration::from_secs(20), &stopped));
    wait_until(|| has_open_file(temp.path()));
    stop.store(true, Ordering::Relaxed);
    assert!(running.join().unwrap().is_err() && begun.elapsed() < Duration::from_secs(15));
    wait_until(|| !has_open_file(temp.path()));
    assert!(is_empty(temp.path()));
}

/// An ordinary user measures its own directory and reads what it may read. Nothing stays in either directory.
#[test]
fn ordinary_user_measures_what_it_may_use() {
    let temp = tempfile::tempdir().unwrap();
    let [own, readable, private] = ["own", "readable", "private"].map(|name| temp.path().join(name));
    for (path, mode) in [(temp.path(), 0o755), (&own, 0o777), (&readable, 0o755), (&private, 0o700)] {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    write_large_file(&readable.join("file"));
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let measure = |path: &Path| {
        let path = path.to_owned();
        let run = || measure_local(path, TIME, &Arc::new(AtomicBool::new(false)));
        if is_root { process::run_as_user(65_534, run).unwrap() } else { run() }
    };
    let report = measure(&own).unwrap();
    assert!(report.read.is_some() && report.write.is_some(), "{report:?}");
    assert!(is_empty(&own));
    // An ordinary user owns all three directories.
    if !is_root {
        return;
    }
    let report = measure(&readable).unwrap();
    assert!(report.read.is_some() && report.write.is_none(), "{report:?}");
    assert!(report.not_written.is_some_and(|reason| reason.contains("permission denied")));
    let denied = measure(&private).unwrap();
    assert!(denied.read.is_none() && denied.write.is_none(), "{denied:?}");
    assert!(denied.not_written.is_some_and(|reason| reason.contains("permission denied")));
    assert!(fs::read_dir(&readable).unwrap().count() == 1 && is_empty(&private));
}

#[test]
fn files_that_show_no_disk_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let measure = |path: PathBuf| measure_local(path, TIME, &Arc::new(AtomicBool::new(false)));
    File::create(temp.path().join("holes")).unwrap().set_len(64 << 20).unwrap();
    let holes = measure(temp.path().join("holes")).unwrap();
    assert!(holes.not_read.is_some_and(|reason| reason.contains("holes")));
    for path in ["/dev/zero", "/dev/null"] {
        assert!(measure(path.into()).unwrap_err().to_string().contains("device"), "{path}");
    }
    assert!(measure(temp.path().join("missing")).unwrap_err().to_string().contains("no such file"));
}

#[test]
fn earlier_server_and_false_rates_are_errors() {
    let measure = |service: fn(&mut ServerSession, &Request) -> Result<(), SessionError>| {
        let server = TestServer::start(support::config(), service);
        measure_remote(&server.target(), "a".into(), TIME, &AtomicBool::new(false))
    };
    let earlier = measure(|_, _| {
        Err(SessionError::Refused(Refusal::new(RefusalCode::BadMessage, "unknown variant `disk`, expected `test`")))
    });
    assert!(matches!(earlier, Err(DiskError::EarlierVersion)), "{earlier:?}");
    let huge = measure(|session: &mut ServerSession, _: &Request| {
        session.control.send(&json!({ "disk": { "free_bytes": u64::MAX } }))
    });
    assert!(huge.is_err(), "{huge:?}");
    let hostile = measure(|session: &mut ServerSession, _: &Request| {
        let text = "$(reboot)\n\u{1b}[2J".repeat(500);
        session.control.send(&json!({ "disk": { "file_system": text, "not_read": text, "later": [1] } }))
    });
    let hostile = hostile.unwrap();
    assert!(hostile.file_system.unwrap().starts_with("__reboot__"));
    assert!(hostile.not_read.unwrap().chars().all(|c| !c.is_control()));
}
