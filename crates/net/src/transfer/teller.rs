//! Who is told, while a copy runs, what becomes of its entries: the caller of the copy, wherever the receiver is.
//!
//! A session that follows a lost one lists everything again, and tells of everything again. So what was told before is
//! void, and whatever the lost session still has to say is not heard.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lfn_core::wire::copy::Told;

/// Takes what is told, on whichever thread finds it out; nothing is kept of it.
#[derive(Clone, Default)]
pub struct Teller(Option<Voice>);

#[derive(Clone)]
struct Voice {
    caller: Arc<Caller>,
    /// Of which session's it is.
    session: u64,
}

struct Caller {
    /// The session that is heard.
    heard: Mutex<u64>,
    take: Box<dyn Fn(&Told) + Send + Sync>,
    void: Box<dyn Fn() + Send + Sync>,
}

impl Teller {
    /// One that calls `take`, and `void` when all that was told before comes again.
    pub fn new(take: impl Fn(&Told) + Send + Sync + 'static, void: impl Fn() + Send + Sync + 'static) -> Self {
        let caller = Caller { heard: Mutex::new(0), take: Box::new(take), void: Box::new(void) };
        Teller(Some(Voice { caller: Arc::new(caller), session: 0 }))
    }

    /// Whether somebody listens.
    pub(crate) fn listens(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn tell(&self, told: &Told) {
        let Some(Voice { caller, session }) = &self.0 else { return };
        let heard = caller.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if *heard == *session {
            (caller.take)(told);
        }
    }

    /// That of the next session.
    pub(crate) fn anew(&mut self) {
        let Some(Voice { caller, session }) = &mut self.0 else { return };
        let mut heard = caller.heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard += 1;
        *session = *heard;
        (caller.void)();
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Teller").field(&self.listens()).finish()
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::transfer::entry::Name;
    use lfn_core::wire::copy::{Fate, Thing};

    use super::*;

    #[test]
    fn a_lost_session_is_not_heard() {
        let words: Arc<Mutex<Vec<String>>> = Arc::default();
        let (heard, void) = (words.clone(), words.clone());
        let take = move |told: &Told| heard.lock().unwrap().push(told.name.to_string());
        let mut teller = Teller::new(take, move || void.lock().unwrap().clear());
        let told = |name: &str| Told {
            name: Name::new(name.as_bytes().to_vec()).unwrap(),
            kind: Thing::File,
            fate: Fate::New,
            bytes: None,
            digest: None,
        };
        let lost = teller.clone();
        lost.tell(&told("a"));
        lost.tell(&told("b"));
        assert_eq!(*words.lock().unwrap(), ["a", "b"]);
        teller.anew();
        lost.tell(&told("c"));
        teller.tell(&told("a"));
        assert_eq!(*words.lock().unwrap(), ["a"]);
    }
}
