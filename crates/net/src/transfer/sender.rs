//! The side that has the bytes: each stream takes the next block, reads it, hashes it and sends it.

use std::sync::{Arc, Mutex};

use lfn_core::transfer::blocks::{Block, Layout};
use lfn_core::transfer::content::fill_random;
use lfn_core::transfer::digest::{Digest, hash_block};
use lfn_core::transfer::schedule::Schedule;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::BlockHeader;
use socket2::SockRef;

use super::TransferError;
use super::flow::{Activity, Flow, lock};
use super::place::SourceFile;
use crate::session::DataStream;

/// How much a stream may have in the kernel that TCP has not sent yet: enough to keep it busy, little enough that a
/// slow stream does not sit on blocks that a fast one could send.
const NOT_SENT: u32 = 256 * 1024;

/// Where the bytes come from.
#[derive(Debug)]
pub(crate) enum Source {
    File(SourceFile),
    Random { seed: u64, bytes: Bytes },
    Zero { bytes: Bytes },
}

/// One file being sent.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) flow: Flow,
    source: Arc<Source>,
    layout: Layout,
    schedule: Mutex<Schedule>,
}

impl Source {
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Source::File(file) => file.bytes(),
            Source::Random { bytes, .. } | Source::Zero { bytes } => *bytes,
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), TransferError> {
        match self {
            Source::File(file) => file.read_at(buffer, offset)?,
            Source::Random { seed, .. } => fill_random(*seed, offset, buffer),
            Source::Zero { .. } => buffer.fill(0),
        }
        Ok(())
    }
}

impl Sending {
    pub(crate) fn new(source: Source, layout: Layout, flow: Flow) -> Self {
        Sending { flow, source: Arc::new(source), layout, schedule: Mutex::new(Schedule::new(layout)) }
    }

    /// The same from its beginning, over other streams.
    pub(crate) fn again(&self) -> Self {
        let (source, layout) = (self.source.clone(), self.layout);
        Sending { flow: Flow::default(), source, layout, schedule: Mutex::new(Schedule::new(layout)) }
    }

    /// Sends blocks over one stream until all are dealt, then says so by closing its half.
    pub(crate) fn run(&self, stream: DataStream) {
        self.flow.run(stream, |stream| {
            // Only a matter of memory and fairness: an older kernel does without.
            let _ = SockRef::from(stream.socket()).set_tcp_notsent_lowat(NOT_SENT);
            let largest = self.layout.block_size().min(self.layout.bytes());
            let mut buffer = vec![0; BlockHeader::LENGTH + largest.0 as usize];
            while let Some(block) = self.next_block() {
                self.send_block(stream, block, &mut buffer)?;
            }
            // The peer may have all it needs, and be gone.
            let _ = stream.finish();
            Ok(())
        });
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> Bytes {
        self.layout.bytes()
    }

    /// The digest of what was read, once all of it has left, and if nobody changed the source meanwhile.
    pub(crate) fn finished(&self) -> Result<Option<Digest>, TransferError> {
        let Some(digest) = lock(&self.schedule).digest() else { return Ok(None) };
        if let Source::File(file) = self.source.as_ref() {
            file.unchanged()?;
        }
        Ok(Some(digest))
    }

    fn next_block(&self) -> Option<Block> {
        if self.flow.is_stopped() { None } else { lock(&self.schedule).deal() }
    }

    fn send_block(&self, stream: &mut DataStream, block: Block, buffer: &mut [u8]) -> Result<(), TransferError> {
        let message = &mut buffer[..BlockHeader::LENGTH + block.length as usize];
        let (header, payload) = message.split_at_mut(BlockHeader::LENGTH);
        self.flow.spend(Activity::Disk, || self.source.read_at(payload, block.offset))?;
        let hash = self.flow.spend(Activity::Hash, || hash_block(&self.layout, block, payload));
        header.copy_from_slice(&BlockHeader { file: 0, offset: block.offset, length: block.length, hash }.encode());
        self.flow.spend(Activity::Network, || self.flow.write_all(stream, message, BlockHeader::LENGTH))?;
        lock(&self.schedule).sent(block, hash);
        Ok(())
    }
}
