//! Attachment of a run: new network namespaces, existing ones, or two interfaces.
//!
//! The caller finds the attachment, because the caller sees processes and names as the user does. The child process
//! builds the sides on it. New namespaces need no rights. Existing ones need the rights of their owner, so in this case
//! the child gets no user namespace of its own.

use lfn_sys::namespace::CloneSide;

use super::bridge;
use super::existing_namespace::{self, AttachedNamespace};
use super::isolation::{self, OriginalUser};
use super::topology::{self, SideNetwork};
use crate::error::EmulateError;
use crate::{Placement, Setup};

/// Attachment of a run, found but not changed yet.
pub(crate) enum Attachment {
    /// Both sides are new namespaces.
    NewNamespaces,
    /// At least one side is an existing namespace.
    Namespaces([Option<AttachedNamespace>; 2]),
    /// Both sides are behind interfaces of this namespace.
    Bridge([String; 2]),
}

impl Attachment {
    /// Finds the namespaces or interfaces that the setup names.
    pub(crate) fn find(setup: &Setup) -> Result<Attachment, EmulateError> {
        match &setup.placement {
            Placement::Namespaces { near: None, far: None } => Ok(Attachment::NewNamespaces),
            Placement::Namespaces { near, far } => {
                existing_namespace::open([near.as_ref(), far.as_ref()]).map(Attachment::Namespaces)
            }
            Placement::Bridge(names) => bridge::bridge_mtu(names).map(|_| Attachment::Bridge(names.clone())),
        }
    }

    /// Clones this process into the namespaces that the run needs. The second value is the original user, if the child
    /// must become root in a new user namespace.
    pub(crate) fn clone_child(&self) -> Result<(CloneSide, OriginalUser), EmulateError> {
        let (side, permission_error) = match self {
            Attachment::NewNamespaces => return isolation::clone_into_new_namespaces(),
            Attachment::Namespaces(sides) => {
                existing_namespace::acquire_rights(sides)?;
                let spec = sides.iter().flatten().map(|side| &side.spec).next();
                (isolation::clone_with_own_rights(true)?, spec.map(existing_namespace::NamespaceRef::permission_error))
            }
            Attachment::Bridge([one, _]) => {
                (isolation::clone_with_own_rights(false)?, Some(bridge::permission_error(one)))
            }
        };
        match (side, permission_error) {
            (Some(side), _) => Ok((side, None)),
            (None, Some(permission_error)) => Err(permission_error),
            (None, None) => Err(EmulateError::NoReport("nothing to attach to".to_owned())),
        }
    }

    /// Builds both sides. Only the child process calls this.
    pub(crate) fn build(self, setup: &Setup) -> Result<[SideNetwork; 2], EmulateError> {
        match self {
            Attachment::NewNamespaces => topology::build(setup, [None, None]),
            Attachment::Namespaces(sides) => topology::build(setup, sides),
            Attachment::Bridge(names) => bridge::build(&names),
        }
    }
}
