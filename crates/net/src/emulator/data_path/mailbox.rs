//! Telling a running direction something from another thread: other settings, or to say how it stands.
//!
//! An order lies in a channel and an eventfd wakes the forwarder, which waits on that beside its socket and reads the
//! channel only when woken: a direction nobody writes to pays nothing. A larger ring is made, and made resident, on the
//! side of the one who asks; the link itself is set by its own thread. An order that nobody came to is taken back, so
//! that it is not obeyed when whoever gave it has long been told that it was not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lfn_core::link::{Link, LinkConfig, LinkStats};
use lfn_core::time::Instant;
use lfn_core::units::Bytes;
use lfn_sys::memory::Arena;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::ring::{arena, ring_size};
use super::tally::Tally;
use crate::emulator::ledger::DirectionLedger;
use crate::emulator::setup::usable_memory;
use crate::emulator::{EmulateError, system};

/// How long a forwarder may take to answer. With traffic it looks at its mail every 2 ms, without when the bell rings.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where to leave word for one direction. May be cloned and sent to other threads.
#[derive(Clone)]
pub(in crate::emulator) struct Mailbox {
    orders: Sender<Letter>,
    bell: Arc<OwnedFd>,
    patience: Duration,
    /// What the direction is set to. Held while settings change, so that changes come one after the other.
    settings: Arc<Mutex<Settings>>,
}

/// What the forwarder reads.
pub(super) struct Letters {
    orders: Receiver<Letter>,
    bell: Arc<OwnedFd>,
}

/// An order on its way.
struct Letter {
    order: Order,
    /// True once somebody has it: the forwarder who is going to obey, or whoever gave it and has taken it back.
    is_taken: Arc<AtomicBool>,
}

/// What a forwarder can be told.
pub(super) enum Order {
    /// Hop number `hop`, counted from 0, is as `config` says from now on; new packets go to `room` if there is one.
    Set {
        /// Which hop.
        hop: usize,
        /// Everything it is set to.
        config: Box<LinkConfig>,
        /// More room.
        room: Option<Arena>,
        /// Where to say that it was done.
        done: Sender<()>,
    },
    /// How do you stand?
    Report(Sender<Snapshot>),
}

/// How a direction stands.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Snapshot {
    /// The account of the link, and the bytes in its queues now.
    pub(in crate::emulator) stats: LinkStats,
    /// What the forwarder itself counts.
    pub(in crate::emulator) tally: Tally,
    /// Processor time of its thread.
    pub(in crate::emulator) cpu: Duration,
}

struct Settings {
    hops: Vec<LinkConfig>,
    /// Bytes that the ring in use was made for.
    room: u64,
}

/// A mailbox for a direction of these hops, and the end that its forwarder keeps.
pub(super) fn mailbox(hops: &[LinkConfig]) -> io::Result<(Mailbox, Letters)> {
    let (sender, receiver) = mpsc::channel();
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let settings = Arc::new(Mutex::new(Settings { hops: hops.to_vec(), room: ring_size(hops) }));
    let mailbox = Mailbox { orders: sender, bell: bell.clone(), patience: PATIENCE, settings };
    Ok((mailbox, Letters { orders: receiver, bell }))
}

impl Mailbox {
    /// What the hops are set to now.
    pub(in crate::emulator) fn hops(&self) -> Vec<LinkConfig> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).hops.clone()
    }

    /// Sets hop number `hop`, counted from 0, to `config`; returns when it is so. What is in flight stays in flight. Refuses
    /// what cannot be emulated, or does not fit into memory, and then changes nothing.
    pub(in crate::emulator) fn set(&self, hop: usize, config: &LinkConfig) -> Result<(), EmulateError> {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hops = settings.hops.clone();
        let count = hops.len();
        *hops.get_mut(hop).ok_or_else(|| EmulateError::Link(format!("no hop {hop} among {count}")))? = config.clone();
        Link::chain(&hops).map_err(|error| EmulateError::Link(error.to_string()))?;
        let needed = ring_size(&hops);
        let room = (needed > settings.room).then(|| more_room(needed, config)).transpose()?;
        let (done, answer) = mpsc::channel();
        self.ask(Order::Set { hop, config: Box::new(config.clone()), room, done }, &answer)?;
        *settings = Settings { hops, room: settings.room.max(needed) };
        Ok(())
    }

    /// Has the time of everything that goes by a timetable begin at `epoch`.
    pub(in crate::emulator) fn begin(&self, epoch: Instant) -> Result<(), EmulateError> {
        let timeless = LinkConfig::default();
        let timed = self.hops().into_iter().enumerate().filter(|(_, config)| config.has_new_timetables(&timeless));
        timed.into_iter().try_for_each(|(hop, config)| self.set(hop, &LinkConfig { epoch, ..config }))
    }

    /// How the direction stands now.
    pub(in crate::emulator) fn snapshot(&self) -> Result<Snapshot, EmulateError> {
        let (sender, answer) = mpsc::channel();
        self.ask(Order::Report(sender), &answer)
    }

    /// Gives an order and waits for its answer; without one the order is not obeyed either.
    fn ask<T>(&self, order: Order, answer: &Receiver<T>) -> Result<T, EmulateError> {
        let is_taken = Arc::new(AtomicBool::new(false));
        let letter = Letter { order, is_taken: is_taken.clone() };
        self.orders.send(letter).map_err(|_| EmulateError::Ended)?;
        write(&*self.bell, &1_u64.to_ne_bytes()).map_err(system("wake a direction of the link"))?;
        match answer.recv_timeout(self.patience) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) if !is_taken.swap(true, Ordering::AcqRel) => Err(EmulateError::Unanswered),
            // It is being obeyed.
            Err(RecvTimeoutError::Timeout) => answer.recv().map_err(|_| EmulateError::Ended),
            Err(RecvTimeoutError::Disconnected) => Err(EmulateError::Ended),
        }
    }
}

impl Letters {
    /// What has come since the bell rang, and is still wanted.
    pub(super) fn take(&self) -> Vec<Order> {
        // Silences the bell; that it had not rung is no failure.
        let _ = read(&*self.bell, &mut [0_u8; 8]);
        self.orders.try_iter().filter_map(Letter::open).collect()
    }
}

impl Letter {
    /// The order, unless it was taken back. Who opens it obeys.
    fn open(self) -> Option<Order> {
        (!self.is_taken.swap(true, Ordering::AcqRel)).then_some(self.order)
    }
}

impl AsFd for Letters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Snapshot {
    /// The ledger so far, but for what only the kernel can tell.
    pub(in crate::emulator) fn ledger(&self) -> DirectionLedger {
        self.tally.ledger(&self.stats)
    }
}

/// Memory for `needed` bytes, while the old is still there.
fn more_room(needed: u64, config: &LinkConfig) -> Result<Arena, EmulateError> {
    let usable = usable_memory()?;
    if needed > usable {
        return Err(EmulateError::Memory {
            rate: config.highest_rate(),
            rtt: config.longest_delay() * 2,
            needed: Bytes(needed),
            usable: Bytes(usable),
        });
    }
    let size = usize::try_from(needed).map_err(|e| system("size a ring")(io::Error::other(e)))?;
    arena(size).map_err(system("allocate a ring for the packets in flight"))
}

/// A forwarder that only reads its mail: gives what it was told, until all mailboxes are gone.
#[cfg(test)]
pub(in crate::emulator) mod obedient {
    use super::*;
    use std::thread::{self, JoinHandle};

    /// For each order the hop, what it is to be and the room for it.
    pub(in crate::emulator) type Told = Vec<(usize, LinkConfig, Option<usize>)>;

    pub(in crate::emulator) fn direction(hops: &[LinkConfig]) -> (Mailbox, JoinHandle<Told>) {
        let (mailbox, letters) = mailbox(hops).unwrap();
        (mailbox, obey(letters))
    }

    pub(super) fn obey(letters: Letters) -> JoinHandle<Told> {
        thread::spawn(move || {
            let mut told = Vec::new();
            while let Ok(letter) = letters.orders.recv() {
                match letter.open() {
                    None => {}
                    Some(Order::Set { hop, config, room, done }) => {
                        told.push((hop, *config, room.map(|room| room.as_slice().len())));
                        done.send(()).unwrap();
                    }
                    Some(Order::Report(reply)) => {
                        let stats = LinkStats { queued: Bytes(7), ..LinkStats::default() };
                        reply.send(Snapshot { stats, tally: Tally::new().unwrap(), cpu: Duration::ZERO }).unwrap();
                    }
                }
            }
            told
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::units::BitRate;
    use obedient::{direction, obey};

    #[test]
    fn an_order_nobody_came_to_is_not_obeyed_later() {
        let hops = [LinkConfig::default()];
        let (mut mailbox, letters) = mailbox(&hops).unwrap();
        mailbox.patience = Duration::from_millis(10);
        let longer = |millis| LinkConfig { delay: Duration::from_millis(millis).into(), ..LinkConfig::default() };
        assert_eq!(mailbox.set(0, &longer(1)), Err(EmulateError::Unanswered));
        assert_eq!(mailbox.hops(), hops);
        mailbox.patience = PATIENCE;
        let forwarder = obey(letters);
        mailbox.set(0, &longer(2)).unwrap();
        drop(mailbox);
        let told: Vec<_> = forwarder.join().unwrap().into_iter().map(|(_, config, _)| config).collect();
        assert_eq!(told, [longer(2)]);
    }

    #[test]
    fn orders_arrive_in_order_and_bring_room_when_it_is_needed() {
        let hops = [LinkConfig::default(), LinkConfig::default()];
        let (mailbox, forwarder) = direction(&hops);
        let slower = LinkConfig { rate: BitRate(1_000_000).into(), ..LinkConfig::default() };
        let longer = LinkConfig { delay: Duration::from_millis(100).into(), ..LinkConfig::default() };
        mailbox.set(1, &slower).unwrap();
        mailbox.clone().set(0, &longer).unwrap();
        mailbox.set(0, &longer).unwrap();
        assert_eq!(mailbox.snapshot().unwrap().stats.queued, Bytes(7));
        assert_eq!(mailbox.hops(), [longer.clone(), slower.clone()]);
        drop(mailbox);
        let room = usize::try_from(ring_size(&[longer.clone(), slower.clone()])).unwrap();
        assert_eq!(forwarder.join().unwrap(), [(1, slower, None), (0, longer.clone(), Some(room)), (0, longer, None)]);
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let hops = [LinkConfig::default()];
        let (mailbox, forwarder) = direction(&hops);
        let still = LinkConfig { rate: BitRate(0).into(), ..LinkConfig::default() };
        let endless = LinkConfig {
            rate: BitRate(1_000_000_000_000).into(),
            delay: Duration::from_secs(1000).into(),
            ..LinkConfig::default()
        };
        assert!(matches!(mailbox.set(0, &still), Err(EmulateError::Link(_))));
        assert!(matches!(mailbox.set(0, &endless), Err(EmulateError::Memory { .. })));
        assert!(matches!(mailbox.set(1, &hops[0]), Err(EmulateError::Link(_))));
        assert_eq!(mailbox.hops(), hops);
        drop(mailbox);
        assert_eq!(forwarder.join().unwrap(), []);
    }

    #[test]
    fn a_direction_that_ended_says_so() {
        let (mailbox, letters) = mailbox(&[LinkConfig::default()]).unwrap();
        drop(letters);
        assert!(matches!(mailbox.snapshot(), Err(EmulateError::Ended)));
    }
}
