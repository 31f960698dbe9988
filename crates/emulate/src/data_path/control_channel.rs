//! Control channel of a running direction: other threads change its settings or request a snapshot.
//!
//! Commands are sent through an mpsc channel, and an eventfd wakes the forwarder. The forwarder polls the eventfd
//! together with its sockets and reads the channel only after a wake-up, so an unused channel costs nothing. The
//! requester allocates a larger ring and makes it resident. The forwarder's thread changes the link itself. A command
//! that the forwarder has not claimed before the time-out is withdrawn, so that it is not executed after its failure
//! was reported.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_link::{Link, LinkConfig, LinkStats};
use lfn_sys::memory::Arena;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::memory::usable_memory;
use super::ring::{arena, ring_size};
use super::tally::LinkTally;
use crate::accuracy::DirectionReport;
use crate::error::{EmulateError, system_error};

/// Time-out of a response. A busy forwarder checks for commands every 2 ms, an idle one wakes up at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sending half of the control channel of one direction. May be cloned and sent to other threads.
#[derive(Clone)]
pub(crate) struct ControlChannel {
    commands: Sender<QueuedCommand>,
    wakeup: Arc<OwnedFd>,
    timeout: Duration,
    /// Current settings. The lock is held during a change, so that changes are made one after the other.
    settings: Arc<Mutex<ChannelSettings>>,
}

/// Receiving half of the control channel, owned by the forwarder.
pub(super) struct Commands {
    commands: Receiver<QueuedCommand>,
    wakeup: Arc<OwnedFd>,
}

/// A command in the channel.
struct QueuedCommand {
    command: Command,
    /// Set by the forwarder when it executes the command, or by the requester when it withdraws the command.
    is_claimed: Arc<AtomicBool>,
}

/// Command to a forwarder.
pub(super) enum Command {
    /// Change hop number `hop`, counted from 0, to `config`. New packets are stored in `arena`, if there is one.
    Set {
        hop: usize,
        config: Box<LinkConfig>,
        arena: Option<Arena>,
        /// Signals that the change was made.
        done: Sender<()>,
    },
    /// Report the current state.
    Snapshot(Sender<Snapshot>),
}

/// State of a direction at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Counters of the link, and the bytes in its queues now.
    pub(crate) stats: LinkStats,
    pub(crate) tally: LinkTally,
    /// Processor time of the forwarder's thread.
    pub(crate) cpu: Duration,
}

struct ChannelSettings {
    hops: Vec<LinkConfig>,
    /// Size of the current ring, bytes.
    ring_size: u64,
}

/// Creates a control channel for a direction with these hops.
pub(super) fn channel(hops: &[LinkConfig]) -> io::Result<(ControlChannel, Commands)> {
    let (sender, receiver) = mpsc::channel();
    let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let settings = Arc::new(Mutex::new(ChannelSettings { hops: hops.to_vec(), ring_size: ring_size(hops) }));
    let channel = ControlChannel { commands: sender, wakeup: wakeup.clone(), timeout: RESPONSE_TIMEOUT, settings };
    Ok((channel, Commands { commands: receiver, wakeup }))
}

impl ControlChannel {
    /// Returns the current settings of the hops.
    pub(crate) fn hops(&self) -> Vec<LinkConfig> {
        self.settings.lock().hops.clone()
    }

    /// Changes hop number `hop`, counted from 0, to `config`, and waits until the change is made. Packets in flight
    /// stay in flight. If the settings cannot be emulated or do not fit into memory, returns an error and changes
    /// nothing.
    pub(crate) fn set(&self, hop: usize, config: &LinkConfig) -> Result<(), EmulateError> {
        let mut settings = self.settings.lock();
        let mut hops = settings.hops.clone();
        let count = hops.len();
        *hops.get_mut(hop).ok_or_else(|| EmulateError::Link(format!("no hop {hop} among {count}")))? = config.clone();
        Link::chain(&hops).map_err(|error| EmulateError::Link(error.to_string()))?;
        let needed = ring_size(&hops);
        let arena = (needed > settings.ring_size).then(|| allocate_ring(needed, config)).transpose()?;
        let (done, response) = mpsc::channel();
        self.send_command(Command::Set { hop, config: Box::new(config.clone()), arena, done }, &response)?;
        *settings = ChannelSettings { hops, ring_size: settings.ring_size.max(needed) };
        Ok(())
    }

    /// Starts all timetables at `epoch`.
    pub(crate) fn begin(&self, epoch: Instant) -> Result<(), EmulateError> {
        let timeless = LinkConfig::default();
        let timed = self.hops().into_iter().enumerate().filter(|(_, config)| config.has_new_timetables(&timeless));
        timed.into_iter().try_for_each(|(hop, config)| self.set(hop, &LinkConfig { epoch, ..config }))
    }

    /// Returns the current state of the direction.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, EmulateError> {
        let (sender, response) = mpsc::channel();
        self.send_command(Command::Snapshot(sender), &response)
    }

    /// Sends a command and waits for its response. A command without a response is not executed.
    fn send_command<T>(&self, command: Command, response: &Receiver<T>) -> Result<T, EmulateError> {
        let is_claimed = Arc::new(AtomicBool::new(false));
        let queued = QueuedCommand { command, is_claimed: is_claimed.clone() };
        self.commands.send(queued).map_err(|_| EmulateError::DirectionEnded)?;
        write(&*self.wakeup, &1_u64.to_ne_bytes()).map_err(system_error("wake a direction of the link"))?;
        match response.recv_timeout(self.timeout) {
            Ok(response) => Ok(response),
            Err(RecvTimeoutError::Timeout) if !is_claimed.swap(true, Ordering::AcqRel) => Err(EmulateError::NoAnswer),
            // The command is being executed.
            Err(RecvTimeoutError::Timeout) => response.recv().map_err(|_| EmulateError::DirectionEnded),
            Err(RecvTimeoutError::Disconnected) => Err(EmulateError::DirectionEnded),
        }
    }
}

impl Commands {
    /// Returns the commands that arrived since the last call and were not withdrawn.
    pub(super) fn take_all(&self) -> Vec<Command> {
        // Resets the eventfd. An error means that it was not set.
        let _ = read(&*self.wakeup, &mut [0_u8; 8]);
        self.commands.try_iter().filter_map(QueuedCommand::claim).collect()
    }
}

impl QueuedCommand {
    /// Returns the command, unless the requester has withdrawn it. The caller must execute the command.
    fn claim(self) -> Option<Command> {
        (!self.is_claimed.swap(true, Ordering::AcqRel)).then_some(self.command)
    }
}

impl AsFd for Commands {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

impl Snapshot {
    /// Returns the report so far, without the counters that the kernel provides only at the end.
    pub(crate) fn report(&self) -> DirectionReport {
        self.tally.report(&self.stats)
    }
}

/// Allocates `needed` bytes while the old ring still exists.
fn allocate_ring(needed: u64, config: &LinkConfig) -> Result<Arena, EmulateError> {
    let usable = usable_memory()?;
    if needed > usable {
        return Err(EmulateError::Memory {
            rate: config.max_rate(),
            rtt: config.max_delay() * 2,
            needed: Bytes(needed),
            usable: Bytes(usable),
        });
    }
    let size = usize::try_from(needed).map_err(|e| system_error("size a ring")(io::Error::other(e)))?;
    arena(size).map_err(system_error("allocate a ring for the packets in flight"))
}

/// A forwarder that only handles commands. Returns the commands when all senders are gone.
#[cfg(test)]
pub(crate) mod fake_forwarder {
    use super::*;
    use std::thread::{self, JoinHandle};

    /// For each command: the hop, its settings, and the size of the new ring.
    pub(crate) type AppliedCommands = Vec<(usize, LinkConfig, Option<usize>)>;

    pub(crate) fn direction(hops: &[LinkConfig]) -> (ControlChannel, JoinHandle<AppliedCommands>) {
        let (channel, commands) = channel(hops).unwrap();
        (channel, serve(commands))
    }

    pub(super) fn serve(commands: Commands) -> JoinHandle<AppliedCommands> {
        thread::spawn(move || {
            let mut applied = Vec::new();
            while let Ok(queued) = commands.commands.recv() {
                match queued.claim() {
                    None => {}
                    Some(Command::Set { hop, config, arena, done }) => {
                        applied.push((hop, *config, arena.map(|arena| arena.as_slice().len())));
                        done.send(()).unwrap();
                    }
                    Some(Command::Snapshot(reply)) => {
                        let stats = LinkStats { queued: Bytes(7), ..LinkStats::default() };
                        reply.send(Snapshot { stats, tally: LinkTally::new().unwrap(), cpu: Duration::ZERO }).unwrap();
                    }
                }
            }
            applied
        })
    }
}

#[cfg(test)]
mod tests {
    use fake_forwarder::{direction, serve};
    use lfn_base::units::BitRate;

    use super::*;

    #[test]
    fn withdrawn_command_is_not_executed() {
        let hops = [LinkConfig::default()];
        let (mut channel, commands) = channel(&hops).unwrap();
        channel.timeout = Duration::from_millis(10);
        let longer = |millis| LinkConfig { delay: Duration::from_millis(millis).into(), ..LinkConfig::default() };
        assert_eq!(channel.set(0, &longer(1)), Err(EmulateError::NoAnswer));
        assert_eq!(channel.hops(), hops);
        channel.timeout = RESPONSE_TIMEOUT;
        let forwarder = serve(commands);
        channel.set(0, &longer(2)).unwrap();
        drop(channel);
        let applied: Vec<_> = forwarder.join().unwrap().into_iter().map(|(_, config, _)| config).collect();
        assert_eq!(applied, [longer(2)]);
    }

    #[test]
    fn commands_keep_their_order_and_bring_a_larger_ring() {
        let hops = [LinkConfig::default(), LinkConfig::default()];
        let (channel, forwarder) = direction(&hops);
        let slower = LinkConfig { rate: BitRate(1_000_000).into(), ..LinkConfig::default() };
        let longer = LinkConfig { delay: Duration::from_millis(100).into(), ..LinkConfig::default() };
        channel.set(1, &slower).unwrap();
        channel.clone().set(0, &longer).unwrap();
        channel.set(0, &longer).unwrap();
        assert_eq!(channel.snapshot().unwrap().stats.queued, Bytes(7));
        assert_eq!(channel.hops(), [longer.clone(), slower.clone()]);
        drop(channel);
        let arena = usize::try_from(ring_size(&[longer.clone(), slower.clone()])).unwrap();
        assert_eq!(forwarder.join().unwrap(), [(1, slower, None), (0, longer.clone(), Some(arena)), (0, longer, None)]);
    }

    #[test]
    fn impossible_settings_change_nothing() {
        let hops = [LinkConfig::default()];
        let (channel, forwarder) = direction(&hops);
        let still = LinkConfig { rate: BitRate(0).into(), ..LinkConfig::default() };
        let endless = LinkConfig {
            rate: BitRate(1_000_000_000_000).into(),
            delay: Duration::from_secs(1000).into(),
            ..LinkConfig::default()
        };
        assert!(matches!(channel.set(0, &still), Err(EmulateError::Link(_))));
        assert!(matches!(channel.set(0, &endless), Err(EmulateError::Memory { .. })));
        assert!(matches!(channel.set(1, &hops[0]), Err(EmulateError::Link(_))));
        assert_eq!(channel.hops(), hops);
        drop(channel);
        assert_eq!(forwarder.join().unwrap(), []);
    }

    #[test]
    fn ended_direction_returns_an_error() {
        let (channel, commands) = channel(&[LinkConfig::default()]).unwrap();
        drop(commands);
        assert!(matches!(channel.snapshot(), Err(EmulateError::DirectionEnded)));
    }
}
