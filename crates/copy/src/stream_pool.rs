//! Opens the data streams of a copy, and replaces streams that break.
//!
//! The client always dials, whichever side finds that a stream ended. New streams get new numbers, because the server
//! may not know yet that the old stream ended. If streams break repeatedly, the wait before the next dial increases.
//! [`super::stream_set`] ends the copy after too many failures.
//!
//! With stripes, each stripe has an equal share of the streams, and its own waits. The failures of one stripe do not end
//! the copy while another stripe works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use lfn_session::dial::{self, Target};
use lfn_session::wire::seal::Seal;
use lfn_session::{DataStream, Protection, SessionError, SessionId, sender_options};
use parking_lot::Mutex;

use super::TransferError;
use super::copy_options::CopyOptions;
use super::stream_set::StreamSet;
use super::stripe_set::StripeSet;

/// Minimum time between two rounds of dialling.
const MIN_REDIAL_INTERVAL: Duration = Duration::from_millis(100);

/// First and maximum wait between two rounds after streams broke without progress.
const REDIAL_BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// Target of the stream count; may change during the copy.
#[derive(Clone, Debug)]
pub(crate) struct TargetCount(Arc<AtomicU16>);

/// The data streams of one session, as dialled by the client.
pub(crate) struct StreamPool<D> {
    /// The paths: one, or one for each stripe.
    paths: Vec<DialPath>,
    session: SessionId,
    options: CopyOptions,
    deliver: D,
    target_count: TargetCount,
    next_number: u32,
    /// Numbers that no connection has used.
    unused_numbers: Vec<u16>,
    failed: Arc<Mutex<Vec<FailedDial>>>,
    next_dial: Instant,
}

/// A path to the server.
struct DialPath {
    target: Target,
    /// Streams that are dialled or open.
    open: Arc<AtomicU16>,
}

/// A stream that could not be opened.
struct FailedDial {
    path: usize,
    number: u16,
    error: TransferError,
}

/// Counts a stream that is dialled or open.
struct OpenStreamGuard(Arc<AtomicU16>);

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TargetCount {
    /// Creates a target with this stream count.
    pub(crate) fn new(streams: u16) -> Self {
        TargetCount(Arc::new(AtomicU16::new(streams)))
    }

    /// Changes the target stream count.
    pub(crate) fn set(&self, streams: u16) {
        self.0.store(streams, Ordering::Relaxed);
    }

    /// Returns the target stream count.
    pub(crate) fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<D: Fn(DataStream) + Clone + Send + 'static> StreamPool<D> {
    /// Dials the target number of streams at once, each on its own thread, which passes the stream to `deliver`.
    pub(crate) fn start(
        target: &Target,
        session: SessionId,
        options: &CopyOptions,
        target_count: &TargetCount,
        deliver: D,
    ) -> Result<Self, TransferError> {
        let stripes = options.stripes.stripes();
        let mut targets: Vec<Target> = stripes.iter().map(|stripe| stripe.target(target)).collect();
        if targets.is_empty() {
            targets.push(target.clone());
        }
        options.stripes.begin_session();
        let mut pool = StreamPool {
            paths: targets.into_iter().map(|target| DialPath { target, open: Arc::default() }).collect(),
            session,
            options: options.clone(),
            deliver,
            target_count: target_count.clone(),
            next_number: 0,
            unused_numbers: Vec::new(),
            failed: Arc::default(),
            next_dial: Instant::now(),
        };
        pool.dial_missing(Instant::now())?;
        Ok(pool)
    }

    /// Dials the missing streams. Returns errors that another attempt cannot repair.
    pub(crate) fn maintain(&mut self, stream_set: &StreamSet, now: Instant) -> Result<(), TransferError> {
        let has_stripes = !self.options.stripes.stripes().is_empty();
        for FailedDial { path, number, error } in std::mem::take(&mut *self.failed.lock()) {
            if matches!(error, TransferError::Session(SessionError::Unreachable { .. })) {
                self.unused_numbers.push(number);
            }
            match error {
                TransferError::Session(SessionError::WrongFingerprint { .. }) | TransferError::Congestion { .. } => {
                    return Err(error);
                }
                // The address of a stripe may return.
                TransferError::Session(SessionError::Bind { .. }) if !has_stripes => return Err(error),
                error if has_stripes && self.options.stripes.record_failed_dial(path, &error, now) => {}
                error => stream_set.record_failure(error),
            }
        }
        if stream_set.is_stopped() {
            return Ok(());
        }
        if !has_stripes {
            let open = self.paths[0].open.load(Ordering::SeqCst);
            if open >= self.wanted() || now < self.next_dial {
                return Ok(());
            }
            self.next_dial = now + redial_delay(stream_set.failures_without_progress(), self.options.streams);
        }
        self.dial_missing(now)
    }

    /// Returns the number of streams that should be open.
    fn wanted(&self) -> u16 {
        self.target_count.get().min(self.options.max_streams)
    }

    /// Dials the missing streams of each path.
    fn dial_missing(&mut self, now: Instant) -> Result<(), TransferError> {
        let stripes = self.options.stripes.clone();
        for path in 0..self.paths.len() {
            let wanted = path_share(self.wanted(), path, self.paths.len());
            let open = self.paths[path].open.load(Ordering::SeqCst);
            let missing = if stripes.stripes().is_empty() {
                wanted.saturating_sub(open)
            } else {
                stripes.streams_to_dial(path, open, wanted, now)
            };
            for _ in 0..missing {
                self.dial(path, &stripes)?;
            }
        }
        Ok(())
    }

    fn dial(&mut self, path: usize, stripes: &StripeSet) -> Result<(), TransferError> {
        let new_number = u16::try_from(self.next_number).ok();
        // All stream numbers of the session are used: no more streams are opened.
        let Some(number) = self.unused_numbers.pop().or(new_number) else { return Ok(()) };
        if Some(number) == new_number {
            self.next_number += 1;
        }
        stripes.assign(number, path);
        let DialPath { target, open } = &self.paths[path];
        open.fetch_add(1, Ordering::SeqCst);
        let open = OpenStreamGuard(open.clone());
        let (target, session, options) = (target.clone(), self.session, self.options.clone());
        let (deliver, failed) = (self.deliver.clone(), self.failed.clone());
        let dial = move || match dial_stream(&target, session, number, &options) {
            Ok(mut stream) => {
                stream.attach(open);
                deliver(stream);
            }
            Err(error) => failed.lock().push(FailedDial { path, number, error }),
        };
        thread::Builder::new().name("data stream".into()).spawn(dial).map(drop).map_err(thread_error)
    }
}

/// Returns the streams of one of `paths` paths. The first paths have one more if the total cannot be divided.
fn path_share(total: u16, path: usize, paths: usize) -> u16 {
    // There are at most as many paths as an address list has.
    let (path, paths) = (u16::try_from(path).unwrap_or(u16::MAX), u16::try_from(paths).unwrap_or(u16::MAX).max(1));
    total / paths + u16::from(path < total % paths)
}

/// Returns the wait before the next dial. Failures of all streams in one round count once.
fn redial_delay(failures: u32, streams: u16) -> Duration {
    if failures == 0 {
        return MIN_REDIAL_INTERVAL;
    }
    let rounds = (failures / u32::from(streams.max(1))).min(8);
    (REDIAL_BACKOFF.0 * (1 << rounds)).min(REDIAL_BACKOFF.1)
}

pub(super) fn thread_error(source: io::Error) -> TransferError {
    SessionError::Io { peer: "the kernel", source }.into()
}

fn dial_stream(
    target: &Target,
    session: SessionId,
    stream: u16,
    options: &CopyOptions,
) -> Result<DataStream, TransferError> {
    let wish = options.congestion.as_ref();
    let refused = AtomicBool::new(false);
    let prepare = |socket: &socket2::Socket| {
        sender_options::set_pacing_rate(socket, options.pace)?;
        let Some(wish) = wish else { return Ok(()) };
        sender_options::set_congestion_control(socket, wish).inspect_err(|_| refused.store(true, Ordering::Relaxed))
    };
    let opened = dial::open_data(target, session, stream, options.protection, None, prepare).map(|mut opened| {
        if options.protection == Protection::Clear {
            opened.set_seal(Seal::new(&target.stream_secret(), target.scoped_id(session), stream));
        }
        opened
    });
    opened.map_err(|error| match (error, wish) {
        (SessionError::Unreachable { source, .. }, Some(wish)) if refused.load(Ordering::Relaxed) => {
            TransferError::Congestion { name: wish.name().to_owned(), source }
        }
        (error, _) => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_divided_among_the_paths() {
        let shares = |total, paths| (0..paths).map(|path| path_share(total, path, paths)).collect::<Vec<_>>();
        assert_eq!(shares(16, 4), [4; 4]);
        assert_eq!(shares(6, 4), [2, 2, 1, 1]);
        assert_eq!(shares(1, 3), [1, 0, 0]);
    }

    #[test]
    fn redial_delay_grows_and_resets_on_success() {
        assert_eq!(redial_delay(0, 4), MIN_REDIAL_INTERVAL);
        let after = |failures| redial_delay(failures, 4).as_millis();
        assert_eq!([1, 4, 8, 12, 16, 20, 1000].map(after), [250, 500, 1000, 2000, 2000, 2000, 2000]);
    }
}
