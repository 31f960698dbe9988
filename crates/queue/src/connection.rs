//! The connection to the server of the queue, and the patience with it.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::AccountErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use crate::error::QueueError;
use crate::proto::address::{Login, QueueAddress};

/// Maximum time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time for the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a request without success, and the maximum pause before a new connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// The connection to the server.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    pub(crate) address: QueueAddress,
    patience: Duration,
}

/// Result of one attempt that did not succeed.
pub(crate) enum Attempt {
    /// Another attempt may succeed, for example after a restart of the server.
    Again(String),
    Final(QueueError),
}

impl Connection {
    /// Connects to the server, and checks that it has JetStream. A server that cannot be reached at first is an error.
    pub(crate) async fn open(
        address: QueueAddress,
        credentials: Option<&Path>,
        patience: Duration,
    ) -> Result<Self, QueueError> {
        let mut options = ConnectOptions::new()
            .name("lfn")
            .require_tls(address.has_tls())
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .max_reconnects(None)
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                (RETRY_INTERVAL * attempts.min(100)).min(MAX_RECONNECT_DELAY)
            });
        options = match address.login().cloned() {
            Some(Login::Password { user, password }) => options.user_and_password(user, password),
            Some(Login::Token(token)) => options.token(token),
            None => options,
        };
        if let Some(path) = credentials {
            let read = options.credentials_file(path).await;
            options = read.map_err(|source| QueueError::Credentials { path: path.to_owned(), source })?;
        }
        let server = || address.server().to_owned();
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, options.connect(address.server())).await;
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(connect_error(&error, server())),
            Err(_) => return Err(QueueError::Unreachable { server: server(), reason: "no answer".into() }),
        };
        let jetstream = jetstream::new(client.clone());
        match jetstream.query_account().await.map_err(|error| error.kind()) {
            Err(AccountErrorKind::TimedOut) => {
                return Err(QueueError::Unreachable { server: server(), reason: "no answer".into() });
            }
            Err(AccountErrorKind::JetStreamUnavailable | AccountErrorKind::JetStream(_)) => {
                return Err(QueueError::NoJetStream { server: server() });
            }
            // The client cannot read the answer of older servers, such as 2.9.
            Ok(_) | Err(AccountErrorKind::Other) => {}
        }
        Ok(Connection { client, jetstream, address, patience })
    }

    /// Repeats a request until the server answers or the patience is over.
    pub(crate) async fn patiently<T, F>(
        &self,
        doing: &'static str,
        mut request: impl FnMut() -> F,
    ) -> Result<T, QueueError>
    where
        F: Future<Output = Result<T, Attempt>>,
    {
        let start = Instant::now();
        loop {
            let reason = match tokio::time::timeout(2 * REQUEST_TIMEOUT, request()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Attempt::Final(error))) => return Err(error),
                Ok(Err(Attempt::Again(reason))) => reason,
                Err(_) => "no answer".to_owned(),
            };
            if start.elapsed() >= self.patience {
                let server = self.address.server().to_owned();
                return Err(QueueError::Away { server, after: start.elapsed(), doing, reason });
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns the error of a request that the server refuses.
    pub(crate) fn refused(&self, doing: &'static str, reason: impl ToString) -> QueueError {
        QueueError::Refused { server: self.address.server().to_owned(), doing, reason: reason.to_string() }
    }
}

fn connect_error(error: &async_nats::ConnectError, server: String) -> QueueError {
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => QueueError::Denied { server },
        _ => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            QueueError::Unreachable { server, reason: source.unwrap_or_else(|| error.to_string()) }
        }
    }
}

/// Returns a failed attempt that may succeed later.
pub(crate) fn again(error: impl std::fmt::Display) -> Attempt {
    Attempt::Again(error.to_string())
}
