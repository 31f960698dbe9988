//! The way of a block from its stream to its file.
//!
//! A block waits until its entry was looked at, is kept for the stream it came over, checked, and written: a small file
//! whole, a larger one into its partial file, of which no more than [`MOST_PARTIALS`] are open at once. A block that is
//! not wanted is read and forgotten: the stream goes on behind it. How a file ends is in `finish`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Block;
use lfn_core::transfer::blockset::{BlockSet, MAX_RANGES};
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::intake::{Checked, Claim};
use lfn_core::wire::copy::{BlockHeader, FromReceiver};

use super::super::TransferError;
use super::super::flow::{Activity, lock};
use super::Receiver;
use super::item::{Item, State};
use super::partial::{self, How, Partial, is_another_guests};
use super::small::Small;
use super::stream::Blocks;
use super::tree::{Place, Tree};
use crate::session::DEAD_AFTER;

/// How many files of several blocks may be under way at once; each holds two descriptors open. The sender begins no more
/// than [`MOST_BEGUN`]; the others are what the register finds half-done.
///
/// [`MOST_BEGUN`]: lfn_core::transfer::schedule::MOST_BEGUN
const MOST_PARTIALS: usize = 128;

/// How long a stream waits for one of them to end. Whoever lets it wait longer began more than it may.
const PARTIALS_WAIT: Duration = DEAD_AFTER;

/// How long all files together wait for another copy to let go of them.
pub(super) const OTHERS_WAIT: Duration = Duration::from_secs(5);

impl Receiver {
    pub(super) fn receive(&self, blocks: &mut Blocks<'_>, header: BlockHeader) -> Result<(), TransferError> {
        if header.verify != self.manner.verify {
            return Err(TransferError::Sender("hashes its blocks in another way than agreed"));
        }
        if header.hole && !self.forgets && !self.dressing.is_sparse() {
            return Err(TransferError::Sender("leaves out holes though nobody asked for that"));
        }
        let line = blocks.line();
        let found = self.table.find(header.file, || self.stopped() || line.is_cut())?;
        let claimed = match &found {
            Some(item) => claim(item, &header)?,
            None => None,
        };
        let payload = match header.hole {
            true => {
                let paid = if claimed.is_some() { self.flow.charge(header.length.into()) } else { Ok(()) };
                paid.map(|()| self.zeros(header.length))
            }
            false if self.forgets => blocks.skip(header.length).map(|()| &[][..]),
            false => blocks.payload(header.length),
        };
        let (Some(item), Some(block)) = (found, claimed) else { return payload.map(drop) };
        let payload = payload.inspect_err(|_| lock(&item.state).intake.release(block))?;
        let hash = self.flow.spend(Activity::Hash, || self.manner.verify.hash(&item.layout, block, payload));
        let mut state = lock(&item.state);
        let checked = state.intake.check(block, header.hash, hash).map_err(TransferError::from);
        let checked = checked.and_then(|checked| state.account().map(|()| checked));
        drop(state);
        match checked {
            Ok(Checked::Whole) => {
                if header.hole {
                    self.flow.pass_over(header.length.into());
                }
                self.take(&item, block, hash, payload)
            }
            Ok(Checked::Again) => {
                self.table.say(FromReceiver::Again { file: item.number, index: block.index });
                Ok(())
            }
            Err(error) => {
                self.fail(&item, error);
                Ok(())
            }
        }
    }

    /// No block is longer than the copy's.
    fn zeros(&self, length: u32) -> &[u8] {
        &self.zeros.get_or_init(|| vec![0; self.block.0 as usize])[..length as usize]
    }

    /// Writes a block that is whole, and ends its file with the last one.
    fn take(&self, item: &Arc<Item>, block: Block, hash: BlockHash, payload: &[u8]) -> Result<(), TransferError> {
        let small = match self.write(item, block, hash, payload) {
            Ok(small) => small,
            Err(error) => {
                self.fail(item, error);
                return Ok(());
            }
        };
        let mut state = lock(&item.state);
        state.intake.take(block, hash)?;
        let accounted = state.account();
        drop(state);
        self.has_come(item, block);
        self.flow.arrive(1);
        if let Err(error) = accounted {
            self.fail(item, error);
            return Ok(());
        }
        match small {
            Some(small) => self.flow.spend(Activity::Disk, || self.whole_small(item, small)),
            None => self.try_complete(item, true),
        }
        Ok(())
    }

    fn write(
        &self,
        item: &Item,
        block: Block,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<Option<Small>, TransferError> {
        let Some(tree) = self.tree() else { return Ok(None) };
        if item.layout.blocks() == 1 {
            let place = tree.place(&item.entry.name)?;
            return self
                .flow
                .spend(Activity::Disk, || Small::write(place, &item.entry, payload, &self.dressing).map(Some));
        }
        let Some(partial) = self.partial(tree, item)? else { return Ok(None) };
        self.flow.spend(Activity::Disk, || partial.write(block, hash, payload))?;
        Ok(None)
    }

    /// The partial file of `item`, opened if need be; none if the file failed meanwhile.
    fn partial(&self, tree: &Tree, item: &Item) -> Result<Option<Arc<Partial>>, TransferError> {
        let mut state = lock(&item.state);
        if !state.over && state.partial.is_none() && self.are_too_many() {
            drop(state);
            self.wait_for_partials(PARTIALS_WAIT);
            state = lock(&item.state);
        }
        if state.over || state.partial.is_some() {
            return Ok(state.partial.clone());
        }
        let have = self.open_partial(tree, item, &mut state)?;
        let partial = state.partial.clone();
        drop(state);
        // One that came to be after the register looked.
        if !have.is_empty() {
            self.table.say(FromReceiver::Have { file: item.number, blocks: have });
        }
        Ok(partial)
    }

    /// Opens the partial file; the blocks that an earlier copy left are what the sender may know of.
    pub(super) fn open_partial(&self, tree: &Tree, item: &Item, state: &mut State) -> Result<BlockSet, TransferError> {
        // Streams that waited together may be some too many together.
        if self.partials.fetch_add(1, Ordering::SeqCst) >= 2 * MOST_PARTIALS {
            self.partials.fetch_sub(1, Ordering::SeqCst);
            let path = item.entry.name.to_string();
            return Err(TransferError::Forbidden { path, why: "too many large files are under way at once" });
        }
        let opened = tree.place(&item.entry.name).and_then(|place| self.while_busy(|| self.open_at(place, item)));
        let (partial, kept) = opened.inspect_err(|_| {
            self.partials.fetch_sub(1, Ordering::SeqCst);
        })?;
        let partial_is_ours = partial.is_newer(self.since);
        let new = kept.into_iter().filter(|(index, hash)| state.intake.keep(*index, *hash));
        let have = new.map(|(index, _)| index).collect::<BlockSet>().at_most(MAX_RANGES);
        state.account().inspect_err(|_| {
            self.partials.fetch_sub(1, Ordering::SeqCst);
        })?;
        state.partial = Some(Arc::new(partial));
        state.ours = self.earlier && partial_is_ours;
        self.flow.pass_over(have.ranges().map(|(first, last)| item.layout.length(first, last)).sum());
        Ok(have)
    }

    fn are_too_many(&self) -> bool {
        self.partials.load(Ordering::SeqCst) >= MOST_PARTIALS
    }

    /// Waits until one more file of several blocks may be under way; not for ever, since those that are may need what stands
    /// behind this one.
    pub(super) fn wait_for_partials(&self, most: Duration) {
        let started = Instant::now();
        while self.are_too_many() && !self.stopped() && started.elapsed() < most {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Opens a partial file. One that another copy has is waited for a little: that may have been cut, and its server not
    /// have noticed yet. Where it has, as long as the disk takes.
    fn open_at(&self, place: Place, item: &Item) -> Result<partial::Opened, TransferError> {
        let (verify, sparse) = (self.manner.verify, self.dressing.is_sparse());
        let how = How { verify, sparse, reserve: !self.set_aside.counts() };
        let afford = |lacking| self.set_aside(item, lacking);
        let may_wait = || {
            let since = self.others.get_or_init(Instant::now);
            !is_another_guests(&place)
                && !self.stopped()
                && (since.elapsed() < OTHERS_WAIT || partial::is_let_go(&place))
        };
        loop {
            match Partial::open(place.clone(), &item.entry, item.layout, (how, &afford), &self.flow) {
                Err(TransferError::Busy { .. }) if may_wait() => thread::sleep(Duration::from_millis(20)),
                opened => return opened,
            }
        }
    }
}

/// Keeps the block that the header names for this stream, if it is wanted.
fn claim(item: &Item, header: &BlockHeader) -> Result<Option<Block>, TransferError> {
    let mut state = lock(&item.state);
    if state.over {
        return Ok(None);
    }
    match state.intake.claim(header.offset, header.length)? {
        Claim::Wanted(block) => Ok(Some(block)),
        Claim::There(_) => Ok(None),
    }
}
