//! Data stream of a session: one TCP connection, in cleartext or with TLS.

use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use lfn_core::wire::seal::Seal;

use super::Protection;
use super::tls::TlsStream;

/// One end of a data stream. Reads and writes pass the encryption, if there is one. [`DataStream::socket`] is the TCP
/// socket itself, for options and `TCP_INFO`.
#[derive(Debug)]
pub struct DataStream {
    stream: u16,
    transport: Transport,
    opened: Instant,
    /// Seal of the block headers of a copy in cleartext.
    seal: Option<Seal>,
    /// Values that are dropped with the stream.
    attachments: Vec<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
enum Transport {
    Clear(TcpStream),
    Tls(TlsStream),
}

impl DataStream {
    pub(crate) fn clear(stream: u16, socket: TcpStream) -> Self {
        let opened = Instant::now();
        DataStream { stream, transport: Transport::Clear(socket), opened, seal: None, attachments: Vec::new() }
    }

    pub(crate) fn tls(stream: u16, mut tls: TlsStream) -> Self {
        tls.use_socket_timeouts();
        let opened = Instant::now();
        DataStream { stream, transport: Transport::Tls(tls), opened, seal: None, attachments: Vec::new() }
    }

    /// Keeps a value until the stream is dropped, instead of earlier ones.
    pub(crate) fn attach(&mut self, attachment: impl Any + Send + Sync) {
        self.attachments = vec![Box::new(attachment)];
    }

    /// Keeps another value until the stream is dropped.
    pub(crate) fn attach_also(&mut self, attachment: impl Any + Send + Sync) {
        self.attachments.push(Box::new(attachment));
    }

    /// Seals block headers from now on.
    pub(crate) fn set_seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Returns the seal of the block headers, if there is one.
    pub(crate) fn seal_mut(&mut self) -> Option<&mut Seal> {
        self.seal.as_mut()
    }

    /// Returns the number of the stream in its session.
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// Returns the time at which the hello was sent or received.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns the TCP socket under the stream.
    pub fn socket(&self) -> &TcpStream {
        match &self.transport {
            Transport::Clear(socket) => socket,
            Transport::Tls(tls) => tls.socket(),
        }
    }

    /// Returns the protection of the payload.
    pub fn protection(&self) -> Protection {
        match self.transport {
            Transport::Clear(_) => Protection::Clear,
            Transport::Tls(_) => Protection::Tls,
        }
    }

    /// Ends the sending direction: the peer reads to the end of the stream.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Transport::Tls(tls) = &mut self.transport {
            tls.close_notify();
        }
        self.socket().shutdown(Shutdown::Write)
    }
}

impl Read for DataStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Clear(socket) => socket.read(buffer),
            Transport::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Clear(socket) => socket.write(bytes),
            Transport::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Clear(socket) => socket.flush(),
            Transport::Tls(tls) => tls.flush(),
        }
    }
}
