//! Network of a run: new namespaces, existing namespaces, or two real interfaces.
//!
//! The caller finds the [`Attachment`] and checks if the system allows namespaces ([`isolation`]). The child process
//! creates the cables and two packet ports for each path ([`topology`]). All new names and addresses come from
//! [`addresses`]. The modules [`existing_namespace`] and [`bridge`] use existing namespaces and interfaces.

mod addresses;
mod attachment;
mod bridge;
mod existing_namespace;
mod isolation;
mod namespace_error;
pub(super) mod topology;

pub(super) use addresses::{MIN_MTU_V6, PathEnd, SideName};
pub(super) use attachment::Attachment;
pub use bridge::bridge_mtu;
pub use existing_namespace::NamespaceRef;
pub(super) use isolation::OriginalUser;
pub use isolation::namespaces_available;
pub use namespace_error::{MissingFeature, NamespaceError};
pub(super) use topology::SideNetwork;
