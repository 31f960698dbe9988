//! What all streams of one side share: whether to go on, the first failure, and what has been done so far.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lfn_core::tcp_info::TcpInfo;
use lfn_core::transfer::limit::{Shares, SocketEvidence};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::Progress;
use lfn_sys::tcp;

use super::TransferError;
use crate::server::throttle::Throttle;
use crate::session::{DEAD_AFTER, DataStream, SessionError, timed_out};

/// One side's streams, seen together.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    stopped: AtomicBool,
    failure: Mutex<Option<TransferError>>,
    sockets: Mutex<Vec<TcpStream>>,
    bytes: AtomicU64,
    /// What a server holds the copy to.
    throttle: Option<Arc<Throttle>>,
    disk: AtomicU64,
    hash: AtomicU64,
    network: AtomicU64,
}

/// What a stream spends its time on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activity {
    Disk,
    Hash,
    Network,
}

impl Flow {
    /// Streams that a server holds to what the session was granted.
    pub(crate) fn held_to(throttle: Arc<Throttle>) -> Self {
        Flow { throttle: Some(throttle), ..Flow::default() }
    }

    /// Runs one stream's work on this thread; its failure ends all streams.
    pub(crate) fn run(&self, mut stream: DataStream, work: impl FnOnce(&mut DataStream) -> Result<(), TransferError>) {
        let number = stream.stream();
        let failed = |source| TransferError::Stream { stream: number, source };
        let result = self.register(stream.socket()).map_err(failed).and_then(|()| work(&mut stream));
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Keeps a socket in reach, to be cut when the copy ends early.
    fn register(&self, socket: &TcpStream) -> io::Result<()> {
        // A wait that long only makes the thread look whether to go on; who is dead is judged elsewhere.
        socket.set_read_timeout(Some(DEAD_AFTER))?;
        socket.set_write_timeout(Some(DEAD_AFTER))?;
        let clone = socket.try_clone()?;
        let mut sockets = lock(&self.sockets);
        if self.is_stopped() {
            clone.shutdown(Shutdown::Both)?;
        }
        sockets.push(clone);
        Ok(())
    }

    /// Ends all streams for `error`, if nothing ended them before.
    pub(crate) fn fail(&self, error: TransferError) {
        let mut failure = lock(&self.failure);
        if failure.is_none() && !self.is_stopped() {
            *failure = Some(error);
        }
        drop(failure);
        self.cut();
    }

    /// Ends all streams now.
    pub(crate) fn cut(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for socket in lock(&self.sockets).iter() {
            // Closed by the peer already, perhaps.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The first failure of a stream.
    pub(crate) fn take_failure(&self) -> Option<TransferError> {
        lock(&self.failure).take()
    }

    /// Does something and adds its time to the shares.
    pub(crate) fn spend<T>(&self, on: Activity, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let counter = match on {
            Activity::Disk => &self.disk,
            Activity::Hash => &self.hash,
            Activity::Network => &self.network,
        };
        counter.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// How far this side is.
    pub(crate) fn progress(&self) -> Progress {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / 1e9;
        let shares = Shares { disk: seconds(&self.disk), hash: seconds(&self.hash), network: seconds(&self.network) };
        Progress { bytes: Bytes(self.bytes.load(Ordering::Relaxed)), shares, sockets: None }
    }

    /// What the kernel says of this side's sockets, summed; none before the first is there.
    pub(crate) fn sockets(&self) -> Option<SocketEvidence> {
        let sockets = lock(&self.sockets);
        let infos = sockets.iter().filter_map(|socket| TcpInfo::parse(&tcp::info(socket).ok()?).ok());
        infos.map(|info| evidence(&info)).reduce(add)
    }

    /// Writes all of `message`, however long the network takes; what stands behind the first `header` bytes of it is
    /// counted as payload.
    pub(crate) fn write_all(
        &self,
        stream: &mut DataStream,
        message: &[u8],
        header: usize,
    ) -> Result<(), TransferError> {
        let mut at = 0;
        while at < message.len() {
            let part = self.part(message.len() - at);
            match stream.write(&message[at..][..part]) {
                Ok(0) => return Err(self.broken(stream, io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.count((at + written).saturating_sub(header.max(at)))?;
                    at += written;
                }
                Err(error) => self.may_go_on(stream, error)?,
            }
        }
        Ok(())
    }

    /// Fills `buffer` with payload.
    pub(crate) fn read_payload(&self, stream: &mut DataStream, buffer: &mut [u8]) -> Result<(), TransferError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let part = self.part(buffer.len() - filled);
            match stream.read(&mut buffer[filled..][..part]) {
                Ok(0) => return Err(self.broken(stream, io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => {
                    self.count(read)?;
                    filled += read;
                }
                Err(error) => self.may_go_on(stream, error)?,
            }
        }
        Ok(())
    }

    /// Fills `header`; false if the stream ended properly before its first byte.
    pub(crate) fn read_header(&self, stream: &mut DataStream, header: &mut [u8]) -> Result<bool, TransferError> {
        let mut filled = 0;
        while filled < header.len() {
            match stream.read(&mut header[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.broken(stream, io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(error) => self.may_go_on(stream, error)?,
            }
        }
        Ok(true)
    }

    fn count(&self, bytes: usize) -> Result<(), TransferError> {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(throttle) = &self.throttle else { return Ok(()) };
        throttle.pass(bytes as u64, &self.stopped).map_err(|spent| SessionError::Refused(spent.refusal()).into())
    }

    /// How much to move at once.
    fn part(&self, wanted: usize) -> usize {
        self.throttle.as_ref().map_or(wanted, |throttle| throttle.part(wanted))
    }

    fn may_go_on(&self, stream: &DataStream, error: io::Error) -> Result<(), TransferError> {
        let passing = timed_out(&error) || error.kind() == io::ErrorKind::Interrupted;
        if passing && !self.is_stopped() { Ok(()) } else { Err(self.broken(stream, error)) }
    }

    fn broken(&self, stream: &DataStream, source: io::Error) -> TransferError {
        TransferError::Stream { stream: stream.stream(), source }
    }
}

fn evidence(info: &TcpInfo) -> SocketEvidence {
    let seconds = |time: Option<std::time::Duration>| time.unwrap_or_default().as_secs_f64();
    SocketEvidence {
        receive_window: Bytes(info.snd_wnd_bytes.unwrap_or(0).into()),
        congestion_window: info.cwnd(),
        busy_seconds: seconds(info.busy),
        rwnd_limited_seconds: seconds(info.rwnd_limited),
        sndbuf_limited_seconds: seconds(info.sndbuf_limited),
        retransmits: info.retransmitted_segments.into(),
        min_rtt_seconds: seconds(info.min_rtt),
        in_slow_start: u16::from(info.ssthresh_segments.is_none_or(|ssthresh| info.cwnd_segments < ssthresh)),
    }
}

fn add(a: SocketEvidence, b: SocketEvidence) -> SocketEvidence {
    SocketEvidence {
        receive_window: Bytes(a.receive_window.0 + b.receive_window.0),
        congestion_window: Bytes(a.congestion_window.0 + b.congestion_window.0),
        busy_seconds: a.busy_seconds + b.busy_seconds,
        rwnd_limited_seconds: a.rwnd_limited_seconds + b.rwnd_limited_seconds,
        sndbuf_limited_seconds: a.sndbuf_limited_seconds + b.sndbuf_limited_seconds,
        retransmits: a.retransmits + b.retransmits,
        min_rtt_seconds: a.min_rtt_seconds.min(b.min_rtt_seconds),
        in_slow_start: a.in_slow_start + b.in_slow_start,
    }
}

/// No thread panics while it holds the lock, and what it guards is whole after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
