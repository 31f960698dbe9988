//! Events while a server is found and started.

use std::io;

/// Event while a server is found and started.
#[derive(Debug)]
pub enum ResolveEvent<'a> {
    /// The ticket is read from a terminal. The user has to type it.
    TicketAwaited,
    /// A firewall blocks the port of the server, so the data go through ssh, which is slower.
    DataThroughSsh { host: &'a str, port: u16, error: &'a io::Error },
}
