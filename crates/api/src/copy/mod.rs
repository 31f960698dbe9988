//! Copies: the places as typed become the two ends of a copy, and errors name the end where they happened.

pub mod ends;
pub mod places;
mod source_size;
