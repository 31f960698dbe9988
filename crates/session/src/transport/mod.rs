//! Transport: the reliable byte streams that carry control messages and payload.
//!
//! A [`Connection`] joins two hosts, and opens and accepts streams. A TCP connection carries one stream; a transport such
//! as QUIC carries many. A [`Stream`] belongs to one thread, which reads and writes with blocking calls. Other threads
//! have the stream's [`Handle`]: they shut the stream down, read its kernel counters and set its socket options.
//!
//! - [`tcp`] has the listener, the connection and the stream of plain TCP. No other module of this crate uses the TCP
//!   sockets of the standard library; a lint checks this.
//! - [`tls`] encrypts a stream of any transport.
//! - `memory` joins two threads of a test without a socket.
//!
//! `conformance` is the suite of tests that every transport passes.
//!
//! Sockets are optional. A consumer works without [`Handle::info`], without [`Handle::socket`] (it then sets no socket
//! options) and without [`Stream::payload_socket`] (it then copies the payload, or refuses a mode without copies).

#[cfg(test)]
mod conformance;
#[cfg(any(test, feature = "test-support"))]
pub mod memory;
pub mod tcp;
pub mod tls;

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::tcp_info::TcpInfo;

/// Maximum time without an acknowledgement from the peer's kernel, before its connection counts as dead.
///
/// The value is long enough for a 600 ms path that loses a few retransmissions in succession. It is short enough that a
/// dead peer does not occupy a server's slot for long.
pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to another host, which opens and accepts streams.
pub trait Connection: Debug + Send {
    /// Returns the handle of the connection. Shutting the connection down ends all its streams.
    fn handle(&self) -> &Arc<dyn Handle>;

    /// Opens a stream to the peer. The error is `Unsupported` if the connection cannot carry another stream.
    fn open_stream(&mut self) -> io::Result<Box<dyn Stream>>;

    /// Returns the next stream that the peer opens within `timeout`. The error is a time-out (see [`is_timeout`]), or
    /// `Unsupported` if the connection cannot carry another stream.
    fn accept_stream(&mut self, timeout: Duration) -> io::Result<Box<dyn Stream>>;
}

/// A reliable byte stream in both directions, with blocking calls.
///
/// A wait that exceeds its time-out or its deadline returns an error of [`is_timeout`], and the stream can be used
/// again. Dropping the stream closes it when its handles are dropped too.
pub trait Stream: Read + Write + Debug + Send {
    /// Returns the handle for other threads.
    fn handle(&self) -> &Arc<dyn Handle>;

    /// Sets the maximum time of each read; `None` means no limit. Zero is an error.
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Sets the maximum time of each write; `None` means no limit. Zero is an error.
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Sets one end for all reads and writes together, instead of the time-outs. `None` returns to the time-outs.
    ///
    /// A time-out limits one wait only. With it, a peer that sends single bytes of a message would never time out.
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()>;

    /// Waits like a read, and leaves the bytes in the stream. Zero bytes mean the end of the stream.
    fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ends the sending direction after everything that was written: the peer reads to the end of the stream. The
    /// receiving direction stays open.
    fn finish_sending(&mut self) -> io::Result<()>;

    /// Returns the socket whose bytes are the bytes of this stream, for sendfile(2) and `MSG_TRUNC`. `None` if the
    /// stream encrypts its bytes, or has no socket of its own. Time-outs apply to the socket; a deadline does not.
    fn payload_socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Access to a stream or a connection from other threads.
pub trait Handle: Debug + Send + Sync {
    /// Ends one or both directions at once. A blocked reader reads the end of the stream or an error, and a blocked
    /// writer gets an error.
    fn shut_down(&self, side: Shutdown) -> io::Result<()>;

    /// Ends both directions. Data in flight need not arrive, and the peer may read an error instead of the end.
    fn abort(&self);

    /// Returns the address of this end.
    fn local_address(&self) -> io::Result<SocketAddr>;

    /// Returns the address of the peer.
    fn peer_address(&self) -> io::Result<SocketAddr>;

    /// Returns whether the peer has ended its sending direction. Data that arrived before may still be unread.
    fn is_finished_by_peer(&self) -> bool;

    /// Returns the kernel's figures of the connection (`TCP_INFO`), if the transport has them.
    fn info(&self) -> Option<TcpInfo> {
        None
    }

    /// Returns the kernel's socket, for options, counters and poll(2). `None` if there is no socket, or if
    /// several streams share it. Payload passes [`Stream::payload_socket`] only.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the kernel's socket; the error is `Unsupported` if there is none.
    fn require_socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "this transport has no socket options"))
    }

    /// Returns the minimum RTT as the kernel knows it (`tcpi_min_rtt`, else `tcpi_rtt`). Zero if it is unknown.
    fn min_rtt(&self) -> Duration {
        let info = self.info().unwrap_or_default();
        info.min_rtt.unwrap_or(info.rtt)
    }
}

/// Returns whether an error only means that a time-out or a deadline has passed.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
