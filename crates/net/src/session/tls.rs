//! TLS 1.3 with a pinned certificate: no certificate authorities, no host names, one fingerprint.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::session::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use super::DEAD_PEER_TIMEOUT;
use super::identity::{ServerIdentity, fingerprint};

/// One end of a TLS connection over a blocking socket.
#[derive(Debug)]
pub(crate) enum TlsStream {
    Client(Box<StreamOwned<ClientConnection, DeadlineSocket>>),
    Server(Box<StreamOwned<ServerConnection, DeadlineSocket>>),
}

/// A socket with one deadline for all reads and writes. rustls reads repeatedly until a record is complete; with a
/// time-out per read, a peer that sends single bytes would never time out.
#[derive(Debug)]
pub(crate) struct DeadlineSocket {
    socket: TcpStream,
    /// Without a deadline the socket's own time-outs apply.
    deadline: Option<Instant>,
}

impl DeadlineSocket {
    fn new(socket: TcpStream) -> Self {
        DeadlineSocket { socket, deadline: None }
    }

    /// Returns the maximum time of the next wait. After the deadline it returns a time-out error.
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::WouldBlock.into()),
            // The kernel could round a smaller value to zero, which means no time-out.
            left => Ok(Some(left.max(Duration::from_millis(1)))),
        }
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let left @ Some(_) = self.time_left()? {
            self.socket.set_read_timeout(left)?;
        }
        self.socket.read(buffer)
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// rustls passes several records at once; they leave in one system call.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        if let left @ Some(_) = self.time_left()? {
            self.socket.set_write_timeout(left)?;
        }
        self.socket.write_vectored(records)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl TlsStream {
    /// Creates the client's end. The first write performs the handshake, so that the first message leaves with the
    /// client's Finished message, two round trips after the start of the connection.
    pub(crate) fn client(socket: TcpStream, config: Arc<ClientConfig>) -> Result<Self, rustls::Error> {
        // The pinned fingerprint is the identity; the name is unused.
        let name = ServerName::try_from("lfn.invalid").map_err(|_| rustls::Error::General("server name".into()))?;
        let connection = ClientConnection::new(config, name)?;
        Ok(TlsStream::Client(Box::new(StreamOwned::new(connection, DeadlineSocket::new(socket)))))
    }

    pub(crate) fn server(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let connection = ServerConnection::new(config)?;
        Ok(TlsStream::Server(Box::new(StreamOwned::new(connection, DeadlineSocket::new(socket)))))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            TlsStream::Client(stream) => &stream.sock.socket,
            TlsStream::Server(stream) => &stream.sock.socket,
        }
    }

    fn deadline_socket(&mut self) -> &mut DeadlineSocket {
        match self {
            TlsStream::Client(stream) => &mut stream.sock,
            TlsStream::Server(stream) => &mut stream.sock,
        }
    }

    /// Sets the end of all waits, until another deadline is set.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline_socket().deadline = Some(deadline);
    }

    /// Gives each read and each write its own time-out, as payload needs.
    pub(crate) fn use_socket_timeouts(&mut self) {
        let socket = self.deadline_socket();
        socket.deadline = None;
        // A closed socket reports its error at the next use.
        let _ = socket.socket.set_read_timeout(Some(DEAD_PEER_TIMEOUT));
        let _ = socket.socket.set_write_timeout(Some(DEAD_PEER_TIMEOUT));
    }

    /// Sends close_notify, so that the peer can distinguish the end from a broken connection.
    pub(crate) fn close_notify(&mut self) {
        match self {
            TlsStream::Client(stream) => stream.conn.send_close_notify(),
            TlsStream::Server(stream) => stream.conn.send_close_notify(),
        }
        // The connection ends here in either case.
        let _ = self.flush();
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            TlsStream::Client(stream) => stream.read(buffer),
            TlsStream::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            TlsStream::Client(stream) => stream.write(bytes),
            TlsStream::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            TlsStream::Client(stream) => stream.flush(),
            TlsStream::Server(stream) => stream.flush(),
        }
    }
}

/// Accepts only the pinned certificate, and remembers the fingerprint of another one for the error message.
#[derive(Debug)]
pub(crate) struct PinnedVerifier {
    expected: Option<Fingerprint>,
    presented: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    /// Creates the verifier. `None` accepts any certificate, for `--insecure` only.
    pub(crate) fn new(expected: Option<Fingerprint>) -> Arc<Self> {
        Arc::new(PinnedVerifier { expected, presented: Mutex::new(None), provider: Arc::new(ring::default_provider()) })
    }

    /// Returns the fingerprint that the server presented instead of the pinned one.
    pub(crate) fn presented_fingerprint(&self) -> Option<Fingerprint> {
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client_config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.clone())
            .with_no_client_auth();
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = fingerprint(end_entity);
        if self.expected.is_none_or(|expected| expected == shown) {
            return Ok(ServerCertVerified::assertion());
        }
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    /// Unused, because only TLS 1.3 is offered.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not supported".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the TLS configuration of a server.
pub(crate) fn server_config(identity: &ServerIdentity) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate().clone()], identity.key())?;
    // All connections of a session are dialled at once, so there is nothing to resume.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
