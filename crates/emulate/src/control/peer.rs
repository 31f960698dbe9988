//! A client connection of the control server: reads the request, then writes the response.
//!
//! A request is one line of limited length. A client has one second to send the request and one second to read the
//! response.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::MAX_REQUEST;

/// Bytes that are read at a time.
const READ_CHUNK: usize = 64 << 10;
/// Maximum time for a request, and for reading its response.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls `respond` with the complete request line, without its end, and writes the response. Reading and writing may
/// each last for `timeout`.
pub(super) fn serve(
    stream: &UnixStream,
    timeout: Duration,
    respond: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let line = read_line(stream, Instant::now() + timeout)?;
    match respond(&line) {
        Some(response) => write(stream, &response, Instant::now() + timeout),
        None => Ok(()),
    }
}

/// Reads to the first line end. The error is `InvalidData` if the line is too long or incomplete.
fn read_line(mut stream: &UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut part = vec![0; READ_CHUNK];
    while line.len() < MAX_REQUEST {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        let length = match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = part[..length].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(length)]);
        if end.is_some() {
            return Ok(line);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

fn write(mut stream: &UnixStream, mut remaining: &[u8], deadline: Instant) -> io::Result<()> {
    while !remaining.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(remaining) {
            Ok(length) => remaining = &remaining[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until the deadline. The error is `TimedOut` after it.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn no_response(_: &[u8]) -> Option<Vec<u8>> {
        panic!("no request was sent")
    }

    #[test]
    fn request_and_response_may_arrive_in_parts() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let long = vec![b'x'; 4 << 20];
        let respond = |line: &[u8]| {
            assert_eq!(line, b"how are you?");
            Some(long.clone())
        };
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&server, TIMEOUT, respond));
            client.write_all(b"how ").unwrap();
            thread::sleep(Duration::from_millis(5));
            client.write_all(b"are you?\nand").unwrap();
            let mut received = vec![0; long.len()];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, long);
            serving.join().unwrap().unwrap();
        });
    }

    #[test]
    fn closed_or_endless_requests_are_dropped() {
        let (client, server) = UnixStream::pair().unwrap();
        drop(client);
        assert!(serve(&server, TIMEOUT, no_response).is_err());
        let (mut client, server) = UnixStream::pair().unwrap();
        let writing = thread::spawn(move || client.write_all(&vec![b'x'; 2 * MAX_REQUEST]));
        assert!(serve(&server, TIMEOUT, no_response).is_err());
        drop(server);
        assert!(writing.join().unwrap().is_err());
    }

    #[test]
    fn slow_peers_are_dropped_after_the_timeout() {
        let timeout = Duration::from_millis(30);
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"half a requ").unwrap();
        assert!(is_timeout(serve(&server, timeout, no_response)));
        client.write_all(b"est\n").unwrap();
        let long = vec![b'x'; 4 << 20];
        assert!(is_timeout(serve(&server, timeout, |_| Some(long.clone()))), "the response is not read");
    }

    fn is_timeout(served: io::Result<()>) -> bool {
        served.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}
