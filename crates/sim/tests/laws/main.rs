//! Laws of the link and of the modelled TCP, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod change_laws;
mod delay_laws;
mod gate_laws;
mod link_laws;
mod loss_laws;
mod queue_laws;
mod statistics;
mod support;
mod theory_laws;
mod transfer_laws;
mod whole_link_laws;
