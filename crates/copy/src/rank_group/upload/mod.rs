//! The group of the ranks of an upload, owned by one thread.

mod common_list;
mod listing;
mod member;
mod pieces;
mod routing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError};
use std::time::{Duration, Instant};

use lfn_session::SessionError;
use lfn_session::server::metrics::RankTotals;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind};
use lfn_session::wire::copy::ranks::{RankFigures, RankRequest};
use lfn_session::wire::copy::{CopyTally, EntryFailure, FileBlocks, ReceiverMessage, SenderMessage};

use self::common_list::CommonList;
use self::member::{MAX_OUTSTANDING, Member};
use self::pieces::PieceRange;
use super::error::RankError;
use super::event::{Applicant, Event, Seat};
use super::place::Place;
use super::settings::GroupSettings;
use super::{
    CLOSE_TIMEOUT, EMPTY_TIMEOUT, EVENTS_PER_TURN, GroupError, KEEPALIVE_INTERVAL, STATUS_INTERVAL, TICK, late_timeout,
};
use crate::TransferError;
use crate::entry_listener::EntryListener;
use crate::proto::rank_schedule::RankSchedule;
use crate::receiver::{Destination, RankList, Receiver, ReceiverOptions, ReceiverRanks, ReceiverTimeouts};
use crate::role::{CopyResult, Role};
use crate::stream_set::StreamSet;

/// Maximum number of messages that wait until the destination is open.
const MAX_EARLY: usize = 16 << 10;

/// An event of a rank that sends.
pub(super) type UploadEvent = Event<SenderMessage, ReceiverMessage>;

/// A group of ranks that send one copy.
pub(super) struct UploadGroup {
    settings: GroupSettings,
    events: Inbox<UploadEvent>,
    receiver: Receiver,
    places: Vec<Place<Member>>,
    list: CommonList,
    /// The pieces of one file, if the ranks use offsets.
    pieces: Option<Pieces>,
    schedule: RankSchedule,
    /// Message to new ranks, once the destination is open.
    ready: Option<ReceiverMessage>,
    /// Messages that wait until the destination is open.
    early: Vec<(u16, u64, SenderMessage)>,
    /// Entries from this number on wait for the receiver's decision.
    decided_up_to: u32,
    /// Entries with an outcome.
    settled: BlockSet,
    is_list_complete: bool,
    end: Option<Finished>,
    /// Ranks whose sessions ended, until the threads of their streams have ended too.
    leaving: Vec<(u16, Member)>,
    /// Time when blocks were first assigned.
    assigned_since: Option<Instant>,
    next_seat: u64,
    /// The same command was started again after the end.
    is_superseded: bool,
    empty_since: Instant,
    status_at: Instant,
    keepalive_at: Instant,
    /// The part of this group in the counters of the server.
    counted: RankTotals,
}

/// The pieces of one file.
#[derive(Debug, Default)]
struct Pieces {
    /// The entries of the ranks, until the file is in the common list.
    entries: BTreeMap<u16, Entry>,
    ranges: Vec<PieceRange>,
    is_joined: bool,
}

/// The end of a complete copy.
#[derive(Clone, Debug)]
struct Finished {
    tally: CopyTally,
    digest: Option<Digest>,
    result: CopyResult,
    at: Instant,
}

impl UploadGroup {
    pub(super) fn start(
        destination: Destination,
        settings: GroupSettings,
        events: Inbox<UploadEvent>,
    ) -> Result<Self, TransferError> {
        let options = ReceiverOptions {
            transfer: settings.options.transfer.clone(),
            listener: EntryListener::default(),
            since: None,
            block_size: settings.block,
            timeouts: ReceiverTimeouts::default(),
            ranks: ReceiverRanks::Sending,
        };
        let receiver = Receiver::start(destination, options, StreamSet::default())?;
        let now = Instant::now();
        let ranks = settings.request.ranks;
        Ok(UploadGroup {
            places: (0..ranks).map(|_| Place::new(now)).collect(),
            schedule: RankSchedule::new(ranks, settings.request.assignment),
            pieces: settings.request.offset.map(|_| Pieces::default()),
            settings,
            events,
            receiver,
            list: CommonList::default(),
            ready: None,
            early: Vec::new(),
            decided_up_to: 0,
            settled: BlockSet::default(),
            is_list_complete: false,
            end: None,
            leaving: Vec::new(),
            assigned_since: None,
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
        }
        // Threads of the streams may still write.
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let has_streams = |group: &Self| {
            group.members().chain(group.leaving.iter().map(|(_, member)| member)).any(|member| member.streams.len() > 0)
        };
        while self.end.is_none() && has_streams(&self) && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
        self.receiver.close();
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
            for event in events {
                self.handle(event)?;
            }
            let now = Instant::now();
            self.exchange(now)?;
            if self.is_superseded || self.is_over(now) {
                return Ok(());
            }
        }
    }

    /// Returns whether no rank needs this group any more.
    fn is_over(&mut self, now: Instant) -> bool {
        let connected = self.places.iter().any(|place| place.member.is_some());
        if connected {
            self.empty_since = now;
            return false;
        }
        let empty = now.saturating_duration_since(self.empty_since);
        match &self.end {
            // A rank that was given up may still come, and learns that the copy is complete.
            Some(end) if self.places.iter().any(|place| !place.is_done) => {
                now.saturating_duration_since(end.at) >= late_timeout(&self.settings.request)
            }
            Some(_) => true,
            None => empty >= EMPTY_TIMEOUT,
        }
    }

    fn handle(&mut self, event: UploadEvent) -> Result<(), GroupError> {
        match event {
            // The closed channel lets the applicant start the next group.
            Event::Join(applicant) if self.is_of_another_run(&applicant, Instant::now()) => {
                self.is_superseded = true;
                Ok(())
            }
            Event::Join(applicant) => {
                let answer = applicant.answer.clone();
                let seat = self.seat(*applicant).map_err(Refusal::from);
                // The session may have ended meanwhile.
                let _ = answer.send(seat);
                Ok(())
            }
            Event::Message { rank, seat, message } if self.ready.is_none() => {
                if self.early.len() >= MAX_EARLY {
                    self.lose(rank, RankError::TooManyWaiting(MAX_EARLY).into());
                    return Ok(());
                }
                self.early.push((rank, seat, *message));
                Ok(())
            }
            Event::Message { rank, seat, message } if self.has_seat(rank, seat) => self.on_message(rank, *message),
            Event::Left { rank, seat } if self.has_seat(rank, seat) => {
                self.leave(rank);
                Ok(())
            }
            Event::Message { .. } | Event::Left { .. } => Ok(()),
        }
    }

    fn has_seat(&mut self, rank: u16, seat: u64) -> bool {
        self.places.get_mut(usize::from(rank)).is_some_and(|place| place.hear(seat, Instant::now()))
    }

    fn member(&self, rank: u16) -> Option<&Member> {
        self.places.get(usize::from(rank))?.member.as_ref()
    }

    fn member_mut(&mut self, rank: u16) -> Option<&mut Member> {
        self.places.get_mut(usize::from(rank))?.member.as_mut()
    }

    /// Returns whether the copy has ended and the applicant is no rank of it.
    fn is_of_another_run(&self, applicant: &Applicant<ReceiverMessage>, now: Instant) -> bool {
        let Some(end) = &self.end else { return false };
        let is_late = now.saturating_duration_since(end.at) >= late_timeout(&self.settings.request);
        let place = self.places.get(usize::from(applicant.request.rank));
        place.is_none_or(|place| !place.belongs_to_ended_copy(applicant, is_late))
    }

    /// Gives an applicant its place.
    fn seat(&mut self, applicant: Applicant<ReceiverMessage>) -> Result<Seat<ReceiverMessage>, RankError> {
        let (rank, now) = (applicant.request.rank, Instant::now());
        self.settings.check(&applicant)?;
        self.places[usize::from(rank)].check_free(&applicant, now)?;
        self.settings.request.patience = self.settings.request.patience.max(applicant.request.patience);
        self.leave(rank);
        self.finish_leaving(Some(rank));
        let numbers = Arc::new(RankList::default());
        let link = self.receiver.link(applicant.streams.clone(), numbers.clone());
        self.next_seat += 1;
        let member = Member::new(&applicant, link, numbers, now);
        if let Some(ready) = &self.ready {
            member.mailbox.send(ready.clone());
        }
        let seat =
            Seat { number: self.next_seat, mailbox: member.mailbox.clone(), worker: member.link.stream_worker() };
        self.places[usize::from(rank)].sit(member, self.next_seat, &applicant, now);
        if let Some(pieces) = self.pieces.as_mut().filter(|pieces| !pieces.is_joined) {
            pieces.ranges.retain(|range| range.rank != rank);
        }
        Ok(seat)
    }

    /// Handles the end of a rank's session.
    fn leave(&mut self, rank: u16) {
        let Some(member) = self.places[usize::from(rank)].leave(Instant::now()) else { return };
        member.streams.shut_down();
        self.leaving.push((rank, member));
    }

    /// Assigns the blocks of lost ranks again, once no thread writes them any more. Waits for the threads of the rank
    /// `must`.
    fn finish_leaving(&mut self, must: Option<u16>) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let is_waiting = |leaving: &[(u16, Member)]| {
            leaving.iter().any(|(rank, member)| Some(*rank) == must && member.streams.len() > 0)
        };
        while is_waiting(&self.leaving) && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
        let receiver = &self.receiver;
        for (rank, _) in self.leaving.extract_if(.., |(rank, member)| Some(*rank) == must || member.streams.len() == 0)
        {
            self.schedule.lose(rank, |file, blocks| missing(receiver, file, blocks));
        }
    }

    fn on_message(&mut self, rank: u16, message: SenderMessage) -> Result<(), GroupError> {
        let handled = match message {
            SenderMessage::List { first, entries } => self.add_listed(rank, first, entries),
            SenderMessage::Listed { entries, .. } => self.complete_list(rank, entries),
            SenderMessage::Lost { stream, blocks, more, .. } => self.on_stream_lost(rank, stream, blocks, more),
            SenderMessage::Failed(failure) => self.on_failed(rank, failure, false),
            SenderMessage::Changed(failure) => self.on_failed(rank, failure, true),
            SenderMessage::Alive(_)
            | SenderMessage::Sent { .. }
            | SenderMessage::Digest { .. }
            | SenderMessage::Excluded { .. }
            // Messages to ranks that receive.
            | SenderMessage::Appointed { .. }
            | SenderMessage::Open { .. }
            | SenderMessage::Opened { .. }
            | SenderMessage::Stored { .. }
            | SenderMessage::Closed { .. }
            | SenderMessage::Ranks { .. } => Ok(()),
        };
        match handled {
            // A violation of one rank does not end the others.
            Err(GroupError::Transfer(error)) => {
                self.lose(rank, error);
                Ok(())
            }
            Err(GroupError::Ranks(error)) if error.concerns_one_rank() => {
                self.lose(rank, error.into());
                Ok(())
            }
            handled => handled,
        }
    }

    /// Ends the session of one rank with an error.
    fn lose(&mut self, rank: u16, error: TransferError) {
        if let Some(member) = self.member(rank) {
            member.streams.fail(error);
        }
        self.leave(rank);
    }

    fn on_stream_lost(
        &mut self,
        rank: u16,
        stream: u16,
        blocks: Vec<FileBlocks>,
        more: bool,
    ) -> Result<(), GroupError> {
        let settled = &self.settled;
        let Some(member) = self.places[usize::from(rank)].member.as_mut() else { return Ok(()) };
        let common = |FileBlocks { file, blocks }| {
            let file = member.numbers.common(file)?;
            (!settled.contains(file.into())).then_some(FileBlocks { file, blocks })
        };
        let blocks = blocks.into_iter().filter_map(common).collect();
        member.link.on_stream_lost(stream, blocks, more)?;
        Ok(())
    }

    /// Handles an entry that a rank cannot send. Another rank may have the entry.
    fn on_failed(&mut self, rank: u16, failure: EntryFailure, is_changed: bool) -> Result<(), GroupError> {
        let now = Instant::now();
        let Some(own) = failure.file else {
            return Ok(self.receiver.on_message(SenderMessage::Failed(failure), now)?);
        };
        let common = self.member(rank).and_then(|member| member.numbers.common(own));
        let Some(file) = common.filter(|file| !self.settled.contains(u64::from(*file))) else { return Ok(()) };
        let receiver = &self.receiver;
        self.schedule.lose_file(rank, file, |file, blocks| missing(receiver, file, blocks));
        if let Some(member) = self.member_mut(rank) {
            member.own_numbers.remove(&file);
        }
        let failure = EntryFailure { file: Some(file), ..failure };
        let message = if is_changed {
            SenderMessage::Changed(failure)
        } else if self.schedule.is_held(file) {
            return Ok(());
        } else {
            SenderMessage::Failed(failure)
        };
        Ok(self.receiver.on_message(message, now)?)
    }

    /// The periodic work: messages between the receiver and the ranks, the list, absent ranks, and new blocks.
    fn exchange(&mut self, now: Instant) -> Result<(), GroupError> {
        for message in self.receiver.take_messages(now) {
            self.route(message, now)?;
        }
        if let Some(error) = self.receiver.streams().take_error() {
            return Err(error.into());
        }
        for place in &mut self.places {
            let Some(member) = &mut place.member else { continue };
            for message in self.receiver.poll_link(&mut member.link, now) {
                member.send_own(message);
            }
        }
        self.finish_leaving(None);
        if self.end.is_none() {
            self.pass_list(now)?;
            self.check_absent(now)?;
            self.assign(now);
        }
        let interval = now.saturating_duration_since(self.status_at);
        if interval >= STATUS_INTERVAL {
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
                member.mailbox.send(ReceiverMessage::Ranks { figures: figures.clone(), digest: None });
            }
        }
        Ok(())
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().filter_map(|place| place.member.as_ref())
    }

    /// Returns the figures of all ranks: with the goodput since the last call, or with that of the whole time.
    fn figures(&mut self, interval: Option<Duration>, now: Instant) -> RankFigures {
        let time = self.assigned_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let places = self.places.iter_mut().zip(0..);
        let ranks = places.map(|(place, rank)| match interval {
            Some(interval) => place.status(rank, interval),
            None => place.final_status(rank, time),
        });
        RankFigures { ranks: ranks.collect(), time, totals: self.receiver.listed() }
    }

    /// Does without ranks that stay away, or gives the copy up.
    fn check_absent(&mut self, now: Instant) -> Result<(), GroupError> {
        let RankRequest { ranks, patience, .. } = self.settings.request;
        let needed = self.schedule.needed_rank();
        for rank in 0..ranks {
            let place = &self.places[usize::from(rank)];
            let waited = now.saturating_duration_since(place.absent_since);
            if place.member.is_some() || waited < patience || place.is_waived {
                continue;
            }
            let is_needed = place.list.is_none() && !self.is_list_known();
            if is_needed || needed == Some(rank) {
                let was_there = place.was_there();
                return Err(RankError::Missing { rank, ranks, was_there, waited }.into());
            }
            if place.list.is_none() {
                self.places[usize::from(rank)].is_waived = true;
            }
            self.schedule.release(rank);
        }
        Ok(())
    }

    /// Returns whether the lists so far show that a rank without a list would add nothing.
    fn is_list_known(&self) -> bool {
        let mut lists = self.places.iter().filter_map(|place| place.list);
        let Some(first) = lists.next().filter(|_| self.pieces.is_none()) else { return false };
        let mut others = lists.peekable();
        let is_single_file = self.receiver.takes_single_name() && first.entries == 1;
        (is_single_file || others.peek().is_some()) && others.all(|list| list == first)
    }

    /// Assigns blocks to the ranks that are ready for them.
    fn assign(&mut self, now: Instant) {
        // The planner does not know the name of a single file before the list is complete.
        if self.receiver.takes_single_name() && !self.is_list_complete {
            return;
        }
        let connected = self.members().count() as u64;
        // More than all ranks together may have.
        let mut left = self.schedule.unassigned_up_to(connected * MAX_OUTSTANDING);
        for rank in 0..self.settings.request.ranks {
            let Some(member) = self.places[usize::from(rank)].member.as_mut() else { continue };
            // Each rank gets an equal share of the last blocks, so that all end at the same time.
            let room = member.room(now).min(left.div_ceil(connected));
            if room == 0 {
                continue;
            }
            let assigned = self.schedule.assign(rank, room, self.decided_up_to);
            if assigned.is_empty() {
                continue;
            }
            left = left.saturating_sub(assigned.len());
            self.assigned_since.get_or_insert(now);
            member.assigned += assigned.len();
            let files = member.own_set(&assigned.files);
            let blocks = member.own_blocks(assigned.blocks);
            member.mailbox.set_has_work(true);
            member.mailbox.send(ReceiverMessage::Assign { files, blocks });
        }
    }
}

fn file_length(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::File { length } => length.0,
        _ => 0,
    }
}

/// Returns those of `blocks` that have not arrived. All of them, if the receiver does not know the file.
fn missing(receiver: &Receiver, file: u32, blocks: &BlockSet) -> BlockSet {
    receiver.missing_blocks(file, blocks).unwrap_or_else(|_| blocks.clone())
}
