//! The part of HTTP/1.1 that a scrape needs: `GET /metrics`, one request per connection, and few connections.
//! Connections without a request are closed for newer ones.
//!
//! Written by hand: a web server has an accept loop of its own, and does not limit the time and the number of silent
//! connections as this one does.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::limits::connection_table::{ConnectionLimits, ConnectionSlot, ConnectionTable};
use crate::server::accept::{
    AcceptLoop, AcceptSettings, AcceptedConnection, ConnectionServer, RefusedConnection, StopSignal, WhenFull,
};
use crate::transport::Stream;
use crate::transport::tcp::{DEFAULT_BACKLOG, Listener, TcpConnection, TcpSocket};

/// Maximum time for a request and its answer together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a request's head.
const MAX_HEAD_BYTES: usize = 4096;

/// Maximum number of connections without a request.
const MAX_SILENT: usize = 4;

/// Maximum number of connections. Closed connections count until their threads have ended.
const MAX_CONNECTIONS: usize = 32;

/// Interval at which the accept loop checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Failure to serve metrics on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics on {address}: {source}")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

/// Server that answers scrapes of its metrics.
#[derive(Debug)]
pub struct MetricsServer {
    listener: Listener,
}

impl MetricsServer {
    /// Listens for scrapes; [`MetricsServer::run`] answers them.
    pub fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        let bound = Listener::bind(address, DEFAULT_BACKLOG);
        bound.map(|listener| MetricsServer { listener }).map_err(|source| MetricsError { address, source })
    }

    /// Returns the address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }

    /// Answers scrapes with the text that `page` returns, until `stop` is set.
    pub fn run<P: Fn() -> String + Send + Sync + 'static>(&self, page: P, stop: &AtomicBool) {
        let limits = ConnectionLimits {
            max_connections: MAX_CONNECTIONS,
            max_unauthenticated: MAX_SILENT,
            ..ConnectionLimits::default()
        };
        let accept_loop = AcceptLoop {
            server: Arc::new(MetricsPage(page)),
            connections: ConnectionTable::new(limits),
            settings: AcceptSettings {
                thread_name: "scrape",
                stack_size: 256 << 10,
                poll_interval: POLL_INTERVAL,
                when_full: WhenFull::Refuse,
            },
        };
        let stop = || stop.load(Ordering::Relaxed);
        accept_loop.run(std::slice::from_ref(&self.listener), StopSignal::When(&stop));
    }
}

/// Function that returns the page of metrics.
struct MetricsPage<P>(P);

impl<P: Fn() -> String + Send + Sync + 'static> ConnectionServer for MetricsPage<P> {
    type Listener = Listener;

    fn serve(self: Arc<Self>, accepted: AcceptedConnection<TcpConnection>) -> Result<(), RefusedConnection> {
        let AcceptedConnection { connection, slot, .. } = accepted;
        // The scraper may have disconnected.
        let _ = connection.into_socket().and_then(|socket| answer(socket, &self.0, &slot));
        Ok(())
    }

    fn permits(&self, _connection: &TcpConnection, _peer: SocketAddr) -> bool {
        true
    }
}

fn answer(mut socket: TcpSocket, page: &dyn Fn() -> String, slot: &ConnectionSlot) -> io::Result<()> {
    socket.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let head = head(&mut socket, Instant::now() + REQUEST_TIMEOUT)?;
    if !slot.authenticate() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let (status, kind, body) = match head.as_deref().map(request) {
        Some(Some(("GET", "/metrics"))) => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page()),
        Some(Some(("GET", _))) => ("404 Not Found", "text/plain", "metrics are at /metrics\n".into()),
        Some(Some(_)) => ("405 Method Not Allowed\r\nAllow: GET", "text/plain", "only GET\n".into()),
        Some(None) => ("400 Bad Request", "text/plain", "not HTTP\n".into()),
        None => ("431 Request Header Fields Too Large", "text/plain", "too long\n".into()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// Reads the head of the request; `None` if it is longer than [`MAX_HEAD_BYTES`].
fn head(socket: &mut TcpSocket, deadline: Instant) -> io::Result<Option<String>> {
    let (mut head, mut part) = (Vec::new(), [0; 512]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..length]);
        if head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if head.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
    }
}

/// Returns the method and the path of a request line.
fn request(head: &str) -> Option<(&str, &str)> {
    let mut words = head.lines().next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let path = target.split('?').next()?;
    (words.next().is_none() && version.starts_with("HTTP/1.")).then_some((method, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_line_has_three_words() {
        assert_eq!(request("GET /metrics?name=x HTTP/1.1\r\n\r\n"), Some(("GET", "/metrics")));
        assert_eq!(request("POST / HTTP/1.0\r\n\r\n"), Some(("POST", "/")));
        for bad in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "GET / HTTP/1.1 more"] {
            assert_eq!(request(bad), None, "{bad}");
        }
    }
}
