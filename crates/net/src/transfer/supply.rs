//! Keeps a copy supplied with data streams: dials as many as are wanted, and another one for each that breaks.
//!
//! It is always the client that dials, whichever side found that a stream is over. New streams get new numbers, since the
//! server may not have noticed yet that the old one is gone. Where one after the other breaks, it waits longer and longer
//! before the next; that they break too often is judged where they are seen together ([`super::flow`]).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::seal::Seal;

use super::TransferError;
use super::client::Options;
use super::flow::{Flow, lock};
use super::pacing;
use crate::session::congestion;
use crate::session::dial::{self, Target};
use crate::session::{DataStream, Protection, SessionError};

/// Between two rounds of dialling at least.
const ROUNDS: Duration = Duration::from_millis(100);

/// Between two rounds once streams broke with nothing arriving between: the first wait, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// How many data streams a copy is to have; it may change while the copy runs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Arc<AtomicU16>);

/// The data streams of one session, as the client dials them.
pub(crate) struct Supply<D> {
    target: Target,
    session: SessionId,
    options: Options,
    deliver: D,
    wanted: Wanted,
    /// Numbers given so far.
    given: u32,
    /// Streams that are dialled or live.
    open: Arc<AtomicU16>,
    failed: Arc<Mutex<Vec<TransferError>>>,
    next: Instant,
}

/// A stream that is dialled or lives.
struct Open(Arc<AtomicU16>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Wanted {
    /// So many, for the beginning.
    pub(crate) fn new(streams: u16) -> Self {
        Wanted(Arc::new(AtomicU16::new(streams)))
    }

    /// So many from now on.
    pub(crate) fn set(&self, streams: u16) {
        self.0.store(streams, Ordering::Relaxed);
    }

    /// How many that is.
    pub(crate) fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<D: Fn(DataStream) + Clone + Send + 'static> Supply<D> {
    /// Dials as many streams as are wanted at once, each on its own thread that then hands it to `deliver`.
    pub(crate) fn start(
        target: &Target,
        session: SessionId,
        options: &Options,
        wanted: &Wanted,
        deliver: D,
    ) -> Result<Self, TransferError> {
        let mut supply = Supply {
            target: target.clone(),
            session,
            options: options.clone(),
            deliver,
            wanted: wanted.clone(),
            given: 0,
            open: Arc::default(),
            failed: Arc::default(),
            next: Instant::now(),
        };
        for _ in 0..wanted.get() {
            supply.dial()?;
        }
        Ok(supply)
    }

    /// Dials what is missing. What no new attempt could mend is an error.
    pub(crate) fn tend(&mut self, flow: &Flow, now: Instant) -> Result<(), TransferError> {
        for error in std::mem::take(&mut *lock(&self.failed)) {
            match error {
                TransferError::Session(SessionError::WrongFingerprint { .. } | SessionError::From { .. })
                | TransferError::Congestion { .. } => return Err(error),
                error => flow.lose(error),
            }
        }
        let missing = self.wanted.get().min(self.options.most_streams).saturating_sub(self.open.load(Ordering::SeqCst));
        if missing == 0 || now < self.next || flow.is_stopped() {
            return Ok(());
        }
        self.next = now + pause(flow.fruitless(), self.options.streams);
        for _ in 0..missing {
            self.dial()?;
        }
        Ok(())
    }

    fn dial(&mut self) -> Result<(), TransferError> {
        // Of a session that has used up all numbers the streams that are left are the last.
        let Ok(number) = u16::try_from(self.given) else { return Ok(()) };
        self.given += 1;
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(self.open.clone());
        let (target, session, options) = (self.target.clone(), self.session, self.options.clone());
        let (deliver, failed) = (self.deliver.clone(), self.failed.clone());
        let dial = move || match dial_stream(&target, session, number, &options) {
            Ok(mut stream) => {
                stream.keep(open);
                deliver(stream);
            }
            Err(error) => lock(&failed).push(error),
        };
        thread::Builder::new().name("data stream".into()).spawn(dial).map(drop).map_err(no_thread)
    }
}

/// Streams that break together count together.
fn pause(fruitless: u32, streams: u16) -> Duration {
    if fruitless == 0 {
        return ROUNDS;
    }
    let rounds = (fruitless / u32::from(streams.max(1))).min(8);
    (PAUSES.0 * (1 << rounds)).min(PAUSES.1)
}

pub(super) fn no_thread(source: io::Error) -> TransferError {
    SessionError::Io { peer: "the kernel", source }.into()
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
        pacing::set(socket, options.pace)?;
        let Some(wish) = wish else { return Ok(()) };
        congestion::set(socket, wish).inspect_err(|_| refused.store(true, Ordering::Relaxed))
    };
    let opened = dial::data(target, session, stream, options.protection, None, prepare).map(|mut opened| {
        if options.protection == Protection::Clear {
            opened.seal(Seal::new(&target.stream_secret(), target.scope(session), stream));
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
    fn pauses_grow_by_rounds_and_end_with_success() {
        assert_eq!(pause(0, 4), ROUNDS);
        let after = |fruitless| pause(fruitless, 4).as_millis();
        assert_eq!([1, 4, 8, 12, 16, 20, 1000].map(after), [250, 500, 1000, 2000, 2000, 2000, 2000]);
    }
}
