//! Certificate and key of HTTPS.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::WebError;
use crate::options::CertificateFiles;

/// Reads the certificate and its key.
pub(crate) fn acceptor(files: &CertificateFiles) -> Result<TlsAcceptor, WebError> {
    let chain = read(&files.chain)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|error| unusable(&files.chain, "certificate", error))?;
    if chain.is_empty() {
        return Err(unusable(&files.chain, "certificate", "there is none"));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| unusable(&files.key, "private key", error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.chain, "certificate", error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.key, "private key", error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, WebError> {
    fs::read(path).map_err(|source| WebError::Read { path: path.to_owned(), source })
}

fn unusable(path: &Path, kind: &'static str, reason: impl ToString) -> WebError {
    WebError::Certificate { path: path.to_owned(), kind, reason: reason.to_string() }
}
