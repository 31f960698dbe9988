//! A bounded queue into one stage of the receiver.
//!
//! Producers on working threads wait while the queue is full. A producer that must never wait, such as the control
//! thread, uses [`Inbox::send_now`]; the protocol limits how much such a producer can send. The consumer states how
//! many items are worth a wake-up, because waking a thread for each of a million small files would cost more than the
//! files.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Interval at which a waiting thread checks whether the copy is over.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A bounded queue with one consumer.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    has_items: Condvar,
    has_room: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    /// Number of items that wakes the waiting consumer. `None` if the consumer does not wait.
    wake_at: Option<usize>,
    waiting_producers: usize,
    has_urgent: bool,
}

/// Whether an item alone wakes the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The consumer needs the item now.
    Urgent,
    /// The consumer may wait for more items.
    Batched,
}

impl<T> Inbox<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let queue = Queue { items: VecDeque::new(), wake_at: None, waiting_producers: 0, has_urgent: false };
        Inbox { queue: Mutex::new(queue), has_items: Condvar::new(), has_room: Condvar::new(), capacity }
    }

    /// Adds an item. Waits while the queue is full, unless `is_stopped`.
    pub(super) fn send(&self, item: T, urgency: Urgency, is_stopped: impl Fn() -> bool) {
        let mut queue = self.queue.lock();
        while queue.items.len() >= self.capacity && !is_stopped() {
            self.has_items.notify_all();
            queue.waiting_producers += 1;
            self.has_room.wait_for(&mut queue, POLL_INTERVAL);
            queue.waiting_producers -= 1;
        }
        self.push(queue, item, urgency);
    }

    /// Adds an item without waiting. Returns the length of the queue, so that the caller can limit it.
    pub(super) fn send_now(&self, item: T, urgency: Urgency) -> usize {
        let queue = self.queue.lock();
        let length = queue.items.len() + 1;
        self.push(queue, item, urgency);
        length
    }

    /// Takes all items. Waits until there are `wake_at` items or an urgent one, for at most `timeout`.
    pub(super) fn take(&self, wake_at: usize, timeout: Duration) -> VecDeque<T> {
        let mut queue = self.queue.lock();
        let wake_at = wake_at.clamp(1, self.capacity);
        if queue.items.len() < wake_at && !queue.has_urgent {
            queue.wake_at = Some(wake_at);
            self.has_items.wait_for(&mut queue, timeout);
            queue.wake_at = None;
        }
        self.take_all(queue)
    }

    /// Takes all items that are there.
    pub(super) fn take_now(&self) -> VecDeque<T> {
        self.take_all(self.queue.lock())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.lock().items.len()
    }

    fn take_all(&self, mut queue: MutexGuard<'_, Queue<T>>) -> VecDeque<T> {
        if queue.waiting_producers > 0 {
            self.has_room.notify_all();
        }
        queue.has_urgent = false;
        std::mem::take(&mut queue.items)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue<T>>, item: T, urgency: Urgency) {
        queue.items.push_back(item);
        queue.has_urgent |= urgency == Urgency::Urgent;
        let wakes = queue.wake_at.is_some_and(|count| urgency == Urgency::Urgent || queue.items.len() >= count);
        drop(queue);
        if wakes {
            self.has_items.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn full_queue_makes_producers_wait() {
        let inbox = Arc::new(Inbox::new(2));
        let producer = inbox.clone();
        let sending = thread::spawn(move || (0..100).for_each(|n| producer.send(n, Urgency::Urgent, || false)));
        let mut received = Vec::new();
        while received.len() < 100 {
            let items = inbox.take(1, LONG);
            assert!(items.len() <= 2, "{}", items.len());
            received.extend(items);
        }
        sending.join().unwrap();
        assert!(received.into_iter().eq(0..100));
    }

    #[test]
    fn stopped_producer_does_not_wait() {
        let inbox = Inbox::new(1);
        (0..3).for_each(|n| inbox.send(n, Urgency::Urgent, || true));
        assert_eq!(inbox.send_now(3, Urgency::Batched), 4);
        assert_eq!(inbox.take_now(), [0, 1, 2, 3]);
    }

    #[test]
    fn batched_items_wake_together_and_urgent_ones_alone() {
        for (urgency, count) in [(Urgency::Batched, 10), (Urgency::Urgent, 1)] {
            let inbox = Arc::new(Inbox::new(100));
            let producer = inbox.clone();
            let sending = thread::spawn(move || (0..count).for_each(|n| producer.send(n, urgency, || false)));
            let mut received = 0;
            while received < count {
                received += inbox.take(10, LONG).len();
            }
            sending.join().unwrap();
        }
    }
}
