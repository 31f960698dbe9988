//! The client's end of a copy: dials everything at once, with the request in the first flight.
//!
//! Data streams that send begin as soon as their own handshake is over; if the server refuses, its reason comes over
//! the control connection and they are cut. Threads that still dial when the copy ends are left to their time-outs. Here
//! is one session; what is done when it is lost stands in [`super::course`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::transfer::asked::Asked;
use lfn_core::transfer::blocks::DEFAULT_BLOCK;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::glob::is_pattern;
use lfn_core::transfer::keep::{Keep, LeftOut};
use lfn_core::transfer::limit::Look;
use lfn_core::transfer::location::own_name;
use lfn_core::transfer::manner::Manner;
use lfn_core::transfer::streams::{Change, FEW};
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::copy::{CopyId, CopyRequest, Failure, From, Job, Pick, Tally, To};
use lfn_core::wire::{CongestionWish, HELLO_LIMIT, Refusal, Request};

use super::TransferError;
use super::course::{ResumableCopy, LOOK_UP};
use super::flow::Flow;
use super::place::Base;
use super::side::{Ended, Extent, Side};
use super::receiver::{Aim, Receiver};
use super::sender::{Listing, Sender, Source};
use super::supply::Supply;
use super::talk::{Arrivals, Talk};
use super::teller::Teller;
use crate::server::throttle::Throttle;
use crate::session::dial::{self, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, DEAD_AFTER, DataStream, Protection, SessionError};

/// How long to wait for a connection that was lost, if nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How a copy goes over the network.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data streams at first, from 1.
    pub streams: u16,
    /// Most of them at once, if more are worth it.
    pub most_streams: u16,
    /// Size of a block; a power of two.
    pub block: Bytes,
    /// Of the data streams; the control connection is always inside TLS.
    pub protection: Protection,
    /// Congestion control of the sending sockets; the kernel's own if `None`.
    pub congestion: Option<CongestionWish>,
    /// What each sending stream is paced to; nothing if `None`.
    pub pace: Option<BitRate>,
    /// What the path is expected to carry: where it does, no streams are added.
    pub predicted: Option<BitRate>,
    /// What of the sources is listed, and what is kept of it.
    pub pick: Pick,
    /// How long a copy that was under way tries to get a connection again, from when anything moved last.
    pub patience: Duration,
    /// How it is checked, kept and told.
    pub manner: Manner,
    /// Is told what the manner wants told.
    pub teller: Teller,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            streams: FEW,
            most_streams: FEW,
            block: DEFAULT_BLOCK,
            protection: Protection::Tls,
            congestion: None,
            pace: None,
            predicted: None,
            pick: Pick::default(),
            patience: Duration::ZERO,
            manner: Manner::default(),
            teller: Teller::default(),
        }
    }
}

/// Where an upload comes from.
#[derive(Clone, Debug)]
pub enum LocalSource {
    /// A regular file, or a directory; a slash behind it means what is in it.
    File(PathBuf),
    /// Bytes that do not compress, made on the spot.
    Random(Bytes),
    /// Zeros made on the spot.
    Zero(Bytes),
}

/// Where a download goes.
#[derive(Clone, Debug)]
pub enum LocalDestination {
    /// A file, or a directory for what comes.
    File {
        /// As typed.
        path: PathBuf,
        /// What may happen to what is there.
        allowed: Allowed,
    },
    /// Checked and forgotten.
    Null,
}

/// What becomes of the connection to the far end.
#[derive(Debug)]
pub enum Connection<'a> {
    /// It was lost.
    Lost {
        /// By what.
        why: &'a TransferError,
        /// How long another one is sought, from when anything moved last.
        patience: Duration,
    },
    /// There is none; said several times a second.
    Trying {
        /// Since anything moved.
        without: Duration,
        /// As above.
        patience: Duration,
    },
    /// There is one again.
    Back {
        /// Since anything had moved.
        after: Duration,
    },
}

/// How the caller follows a copy, and ends it.
pub struct Watch<'a> {
    /// Told several times a second how much there is, as far as it is listed, and how far the copy is.
    pub observer: &'a mut dyn FnMut(&Extent, &Look),
    /// Told of streams that are added, and why.
    pub change: &'a mut dyn FnMut(&Change),
    /// Told when the connection is lost, while it is, and when it is back.
    pub connection: &'a mut dyn FnMut(&Connection<'_>),
    /// Ends the copy when set.
    pub interrupted: &'a AtomicBool,
}

/// A copy that ended with everything that did not fail whole at its destination.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Length of all files.
    pub bytes: Bytes,
    /// As `b3sum` prints it, if it was one file.
    pub digest: Option<Digest>,
    /// From the first dial to the receiver's word that all is there.
    pub elapsed: Duration,
    /// Where it is.
    pub path: Option<String>,
    /// What became of the entries.
    pub tally: Tally,
    /// What of the sources was not listed.
    pub left_out: LeftOut,
    /// What failed, up to [`MOST_FAILURES`](lfn_core::wire::copy::MOST_FAILURES) of them.
    pub failures: Vec<Failure>,
    /// Both sides at the end, over all sessions.
    pub look: Look,
    /// How often the connection was lost and found again.
    pub reconnects: u32,
    /// How long there was none, from when anything had moved.
    pub without: Duration,
    /// How long nothing came though there was one, by three seconds and more at a time.
    pub still: Duration,
    /// Data streams that broke and were replaced.
    pub replaced: u32,
    /// How the number of streams was changed on the way.
    pub changes: Vec<Change>,
}

impl Outcome {
    /// Payload that crossed the path and was of use: what had to be sent again counts once, and what left before the
    /// receiver could say that it has it, or makes nothing of it, not at all.
    pub fn moved(&self) -> Bytes {
        let Tally { bytes, kept, .. } = self.tally;
        self.look.bytes.min(Bytes(bytes.0.saturating_sub(kept.0)))
    }
}

/// Sends to the far end.
pub fn upload(
    target: &Target,
    from: &[LocalSource],
    to: To,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    check_sources(&options.pick, from.len())?;
    let open = |copy: &CopyId| Ok(from.iter().map(|from| open_source(from, &options.pick, copy)).collect());
    upload_of(target, (&open, None), (None, to), options, watch)
}

/// What the sources are, found out for each session.
pub(super) type Open<'a> = &'a dyn Fn(&CopyId) -> Result<Vec<Source>, TransferError>;

/// The same of sources that are opened in another way, held to what somebody was granted; for another it is known as the
/// copy that is given.
pub(super) fn upload_of(
    target: &Target,
    (open, throttle): (Open<'_>, Option<Arc<Throttle>>),
    (copy, to): (Option<CopyId>, To),
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    check_length(&options.manner.protect)?;
    let job = Job::Put { to };
    let mut course = ResumableCopy::new(target, options, watch)?;
    course.copy = copy.unwrap_or(course.copy);
    course.run(|course| {
        let mut sent = None;
        let result = upload_once(course, (open, throttle.as_ref()), &job, &mut sent);
        if let Some(sending) = sent {
            sending.flow().cut();
            course.copy.since = course.copy.since.or(sending.since());
            course.digest = sending.digest().or(course.digest);
            course.replaced += sending.flow().broke();
        }
        result
    })
}

fn upload_once(
    course: &mut ResumableCopy<'_>,
    (open, throttle): (Open<'_>, Option<&Arc<Throttle>>),
    job: &Job,
    sent: &mut Option<Arc<Sender>>,
) -> Result<Ended, TransferError> {
    let (options, copy) = (&course.options.clone(), course.copy);
    let begin = || -> Result<Arc<Sender>, TransferError> {
        let sources = open(&copy)?;
        let flow =
            throttle.cloned().map_or_else(Flow::default, Flow::held_to).controlled_by(options.congestion.as_ref());
        let listing = Listing::of(&options.pick).made(Some(copy.began)).in_manner(&options.manner);
        let sending = Sender::start(sources, listing, options.block, flow)?;
        sending.tell(options.teller.clone());
        Ok(sending)
    };
    let mut sending = begin()?;
    let session = dial::new_session_id()?;
    let mut dialled = Dialled::start(course, session, job.clone());
    let wanted = course.wanted.clone();
    let mut supply = Supply::start(&course.target, session, options, &wanted, delivery(&sending))?;
    let result = dialled.enter(course, || sending.flow().cut()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            sending = begin()?;
            supply = Supply::start(&course.target, session, options, &wanted, delivery(&sending))?;
        }
        *sent = Some(sending.clone());
        let mut arrivals = || tended(&mut supply, sending.as_ref()).err().map(Err);
        hold(course, control, &mut arrivals, &sending)
    });
    sending.flow().cut();
    dialled.end(result)
}

/// Fetches from the far end.
pub fn download(
    target: &Target,
    from: Vec<From>,
    to: &LocalDestination,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    check_sources(&options.pick, from.len())?;
    check_length(&(&from, &options.pick))?;
    let single = options.pick.names.is_none() && matches!(from.as_slice(), [only] if is_one(only));
    let job = Job::Get { from, pick: options.pick.clone() };
    ResumableCopy::new(target, options, watch)?.run(|course| {
        let mut received = None;
        let result = download_once(course, &job, || aim(to, single, options.pick.keep), &mut received);
        if let Some(receiving) = received {
            course.copy.since = course.copy.since.or(Some(receiving.since()));
            course.digest = receiving.digest().or(course.digest);
            course.replaced += receiving.flow().broke();
        }
        result
    })
}

fn download_once(
    course: &mut ResumableCopy<'_>,
    job: &Job,
    aim: impl Fn() -> Aim,
    received: &mut Option<Arc<Receiver>>,
) -> Result<Ended, TransferError> {
    let (options, since) = (&course.options.clone(), course.copy.since);
    let (deliver, mut streams) = collection();
    let session = dial::new_session_id()?;
    let mut dialled = Dialled::start(course, session, job.clone());
    let wanted = course.wanted.clone();
    let mut supply = Supply::start(&course.target, session, options, &wanted, deliver.clone())?;
    let result = dialled.enter(course, || ()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            let (deliver, anew) = collection();
            // Those that were dialled before are closed with the channel they are in.
            streams = anew;
            supply = Supply::start(&course.target, session, options, &wanted, deliver)?;
        }
        let receiving = Receiver::start(
            aim(),
            options.manner.clone(),
            options.teller.clone(),
            since,
            options.block,
            Flow::default(),
        )?;
        if let Job::Get { from, pick } = job {
            receiving.take_only(Asked::of(from, pick));
        }
        *received = Some(receiving.clone());
        let mut arrivals = || match tended(&mut supply, receiving.as_ref()) {
            Ok(()) => streams.try_recv().ok().map(Ok),
            Err(error) => Some(Err(error)),
        };
        let held = hold(course, control, &mut arrivals, &receiving);
        receiving.close();
        held
    });
    dialled.end(result)
}

/// Sees to it that there are as many streams as wanted, as long as there is work for them.
fn tended<S: Side, D: Fn(DataStream) + Clone + Send + 'static>(
    supply: &mut Supply<D>,
    side: &S,
) -> Result<(), TransferError> {
    if side.wants_streams() { supply.tend(side.flow(), Instant::now()) } else { Ok(()) }
}

/// Holds the conversation of one session.
fn hold<S: Side + 'static>(
    course: &mut ResumableCopy<'_>,
    control: &mut Control,
    arrivals: Arrivals<'_>,
    side: &Arc<S>,
) -> Result<Ended, TransferError> {
    let (interrupted, started, listed) = (course.interrupted, course.started, side.clone());
    let mut observer = |look: &Look| course.observe(listed.listed(), look);
    let (held, moved) = {
        let mut talk = Talk::new(control, started, arrivals, interrupted, &mut observer);
        (talk.hold(side), talk.moved())
    };
    course.moved = moved.map_or(course.moved, |moved| moved.max(course.moved));
    held
}

/// Puts each stream to work on what is sent.
fn delivery(sending: &Arc<Sender>) -> impl Fn(DataStream) + Clone + Send + 'static {
    let sending = sending.clone();
    move |stream| sending.run(stream)
}

/// Collects streams for whoever takes them.
fn collection() -> (impl Fn(DataStream) + Clone + Send + 'static, mpsc::Receiver<DataStream>) {
    let (sender, streams) = channel();
    let deliver = move |stream| {
        // Nobody waits for a stream of a copy that is over.
        let _ = sender.send(stream);
    };
    (deliver, streams)
}

/// A seed for bytes that differ in every copy.
pub(crate) fn random_seed() -> Result<u64, TransferError> {
    let seed = getrandom::u64();
    seed.map_err(|e| SessionError::Io { peer: "the kernel", source: io::Error::other(e) }.into())
}

fn open_source(from: &LocalSource, pick: &Pick, copy: &CopyId) -> Source {
    match (from, &pick.names) {
        (LocalSource::File(path), names) => Source::of(Arc::new(Base::Here), path.clone(), names.as_ref()),
        (LocalSource::Random(bytes), _) => Source::Random { seed: copy.seed(), bytes: *bytes },
        (LocalSource::Zero(bytes), _) => Source::Zero { bytes: *bytes },
    }
}

/// Whether it is one thing by its name: neither what is in a directory, nor what a pattern may stand for.
fn is_one(from: &From) -> bool {
    match from {
        From::File { path } => own_name(path.as_bytes()).is_some() && !is_pattern(path.as_bytes()),
        From::Random { .. } | From::Zero { .. } => true,
    }
}

/// Patterns and names ride in the first message, whose length is bounded before a server knows who sends it.
pub(super) fn check_length(asked: &impl serde::Serialize) -> Result<(), TransferError> {
    const MOST: usize = HELLO_LIMIT - 4096;
    let bytes = serde_json::to_vec(asked).map_or(usize::MAX, |json| json.len());
    if bytes > MOST { Err(TransferError::Request { bytes, most: MOST }) } else { Ok(()) }
}

/// Names are below one directory.
pub(super) fn check_sources(pick: &Pick, sources: usize) -> Result<(), TransferError> {
    if pick.names.is_some() && sources != 1 { Err(TransferError::Sources { sources }) } else { Ok(()) }
}

fn aim(to: &LocalDestination, single: bool, keep: Keep) -> Aim {
    match to {
        LocalDestination::Null => Aim::Null,
        LocalDestination::File { path, allowed } => {
            Aim::Path { base: Base::Here, path: path.clone(), allowed: *allowed, single, keep }
        }
    }
}

/// The control connection of a session, once it is there.
struct Dialled {
    dialling: mpsc::Receiver<Result<Control, SessionError>>,
    control: Option<Control>,
}

impl Dialled {
    /// Dials it.
    fn start(course: &ResumableCopy<'_>, session: SessionId, job: Job) -> Self {
        let (sender, dialling) = channel();
        let Options { most_streams: streams, block, congestion, pace, .. } = course.options.clone();
        let clear = course.options.protection == Protection::Clear;
        let stream_secret = clear.then(|| course.target.stream_secret());
        let mut manner = course.options.manner.clone();
        if matches!(job, Job::Get { .. }) {
            // They are asked here.
            manner.protect = Box::default();
        }
        let copy = Some(Box::new(course.copy));
        let request =
            CopyRequest { job, streams, block, congestion, pace, stream_secret, copy, manner: Box::new(manner) };
        let (target, failed) = (course.target.clone(), sender.clone());
        let dial = move || {
            // Nobody waits for it if the copy was interrupted.
            let _ = sender.send(dial::control(&target, session, Request::Copy(request)));
        };
        if let Err(source) = thread::Builder::new().name("control".into()).spawn(dial) {
            // The channel is open: its other end is in this hand.
            let _ = failed.send(Err(SessionError::Io { peer: "the kernel", source }));
        }
        Dialled { dialling, control: None }
    }

    fn control(&mut self, course: &mut ResumableCopy<'_>) -> Result<&mut Control, TransferError> {
        loop {
            if course.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            match self.dialling.recv_timeout(LOOK_UP) {
                Ok(control) => {
                    let control = self.control.insert(control?);
                    course.reached = true;
                    return Ok(control);
                }
                Err(RecvTimeoutError::Timeout) => course.tick(),
                Err(RecvTimeoutError::Disconnected) => return Err(TransferError::Interrupted),
            }
        }
    }

    /// The control connection once the server has let the session in, and the id to dial the data streams under if it
    /// had to wait; `waits` is called when it must.
    fn enter(
        &mut self,
        course: &mut ResumableCopy<'_>,
        waits: impl FnOnce(),
    ) -> Result<(&mut Control, Option<SessionId>), TransferError> {
        let control = self.control(course)?;
        let (interrupted, asked) = (course.interrupted, Instant::now());
        let (patience, welcome) = (course.target.patience, &mut course.welcome);
        let waits = || {
            *welcome = true;
            waits();
        };
        let entered = queue::enter(control, &patience, DEAD_AFTER, Some(interrupted), waits)?;
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let turn = match entered {
            Entered::AtOnce => None,
            Entered::After(session) => Some(session),
        };
        if turn.is_some() {
            course.has_its_turn(asked.elapsed());
        }
        if !control.is_refused()? {
            course.enter();
        }
        Ok((control, turn))
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
