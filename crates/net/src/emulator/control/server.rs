//! The answering side: a thread of the inside that takes one question at a time.
//!
//! It believes nobody: another user is hung up on, a question must be one line of bounded length and come within a
//! second, and an answer that is not taken within a second is dropped. So the worst that a peer can do is to make the
//! next one wait that long. The data path never waits for any of it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use lfn_core::link::settings::{HopSettings, SettingsError};
use lfn_core::link::{EmulatedPath, LinkConfig};
use lfn_sys::namespace::NetNamespace;
use lfn_sys::{clock, process};

use super::{Address, Answer, DirectionStanding, LONGEST_REQUEST, PathStanding, Refusal, Request, Standing};
use crate::emulator::data_path::{Mailbox, Snapshot};
use crate::emulator::ledger::Change;
use crate::emulator::{EmulateError, Setup, now};

/// Bytes of a question that are read at a time.
const PART: usize = 64 << 10;
/// Changes of a path that are remembered for the ledger: somebody may make one every millisecond for a day.
const MOST_CHANGES: usize = 1000;
/// How long a question may take to come, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(1);

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
        loop {
            // A door that is missing is replaced by one that opens only at the end.
            let at = |index: usize| doors[index].as_ref().map_or(stop, AsFd::as_fd);
            let [.., stopped] = clock::wait_readable([at(0), at(1), at(2), stop], None)?;
            if stopped {
                return Ok(());
            }
            for door in doors.iter().flatten() {
                // Nobody there any more, or a failure that concerns that peer alone.
                let Ok((peer, _)) = door.accept() else { continue };
                let _ = self.attend(&peer, stop);
            }
        }
    }

    fn attend(&mut self, mut peer: &UnixStream, stop: BorrowedFd) -> io::Result<()> {
        if !process::is_peer_of_own_user(peer)? {
            return Ok(());
        }
        let Some(line) = read_line(peer, stop)? else { return Ok(()) };
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => self.answer(&request),
            Err(error) => Err(Refusal { message: format!("not a request: {error}"), hint: None, is_usage: true }),
        };
        peer.set_nonblocking(false)?;
        peer.set_write_timeout(Some(PATIENCE))?;
        peer.write_all(&serde_json::to_vec(&answer)?)
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
        apply(mailboxes, &changed.numbered(index, self.seed))?;
        *path = changed;
        let at = (now() - self.began).as_secs_f64();
        if changes.len() < MOST_CHANGES {
            changes.push(Change { at, link, settings: change.to_string() });
        }
        Ok(())
    }
}

impl Steered {
    fn standing(&self) -> Result<PathStanding, Refusal> {
        let [near_to_far, far_to_near] = &self.mailboxes;
        Ok(PathStanding {
            path: self.path.profile,
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

/// Sets every hop that is to differ from what it is. If one cannot be, those before it are put back as they were. A new
/// timetable begins now, others go on.
fn apply(mailboxes: &[Mailbox; 2], wanted: &[Vec<LinkConfig>; 2]) -> Result<(), Refusal> {
    let mut undo: Vec<(&Mailbox, usize, LinkConfig)> = Vec::new();
    for (mailbox, wanted) in mailboxes.iter().zip(wanted) {
        for (hop, (wanted, is)) in wanted.iter().zip(mailbox.hops()).enumerate() {
            let epoch = if wanted.has_new_timetables(&is) { now() } else { is.epoch };
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

/// One line, without its end; `None` if the peer sends none in time, or the run ends.
fn read_line(mut peer: &UnixStream, stop: BorrowedFd) -> io::Result<Option<Vec<u8>>> {
    peer.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut part = vec![0; PART];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let [_, stopped] = clock::wait_readable([peer.as_fd(), stop], Some(left))?;
        if stopped || left.is_zero() {
            return Ok(None);
        }
        let length = match peer.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let end = part[..length].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(length)]);
        match end {
            Some(_) => return Ok(Some(line)),
            None if line.len() >= LONGEST_REQUEST => return Ok(None),
            None => {}
        }
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
