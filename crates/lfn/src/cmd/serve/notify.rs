//! Notifications to systemd (sd_notify(3)): the server is ready, the server stops, the accept loop is alive.
//!
//! One text datagram to the socket in `NOTIFY_SOCKET`. Without this variable nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

/// Service manager that started this process, if it expects notifications.
pub struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// Opens the socket in `NOTIFY_SOCKET` (sd_notify(3)), if it is set.
    pub fn from_environment() -> Self {
        let open = |name: &OsStr| {
            let address = match name.as_bytes() {
                [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
                _ => SocketAddr::from_pathname(name),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        };
        ServiceManager(env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name)))
    }

    /// Reports that the server accepts connections.
    pub fn ready(&self, listen: &str) {
        self.send(&format!("READY=1\nSTATUS=serving on {listen}\n"));
    }

    /// Reports the stop when `stopping` is set. Reports that the server is alive while `heartbeat` increases, four
    /// times per watchdog period.
    pub fn watch(self, stopping: Arc<AtomicBool>, heartbeat: impl Fn() -> u64 + Send + 'static) {
        /// Maximum delay between a signal and the notification.
        const POLL_INTERVAL: Duration = Duration::from_millis(500);
        if self.0.is_none() {
            return;
        }
        let watchdog_period = read_watchdog_period();
        let every = watchdog_period.map_or(POLL_INTERVAL, |watchdog_period| (watchdog_period / 4).min(POLL_INTERVAL));
        let work = move || {
            let (mut last, mut stop_sent, mut last_heartbeat) = (None, false, Instant::now());
            loop {
                if !stop_sent && stopping.load(Ordering::Relaxed) {
                    stop_sent = true;
                    self.send("STOPPING=1\nSTATUS=finishing the sessions that run\n");
                }
                if watchdog_period.is_some_and(|watchdog_period| last_heartbeat.elapsed() >= watchdog_period / 4) {
                    last_heartbeat = Instant::now();
                    let beat = heartbeat();
                    if last.replace(beat) != Some(beat) {
                        self.send("WATCHDOG=1\n");
                    }
                }
                thread::sleep(every);
            }
        };
        // Without the thread, systemd restarts the server as if it had hung.
        let _ = thread::Builder::new().name("watchdog".into()).stack_size(128 << 10).spawn(work);
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // The server works without a service manager.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// Returns the watchdog period (sd_watchdog_enabled(3)).
fn read_watchdog_period() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}
