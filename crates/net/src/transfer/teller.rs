//! Who is told, while a copy runs, what becomes of its entries: the caller of the copy, wherever the receiver is.

use std::fmt;
use std::sync::Arc;

use lfn_core::wire::copy::Told;

type Take = dyn Fn(&Told) + Send + Sync;

/// Takes what is told, on whichever thread finds it out; nothing is kept of it.
#[derive(Clone, Default)]
pub struct Teller(Option<Arc<Take>>);

impl Teller {
    /// One that calls `take`.
    pub fn new(take: impl Fn(&Told) + Send + Sync + 'static) -> Self {
        Teller(Some(Arc::new(take)))
    }

    /// Whether somebody listens.
    pub(crate) fn listens(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn tell(&self, told: &Told) {
        if let Some(take) = &self.0 {
            take(told);
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Teller").field(&self.listens()).finish()
    }
}
