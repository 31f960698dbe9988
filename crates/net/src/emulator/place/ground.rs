//! What of the outside a run stands on: nothing, network namespaces that exist, or interfaces.
//!
//! It is found by the caller, who sees processes and names as its user does, and built on by the inside. What is ours to
//! make needs no rights; what exists needs those of its owner, so there the inside gets no user namespace of its own.

use lfn_sys::namespace::Side;

use super::attach::{self, Attached};
use super::bridge;
use super::isolation::{self, Newcomer};
use super::topology::{self, SideNet};
use crate::emulator::{EmulateError, Place, Setup};

/// Found, and not touched yet.
pub(in crate::emulator) enum Ground {
    /// Both sides are to be made.
    New,
    /// At least one side exists.
    Attached([Option<Attached>; 2]),
    /// Both sides are behind interfaces of this namespace.
    Wire([String; 2]),
}

impl Ground {
    /// Looks for what the setup names.
    pub(in crate::emulator) fn find(setup: &Setup) -> Result<Ground, EmulateError> {
        match &setup.place {
            Place::Sides { near: None, far: None } => Ok(Ground::New),
            Place::Sides { near, far } => attach::open([near.as_ref(), far.as_ref()]).map(Ground::Attached),
            Place::Wire(names) => bridge::wire_mtu(names).map(|_| Ground::Wire(names.clone())),
        }
    }

    /// Clones this process into what namespaces the run needs; with who it was outside, if it has to be made root inside.
    pub(in crate::emulator) fn enter(&self) -> Result<(Side, Newcomer), EmulateError> {
        let (side, forbidden) = match self {
            Ground::New => return isolation::enter(),
            Ground::Attached(sides) => {
                attach::acquire_rights(sides)?;
                let typed = sides.iter().flatten().map(|side| &side.typed).next();
                (isolation::enter_with_own_rights(true)?, typed.map(attach::Attachment::forbidden))
            }
            Ground::Wire([one, _]) => (isolation::enter_with_own_rights(false)?, Some(bridge::forbidden(one))),
        };
        match (side, forbidden) {
            (Some(side), _) => Ok((side, None)),
            (None, Some(forbidden)) => Err(forbidden),
            (None, None) => Err(EmulateError::Lost("nothing to attach to".to_owned())),
        }
    }

    /// Builds both sides, inside.
    pub(in crate::emulator) fn build(self, setup: &Setup) -> Result<[SideNet; 2], EmulateError> {
        match self {
            Ground::New => topology::build(setup, [None, None]),
            Ground::Attached(sides) => topology::build(setup, sides),
            Ground::Wire(names) => bridge::build(&names),
        }
    }
}
