//! The answering side: a thread of the inside that hears several at once and answers one after the other.
//!
//! It believes nobody: another user, or one who cannot be told from others, is hung up on, and this user's own
//! connections ([`peer`](super::peer)) are heard side by side. So those who say nothing are in nobody's way, but for the
//! second that [`MOST_PEERS`] of them can keep the next from being heard. Answering takes no time but where a change
//! needs more memory, or a direction does not come to it. The data path never waits for any of it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Instant;

use lfn_core::link::settings::{HopSettings, SettingsError};
use lfn_core::link::{EmulatedPath, LinkConfig};
use lfn_sys::namespace::NetNamespace;
use lfn_sys::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::peer::Peer;
use super::{Address, Answer, DirectionStanding, PathStanding, Refusal, Request, Standing};
use crate::emulator::data_path::{Mailbox, Snapshot};
use crate::emulator::ledger::Change;
use crate::emulator::{EmulateError, Setup, now};

/// Peers that are heard at once: each may have a long question in memory.
const MOST_PEERS: usize = 16;
/// Changes of a path that are remembered for the ledger: somebody may make one every millisecond for a day.
const MOST_CHANGES: usize = 1000;

/// Where a run can be reached: outside, near and far. A door that could not be opened is missing.
pub(in crate::emulator) type Doors = [Option<UnixListener>; 3];

/// What answers.
pub(in crate::emulator) struct Control {
    pid: u32,
    seed: u64,
    /// Changes are told by the time since then.
    began: lfn_core::time::Instant,
    paths: Vec<Steered>,
}

/// A path and how to steer it.
struct Steered {
    path: EmulatedPath,
    mailboxes: [Mailbox; 2],
    /// What was changed, in order.
    changes: Vec<Change>,
}

/// Listens in the network namespace of the calling thread.
pub(in crate::emulator) fn open_door(address: Address) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(address.name())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens in another network namespace.
pub(in crate::emulator) fn open_door_in(namespace: &NetNamespace, address: Address) -> io::Result<UnixListener> {
    namespace.run(|| open_door(address))?
}

impl Control {
    /// Of a run that `pid` is known by outside. The mailboxes are those of each path, forward and back.
    pub(in crate::emulator) fn new(pid: u32, setup: &Setup, mailboxes: Vec<[Mailbox; 2]>) -> Self {
        let paths = setup.paths.iter().cloned().zip(mailboxes);
        let steered = |(path, mailboxes)| Steered { path, mailboxes, changes: Vec::new() };
        Control { pid, seed: setup.seed, began: now(), paths: paths.map(steered).collect() }
    }

    /// Answers until the other end of `stop` is closed, or there is nothing to wait with; gives what was changed on each
    /// path.
    pub(in crate::emulator) fn serve(mut self, doors: &Doors, stop: BorrowedFd) -> Vec<Vec<Change>> {
        // Without it the path is what it is.
        let _ = self.answer_all(doors, stop);
        self.paths.into_iter().map(|steered| steered.changes).collect()
    }

    fn answer_all(&mut self, doors: &Doors, stop: BorrowedFd) -> io::Result<()> {
        let mut peers: Vec<Peer> = Vec::new();
        loop {
            let Some(ready) = wait(doors, &peers, stop)? else { return Ok(()) };
            let (now, mut ready) = (Instant::now(), ready.into_iter());
            peers.retain_mut(|peer| {
                // Whoever fails concerns nobody else.
                let goes_on = ready.next() != Some(true) || peer.advance(|line| self.reply(line)).unwrap_or(false);
                goes_on && now < peer.deadline
            });
            for door in doors.iter().flatten() {
                if peers.len() < MOST_PEERS {
                    peers.extend(accept(door).unwrap_or_default());
                }
            }
        }
    }

    /// What to say to a line.
    fn reply(&mut self, line: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice(line) {
            Ok(request) => self.answer(&request),
            Err(error) => Err(Refusal { message: format!("not a request: {error}"), hint: None, is_usage: true }),
        };
        // It has no maps with keys that are no text, nor anything else that could not be written.
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Show => {}
            Request::Set { path, link, settings, traces } => self.set(*path, *link, &change(settings, traces)?)?,
        }
        let paths = self.paths.iter().map(Steered::standing).collect::<Result<_, _>>()?;
        Ok(Standing { pid: self.pid, paths })
    }

    fn set(&mut self, number: u32, link: Option<u32>, change: &HopSettings) -> Result<(), Refusal> {
        let count = self.paths.len();
        let index = index(number).filter(|index| *index < count).ok_or_else(|| none_such("path", number, count))?;
        let Steered { path, mailboxes, changes } = &mut self.paths[index];
        let count = path.forward.len();
        let hop = match link {
            None => None,
            Some(number) => {
                let within = |hop: &usize| *hop < count;
                Some(self::index(number).filter(within).ok_or_else(|| none_such("link", number, count))?)
            }
        };
        let changed = path.changed(hop, change).map_err(no_setting)?;
        let now = now();
        apply(mailboxes, &changed.numbered(index, self.seed), now)?;
        *path = changed;
        let at = (now - self.began).as_secs_f64();
        if changes.len() < MOST_CHANGES {
            let base_rtt = path.profile.base_rtt.as_secs_f64();
            changes.push(Change { at, link, settings: change.to_string(), base_rtt });
        }
        Ok(())
    }
}

impl Steered {
    fn standing(&self) -> Result<PathStanding, Refusal> {
        let [near_to_far, far_to_near] = &self.mailboxes;
        Ok(PathStanding {
            path: self.path.profile,
            doubts: self.path.doubts().iter().map(ToString::to_string).collect(),
            links: self.path.settings.iter().map(ToString::to_string).collect(),
            near_to_far: near_to_far.snapshot()?.into(),
            far_to_near: far_to_near.snapshot()?.into(),
        })
    }
}

/// What was asked for, traces read.
fn change(settings: &[String], traces: &BTreeMap<String, String>) -> Result<HopSettings, Refusal> {
    let mut change = HopSettings::default();
    settings.iter().try_for_each(|pair| change.set_pair(pair)).map_err(no_setting)?;
    let mut read = |name: &str| traces.get(name).cloned().ok_or_else(|| "its text was not sent".to_owned());
    change.read_traces(&mut read).map_err(no_setting)?;
    Ok(change)
}

/// Sets every hop that is to differ from what it is. If one cannot be, those before it are put back as they were. New
/// timetables begin now, the same instant in both directions; others go on.
fn apply(mailboxes: &[Mailbox; 2], wanted: &[Vec<LinkConfig>; 2], now: lfn_core::time::Instant) -> Result<(), Refusal> {
    let mut undo: Vec<(&Mailbox, usize, LinkConfig)> = Vec::new();
    for (mailbox, wanted) in mailboxes.iter().zip(wanted) {
        for (hop, (wanted, is)) in wanted.iter().zip(mailbox.hops()).enumerate() {
            let epoch = if wanted.has_new_timetables(&is) { now } else { is.epoch };
            let wanted = LinkConfig { epoch, ..wanted.clone() };
            if wanted == is {
                continue;
            }
            if let Err(error) = mailbox.set(hop, &wanted) {
                for (mailbox, hop, before) in undo {
                    mailbox.set(hop, &before)?;
                }
                return Err(error.into());
            }
            undo.push((mailbox, hop, is));
        }
    }
    Ok(())
}

/// Waits until somebody comes, goes on or has taken too long; which of the peers can go on. `None` when the other end of
/// `stop` is closed.
fn wait(doors: &Doors, peers: &[Peer], stop: BorrowedFd) -> io::Result<Option<Vec<bool>>> {
    let mut files = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    files.extend(peers.iter().map(Peer::waits_for));
    if peers.len() < MOST_PEERS {
        files.extend(doors.iter().flatten().map(|door| PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN)));
    }
    let first = peers.iter().map(|peer| peer.deadline.saturating_duration_since(Instant::now())).min();
    let timeout = first.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(&mut files, timeout.as_ref()) {
        // After an interruption, or a time out, nothing has been noted of any.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready: Vec<_> = files.iter().map(|file| !file.revents().is_empty()).collect();
    Ok((!is_ready[0]).then(|| is_ready[1..=peers.len()].to_vec()))
}

/// Who has come to a door, if it is this user. Nobody, or a failure that concerns that peer alone, is no matter.
fn accept(door: &UnixListener) -> io::Result<Option<Peer>> {
    let (stream, _) = door.accept()?;
    match process::is_peer_of_own_user(&stream)? {
        true => Peer::new(stream, Instant::now()).map(Some),
        false => Ok(None),
    }
}

/// People count from 1.
fn index(number: u32) -> Option<usize> {
    usize::try_from(number.checked_sub(1)?).ok()
}

fn none_such(what: &str, number: u32, count: usize) -> Refusal {
    let message = match count {
        1 => format!("there is no {what} {number}, only {what} 1"),
        _ => format!("there is no {what} {number}: they are numbered 1 to {count}"),
    };
    Refusal { message, hint: Some("lfn emulate show".to_owned()), is_usage: true }
}

fn no_setting(error: SettingsError) -> Refusal {
    Refusal { hint: Some(error.hint().to_string()), message: error.to_string(), is_usage: true }
}

impl From<EmulateError> for Refusal {
    fn from(error: EmulateError) -> Self {
        let is_usage = matches!(error, EmulateError::Link(_));
        let hint = matches!(error, EmulateError::Memory { .. }).then(|| "a lower rate, delay or queue".to_owned());
        Refusal { message: error.to_string(), hint, is_usage }
    }
}

impl From<Snapshot> for DirectionStanding {
    fn from(snapshot: Snapshot) -> Self {
        DirectionStanding { queued: snapshot.stats.queued, so_far: snapshot.ledger() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::data_path::obedient;
    use lfn_core::link::Outages;
    use std::time::Duration;

    #[test]
    fn a_new_timetable_begins_at_one_instant_in_both_directions() {
        let hops = [LinkConfig::default()];
        let mailboxes = [(); 2].map(|()| obedient::direction(&hops).0);
        let outage = Outages::Every { period: Duration::from_secs(2), down: Duration::from_secs(1) };
        let wanted = vec![LinkConfig { outage, ..LinkConfig::default() }];
        let at = lfn_core::time::Instant::from_nanos(7);
        apply(&mailboxes, &[wanted.clone(), wanted.clone()], at).unwrap();
        assert_eq!(mailboxes.each_ref().map(|mailbox| mailbox.hops()[0].epoch), [at; 2]);
        // What goes on, goes on from where it was.
        let slower = vec![LinkConfig { rate: lfn_core::units::BitRate(1000).into(), ..wanted[0].clone() }];
        apply(&mailboxes, &[slower.clone(), slower], lfn_core::time::Instant::from_nanos(8)).unwrap();
        assert_eq!(mailboxes.map(|mailbox| mailbox.hops()[0].epoch), [at; 2]);
    }
}
