//! Parts of a connection that take memory only after their first change.

use std::ops::{Deref, DerefMut};

/// A part that reads as its default until it changes. One direction of most connections has no data.
#[derive(Debug)]
pub(crate) struct OnDemand<T>(Option<Box<T>>);

/// Type of a part. All unchanged parts share one default.
pub(crate) trait Part: Default + 'static {
    fn unchanged() -> &'static Self;
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        OnDemand(None)
    }
}

impl<T: Part> Deref for OnDemand<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::unchanged())
    }
}

impl<T: Part> DerefMut for OnDemand<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T> OnDemand<T> {
    /// Returns the bytes of memory that the part takes.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |_| size_of::<T>())
    }
}
