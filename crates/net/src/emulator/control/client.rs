//! Client of the control socket: finds running emulations and sends a request to one of them.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lfn_sys::process;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{ControlAddress, ENV_VARIABLE, MAX_REQUEST, MAX_RESPONSE, Refusal, Request, Response, RunStatus};

/// Time-out of a response. The run may first have to make memory resident.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A running emulation of this user, connected.
#[derive(Debug)]
pub struct RunningEmulation {
    address: ControlAddress,
    connection: UnixStream,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Start an emulation, or run this command in the network namespace where it was started, or on one of its sides.
    #[error("no running `lfn emulate` of this user found")]
    NoneFound,
    /// The process has ended, belongs to another user, or was started in another network namespace.
    #[error("no running `lfn emulate` of this user has process id {0}")]
    NoSuch(u32),
    /// The request must name one of these process ids.
    #[error("several lfn emulate are running: process ids {}", list(.0))]
    Several(Vec<u32>),
    /// The emulator sets this variable.
    #[error("the environment variable {ENV_VARIABLE} does not name an lfn emulate: '{0}'")]
    BadVariable(String),
    /// More settings than any link has.
    #[error("a request of {0} bytes is above the maximum of {MAX_REQUEST} bytes")]
    TooLong(usize),
    /// The process ended or hangs.
    #[error("lfn emulate with process id {pid} does not answer: {reason}")]
    NoAnswer { pid: u32, reason: String },
    /// The emulator refused the request.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl RunningEmulation {
    /// Returns the process id of the emulation, as its user sees it.
    pub fn pid(&self) -> u32 {
        self.address.pid
    }
}

/// Finds an emulation: the one with this process id, else the emulation that this process runs in, else the only one.
pub fn find(pid: Option<u32>) -> Result<RunningEmulation, ControlError> {
    if let (None, Some(name)) = (pid, env::var_os(ENV_VARIABLE)) {
        let name = name.to_string_lossy();
        let address =
            ControlAddress::parse(&name).ok_or_else(|| ControlError::BadVariable(name.clone().into_owned()))?;
        return connect(address).ok_or(ControlError::NoSuch(address.pid));
    }
    let table = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let candidates = parse_listeners(&table).into_iter().filter(|address| pid.is_none_or(|pid| pid == address.pid));
    let mut runs: Vec<RunningEmulation> = candidates.filter_map(connect).collect();
    match (runs.len(), pid) {
        (0, Some(pid)) => Err(ControlError::NoSuch(pid)),
        (0, None) => Err(ControlError::NoneFound),
        (1, _) => runs.pop().ok_or(ControlError::NoneFound),
        _ => Err(ControlError::Several(runs.iter().map(RunningEmulation::pid).collect())),
    }
}

/// Sends a request and waits for the response.
pub fn send_request(run: RunningEmulation, request: &Request) -> Result<RunStatus, ControlError> {
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    if line.len() > MAX_REQUEST {
        return Err(ControlError::TooLong(line.len()));
    }
    let pid = run.pid();
    let response = exchange(run.connection, &line)
        .and_then(|response| Ok(serde_json::from_slice::<Response>(&response)?))
        .map_err(|error| ControlError::NoAnswer { pid, reason: error.to_string() })?;
    response.map_err(ControlError::Refused)
}

fn exchange(mut connection: UnixStream, line: &[u8]) -> io::Result<Vec<u8>> {
    connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    connection.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    connection.write_all(line)?;
    let mut response = Vec::new();
    connection.take(MAX_RESPONSE as u64).read_to_end(&mut response)?;
    match response.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
        false => Ok(response),
    }
}

/// Connects without waiting. Returns `None` if there is no listener, or if it belongs to another user. Any user can
/// listen on any abstract name.
fn connect(address: ControlAddress) -> Option<RunningEmulation> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let name = SocketAddrUnix::new_abstract_name(address.name().as_bytes()).ok()?;
    rustix::net::connect(&socket, &name).ok()?;
    if !process::is_peer_same_user(&socket).ok()? {
        return None;
    }
    let connection = UnixStream::from(socket);
    connection.set_nonblocking(false).ok()?;
    Some(RunningEmulation { address, connection })
}

/// Returns the addresses with a listener, from the text of `/proc/net/unix`.
fn parse_listeners(table: &str) -> Vec<ControlAddress> {
    /// `__SO_ACCEPTCON` in the flags column.
    const LISTENING: &str = "00010000";
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        ControlAddress::parse(fields.get(7)?).filter(|_| fields[3] == LISTENING)
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
    fn only_lfn_listeners_are_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 101 /run/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 102 @lfn-emulate-0-77\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 103 @lfn-emulate-0-78\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 104\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 105 @lfn-emulate-1000-9\n\
            damaged @lfn-emulate-1-1\n";
        assert_eq!(parse_listeners(table), [ControlAddress { uid: 0, pid: 77 }, ControlAddress { uid: 1000, pid: 9 }]);
    }
}
