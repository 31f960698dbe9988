//! What a server is known by: a self-signed certificate made on first start and kept in a directory of mode 0700.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lfn_core::session::{Fingerprint, Token};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why an identity or a token could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file exists and cannot be used as what it should be: remove it to have a new one made.
    #[error("{} is not a usable {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// "certificate", "private key" or "token".
        what: &'static str,
    },
    /// The file system said no.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It holds a secret, and others than its owner can read it.
    #[error("{} can be read by others: its mode is {mode:04o}", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// No key could be made.
    #[error("no certificate could be made: {0}")]
    Generate(#[from] rcgen::Error),
    /// The kernel gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl IdentityError {
    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            IdentityError::Exposed { path, .. } => {
                Some(format!("chmod 600 {}; if others may have read it, have a new one made", path.display()))
            }
            _ => None,
        }
    }
}

/// A server's certificate and key.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A new identity that lives as long as this process.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        let (certificate, key) = generate()?;
        Self::from_pem(Path::new("new certificate"), &certificate, Path::new("new key"), &key)
    }

    /// The identity kept in `directory`, made on first use.
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

    /// By what clients know it.
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
        let damaged = |path: &Path, what| IdentityError::Damaged { path: path.to_owned(), what };
        Ok(Identity {
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes())
                .map_err(|_| damaged(cert_path, "certificate"))?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| damaged(key_path, "private key"))?,
        })
    }
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    Fingerprint(bytes)
}

/// A new random token.
pub fn new_token() -> Result<Token, IdentityError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(Token::from_bytes(bytes))
}

/// The text of a small file; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<String>, IdentityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path: path.to_owned(), source }),
    }
}

/// The same of a file that holds a secret: an error if others than its owner can read or write it, as with ssh's keys.
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

/// Writes a file only its owner may read, whole or not at all, making its directory (mode 0700) if need be.
pub fn write_secret(path: &Path, text: &str) -> Result<(), IdentityError> {
    let write = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.new", std::process::id()));
        let partial = PathBuf::from(partial);
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)
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
    fn an_identity_is_made_once_and_kept_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let first = Identity::load_or_create(&state).unwrap();
        let second = Identity::load_or_create(&state).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_ne!(first.fingerprint(), Identity::ephemeral().unwrap().fingerprint());
        let mode = |name: &str| fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("server.key"), 0o600);
        let exposed = fs::Permissions::from_mode(0o644);
        fs::set_permissions(state.join("server.key"), exposed).unwrap();
        assert!(matches!(Identity::load_or_create(&state), Err(IdentityError::Exposed { mode: 0o644, .. })));
        fs::set_permissions(state.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(state.join("server.key"), "nonsense").unwrap();
        assert!(matches!(Identity::load_or_create(&state), Err(IdentityError::Damaged { what: "private key", .. })));
    }
}
