//! Error of a datagram that is longer than the path MTU.

/// Error: datagrams do not fit the path MTU, and fragmentation is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("datagrams of {datagram} B do not fit the path MTU{}", .mtu.map(|(mtu, _)| format!(" of {mtu} B")).unwrap_or_default())]
pub(in crate::tester) struct DatagramTooLong {
    pub(super) datagram: usize,
    /// Path MTU, if known, and the payload that fits it.
    pub(super) mtu: Option<(u32, u32)>,
}

impl DatagramTooLong {
    pub(in crate::tester) fn hint(&self) -> String {
        let fits = self.mtu.map_or("a smaller --length".into(), |(_, fits)| format!("--length {fits}"));
        format!("use {fits}, or --fragment to allow fragmentation")
    }
}
