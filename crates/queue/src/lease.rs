//! The lease of a part. A task on the thread of the client renews it until the mover ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::{AckKind, Message};
use tokio::sync::oneshot;

use crate::proto::lease_timer::{LeaseAction, LeaseTimer};

/// Maximum time between two looks at the state of the copy.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// The right to copy a part. A lease that is dropped goes back to the queue.
#[derive(Debug)]
pub struct Lease {
    part: u32,
    deliveries: u64,
    watch: LeaseWatch,
    end: Option<oneshot::Sender<AckKind>>,
}

/// Connects the copy of a part with its lease, from any thread.
#[derive(Clone, Debug)]
pub struct LeaseWatch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// Milliseconds from the start to the last sign of life of the copy.
    alive: AtomicU64,
    is_lost: Arc<AtomicBool>,
}

impl Lease {
    /// Starts the task that renews the lease of a message. The task runs on the present runtime.
    pub(crate) fn start(message: Message, part: u32, lease: Duration) -> Self {
        let shared = Shared { start: Instant::now(), alive: AtomicU64::new(0), is_lost: Arc::default() };
        let watch = LeaseWatch(Arc::new(shared));
        let deliveries = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
        let (end, ended) = oneshot::channel();
        tokio::spawn(hold(message, lease, watch.clone(), ended));
        Lease { part, deliveries, watch, end: Some(end) }
    }

    /// Returns the number of the part.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Returns how often the queue has delivered this part, with this time.
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Returns the connection of the copy with this lease.
    pub fn watch(&self) -> LeaseWatch {
        self.watch.clone()
    }

    /// Removes the part from the queue.
    pub fn acknowledge(mut self) {
        self.finish(AckKind::Ack);
    }

    /// Gives the part back: another mover gets it after this time.
    pub fn give_back(mut self, delay: Duration) {
        self.finish(AckKind::Nak((!delay.is_zero()).then_some(delay)));
    }

    fn finish(&mut self, kind: AckKind) {
        if let Some(end) = self.end.take() {
            // The task has ended if the lease is lost.
            let _ = end.send(kind);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.finish(AckKind::Nak(None));
    }
}

impl LeaseWatch {
    /// Records that the copy is alive.
    pub fn on_alive(&self) {
        let now = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.alive.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns a flag that is set when the lease is lost.
    pub fn lost_flag(&self) -> Arc<AtomicBool> {
        self.0.is_lost.clone()
    }

    fn alive_at(&self) -> Duration {
        Duration::from_millis(self.0.alive.load(Ordering::Relaxed))
    }
}

/// Renews the lease until the mover ends it or it is lost.
async fn hold(message: Message, lease: Duration, watch: LeaseWatch, mut ended: oneshot::Receiver<AckKind>) {
    let mut timer = LeaseTimer::new(lease);
    loop {
        let now = watch.0.start.elapsed();
        timer.on_alive(watch.alive_at());
        let until = match timer.poll(now) {
            LeaseAction::Lost => return watch.0.is_lost.store(true, Ordering::SeqCst),
            LeaseAction::Wait(until) => until.min(now + MAX_SLEEP),
            LeaseAction::Renew => {
                timer.on_try(now);
                let answer = message.double_ack_with(AckKind::Progress);
                if let Ok(Ok(())) = tokio::time::timeout(lease / 8, answer).await {
                    timer.on_renewed(now);
                }
                continue;
            }
        };
        tokio::select! {
            kind = &mut ended => {
                // Without an answer, the message is delivered again, and its record shows that nothing is left to do.
                let kind = kind.unwrap_or(AckKind::Nak(None));
                let _ = message.double_ack_with(kind).await;
                return;
            }
            () = tokio::time::sleep(until.saturating_sub(now)) => {}
        }
    }
}
