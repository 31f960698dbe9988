//! The group of the ranks of a download, owned by one thread.
//!
//! The group has one sender, the same as for any other copy. The session of the lead has its list and its messages. The
//! streams of all ranks take blocks from its schedule.

mod member;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError};
use std::time::{Duration, Instant};

use lfn_session::SessionError;
use lfn_session::server::metrics::RankTotals;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::ranks::{BlockAssignment, RankFigures};
use lfn_session::wire::copy::{CopyTally, ReceiverMessage, SenderMessage, SharedFileId, StoredBlock};

use self::member::ReceivingMember;
use super::error::RankError;
use super::event::{Applicant, Event, Seat};
use super::place::{Place, TAKEOVER_TIMEOUT};
use super::settings::GroupSettings;
use super::{
    CLOSE_TIMEOUT, EMPTY_TIMEOUT, EVENTS_PER_TURN, GroupError, KEEPALIVE_INTERVAL, STATUS_INTERVAL, TICK, late_timeout,
};
use crate::TransferError;
use crate::role::{CopyResult, Role};
use crate::sender::{Listing, Sender, SharedFile, Source};
use crate::stream_set::StreamSet;

/// An event of a rank that receives.
pub(super) type DownloadEvent = Event<ReceiverMessage, SenderMessage>;

/// The sources of a download, open.
#[derive(Debug)]
pub(crate) struct DownloadSources {
    pub(crate) sources: Vec<Source>,
    pub(crate) listing: Listing,
}

/// A group of ranks that receive one copy.
pub(super) struct DownloadGroup {
    settings: GroupSettings,
    events: Inbox<DownloadEvent>,
    sender: Sender,
    places: Vec<Place<ReceivingMember>>,
    /// The rank that plans the copy, once it is appointed.
    lead: Option<u16>,
    /// The files that the lead has opened for all ranks and has not settled.
    opened: BTreeMap<u32, OpenedFile>,
    /// At least one file was opened for all ranks.
    opened_any: bool,
    end: Option<Finished>,
    started: Instant,
    /// Time when the lead was appointed.
    sent_since: Option<Instant>,
    /// Ranks whose sessions ended, until the threads of their streams have ended too.
    leaving: Vec<ReceivingMember>,
    next_seat: u64,
    /// The same command was started again after the end.
    is_superseded: bool,
    empty_since: Instant,
    status_at: Instant,
    keepalive_at: Instant,
    /// The part of this group in the counters of the server.
    counted: RankTotals,
}

/// A file that the lead has opened.
#[derive(Debug)]
struct OpenedFile {
    file: SharedFile,
    identity: SharedFileId,
}

/// The end of a complete copy.
#[derive(Clone, Debug)]
struct Finished {
    tally: CopyTally,
    result: CopyResult,
    at: Instant,
}

impl DownloadGroup {
    pub(super) fn start(
        ranked: DownloadSources,
        settings: GroupSettings,
        events: Inbox<DownloadEvent>,
    ) -> Result<Self, TransferError> {
        let sender = Sender::start(ranked.sources, ranked.listing, settings.block, StreamSet::default())?;
        let now = Instant::now();
        Ok(DownloadGroup {
            places: (0..settings.request.ranks).map(|_| Place::new(now)).collect(),
            settings,
            events,
            sender,
            lead: None,
            opened: BTreeMap::new(),
            opened_any: false,
            end: None,
            started: now,
            sent_since: None,
            leaving: Vec::new(),
            next_seat: 0,
            is_superseded: false,
            empty_since: now,
            status_at: now,
            keepalive_at: now,
            counted: RankTotals::default(),
        })
    }

    /// Runs the copy until its end. Returns the group, whose channel is still open.
    pub(super) fn run(mut self) -> Self {
        if let Err(error) = self.run_to_end() {
            let refusal = error.refusal();
            self.members().for_each(|member| member.streams.fail(SessionError::Refused(refusal.clone()).into()));
            // A rank that is stopped now writes no more blocks after this time (`RankWriter`). Before, no other group may
            // complete the file.
            if self.opened_any {
                std::thread::sleep(TAKEOVER_TIMEOUT);
            }
        }
        let figures = self.figures(None, Instant::now());
        self.count(RankTotals { bytes: figures.bytes().0, ..RankTotals::default() });
        self
    }

    /// Updates the counters of the server.
    fn count(&mut self, totals: RankTotals) {
        self.settings.counters.update(self.counted, totals);
        self.counted = totals;
    }

    fn run_to_end(&mut self) -> Result<(), GroupError> {
        loop {
            let first = match self.events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let more = std::iter::from_fn(|| self.events.try_recv().ok());
            let events: Vec<_> = first.into_iter().chain(more).take(EVENTS_PER_TURN).collect();
            let now = Instant::now();
            for event in events {
                self.handle(event, now)?;
            }
            self.exchange(now)?;
            if self.is_superseded || self.is_over(now) {
                return Ok(());
            }
        }
    }

    /// Returns whether no rank needs this group any more.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.members().next().is_some() {
            self.empty_since = now;
            return false;
        }
        match &self.end {
            // A rank that comes late learns that the copy is complete.
            Some(end) if self.places.iter().any(|place| !place.is_done) => {
                now.saturating_duration_since(end.at) >= late_timeout(&self.settings.request)
            }
            Some(_) => true,
            None => now.saturating_duration_since(self.empty_since) >= EMPTY_TIMEOUT,
        }
    }

    fn handle(&mut self, event: DownloadEvent, now: Instant) -> Result<(), GroupError> {
        match event {
            // The closed channel lets the applicant start the next group.
            Event::Join(applicant) if self.is_of_another_run(&applicant, now) => {
                self.is_superseded = true;
                Ok(())
            }
            Event::Join(applicant) => {
                let answer = applicant.answer.clone();
                // The session may have ended meanwhile.
                let _ = answer.send(self.seat(*applicant, now)?.map_err(Refusal::from));
                Ok(())
            }
            Event::Message { rank, seat, message } if self.hear(rank, seat, now) => {
                self.on_message(rank, *message, now)
            }
            Event::Left { rank, seat } if self.hear(rank, seat, now) => self.leave(rank, now),
            Event::Message { .. } | Event::Left { .. } => Ok(()),
        }
    }

    fn hear(&mut self, rank: u16, seat: u64, now: Instant) -> bool {
        self.places.get_mut(usize::from(rank)).is_some_and(|place| place.hear(seat, now))
    }

    fn member(&self, rank: u16) -> Option<&ReceivingMember> {
        self.places.get(usize::from(rank))?.member.as_ref()
    }

    fn members(&self) -> impl Iterator<Item = &ReceivingMember> {
        self.places.iter().filter_map(|place| place.member.as_ref())
    }

    /// Returns whether the copy has ended and the applicant is no rank of it.
    fn is_of_another_run(&self, applicant: &Applicant<SenderMessage>, now: Instant) -> bool {
        let Some(end) = &self.end else { return false };
        let is_late = now.saturating_duration_since(end.at) >= late_timeout(&self.settings.request);
        let place = self.places.get(usize::from(applicant.request.rank));
        place.is_none_or(|place| !place.belongs_to_ended_copy(applicant, is_late))
    }

    /// Gives an applicant its place.
    fn seat(
        &mut self,
        applicant: Applicant<SenderMessage>,
        now: Instant,
    ) -> Result<Result<Seat<SenderMessage>, RankError>, GroupError> {
        let rank = applicant.request.rank;
        let checked = self.settings.check(&applicant);
        if let Err(error) = checked.and_then(|()| self.places[usize::from(rank)].check_free(&applicant, now)) {
            return Ok(Err(error));
        }
        self.settings.request.patience = self.settings.request.patience.max(applicant.request.patience);
        self.leave(rank, now)?;
        self.next_seat += 1;
        let member = ReceivingMember::new(self.sender.link(applicant.streams.clone()), applicant.streams.clone());
        let seat =
            Seat { number: self.next_seat, mailbox: member.mailbox.clone(), worker: member.link.stream_worker() };
        if self.lead.is_some() {
            member.mailbox.send(SenderMessage::Appointed { is_lead: false });
            self.opened.iter().for_each(|(number, opened)| member.mailbox.send(opened.message(*number)));
        }
        self.places[usize::from(rank)].sit(member, self.next_seat, &applicant, now);
        self.update_shares(now);
        if let Some(end) = self.end.clone() {
            self.report_end(rank, &end);
        }
        Ok(Ok(seat))
    }

    /// Handles the end of a rank's session.
    fn leave(&mut self, rank: u16, now: Instant) -> Result<(), GroupError> {
        let Some(member) = self.places[usize::from(rank)].leave(now) else { return Ok(()) };
        member.streams.shut_down();
        self.leaving.push(member);
        if self.lead == Some(rank) && self.end.is_none() {
            // The next group appoints a lead again, which resumes from the journal.
            return Err(RankError::LostLead { rank }.into());
        }
        Ok(())
    }

    /// Gives the blocks of lost ranks to the others, once no thread sends them any more.
    fn finish_leaving(&mut self) {
        for member in self.leaving.extract_if(.., |member| member.streams.len() == 0) {
            member.link.return_unstored();
        }
    }

    fn on_message(&mut self, rank: u16, message: ReceiverMessage, now: Instant) -> Result<(), GroupError> {
        if let Some(member) = self.member(rank) {
            member.link.on_stream_message(&message, now);
        }
        if self.lead == Some(rank) {
            return self.on_lead_message(message, now);
        }
        let Err(error) = self.on_writer_message(rank, message) else { return Ok(()) };
        // A violation of one rank does not end the others.
        if let Some(member) = self.member(rank) {
            member.streams.fail(error);
        }
        self.leave(rank, now)
    }

    fn on_lead_message(&mut self, message: ReceiverMessage, now: Instant) -> Result<(), GroupError> {
        match message {
            ReceiverMessage::Opened { file, identity } => {
                let Some(shared) = self.sender.set_opened(file) else { return Ok(()) };
                let opened = OpenedFile { file: shared, identity };
                self.writers().for_each(|member| member.mailbox.send(opened.message(file)));
                self.opened.insert(file, opened);
                self.opened_any = true;
            }
            // Handled as messages about streams, or as proofs of life.
            ReceiverMessage::Received { .. } | ReceiverMessage::Broken { .. } | ReceiverMessage::Alive(_) => {}
            ReceiverMessage::Done { tally, .. } => {
                self.sender.on_message(message, now)?;
                let Some(result) = self.sender.result() else { return Ok(()) };
                let end = Finished { tally, result, at: now };
                (0..self.settings.request.ranks).for_each(|rank| self.report_end(rank, &end));
                self.end = Some(end);
            }
            message => {
                match &message {
                    ReceiverMessage::Settled { files } => self.close_files(files),
                    ReceiverMessage::Failed(failure) => {
                        let file = failure.file.map(u64::from);
                        self.close_files(&file.map_or_else(BlockSet::default, |file| BlockSet::from_range(file, file)));
                    }
                    _ => {}
                }
                self.sender.on_message(message, now)?;
            }
        }
        Ok(())
    }

    /// Lets all ranks close files that the lead has settled.
    fn close_files(&mut self, files: &BlockSet) {
        let mut closed = BlockSet::default();
        self.opened.retain(|number, _| {
            let is_open = !files.contains((*number).into());
            if !is_open {
                closed.insert((*number).into());
            }
            is_open
        });
        if !closed.is_empty() {
            self.writers().for_each(|member| member.mailbox.send(SenderMessage::Closed { files: closed.clone() }));
        }
    }

    fn on_writer_message(&self, rank: u16, message: ReceiverMessage) -> Result<(), TransferError> {
        let Some(member) = self.member(rank) else { return Ok(()) };
        match message {
            ReceiverMessage::Stored { file, blocks } => {
                let mut reported = BlockSet::default();
                blocks.iter().for_each(|block| _ = reported.insert(block.index));
                let stored = member.link.record_stored(file, &reported);
                let is_stored = |block: &StoredBlock| stored.contains(block.index);
                let blocks: Vec<_> = blocks.into_iter().filter(is_stored).collect();
                if let Some(lead) = self.lead.and_then(|lead| self.member(lead)).filter(|_| !blocks.is_empty()) {
                    lead.mailbox.send(SenderMessage::Stored { file, blocks });
                }
                Ok(())
            }
            ReceiverMessage::Resend { file, index } => member.link.resend(file, index),
            _ => Ok(()),
        }
    }

    /// Returns the connected ranks that write into the files of the lead.
    fn writers(&self) -> impl Iterator<Item = &ReceivingMember> {
        let lead = self.lead;
        let others = self.places.iter().zip(0..).filter(move |(_, rank)| lead.is_some_and(|lead| lead != *rank));
        others.filter_map(|(place, _)| place.member.as_ref())
    }

    /// The periodic work: messages between the sender and the lead, files to open, and the shares of the ranks.
    fn exchange(&mut self, now: Instant) -> Result<(), GroupError> {
        if let Some(error) = self.sender.streams().take_error() {
            return Err(error.into());
        }
        for member in self.members() {
            member.link.poll(now);
            member.mailbox.set_has_work(member.streams.has_unacked_blocks());
        }
        self.finish_leaving();
        if self.end.is_none() {
            self.update_shares(now);
            self.appoint(now);
            self.send_to_lead(now);
        }
        self.report_figures(now);
        Ok(())
    }

    /// Appoints the lead: rank 0, or the lowest rank if rank 0 stays away.
    fn appoint(&mut self, now: Instant) {
        if self.lead.is_some() {
            return;
        }
        let is_patient = now.saturating_duration_since(self.started) < self.settings.request.patience;
        let connected = self.places.iter().position(|place| place.member.is_some());
        let Some(lead) = connected.filter(|lead| *lead == 0 || !is_patient) else { return };
        for (place, rank) in self.places.iter().zip(0..) {
            let Some(member) = &place.member else { continue };
            let is_lead = rank == lead;
            if is_lead {
                member.link.set_lead();
            }
            member.mailbox.send(SenderMessage::Appointed { is_lead });
        }
        // A place is below the maximum number of ranks.
        self.lead = Some(lead as u16);
        self.sent_since = Some(now);
    }

    /// Sends the list and the other messages of the sender to the lead, and requests open files.
    fn send_to_lead(&mut self, now: Instant) {
        let Some(lead) = self.lead else { return };
        let Some(mailbox) = self.member(lead).map(|member| member.mailbox.clone()) else { return };
        // Otherwise the messages wait in the sender, which stops to list.
        if mailbox.is_empty() {
            self.sender.take_messages(now).into_iter().for_each(|message| mailbox.send(message));
        }
        if self.writers().next().is_some() {
            let next = || self.sender.next_file_to_open();
            std::iter::from_fn(next).for_each(|file| mailbox.send(SenderMessage::Open { file }));
        }
    }

    /// Updates the blocks that each rank may get, if the blocks are staggered. Those of a rank that stays away may go to any.
    fn update_shares(&mut self, now: Instant) {
        if self.settings.request.assignment != BlockAssignment::Staggered {
            return;
        }
        let patience = self.settings.request.patience;
        let is_away = |place: &Place<ReceivingMember>| {
            place.member.is_none() && now.saturating_duration_since(place.absent_since) >= patience
        };
        let away: Vec<bool> = self.places.iter().map(is_away).collect();
        for (rank, place) in self.places.iter().enumerate() {
            let Some(member) = &place.member else { continue };
            let mut own = away.clone();
            own[rank] = true;
            member.link.set_staggered(own);
        }
    }

    fn report_figures(&mut self, now: Instant) {
        let interval = now.saturating_duration_since(self.status_at);
        if interval < STATUS_INTERVAL {
            return;
        }
        self.status_at = now;
        let figures = self.figures(Some(interval), now);
        let absent = figures.absent().count() as u64;
        let (connected, bytes) = (figures.ranks.len() as u64 - absent, figures.bytes().0);
        self.count(RankTotals { copies: 1, connected, absent, bytes });
        let is_for_all = now.saturating_duration_since(self.keepalive_at) >= KEEPALIVE_INTERVAL;
        if is_for_all {
            self.keepalive_at = now;
        }
        for (place, rank) in self.places.iter().zip(0..) {
            let Some(member) = place.member.as_ref().filter(|_| rank == 0 || is_for_all) else { continue };
            member.mailbox.send(SenderMessage::Ranks { figures: figures.clone(), digest: None, tally: None });
        }
    }

    /// Returns the figures of all ranks: with the goodput since the last call, or with that of the whole time.
    fn figures(&mut self, interval: Option<Duration>, now: Instant) -> RankFigures {
        let time = self.sent_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let places = self.places.iter_mut().zip(0..);
        let ranks = places.map(|(place, rank)| match interval {
            Some(interval) => place.status(rank, interval),
            None => place.final_status(rank, time),
        });
        RankFigures { ranks: ranks.collect(), time, totals: self.sender.listed() }
    }

    /// Reports the end of the copy to a rank.
    fn report_end(&mut self, rank: u16, end: &Finished) {
        let figures = self.figures(None, end.at);
        let place = &mut self.places[usize::from(rank)];
        let Some(member) = &place.member else { return };
        let last = SenderMessage::Ranks { figures, digest: end.result.digest, tally: Some(end.tally) };
        member.mailbox.finish([last], end.result.clone());
        place.is_done = true;
    }
}

impl OpenedFile {
    fn message(&self, file: u32) -> SenderMessage {
        let SharedFile { name, length } = self.file.clone();
        SenderMessage::Opened { file, name, bytes: length, identity: self.identity.clone() }
    }
}

impl Drop for DownloadGroup {
    /// Waits for the threads of the streams, which read the sources.
    fn drop(&mut self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let has_streams = |group: &Self| group.members().chain(&group.leaving).any(|member| member.streams.len() > 0);
        while self.end.is_none() && has_streams(self) && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
    }
}
