//! Measures the cost of forwarding: sends at maximum speed for a short time, once in single packets and once in
//! super-packets.
//!
//! The load is a flood of datagrams without a reader, and a TCP stream. The result is the processor time of the
//! forwarding threads and of the threads that send and receive, from the kernel's accounting. This time is nearly the
//! same on a busy machine.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_link::PacketCount;
use lfn_session::transport::Stream;
use lfn_session::transport::tcp::{DEFAULT_BACKLOG, Listener, TcpConnection};
use lfn_sys::{clock, process};

use super::{CpuCost, ForwardingCosts};
use crate::data_path::{ControlChannel, Snapshot};
use crate::error::{EmulateError, spawn_scoped, system_error};
use crate::network::{PathEnd, SideName, SideNetwork};

/// Duration of the load.
const FLOOD_DURATION: Duration = Duration::from_millis(80);
const STREAM_DURATION: Duration = Duration::from_millis(150);
/// Minimum number of packets and of bytes. With fewer, the machine is too busy for a measurement.
const MIN_PACKETS: u64 = 200;
const MIN_BYTES: u64 = 10_000_000;
/// UDP payload of a packet of 1,500 bytes.
const DATAGRAM: usize = 1472;
/// Bytes of one write to the stream.
const WRITE_SIZE: usize = 256 << 10;
const PORT: u16 = 9;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Measures the cost of single packets and of super-packets.
pub(super) fn costs(sides: &[SideNetwork; 2], channels: &[ControlChannel; 2]) -> Result<ForwardingCosts, EmulateError> {
    let mut meter = CpuMeter::new(channels)?;
    let sender = thread::scope(|scope| spawn_scoped(scope, || flood(sides)).map(join))?;
    let (cpu_time, forwarded) = meter.since(sender.map_err(system_error("send datagrams"))?)?;
    let packet = cpu_time.per(forwarded.packets, MIN_PACKETS)?;
    let endpoint_time = stream(sides)?.map_err(system_error("send over TCP"))?;
    let (cpu_time, forwarded) = meter.since(endpoint_time)?;
    let gigabyte = cpu_time.per(forwarded.bytes.0, MIN_BYTES)?;
    let gigabyte = CpuCost { thread: gigabyte.thread * 1e9, all: gigabyte.all * 1e9 };
    let processors = thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    Ok(ForwardingCosts { packet, gigabyte, processors })
}

/// Measures the progress of both directions between two calls.
struct CpuMeter<'a> {
    channels: &'a [ControlChannel; 2],
    forth: Snapshot,
    back: Snapshot,
}

/// Processor time of the forwarding thread, and of all threads.
struct CpuTimeUsed {
    thread: Duration,
    all: Duration,
}

impl<'a> CpuMeter<'a> {
    fn new(channels: &'a [ControlChannel; 2]) -> Result<Self, EmulateError> {
        let [forth, back] = channels;
        Ok(CpuMeter { channels, forth: forth.snapshot()?, back: back.snapshot()? })
    }

    /// Returns the processor time and the forwarded packets since the previous call. `endpoint_time` is the time of
    /// sender and receiver.
    fn since(&mut self, endpoint_time: Duration) -> Result<(CpuTimeUsed, PacketCount), EmulateError> {
        let now = CpuMeter::new(self.channels)?;
        let thread = now.forth.cpu.saturating_sub(self.forth.cpu);
        let all = thread + now.back.cpu.saturating_sub(self.back.cpu) + endpoint_time;
        let (current, previous) = (now.forth.stats.forwarded, self.forth.stats.forwarded);
        let bytes = Bytes(current.bytes.0.saturating_sub(previous.bytes.0));
        *self = now;
        Ok((
            CpuTimeUsed { thread, all },
            PacketCount { packets: current.packets.saturating_sub(previous.packets), bytes },
        ))
    }
}

impl CpuTimeUsed {
    fn per(&self, count: u64, min_count: u64) -> Result<CpuCost, EmulateError> {
        if count < min_count {
            return Err(system_error("measure the capacity of this machine")(io::Error::other(
                "the machine is too busy",
            )));
        }
        let per = |time: Duration| time.as_secs_f64() / count as f64;
        Ok(CpuCost { thread: per(self.thread), all: per(self.all) })
    }
}

/// Sends datagrams, and returns the processor time of the sender.
fn flood([near, far]: &[SideNetwork; 2]) -> io::Result<Duration> {
    let at = address();
    let _sink = far.namespace.run(|| UdpSocket::bind(at))??;
    let socket = near.namespace.run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
    socket.connect(at)?;
    let end = Instant::now() + FLOOD_DURATION;
    while Instant::now() < end {
        socket.send(&[0; DATAGRAM])?;
    }
    process::thread_cpu_time()
}

/// Sends a TCP stream, and returns the processor time of sender and receiver. Both have a time-out, in case the other
/// one does not start.
fn stream([near, far]: &[SideNetwork; 2]) -> Result<io::Result<Duration>, EmulateError> {
    let listener = far.namespace.run(|| Listener::bind(address(), DEFAULT_BACKLOG));
    let listener = listener.map_err(system_error("enter a network namespace"))?;
    let listener = listener.map_err(system_error("listen"))?;
    thread::scope(|scope| {
        let receiver = spawn_scoped(scope, || receive(&listener))?;
        let sender = spawn_scoped(scope, || send(near.namespace.run(|| TcpConnection::connect(address(), TIMEOUT))??))?;
        let (sent, received) = (join(sender), join(receiver));
        Ok(sent.and_then(|sent| Ok(sent + received?)))
    })
}

fn join(thread: ScopedJoinHandle<'_, io::Result<Duration>>) -> io::Result<Duration> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn send(connection: TcpConnection) -> io::Result<Duration> {
    let mut stream = connection.into_socket()?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let record = vec![0; WRITE_SIZE];
    let end = Instant::now() + STREAM_DURATION;
    while Instant::now() < end {
        stream.write_all(&record)?;
    }
    process::thread_cpu_time()
}

fn receive(listener: &Listener) -> io::Result<Duration> {
    if clock::wait_readable([listener.as_fd()], Some(TIMEOUT))? == [false] {
        return Err(ErrorKind::TimedOut.into());
    }
    let mut stream = listener.accept()?.0.into_socket()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut record = vec![0; WRITE_SIZE];
    loop {
        match stream.read(&mut record) {
            Ok(0) => return process::thread_cpu_time(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn address() -> SocketAddr {
    SocketAddr::from((PathEnd::new(SideName::Far, 0).v4(), PORT))
}
