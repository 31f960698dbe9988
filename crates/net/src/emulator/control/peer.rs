//! One who asks: his question as far as it has come, then the answer as far as he has taken it.
//!
//! Nothing here waits, so that any number of them can be attended side by side; [`server`](super::server) waits for all
//! at once. A question is one line of bounded length. It has a second to come, and its answer a second to be taken.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::LONGEST_REQUEST;

/// Bytes of a question that are read at a time.
const PART: usize = 64 << 10;
/// How long a question may take to come, and an answer to be taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Somebody who connected.
pub(super) struct Peer {
    stream: UnixStream,
    state: State,
    /// When he is hung up on.
    pub(super) deadline: Instant,
}

enum State {
    /// What has come of the line.
    Asking(Vec<u8>),
    /// What is left to be taken.
    Answered(Vec<u8>),
}

impl Peer {
    /// Who has said nothing yet.
    pub(super) fn new(stream: UnixStream, now: Instant) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer { stream, state: State::Asking(Vec::new()), deadline: now + PATIENCE })
    }

    /// What to wait for before it can go on.
    pub(super) fn waits_for(&self) -> PollFd<'_> {
        let flags = match self.state {
            State::Asking(_) => PollFlags::IN,
            State::Answered(_) => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Goes on as far as can be without waiting; `answer` is asked once, what to say to the line. False when it is over,
    /// one way or the other.
    pub(super) fn advance(&mut self, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> io::Result<bool> {
        if let State::Asking(line) = &mut self.state {
            match read_line(&self.stream, line)? {
                Heard::Part => return Ok(true),
                Heard::Nonsense => return Ok(false),
                Heard::Line => self.state = State::Answered(answer(line)),
            }
            self.deadline = Instant::now() + PATIENCE;
        }
        match &mut self.state {
            State::Asking(_) => Ok(true),
            State::Answered(left) => write_some(&self.stream, left),
        }
    }
}

/// What has been read of a question.
enum Heard {
    /// Not its end.
    Part,
    /// All of it, without the line end.
    Line,
    /// Something that will be no question: no line, or too long a one.
    Nonsense,
}

fn read_line(mut stream: &UnixStream, line: &mut Vec<u8>) -> io::Result<Heard> {
    let mut part = vec![0; PART];
    while line.len() < LONGEST_REQUEST {
        let length = match stream.read(&mut part) {
            Ok(0) => return Ok(Heard::Nonsense),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Heard::Part),
            Err(error) => return Err(error),
        };
        let end = part[..length].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(length)]);
        if end.is_some() {
            return Ok(Heard::Line);
        }
    }
    Ok(Heard::Nonsense)
}

/// False when nothing is left.
fn write_some(mut stream: &UnixStream, left: &mut Vec<u8>) -> io::Result<bool> {
    while !left.is_empty() {
        match stream.write(left) {
            Ok(0) => return Ok(false),
            Ok(length) => drop(left.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, Peer) {
        let (mine, other) = UnixStream::pair().unwrap();
        (mine, Peer::new(other, Instant::now()).unwrap())
    }

    fn no_answer(_: &[u8]) -> Vec<u8> {
        panic!("there was no question")
    }

    #[test]
    fn a_question_comes_in_parts_and_so_goes_its_answer() {
        let (mut mine, mut peer) = pair();
        assert!(peer.advance(no_answer).unwrap());
        mine.write_all(b"how ").unwrap();
        assert!(peer.advance(no_answer).unwrap());
        mine.write_all(b"are you?\nand").unwrap();
        let long = vec![b'x'; 4 << 20];
        let answer = |line: &[u8]| {
            assert_eq!(line, b"how are you?");
            long.clone()
        };
        let asked = peer.deadline;
        assert!(peer.advance(answer).unwrap(), "a socket does not hold so much");
        assert!(peer.deadline > asked);
        let mut taken = vec![0; long.len()];
        let reading = std::thread::spawn(move || mine.read_exact(&mut taken).map(|()| taken));
        while peer.advance(no_answer).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(reading.join().unwrap().unwrap(), long);
    }

    #[test]
    fn who_hangs_up_or_does_not_end_is_left() {
        let (mine, mut peer) = pair();
        drop(mine);
        assert!(!peer.advance(no_answer).unwrap());
        let (mut mine, mut peer) = pair();
        let writing = std::thread::spawn(move || mine.write_all(&vec![b'x'; 2 * LONGEST_REQUEST]));
        while peer.advance(no_answer).unwrap() {
            std::thread::yield_now();
        }
        drop(peer);
        assert!(writing.join().unwrap().is_err());
    }
}
