//! TLS 1.3 with a pinned certificate: no authorities, no names, one fingerprint.

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

use super::DEAD_AFTER;
use super::identity::{Identity, fingerprint};

/// One end of a TLS connection over a blocking socket.
#[derive(Debug)]
pub(crate) enum TlsStream {
    Client(Box<StreamOwned<ClientConnection, Timed>>),
    Server(Box<StreamOwned<ServerConnection, Timed>>),
}

/// A socket whose waits all end at the same moment. rustls reads it again and again until a record is whole, and a peer
/// that sends a byte at a time would keep a time-out of each read from ever passing.
#[derive(Debug)]
pub(crate) struct Timed {
    socket: TcpStream,
    /// None leaves it to the socket's own time-outs.
    deadline: Option<Instant>,
}

impl Timed {
    fn new(socket: TcpStream) -> Self {
        Timed { socket, deadline: None }
    }

    /// How long the next wait may take; an error when there is no time left, as of a time-out.
    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::WouldBlock.into()),
            // Below it the kernel might take it for zero, which means "for ever".
            left => Ok(Some(left.max(Duration::from_millis(1)))),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let left @ Some(_) = self.left()? {
            self.socket.set_read_timeout(left)?;
        }
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// rustls hands over several records at once, which leave in one call.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        if let left @ Some(_) = self.left()? {
            self.socket.set_write_timeout(left)?;
        }
        self.socket.write_vectored(records)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl TlsStream {
    /// The client's end. The handshake happens with the first write, so that the first message rides in the same
    /// flight as the client's Finished: two round trips from the dial.
    pub(crate) fn client(socket: TcpStream, config: Arc<ClientConfig>) -> Result<Self, rustls::Error> {
        // The name is not used: the pinned fingerprint is the identity.
        let name = ServerName::try_from("lfn.invalid").map_err(|_| rustls::Error::General("server name".into()))?;
        let connection = ClientConnection::new(config, name)?;
        Ok(TlsStream::Client(Box::new(StreamOwned::new(connection, Timed::new(socket)))))
    }

    pub(crate) fn server(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let connection = ServerConnection::new(config)?;
        Ok(TlsStream::Server(Box::new(StreamOwned::new(connection, Timed::new(socket)))))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            TlsStream::Client(stream) => &stream.sock.socket,
            TlsStream::Server(stream) => &stream.sock.socket,
        }
    }

    fn timed(&mut self) -> &mut Timed {
        match self {
            TlsStream::Client(stream) => &mut stream.sock,
            TlsStream::Server(stream) => &mut stream.sock,
        }
    }

    /// Every wait ends then, whatever comes meanwhile, until another moment is given.
    pub(crate) fn wait_until(&mut self, deadline: Instant) {
        self.timed().deadline = Some(deadline);
    }

    /// From here on each read and each write has a time of its own, as payload wants it.
    pub(crate) fn wait_each(&mut self) {
        let timed = self.timed();
        timed.deadline = None;
        // A socket that is gone says so when it is used.
        let _ = timed.socket.set_read_timeout(Some(DEAD_AFTER));
        let _ = timed.socket.set_write_timeout(Some(DEAD_AFTER));
    }

    /// Tells the peer that nothing more will come, so that it can tell an end from a cut.
    pub(crate) fn close_notify(&mut self) {
        match self {
            TlsStream::Client(stream) => stream.conn.send_close_notify(),
            TlsStream::Server(stream) => stream.conn.send_close_notify(),
        }
        // The connection ends here either way.
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

/// Accepts the one pinned certificate, and remembers another one it was shown, for the error message.
#[derive(Debug)]
pub(crate) struct Pinned {
    expected: Option<Fingerprint>,
    refused: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    /// `None` takes any certificate: only for `--insecure`.
    pub(crate) fn new(expected: Option<Fingerprint>) -> Arc<Self> {
        Arc::new(Pinned { expected, refused: Mutex::new(None), provider: Arc::new(ring::default_provider()) })
    }

    /// The fingerprint that was shown instead of the pinned one.
    pub(crate) fn refused(&self) -> Option<Fingerprint> {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner)
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

impl ServerCertVerifier for Pinned {
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
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    /// Never asked: only TLS 1.3 is offered.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
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

/// What a server needs to answer handshakes.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate().clone()], identity.key())?;
    // Every connection of a session is made at once: there is nothing to resume.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
