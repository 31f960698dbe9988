//! Rules for the connections of a packet capture.
//!
//! Each rule estimates the share of the connection's time that its cause took. Without the cause, the transfer would have taken
//! the rest of the time: this gives the predicted goodput and the order of the findings. Rules of the path examine the
//! time that neither the applications nor the receive window nor slow start took.

pub(super) mod application;
pub(super) mod delivery;
pub(super) mod faults;
mod found;
pub(super) mod losses;
pub(super) mod queue;
pub(super) mod startup;
pub(super) mod window;
