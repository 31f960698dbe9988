//! Options of a test with an iperf3 server, and the prompt for its password.

use std::fs;
use std::io::{self, BufRead, IsTerminal};

use lfn_api::test::Iperf3Options;
use lfn_measure::iperf3::client::Login;
use lfn_measure::iperf3::rsa::{Padding, PublicKey};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::iperf3_args::Iperf3ClientArgs;
use crate::exit::Failure;
use crate::print;

/// iperf3 clients use the same variable.
const PASSWORD_VARIABLE: &str = "IPERF3_PASSWORD";

impl Iperf3ClientArgs {
    /// Returns the options of a test with an iperf3 server, without the login.
    pub(super) fn options(&self) -> Option<Iperf3Options> {
        self.iperf3.as_ref().map(|_| Iperf3Options { login: None, server_output: self.iperf3_server_output })
    }

    /// Returns the user name and the password, if they are given. May ask for the password.
    pub(super) fn login(&self) -> Result<Option<Login>, Failure> {
        let (Some(user), Some(file)) = (&self.iperf3_user, &self.iperf3_rsa_public_key) else { return Ok(None) };
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::msg(format!("--iperf3-rsa-public-key {}: {error}", file.display()))
                .hint("create the file from the server's key: openssl rsa -in key.pem -pubout -out public.pem")
        };
        let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let key = PublicKey::from_pem(&text).map_err(|error| wrong(&error))?;
        let padding = if self.iperf3_pkcs1 { Padding::Pkcs1 } else { Padding::Oaep };
        Ok(Some(Login { user: user.clone(), password: password(user)?, key, padding }))
    }
}

fn password(user: &str) -> Result<String, Failure> {
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format!("no password for '{user}'"))
            .hint(format!("set it in the environment: export {PASSWORD_VARIABLE}=…")));
    }
    print::message(format_args!("password of {user}: "));
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &silent).map_err(io::Error::from)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before).map_err(io::Error::from)?;
    print::message("\n");
    read?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
