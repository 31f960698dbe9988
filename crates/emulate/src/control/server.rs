//! Server of the control socket: a thread of the child process that serves several connections at once.
//!
//! The server closes connections of other users, and of users that it cannot distinguish. Connections of the same user
//! ([`peer`](super::peer)) are served concurrently. Silent clients can delay the next client by at most one second,
//! when [`MAX_PEERS`] of them are connected. A response takes no time, unless a change needs more memory or a direction
//! is late. The data path never waits for the server.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lfn_link::settings::{HopSettings, SettingsError};
use lfn_link::{EmulatedPath, LinkConfig};
use lfn_session::clock::now;
use lfn_sys::namespace::NetNamespace;
use lfn_sys::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::peer::Peer;
use super::{ControlAddress, DirectionStatus, EnvironmentResponse, PathStatus, Refusal, Request, Response, RunStatus};
use crate::Setup;
use crate::accuracy::LinkChange;
use crate::data_path::{ControlChannel, Snapshot};
use crate::error::EmulateError;
use crate::network::SideName;

/// Maximum number of connections. Each may hold a long request in memory.
const MAX_PEERS: usize = 16;
/// Maximum number of changes of a path in the accuracy report. A script may make a change every millisecond for a day.
const MAX_CHANGES: usize = 1000;

/// Listener of a run.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(crate) listener: UnixListener,
    /// Side of the link in this network namespace. `None` where the run was started.
    pub(crate) side: Option<SideName>,
}

/// Environment variables of the commands, for processes that do not inherit them.
pub(crate) struct SideEnvironment {
    /// Variables of the near side and of the far side.
    pub(crate) variables: [BTreeMap<String, String>; 2],
    /// Variables that only the near side has and that are known later: the ticket of the far server.
    pub(crate) near_only: Arc<OnceLock<(String, String)>>,
}

/// Control server of one run.
pub(crate) struct ControlServer {
    pid: u32,
    seed: u64,
    /// Changes are reported with the time since then.
    started_at: lfn_base::time::Instant,
    paths: Vec<ControlledPath>,
    environment: SideEnvironment,
}

/// A path with its control channels.
struct ControlledPath {
    path: EmulatedPath,
    channels: [ControlChannel; 2],
    /// Changes so far, in order.
    changes: Vec<LinkChange>,
}

/// Listens in the network namespace of the calling thread.
pub(crate) fn open_socket(address: ControlAddress) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(address.name())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens in another network namespace.
pub(crate) fn open_socket_in(namespace: &NetNamespace, address: ControlAddress) -> io::Result<UnixListener> {
    namespace.run(|| open_socket(address))?
}

impl ControlServer {
    /// Creates the server of a run. `pid` is its process id outside. `channels` are those of each path, forward and
    /// back.
    pub(crate) fn new(
        pid: u32,
        setup: &Setup,
        channels: Vec<[ControlChannel; 2]>,
        environment: SideEnvironment,
    ) -> Self {
        let paths = setup.paths.iter().cloned().zip(channels);
        let controlled = |(path, channels)| ControlledPath { path, channels, changes: Vec::new() };
        let paths = paths.map(controlled).collect();
        ControlServer { pid, seed: setup.seed, started_at: now(), paths, environment }
    }

    /// Serves requests until the other end of `stop` is closed, or until waiting fails. Returns the changes of each
    /// path.
    pub(crate) fn serve(mut self, sockets: &[ControlSocket], stop: BorrowedFd) -> Vec<Vec<LinkChange>> {
        // If serving fails, the path keeps its settings.
        let _ = self.answer_all(sockets, stop);
        self.paths.into_iter().map(|controlled| controlled.changes).collect()
    }

    fn answer_all(&mut self, sockets: &[ControlSocket], stop: BorrowedFd) -> io::Result<()> {
        let mut peers: Vec<Peer> = Vec::new();
        loop {
            let Some(ready) = wait(sockets, &peers, stop)? else { return Ok(()) };
            let (now, mut ready) = (Instant::now(), ready.into_iter());
            peers.retain_mut(|peer| {
                // A failed connection does not affect the others.
                let side = peer.side;
                let goes_on =
                    ready.next() != Some(true) || peer.advance(|line| self.reply(line, side)).unwrap_or(false);
                goes_on && now < peer.deadline
            });
            for socket in sockets {
                if peers.len() < MAX_PEERS {
                    peers.extend(accept(socket).unwrap_or_default());
                }
            }
        }
    }

    /// Returns the response line to a request line that arrived on this side.
    fn reply(&mut self, line: &[u8], side: Option<SideName>) -> Vec<u8> {
        let invalid = |error| Refusal { message: format!("not a request: {error}"), hint: None, is_usage: true };
        let response = match serde_json::from_slice(line).map_err(invalid) {
            Ok(Request::Environment) => serde_json::to_vec(&self.environment.of(side)),
            request => serde_json::to_vec(&request.and_then(|request| self.answer(&request))),
        };
        // Serialisation cannot fail: the response has no map with keys that are not text.
        response.unwrap_or_default()
    }

    fn answer(&mut self, request: &Request) -> Response {
        if let Request::Set { path, link, settings, traces } = request {
            self.set(*path, *link, &parse_change(settings, traces)?)?;
        }
        let paths = self.paths.iter().map(ControlledPath::status).collect::<Result<_, _>>()?;
        Ok(RunStatus { pid: self.pid, paths })
    }

    fn set(&mut self, number: u32, link: Option<u32>, change: &HopSettings) -> Result<(), Refusal> {
        let count = self.paths.len();
        let index =
            index(number).filter(|index| *index < count).ok_or_else(|| unknown_number("path", number, count))?;
        let ControlledPath { path, channels, changes } = &mut self.paths[index];
        let count = path.forward.len();
        let hop = match link {
            None => None,
            Some(number) => {
                let within = |hop: &usize| *hop < count;
                Some(self::index(number).filter(within).ok_or_else(|| unknown_number("link", number, count))?)
            }
        };
        let changed = path.with_change(hop, change).map_err(bad_setting)?;
        let now = now();
        apply(channels, &changed.seeded_hops(index, self.seed), now)?;
        *path = changed;
        let at = (now - self.started_at).as_secs_f64();
        if changes.len() < MAX_CHANGES {
            let base_rtt = path.profile.base_rtt.as_secs_f64();
            changes.push(LinkChange { at, link, settings: change.to_string(), base_rtt });
        }
        Ok(())
    }
}

impl SideEnvironment {
    fn of(&self, side: Option<SideName>) -> EnvironmentResponse {
        let [near, far] = &self.variables;
        match side {
            Some(SideName::Near) => Ok(near.clone().into_iter().chain(self.near_only.get().cloned()).collect()),
            Some(SideName::Far) => Ok(far.clone()),
            None => {
                let message = "this process is on no side of the link".to_owned();
                Err(Refusal { message, hint: None, is_usage: false })
            }
        }
    }
}

impl ControlledPath {
    fn status(&self) -> Result<PathStatus, Refusal> {
        let [near_to_far, far_to_near] = &self.channels;
        Ok(PathStatus {
            path: self.path.profile,
            warnings: self.path.warnings().iter().map(ToString::to_string).collect(),
            links: self.path.settings.iter().map(ToString::to_string).collect(),
            near_to_far: near_to_far.snapshot()?.into(),
            far_to_near: far_to_near.snapshot()?.into(),
        })
    }
}

/// Parses the settings and reads the traces.
fn parse_change(settings: &[String], traces: &BTreeMap<String, String>) -> Result<HopSettings, Refusal> {
    let mut change = HopSettings::default();
    settings.iter().try_for_each(|pair| change.set_pair(pair)).map_err(bad_setting)?;
    let mut read = |name: &str| traces.get(name).cloned().ok_or_else(|| "its text was not sent".to_owned());
    change.read_traces(&mut read).map_err(bad_setting)?;
    Ok(change)
}

/// Sets every hop with changed settings. If one fails, the hops before it are restored. New timetables start now, at
/// the same instant in both directions. Unchanged timetables continue.
fn apply(
    channels: &[ControlChannel; 2],
    target: &[Vec<LinkConfig>; 2],
    now: lfn_base::time::Instant,
) -> Result<(), Refusal> {
    let mut undo: Vec<(&ControlChannel, usize, LinkConfig)> = Vec::new();
    for (channel, target) in channels.iter().zip(target) {
        for (hop, (target, current)) in target.iter().zip(channel.hops()).enumerate() {
            let epoch = if target.has_new_timetables(&current) { now } else { current.epoch };
            let target = LinkConfig { epoch, ..target.clone() };
            if target == current {
                continue;
            }
            if let Err(error) = channel.set(hop, &target) {
                for (channel, hop, before) in undo {
                    channel.set(hop, &before)?;
                }
                return Err(error.into());
            }
            undo.push((channel, hop, current));
        }
    }
    Ok(())
}

/// Waits for a connection, for progress of a connection, or for a time-out. Returns for each connection if it is ready.
/// Returns `None` when the other end of `stop` is closed.
fn wait(sockets: &[ControlSocket], peers: &[Peer], stop: BorrowedFd) -> io::Result<Option<Vec<bool>>> {
    let mut files = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    files.extend(peers.iter().map(Peer::poll_fd));
    if peers.len() < MAX_PEERS {
        let listeners = sockets.iter().map(|socket| socket.listener.as_fd());
        files.extend(listeners.map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN)));
    }
    let first = peers.iter().map(|peer| peer.deadline.saturating_duration_since(Instant::now())).min();
    let timeout = first.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(&mut files, timeout.as_ref()) {
        // After an interruption or a time-out, no event is set.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready: Vec<_> = files.iter().map(|file| !file.revents().is_empty()).collect();
    Ok((!is_ready[0]).then(|| is_ready[1..=peers.len()].to_vec()))
}

/// Accepts a connection if it belongs to the same user. The caller ignores errors, which affect only this connection.
fn accept(socket: &ControlSocket) -> io::Result<Option<Peer>> {
    let (stream, _) = socket.listener.accept()?;
    match process::is_peer_same_user(&stream)? {
        true => Peer::new(stream, socket.side, Instant::now()).map(Some),
        false => Ok(None),
    }
}

/// Converts a number that counts from 1 to an index.
fn index(number: u32) -> Option<usize> {
    usize::try_from(number.checked_sub(1)?).ok()
}

fn unknown_number(what: &str, number: u32, count: usize) -> Refusal {
    let message = match count {
        1 => format!("there is no {what} {number}; the only one is {what} 1"),
        _ => format!("there is no {what} {number}; the numbers are 1 to {count}"),
    };
    Refusal { message, hint: Some("lfn emulate show".to_owned()), is_usage: true }
}

fn bad_setting(error: SettingsError) -> Refusal {
    Refusal { hint: Some(error.hint().to_string()), message: error.to_string(), is_usage: true }
}

impl From<EmulateError> for Refusal {
    fn from(error: EmulateError) -> Self {
        let is_usage = matches!(error, EmulateError::Link(_));
        let hint = matches!(error, EmulateError::Memory { .. }).then(|| "use a lower rate, delay or queue".to_owned());
        Refusal { message: error.to_string(), hint, is_usage }
    }
}

impl From<Snapshot> for DirectionStatus {
    fn from(snapshot: Snapshot) -> Self {
        DirectionStatus { queued: snapshot.stats.queued, report: snapshot.report() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_link::Outages;

    use super::*;
    use crate::data_path::fake_forwarder;

    #[test]
    fn only_the_near_side_learns_the_ticket() {
        let variables = ["near", "far"].map(|side| BTreeMap::from([("LFN_SIDE".to_owned(), side.to_owned())]));
        let environment = SideEnvironment { variables, near_only: Arc::default() };
        assert_eq!(environment.of(Some(SideName::Near)).unwrap().len(), 1);
        environment.near_only.set(("LFN_FAR_TICKET".to_owned(), "secret".to_owned())).unwrap();
        assert_eq!(environment.of(Some(SideName::Near)).unwrap()["LFN_FAR_TICKET"], "secret");
        assert_eq!(environment.of(Some(SideName::Far)).unwrap()["LFN_SIDE"], "far");
        assert_eq!(environment.of(Some(SideName::Far)).unwrap().len(), 1);
        assert!(environment.of(None).is_err());
    }

    #[test]
    fn new_timetables_start_at_the_same_instant() {
        let hops = [LinkConfig::default()];
        let channels = [(); 2].map(|()| fake_forwarder::direction(&hops).0);
        let outage = Outages::Periodic { period: Duration::from_secs(2), down: Duration::from_secs(1) };
        let target = vec![LinkConfig { outage, ..LinkConfig::default() }];
        let at = lfn_base::time::Instant::from_nanos(7);
        apply(&channels, &[target.clone(), target.clone()], at).unwrap();
        assert_eq!(channels.each_ref().map(|channel| channel.hops()[0].epoch), [at; 2]);
        // Unchanged timetables continue.
        let slower = vec![LinkConfig { rate: lfn_base::units::BitRate(1000).into(), ..target[0].clone() }];
        apply(&channels, &[slower.clone(), slower], lfn_base::time::Instant::from_nanos(8)).unwrap();
        assert_eq!(channels.map(|channel| channel.hops()[0].epoch), [at; 2]);
    }
}
