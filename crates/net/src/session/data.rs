//! A data stream: one TCP connection of a session, in the clear or inside TLS.

use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use lfn_core::wire::seal::Seal;

use super::Protection;
use super::tls::TlsStream;

/// One end of a data stream. Reading and writing go through whatever protects it; [`DataStream::socket`] is the TCP
/// socket itself, for options and `TCP_INFO`.
#[derive(Debug)]
pub struct DataStream {
    stream: u16,
    transport: Transport,
    opened: Instant,
    /// Of the block headers of a copy in the clear.
    seal: Option<Seal>,
    /// Let go of with the stream.
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
enum Transport {
    Clear(TcpStream),
    Tls(TlsStream),
}

impl DataStream {
    pub(crate) fn clear(stream: u16, socket: TcpStream) -> Self {
        let opened = Instant::now();
        DataStream { stream, transport: Transport::Clear(socket), opened, seal: None, kept: Vec::new() }
    }

    pub(crate) fn tls(stream: u16, mut tls: TlsStream) -> Self {
        tls.wait_each();
        let opened = Instant::now();
        DataStream { stream, transport: Transport::Tls(tls), opened, seal: None, kept: Vec::new() }
    }

    /// Drops `thing` when the stream is dropped, and no sooner.
    pub(crate) fn keep(&mut self, thing: impl Any + Send + Sync) {
        self.kept = vec![Box::new(thing)];
    }

    /// The same, beside what it keeps already.
    pub(crate) fn keep_also(&mut self, thing: impl Any + Send + Sync) {
        self.kept.push(Box::new(thing));
    }

    /// Its block headers are sealed from now on.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// What its block headers are sealed with, if they are.
    pub(crate) fn sealing(&mut self) -> Option<&mut Seal> {
        self.seal.as_mut()
    }

    /// The number of the stream in its session.
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// When its hello had been sent, or had arrived.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// The TCP socket.
    pub fn socket(&self) -> &TcpStream {
        match &self.transport {
            Transport::Clear(socket) => socket,
            Transport::Tls(tls) => tls.socket(),
        }
    }

    /// How what it carries is protected.
    pub fn protection(&self) -> Protection {
        match self.transport {
            Transport::Clear(_) => Protection::Clear,
            Transport::Tls(_) => Protection::Tls,
        }
    }

    /// Nothing more will be written: the peer reads to the end and then sees it.
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
