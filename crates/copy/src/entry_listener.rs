//! Reports the results of entries to the caller of a copy while the copy runs.
//!
//! After a lost session, the next session lists and reports all entries again. The earlier reports are then discarded,
//! and late reports of the lost session are ignored.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lfn_session::wire::copy::EntryEvent;
use lfn_session::wire::copy::entry::Name;
use parking_lot::Mutex;

/// Callback for the results of entries. Called on the thread that produces the result.
#[derive(Clone, Default)]
pub struct EntryListener(Option<ListenerHandle>);

#[derive(Clone)]
struct ListenerHandle {
    callbacks: Arc<Callbacks>,
    /// Number of the session that uses this listener.
    session: u64,
}

struct Callbacks {
    /// Reports of earlier sessions are ignored.
    current_session: Mutex<u64>,
    on_event: Box<dyn Fn(&EntryEvent) + Send + Sync>,
    on_reset: Box<dyn Fn() + Send + Sync>,
    on_start: Box<dyn Fn(&Name) + Send + Sync>,
    /// Number of the latest file that was started, plus one.
    latest_started: AtomicU32,
}

impl EntryListener {
    /// Creates a listener that calls `on_event` for each result, `on_reset` when all earlier results are discarded, and
    /// `on_start` when data of a later file starts to move.
    pub fn new(
        on_event: impl Fn(&EntryEvent) + Send + Sync + 'static,
        on_reset: impl Fn() + Send + Sync + 'static,
        on_start: impl Fn(&Name) + Send + Sync + 'static,
    ) -> Self {
        let callbacks = Callbacks {
            current_session: Mutex::new(0),
            on_event: Box::new(on_event),
            on_reset: Box::new(on_reset),
            on_start: Box::new(on_start),
            latest_started: AtomicU32::new(0),
        };
        EntryListener(Some(ListenerHandle { callbacks: Arc::new(callbacks), session: 0 }))
    }

    /// Returns a listener that also calls `on_event`, before the callbacks of this one.
    pub fn with(&self, on_event: impl Fn(&EntryEvent) + Send + Sync + 'static) -> Self {
        let [events, resets, starts] = [(); 3].map(|()| self.0.as_ref().map(|handle| handle.callbacks.clone()));
        EntryListener::new(
            move |event| {
                on_event(event);
                events.iter().for_each(|callbacks| (callbacks.on_event)(event));
            },
            move || resets.iter().for_each(|callbacks| (callbacks.on_reset)()),
            move |name| starts.iter().for_each(|callbacks| (callbacks.on_start)(name)),
        )
    }

    /// Reports whether a callback is set.
    pub(crate) fn is_active(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn notify(&self, event: &EntryEvent) {
        let Some(ListenerHandle { callbacks, session }) = &self.0 else { return };
        let current = callbacks.current_session.lock();
        if *current == *session {
            (callbacks.on_event)(event);
        }
    }

    /// Reports that data of a file moves. Only the first report of the latest file so far is passed on.
    pub(crate) fn notify_started(&self, number: u32, name: &Name) {
        let Some(ListenerHandle { callbacks, .. }) = &self.0 else { return };
        let number = number.saturating_add(1);
        if callbacks.latest_started.fetch_max(number, Ordering::Relaxed) < number {
            (callbacks.on_start)(name);
        }
    }

    /// Switches to the next session: discards all earlier results.
    pub(crate) fn reset_for_session(&mut self) {
        let Some(ListenerHandle { callbacks, session }) = &mut self.0 else { return };
        let mut current = callbacks.current_session.lock();
        *current += 1;
        *session = *current;
        callbacks.latest_started.store(0, Ordering::Relaxed);
        (callbacks.on_reset)();
    }
}

impl fmt::Debug for EntryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EntryListener").field(&self.is_active()).finish()
    }
}

#[cfg(test)]
mod tests {
    use lfn_session::wire::copy::{EntryAction, ReportedKind};

    use super::*;

    #[test]
    fn events_of_a_lost_session_are_discarded() {
        let words: Arc<Mutex<Vec<String>>> = Arc::default();
        let (current, on_reset) = (words.clone(), words.clone());
        let on_event = move |event: &EntryEvent| current.lock().push(event.name.to_string());
        let mut listener = EntryListener::new(on_event, move || on_reset.lock().clear(), |_| ());
        let event = |name: &str| EntryEvent {
            name: Name::new(name.as_bytes().to_vec()).unwrap(),
            kind: ReportedKind::File,
            action: EntryAction::New,
            bytes: None,
            digest: None,
        };
        let lost = listener.clone();
        lost.notify(&event("a"));
        lost.notify(&event("b"));
        assert_eq!(*words.lock(), ["a", "b"]);
        listener.reset_for_session();
        lost.notify(&event("c"));
        listener.notify(&event("a"));
        assert_eq!(*words.lock(), ["a"]);
    }

    #[test]
    fn only_later_files_are_reported_as_started() {
        let names: Arc<Mutex<Vec<String>>> = Arc::default();
        let started = names.clone();
        let mut listener = EntryListener::new(|_| (), || (), move |name| started.lock().push(name.to_string()));
        let start = |listener: &EntryListener, number, name: &str| {
            listener.notify_started(number, &Name::new(name.as_bytes().to_vec()).unwrap());
        };
        for (number, name) in [(0, "a"), (0, "a"), (3, "d"), (2, "c"), (4, "e")] {
            start(&listener, number, name);
        }
        listener.reset_for_session();
        start(&listener, 1, "b");
        assert_eq!(*names.lock(), ["a", "d", "e", "b"]);
    }
}
