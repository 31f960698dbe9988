//! The TLS connection of the proxy on one side: towards the client with its own certificate, towards the server without
//! checking the certificate, as `--insecure` does.

#![allow(clippy::disallowed_types, reason = "the other end of the path uses plain sockets")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig, ServerConnection};
use rustls::{Error, SignatureScheme};

/// A TLS connection to one side.
pub(super) struct TlsSide {
    pub(super) socket: TcpStream,
    tls: Connection,
    text: Vec<u8>,
}

impl TlsSide {
    pub(super) fn client(socket: TcpStream) -> TlsSide {
        TlsSide::new(socket, ServerConnection::new(server_config()).unwrap().into())
    }

    pub(super) fn server(socket: TcpStream) -> TlsSide {
        let name = ServerName::try_from("lfn.invalid").unwrap();
        TlsSide::new(socket, ClientConnection::new(client_config(), name).unwrap().into())
    }

    fn new(socket: TcpStream, tls: Connection) -> TlsSide {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        TlsSide { socket, tls, text: Vec::new() }
    }

    /// Reads the available data. Returns an error at the end of the connection.
    pub(super) fn read(&mut self) -> io::Result<()> {
        self.flush()?;
        loop {
            let ended = match self.tls.read_tls(&mut self.socket) {
                Ok(0) => true,
                Ok(_) => false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut plain)?;
            self.text.extend(plain);
            self.flush()?;
            if ended || state.peer_has_closed() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes the next complete frame.
    pub(super) fn take_frame(&mut self) -> Option<Vec<u8>> {
        let length = self.text.get(1..5)?;
        let end = 5 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        (self.text.len() >= end).then(|| self.text.drain(..end).collect())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)?;
        self.flush()
    }

    /// Encrypts the bytes without sending them.
    pub(super) fn encrypt(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.flush()?;
        self.tls.writer().write_all(bytes)?;
        let mut record = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut record)?;
        }
        Ok(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
    }
}

fn server_config() -> Arc<ServerConfig> {
    let generated = rcgen::generate_simple_self_signed(vec!["lfn.invalid".to_owned()]).unwrap();
    let certificate = CertificateDer::from_pem_slice(generated.cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(generated.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

fn client_config() -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    Arc::new(config.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyServer)).with_no_client_auth())
}

#[derive(Debug)]
struct AcceptAnyServer;

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
