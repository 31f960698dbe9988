//! Open streams of a test, and the loops of those that carry datagrams. [`crate::load`] moves the blocks of TCP
//! streams.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::time;
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::Mode;
use lfn_session::DataStream;
use lfn_session::clock::now;
use lfn_session::transport::tcp::TcpSocket;
use lfn_session::transport::{Handle, is_timeout};
use lfn_sys::clock::since_1970;
use parking_lot::Mutex;

use crate::load::{BurstSender, SendUntil, WaitPrecision, fill_payload, move_blocks, receive_datagrams, send_bursts};
use crate::load::{LoadEngine, LoadOptions, LoadState, LoadStream, Pacer, PayloadKind, StreamCounter};
use crate::proto::iperf3::Parameters;
use crate::proto::iperf3::datagram::{CounterWidth, DatagramCounts, LoadHeader};

/// Minimum size of a read: large enough that the cost of the system calls does not matter.
const MIN_READ_BYTES: usize = 256 * 1024;

/// Interval at which a datagram thread checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Datagrams between two looks at the schedule, if there is no rate.
const BURST_WITHOUT_RATE: u32 = 16;

/// A stream that is open and does not move data yet.
#[derive(Debug)]
pub(super) struct OpenStream {
    pub(super) id: u16,
    pub(super) sends: bool,
    socket: OpenSocket,
}

#[derive(Debug)]
enum OpenSocket {
    Tcp(DataStream),
    Udp(Arc<UdpSocket>),
}

/// Handle of a socket for datagrams. Its thread notices the stop flag without a shutdown.
#[derive(Debug)]
struct DatagramHandle(Arc<UdpSocket>);

/// Counts of the datagrams that arrived on a stream.
pub(super) type ArrivedDatagrams = Arc<Mutex<DatagramCounts>>;

impl OpenStream {
    pub(super) fn tcp(id: u16, sends: bool, socket: TcpSocket) -> Self {
        OpenStream { id, sends, socket: OpenSocket::Tcp(DataStream::clear(id, Box::new(socket))) }
    }

    pub(super) fn udp(id: u16, sends: bool, socket: UdpSocket) -> Self {
        OpenStream { id, sends, socket: OpenSocket::Udp(Arc::new(socket)) }
    }

    pub(super) fn handle(&self) -> Arc<dyn Handle> {
        match &self.socket {
            OpenSocket::Tcp(stream) => stream.handle().clone(),
            OpenSocket::Udp(socket) => Arc::new(DatagramHandle(socket.clone())),
        }
    }

    /// Returns the stream for the control thread.
    pub(super) fn load_stream(&self) -> LoadStream {
        LoadStream {
            number: self.id,
            handle: self.handle(),
            counter: Arc::default(),
            opened: Instant::now(),
            granted: None,
        }
    }

    /// Starts the stream's thread. `arrivals` counts the datagrams of a receiver.
    pub(super) fn start(
        self,
        engine: &mut LoadEngine,
        counter: Arc<StreamCounter>,
        width: CounterWidth,
        arrivals: ArrivedDatagrams,
    ) -> io::Result<()> {
        let OpenStream { id, sends, socket } = self;
        engine.start(id, counter, move |load, counter, payload| match socket {
            OpenSocket::Tcp(stream) => move_blocks(stream, load, counter, payload),
            OpenSocket::Udp(socket) if sends => send_udp(&socket, load, counter, width),
            OpenSocket::Udp(socket) => receive_udp(&socket, load, counter, width, &arrivals),
        })
    }
}

impl Handle for DatagramHandle {
    fn shut_down(&self, _side: Shutdown) -> io::Result<()> {
        Ok(())
    }

    fn abort(&self) {}

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn peer_address(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    fn is_finished_by_peer(&self) -> bool {
        false
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns the options of the streams of one direction.
pub(super) fn load_options(parameters: &Parameters, sends: bool) -> LoadOptions {
    let block_bytes = usize::try_from(parameters.length.0).unwrap_or(1).max(1);
    let no_copy = if sends { parameters.zero_copy } else { parameters.skip_copy };
    LoadOptions {
        sends,
        block_bytes,
        read_bytes: MIN_READ_BYTES.max(block_bytes),
        mode: if no_copy && parameters.protocol == LoadProtocol::Tcp { Mode::NoCopy } else { Mode::Copying },
        payload: if parameters.repeating { PayloadKind::Digits } else { PayloadKind::Unpredictable },
        with_last_byte: true,
        rate: parameters.rate,
        burst: parameters.burst.unwrap_or(1),
        read_timeout: None,
        finish_sending: false,
        ..LoadOptions::default()
    }
}

/// Sender of iperf3's datagrams.
struct IperfDatagramSender<'a> {
    socket: &'a UdpSocket,
    load: &'a LoadState,
    counter: &'a StreamCounter,
    width: CounterWidth,
    datagram: Vec<u8>,
    pacer: Option<Pacer>,
}

fn send_udp(socket: &UdpSocket, load: &LoadState, counter: &StreamCounter, width: CounterWidth) -> io::Result<()> {
    // The time-out lets the thread check its stop flag, even if a queue of this host does not drain.
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    let datagram = fill_payload(load.options.payload, load.options.block_bytes, 0)?;
    let mut sender = IperfDatagramSender { socket, load, counter, width, datagram, pacer: load.pacer() };
    let burst = if sender.pacer.is_some() { load.options.burst } else { BURST_WITHOUT_RATE };
    send_bursts(&mut sender, load, burst, WaitPrecision::Sleep, SendUntil::Count).map(drop)
}

impl BurstSender for IperfDatagramSender<'_> {
    fn next_burst(&self) -> Option<time::Instant> {
        self.pacer.as_ref().map(Pacer::next)
    }

    /// A datagram that could not be sent is tried again. It is never shortened.
    fn send_burst(&mut self, count: u32) -> io::Result<u32> {
        let mut left = count;
        while left > 0 && !self.load.is_stopped() {
            let number = self.counter.datagrams() + 1;
            LoadHeader { sent: since_1970(), number }.write(&mut self.datagram, self.width);
            match self.socket.send(&self.datagram) {
                Ok(sent) => {
                    left -= 1;
                    self.counter.count_datagrams(1, sent, self.load);
                    if let Some(pacer) = &mut self.pacer {
                        pacer.record_sent(1, now());
                    }
                    self.load.count_and_wait(sent as u64)?;
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
        Ok(count - left)
    }
}

fn receive_udp(
    socket: &UdpSocket,
    load: &LoadState,
    counter: &StreamCounter,
    width: CounterWidth,
    arrivals: &Mutex<DatagramCounts>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    receive_datagrams(socket, load, || {
        let length = socket.recv(&mut buffer)?;
        // Too short for a header: a repeated request for the stream.
        let Some(header) = LoadHeader::read(&buffer[..length], width) else { return Ok(0) };
        arrivals.lock().record(&header, since_1970());
        counter.count_datagrams(1, length, load);
        Ok(length as u64)
    })
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::limits::rate_limiter::RateLimiter;

    use super::*;

    #[test]
    fn refused_datagrams_do_not_count_as_sent() {
        // The peer's socket is closed: every second send reports the refusal of the previous one.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(peer).unwrap();
        let parameters = Parameters { protocol: LoadProtocol::Udp, length: Bytes(100), ..Parameters::default() };
        let load = LoadState::new(load_options(&parameters, true), Instant::now(), RateLimiter::unlimited());
        load.limit(20);
        let counter = StreamCounter::default();
        send_udp(&socket, &load, &counter, parameters.width).unwrap();
        assert_eq!((counter.datagrams(), counter.bytes()), (20, 2000));
    }
}
