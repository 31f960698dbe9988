//! Data stream of a session: one stream of the transport, in cleartext or encrypted.

use std::any::Any;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Protection;
use crate::transport::{DEAD_PEER_TIMEOUT, Handle, Stream};
use crate::wire::seal::Seal;

/// One end of a data stream. Reads and writes pass the encryption, if there is one.
#[derive(Debug)]
pub struct DataStream {
    number: u16,
    stream: Box<dyn Stream>,
    protection: Protection,
    opened: Instant,
    /// Seal of the block headers of a copy in cleartext.
    seal: Option<Seal>,
    /// Values that are dropped with the stream.
    attachments: Vec<Box<dyn Any + Send + Sync>>,
}

impl DataStream {
    /// Wraps a stream of a transport that is not encrypted.
    pub fn clear(number: u16, stream: Box<dyn Stream>) -> Self {
        DataStream::new(number, stream, Protection::Clear)
    }

    /// Takes the encrypted stream after its hello. Each read and each write then has its own time-out, as payload
    /// needs.
    pub(crate) fn tls(number: u16, mut stream: Box<dyn Stream>) -> Self {
        // A closed stream reports its error at the next use.
        let _ = stream.set_deadline(None);
        let _ = stream.set_read_timeout(Some(DEAD_PEER_TIMEOUT));
        let _ = stream.set_write_timeout(Some(DEAD_PEER_TIMEOUT));
        DataStream::new(number, stream, Protection::Tls)
    }

    fn new(number: u16, stream: Box<dyn Stream>, protection: Protection) -> Self {
        DataStream { number, stream, protection, opened: Instant::now(), seal: None, attachments: Vec::new() }
    }

    /// Keeps a value until the stream is dropped, instead of earlier ones.
    pub fn attach(&mut self, attachment: impl Any + Send + Sync) {
        self.attachments = vec![Box::new(attachment)];
    }

    /// Keeps another value until the stream is dropped.
    pub(crate) fn attach_also(&mut self, attachment: impl Any + Send + Sync) {
        self.attachments.push(Box::new(attachment));
    }

    /// Seals block headers from now on.
    pub fn set_seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Returns the seal of the block headers, if there is one.
    pub fn seal_mut(&mut self) -> Option<&mut Seal> {
        self.seal.as_mut()
    }

    /// Returns the number of the stream in its session.
    pub fn stream(&self) -> u16 {
        self.number
    }

    /// Returns the time at which the hello was sent or received.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns the handle of the stream, for other threads, options and counters.
    pub fn handle(&self) -> &Arc<dyn Handle> {
        self.stream.handle()
    }

    /// Returns the socket of a stream without encryption, see [`Stream::payload_socket`].
    pub fn payload_socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.payload_socket()
    }

    /// Sets the maximum time of each read; `None` means no limit.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// Sets the maximum time of each write; `None` means no limit.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_write_timeout(timeout)
    }

    /// Waits like a read, and leaves the bytes in the stream.
    pub fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(buffer)
    }

    /// Returns the protection of the payload.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Ends the sending direction: the peer reads to the end of the stream.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.finish_sending()
    }
}

impl Read for DataStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
