//! The asking side: which runs there are, and one question to one of them.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lfn_sys::process;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Address, Answer, LONGEST_ANSWER, LONGEST_REQUEST, Refusal, Request, Standing, VARIABLE};

/// How long an answer may take: the run may have to make memory resident first.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run that answers to this user.
#[derive(Debug)]
pub struct Run {
    address: Address,
    connection: UnixStream,
}

/// Why a run could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Start one, or ask from the network namespace it was started from or from one of its sides.
    #[error("no lfn emulate of this user is within reach")]
    None,
    /// It has ended, is another user's, or was started in another network namespace.
    #[error("no lfn emulate of this user has process id {0}")]
    NoSuch(u32),
    /// Say which.
    #[error("several lfn emulate are running: process ids {}", list(.0))]
    Several(Vec<u32>),
    /// It is the emulator that sets it.
    #[error("the environment variable {VARIABLE} is not the name of an lfn emulate: '{0}'")]
    Variable(String),
    /// More settings than any link has.
    #[error("a request of {0} bytes is above {LONGEST_REQUEST}")]
    TooLong(usize),
    /// It ended, or is stuck.
    #[error("lfn emulate with process id {pid} does not answer: {reason}")]
    Silent {
        /// Which.
        pid: u32,
        /// The system's words.
        reason: String,
    },
    /// It answered, and said no.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl Run {
    /// Its process id, as its user sees it.
    pub fn pid(&self) -> u32 {
        self.address.pid
    }
}

/// The one run that is meant: the one with this process id, or the one on whose path this process runs, or the only one
/// there is.
pub fn find(pid: Option<u32>) -> Result<Run, ControlError> {
    if let (None, Some(name)) = (pid, env::var_os(VARIABLE)) {
        let name = name.to_string_lossy();
        let address = Address::parse(&name).ok_or_else(|| ControlError::Variable(name.clone().into_owned()))?;
        return connect(address).ok_or(ControlError::NoSuch(address.pid));
    }
    let table = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let candidates = listening(&table).into_iter().filter(|address| pid.is_none_or(|pid| pid == address.pid));
    let mut runs: Vec<Run> = candidates.filter_map(connect).collect();
    match (runs.len(), pid) {
        (0, Some(pid)) => Err(ControlError::NoSuch(pid)),
        (0, None) => Err(ControlError::None),
        (1, _) => runs.pop().ok_or(ControlError::None),
        _ => Err(ControlError::Several(runs.iter().map(Run::pid).collect())),
    }
}

/// Asks, and waits for the answer.
pub fn ask(run: Run, request: &Request) -> Result<Standing, ControlError> {
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    if line.len() > LONGEST_REQUEST {
        return Err(ControlError::TooLong(line.len()));
    }
    let pid = run.pid();
    let answer = exchange(run.connection, &line)
        .and_then(|answer| Ok(serde_json::from_slice::<Answer>(&answer)?))
        .map_err(|error| ControlError::Silent { pid, reason: error.to_string() })?;
    answer.map_err(ControlError::Refused)
}

fn exchange(mut connection: UnixStream, line: &[u8]) -> io::Result<Vec<u8>> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    connection.write_all(line)?;
    let mut answer = Vec::new();
    connection.take(LONGEST_ANSWER as u64).read_to_end(&mut answer)?;
    match answer.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up")),
        false => Ok(answer),
    }
}

/// Connects without waiting; `None` if nobody accepts there, or another user does: a name can be anybody's.
fn connect(address: Address) -> Option<Run> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let name = SocketAddrUnix::new_abstract_name(address.name().as_bytes()).ok()?;
    rustix::net::connect(&socket, &name).ok()?;
    if !process::is_peer_of_own_user(&socket).ok()? {
        return None;
    }
    let connection = UnixStream::from(socket);
    connection.set_nonblocking(false).ok()?;
    Some(Run { address, connection })
}

/// Names that somebody listens on, from the text of `/proc/net/unix`.
fn listening(table: &str) -> Vec<Address> {
    /// `__SO_ACCEPTCON` in the column of flags.
    const ACCEPTS: &str = "00010000";
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Address::parse(fields.get(7)?).filter(|_| fields[3] == ACCEPTS)
    };
    let mut addresses: Vec<_> = table.lines().filter_map(address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_of_that_name_are_candidates() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 101 /run/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 102 @lfn-emulate-0-77\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 103 @lfn-emulate-0-78\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 104\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 105 @lfn-emulate-1000-9\n\
            damaged @lfn-emulate-1-1\n";
        assert_eq!(listening(table), [Address { uid: 0, pid: 77 }, Address { uid: 1000, pid: 9 }]);
    }
}
