//! TLS over a stream of any transport.

use std::fmt::Debug;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData, StreamOwned};

use super::{Handle, Stream, is_timeout};

/// Creates the client's end. The first write performs the handshake, so that the first message leaves with the
/// client's Finished message, two round trips after the start of the connection.
pub fn client(stream: Box<dyn Stream>, config: Arc<ClientConfig>) -> Result<Box<dyn Stream>, rustls::Error> {
    // The verifier of the configuration knows the certificate of the server; the name is unused.
    let name = ServerName::try_from("lfn.invalid").map_err(|_| rustls::Error::General("server name".into()))?;
    let connection = ClientConnection::new(config, name)?;
    Ok(Box::new(TlsStream(StreamOwned::new(connection, EncryptedStream(stream)))))
}

/// Creates the server's end. The first read performs the handshake.
pub fn server(stream: Box<dyn Stream>, config: Arc<ServerConfig>) -> Result<Box<dyn Stream>, rustls::Error> {
    let connection = ServerConnection::new(config)?;
    Ok(Box::new(TlsStream(StreamOwned::new(connection, EncryptedStream(stream)))))
}

/// One end of a TLS connection over another stream.
#[derive(Debug)]
struct TlsStream<C>(StreamOwned<C, EncryptedStream>);

/// The stream under TLS. A wait that exceeds its time is `TimedOut`. The kernel's `WouldBlock` in a write would make
/// rustls wait for a read.
#[derive(Debug)]
struct EncryptedStream(Box<dyn Stream>);

fn timed_out(error: io::Error) -> io::Error {
    if is_timeout(&error) { ErrorKind::TimedOut.into() } else { error }
}

impl Read for EncryptedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(timed_out)
    }
}

impl Write for EncryptedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(timed_out)
    }

    /// rustls passes several records at once; they leave in one system call.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(records).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<C, S> TlsStream<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    /// Reads although a write waits for space at the peer, which may wait for this read.
    fn read_past_blocked_write(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let StreamOwned { conn, sock } = &mut self.0;
        loop {
            let length = conn.read_tls(sock)?;
            let state = conn.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if length == 0 || state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                return conn.reader().read(buffer);
            }
        }
    }
}

impl<C, S> Stream for TlsStream<C>
where
    C: DerefMut<Target = ConnectionCommon<S>> + Debug + Send,
    S: SideData + 'static,
{
    fn handle(&self) -> &Arc<dyn Handle> {
        self.0.sock.0.handle()
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.sock.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.sock.0.set_write_timeout(timeout)
    }

    /// rustls reads repeatedly until a record is complete: only a deadline limits the time of a whole record.
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.0.sock.0.set_deadline(deadline)
    }

    fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.fill_buf()?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    /// Sends close_notify first, so that the peer can distinguish the end from a broken connection.
    fn finish_sending(&mut self) -> io::Result<()> {
        self.flush()?;
        self.0.conn.send_close_notify();
        // The sending direction ends here in either case.
        let _ = self.flush();
        self.0.sock.0.finish_sending()
    }
}

impl<C, S> Read for TlsStream<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if is_timeout(&error) && self.0.conn.wants_write() && !self.0.conn.is_handshaking() => {
                self.read_past_blocked_write(buffer)
            }
            read => read,
        }
    }
}

impl<C, S> Write for TlsStream<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
