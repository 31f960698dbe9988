//! Client of the control socket: finds running emulations and sends a request to one of them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{env, fmt, fs};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::{accounts, process};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;

use super::{ControlAddress, ENV_VARIABLE, MAX_REQUEST, MAX_RESPONSE, Refusal, Request, RunStatus};

/// Time-out of a response. The run may first have to make memory resident.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time-out of a response that the caller can do without. Such a request changes nothing.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running emulation, connected.
#[derive(Debug)]
pub struct RunningEmulation {
    address: ControlAddress,
    connection: UnixStream,
    /// The user who started the run, if it is not the caller. Only root reaches the runs of other users.
    other_user: Option<u32>,
}

/// Description of a running emulation, so that the user can select one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    pub pid: u32,
    /// Name or id of the user who started the run, if it is not the caller.
    pub other_user: Option<String>,
    /// Settings of all links. Empty if the run does not answer.
    pub settings: String,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Start an emulation, or run this command in the network namespace where it was started, or on one of its sides.
    #[error("no `lfn emulate` is running")]
    NoneFound,
    /// The process has ended, belongs to another user, or was started in another network namespace.
    #[error("no running `lfn emulate` of this user has process id {0}")]
    NoSuch(u32),
    /// The request must name one of these process ids.
    #[error("several `lfn emulate` are running: {}", list(.0))]
    Several(Vec<RunSummary>),
    /// Root must name the process id of a run that another user started.
    #[error("the only running `lfn emulate` belongs to another user: {0}")]
    OtherUser(RunSummary),
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

    /// Asks the run for its settings.
    fn summary(self) -> RunSummary {
        let pid = self.pid();
        let other_user = self.other_user.map(|uid| {
            accounts::user_name(uid).map_or(uid.to_string(), |name| String::from_utf8_lossy(&name).into_owned())
        });
        let status: Option<RunStatus> = ask(self.connection, &Request::Show, SHORT_TIMEOUT).ok();
        let links = status.iter().flat_map(|status| &status.paths).flat_map(|path| &path.links);
        RunSummary { pid, other_user, settings: links.map(String::as_str).collect::<Vec<_>>().join("; ") }
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.other_user.as_ref().map(|user| format!("user {user}"));
        let settings = Some(&self.settings).filter(|settings| !settings.is_empty()).cloned();
        let details: Vec<String> = user.into_iter().chain(settings).collect();
        write!(f, "process {}", self.pid)?;
        if details.is_empty() { Ok(()) } else { write!(f, " ({})", details.join(", ")) }
    }
}

/// Finds an emulation: the one with this process id, else the emulation that this process runs in, else the only one.
///
/// An emulation of another user is found only by its process id, and only by root.
pub fn find(pid: Option<u32>) -> Result<RunningEmulation, ControlError> {
    if let (None, Some(name)) = (pid, env::var_os(ENV_VARIABLE)) {
        let name = name.to_string_lossy();
        let address =
            ControlAddress::parse(&name).ok_or_else(|| ControlError::BadVariable(name.clone().into_owned()))?;
        return connect(address).ok_or(ControlError::NoSuch(address.pid));
    }
    let candidates = listeners().into_iter().filter(|address| pid.is_none_or(|pid| pid == address.pid));
    let mut runs: Vec<RunningEmulation> = candidates.filter_map(connect).collect();
    match (runs.len(), pid) {
        (0, Some(pid)) => Err(ControlError::NoSuch(pid)),
        (1, _) => match runs.pop() {
            Some(run) if run.other_user.is_some() && pid.is_none() => Err(ControlError::OtherUser(run.summary())),
            run => run.ok_or(ControlError::NoneFound),
        },
        (0, None) => Err(ControlError::NoneFound),
        _ => Err(ControlError::Several(runs.into_iter().map(RunningEmulation::summary).collect())),
    }
}

/// Returns the environment variables of the emulation that is attached to this network namespace, if there is one of
/// this user. For root, also one of the user who owns the network namespace: any other user could pretend to emulate.
pub fn attached_environment() -> Option<BTreeMap<String, String>> {
    let mut runs: Vec<RunningEmulation> = listeners().into_iter().filter_map(connect).collect();
    if runs.iter().any(|run| run.other_user.is_some()) {
        let owner = NetNamespace::current().and_then(|namespace| namespace.owner()?.owner_user_id()).ok();
        runs.retain(|run| run.other_user.is_none() || run.other_user == owner);
    }
    runs.into_iter().find_map(|run| ask(run.connection, &Request::Environment, SHORT_TIMEOUT).ok())
}

/// Returns the addresses with a listener in this network namespace.
fn listeners() -> Vec<ControlAddress> {
    parse_listeners(&fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default())
}

/// Sends a request and waits for the response.
pub fn send_request(run: RunningEmulation, request: &Request) -> Result<RunStatus, ControlError> {
    let pid = run.pid();
    let timeout = if matches!(request, Request::Show) { SHORT_TIMEOUT } else { RESPONSE_TIMEOUT };
    ask(run.connection, request, timeout).map_err(|error| match error {
        AskError::Io(error) => ControlError::NoAnswer { pid, reason: error.to_string() },
        AskError::TooLong(length) => ControlError::TooLong(length),
        AskError::Refused(refusal) => ControlError::Refused(refusal),
    })
}

/// Reason why there is no response, without the process id.
enum AskError {
    Io(io::Error),
    TooLong(usize),
    Refused(Refusal),
}

fn ask<T: DeserializeOwned>(connection: UnixStream, request: &Request, timeout: Duration) -> Result<T, AskError> {
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    if line.len() > MAX_REQUEST {
        return Err(AskError::TooLong(line.len()));
    }
    let response = exchange(connection, &line, timeout)
        .and_then(|response| Ok(serde_json::from_slice::<Result<T, Refusal>>(&response)?))
        .map_err(AskError::Io)?;
    response.map_err(AskError::Refused)
}

fn exchange(mut connection: UnixStream, line: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    connection.write_all(line)?;
    let mut response = Vec::new();
    connection.take(MAX_RESPONSE as u64).read_to_end(&mut response)?;
    if response.is_empty() {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"))
    } else {
        Ok(response)
    }
}

/// Connects without waiting. Returns `None` if there is no listener, or if it belongs to another user and the caller is
/// not root. Any user can listen on any abstract name. The run accepts only its own user, so root connects as this
/// user.
fn connect(address: ControlAddress) -> Option<RunningEmulation> {
    let connection = connect_socket(address)?;
    if process::is_peer_same_user(&connection).ok()? {
        return Some(RunningEmulation { address, connection, other_user: None });
    }
    let uid = process::peer_user_id(&connection).ok()?;
    // Only the run itself knows the name of its user: another user's socket must not carry this name.
    if !rustix::process::geteuid().is_root() || uid != address.uid {
        return None;
    }
    let connection = process::run_as_user(uid, || connect_socket(address)).ok()??;
    let is_owner = process::peer_user_id(&connection).is_ok_and(|owner| owner == uid);
    is_owner.then_some(RunningEmulation { address, connection, other_user: Some(uid) })
}

fn connect_socket(address: ControlAddress) -> Option<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let name = SocketAddrUnix::new_abstract_name(address.name().as_bytes()).ok()?;
    rustix::net::connect(&socket, &name).ok()?;
    let connection = UnixStream::from(socket);
    connection.set_nonblocking(false).ok()?;
    Some(connection)
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

fn list(runs: &[RunSummary]) -> String {
    runs.iter().map(RunSummary::to_string).collect::<Vec<_>>().join(", ")
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
