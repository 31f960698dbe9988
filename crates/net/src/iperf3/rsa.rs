//! Tokens of users, encrypted and decrypted: RSA with OAEP, or with PKCS #1 v1.5 as iperf3 had it before 3.17.
//!
//! The older padding lets an attacker who can tell a failed decryption from a wrong password decrypt a token he heard
//! (Bleichenbacher 1998, Marvin 2023). So a server takes it only if told to, says the same of every failure, and says
//! it no sooner than [`ANSWER_AFTER`] the token came, which is longer than any of this takes.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey,
    Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use data_encoding::BASE64;
use lfn_core::iperf3::auth::{Claim, Unsendable, Users};
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};

/// When a server answers a token, counted from its arrival.
pub(super) const ANSWER_AFTER: Duration = Duration::from_millis(100);

/// How the text is padded before it is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Padding {
    /// OAEP with SHA-1, iperf3 since 3.17.
    #[default]
    Oaep,
    /// PKCS #1 v1.5, older ones.
    Pkcs1,
}

/// A key that cannot be used, or a claim it cannot carry.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Something else, or damaged.
    #[error("not {0} in PEM: {1}")]
    Pem(&'static str, String),
    /// Another algorithm, or a size the library does not take.
    #[error("not an RSA key of 2048 to 8192 bits")]
    Rsa,
    /// The format of iperf3's claims cannot hold it.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
    /// More than the key can encrypt.
    #[error("user and password are too long for this key")]
    TooLong,
}

impl KeyError {
    /// How such a key is made.
    pub fn hint(&self) -> &'static str {
        match self {
            KeyError::Pem(..) | KeyError::Rsa => {
                "openssl genrsa -out key.pem 2048; openssl rsa -in key.pem -pubout -out public.pem"
            }
            KeyError::Unsendable(_) | KeyError::TooLong => "choose a shorter user or password, without spaces",
        }
    }
}

/// A server's public key.
#[derive(Clone)]
pub struct PublicKey(PublicEncryptingKey);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} bits)", self.0.key_size_bits())
    }
}

impl PublicKey {
    /// Reads `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|error| KeyError::Pem("a public key", error.to_string()))?;
        PublicEncryptingKey::from_der(&der).map(PublicKey).map_err(|_| KeyError::Rsa)
    }

    /// The token that makes a claim.
    pub fn token(&self, claim: &Claim, padding: Padding) -> Result<String, KeyError> {
        let text = claim.text()?;
        let mut room = vec![0; self.0.key_size_bytes()];
        let encrypted = match padding {
            Padding::Oaep => OaepPublicEncryptingKey::new(self.0.clone())
                .and_then(|key| key.encrypt(&OAEP_SHA1_MGF1SHA1, text.as_bytes(), &mut room, None).map(|c| c.len())),
            Padding::Pkcs1 => Pkcs1PublicEncryptingKey::new(self.0.clone())
                .and_then(|key| key.encrypt(text.as_bytes(), &mut room).map(|c| c.len())),
        };
        let length = encrypted.map_err(|_| KeyError::TooLong)?;
        Ok(BASE64.encode(&room[..length]))
    }
}

/// A server's private key.
pub struct PrivateKey(PrivateDecryptingKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({} bits)", self.0.key_size_bits())
    }
}

impl PrivateKey {
    /// Reads `-----BEGIN PRIVATE KEY-----` or `-----BEGIN RSA PRIVATE KEY-----`, without a passphrase.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let pem = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| KeyError::Pem("a private key without passphrase", error.to_string()))?;
        let der = match &pem {
            PrivateKeyDer::Pkcs1(key) => pkcs8(key.secret_pkcs1_der()),
            other => other.secret_der().to_vec(),
        };
        PrivateDecryptingKey::from_pkcs8(&der).map(PrivateKey).map_err(|_| KeyError::Rsa)
    }

    /// What a token claims; `None` whatever is wrong with it.
    pub fn claim(&self, token: &str, also_pkcs1: bool) -> Option<Claim> {
        let encrypted = BASE64.decode(token.as_bytes()).ok()?;
        let mut room = vec![0; self.0.key_size_bytes()];
        let oaep = OaepPrivateDecryptingKey::new(self.0.clone())
            .and_then(|key| key.decrypt(&OAEP_SHA1_MGF1SHA1, &encrypted, &mut room, None).map(|text| text.len()));
        let length = match oaep {
            Ok(length) => length,
            Err(_) if also_pkcs1 => Pkcs1PrivateDecryptingKey::new(self.0.clone())
                .and_then(|key| key.decrypt(&encrypted, &mut room).map(|text| text.len()))
                .ok()?,
            Err(_) => return None,
        };
        Claim::read(&room[..length])
    }
}

/// Whether the users file knows who claims.
pub fn admits(users: &Users, claim: &Claim) -> bool {
    users.admit(&claim.user, &hash(claim))
}

/// The hash of a users file.
pub fn hash(claim: &Claim) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, claim.salted().as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// PKCS #8 (RFC 5208 §5) around the PKCS #1 that older versions of openssl write: version 0, rsaEncryption, the key.
fn pkcs8(pkcs1: &[u8]) -> Vec<u8> {
    const BEFORE: [u8; 18] = [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let octets = der(4, pkcs1);
    der(0x30, &[&BEFORE[..], &octets].concat())
}

/// One element of DER; lengths in two bytes are long enough for keys of 8192 bits.
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

    /// A key of its own for every run: private in both forms, and public.
    fn keys() -> (String, String, String) {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(&key.public_key()).unwrap();
        // The PKCS #1 key is what the wrapping ends with.
        let pkcs1 = &der.as_ref()[26..];
        assert_eq!(pkcs8(pkcs1), der.as_ref());
        (pem("PRIVATE KEY", der.as_ref()), pem("RSA PRIVATE KEY", pkcs1), pem("PUBLIC KEY", public.as_ref()))
    }

    fn claim() -> Claim {
        Claim { user: "mario".into(), password: "rossi".into(), time: 1_700_000_000 }
    }

    #[test]
    fn a_token_comes_back_in_either_padding_and_form_of_the_key() {
        let (pkcs8, pkcs1, public) = keys();
        let public = PublicKey::from_pem(&public).unwrap();
        for text in [pkcs8, pkcs1] {
            let private = PrivateKey::from_pem(&text).unwrap();
            for padding in [Padding::Oaep, Padding::Pkcs1] {
                let token = public.token(&claim(), padding).unwrap();
                assert_eq!(private.claim(&token, true), Some(claim()), "{padding:?}");
                assert_eq!(private.claim(&token, false).is_some(), padding == Padding::Oaep);
            }
        }
    }

    #[test]
    fn damaged_tokens_and_keys_are_refused() {
        let (pkcs8, _, spki) = keys();
        let private = PrivateKey::from_pem(&pkcs8).unwrap();
        for token in ["", "AAAA", "not base64!", &"A".repeat(344), &"QUJD".repeat(600)] {
            assert_eq!(private.claim(token, true), None, "{token}");
        }
        let long = Claim { password: "x".repeat(300), ..claim() };
        let public = PublicKey::from_pem(&spki).unwrap();
        assert!(matches!(public.token(&long, Padding::Oaep), Err(KeyError::TooLong)));
        assert!(matches!(PublicKey::from_pem("nothing"), Err(KeyError::Pem(..))));
        assert!(matches!(PublicKey::from_pem(&pkcs8), Err(KeyError::Pem(..))));
        assert!(matches!(PrivateKey::from_pem(&spki), Err(KeyError::Pem(..))));
        let encrypted = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(PrivateKey::from_pem(encrypted), Err(KeyError::Rsa)));
    }

    #[test]
    fn the_hash_is_that_of_iperf3s_manual() {
        // echo -n "{mario}rossi" | sha256sum
        let line = Users::line("mario", &hash(&claim()));
        assert_eq!(line, "mario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b");
        assert!(admits(&Users::parse(&line).unwrap(), &claim()));
    }
}
