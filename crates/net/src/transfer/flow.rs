//! What all streams of one side share: whether to go on, the first failure, and what has been done so far.
//!
//! A stream that breaks is no failure of the copy: it is over, and its side tells the other. Only if streams break again and
//! again, and nothing arrives between, is the copy given up.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lfn_core::admission::Denied;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::transfer::limit::{Doing, Look, Shares, SocketEvidence, Standstill};
use lfn_core::transfer::random_loss::Judge;
use lfn_core::units::Bytes;
use lfn_core::wire::CongestionWish;
use lfn_core::wire::copy::Progress;
use lfn_sys::pages::WHOLE_PACKET;
use lfn_sys::tcp;
use rustix::fs::sendfile;

use super::TransferError;
use super::line::{Line, Over, STREAM_STALLED};
use super::talk::{SERVER_WAITS, STALLED_AFTER, stall};
use crate::server::throttle::Throttle;
use crate::session::{DEAD_AFTER, DataStream, SessionError, timed_out};

/// How many streams may break in a row and nothing arrive between: so many for each that was open at once, and so many
/// besides.
const FRUITLESS: (u32, u32) = (3, 5);

/// How many more a server bears: it is the client that dials, and says why no more.
const SERVER_BEARS: u32 = 8;

/// What does not slow down for losses that are none of a queue's, as `TCP_CONGESTION` takes it.
const BBR: &str = "bbr";

/// One side's streams, seen together.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    stopped: AtomicBool,
    failure: Mutex<Option<TransferError>>,
    lines: Mutex<Lines>,
    bytes: AtomicU64,
    passed: AtomicU64,
    /// Blocks that arrived.
    arrived: AtomicU64,
    /// What a server holds the copy to.
    throttle: Option<Arc<Throttle>>,
    /// Threads that wait for that.
    held: Spent,
    disk: Spent,
    hash: Spent,
    network: Spent,
    /// Judges whether the streams of a sender should go on under BBR, as long as that may be.
    judge: Mutex<Option<Judge>>,
    /// They do.
    switched: AtomicBool,
}

/// The streams themselves.
#[derive(Debug, Default)]
struct Lines {
    live: BTreeMap<u16, Arc<Line>>,
    over: Vec<Over>,
    /// Numbers of which nothing is taken, should a stream still come.
    dead: HashSet<u16>,
    /// The most there were at once.
    most: u32,
    /// What the kernel said of those that are over.
    past: Option<SocketEvidence>,
    /// Streams that broke: all, and those since anything arrived.
    broke: u32,
    fruitless: u32,
    /// What had arrived when the last one broke.
    arrived: u64,
    /// When one of those was found stalled first.
    stalled: Option<Instant>,
    /// What the other side says of it.
    far: Option<String>,
}

impl Lines {
    /// Of what broke before anything arrived the next does not make one more.
    fn see(&mut self, arrived: u64) {
        if std::mem::replace(&mut self.arrived, arrived) != arrived {
            (self.fruitless, self.stalled) = (0, None);
        }
    }
}

/// Time spent on something, and by how many just now.
#[derive(Debug, Default)]
struct Spent {
    nanoseconds: AtomicU64,
    now: AtomicUsize,
}

/// What a stream spends its time on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activity {
    Disk,
    Hash,
    Network,
    /// Waiting, because a server grants no more.
    Held,
}

impl Flow {
    /// Streams that a server holds to what the session was granted.
    pub(crate) fn held_to(throttle: Arc<Throttle>) -> Self {
        Flow { throttle: Some(throttle), ..Flow::default() }
    }

    /// Streams whose congestion control may be changed while they run: the user named none.
    pub(crate) fn controlled_by(self, wish: Option<&CongestionWish>) -> Self {
        let free = wish.is_none_or(|wish| wish.asked().is_none());
        Flow { judge: Mutex::new(free.then(Judge::default)), ..self }
    }

    /// Looks whether a sender's streams should go on under BBR, and changes them where they should and may.
    pub(crate) fn reconsider(&self, look: &Look) {
        let mut judge = lock(&self.judge);
        let live = self.live();
        let streams = u16::try_from(live.len()).unwrap_or(u16::MAX);
        if !judge.as_mut().is_some_and(|judge| judge.look(look, streams)) {
            return;
        }
        // Whatever comes of it, it is tried once.
        *judge = None;
        let has_it = |line: &Arc<Line>| tcp::congestion(&line.socket).is_ok_and(|name| name.starts_with(BBR));
        if live.iter().any(has_it) {
            return;
        }
        // A kernel that has none, or not for this user, says so of the first.
        let set = live.iter().take_while(|line| tcp::set_congestion(&line.socket, BBR).is_ok()).count();
        self.switched.store(set > 0, Ordering::SeqCst);
    }

    /// Runs one stream's work on this thread. If it breaks, the others go on; any other failure ends them all.
    pub(crate) fn run(
        &self,
        mut stream: DataStream,
        work: impl FnOnce(&mut DataStream, &Line) -> Result<(), TransferError>,
    ) {
        let number = stream.stream();
        let line = match self.register(&stream) {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(source) => return self.fail(TransferError::Stream { stream: number, source }),
        };
        let result = work(&mut stream, &line);
        let broken = result.as_ref().is_err_and(|error| line.is_cut() || error.is_of_stream());
        self.retire(&line, broken);
        match result {
            Err(error) if !broken => self.fail(error),
            result => lock(&self.lines).over.push(Over { line, why: result.err() }),
        }
    }

    /// Keeps a stream in reach, to be cut; none if nobody wants it any more.
    fn register(&self, stream: &DataStream) -> io::Result<Option<Arc<Line>>> {
        let socket = stream.socket();
        // A wait that long only makes the thread look whether to go on; who is dead is judged elsewhere.
        socket.set_read_timeout(Some(DEAD_AFTER))?;
        socket.set_write_timeout(Some(DEAD_AFTER))?;
        let line = Arc::new(Line::new(stream, socket.try_clone()?));
        let mut lines = lock(&self.lines);
        let number = line.number();
        if self.is_stopped() || lines.dead.contains(&number) || lines.live.contains_key(&number) {
            return Ok(None);
        }
        if self.switched.load(Ordering::SeqCst) {
            // It was to be had for the others; without it this one is slow and no worse.
            let _ = tcp::set_congestion(&line.socket, BBR);
        }
        lines.live.insert(number, line.clone());
        lines.most = lines.most.max(lines.live.len() as u32);
        Ok(Some(line))
    }

    /// Takes a stream from those at work, and keeps what the kernel says of it.
    fn retire(&self, line: &Line, broken: bool) {
        let mut evidence = look_at(line);
        if let Some(evidence) = evidence.as_mut().filter(|_| broken) {
            (evidence.receive_window, evidence.congestion_window, evidence.in_slow_start) = Default::default();
            evidence.rtt_seconds = 0.0;
        }
        let mut lines = lock(&self.lines);
        lines.past = [lines.past, evidence].into_iter().flatten().reduce(add);
        lines.dead.insert(line.number());
        lines.live.remove(&line.number());
    }

    /// The streams that are at work.
    pub(crate) fn live(&self) -> Vec<Arc<Line>> {
        lock(&self.lines).live.values().cloned().collect()
    }

    /// How many there are.
    pub(crate) fn streams(&self) -> usize {
        lock(&self.lines).live.len()
    }

    /// One of them.
    pub(crate) fn line(&self, number: u16) -> Option<Arc<Line>> {
        lock(&self.lines).live.get(&number).cloned()
    }

    /// The streams that came to their end since this was asked last.
    pub(crate) fn take_over(&self) -> Vec<Over> {
        std::mem::take(&mut lock(&self.lines).over)
    }

    /// Ends a stream, also if it is still to come.
    pub(crate) fn bury(&self, number: u16) {
        let mut lines = lock(&self.lines);
        lines.dead.insert(number);
        if let Some(line) = lines.live.get(&number) {
            line.cut();
        }
    }

    /// Blocks arrived.
    pub(crate) fn arrive(&self, blocks: u64) {
        self.arrived.fetch_add(blocks, Ordering::SeqCst);
    }

    /// A stream is over because nothing of it was taken, here or at the other end.
    pub(crate) fn stalls(&self, now: Instant) {
        let arrived = self.arrived.load(Ordering::SeqCst);
        let mut lines = lock(&self.lines);
        lines.see(arrived);
        lines.stalled.get_or_insert(now);
    }

    /// A stream broke, or could not be had: the last of too many in a row ends the copy.
    pub(crate) fn lose(&self, why: TransferError) {
        self.lose_at(why, Instant::now());
    }

    fn lose_at(&self, why: TransferError, now: Instant) {
        let arrived = self.arrived.load(Ordering::SeqCst);
        let mut lines = lock(&self.lines);
        lines.see(arrived);
        lines.broke += 1;
        lines.fruitless += 1;
        let (times, far, stalled) = (lines.fruitless, lines.far.clone(), lines.stalled);
        let (more, longer) = if self.throttle.is_some() { (SERVER_BEARS, SERVER_WAITS) } else { Default::default() };
        let many = times > FRUITLESS.0 * lines.most + FRUITLESS.1 + more;
        drop(lines);
        // Before the first was found to be stalled, nothing of it was taken for some time.
        let after = stalled.map(|since| now.saturating_duration_since(since) + STREAM_STALLED);
        if let Some(after) = after.filter(|after| many || *after >= STALLED_AFTER + longer) {
            return self.fail(TransferError::Stalled { after, what: stall(Standstill::Network, true) });
        }
        if !many {
            return;
        }
        let source = Box::new(far.map_or(why, TransferError::FarStream));
        self.fail(TransferError::Fruitless { times, source });
    }

    /// The other side says why a stream broke, which it may know better.
    pub(crate) fn far_says(&self, why: &str) {
        lock(&self.lines).far = Some(why.to_owned());
    }

    /// How many streams broke.
    pub(crate) fn broke(&self) -> u32 {
        lock(&self.lines).broke
    }

    /// How many of them did so since anything arrived.
    pub(crate) fn fruitless(&self) -> u32 {
        let lines = lock(&self.lines);
        if lines.arrived == self.arrived.load(Ordering::SeqCst) { lines.fruitless } else { 0 }
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
        lock(&self.lines).live.values().for_each(|line| line.cut());
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The first failure of a stream.
    pub(crate) fn take_failure(&self) -> Option<TransferError> {
        lock(&self.failure).take()
    }

    fn spent(&self, on: Activity) -> &Spent {
        match on {
            Activity::Disk => &self.disk,
            Activity::Hash => &self.hash,
            Activity::Network => &self.network,
            Activity::Held => &self.held,
        }
    }

    /// Does something and adds its time to the shares.
    pub(crate) fn spend<T>(&self, on: Activity, work: impl FnOnce() -> T) -> T {
        let (started, spent) = (Instant::now(), self.spent(on));
        spent.now.fetch_add(1, Ordering::Relaxed);
        let result = work();
        spent.now.fetch_sub(1, Ordering::Relaxed);
        spent.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// How far this side is.
    pub(crate) fn progress(&self) -> Progress {
        let seconds = |spent: &Spent| spent.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        let now = |spent: &Spent| spent.now.load(Ordering::Relaxed) as u32;
        let (disk, hash, network) = (&self.disk, &self.hash, &self.network);
        let (held, [disk_time, hash_time, network_time]) = (seconds(&self.held), [disk, hash, network].map(seconds));
        let shares = Shares { disk: disk_time, hash: hash_time, network: network_time, held };
        let doing = Doing { disk: now(disk), hash: now(hash), network: now(network) };
        Progress { bytes: Bytes(self.bytes.load(Ordering::Relaxed)), shares, doing, sockets: None }
    }

    /// What the kernel says of this side's sockets, summed; none before the first is there.
    pub(crate) fn sockets(&self) -> Option<SocketEvidence> {
        let lines = lock(&self.lines);
        let live = lines.live.values().filter_map(|line| look_at(line));
        let all = live.chain(lines.past).reduce(add);
        all.map(|all| SocketEvidence { switched: self.switched.load(Ordering::SeqCst), ..all })
    }

    /// Writes all of `message`, however long the network takes; what stands behind the first `header` bytes of it is
    /// counted as payload.
    pub(crate) fn write_all(
        &self,
        (stream, line): (&mut DataStream, &Line),
        message: &[u8],
        header: usize,
    ) -> Result<(), TransferError> {
        let mut at = 0;
        while at < message.len() {
            let part = self.part(message.len() - at);
            match stream.write(&message[at..][..part]) {
                Ok(0) => return Err(self.broken(line, io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    line.count(written);
                    self.count((at + written).saturating_sub(header.max(at)))?;
                    at += written;
                }
                Err(error) => self.may_go_on(line, error)?,
            }
        }
        Ok(())
    }

    /// Sends so much of a file from its own pages, over a stream in the clear; less if it ends before. Tells how much.
    pub(crate) fn send_pages(
        &self,
        (stream, line): (&DataStream, &Line),
        file: &File,
        offset: u64,
        length: u64,
    ) -> Result<u64, TransferError> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let part = self.part((end - at) as usize).min(WHOLE_PACKET);
            match sendfile(stream.socket(), file, Some(&mut at), part) {
                Ok(0) => break,
                Ok(sent) => {
                    line.count(sent);
                    self.count(sent)?;
                }
                Err(error) => self.may_go_on(line, error.into())?,
            }
        }
        Ok(at - offset)
    }

    /// Reads what is there, at least a byte unless the stream ended; the caller counts what of it is payload.
    pub(crate) fn read_some(
        &self,
        (stream, line): (&mut DataStream, &Line),
        buffer: &mut [u8],
    ) -> Result<usize, TransferError> {
        let part = self.part(buffer.len());
        loop {
            match stream.read(&mut buffer[..part]) {
                Ok(read) => {
                    line.count(read);
                    return Ok(read);
                }
                Err(error) => self.may_go_on(line, error)?,
            }
        }
    }

    /// Drops what is there, at least a byte unless the stream ended, over a stream in the clear; `buffer` says how much
    /// at most.
    pub(crate) fn drop_some(
        &self,
        (stream, line): (&DataStream, &Line),
        buffer: &mut [u8],
    ) -> Result<usize, TransferError> {
        let part = self.part(buffer.len());
        loop {
            match tcp::discard(stream.socket(), &mut buffer[..part]) {
                Ok(dropped) => {
                    line.count(dropped);
                    return Ok(dropped);
                }
                Err(error) => self.may_go_on(line, error)?,
            }
        }
    }

    /// Counts payload, and waits where a server holds the copy to less.
    pub(crate) fn count(&self, bytes: usize) -> Result<(), TransferError> {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(throttle) = &self.throttle else { return Ok(()) };
        let passed = self.spend(Activity::Held, || throttle.pass(bytes as u64, &self.stopped));
        passed.map_err(|spent| SessionError::Refused(spent.refusal()).into())
    }

    /// Whether a server counts the bytes of this copy, so that they may come to an end.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.throttle.as_ref().is_some_and(|throttle| throttle.is_limited())
    }

    /// Whether the quota has `all` bytes for the session from its beginning to its end, `asked` of them newly asked for.
    pub(crate) fn affords(&self, all: Bytes, asked: Bytes) -> Result<(), Denied> {
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.affords(all, asked))
    }

    /// Takes a hole from the quota: a file grows by it as by bytes that are moved.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), TransferError> {
        let charged = self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.charge(bytes));
        charged.map_err(|spent| SessionError::Refused(spent.refusal()).into())
    }

    /// Whether this side itself keeps streams waiting: for its disk, or for what a server holds them to.
    pub(crate) fn holds(&self) -> bool {
        self.held.now.load(Ordering::Relaxed) > 0 || self.disk.now.load(Ordering::Relaxed) > 0
    }

    /// Counts payload that need not be moved: a hole, or what an earlier copy left.
    pub(crate) fn pass_over(&self, bytes: u64) {
        self.passed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How much that is.
    pub(crate) fn passed(&self) -> Bytes {
        Bytes(self.passed.load(Ordering::Relaxed))
    }

    /// How much to move at once.
    fn part(&self, wanted: usize) -> usize {
        self.throttle.as_ref().map_or(wanted, |throttle| throttle.part(wanted))
    }

    fn may_go_on(&self, line: &Line, error: io::Error) -> Result<(), TransferError> {
        let passing = timed_out(&error) || error.kind() == io::ErrorKind::Interrupted;
        if passing && !self.is_stopped() && !line.is_cut() { Ok(()) } else { Err(self.broken(line, error)) }
    }

    /// The error of a stream that broke.
    pub(crate) fn broken(&self, line: &Line, source: io::Error) -> TransferError {
        TransferError::Stream { stream: line.number(), source }
    }
}

fn look_at(line: &Line) -> Option<SocketEvidence> {
    tcp::info(&line.socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok()).map(|info| evidence(&info))
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
        segments_sent: info.sent_segments.unwrap_or(0).into(),
        rtt_seconds: info.rtt.as_secs_f64(),
        switched: false,
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
        segments_sent: a.segments_sent + b.segments_sent,
        rtt_seconds: a.rtt_seconds.max(b.rtt_seconds),
        switched: a.switched || b.switched,
        min_rtt_seconds: a.min_rtt_seconds.min(b.min_rtt_seconds),
        in_slow_start: a.in_slow_start + b.in_slow_start,
    }
}

/// No thread panics while it holds the lock, and what it guards is whole after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ends a copy over one stream of which nothing is taken, nor of any that takes its place, and after how many.
    fn ended(flow: &Flow, stalls: bool, arrives_at: Option<u64>) -> (u64, TransferError) {
        let begun = Instant::now();
        for round in 1.. {
            let now = begun + round * STREAM_STALLED;
            if arrives_at == Some(round.into()) {
                flow.arrive(1);
            }
            if stalls {
                flow.stalls(now);
            }
            flow.lose_at(TransferError::Stream { stream: 0, source: io::ErrorKind::BrokenPipe.into() }, now);
            if let Some(error) = flow.take_failure() {
                return (round.into(), error);
            }
        }
        unreachable!("it never ends")
    }

    #[test]
    fn streams_that_stall_one_after_the_other_are_a_stall_after_a_minute() {
        let (rounds, error) = ended(&Flow::default(), true, None);
        assert!(matches!(error, TransferError::Stalled { after, .. } if after == STALLED_AFTER), "{error}");
        assert_eq!(rounds, 6);
        // It is the client that says so first; and what arrives between begins a new minute.
        let served = Flow { throttle: Some(Throttle::none()), ..Flow::default() };
        assert_eq!(ended(&served, true, None).0, 8);
        assert_eq!(ended(&Flow::default(), true, Some(5)).0, 10);
    }

    #[test]
    fn streams_that_break_are_not_said_to_stall() {
        let (rounds, error) = ended(&Flow::default(), false, None);
        assert!(matches!(error, TransferError::Fruitless { times: 6, .. }), "{error}");
        assert_eq!(rounds, 6);
    }
}
