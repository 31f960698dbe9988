//! Messages from the group to the session of one rank.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_session::wire::copy::ReceiverMessage;
use parking_lot::Mutex;

use crate::role::CopyResult;

/// The messages to one rank, and the result of the copy.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    messages: Mutex<VecDeque<ReceiverMessage>>,
    result: Mutex<Option<CopyResult>>,
    /// Blocks are assigned to the rank, and have not arrived.
    has_work: AtomicBool,
}

impl Mailbox {
    pub(super) fn send(&self, message: ReceiverMessage) {
        self.messages.lock().push_back(message);
    }

    /// Sends the last messages, and sets the result.
    pub(super) fn finish(&self, last: impl IntoIterator<Item = ReceiverMessage>, result: CopyResult) {
        let mut messages = self.messages.lock();
        messages.extend(last);
        *self.result.lock() = Some(result);
    }

    pub(super) fn take(&self) -> Vec<ReceiverMessage> {
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
