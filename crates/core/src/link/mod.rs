//! The emulated link: stages a packet passes through, and a chain of them.
//!
//! The model is handed descriptions of packets and the time; bytes stay with whoever holds them. A [`Packet`] stands
//! for `count` virtual packets of one kernel super-packet (GSO), and every rule of the link — wire time, queue limit,
//! each random draw — counts virtual packets, so that offloads do not change what the link does. The same chain runs
//! under a real kernel's packets (`lfn-net`) and in virtual time (the `sim` module and the tests).

/// Consecutive virtual packets of one super-packet, as the model sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Names the super-packet to whoever holds its bytes; the model only hands it back.
    pub id: u64,
    /// Index of the first virtual packet, within the super-packet.
    pub first: u32,
    /// How many virtual packets; never zero.
    pub count: u32,
    /// Bytes on the wire of each virtual packet but the last of the super-packet.
    pub wire: u32,
    /// Bytes on the wire of the last virtual packet of this range.
    pub last_wire: u32,
}
