//! Keys and users of a server, as files that both programs read.

use std::fs;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeySize, PrivateDecryptingKey};
use data_encoding::BASE64;
use lfn_measure::iperf3::rsa;
use lfn_measure::proto::iperf3::auth::{IperfCredentials, Users};
use tempfile::TempDir;

/// Files with a server's keys and its users.
pub struct Keys {
    directory: TempDir,
}

impl Keys {
    pub fn new() -> Keys {
        let directory = TempDir::new().unwrap();
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(&key.public_key()).unwrap();
        let pem = |label: &str, der: &[u8]| {
            let text = BASE64.encode(der);
            let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
        };
        let claim = IperfCredentials { user: "mario".into(), password: "rossi".into(), time: 0 };
        let users = Users::line("mario", &rsa::password_hash(&claim));
        for (name, text) in [
            ("private", pem("PRIVATE KEY", private.as_ref())),
            ("public", pem("PUBLIC KEY", public.as_ref())),
            ("users", users),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Keys { directory }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}
