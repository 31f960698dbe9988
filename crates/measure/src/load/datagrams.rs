//! Loops that move datagrams. Front ends have the headers, the statistics and the errors that they tolerate.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_session::transport::is_timeout;
use lfn_sys::clock::monotonic_nanos;

use super::state::LoadState;
use super::wait::{WaitPrecision, wait_until};

/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sender of one stream's datagrams.
pub(crate) trait BurstSender {
    /// Returns the time of the next burst; `None` means at once.
    fn next_burst(&self) -> Option<Instant>;

    /// Sends a burst, and returns how many of its datagrams left: fewer after a stop.
    fn send_burst(&mut self, datagrams: u32) -> io::Result<u32>;
}

/// End of a send loop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendUntil {
    Time(Duration),
    /// Sends while datagrams of the load are left.
    Count,
}

/// Result of a send loop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SentBursts {
    pub(crate) datagrams: u64,
    /// Time from the first to the last burst.
    pub(crate) time: Duration,
}

/// Sends bursts of this size until the end or the stop.
pub(crate) fn send_bursts(
    sender: &mut impl BurstSender,
    load: &LoadState,
    burst: u32,
    precision: WaitPrecision,
    until: SendUntil,
) -> io::Result<SentBursts> {
    let began = monotonic_nanos();
    let (mut first, mut last, mut datagrams) = (None, began, 0);
    loop {
        // Taken before the wait: the loop ends with its last datagram.
        let count = match until {
            SendUntil::Time(_) => burst,
            SendUntil::Count => load.take(burst.into()) as u32,
        };
        if count == 0 {
            break;
        }
        if let Some(due) = sender.next_burst() {
            wait_until(due, precision, &load.stop);
        }
        let now = monotonic_nanos();
        let has_passed = |time: Duration| u128::from(now.saturating_sub(began)) >= time.as_nanos();
        if load.is_stopped() || matches!(until, SendUntil::Time(time) if has_passed(time)) {
            break;
        }
        let sent = sender.send_burst(count)?;
        (first, last) = (first.or(Some(now)), now);
        datagrams += u64::from(sent);
    }
    Ok(SentBursts { datagrams, time: Duration::from_nanos(last.saturating_sub(first.unwrap_or(last))) })
}

/// Receives datagrams until the stop. `receive` reads and counts those of one call, and returns the bytes that the
/// server's limits count.
pub(crate) fn receive_datagrams(
    socket: &UdpSocket,
    load: &LoadState,
    mut receive: impl FnMut() -> io::Result<u64>,
) -> io::Result<()> {
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    while !load.is_stopped() {
        match receive() {
            Ok(bytes) => load.count_and_wait(bytes)?,
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            // The peer's socket is closed or not open yet; the control connection knows which.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
