//! What a stream does: takes what is dealt, reads it, hashes it and sends it, small files behind each other in one write.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::manner::Verify;
use lfn_core::transfer::schedule::Piece;
use lfn_core::wire::copy::{BlockHeader, Failure, FromSender};
use lfn_core::wire::seal::{SEALED, Seal};
use lfn_core::wire::third::CarriedEnd;
use socket2::SockRef;

use super::origin::{Item, Unsent};
use super::{Shared, wait};
use crate::session::{DataStream, Protection};
use crate::transfer::TransferError;
use crate::transfer::flow::{Activity, lock};
use crate::transfer::line::Line;

/// How much a stream may have in the kernel that TCP has not sent yet, where two blocks are not less: enough to keep it
/// busy, little enough that a slow stream does not sit on blocks that a fast one could send.
const NOT_SENT: u32 = 256 * 1024;

/// How long a receiver that hung up has to be heard.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A piece of work, and what it came to.
type Hashed = (Piece<Arc<Item>>, BlockHash);

impl Shared {
    /// Sends over one stream until everything is settled, then says so by closing its half.
    pub(super) fn run(&self, stream: DataStream) {
        self.flow.run(stream, |stream, line| {
            // Only a matter of memory and fairness: an older kernel does without.
            let most = u32::try_from(2 * self.block.0).unwrap_or(NOT_SENT).min(NOT_SENT);
            let _ = SockRef::from(stream.socket()).set_tcp_notsent_lowat(most);
            let mut buffer = Vec::new();
            while let Some(pieces) = self.next(line)? {
                let sent = self.send(stream, line, pieces, &mut buffer);
                lock(&self.state).working -= 1;
                match sent {
                    Err(TransferError::Stream { .. }) if self.is_needless() => break,
                    sent => sent?,
                }
            }
            // The peer may have all it needs, and be gone.
            let _ = stream.finish();
            Ok(())
        });
    }

    /// Whether what could not be sent was not wanted: a receiver that has everything settled may hang up before its
    /// last word is heard.
    fn is_needless(&self) -> bool {
        let deadline = Instant::now() + LAST_WORDS;
        let mut state = lock(&self.state);
        while state.count.complete && !state.deck.is_over() && !self.flow.is_stopped() && Instant::now() < deadline {
            state = wait(&self.work, state);
        }
        state.deck.is_over()
    }

    /// Hashes what the receiver has, while the streams send what it has not.
    pub(super) fn hash(&self) {
        let mut buffer = Vec::new();
        let mut state = lock(&self.state);
        while !self.flow.is_stopped() && !state.deck.is_over() {
            let Some(piece) = state.deck.deal_hashing() else {
                state = wait(&self.work, state);
                continue;
            };
            drop(state);
            let hashed = self.read(vec![piece], &mut buffer, (None, false)).0;
            self.done(hashed);
            state = lock(&self.state);
        }
    }

    /// What is to be sent next, or only to be hashed if there is nothing else; waits for it. Nothing at the end.
    fn next(&self, line: &Line) -> Result<Option<Vec<Piece<Arc<Item>>>>, TransferError> {
        let room = BlockHeader::LENGTH + self.block.0 as usize;
        let mut state = lock(&self.state);
        loop {
            if self.flow.is_stopped() || state.deck.is_over() {
                return Ok(None);
            }
            if line.is_cut() {
                return Err(self.flow.broken(line, io::ErrorKind::ConnectionAborted.into()));
            }
            let mut pieces = if line.is_full(self.flow.streams()) { Vec::new() } else { state.deck.deal(room) };
            if pieces.is_empty() {
                pieces.extend(state.deck.deal_hashing());
            }
            if !pieces.is_empty() {
                state.working += 1;
                return Ok(Some(pieces));
            }
            state = wait(&self.work, state);
        }
    }

    fn send(
        &self,
        stream: &mut DataStream,
        line: &Line,
        pieces: Vec<Piece<Arc<Item>>>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), TransferError> {
        let header = if stream.sealing().is_some() { SEALED } else { BlockHeader::LENGTH };
        let from_pages = self.goes_from_pages(stream, &pieces);
        let (hashed, length) = self.read(pieces, buffer, (stream.sealing(), from_pages));
        let sent = || hashed.iter().filter(|(piece, _)| piece.send).map(|(piece, _)| (piece.file, piece.block.index));
        let headers = header * sent().count();
        line.carry(sent());
        let written = match hashed.first() {
            Some((piece, _)) if from_pages => self.send_pages((stream, line), piece, &buffer[..header]),
            _ => {
                let message = &buffer[..length];
                self.flow.spend(Activity::Network, || self.flow.write_all((stream, line), message, headers))
            }
        };
        // Read and hashed they are, however little of them has left.
        self.done(hashed);
        written
    }

    /// Whether this is one block of a larger file that a stream in the clear can take from the file's own pages. Of a file
    /// of one block the receiver needs no further word, and a page that changed would be believed where nothing is hashed.
    fn goes_from_pages(&self, stream: &DataStream, pieces: &[Piece<Arc<Item>>]) -> bool {
        let [piece] = pieces else { return false };
        let plain = stream.protection() == Protection::Clear && !self.sparse;
        plain && piece.send && piece.layout.blocks() > 1 && piece.of.is_file()
    }

    /// Sends a block that was hashed, if it was to be, from the pages of its file. Whoever writes to it meanwhile makes
    /// a block that is not what its header says, or at least another time of change, which is seen when the file ends.
    fn send_pages(
        &self,
        (stream, line): (&mut DataStream, &Line),
        piece: &Piece<Arc<Item>>,
        header: &[u8],
    ) -> Result<(), TransferError> {
        // What is announced has to come: of a file that changed since, another stream will say so.
        let changed = |_| self.flow.broken(line, io::ErrorKind::InvalidData.into());
        let file = self.opened.listed(piece).map_err(changed)?;
        let (offset, length) = (piece.block.offset, piece.block.length.into());
        self.flow.spend(Activity::Network, || {
            self.flow.write_all((stream, line), header, header.len())?;
            let sent = self.flow.send_pages((stream, line), &file, offset, length)?;
            // A file that has become shorter; the block keeps its length, and is no good.
            let rest = vec![0; (length - sent) as usize];
            self.flow.write_all((stream, line), &rest, 0)
        })
    }

    /// Puts what is to be sent behind each other in `buffer`, and tells how long that is; what cannot be read fails, and
    /// is left out. What goes `from_pages` is read only to be hashed.
    fn read(
        &self,
        pieces: Vec<Piece<Arc<Item>>>,
        buffer: &mut Vec<u8>,
        (mut seal, from_pages): (Option<&mut Seal>, bool),
    ) -> (Vec<Hashed>, usize) {
        let (mut hashed, mut at) = (Vec::with_capacity(pieces.len()), 0);
        let before = if seal.is_some() { SEALED } else { BlockHeader::LENGTH };
        for piece in pieces {
            if !piece.send && self.verify == Verify::Off {
                hashed.push((piece, BlockHash([0; 32])));
                continue;
            }
            let end = at + before + piece.block.length as usize;
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            let (header, payload) = buffer[at..end].split_at_mut(before);
            let unread = from_pages && self.verify == Verify::Off;
            let read = || match unread {
                true => self.opened.listed(&piece).map(|_| false),
                false => self.opened.read(&piece, payload, self.sparse),
            };
            let hole = match self.flow.spend(Activity::Disk, read) {
                Ok(hole) => hole,
                Err(why) => {
                    self.fail(&piece, &why);
                    continue;
                }
            };
            let hash = self.flow.spend(Activity::Hash, || self.verify.hash(&piece.layout, piece.block, payload));
            if piece.send {
                let (file, offset, length) = (piece.file, piece.block.offset, piece.block.length);
                let block = BlockHeader { file, offset, length, hash, hole, verify: self.verify };
                match &mut seal {
                    Some(seal) => header.copy_from_slice(&seal.seal(&block)),
                    None => header.copy_from_slice(&block.encode()),
                }
                at = if hole { at + before } else { end };
                if hole {
                    self.flow.pass_over(length.into());
                }
            }
            hashed.push((piece, hash));
        }
        (hashed, at)
    }

    /// Notes what was sent, and says so of files that end with it.
    fn done(&self, hashed: Vec<Hashed>) {
        let mut ended = Vec::new();
        let mut state = lock(&self.state);
        for (piece, hash) in hashed {
            let Some(digest) = state.deck.done(&piece, hash) else { continue };
            if piece.file == 0 {
                state.digest = Some(digest);
            }
            let file = piece.file;
            if state.deck.is_compared(file) {
                ended.push((piece, FromSender::Digest { file, digest }));
            } else if piece.layout.blocks() > 1 {
                ended.push((piece, FromSender::Sent { file, digest }));
            }
        }
        drop(state);
        ended.into_iter().for_each(|(piece, word)| self.end(&piece, word));
    }

    /// A file was read to its end: it must still be what it was when it was listed.
    fn end(&self, piece: &Piece<Arc<Item>>, word: FromSender) {
        match self.opened.close(piece) {
            Ok(()) => lock(&self.state).outbox.push_back(word),
            Err(why) => self.fail(piece, &why),
        }
    }

    fn fail(&self, piece: &Piece<Arc<Item>>, why: &Unsent) {
        let mut state = lock(&self.state);
        // Of several streams that read it, the first one says it.
        if state.deck.fail(piece.file) == Ok(true) {
            state.names.forget(piece.file);
            let (name, what) = (piece.of.name().clone(), why.to_string());
            state.fail(Failure { file: Some(piece.file), name, what, full: false, end: CarriedEnd::Sender });
        }
        drop(state);
        self.work.notify_all();
        self.room.notify_all();
    }
}
