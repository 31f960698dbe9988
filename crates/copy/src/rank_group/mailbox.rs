//! Messages from the group to the session of one rank.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::role::CopyResult;

/// The messages to one rank, and the result of the copy.
#[derive(Debug)]
pub(super) struct Mailbox<O> {
    messages: Mutex<VecDeque<O>>,
    result: Mutex<Option<CopyResult>>,
    /// Blocks are assigned to the rank, and have not arrived.
    has_work: AtomicBool,
}

impl<O> Default for Mailbox<O> {
    fn default() -> Self {
        Mailbox { messages: Mutex::default(), result: Mutex::default(), has_work: AtomicBool::default() }
    }
}

impl<O> Mailbox<O> {
    pub(super) fn send(&self, message: O) {
        self.messages.lock().push_back(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.lock().is_empty()
    }

    /// Sends the last messages, and sets the result.
    pub(super) fn finish(&self, last: impl IntoIterator<Item = O>, result: CopyResult) {
        let mut messages = self.messages.lock();
        messages.extend(last);
        *self.result.lock() = Some(result);
    }

    pub(super) fn take(&self) -> Vec<O> {
        self.messages.lock().drain(..).collect()
    }

    /// Returns the result, after all messages were taken.
    pub(super) fn result(&self) -> Option<CopyResult> {
        if self.messages.lock().is_empty() { self.result.lock().clone() } else { None }
    }

    pub(super) fn set_has_work(&self, has_work: bool) {
        self.has_work.store(has_work, Ordering::Relaxed);
    }

    pub(super) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Relaxed)
    }
}
