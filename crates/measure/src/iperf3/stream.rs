//! One stream: a thread that sends or receives over TCP or UDP, and counters for the control thread.
//!
//! The thread takes only locks that others hold briefly. It ends when everything is sent, when the peer has finished,
//! or when a stop flag is set and its socket is shut down.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::BitRate;
use lfn_results::iperf3_report::LoadProtocol;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::tcp::TcpSocket;
use lfn_session::transport::{Stream, is_timeout};
use lfn_sys::tcp::{self, CpuTime};

use super::Error;
use super::pace::SendPacer;
use super::payload::Payload;
use crate::proto::iperf3::Parameters;
use crate::proto::iperf3::datagram::{CounterWidth, DatagramCounts, LoadHeader};

/// Minimum size of a read: large enough that the cost of the system calls does not matter.
const MIN_READ_BYTES: usize = 256 * 1024;

/// Interval at which a datagram thread checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// State that all streams of a test share.
#[derive(Debug)]
pub(super) struct Load {
    protocol: LoadProtocol,
    length: usize,
    rate: Option<BitRate>,
    burst: u64,
    width: CounterWidth,
    repeating: bool,
    zero_copy: bool,
    skip_copy: bool,
    /// Bytes that all streams still have to send; `u64::MAX` means no limit.
    bytes_left: AtomicU64,
    rate_limiter: Arc<RateLimiter>,
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
    /// Set when the warm-up is over.
    warm_up_over: AtomicBool,
    origin: Instant,
}

/// Counts of one stream.
#[derive(Debug, Default)]
pub(super) struct IperfCounter {
    bytes: AtomicU64,
    blocks: AtomicU64,
    /// Nanoseconds from the origin to the last byte.
    last: AtomicU64,
    arrivals: Mutex<DatagramCounts>,
    ended: AtomicBool,
    /// Processor time of the thread when it first moved data after the warm-up.
    cpu_at_warm_up_end: OnceLock<CpuTime>,
    /// Error of the thread, and its processor time after the warm-up.
    outcome: Mutex<(Option<io::Error>, CpuTime)>,
}

/// Socket of a stream.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpSocket),
    Udp(UdpSocket),
}

/// A stream, as the control thread sees it. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct IperfStream {
    pub(super) id: u32,
    pub(super) sends: bool,
    pub(super) socket: Arc<Socket>,
    counter: Arc<IperfCounter>,
    load: Arc<Load>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    /// Creates the state. `rate` is the rate of one stream; `rate_limiter` limits all streams together.
    pub(super) fn new(parameters: &Parameters, rate: Option<BitRate>, rate_limiter: Arc<RateLimiter>) -> Arc<Self> {
        Arc::new(Load {
            protocol: parameters.protocol,
            length: usize::try_from(parameters.length.0).unwrap_or(1).max(1),
            rate,
            burst: parameters.burst.map_or(1, u64::from),
            width: parameters.width,
            repeating: parameters.repeating,
            zero_copy: parameters.zero_copy,
            skip_copy: parameters.skip_copy,
            bytes_left: AtomicU64::new(u64::MAX),
            rate_limiter,
            stop_sending: AtomicBool::new(false),
            stop_receiving: AtomicBool::new(false),
            warm_up_over: AtomicBool::new(false),
            origin: Instant::now(),
        })
    }

    /// Limits the bytes that are sent from now on.
    pub(super) fn limit_bytes(&self, bytes: u64) {
        self.bytes_left.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn stop_sending(&self) {
        self.stop_sending.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop_receiving(&self) {
        self.stop_receiving.store(true, Ordering::Relaxed);
    }

    /// Ends the warm-up: processor time of the threads counts from now on.
    pub(super) fn end_warm_up(&self) {
        self.warm_up_over.store(true, Ordering::Relaxed);
    }

    /// Returns the time since the origin.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns the length of the next block; zero when everything is sent.
    fn take_block(&self) -> usize {
        let block = self.length as u64;
        let take = |left: u64| match left {
            u64::MAX => Some(left),
            // A datagram is never shortened.
            _ if self.protocol == LoadProtocol::Udp => (left > 0).then(|| left.saturating_sub(block)),
            _ => (left > 0).then(|| left - left.min(block)),
        };
        match self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Err(_) => 0,
            Ok(left) if self.protocol == LoadProtocol::Tcp && left < block => left as usize,
            Ok(_) => self.length,
        }
    }

    fn is_sending(&self) -> bool {
        !self.stop_sending.load(Ordering::Relaxed)
    }

    fn is_receiving(&self) -> bool {
        !self.stop_receiving.load(Ordering::Relaxed)
    }
}

impl IperfCounter {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks or datagrams sent.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Returns the time from the origin to the last byte.
    pub(super) fn last(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    pub(super) fn arrivals(&self) -> DatagramCounts {
        *lock(&self.arrivals)
    }

    /// Resets the jitter at the end of the warm-up.
    pub(super) fn forget_jitter(&self) {
        lock(&self.arrivals).reset_jitter();
    }

    pub(super) fn cpu(&self) -> CpuTime {
        lock(&self.outcome).1
    }

    /// Counts moved bytes. Only the stream's own thread calls this, because only that thread can read its processor
    /// time exactly.
    fn count(&self, bytes: usize, load: &Load) {
        if load.warm_up_over.load(Ordering::Relaxed) {
            self.cpu_at_warm_up_end.get_or_init(tcp::thread_cpu);
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.last.store(u64::try_from(load.now().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Socket {
    /// Returns the TCP_INFO of a TCP stream.
    pub(super) fn info(&self) -> Option<TcpInfo> {
        match self {
            Socket::Tcp(socket) => socket.handle().info(),
            Socket::Udp(_) => None,
        }
    }
}

impl IperfStream {
    pub(super) fn new(id: u32, sends: bool, socket: Socket, load: Arc<Load>) -> Self {
        IperfStream { id, sends, socket: Arc::new(socket), counter: Arc::default(), load, thread: None }
    }

    /// Starts the stream's thread.
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
            // A thread that moved nothing after the warm-up used no processor time after the warm-up.
            let since = if load.warm_up_over.load(Ordering::Relaxed) {
                *counter.cpu_at_warm_up_end.get_or_init(|| after)
            } else {
                before
            };
            let must_report = if sends { load.is_sending() } else { load.is_receiving() };
            // After a stop, the error of the shut socket means nothing.
            let error = result.err().filter(|_| must_report);
            let cpu = CpuTime {
                user: after.user.saturating_sub(since.user),
                system: after.system.saturating_sub(since.system),
            };
            *lock(&counter.outcome) = (error, cpu);
            counter.ended.store(true, Ordering::Release);
        };
        let spawned = thread::Builder::new().name(format!("stream {}", self.id)).spawn(work);
        self.thread = Some(spawned.map_err(|source| Error::Stream { id: self.id, source })?);
        Ok(())
    }

    pub(super) fn counter(&self) -> &IperfCounter {
        &self.counter
    }

    /// Returns whether the thread has ended, or its error.
    pub(super) fn ended(&self) -> Result<bool, Error> {
        if !self.counter.ended.load(Ordering::Acquire) {
            return Ok(false);
        }
        match lock(&self.counter.outcome).0.take() {
            Some(source) => Err(Error::Stream { id: self.id, source }),
            None => Ok(true),
        }
    }

    /// Shuts the socket down and waits for the thread. The stop flag must be set.
    pub(super) fn stop(&mut self) {
        if let Socket::Tcp(socket) = &*self.socket {
            // A blocked writer wakes up from a shutdown of the write side, a blocked reader from a shutdown of the read
            // side.
            let _ = socket.handle().shut_down(if self.sends { Shutdown::Write } else { Shutdown::Read });
        }
        if let Some(thread) = self.thread.take() {
            // A thread that panicked leaves valid counts.
            let _ = thread.join();
        }
    }
}

impl Drop for IperfStream {
    fn drop(&mut self) {
        self.load.stop_sending();
        self.load.stop_receiving();
        if let Socket::Tcp(socket) = &*self.socket {
            let _ = socket.handle().shut_down(Shutdown::Both);
        }
        self.stop();
    }
}

fn send_tcp(socket: &TcpSocket, load: &Load, counter: &IperfCounter) -> io::Result<()> {
    let payload = Payload::new(load.length, load.repeating, load.zero_copy)?;
    let mut pace = SendPacer::new(load.rate, Instant::now());
    loop {
        let length = load.take_block();
        if length == 0 {
            return Ok(());
        }
        if counter.blocks().is_multiple_of(load.burst) {
            pace.wait(&load.stop_sending);
        }
        let mut sent = 0;
        while sent < length {
            if !load.is_sending() {
                return Ok(());
            }
            match write(socket, &payload, sent, load.rate_limiter.chunk_size(length - sent)) {
                Ok(part) => {
                    sent += part;
                    counter.count(part, load);
                    count_and_wait(load, part, &load.stop_sending)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        counter.blocks.fetch_add(1, Ordering::Relaxed);
        pace.count(length as u64);
    }
}

fn write(mut socket: &TcpSocket, payload: &Payload, from: usize, length: usize) -> io::Result<usize> {
    match &payload.pages {
        Some(pages) => pages.send(socket, from, length),
        None => socket.write(&payload.bytes[from..from + length]),
    }
}

fn receive_tcp(mut socket: &TcpSocket, load: &Load, counter: &IperfCounter) -> io::Result<()> {
    let mut buffer = vec![0; load.rate_limiter.chunk_size(MIN_READ_BYTES.max(load.length))];
    while load.is_receiving() {
        let read = match load.skip_copy {
            // The kernel discards the data instead of copying it, and returns the length (tcp(7)).
            true => tcp::discard(socket, &mut buffer)?,
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
        count_and_wait(load, read, &load.stop_receiving)?;
    }
    Ok(())
}

fn send_udp(socket: &UdpSocket, load: &Load, counter: &IperfCounter) -> io::Result<()> {
    // The time-out lets the thread check its stop flag, even if a queue of this host does not drain.
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    let mut datagram = Payload::new(load.length, load.repeating, false)?.bytes;
    let mut pace = SendPacer::new(load.rate, Instant::now());
    // A block that could not be sent is tried again.
    let mut is_pending = false;
    while load.is_sending() && (is_pending || load.take_block() > 0) {
        is_pending = true;
        let number = counter.blocks() + 1;
        if (number - 1).is_multiple_of(load.burst) {
            pace.wait(&load.stop_sending);
        }
        LoadHeader { sent: since_1970(), number }.write(&mut datagram, load.width);
        match socket.send(&datagram) {
            Ok(sent) => {
                is_pending = false;
                counter.blocks.fetch_add(1, Ordering::Relaxed);
                counter.count(sent, load);
                count_and_wait(load, sent, &load.stop_sending)?;
                pace.count(datagram.len() as u64);
            }
            // The peer closed its socket, or a queue of this host is full.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive_udp(socket: &UdpSocket, load: &Load, counter: &IperfCounter) -> io::Result<()> {
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut buffer = vec![0; 1 << 16];
    while load.is_receiving() {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            // A time-out, or the error of an earlier answer that reached no socket.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted || is_timeout(&error) => continue,
            Err(error) => return Err(error),
        };
        // Too short for a header: a repeated request for the stream.
        let Some(header) = LoadHeader::read(&buffer[..length], load.width) else { continue };
        lock(&counter.arrivals).record(&header, since_1970());
        counter.blocks.fetch_add(1, Ordering::Relaxed);
        counter.count(length, load);
        count_and_wait(load, length, &load.stop_receiving)?;
    }
    Ok(())
}

fn count_and_wait(load: &Load, bytes: usize, stop: &AtomicBool) -> io::Result<()> {
    load.rate_limiter.count_and_wait(bytes as u64, stop).map_err(io::Error::other)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// No thread panics while it holds a lock, and the content is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;

    use super::*;

    #[test]
    fn refused_datagrams_do_not_count_as_sent() {
        // The peer's socket is closed: every second send reports the refusal of the previous one.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(peer).unwrap();
        let parameters = Parameters { protocol: LoadProtocol::Udp, length: Bytes(100), ..Parameters::default() };
        let load = Load::new(&parameters, None, RateLimiter::unlimited());
        load.limit_bytes(2000);
        let counter = IperfCounter::default();
        send_udp(&socket, &load, &counter).unwrap();
        assert_eq!((counter.blocks(), counter.bytes()), (20, 2000));
    }
}
