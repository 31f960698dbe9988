//! Identity of a server: a self-signed certificate, created at the first start and stored in a directory with mode
//! 0700.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::atomic_file::AtomicFile;
use crate::{Fingerprint, Token};

/// Reasons why an identity or a token could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{} is not a usable {kind}", .path.display())]
    Damaged {
        path: PathBuf,
        /// "certificate", "private key", "token" or "token file".
        kind: &'static str,
    },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file holds a secret, and other users can read it.
    #[error("{} is readable by other users: its mode is {mode:04o}", .path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{count} tokens for {}; at most {max} are allowed", .path.display())]
    TooManyTokens { path: PathBuf, count: usize, max: usize },
    #[error("cannot create a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("the kernel returned no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl IdentityError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            IdentityError::Exposed { path, .. } => {
                Some(format!("chmod 600 {}; if others may have read it, delete it to create a new one", path.display()))
            }
            _ => None,
        }
    }
}

/// Certificate and key of a server.
#[derive(Debug)]
pub struct ServerIdentity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl ServerIdentity {
    /// Creates an identity that lives as long as this process.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        let (certificate, key) = generate()?;
        Self::from_pem(Path::new("new certificate"), &certificate, Path::new("new key"), &key)
    }

    /// Loads the identity in `directory`, or creates it at the first use.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let (certificate_path, key_path) = (directory.join("server.crt"), directory.join("server.key"));
        if read_secret(&key_path)?.is_none() {
            let (certificate, key) = generate()?;
            write_secret(&certificate_path, &certificate)?;
            write_secret(&key_path, &key)?;
        }
        let certificate = read(&certificate_path)?.unwrap_or_default();
        let key = read_secret(&key_path)?.unwrap_or_default();
        Self::from_pem(&certificate_path, &certificate, &key_path, &key)
    }

    /// Returns the fingerprint by which clients know the server.
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.certificate)
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    fn from_pem(cert_path: &Path, certificate: &str, key_path: &Path, key: &str) -> Result<Self, IdentityError> {
        let damaged = |path: &Path, what| IdentityError::Damaged { path: path.to_owned(), kind: what };
        Ok(ServerIdentity {
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes())
                .map_err(|_| damaged(cert_path, "certificate"))?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| damaged(key_path, "private key"))?,
        })
    }
}

/// Returns the SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = digest::digest(&digest::SHA256, certificate);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    Fingerprint(bytes)
}

/// Returns a new random token.
pub fn new_token() -> Result<Token, IdentityError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(Token::from_bytes(bytes))
}

/// Reads a small text file; `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<String>, IdentityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path: path.to_owned(), source }),
    }
}

/// Reads a file that holds a secret. If others than its owner can access the file, this is an error, as with ssh's
/// keys.
pub fn read_secret(path: &Path) -> Result<Option<String>, IdentityError> {
    let failed = |source| IdentityError::Io { path: path.to_owned(), source };
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Replaces a file that holds a secret ([`AtomicFile::create_private`]).
pub fn write_secret(path: &Path, text: &str) -> Result<(), IdentityError> {
    let write = || -> io::Result<()> {
        let mut file = AtomicFile::create_private(path)?;
        file.write_all(text.as_bytes())?;
        file.commit()
    };
    write().map_err(|source| IdentityError::Io { path: path.to_owned(), source })
}

fn generate() -> Result<(String, String), IdentityError> {
    let certified = rcgen::generate_simple_self_signed(vec!["lfn.invalid".to_owned()])?;
    Ok((certified.cert.pem(), certified.signing_key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_created_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let first = ServerIdentity::load_or_create(&state).unwrap();
        let second = ServerIdentity::load_or_create(&state).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_ne!(first.fingerprint(), ServerIdentity::ephemeral().unwrap().fingerprint());
        let mode = |name: &str| fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("server.key"), 0o600);
        let exposed = fs::Permissions::from_mode(0o644);
        fs::set_permissions(state.join("server.key"), exposed).unwrap();
        assert!(matches!(ServerIdentity::load_or_create(&state), Err(IdentityError::Exposed { mode: 0o644, .. })));
        fs::set_permissions(state.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(state.join("server.key"), "nonsense").unwrap();
        assert!(matches!(
            ServerIdentity::load_or_create(&state),
            Err(IdentityError::Damaged { kind: "private key", .. })
        ));
    }
}
