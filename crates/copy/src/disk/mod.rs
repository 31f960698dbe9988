//! Rates of the disk behind a path, for the prediction of a copy: of this host, and of a server below its root.
//!
//! `place` opens the path as a copy does, `load` reads and writes, and `file_system` has the facts. A directory gets a file
//! without a name, which the kernel removes with its last descriptor: after an error, an interrupt or the end of the process.
//! An existing file is only read. [`serve`] is the end of the server, with the rights of a copy: a client without the right
//! to read measures only writes into the served root, and learns nothing else.

mod file_system;
mod load;
mod place;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_results::evidence::disk::DiskReport;
use lfn_results::measure::Bounded;
use lfn_session::dial::{self, Target};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::server::ServerSession;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::disk::{DiskReply, DiskRequest, MAX_SESSION_TIME};
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Rights, SessionError, WriteAccess, queue};
use serde::de::IgnoredAny;

use super::base_dir::BaseDir;
use super::serve::{root, served_root};
use super::{DeniedAction, TransferError};
use load::Limits;
use place::Access;

pub use load::MEASURED_TIME;
pub use place::{MAX_FILE, MAX_SHARE_OF_FREE};

/// Interval at which a wait checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum share of a client's byte quota that a measurement uses.
const MAX_SHARE_OF_QUOTA: u64 = 10;

/// Reasons why a disk was not measured.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The server could not parse the request.
    #[error("the version of lfn on the server does not measure disks")]
    EarlierVersion,
    /// A file operation does not return, as on a network file system without its server.
    #[error("no answer from the disk within {} s", .0.as_secs())]
    NoAnswer(Duration),
}

impl From<SessionError> for DiskError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Refused(refusal) if refusal.code == RefusalCode::BadMessage => DiskError::EarlierVersion,
            error => DiskError::Transfer(error.into()),
        }
    }
}

/// Measures the disk of a path on this host, with reads and writes for `time` each. A set `stop` ends the measurement without
/// a result.
pub fn measure_local(path: PathBuf, time: Duration, stop: &Arc<AtomicBool>) -> Result<DiskReport, DiskError> {
    let (sender, result) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let (stopped, given_up) = (stop.clone(), ended.clone());
    let work = move || {
        let mut check = || {
            let ends = stopped.load(Ordering::Relaxed) || given_up.load(Ordering::Relaxed);
            if ends { Err(TransferError::Interrupted) } else { Ok(()) }
        };
        let mut limits = Limits { time, limiter: RateLimiter::unlimited(), max_bytes: None, check: &mut check };
        // The receiver may have given up.
        let _ = sender.send(place::measure(&BaseDir::Local, &path, Access::ALL, &mut limits));
    };
    // The thread is not joined: a file operation on a network file system may never return.
    let spawned = thread::Builder::new().name("disk".into()).spawn(work);
    spawned.map_err(|source| SessionError::Io { peer: "the kernel", source })?;
    let deadline = Instant::now() + MAX_SESSION_TIME;
    loop {
        match result.recv_timeout(POLL_INTERVAL) {
            Ok(measured) => return Ok(measured?),
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(_) => {
                ended.store(true, Ordering::Relaxed);
                return Err(DiskError::NoAnswer(MAX_SESSION_TIME));
            }
        }
    }
}

/// Requests the rates of a disk of the server, with reads and writes for `time` each. A set `stop` closes the session, which
/// ends the measurement.
pub fn measure_remote(
    target: &Target,
    path: ByteString,
    time: Duration,
    stop: &AtomicBool,
) -> Result<DiskReport, DiskError> {
    let session = dial::new_session_id()?;
    let mut control = dial::open_control(target, session, Request::Disk(DiskRequest { path, time }))?;
    control.allow_small_messages();
    // The server sends no message before its result, except that a full server sends its queue. The session has no data
    // streams, so a new session id has no effect.
    queue::wait_for_admission(
        &mut control,
        &target.queue,
        MAX_SESSION_TIME + target.connect_timeout,
        Some(stop),
        || (),
    )?;
    let deadline = Instant::now() + MAX_SESSION_TIME + target.connect_timeout;
    while !stop.load(Ordering::Relaxed) {
        if let Some(Bounded(DiskReply { disk })) = control.poll(POLL_INTERVAL, "before the rates of its disk")? {
            control.close();
            return Ok(disk.bounded());
        }
        if Instant::now() >= deadline {
            return Err(DiskError::NoAnswer(MAX_SESSION_TIME));
        }
    }
    Err(TransferError::Interrupted.into())
}

/// Serves one disk session: measures the disk below the served root, and sends its rates.
#[inline(never)]
pub fn serve(session: &mut ServerSession, request: &DiskRequest) -> Result<(), SessionError> {
    let report = measure_served(session, request)?;
    session.control.send(&DiskReply { disk: report })
}

fn measure_served(session: &mut ServerSession, request: &DiskRequest) -> Result<DiskReport, TransferError> {
    let rights = session.rights();
    let path = Path::new(OsStr::from_bytes(request.path.as_bytes()));
    let (base, access) = match rights {
        Rights { read: false, write: WriteAccess::No, .. } => {
            return Err(TransferError::NotAllowed(DeniedAction::Download));
        }
        Rights { read: true, write, .. } => {
            (root(session)?, Access { read: true, write: write == WriteAccess::Yes, reveals: true })
        }
        // A path below the root is refused before the file system is read: the client must not learn if the path exists.
        Rights { read: false, .. } if !is_root(path) => {
            return Err(TransferError::NotAllowed(DeniedAction::MeasuredPath));
        }
        Rights { read: false, .. } => (served_root(session)?, Access { read: false, write: true, reveals: false }),
    };
    let allowed = session.allowed();
    let max_bytes = allowed.bytes.map(|left| Bytes(left.0 / MAX_SHARE_OF_QUOTA));
    let limiter = session.rate_limiter();
    let mut check = || {
        session.check()?;
        // The client sends nothing. Its end ends the measurement.
        session.control.poll::<IgnoredAny>(Duration::ZERO, "during the measurement of a disk")?;
        Ok(())
    };
    let time = request.time.min(MEASURED_TIME);
    let mut limits = Limits { time, limiter, max_bytes, check: &mut check };
    let report = place::measure(&base, path, access, &mut limits)?;
    Ok(DiskReport { rate_limit: allowed.rate, ..report })
}

/// Returns true for the served root, with or without a dot.
fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new(".")
}
