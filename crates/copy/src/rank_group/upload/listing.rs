//! The lists of the ranks: their entries in the common list, their pieces, and the end of the list.

use std::time::Instant;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::entry::{Entry, EntryKind};
use lfn_session::wire::copy::{ReceiverMessage, SenderMessage};

use super::common_list::Placed;
use super::pieces::{PieceRange, joined_length};
use super::{UploadGroup, file_length};
use crate::TransferError;
use crate::rank_group::GroupError;
use crate::rank_group::error::RankError;
use crate::rank_group::place::ListSummary;
use crate::receiver::HeldBytes;
use crate::role::Role;

impl UploadGroup {
    pub(super) fn add_listed(&mut self, rank: u16, first: u32, entries: Vec<Entry>) -> Result<(), GroupError> {
        let member = self.member(rank).ok_or(TransferError::Interrupted)?;
        if member.listed != first {
            return Err(TransferError::SenderViolation(crate::SenderViolation::ListGap).into());
        }
        for entry in entries {
            if self.pieces.is_some() {
                self.add_piece(rank, entry)?;
                continue;
            }
            let hashed = [entry.name.as_bytes(), &file_length(&entry).to_le_bytes()].concat();
            self.check_single_name(rank, &entry)?;
            let length = match entry.kind {
                EntryKind::File { length } => Some(length),
                _ => None,
            };
            let Placed { number, is_new } = self.list.add(rank, entry)?;
            let (block, is_settled) = (self.settings.block, self.settled.contains(number.into()));
            let member = self.member_mut(rank).ok_or(TransferError::Interrupted)?;
            member.list_hash.update(&hashed);
            member.listed += 1;
            member.numbers.add(number);
            let own = member.listed - 1;
            if is_settled {
                let files = BlockSet::from_range(own.into(), own.into());
                member.mailbox.send(ReceiverMessage::Settled { files });
                continue;
            }
            member.own_numbers.insert(number, own);
            if let Some(length) = length {
                if is_new {
                    let layout = Layout::new(length, block).map_err(|_| TransferError::Incomplete)?;
                    self.schedule.add_file(number, layout.blocks());
                }
                self.schedule.add_whole_holder(rank, number);
            }
        }
        Ok(())
    }

    /// Checks that all ranks name the same file, if the destination is one file.
    pub(super) fn check_single_name(&self, rank: u16, entry: &Entry) -> Result<(), RankError> {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if !is_file || !self.receiver.takes_single_name() || self.list.entries() != 1 {
            return Ok(());
        }
        let known = self.list.first_name();
        if entry.name.to_string() == known {
            return Ok(());
        }
        let other = self
            .places
            .iter()
            .position(|place| place.list.is_some() || place.member.as_ref().is_some_and(|member| member.listed > 0));
        // A place is below the maximum number of ranks.
        let other = other.unwrap_or_default() as u16;
        Err(RankError::OtherName { rank, name: entry.name.to_string(), other, known: known.to_owned() })
    }

    /// Adds the piece of a rank. The file gets into the common list when all pieces are known.
    pub(super) fn add_piece(&mut self, rank: u16, entry: Entry) -> Result<(), GroupError> {
        let end = file_length(&entry);
        let offset =
            self.places[usize::from(rank)].member.as_ref().and_then(|member| member.offset).unwrap_or_default();
        let member = self.member_mut(rank).ok_or(TransferError::Interrupted)?;
        if member.listed != 0 || !matches!(entry.kind, EntryKind::File { .. }) || end < offset {
            return Err(RankError::PieceOfTree { rank }.into());
        }
        member.listed = 1;
        member.numbers.add(0);
        member.own_numbers.insert(0, 0);
        member.list_hash.update(&end.to_le_bytes());
        member.numbers.set_held(HeldBytes(offset..end));
        let range = PieceRange { rank, start: offset, end };
        let Some(pieces) = &mut self.pieces else { return Ok(()) };
        if pieces.is_joined {
            return match pieces.ranges.iter().find(|known| known.rank == rank) {
                Some(known) if *known == range => {
                    self.hold_piece(range);
                    Ok(())
                }
                _ => Err(RankError::LateEntry { rank, name: entry.name.to_string() }.into()),
            };
        }
        pieces.ranges.push(range);
        pieces.entries.insert(rank, entry);
        Ok(())
    }

    /// Records that a rank holds the blocks of its piece.
    pub(super) fn hold_piece(&mut self, PieceRange { rank, start, end }: PieceRange) {
        if self.settled.contains(0) {
            if let Some(member) = self.member(rank) {
                member.mailbox.send(ReceiverMessage::Settled { files: BlockSet::from_range(0, 0) });
            }
        } else if start < end {
            let block = self.settings.block.0;
            self.schedule.add_holder(rank, 0, start / block, (end - 1) / block, start..end);
        }
    }

    /// Joins the pieces to one file.
    pub(super) fn join_pieces(&mut self) -> Result<(), GroupError> {
        let Some(pieces) = self.pieces.as_mut().filter(|pieces| !pieces.is_joined) else { return Ok(()) };
        let length = joined_length(&pieces.ranges)?;
        // The file has the time of its newest piece, whatever the order in which the ranks came: the journal identifies the
        // version of the file by its time.
        let entries = std::mem::take(&mut pieces.entries);
        let modified = entries.values().map(|entry| entry.modified).max().unwrap_or_default();
        let Some(entry) = entries.into_values().next() else { return Ok(()) };
        let entry = Entry { modified, ..entry };
        pieces.is_joined = true;
        let ranges = pieces.ranges.clone();
        let entry = Entry { kind: EntryKind::File { length: Bytes(length) }, ..entry };
        let layout = Layout::new(Bytes(length), self.settings.block).map_err(|_| TransferError::Incomplete)?;
        self.list.add(ranges.first().map_or(0, |range| range.rank), entry)?;
        self.schedule.add_file(0, layout.blocks());
        ranges.into_iter().for_each(|range| self.hold_piece(range));
        Ok(())
    }

    pub(super) fn complete_list(&mut self, rank: u16, entries: u32) -> Result<(), GroupError> {
        let member = self.member(rank).ok_or(TransferError::Interrupted)?;
        if member.listed != entries {
            return Err(TransferError::SenderViolation(crate::SenderViolation::IncompleteList).into());
        }
        let summary = ListSummary { entries, hash: *member.list_hash.finalize().as_bytes() };
        self.places[usize::from(rank)].list = Some(summary);
        self.schedule.set_listed(rank);
        // A rank that comes late may learn at once that the copy is complete.
        if let Some(end) = self.end.clone() {
            self.report_end(rank, &end);
        }
        Ok(())
    }

    /// Passes listed entries on to the receiver, and the end of the list.
    pub(super) fn pass_list(&mut self, now: Instant) -> Result<(), GroupError> {
        let is_everyone_done = self.places.iter().all(|place| place.list.is_some() || place.is_waived);
        if is_everyone_done && !self.is_list_complete {
            self.join_pieces()?;
        }
        let receiver = &mut self.receiver;
        let (first, entries) = self.list.take(|weight| receiver.has_room(weight));
        if !entries.is_empty() {
            self.receiver.on_message(SenderMessage::List { first, entries }, now)?;
        }
        if is_everyone_done && !self.is_list_complete && self.list.close() {
            self.is_list_complete = true;
            let (entries, bytes) = (self.list.entries(), self.list.bytes());
            let listed = SenderMessage::Listed { entries, bytes, skipped: Default::default() };
            self.receiver.on_message(listed, now)?;
        }
        Ok(())
    }
}
