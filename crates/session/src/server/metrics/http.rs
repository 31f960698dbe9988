//! The part of HTTP/1.1 that a scrape needs: `GET /metrics`, one request per connection, and few connections.
//! Connections without a request are closed for newer ones.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::clock;

use crate::transport::tcp::{DEFAULT_BACKLOG, Listener, TcpSocket};
use crate::transport::{Handle, Stream};

/// Maximum time for a request and its answer together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a request's head.
const MAX_HEAD_BYTES: usize = 4096;

/// Maximum number of scrapes at once.
const MAX_SCRAPES: usize = 4;

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
        let (page, open) = (Arc::new(page), Arc::new(Mutex::new(OpenScrapes::default())));
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            // After an error, accept() reports it again.
            let _ = clock::wait_readable([self.listener.as_fd()], Some(POLL_INTERVAL));
            let accepted = self.listener.accept().and_then(|(connection, _)| connection.into_socket());
            let socket = match accepted {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => {
                    // The process may be out of file descriptors; connections that are open now will be closed.
                    thread::sleep(POLL_INTERVAL / 2);
                    continue;
                }
            };
            number += 1;
            if let Some(slot) = ScrapeSlot::claim(&open, number, socket.handle()) {
                answer_in_thread(socket, slot, Arc::clone(&page));
            }
        }
    }
}

fn answer_in_thread<P: Fn() -> String + Send + Sync + 'static>(socket: TcpSocket, slot: ScrapeSlot, page: Arc<P>) {
    // If the thread does not start, the socket is dropped; the scraper sees the close.
    let _ = thread::Builder::new().name("scrape".into()).stack_size(256 << 10).spawn(move || {
        // The scraper may have disconnected.
        let _ = answer(socket, page.as_ref(), &slot);
    });
}

/// Open connections in the order of arrival, each with its handle until its request is read.
#[derive(Default)]
struct OpenScrapes(BTreeMap<u64, Option<Arc<dyn Handle>>>);

/// Slot of a scrape, freed however its thread ends.
struct ScrapeSlot {
    open: Arc<Mutex<OpenScrapes>>,
    number: u64,
}

impl ScrapeSlot {
    /// Takes a slot; `None` if all connections are being answered. The oldest connection without a request is closed
    /// for the new one.
    fn claim(open: &Arc<Mutex<OpenScrapes>>, number: u64, connection: &Arc<dyn Handle>) -> Option<ScrapeSlot> {
        let mut places = lock(open);
        if places.0.len() >= MAX_SCRAPES {
            let oldest = places.0.iter().find(|(_, silent)| silent.is_some()).map(|(number, _)| *number)?;
            // The thread of the closed connection then reads the end of the stream.
            let _ = places.0.remove(&oldest).flatten()?.shut_down(Shutdown::Both);
        }
        places.0.insert(number, Some(connection.clone()));
        Some(ScrapeSlot { open: open.clone(), number })
    }

    /// Records that the request was read.
    fn mark_requested(&self) {
        if let Some(slot) = lock(&self.open).0.get_mut(&self.number) {
            *slot = None;
        }
    }
}

impl Drop for ScrapeSlot {
    fn drop(&mut self) {
        lock(&self.open).0.remove(&self.number);
    }
}

/// No thread panics while it holds the lock.
fn lock(open: &Mutex<OpenScrapes>) -> MutexGuard<'_, OpenScrapes> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(mut socket: TcpSocket, page: &dyn Fn() -> String, slot: &ScrapeSlot) -> io::Result<()> {
    socket.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let head = head(&mut socket, Instant::now() + REQUEST_TIMEOUT)?;
    slot.mark_requested();
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
