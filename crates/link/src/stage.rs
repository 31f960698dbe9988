//! Stages of a link: the part that packets see, and the part that settings see.

use std::time::Duration;

use lfn_base::time::Instant;

use super::hop_context::HopContext;
use super::packet::{LinkEvent, LinkStats, Packet};

/// Part of a link that packets pass. A stage receives packets in order of time and returns events in order of time.
pub trait Stage {
    /// Accepts a packet that arrives at `now`.
    ///
    /// `now` is never earlier than the previous arrival. It may be earlier than the last `pop`, because a caller that
    /// takes timestamps at the point of arrival reports an arrival a little later. The stage then handles the packet as
    /// of `now`, as far as it still can.
    fn push(&mut self, packet: Packet, now: Instant);

    /// Returns the next event that happened at or before `now`.
    fn pop(&mut self, now: Instant) -> Option<LinkEvent>;

    /// Returns the time of the next event if no packet is pushed; `None` if the stage is empty.
    fn next_event_at(&self) -> Option<Instant>;

    /// Returns the minimum time that a packet spends in this stage.
    fn min_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Adds the figures that only this stage knows to the statistics of the link.
    fn add_stats(&self, _stats: &mut LinkStats) {}
}

/// Stage with settings. The stage knows its own settings and nothing of the other stages.
pub(super) trait ImpairmentStage: Stage + Sized {
    /// Settings of this stage. Their default has no effect, except for the line.
    type Settings;

    /// Creates an empty stage.
    fn new(settings: Self::Settings, context: &HopContext) -> Self;

    /// Applies new settings from `now` on. Packets that are already in the stage continue as far as possible.
    fn set(&mut self, settings: Self::Settings, context: &HopContext, now: Instant);
}
