//! Encryption and decryption of authentication tokens: RSA with OAEP, or with PKCS #1 v1.5 as in iperf3 before 3.17.
//!
//! The older padding lets an attacker decrypt a recorded token, if the attacker can distinguish a failed decryption
//! from a wrong password (Bleichenbacher 1998, Marvin 2023). So a server accepts it only if configured, gives the same
//! answer to every failure, and answers exactly [`AUTH_RESPONSE_TIME`] after the token's arrival, which is longer than
//! every check takes.

use std::fmt;
use std::time::Duration;

use crate::proto::iperf3::auth::{IperfCredentials, Unsendable, Users};
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey,
    Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use data_encoding::BASE64;
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};

/// Time from a token's arrival to the server's answer.
pub(super) const AUTH_RESPONSE_TIME: Duration = Duration::from_millis(100);

/// Padding of the text before encryption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Padding {
    /// OAEP with SHA-1, iperf3 since 3.17.
    #[default]
    Oaep,
    /// PKCS #1 v1.5, older versions.
    Pkcs1,
}

/// A key that cannot be used, or a claim that the key cannot carry.
#[derive(Debug, thiserror::Error)]
pub enum RsaKeyError {
    /// Another kind of text, or damaged.
    #[error("not {0} in PEM: {1}")]
    Pem(&'static str, String),
    /// Another algorithm, or an unsupported size.
    #[error("not an RSA key of 2048 to 8192 bits")]
    Rsa,
    /// The format of iperf3's claims cannot hold this claim.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
    #[error("user and password are too long for this key")]
    TooLong,
}

impl RsaKeyError {
    /// Returns the commands that create a usable key, or another remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            RsaKeyError::Pem(..) | RsaKeyError::Rsa => {
                "openssl genrsa -out key.pem 2048; openssl rsa -in key.pem -pubout -out public.pem"
            }
            RsaKeyError::Unsendable(_) | RsaKeyError::TooLong => "choose a shorter user or password, without spaces",
        }
    }
}

/// Public key of a server.
#[derive(Clone)]
pub struct PublicKey(PublicEncryptingKey);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} bits)", self.0.key_size_bits())
    }
}

impl PublicKey {
    /// Reads a PEM text with `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(text: &str) -> Result<Self, RsaKeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|error| RsaKeyError::Pem("a public key", error.to_string()))?;
        PublicEncryptingKey::from_der(&der).map(PublicKey).map_err(|_| RsaKeyError::Rsa)
    }

    /// Returns the token with an encrypted claim.
    pub fn encrypt_claim(&self, claim: &IperfCredentials, padding: Padding) -> Result<String, RsaKeyError> {
        let text = claim.text()?;
        let mut buffer = vec![0; self.0.key_size_bytes()];
        let encrypted = match padding {
            Padding::Oaep => OaepPublicEncryptingKey::new(self.0.clone())
                .and_then(|key| key.encrypt(&OAEP_SHA1_MGF1SHA1, text.as_bytes(), &mut buffer, None).map(|c| c.len())),
            Padding::Pkcs1 => Pkcs1PublicEncryptingKey::new(self.0.clone())
                .and_then(|key| key.encrypt(text.as_bytes(), &mut buffer).map(|c| c.len())),
        };
        let length = encrypted.map_err(|_| RsaKeyError::TooLong)?;
        Ok(BASE64.encode(&buffer[..length]))
    }
}

/// Private key of a server.
pub struct PrivateKey(PrivateDecryptingKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({} bits)", self.0.key_size_bits())
    }
}

impl PrivateKey {
    /// Reads `-----BEGIN PRIVATE KEY-----` or `-----BEGIN RSA PRIVATE KEY-----`, without a passphrase.
    pub fn from_pem(text: &str) -> Result<Self, RsaKeyError> {
        let pem = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| RsaKeyError::Pem("a private key without passphrase", error.to_string()))?;
        let der = match &pem {
            PrivateKeyDer::Pkcs1(key) => pkcs8(key.secret_pkcs1_der()),
            other => other.secret_der().to_vec(),
        };
        PrivateDecryptingKey::from_pkcs8(&der).map(PrivateKey).map_err(|_| RsaKeyError::Rsa)
    }

    /// Decrypts a token. Returns `None` for every kind of failure.
    pub fn decrypt_claim(&self, token: &str, also_pkcs1: bool) -> Option<IperfCredentials> {
        let encrypted = BASE64.decode(token.as_bytes()).ok()?;
        let mut buffer = vec![0; self.0.key_size_bytes()];
        let oaep = OaepPrivateDecryptingKey::new(self.0.clone())
            .and_then(|key| key.decrypt(&OAEP_SHA1_MGF1SHA1, &encrypted, &mut buffer, None).map(|text| text.len()));
        let length = match oaep {
            Ok(length) => length,
            Err(_) if also_pkcs1 => Pkcs1PrivateDecryptingKey::new(self.0.clone())
                .and_then(|key| key.decrypt(&encrypted, &mut buffer).map(|text| text.len()))
                .ok()?,
            Err(_) => return None,
        };
        IperfCredentials::read(&buffer[..length])
    }
}

/// Returns whether the users file contains this user with this password.
pub fn is_authorized(users: &Users, claim: &IperfCredentials) -> bool {
    users.admit(&claim.user, &password_hash(claim))
}

/// Returns the password hash of a users file.
pub fn password_hash(claim: &IperfCredentials) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, claim.salted().as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Wraps a PKCS #1 key, as older versions of openssl write it, in PKCS #8 (RFC 5208 §5): version 0, rsaEncryption, the
/// key.
fn pkcs8(pkcs1: &[u8]) -> Vec<u8> {
    const BEFORE: [u8; 18] = [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let octets = der(4, pkcs1);
    der(0x30, &[&BEFORE[..], &octets].concat())
}

/// Encodes one DER element. Two bytes of length suffice for keys of 8192 bits.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[tag, 0x82, high, low], content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
    use aws_lc_rs::rsa::KeySize;

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64.encode(der))
    }

    /// A new key for every run: private in both forms, and public.
    fn keys() -> (String, String, String) {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(&key.public_key()).unwrap();
        // The wrapped form ends with the PKCS #1 key.
        let pkcs1 = &der.as_ref()[26..];
        assert_eq!(pkcs8(pkcs1), der.as_ref());
        (pem("PRIVATE KEY", der.as_ref()), pem("RSA PRIVATE KEY", pkcs1), pem("PUBLIC KEY", public.as_ref()))
    }

    fn claim() -> IperfCredentials {
        IperfCredentials { user: "mario".into(), password: "rossi".into(), time: 1_700_000_000 }
    }

    #[test]
    fn token_decrypts_with_both_paddings_and_key_forms() {
        let (pkcs8, pkcs1, public) = keys();
        let public = PublicKey::from_pem(&public).unwrap();
        for text in [pkcs8, pkcs1] {
            let private = PrivateKey::from_pem(&text).unwrap();
            for padding in [Padding::Oaep, Padding::Pkcs1] {
                let token = public.encrypt_claim(&claim(), padding).unwrap();
                assert_eq!(private.decrypt_claim(&token, true), Some(claim()), "{padding:?}");
                assert_eq!(private.decrypt_claim(&token, false).is_some(), padding == Padding::Oaep);
            }
        }
    }

    #[test]
    fn damaged_tokens_and_keys_are_refused() {
        let (pkcs8, _, spki) = keys();
        let private = PrivateKey::from_pem(&pkcs8).unwrap();
        for token in ["", "AAAA", "not base64!", &"A".repeat(344), &"QUJD".repeat(600)] {
            assert_eq!(private.decrypt_claim(token, true), None, "{token}");
        }
        let long = IperfCredentials { password: "x".repeat(300), ..claim() };
        let public = PublicKey::from_pem(&spki).unwrap();
        assert!(matches!(public.encrypt_claim(&long, Padding::Oaep), Err(RsaKeyError::TooLong)));
        assert!(matches!(PublicKey::from_pem("nothing"), Err(RsaKeyError::Pem(..))));
        assert!(matches!(PublicKey::from_pem(&pkcs8), Err(RsaKeyError::Pem(..))));
        assert!(matches!(PrivateKey::from_pem(&spki), Err(RsaKeyError::Pem(..))));
        let encrypted = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(PrivateKey::from_pem(encrypted), Err(RsaKeyError::Rsa)));
    }

    #[test]
    fn hash_matches_iperf3s_manual() {
        // echo -n "{mario}rossi" | sha256sum
        let line = Users::line("mario", &password_hash(&claim()));
        assert_eq!(line, "mario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b");
        assert!(is_authorized(&Users::parse(&line).unwrap(), &claim()));
    }
}
