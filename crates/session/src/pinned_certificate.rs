//! Identity of a server in TLS 1.3: one pinned certificate, without certificate authorities and host names.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};

use super::identity::{ServerIdentity, fingerprint};
use crate::Fingerprint;

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
        Arc::new(PinnedVerifier {
            expected,
            presented: Mutex::new(None),
            provider: Arc::new(aws_lc_rs::default_provider()),
        })
    }

    /// Returns the fingerprint that the server presented instead of the pinned one.
    pub(crate) fn presented_fingerprint(&self) -> Option<Fingerprint> {
        *self.presented.lock()
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
        *self.presented.lock() = Some(shown);
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
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate().clone()], identity.key())?;
    // All connections of a session are dialled at once, so there is nothing to resume.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
