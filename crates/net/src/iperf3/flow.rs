//! One stream: a thread that sends or receives, over TCP or UDP, and counters the control thread reads.
//!
//! The thread takes no lock but one that nobody else holds for long, and ends when what is to be sent is sent, the
//! other end has finished, or it is told to stop and its socket is shut down.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::iperf3::datagram::{Arrivals, Header, Width};
use lfn_core::iperf3::{Parameters, Protocol};
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::BitRate;
use lfn_sys::tcp::{self, CpuTime};
use rustix::net::RecvFlags;

use super::Error;
use super::pace::Pace;
use super::payload::Payload;
use crate::server::throttle::Throttle;

/// What a receiver asks of one read, at least: large enough that the calls cost nothing.
const READ: usize = 256 * 1024;

/// How often a datagram thread looks whether it should stop.
const LOOK_UP: Duration = Duration::from_millis(50);

/// What all streams of a test have in common.
#[derive(Debug)]
pub(super) struct Load {
    protocol: Protocol,
    length: usize,
    rate: Option<BitRate>,
    burst: u64,
    width: Width,
    repeating: bool,
    zero_copy: bool,
    skip_copy: bool,
    /// Bytes still to be sent by all streams; the largest number is no limit.
    left: AtomicU64,
    throttle: Arc<Throttle>,
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
    /// The warm-up is over.
    anew: AtomicBool,
    origin: Instant,
}

/// What a stream's thread tells as it goes.
#[derive(Debug, Default)]
pub(super) struct Counter {
    bytes: AtomicU64,
    blocks: AtomicU64,
    /// Nanoseconds from the origin to the last byte.
    last: AtomicU64,
    arrivals: Mutex<Arrivals>,
    ended: AtomicBool,
    /// The thread's processor time when it first moved something past the warm-up.
    warm: OnceLock<CpuTime>,
    /// What went wrong, and the processor time it took past the warm-up.
    end: Mutex<(Option<io::Error>, CpuTime)>,
}

/// The socket of a stream.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// A stream as the control thread sees it. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: u32,
    pub(super) sends: bool,
    pub(super) socket: Arc<Socket>,
    counter: Arc<Counter>,
    load: Arc<Load>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    /// `rate` is what one stream keeps to; `throttle` what all of them pass.
    pub(super) fn new(parameters: &Parameters, rate: Option<BitRate>, throttle: Arc<Throttle>) -> Arc<Self> {
        Arc::new(Load {
            protocol: parameters.protocol,
            length: usize::try_from(parameters.length.0).unwrap_or(1).max(1),
            rate,
            burst: parameters.burst.map_or(1, u64::from),
            width: parameters.width,
            repeating: parameters.repeating,
            zero_copy: parameters.zero_copy,
            skip_copy: parameters.skip_copy,
            left: AtomicU64::new(u64::MAX),
            throttle,
            stop_sending: AtomicBool::new(false),
            stop_receiving: AtomicBool::new(false),
            anew: AtomicBool::new(false),
            origin: Instant::now(),
        })
    }

    /// From now on no more than so many bytes are sent.
    pub(super) fn send_only(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn stop_sending(&self) {
        self.stop_sending.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop_receiving(&self) {
        self.stop_receiving.store(true, Ordering::Relaxed);
    }

    /// The warm-up is over: no thread's processor time until now counts.
    pub(super) fn begin_anew(&self) {
        self.anew.store(true, Ordering::Relaxed);
    }

    /// From the origin to now.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The next block's length; nothing when all is dealt.
    fn deal(&self) -> usize {
        let wanted = self.length as u64;
        let take = |left: u64| match left {
            u64::MAX => Some(left),
            // A datagram is whole or not at all.
            _ if self.protocol == Protocol::Udp => (left > 0).then(|| left.saturating_sub(wanted)),
            _ => (left > 0).then(|| left - left.min(wanted)),
        };
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Err(_) => 0,
            Ok(left) if self.protocol == Protocol::Tcp && left < wanted => left as usize,
            Ok(_) => self.length,
        }
    }

    fn sending(&self) -> bool {
        !self.stop_sending.load(Ordering::Relaxed)
    }

    fn receiving(&self) -> bool {
        !self.stop_receiving.load(Ordering::Relaxed)
    }
}

impl Counter {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Blocks or datagrams sent.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// From the origin to the last byte.
    pub(super) fn last(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        *lock(&self.arrivals)
    }

    /// The warm-up is over.
    pub(super) fn forget_jitter(&self) {
        lock(&self.arrivals).forget_jitter();
    }

    pub(super) fn cpu(&self) -> CpuTime {
        lock(&self.end).1
    }

    /// Of its thread alone: nobody else can read that thread's processor time as exactly.
    fn count(&self, bytes: usize, load: &Load) {
        if load.anew.load(Ordering::Relaxed) {
            self.warm.get_or_init(tcp::thread_cpu);
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.last.store(u64::try_from(load.now().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Socket {
    /// What the kernel says of a TCP stream.
    pub(super) fn info(&self) -> Option<TcpInfo> {
        match self {
            Socket::Tcp(socket) => tcp::info(socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok()),
            Socket::Udp(_) => None,
        }
    }
}

impl Flow {
    pub(super) fn new(id: u32, sends: bool, socket: Socket, load: Arc<Load>) -> Self {
        Flow { id, sends, socket: Arc::new(socket), counter: Arc::default(), load, thread: None }
    }

    /// Begins to move data.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let (socket, counter, load, sends) = (self.socket.clone(), self.counter.clone(), self.load.clone(), self.sends);
        let work = move || {
            let before = tcp::thread_cpu();
            let result = match (&*socket, sends) {
                (Socket::Tcp(socket), true) => send_tcp(socket, &load, &counter),
                (Socket::Tcp(socket), false) => receive_tcp(socket, &load, &counter),
                (Socket::Udp(socket), true) => send_udp(socket, &load, &counter),
                (Socket::Udp(socket), false) => receive_udp(socket, &load, &counter),
            };
            let after = tcp::thread_cpu();
            // One that moved nothing past the warm-up used nothing past it.
            let since = if load.anew.load(Ordering::Relaxed) { *counter.warm.get_or_init(|| after) } else { before };
            let told = if sends { load.sending() } else { load.receiving() };
            // What a stream that was stopped had to say of its shut socket is no news.
            let error = result.err().filter(|_| told);
            let cpu = CpuTime {
                user: after.user.saturating_sub(since.user),
                system: after.system.saturating_sub(since.system),
            };
            *lock(&counter.end) = (error, cpu);
            counter.ended.store(true, Ordering::Release);
        };
        let spawned = thread::Builder::new().name(format!("stream {}", self.id)).spawn(work);
        self.thread = Some(spawned.map_err(|source| Error::Stream { id: self.id, source })?);
        Ok(())
    }

    pub(super) fn counter(&self) -> &Counter {
        &self.counter
    }

    /// Whether its thread is done, and what went wrong if something did.
    pub(super) fn ended(&self) -> Result<bool, Error> {
        if !self.counter.ended.load(Ordering::Acquire) {
            return Ok(false);
        }
        match lock(&self.counter.end).0.take() {
            Some(source) => Err(Error::Stream { id: self.id, source }),
            None => Ok(true),
        }
    }

    /// Waits for its thread, which has been told to stop.
    pub(super) fn stop(&mut self) {
        if let Socket::Tcp(socket) = &*self.socket {
            // A blocked writer wakes from a shut writing side, a blocked reader from a shut reading side.
            let _ = socket.shutdown(if self.sends { Shutdown::Write } else { Shutdown::Read });
        }
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did, its figures stand as they are.
            let _ = thread.join();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.load.stop_sending();
        self.load.stop_receiving();
        if let Socket::Tcp(socket) = &*self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.stop();
    }
}

fn send_tcp(socket: &TcpStream, load: &Load, counter: &Counter) -> io::Result<()> {
    let payload = Payload::new(load.length, load.repeating, load.zero_copy)?;
    let mut pace = Pace::new(load.rate, Instant::now());
    loop {
        let length = load.deal();
        if length == 0 {
            return Ok(());
        }
        if counter.blocks().is_multiple_of(load.burst) {
            pace.wait(&load.stop_sending);
        }
        let mut sent = 0;
        while sent < length {
            if !load.sending() {
                return Ok(());
            }
            match write(socket, &payload, sent, load.throttle.part(length - sent)) {
                Ok(part) => {
                    sent += part;
                    counter.count(part, load);
                    pass(load, part, &load.stop_sending)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        counter.blocks.fetch_add(1, Ordering::Relaxed);
        pace.sent(length as u64);
    }
}

fn write(mut socket: &TcpStream, payload: &Payload, from: usize, length: usize) -> io::Result<usize> {
    match &payload.pages {
        Some(pages) => pages.send(socket, from, length),
        None => socket.write(&payload.bytes[from..from + length]),
    }
}

fn receive_tcp(mut socket: &TcpStream, load: &Load, counter: &Counter) -> io::Result<()> {
    let mut buffer = vec![0; load.throttle.part(READ.max(load.length))];
    while load.receiving() {
        let read = match load.skip_copy {
            // The kernel throws away what it would copy, and says how much it was (tcp(7)).
            true => rustix::net::recv(socket, &mut buffer[..], RecvFlags::TRUNC).map(|(_, length)| length)?,
            false => match socket.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            },
        };
        if read == 0 {
            return Ok(());
        }
        counter.count(read, load);
        counter.blocks.fetch_add(1, Ordering::Relaxed);
        pass(load, read, &load.stop_receiving)?;
    }
    Ok(())
}

fn send_udp(socket: &UdpSocket, load: &Load, counter: &Counter) -> io::Result<()> {
    // A queue of this host that does not drain must not keep the thread from seeing that it is to end.
    socket.set_write_timeout(Some(LOOK_UP))?;
    let mut datagram = Payload::new(load.length, load.repeating, false)?.bytes;
    let mut pace = Pace::new(load.rate, Instant::now());
    // What was dealt and could not be sent is still to be sent.
    let mut dealt = false;
    while load.sending() && (dealt || load.deal() > 0) {
        dealt = true;
        let number = counter.blocks() + 1;
        if (number - 1).is_multiple_of(load.burst) {
            pace.wait(&load.stop_sending);
        }
        Header { sent: since_1970(), number }.write(&mut datagram, load.width);
        match socket.send(&datagram) {
            Ok(sent) => {
                dealt = false;
                counter.blocks.fetch_add(1, Ordering::Relaxed);
                counter.count(sent, load);
                pass(load, sent, &load.stop_sending)?;
                pace.sent(datagram.len() as u64);
            }
            // The other end closed its socket, or a queue on this host is full: the time is over soon, or it is not.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) if crate::session::timed_out(&error) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive_udp(socket: &UdpSocket, load: &Load, counter: &Counter) -> io::Result<()> {
    socket.set_read_timeout(Some(LOOK_UP))?;
    let mut buffer = vec![0; 1 << 16];
    while load.receiving() {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            // Nothing came in time, or an earlier answer of ours found nobody.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted || crate::session::timed_out(&error) => continue,
            Err(error) => return Err(error),
        };
        // Too short for a header: a request for a stream that came twice.
        let Some(header) = Header::read(&buffer[..length], load.width) else { continue };
        lock(&counter.arrivals).take(&header, since_1970());
        counter.blocks.fetch_add(1, Ordering::Relaxed);
        counter.count(length, load);
        pass(load, length, &load.stop_receiving)?;
    }
    Ok(())
}

fn pass(load: &Load, bytes: usize, stop: &AtomicBool) -> io::Result<()> {
    load.throttle.pass(bytes as u64, stop).map_err(io::Error::other)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// No thread panics while it holds one, and what is in it is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::units::Bytes;

    #[test]
    fn what_is_refused_is_not_counted_as_sent() {
        // Nobody listens there any more: every other send tells that the one before was refused.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(peer).unwrap();
        let parameters = Parameters { protocol: Protocol::Udp, length: Bytes(100), ..Parameters::default() };
        let load = Load::new(&parameters, None, Throttle::none());
        load.send_only(2000);
        let counter = Counter::default();
        send_udp(&socket, &load, &counter).unwrap();
        assert_eq!((counter.blocks(), counter.bytes()), (20, 2000));
    }
}
