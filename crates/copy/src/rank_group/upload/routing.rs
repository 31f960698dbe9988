//! Messages of the receiver, and the ranks that each of them concerns.

use std::time::Instant;

use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::{EntryFailure, ReceiverMessage};

use super::{Finished, UploadGroup};
use crate::rank_group::GroupError;
use crate::rank_group::error::RankError;
use crate::role::Role;

impl UploadGroup {
    /// Passes a message of the receiver on to the ranks that it concerns.
    pub(super) fn route(&mut self, message: ReceiverMessage, now: Instant) -> Result<(), GroupError> {
        match message {
            ReceiverMessage::Ready { path, started_at, .. } => {
                // A rank waits for its blocks anyway, and no rank is on this host.
                let ready = ReceiverMessage::Ready { path, on_request: false, started_at, destination: None };
                self.members().for_each(|member| member.mailbox.send(ready.clone()));
                self.ready = Some(ready);
                for (rank, seat, message) in std::mem::take(&mut self.early) {
                    if self.has_seat(rank, seat) {
                        self.on_message(rank, message)?;
                    }
                }
            }
            ReceiverMessage::Request { up_to } => self.decided_up_to = self.decided_up_to.max(up_to),
            ReceiverMessage::Have { file, blocks } => self.schedule.skip(file, &blocks),
            ReceiverMessage::Resend { file, index } => self.schedule.repeat(file, index),
            ReceiverMessage::Settled { files } => self.settle(&files),
            ReceiverMessage::Failed(failure) => self.pass_failure(&failure),
            ReceiverMessage::Events { entries } => {
                if let Some(member) = self.members().next() {
                    member.mailbox.send(ReceiverMessage::Events { entries });
                }
            }
            ReceiverMessage::Done { tally, .. } => {
                let Some(result) = self.receiver.result() else { return Ok(()) };
                let end = Finished { tally, digest: self.receiver.digest(), result, at: now };
                for rank in 0..self.settings.request.ranks {
                    self.report_end(rank, &end);
                }
                self.end = Some(end);
            }
            ReceiverMessage::Digests { .. } | ReceiverMessage::Send { .. } => {
                return Err(RankError::Unsupported("--checksum").into());
            }
            // Messages about the streams, of which the receiver itself has none.
            ReceiverMessage::Received { .. }
            | ReceiverMessage::Broken { .. }
            | ReceiverMessage::Missing { .. }
            | ReceiverMessage::Alive(_)
            | ReceiverMessage::Assign { .. }
            | ReceiverMessage::Opened { .. }
            | ReceiverMessage::Stored { .. }
            | ReceiverMessage::Ranks { .. } => {}
        }
        Ok(())
    }

    pub(super) fn settle(&mut self, files: &BlockSet) {
        self.settled.union(files);
        for (first, last) in files.ranges() {
            // Entry numbers are u32.
            (first..=last).for_each(|file| self.schedule.settle(file as u32));
        }
        for place in &mut self.places {
            let Some(member) = &mut place.member else { continue };
            let own = member.own_set(files);
            if !own.is_empty() {
                member.mailbox.send(ReceiverMessage::Settled { files: own });
            }
            for (first, last) in files.ranges() {
                (first..=last).for_each(|file| _ = member.own_numbers.remove(&(file as u32)));
            }
        }
    }

    /// Reports a failure of the receiver to the ranks that hold the entry, or to one rank.
    pub(super) fn pass_failure(&self, failure: &EntryFailure) {
        let Some(file) = failure.file else {
            if let Some(member) = self.members().next() {
                member.mailbox.send(ReceiverMessage::Failed(failure.clone()));
            }
            return;
        };
        for member in self.members() {
            if let Some(own) = member.own_numbers.get(&file) {
                member.mailbox.send(ReceiverMessage::Failed(EntryFailure { file: Some(*own), ..failure.clone() }));
            }
        }
    }

    /// Reports the end of the copy to a rank, if the rank is there and has listed everything.
    pub(super) fn report_end(&mut self, rank: u16, end: &Finished) {
        let figures = self.figures(None, end.at);
        let place = &mut self.places[usize::from(rank)];
        let Some(member) = place.member.as_ref().filter(|_| place.list.is_some()) else { return };
        let progress = Box::new(member.streams.progress());
        member.mailbox.finish(
            [
                ReceiverMessage::Ranks { figures, digest: end.digest },
                ReceiverMessage::Done { progress, tally: end.tally },
            ],
            end.result.clone(),
        );
        place.is_done = true;
    }
}
