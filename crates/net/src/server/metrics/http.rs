//! As much of HTTP/1.1 as a scrape needs, and no more: `GET /metrics`, one request a connection, a few connections, of
//! which those that ask nothing make place for others.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a request and its answer may take together.
const WITHIN: Duration = Duration::from_secs(5);

/// Longest head of a request.
const HEAD: usize = 4096;

/// Scrapes at once.
const CONNECTIONS: usize = 4;

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics on {address}: {source}")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

/// Serves what `page` gives on `address`, from a thread of its own until the process ends; tells where it listens.
pub fn serve(
    address: SocketAddr,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> Result<SocketAddr, MetricsError> {
    let failed = |source| MetricsError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let spawned = thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &Arc::new(page)));
    spawned.map_err(failed)?;
    Ok(local)
}

fn accept<P: Fn() -> String + Send + Sync + 'static>(listener: &TcpListener, page: &Arc<P>) {
    let open = Arc::new(Mutex::new(Open::default()));
    for number in 0.. {
        let Ok((socket, _)) = listener.accept() else {
            // Files are used up, perhaps: what is open now will be closed.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(&open, number, &socket) else { continue };
        let page = page.clone();
        // Without a thread the socket is dropped, and the scraper told so by the close.
        let _ = thread::Builder::new().name("scrape".into()).stack_size(256 << 10).spawn(move || {
            // Whoever scrapes may be gone.
            let _ = answer(socket, page.as_ref(), &place);
        });
    }
}

/// Connections that are open, in the order they came.
#[derive(Default)]
struct Open(BTreeMap<u64, Option<TcpStream>>);

/// A scrape's place, given back however its thread ends or if it never starts.
struct Place {
    open: Arc<Mutex<Open>>,
    number: u64,
}

impl Place {
    /// `None` if all are being answered. The oldest that has not asked makes place.
    fn take(open: &Arc<Mutex<Open>>, number: u64, socket: &TcpStream) -> Option<Place> {
        let socket = socket.try_clone().ok()?;
        let mut places = lock(open);
        if places.0.len() >= CONNECTIONS {
            let oldest = places.0.iter().find(|(_, silent)| silent.is_some()).map(|(number, _)| *number)?;
            // Its thread then sees the end.
            let _ = places.0.remove(&oldest).flatten()?.shutdown(Shutdown::Both);
        }
        places.0.insert(number, Some(socket));
        Some(Place { open: open.clone(), number })
    }

    /// It has asked, and is answered.
    fn asked(&self) {
        if let Some(place) = lock(&self.open).0.get_mut(&self.number) {
            *place = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.open).0.remove(&self.number);
    }
}

/// No thread panics while it holds the lock.
fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(mut socket: TcpStream, page: &dyn Fn() -> String, place: &Place) -> io::Result<()> {
    socket.set_write_timeout(Some(WITHIN))?;
    let head = head(&mut socket, Instant::now() + WITHIN)?;
    place.asked();
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

/// The head of the request; `None` if it is longer than any should be.
fn head(socket: &mut TcpStream, deadline: Instant) -> io::Result<Option<String>> {
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
        if head.len() > HEAD {
            return Ok(None);
        }
    }
}

/// Method and path of a request line.
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
    fn a_request_line_is_three_words_and_a_query_is_no_part_of_the_path() {
        assert_eq!(request("GET /metrics?name=x HTTP/1.1\r\n\r\n"), Some(("GET", "/metrics")));
        assert_eq!(request("POST / HTTP/1.0\r\n\r\n"), Some(("POST", "/")));
        for bad in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "GET / HTTP/1.1 more"] {
            assert_eq!(request(bad), None, "{bad}");
        }
    }
}
