//! The work of one stream: takes the next blocks, reads, hashes and sends them. Small files share one write.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_session::DataStream;
use lfn_session::wire::copy::blocks::Subtree;
use lfn_session::wire::copy::digest::{BlockHash, Digest};
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::{BlockHeader, CopyEnd, EntryFailure, SenderMessage};
use lfn_session::wire::seal::{SEALED_HEADER_BYTES, Seal};
use socket2::SockRef;

use super::open_files::Comparison;
use super::read_error::ReadError;
use super::shared::{Shared, wait};
use super::source_file::ListedFile;
use super::state::State;
use crate::TransferError;
use crate::proto::schedule::{BlockFilter, BlockTask};
use crate::proto::zeros::{hash_zeros, split_hole};
use crate::stream_state::StreamState;
use crate::work_meter::Activity;

/// Maximum number of bytes in the kernel that TCP has not sent yet, unless two blocks are smaller. The limit keeps a
/// stream busy, and prevents a slow stream from holding blocks that a fast one could send.
const MAX_UNSENT_BYTES: u32 = 256 * 1024;

/// Maximum number of holes that one stream sends before other streams can take the rest. A hole in the first 4 TiB of a
/// file consists of fewer.
const MAX_HOLES_PER_TASK: usize = 128;

/// Maximum wait for the last message of a receiver that closed its streams.
const FINAL_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// A block with its hash.
type HashedBlock = (BlockTask<Arc<ListedFile>>, BlockHash);

impl Shared {
    /// Sends blocks over one stream until everything is settled, then closes the sending half.
    pub(super) fn run(&self, stream: DataStream) {
        self.streams.run_stream(stream, |stream, stream_state| {
            // The limit affects only memory and fairness, so an error on an older kernel is ignored.
            let limit = u32::try_from(2 * self.block_size.0).unwrap_or(MAX_UNSENT_BYTES).min(MAX_UNSENT_BYTES);
            let _ = stream.handle().socket().map(|socket| SockRef::from(&socket).set_tcp_notsent_lowat(limit));
            let mut buffer = Vec::new();
            while let Some(tasks) = self.next_blocks(stream_state)? {
                let sent = self.send_tasks(stream, stream_state, tasks, &mut buffer);
                self.state.lock().busy_streams -= 1;
                match sent {
                    Err(TransferError::Stream { .. }) if self.is_finished_early() => break,
                    sent => sent?,
                }
            }
            // The peer may have received everything and closed the stream already.
            let _ = stream.finish();
            Ok(())
        });
    }

    /// Returns whether the failed block was not needed. A receiver that has settled everything may close its streams
    /// before its last message arrives.
    fn is_finished_early(&self) -> bool {
        let deadline = Instant::now() + FINAL_MESSAGE_TIMEOUT;
        let mut state = self.state.lock();
        while state.totals.is_complete
            && !state.scheduler.is_finished()
            && !self.streams.is_stopped()
            && Instant::now() < deadline
        {
            wait(&self.work_available, &mut state);
        }
        state.scheduler.is_finished()
    }

    /// Hashes files that the receiver already has, while the streams send the others.
    pub(super) fn hash_requested(&self) {
        let mut buffer = Vec::new();
        let mut state = self.state.lock();
        while !self.streams.is_stopped() && !state.scheduler.is_finished() {
            let Some(task) = state.scheduler.next_hash_block() else {
                wait(&self.work_available, &mut state);
                continue;
            };
            drop(state);
            match self.take_hole(&task) {
                Ok(Some(last)) => self.record_hole(&task, last, |_, _| ()),
                Ok(None) => {
                    let hashed = self.read_blocks(vec![task], &mut buffer, None, false).0;
                    self.record_hashed(hashed);
                }
                Err(why) => self.fail_file(&task, &why),
            }
            state = self.state.lock();
        }
    }

    /// Waits for the next blocks to send, or to hash if there is nothing to send. Returns `None` at the end.
    fn next_blocks(
        &self,
        stream_state: &StreamState,
    ) -> Result<Option<Vec<BlockTask<Arc<ListedFile>>>>, TransferError> {
        let room = BlockHeader::LENGTH + self.block_size.0 as usize;
        let mut state = self.state.lock();
        loop {
            if self.streams.is_stopped() || state.scheduler.is_finished() {
                return Ok(None);
            }
            if stream_state.is_shut_down() {
                return Err(self.streams.stream_error(stream_state, io::ErrorKind::ConnectionAborted.into()));
            }
            let mut tasks =
                if stream_state.is_full(self.streams.len()) { Vec::new() } else { self.take_blocks(&mut state, room) };
            if tasks.is_empty() && self.share.as_ref().is_none_or(|share| share.is_lead()) {
                tasks.extend(state.scheduler.next_hash_block());
            }
            if !tasks.is_empty() {
                state.busy_streams += 1;
                return Ok(Some(tasks));
            }
            wait(&self.work_available, &mut state);
        }
    }

    /// Takes the next blocks that these streams may send.
    fn take_blocks(&self, state: &mut State, room: usize) -> Vec<BlockTask<Arc<ListedFile>>> {
        match &self.share {
            None => state.scheduler.next_blocks(room, BlockFilter::ALL),
            Some(share) => share.take_blocks(state, room),
        }
    }

    fn send_tasks(
        &self,
        stream: &mut DataStream,
        stream_state: &StreamState,
        tasks: Vec<BlockTask<Arc<ListedFile>>>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), TransferError> {
        let [task] = &tasks[..] else { return self.send_blocks(stream, stream_state, tasks, buffer) };
        match self.take_hole(task) {
            Ok(Some(last)) => self.send_hole(stream, stream_state, task, last),
            Ok(None) => self.send_blocks(stream, stream_state, tasks, buffer),
            Err(why) => {
                self.fail_file(task, &why);
                Ok(())
            }
        }
    }

    /// Extends the task of a block in a hole by the following blocks of the hole. Returns the last block, or `None` if
    /// the block must be read.
    fn take_hole(&self, task: &BlockTask<Arc<ListedFile>>) -> Result<Option<u64>, ReadError> {
        if task.layout.blocks() == 1 || task.send && !self.sparse {
            return Ok(None);
        }
        let find = || self.open_files.last_block_in_hole(task, self.comparison());
        let Some(last) = self.streams.measure(Activity::Disk, find)? else { return Ok(None) };
        let hole = split_hole(task.layout, self.verify, task.block.index, last).take(MAX_HOLES_PER_TASK);
        let last = hole.last().map_or(last, |part| part.last());
        Ok(Some(self.state.lock().scheduler.extend(task, last)))
    }

    /// Sends the blocks from that of the task to `last` as holes. Nothing is read.
    fn send_hole(
        &self,
        stream: &mut DataStream,
        stream_state: &StreamState,
        task: &BlockTask<Arc<ListedFile>>,
        last: u64,
    ) -> Result<(), TransferError> {
        if !task.send {
            self.record_hole(task, last, |_, _| ());
            return Ok(());
        }
        if let Some(listener) = self.listener.get() {
            listener.notify_started(task.file, task.source.name());
        }
        let parts = split_hole(task.layout, self.verify, task.block.index, last);
        stream_state.record_sent(parts.map(|part| (task.file, part.first, part.last())));
        let mut written = Ok(());
        self.record_hole(task, last, |part, hash| {
            let offset = part.first * self.block_size.0;
            let length = task.layout.block(part.first).map_or(0, |block| block.length);
            // A level is less than 64.
            let hole = Some(part.level as u8);
            let header = BlockHeader { file: task.file, offset, length, hash, hole, verify: self.verify };
            self.streams.add_not_needed(task.layout.subtree_bytes(part));
            let bytes = match stream.seal_mut() {
                Some(seal) => seal.seal(&header).to_vec(),
                None => header.encode().to_vec(),
            };
            if written.is_ok() {
                let write = || self.streams.write_all(stream, stream_state, &bytes, bytes.len());
                written = self.streams.measure(Activity::Network, write);
            }
        });
        written
    }

    /// Hashes a hole, from the block of the task to `last`, and records its hashes. Passes each of them to `send`
    /// first.
    fn record_hole(&self, task: &BlockTask<Arc<ListedFile>>, last: u64, mut send: impl FnMut(Subtree, BlockHash)) {
        let hash_of = |part| hash_zeros(&task.layout, self.verify, part);
        for part in split_hole(task.layout, self.verify, task.block.index, last) {
            if self.streams.is_stopped() {
                return;
            }
            let hash = self.streams.measure(Activity::Hash, || hash_of(part));
            send(part, hash);
            let known = |other| if other == part { hash } else { hash_of(other) };
            let digest = self.state.lock().scheduler.record_hole(task.file, part, &known);
            if let Some(digest) = digest {
                self.end_file(task, digest);
            }
        }
    }

    fn send_blocks(
        &self,
        stream: &mut DataStream,
        stream_state: &StreamState,
        tasks: Vec<BlockTask<Arc<ListedFile>>>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), TransferError> {
        let header = if stream.seal_mut().is_some() { SEALED_HEADER_BYTES } else { BlockHeader::LENGTH };
        let from_pages = self.can_send_pages(stream, &tasks);
        let (hashed, length) = self.read_blocks(tasks, buffer, stream.seal_mut(), from_pages);
        if let (Some(listener), Some((task, _))) = (self.listener.get(), hashed.iter().rfind(|(task, _)| task.send)) {
            listener.notify_started(task.file, task.source.name());
        }
        let sent = || {
            let sent = hashed.iter().filter(|(task, _)| task.send);
            sent.map(|(task, _)| (task.file, task.block.index, task.block.index))
        };
        let headers = header * sent().count();
        stream_state.record_sent(sent());
        self.share.iter().for_each(|share| share.record_sent(sent()));
        let written = match hashed.first() {
            Some((task, _)) if from_pages => self.send_pages(stream, stream_state, task, &buffer[..header]),
            _ => {
                let message = &buffer[..length];
                self.streams
                    .measure(Activity::Network, || self.streams.write_all(stream, stream_state, message, headers))
            }
        };
        // The blocks are read and hashed, even if the write failed.
        self.record_hashed(hashed);
        written
    }

    /// Returns whether the kernel can send this block directly from the page cache (sendfile(2)). This needs a stream
    /// with a payload socket and a file of several blocks. The receiver checks no digest for a file of one block, so a
    /// page that changes meanwhile could pass unnoticed without hashes.
    fn can_send_pages(&self, stream: &DataStream, tasks: &[BlockTask<Arc<ListedFile>>]) -> bool {
        let [task] = tasks else { return false };
        let plain = stream.payload_socket().is_some() && !self.sparse;
        let is_local =
            || self.open_files.open_unchanged(task, self.comparison()).is_ok_and(|file| file.as_fd().is_some());
        plain && task.send && task.layout.blocks() > 1 && is_local()
    }

    /// Sends a block directly from the page cache. If another process writes to the file meanwhile, the block does not
    /// match its hash, or the times of the file change, which is noticed at the end of the file.
    fn send_pages(
        &self,
        stream: &mut DataStream,
        stream_state: &StreamState,
        task: &BlockTask<Arc<ListedFile>>,
        header: &[u8],
    ) -> Result<(), TransferError> {
        // The header promises a payload. If the file has changed since the check, another stream reports that.
        let changed = || self.streams.stream_error(stream_state, io::ErrorKind::InvalidData.into());
        let file = self.open_files.open_unchanged(task, self.comparison()).map_err(|_| changed())?;
        let pages = file.as_fd().ok_or_else(changed)?;
        let (offset, length) = (task.block.offset, task.block.length.into());
        self.streams.measure(Activity::Network, || {
            self.streams.write_all(stream, stream_state, header, header.len())?;
            let sent = self.streams.send_pages(stream, stream_state, pages, offset, length)?;
            // The file has become shorter. The block keeps its announced length and fails the check.
            let rest = vec![0; (length - sent) as usize];
            self.streams.write_all(stream, stream_state, &rest, 0)
        })
    }

    /// Reads and hashes blocks, and stores those to be sent one after the other in `buffer`. Returns the blocks, and
    /// the used length of the buffer. Blocks that cannot be read fail their file and are skipped. With `from_pages`,
    /// the payload is read only for hashing.
    fn read_blocks(
        &self,
        tasks: Vec<BlockTask<Arc<ListedFile>>>,
        buffer: &mut Vec<u8>,
        mut seal: Option<&mut Seal>,
        from_pages: bool,
    ) -> (Vec<HashedBlock>, usize) {
        let (mut hashed, mut at) = (Vec::with_capacity(tasks.len()), 0);
        let header_bytes = if seal.is_some() { SEALED_HEADER_BYTES } else { BlockHeader::LENGTH };
        for task in tasks {
            if !task.send && self.verify == Verify::Off {
                hashed.push((task, BlockHash([0; 32])));
                continue;
            }
            let end = at + header_bytes + task.block.length as usize;
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            let (header, payload) = buffer[at..end].split_at_mut(header_bytes);
            let skips_reading = from_pages && self.verify == Verify::Off;
            let read = || {
                if skips_reading {
                    self.open_files.open_unchanged(&task, self.comparison()).map(|_| false)
                } else {
                    self.open_files.read_block(&task, payload, self.sparse, self.comparison())
                }
            };
            let hole = match self.streams.measure(Activity::Disk, read) {
                Ok(hole) => hole,
                Err(why) => {
                    self.fail_file(&task, &why);
                    continue;
                }
            };
            let hash = self.streams.measure(Activity::Hash, || self.verify.hash(&task.layout, task.block, payload));
            if task.send {
                let (file, offset, length) = (task.file, task.block.offset, task.block.length);
                let block = BlockHeader { file, offset, length, hash, hole: hole.then_some(0), verify: self.verify };
                match &mut seal {
                    Some(seal) => header.copy_from_slice(&seal.seal(&block)),
                    None => header.copy_from_slice(&block.encode()),
                }
                at = if hole { at + header_bytes } else { end };
                if hole {
                    self.streams.add_not_needed(length.into());
                }
            }
            hashed.push((task, hash));
        }
        (hashed, at)
    }

    /// Records hashed blocks, and reports the files that end with them.
    fn record_hashed(&self, hashed: Vec<HashedBlock>) {
        let mut state = self.state.lock();
        let mut ended = Vec::new();
        for (task, hash) in hashed {
            if let Some(digest) = state.scheduler.record_hash(&task, hash) {
                ended.push((task, digest));
            }
        }
        drop(state);
        ended.iter().for_each(|(task, digest)| self.end_file(task, *digest));
    }

    /// Reports a file that is hashed to its end.
    fn end_file(&self, task: &BlockTask<Arc<ListedFile>>, digest: Digest) {
        let file = task.file;
        let mut state = self.state.lock();
        if file == 0 {
            state.digest = Some(digest);
        }
        let is_digest_only = state.scheduler.is_digest_only(file);
        drop(state);
        if is_digest_only {
            self.finish_file(task, digest, SenderMessage::Digest { file, digest });
        } else if task.layout.blocks() > 1 {
            self.finish_file(task, digest, SenderMessage::Sent { file, digest });
        }
    }

    /// Finishes a file that was read to its end, if it is still the listed version.
    fn finish_file(&self, task: &BlockTask<Arc<ListedFile>>, digest: Digest, message: SenderMessage) {
        match self.open_files.close(task, digest, self.comparison()) {
            Ok(()) => self.state.lock().outbox.push_back(message),
            Err(why) => self.fail_file(task, &why),
        }
    }

    fn comparison(&self) -> Comparison<'_> {
        Comparison { verify: self.verify, streams: &self.streams, is_rank: self.is_rank }
    }

    fn fail_file(&self, task: &BlockTask<Arc<ListedFile>>, why: &ReadError) {
        let mut state = self.state.lock();
        // Several streams may read the file. Only the first failure is reported.
        if state.scheduler.fail(task.file) == Ok(true) {
            state.linked_files.remove(task.file);
            let (name, reason) = (task.source.name().clone(), why.to_string());
            let failure = EntryFailure { file: Some(task.file), name, reason, disk_full: false, end: CopyEnd::Sender };
            if matches!(why, ReadError::Changed) { state.fail_changed(failure) } else { state.fail(failure) }
        }
        drop(state);
        self.work_available.notify_all();
        self.room_in_list.notify_all();
    }
}
