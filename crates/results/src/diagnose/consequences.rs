//! Consequences and hidden causes: which findings follow from others, and which cannot be seen behind others.

use super::Cause;
use super::Cause::*;

/// Losses of the path by their kinds.
pub(super) const LOSSES: &[Cause] = &[Loss, RandomLoss, LossBursts];
/// Signs of lost packets, whatever lost them.
const LOSS_SIGNS: &[Cause] = &[Loss, RandomLoss, LossBursts, Timeouts, Overshoot, Retransmissions];
/// Signs of a queue that is full.
const QUEUES: &[Cause] = &[Queueing, SharedPath];
/// Signs of a slow start that ends early or takes long.
const START: &[Cause] = &[StartUp, EarlyExit];

impl Cause {
    /// Returns the groups of causes that follow from this one: they are not listed.
    fn consequences(self) -> &'static [&'static [Cause]] {
        match self {
            // A thread without CPU time does not write or read, and its socket shows the symptoms.
            Processor => &[&[SlowWriter, SlowReader, ReceiveWindow, Competing, Outage, StartUp, Jitter, SharedPath]],
            // A receiver that pauses hides the end of slow start.
            SlowReader => &[&[ReceiveWindow, KernelCap, StartUp, LockStep, DelayedAck, Queueing, Overshoot]],
            // A sender without data needs no window: its bytes in flight are not evidence.
            SlowWriter => &[&[SendBuffer, ReceiveWindow, StartUp]],
            // Both ends keep the rate: the sender waits, and the receiver reads no faster.
            ServerLimit => &[&[SlowWriter, SlowReader, ReceiveWindow, SendBuffer]],
            // A sender that waits for an answer has no data to send, and its windows and buffers stay small.
            LockStep => &[START, &[SlowWriter, SendBuffer, KernelCap, CongestionWindow, ReceiveWindow, SmallMtu]],
            // The congestion window does not grow beyond the window or the buffer.
            ReceiveWindow | WindowScaleAbsent | SendBuffer => &[&[EarlyExit]],
            LocalDrops => &[LOSSES, QUEUES, &[Policer, ShortQueue, Shaper, Retransmissions]],
            Competing => &[LOSSES, QUEUES, &[Shaper, Retransmissions, Jitter]],
            // The data in flight is lost, and the streams start slowly again.
            Outage => {
                &[LOSS_SIGNS, &[Jitter, SharedPath, Policer, ReturnPath, CongestionControl, ShortQueue, SlowWriter]]
            }
            Loss | RandomLoss | LossBursts => &[&[Retransmissions, CongestionControl]],
            // A gap of three packets counts as a loss, and each packet has another delay.
            Reordering => &[LOSSES, &[Retransmissions, Jitter, EarlyExit]],
            // HyStart takes a longer delay for a queue.
            Jitter => &[&[EarlyExit, Queueing, Retransmissions]],
            // Other traffic fills the queue, so the queue drops packets at any rate of the test.
            SharedPath => &[LOSSES, &[Queueing, Retransmissions, ReturnPath]],
            EcnMarks => &[&[CongestionControl, Shaper, SharedPath]],
            // The queue of the acknowledgements delays the data, too.
            ReturnPath => &[START, &[Queueing, Shaper, Jitter]],
            // Each end sees the connection to the proxy, and the two ends count different segments.
            Proxy => &[&[ReturnPath, Duplicates, Retransmissions, SlowReader, ReceiveWindow, SharedPath, Jitter]],
            DelayedAck => &[&[StartUp, SlowWriter, SmallMtu]],
            BlackHole => {
                &[LOSSES, &[Timeouts, ShortQueue, StartUp, SilentPeer, Outage, SmallMtu, Retransmissions, SlowWriter]]
            }
            SilentPeer => &[&[Timeouts, RandomLoss, LossBursts, Outage]],
            // Copies look like retransmissions, and missing packets like losses.
            CapturedTwice => &[&[Duplicates]],
            // A bucket drops bursts of packets, and slow start sends more than the bucket holds.
            ShortQueue | Shaper => &[LOSS_SIGNS, QUEUES, &[EarlyExit, CongestionControl]],
            // A policer has no queue: a constant rate without delay is the rate of the policer.
            Policer => &[LOSS_SIGNS, QUEUES, &[EarlyExit, CongestionControl, Shaper]],
            _ => &[],
        }
    }

    /// Returns the causes whose signs this one hides: they may limit the connection once this cause is removed.
    pub(super) fn hides(self) -> &'static [Cause] {
        match self {
            // The path is never full, so its queue and its policer do nothing.
            ReceiveWindow | WindowScaleAbsent | SlowReader => &[Queueing, ShortQueue, Policer, Shaper],
            // Little data is in flight, so no window and no queue is full.
            LockStep | DelayedAck | SlowWriter | StartUp => &[ReceiveWindow, Queueing, Policer, Shaper],
            // The congestion window is small.
            Loss | RandomLoss | LossBursts | Timeouts | Policer | ShortQueue | Reordering | Outage => {
                &[ReceiveWindow, SlowReader, Queueing]
            }
            // A full window over a full queue is queueing.
            Queueing | Shaper | SharedPath | ReturnPath => &[ReceiveWindow, SlowReader],
            IncompleteCapture => &[ReceiveWindow, RandomLoss, Queueing, Policer, LockStep],
            SilentPeer | BlackHole => &[ReceiveWindow, Queueing, Policer],
            _ => &[],
        }
    }

    /// Returns true unless this cause follows from another root cause in `found`. A cause never follows from itself,
    /// not even through other causes.
    pub(crate) fn is_root_cause(self, found: &[Cause]) -> bool {
        let follows_from = |cause: &Cause| cause.consequences().iter().any(|group| group.contains(&self));
        !found.iter().any(|cause| follows_from(cause) && cause.is_root_cause(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::CAUSES;

    #[test]
    fn no_cause_hides_itself() {
        for entry in &CAUSES {
            assert!(!entry.cause.hides().contains(&entry.cause), "{}", entry.name);
        }
    }

    #[test]
    fn a_consequence_does_not_hide_other_causes() {
        let of = |found: &[Cause]| found.iter().copied().filter(|cause| cause.is_root_cause(found)).collect::<Vec<_>>();
        assert_eq!(of(&[SlowReader, KernelCap]), [SlowReader]);
        // The reader is slow because it has no CPU time. This does not explain a small buffer.
        let all = [Processor, SlowReader, KernelCap];
        assert_eq!(of(&all), [Processor, KernelCap]);
        assert_eq!(of(&[Processor, Competing, Loss]), [Processor, Loss]);
    }
}
