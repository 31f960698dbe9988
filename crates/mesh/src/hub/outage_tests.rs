//! Outages in virtual time: the spool of an agent, the exchange with the hub, and the archive. Processes are killed by dropping
//! the spool and the hub without a close, and answers of the hub are lost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{Hub, HubOptions, HubPlan, MeshSecret};
use crate::archive::{Archive, EntryFilter};
use crate::entry::{Entry, EntryKind, RawJson};
use crate::spool::{Spool, SpoolError};
use crate::sync::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, SyncRequest, batch};

const SITES: &str = "name = \"m\"\n[[site]]\nname = \"a\"\naddress = \"a.example\"\n\
     [[site]]\nname = \"b\"\naddress = \"b.example\"\n";

/// Default limit of a spool, bytes.
const MAX_SPOOL: u64 = 1 << 30;

const MINUTE: Duration = Duration::from_secs(60);

/// Time at which the outages begin, since 1970.
const START: Duration = Duration::from_secs(1_800_000_000);

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(START) };
}

fn clock() -> Duration {
    NOW.get()
}

/// One agent and its hub, each of which may be down.
struct World {
    directory: TempDir,
    max_spool: u64,
    spool: Option<Spool>,
    hub: Option<Hub>,
    /// Times of the entries that the agent reported as kept.
    made: BTreeSet<Duration>,
}

impl World {
    fn new(max_spool: u64) -> Self {
        NOW.set(START);
        let directory = tempfile::tempdir().unwrap();
        World { directory, max_spool, spool: None, hub: None, made: BTreeSet::new() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn spool(&mut self) -> &mut Spool {
        let path = self.directory.path().join("spool");
        self.spool.get_or_insert_with(|| Spool::open(&path, self.max_spool).unwrap())
    }

    fn start_hub(&mut self) {
        if self.hub.is_some() {
            return;
        }
        let options = HubOptions {
            plan: HubPlan::parse(SITES.to_owned()).unwrap(),
            plan_file: self.path().join("plan.json"),
            secret: MeshSecret::from_bytes([7; 32]),
            registry: self.path().join("agents.json"),
            tickets: Default::default(),
            keep_detail: Duration::from_secs(1000),
            clock,
        };
        let archive = Archive::open(&self.path().join("archive")).unwrap();
        self.hub = Some(Hub::start(options, archive, |_| ()).unwrap());
    }

    /// Moves the clock, and keeps an entry. Returns the error of a spool that cannot keep the entry.
    fn measure(&mut self, after: Duration) -> Result<(), SpoolError> {
        NOW.set(NOW.get() + after);
        let time = NOW.get();
        let detail = serde_json::json!({ "intervals": vec![time.as_millis(); 20] });
        let entry = Entry { detail: RawJson::of(&detail), ..Entry::new(EntryKind::Latency, "a", "b", time) };
        self.spool().append(&entry)?;
        self.made.insert(time);
        Ok(())
    }

    /// Sends one batch if the hub is up. The agent does not receive the answer if it is lost. Returns the number of entries.
    fn exchange(&mut self, is_answer_lost: bool) -> usize {
        let entries = batch(self.spool().pending_entries(MAX_BATCH_ENTRIES, MAX_BATCH_BYTES).unwrap());
        let count = entries.len();
        let Some(hub) = &self.hub else { return count };
        let request = SyncRequest { entries, ..SyncRequest::default() };
        let reply = hub.answer("a", SocketAddr::from(([192, 0, 2, 1], 40_000)), request).unwrap();
        assert_eq!((reply.problem, reply.refused), (None, Vec::new()));
        if let (false, Some(number)) = (is_answer_lost, reply.acknowledged) {
            self.spool().acknowledge(number).unwrap();
        }
        count
    }

    fn drain(&mut self) {
        self.start_hub();
        while self.exchange(false) > 0 {}
    }

    /// Returns the times of the entries in the archive, in order.
    fn stored(&self) -> Vec<Duration> {
        let Ok(mut archive) = Archive::open_read_only(&self.path().join("archive")) else { return Vec::new() };
        archive.entries(EntryFilter::default()).unwrap().into_iter().map(|entry| entry.time).collect()
    }

    /// Returns the times of the entries in the spool that the hub has not acknowledged.
    fn spooled(&mut self) -> Vec<Duration> {
        let pending = self.spool().pending_entries(usize::MAX, usize::MAX).unwrap();
        pending.iter().map(|entry| serde_json::from_str::<Entry>(&entry.json).unwrap().time).collect()
    }

    /// Checks that each entry is in the archive or in the spool, and that the archive has none twice.
    fn assert_complete(&mut self) {
        let stored = self.stored();
        let in_archive: BTreeSet<_> = stored.iter().copied().collect();
        assert_eq!(in_archive.len(), stored.len(), "an entry is stored twice");
        let spooled = self.spooled();
        let waiting = spooled.iter().filter(|time| !in_archive.contains(time)).count();
        assert_eq!(stored.len() + waiting, self.made.len());
        assert_eq!(spooled.into_iter().chain(stored).collect::<BTreeSet<_>>(), self.made);
        assert_eq!(self.spool().appended(), self.made.len() as u64);
    }
}

#[test]
fn a_day_without_the_hub_loses_no_entry() {
    let mut world = World::new(MAX_SPOOL);
    world.drain();
    world.measure(MINUTE).unwrap();
    world.drain();
    world.hub = None;
    for _ in 0..24 * 60 {
        world.measure(MINUTE).unwrap();
        world.exchange(false);
    }
    assert_eq!((world.stored().len(), world.spool().pending()), (1, 1440));
    // The agent restarts during the outage.
    world.spool = None;
    world.assert_complete();
    world.drain();
    assert_eq!((world.stored().len(), world.spool().pending()), (1441, 0));
    world.assert_complete();
}

#[test]
fn an_hour_without_answers_stores_no_entry_twice() {
    let mut world = World::new(MAX_SPOOL);
    world.start_hub();
    for _ in 0..60 {
        world.measure(MINUTE).unwrap();
        // The request arrives, and the answer does not.
        world.exchange(true);
        world.assert_complete();
    }
    assert_eq!((world.stored().len(), world.spool().pending()), (60, 60));
    world.drain();
    assert_eq!((world.stored().len(), world.spool().pending()), (60, 0));
    world.assert_complete();
}

#[test]
fn a_full_spool_refuses_entries_and_keeps_the_others() {
    let mut world = World::new(100_000);
    let mut refused = 0;
    for _ in 0..24 * 60 {
        match world.measure(MINUTE) {
            Ok(()) => assert_eq!(refused, 0, "an entry is kept after an entry of the same length was refused"),
            Err(SpoolError::TooLarge { max: 100_000, .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(world.made.len() + refused, 1440);
    assert!(world.made.len() > 100 && refused > 100, "{refused}");
    world.assert_complete();
    world.drain();
    world.measure(MINUTE).unwrap();
    world.drain();
    assert_eq!(world.stored(), world.made.iter().copied().collect::<Vec<_>>());
}

/// An event of an outage.
#[derive(Debug, Clone)]
enum Event {
    Measure(u8),
    Exchange {
        is_answer_lost: bool,
    },
    KillAgent,
    KillHub,
    StartHub,
    /// A copy of a batch arrives again.
    Repeat,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_u8..40).prop_map(Event::Measure),
        4 => any::<bool>().prop_map(|is_answer_lost| Event::Exchange { is_answer_lost }),
        1 => Just(Event::KillAgent),
        1 => Just(Event::KillHub),
        2 => Just(Event::StartHub),
        1 => Just(Event::Repeat),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn outages_and_kills_lose_and_repeat_no_entry(events in prop::collection::vec(event(), 1..40)) {
        let mut world = World::new(MAX_SPOOL);
        for event in events {
            match event {
                Event::Measure(count) => (0..count).for_each(|_| world.measure(MINUTE).unwrap()),
                Event::Exchange { is_answer_lost } => {
                    world.exchange(is_answer_lost);
                }
                Event::KillAgent => world.spool = None,
                Event::KillHub => world.hub = None,
                Event::StartHub => world.start_hub(),
                Event::Repeat => {
                    world.exchange(true);
                    world.exchange(false);
                }
            }
            world.assert_complete();
        }
        world.drain();
        world.assert_complete();
        prop_assert_eq!(world.stored().len(), world.made.len());
    }
}
