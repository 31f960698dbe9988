//! Reasons why a test has no result.

use std::io;

use lfn_measure::iperf3;
use lfn_measure::tester::TestError;
use lfn_results::report::{CommandError, TestDocument};
use lfn_session::SessionError;

use super::option_error::TestOptionsError;
use crate::error_kind::ErrorKind;
use crate::error_text::error_chain;
use crate::hosts::HostError;
use crate::ssh::SshError;

/// Reasons why a test did not finish.
#[derive(Debug, thiserror::Error)]
pub enum TestVerbError {
    #[error(transparent)]
    Options(#[from] TestOptionsError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// A test of this host needs no ssh.
    #[error("no ticket is saved for '{0}'")]
    NoTicketForLoopback(String),
    /// ssh has no place for the port.
    #[error("no ticket is saved for '{host}', and a host for ssh has no port")]
    PortForSsh {
        host: String,
        /// The host without its port.
        name: String,
    },
    /// The path was not discovered.
    #[error(transparent)]
    Path(SessionError),
    #[error("unknown host '{host}': {}", source.as_ref().map_or("no address".into(), ToString::to_string))]
    UnknownHost { host: String, source: Option<io::Error> },
    /// No data arrived, and probes show that large packets get lost.
    #[error("MTU black hole: packets of more than {passed} B get lost without an ICMP message, so no data arrived")]
    BlackHole {
        /// Largest packet that passed.
        passed: u32,
        /// Name of the sender.
        sender: String,
    },
    #[error(transparent)]
    Test(#[from] TestError),
    #[error(transparent)]
    Iperf3(#[from] iperf3::Error),
}

/// A failed test: the error, and the document with all figures up to the failure.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct TestFailure<Document: std::fmt::Debug = TestDocument> {
    pub error: TestVerbError,
    /// Finished tests and the figures of the failed one; `None` if the options are invalid.
    pub document: Option<Box<Document>>,
}

impl TestVerbError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TestVerbError::Options(error) => error.hint(),
            TestVerbError::Host(error) => error.hint(),
            TestVerbError::Ssh(error) => error.hint(),
            TestVerbError::NoTicketForLoopback(host) => Some(format!(
                "run `lfn serve --insecure --bind 127.0.0.1` in another terminal, then here: lfn test --insecure {host}"
            )),
            TestVerbError::PortForSsh { name, .. } => Some(format!("start the server over ssh: lfn test {name}")),
            TestVerbError::Path(error) => error.hint(),
            TestVerbError::UnknownHost { .. } => {
                Some("use a valid host name or an address: --iperf3 192.0.2.1".to_owned())
            }
            TestVerbError::BlackHole { sender, .. } => {
                Some(format!("sysctl -w net.ipv4.tcp_mtu_probing=1   # on {sender}, or let the firewalls pass ICMP"))
            }
            TestVerbError::Test(error) => error.hint(),
            TestVerbError::Iperf3(error) => Some(error.hint()),
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TestVerbError::Options(error) => error.kind(),
            TestVerbError::Host(error) => error.kind(),
            TestVerbError::Ssh(error) => error.kind(),
            TestVerbError::Test(TestError::Request(_)) => ErrorKind::Usage,
            TestVerbError::Test(TestError::Stopped) => ErrorKind::Interrupted,
            _ => ErrorKind::Failed,
        }
    }

    /// Returns the error as a part of a result.
    pub(crate) fn command_error(&self) -> CommandError {
        CommandError { message: error_chain(self), hint: self.hint() }
    }
}

impl<Document: std::fmt::Debug> TestFailure<Document> {
    /// Creates a failure without any figures.
    pub(super) fn without_document(error: TestVerbError) -> Self {
        TestFailure { error, document: None }
    }

    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        self.error.hint()
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}
