//! Where a run takes place: namespaces of its own, namespaces that exist, or two interfaces of a real wire.
//!
//! The caller finds what there is ([`Ground`]) and whether the system allows it ([`isolation`]); the inside makes the
//! cables and hands over two packet ports for each path ([`topology`]), wherever they are: what is new is named and
//! numbered in one place ([`addresses`]), what exists is entered with care ([`attach`], [`bridge`]). What runs there and
//! how packets move is not known here.

mod addresses;
mod attach;
mod bridge;
mod ground;
mod isolation;
pub(super) mod topology;

pub(super) use addresses::{End, LEAST_MTU_V6, SideName};
pub use attach::Attachment;
pub use bridge::wire_mtu;
pub(super) use ground::Ground;
pub(super) use isolation::Newcomer;
pub use isolation::{Lacking, Obstacle, namespaces_available};
pub(super) use topology::SideNet;
