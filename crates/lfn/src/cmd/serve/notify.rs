//! What systemd is told (sd_notify(3)): that the server is ready, that it stops, and that its accept loop still turns.
//!
//! By hand: a datagram of text to a socket that the environment names. Without `NOTIFY_SOCKET` nothing is done.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

/// The one who started this service, if it wants to hear.
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    pub fn from_environment() -> Self {
        let open = |name: &OsStr| {
            let address = match name.as_bytes() {
                [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
                _ => SocketAddr::from_pathname(name),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        };
        Manager(env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name)))
    }

    /// Says that connections are answered from now on.
    pub fn ready(&self, listen: &str) {
        self.tell(&format!("READY=1\nSTATUS=serving on {listen}\n"));
    }

    /// Says that the end has begun, when `stopping` is set, and again and again that the server is alive, as long as
    /// `heartbeat` grows: four times in what the manager allows.
    pub fn watch(self, stopping: Arc<AtomicBool>, heartbeat: impl Fn() -> u64 + Send + 'static) {
        /// How long after a signal the manager may learn of it.
        const LOOK_UP: Duration = Duration::from_millis(500);
        if self.0.is_none() {
            return;
        }
        let within = watchdog();
        let every = within.map_or(LOOK_UP, |within| (within / 4).min(LOOK_UP));
        let work = move || {
            let (mut last, mut told, mut said) = (None, false, Instant::now());
            loop {
                if !told && stopping.load(Ordering::Relaxed) {
                    told = true;
                    self.tell("STOPPING=1\nSTATUS=finishing the sessions that run\n");
                }
                if within.is_some_and(|within| said.elapsed() >= within / 4) {
                    said = Instant::now();
                    let beat = heartbeat();
                    if last.replace(beat) != Some(beat) {
                        self.tell("WATCHDOG=1\n");
                    }
                }
                thread::sleep(every);
            }
        };
        // Without the thread the manager restarts the server, as it would one that hangs.
        let _ = thread::Builder::new().name("watchdog".into()).stack_size(128 << 10).spawn(work);
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // A manager that does not listen is no reason not to serve.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// The longest silence the manager takes for life (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}
