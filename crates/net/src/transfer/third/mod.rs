//! A copy between two far ends: the data go from one to the other, and the client that asks for it sees how far they are.
//!
//! [`lend()`] is the receiver's part beside an upload like any other, [`carry()`] the sender's, which is the client of that
//! upload, and [`across()`] that of the client of both, which asks both again where it has lost one.

mod across;
mod carry;
mod lend;

pub use across::across;
pub(crate) use carry::carry;
pub(crate) use lend::lend;
