//! The place of one rank in its group, whether the rank is connected or not.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_session::SessionId;
use lfn_session::wire::copy::ranks::{RankState, RankStatus};

use super::error::RankError;
use super::event::Applicant;
use crate::stream_set::StreamSet;

/// Time without a message after which another process may replace a rank. A rank sends a message each second.
pub(super) const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// The place of a rank, whether it is connected or not.
#[derive(Debug)]
pub(super) struct Place<M> {
    pub(super) member: Option<M>,
    /// Since when the rank is absent. Ignored while it is connected.
    pub(super) absent_since: Instant,
    address: Option<IpAddr>,
    /// The seat of the present or last member.
    seat: u64,
    /// The client process of this member.
    copy: Option<SessionId>,
    /// Time of the last message of this member.
    last_heard: Instant,
    sessions: u32,
    bytes_before: u64,
    /// The list of the rank, once it was complete.
    pub(super) list: Option<ListSummary>,
    /// The others do without the list of this rank.
    pub(super) is_waived: bool,
    /// The rank knows the end of the copy.
    pub(super) is_done: bool,
    last_bytes: u64,
}

/// Length and hash of a complete list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListSummary {
    pub(super) entries: u32,
    pub(super) hash: [u8; 32],
}

impl<M: AsRef<StreamSet>> Place<M> {
    pub(super) fn new(now: Instant) -> Self {
        Place {
            member: None,
            absent_since: now,
            address: None,
            seat: 0,
            copy: None,
            last_heard: now,
            sessions: 0,
            bytes_before: 0,
            list: None,
            is_waived: false,
            is_done: false,
            last_bytes: 0,
        }
    }

    /// Gives the place to a new member.
    pub(super) fn sit<O>(&mut self, member: M, seat: u64, applicant: &Applicant<O>, now: Instant) {
        self.leave(now);
        self.member = Some(member);
        self.address = Some(applicant.address);
        self.seat = seat;
        self.copy = Some(applicant.copy);
        self.last_heard = now;
        self.sessions += 1;
    }

    /// Returns whether the member with this seat is connected. Its message or its end is handled now.
    pub(super) fn hear(&mut self, seat: u64, now: Instant) -> bool {
        let is_present = self.member.is_some() && self.seat == seat;
        if is_present {
            self.last_heard = now;
        }
        is_present
    }

    /// Returns whether the applicant belongs to the copy of this group, which has ended. Another run of the same command needs
    /// a group of its own. `is_late` if a rank that has not seen the end can no longer be one of this copy.
    pub(super) fn belongs_to_ended_copy<O>(&self, applicant: &Applicant<O>, is_late: bool) -> bool {
        self.copy == Some(applicant.copy) || (!self.is_done && !is_late)
    }

    /// Checks that the applicant may have this place.
    ///
    /// # Errors
    /// [`RankError::Duplicate`] if another process has it.
    pub(super) fn check_free<O>(&self, applicant: &Applicant<O>, now: Instant) -> Result<(), RankError> {
        let is_alive = now.saturating_duration_since(self.last_heard) < TAKEOVER_TIMEOUT;
        if self.member.is_some() && self.copy != Some(applicant.copy) && is_alive {
            let address = self.address().unwrap_or_default();
            return Err(RankError::Duplicate { rank: applicant.request.rank, address });
        }
        Ok(())
    }

    /// Removes the member, if there is one.
    pub(super) fn leave(&mut self, now: Instant) -> Option<M> {
        let member = self.member.take()?;
        self.bytes_before += member.as_ref().progress().bytes.0;
        self.absent_since = now;
        Some(member)
    }

    pub(super) fn was_there(&self) -> bool {
        self.sessions > 0
    }

    pub(super) fn address(&self) -> Option<String> {
        self.address.map(|address| address.to_canonical().to_string())
    }

    /// Returns the figures of the rank, `interval` after the last call.
    pub(super) fn status(&mut self, rank: u16, interval: Duration) -> RankStatus {
        let now = self.member.as_ref().map_or(0, |member| member.as_ref().progress().bytes.0);
        let bytes = self.bytes_before + now;
        let moved = bytes - std::mem::replace(&mut self.last_bytes, bytes);
        self.status_with(rank, bytes, Bytes(moved).per(interval))
    }

    /// Returns the figures of the rank at the end of a copy that took `time`.
    pub(super) fn final_status(&self, rank: u16, time: Duration) -> RankStatus {
        let now = self.member.as_ref().map_or(0, |member| member.as_ref().progress().bytes.0);
        let bytes = self.bytes_before + now;
        self.status_with(rank, bytes, Bytes(bytes).per(time))
    }

    fn status_with(&self, rank: u16, bytes: u64, goodput: BitRate) -> RankStatus {
        RankStatus {
            rank,
            state: match (&self.member, self.sessions) {
                (Some(_), _) => RankState::Connected,
                (None, 0) => RankState::Absent,
                (None, _) => RankState::Lost,
            },
            address: self.address(),
            bytes: Bytes(bytes),
            streams: self.member.as_ref().map_or(0, |member| u16::try_from(member.as_ref().len()).unwrap_or(u16::MAX)),
            reconnects: self.sessions.saturating_sub(1),
            goodput,
        }
    }
}
