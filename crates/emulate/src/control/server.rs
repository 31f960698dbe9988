//! Server of the control socket: an accept loop in the child process, and a thread for each connection.
//!
//! The server closes connections of other users, and of users that it cannot distinguish. Connections of the same user
//! ([`peer`]) are served concurrently. Silent clients can delay the next client by at most one second,
//! when [`MAX_PEERS`] of them are connected. A response takes no time, unless a change needs more memory or a direction
//! is late. The data path never waits for the server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lfn_link::settings::{HopSettings, SettingsError};
use lfn_link::{EmulatedPath, LinkConfig};
use lfn_session::clock::now;
use lfn_session::limits::connection_table::{ConnectionLimits, ConnectionTable};
use lfn_session::server::accept::{
    AcceptLoop, AcceptSettings, AcceptedConnection, ConnectionServer, RefusedConnection, StopSignal, WhenFull,
};
use lfn_sys::process;
use parking_lot::Mutex;

use super::listener::{ControlConnection, ControlSocket};
use super::peer::{self, PEER_TIMEOUT};
use super::{DirectionStatus, EnvironmentResponse, PathStatus, Refusal, Request, Response, RunStatus};
use crate::Setup;
use crate::accuracy::LinkChange;
use crate::data_path::{ControlChannel, Snapshot};
use crate::error::EmulateError;
use crate::network::SideName;

/// Maximum number of connections. Each may hold a long request in memory.
const MAX_PEERS: usize = 16;
/// Stack of a connection's thread, bytes.
const STACK_SIZE: usize = 512 << 10;
/// Interval of the accept loop. The loop notices connections and the stop at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of changes of a path in the accuracy report. A script may make a change every millisecond for a day.
const MAX_CHANGES: usize = 1000;

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
    /// `None` after the stop: then requests get no response. After a panic, the path keeps its settings.
    paths: Mutex<Option<Vec<ControlledPath>>>,
    environment: SideEnvironment,
}

/// A path with its control channels.
struct ControlledPath {
    path: EmulatedPath,
    channels: [ControlChannel; 2],
    /// Changes so far, in order.
    changes: Vec<LinkChange>,
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
        let paths = Mutex::new(Some(paths.map(controlled).collect()));
        ControlServer { pid, seed: setup.seed, started_at: now(), paths, environment }
    }

    /// Serves requests until the other end of `stop` is closed. Returns the changes of each path.
    pub(crate) fn run(self, sockets: &[ControlSocket], stop: BorrowedFd) -> Vec<Vec<LinkChange>> {
        let limits =
            ConnectionLimits { max_connections: MAX_PEERS, max_unauthenticated: MAX_PEERS, ..Default::default() };
        let server = Arc::new(self);
        let accept_loop = AcceptLoop {
            server: server.clone(),
            connections: ConnectionTable::new(limits),
            settings: AcceptSettings {
                thread_name: "control",
                stack_size: STACK_SIZE,
                poll_interval: POLL_INTERVAL,
                when_full: WhenFull::Wait,
            },
        };
        accept_loop.run(sockets, StopSignal::Closed(stop));
        // A request that is being answered is finished first.
        let paths = server.paths.lock().take().unwrap_or_default();
        paths.into_iter().map(|controlled| controlled.changes).collect()
    }

    /// Returns the response line to a request line that arrived on this side; `None` after the stop.
    fn reply(&self, line: &[u8], side: Option<SideName>) -> Option<Vec<u8>> {
        let invalid = |error| Refusal { message: format!("not a request: {error}"), hint: None, is_usage: true };
        let response = match serde_json::from_slice(line).map_err(invalid) {
            Ok(Request::Environment) => serde_json::to_vec(&self.environment.of(side)),
            Ok(request) => serde_json::to_vec(&self.answer(self.paths.lock().as_mut()?, &request)),
            Err(refusal) => serde_json::to_vec(&Response::Err(refusal)),
        };
        // Serialisation cannot fail: the response has no map with keys that are not text.
        Some(response.unwrap_or_default())
    }

    fn answer(&self, paths: &mut [ControlledPath], request: &Request) -> Response {
        if let Request::Set { path, link, settings, traces } = request {
            self.set(paths, *path, *link, &parse_change(settings, traces)?)?;
        }
        let paths = paths.iter().map(ControlledPath::status).collect::<Result<_, _>>()?;
        Ok(RunStatus { pid: self.pid, paths })
    }

    fn set(
        &self,
        paths: &mut [ControlledPath],
        number: u32,
        link: Option<u32>,
        change: &HopSettings,
    ) -> Result<(), Refusal> {
        let count = paths.len();
        let index =
            index(number).filter(|index| *index < count).ok_or_else(|| unknown_number("path", number, count))?;
        let ControlledPath { path, channels, changes } = &mut paths[index];
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

impl ConnectionServer for ControlServer {
    type Listener = ControlSocket;

    fn serve(self: Arc<Self>, accepted: AcceptedConnection<ControlConnection>) -> Result<(), RefusedConnection> {
        let ControlConnection { stream, side, .. } = accepted.connection;
        // A failed connection does not affect the others.
        let _ = peer::serve(&stream, PEER_TIMEOUT, |line| self.reply(line, side));
        Ok(())
    }

    fn permits(&self, connection: &ControlConnection, _peer: SocketAddr) -> bool {
        process::is_peer_same_user(&connection.stream).unwrap_or(false)
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
