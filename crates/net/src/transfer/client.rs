//! The client's end of a copy: dials everything at once, with the request in the first flight.
//!
//! Data streams that send begin as soon as their own handshake is over; if the server refuses, its reason comes over
//! the control connection and they are cut. Threads that still dial when the copy ends are left to their time-outs.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::transfer::blocks::{DEFAULT_BLOCK, Layout};
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::limit::Look;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{CopyRequest, From, FromSender, Job, Offer, To};
use lfn_core::wire::{CongestionWish, Refusal, Request};

use super::TransferError;
use super::flow::Flow;
use super::place::{Base, Destination, SourceFile};
use super::receiver::Sink;
use super::sender::{Sending, Source};
use super::talk::Talk;
use crate::session::congestion;
use crate::session::dial::{self, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, DEAD_AFTER, DataStream, Protection, SessionError};

/// How a copy goes over the network.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data streams, from 1.
    pub streams: u16,
    /// Size of a block; a power of two.
    pub block: Bytes,
    /// Of the data streams; the control connection is always inside TLS.
    pub protection: Protection,
    /// Congestion control of the sending sockets; the kernel's own if `None`.
    pub congestion: Option<CongestionWish>,
}

impl Default for Options {
    fn default() -> Self {
        Options { streams: 4, block: DEFAULT_BLOCK, protection: Protection::Tls, congestion: None }
    }
}

/// Where an upload comes from.
#[derive(Clone, Debug)]
pub enum LocalSource {
    /// A regular file.
    File(PathBuf),
    /// Bytes that do not compress, made on the spot.
    Random(Bytes),
    /// Zeros made on the spot.
    Zero(Bytes),
}

/// Where a download goes.
#[derive(Clone, Debug)]
pub enum LocalDestination {
    /// A file, or a directory for it.
    File {
        /// As typed.
        path: PathBuf,
        /// Replace a file that is there.
        force: bool,
    },
    /// Checked and forgotten.
    Null,
}

/// How the caller follows a copy, and ends it.
pub struct Watch<'a> {
    /// Told several times a second how long the file is and how far the copy.
    pub observer: &'a mut dyn FnMut(Bytes, &Look),
    /// Ends the copy when set.
    pub interrupted: &'a AtomicBool,
}

/// A copy that ended with the file whole at its destination.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Length of the file.
    pub bytes: Bytes,
    /// As `b3sum` prints it.
    pub digest: Digest,
    /// From the first dial to the receiver's word that the file is there.
    pub elapsed: Duration,
    /// Where the file is, if it is one.
    pub path: Option<String>,
    /// Both sides at the end.
    pub look: Look,
}

/// Sends to the far end.
pub fn upload(
    target: &Target,
    from: &LocalSource,
    to: To,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let (source, name) = open_source(from)?;
    let bytes = source.bytes();
    let layout = Layout::new(bytes, options.block)?;
    let job = Job::Put { offer: Offer { name, bytes }, to };
    let mut sending = Arc::new(Sending::new(source, layout, Flow::default()));
    let mut started = Instant::now();
    let mut dialled = Dialled::start(target, job, options, watch.interrupted, delivery(&sending));
    let mut last = Look::default();
    let result = dialled.enter(target, || sending.flow.cut()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            (sending, started) = (Arc::new(sending.again()), Instant::now());
            dial_streams(target, session, options, delivery(&sending)).map_err(no_thread)?;
        }
        let mut observer = |look: &Look| {
            last = *look;
            (watch.observer)(bytes, look);
        };
        Talk::new(control, started, &mut || None, watch.interrupted, &mut observer).send(&sending)
    });
    sending.flow.cut();
    let sent = dialled.end(result)?;
    Ok(Outcome { bytes, digest: sent.digest, elapsed: started.elapsed(), path: sent.path, look: last })
}

/// Fetches from the far end.
pub fn download(
    target: &Target,
    from: From,
    to: &LocalDestination,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let destination = find_destination(&from, to)?;
    let mut started = Instant::now();
    let (deliver, mut streams) = collection();
    let mut dialled = Dialled::start(target, Job::Get { from }, options, watch.interrupted, deliver);
    let mut last = Look::default();
    let result = dialled.enter(target, || ()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            let (deliver, anew) = collection();
            // Those that were dialled before are closed with the channel they are in.
            (streams, started) = (anew, Instant::now());
            dial_streams(target, session, options, deliver).map_err(no_thread)?;
        }
        let bytes = await_offer(control, watch.interrupted)?;
        let opening = Sink::open_apart(destination, Layout::new(bytes, options.block)?, Flow::default())?;
        let mut observer = |look: &Look| {
            last = *look;
            (watch.observer)(bytes, look);
        };
        let mut arrivals = || streams.try_recv().ok();
        Talk::new(control, started, &mut arrivals, watch.interrupted, &mut observer).receive(opening)
    });
    let elapsed = started.elapsed();
    let received = dialled.end(result)?;
    Ok(Outcome { bytes: received.bytes, digest: received.digest, elapsed, path: received.path, look: last })
}

/// Puts each stream to work on what is sent.
fn delivery(sending: &Arc<Sending>) -> impl Fn(Result<DataStream, TransferError>) + Clone + Send + 'static {
    let sending = sending.clone();
    move |stream| match stream {
        Ok(stream) => sending.run(stream),
        Err(error) => sending.flow.fail(error),
    }
}

/// Collects streams for whoever takes them.
fn collection() -> (impl Fn(Result<DataStream, TransferError>) + Clone + Send + 'static, Receiver<Dialling>) {
    let (sender, streams) = channel();
    let deliver = move |stream| {
        // Nobody waits for a stream of a copy that is over.
        let _ = sender.send(stream);
    };
    (deliver, streams)
}

/// A data stream, or why there is none.
type Dialling = Result<DataStream, TransferError>;

fn no_thread(source: io::Error) -> TransferError {
    SessionError::Io { peer: "the kernel", source }.into()
}

/// A seed for bytes that differ in every copy.
pub(crate) fn random_seed() -> Result<u64, TransferError> {
    let seed = getrandom::u64();
    seed.map_err(|e| SessionError::Io { peer: "the kernel", source: io::Error::other(e) }.into())
}

fn open_source(from: &LocalSource) -> Result<(Source, String), TransferError> {
    Ok(match from {
        LocalSource::Random(bytes) => (Source::Random { seed: random_seed()?, bytes: *bytes }, String::new()),
        LocalSource::Zero(bytes) => (Source::Zero { bytes: *bytes }, String::new()),
        LocalSource::File(path) => {
            let source = Source::File(SourceFile::open(&Base::Here, path)?);
            let name = path.file_name().unwrap_or_default().to_str().ok_or_else(|| TransferError::Forbidden {
                path: path.display().to_string(),
                why: "the name is not UTF-8, which the protocol does not carry yet",
            })?;
            (source, name.to_owned())
        }
    })
}

fn find_destination(from: &From, to: &LocalDestination) -> Result<Option<Destination>, TransferError> {
    let LocalDestination::File { path, force } = to else { return Ok(None) };
    let name: Option<&OsStr> = match from {
        From::File { path } => Path::new(path).file_name(),
        From::Random { .. } | From::Zero { .. } => None,
    };
    Destination::find(&Base::Here, path, name, *force).map(Some)
}

fn await_offer(control: &mut Control, interrupted: &AtomicBool) -> Result<Bytes, TransferError> {
    let deadline = Instant::now() + DEAD_AFTER;
    while Instant::now() < deadline {
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if let Some(FromSender::Offer(offer)) = control.poll(LOOK_UP, "before it said what it would send")? {
            return Ok(offer.bytes);
        }
    }
    let peer = control.peer();
    Err(SessionError::Timeout { peer, after: DEAD_AFTER, while_doing: "before it said what it would send" }.into())
}

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The connections of a session that is being opened, and the control connection once it is there.
struct Dialled<'a> {
    dialling: Receiver<Result<Control, SessionError>>,
    interrupted: &'a AtomicBool,
    control: Option<Control>,
}

impl<'a> Dialled<'a> {
    /// Dials all connections at once; data streams go to `deliver`, each on its own thread.
    fn start(
        target: &Target,
        job: Job,
        options: &Options,
        interrupted: &'a AtomicBool,
        deliver: impl Fn(Result<DataStream, TransferError>) + Clone + Send + 'static,
    ) -> Self {
        let (sender, dialling) = channel();
        let dialled = Dialled { dialling, interrupted, control: None };
        let failed = |error| {
            // The channel is open: its other end is in `dialled`.
            let _ = sender.send(Err(error));
        };
        let session = match dial::new_session_id() {
            Ok(session) => session,
            Err(error) => {
                failed(error);
                return dialled;
            }
        };
        let request =
            CopyRequest { job, streams: options.streams, block: options.block, congestion: options.congestion.clone() };
        let spawned = dial_all(target, session, request, options, sender.clone(), deliver);
        if let Err(source) = spawned {
            failed(SessionError::Io { peer: "the kernel", source });
        }
        dialled
    }

    fn control(&mut self) -> Result<&mut Control, TransferError> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            match self.dialling.recv_timeout(LOOK_UP) {
                Ok(control) => return Ok(self.control.insert(control?)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(TransferError::Interrupted),
            }
        }
    }

    /// The control connection once the server has let the session in, and the id to dial the data streams under if it
    /// had to wait; `waits` is called when it must.
    fn enter(
        &mut self,
        target: &Target,
        waits: impl FnOnce(),
    ) -> Result<(&mut Control, Option<SessionId>), TransferError> {
        let interrupted = self.interrupted;
        let control = self.control()?;
        match queue::enter(control, &target.patience, DEAD_AFTER, Some(interrupted), waits)? {
            _ if interrupted.load(Ordering::Relaxed) => Err(TransferError::Interrupted),
            Entered::AtOnce => Ok((control, None)),
            Entered::After(session) => Ok((control, Some(session))),
        }
    }

    /// Tells the server how it ended, and closes.
    fn end<T>(&mut self, result: Result<T, TransferError>) -> Result<T, TransferError> {
        let Some(mut control) = self.control.take() else { return result };
        let result = match result {
            Err(error @ TransferError::Session(SessionError::Refused(_) | SessionError::Closed { .. })) => Err(error),
            Err(error) => {
                // The server may be gone; if it is not, it is told why.
                let _ = control.refuse(&Refusal::from(&error));
                Err(error)
            }
            Ok(value) => Ok(value),
        };
        control.close();
        result
    }
}

fn dial_all(
    target: &Target,
    session: SessionId,
    request: CopyRequest,
    options: &Options,
    control: std::sync::mpsc::Sender<Result<Control, SessionError>>,
    deliver: impl Fn(Result<DataStream, TransferError>) + Clone + Send + 'static,
) -> io::Result<()> {
    let started = {
        let target = target.clone();
        move || {
            let _ = control.send(dial::control(&target, session, Request::Copy(request)));
        }
    };
    thread::Builder::new().name("control".into()).spawn(started)?;
    dial_streams(target, session, options, deliver)
}

fn dial_streams(
    target: &Target,
    session: SessionId,
    options: &Options,
    deliver: impl Fn(Result<DataStream, TransferError>) + Clone + Send + 'static,
) -> io::Result<()> {
    for stream in 0..options.streams {
        let (target, options, deliver) = (target.clone(), options.clone(), deliver.clone());
        let dial = move || deliver(dial_stream(&target, session, stream, &options));
        thread::Builder::new().name("data stream".into()).spawn(dial)?;
    }
    Ok(())
}

fn dial_stream(
    target: &Target,
    session: SessionId,
    stream: u16,
    options: &Options,
) -> Result<DataStream, TransferError> {
    let wish = options.congestion.as_ref();
    let refused = AtomicBool::new(false);
    let prepare = |socket: &socket2::Socket| {
        let Some(wish) = wish else { return Ok(()) };
        congestion::set(socket, wish).inspect_err(|_| refused.store(true, Ordering::Relaxed))
    };
    dial::data(target, session, stream, options.protection, None, prepare).map_err(|error| match (error, wish) {
        (SessionError::Unreachable { source, .. }, Some(wish)) if refused.load(Ordering::Relaxed) => {
            TransferError::Congestion { name: wish.name().to_owned(), source }
        }
        (error, _) => error.into(),
    })
}
